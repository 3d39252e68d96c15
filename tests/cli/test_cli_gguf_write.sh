#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# GGUF files that synth and quantize write: every command takes them; a killed and resumed run gives the same bytes;
# refusals leave nothing. With gguf-py (PyPI package gguf) and numpy its reader and its quantizers are the reference;
# without, that part is skipped.
. "$(dirname "$0")/cli_lib.sh"

small="--layers 1 --experts 16 --hidden 256 --intermediate 256"
# shellcheck disable=SC2086 # options
made() { "$moxie" synth "$1" --format "$2" -o "$3" $small; }

# A mixed recipe, and one with biases.
expect 0 "1 file" made qwen3-30b-a3b gguf-q4_k_m "$tmp/mixed.gguf"
expect 0 "qwen3moe \(family gguf\)" "$moxie" inspect "$tmp/mixed.gguf"
expect 0 "0 errors, 0 warnings, 0 notes" "$moxie" lint "$tmp/mixed.gguf" --deep
expect 0 "^right: the worst error" "$moxie" diff "$tmp/mixed.gguf" --a cpu --b ref --tokens 5
expect 0 "expert_gemm" "$moxie" explain "$tmp/mixed.gguf"
expect 0 "expert_gemm" "$moxie" explain --preset qwen3-30b-a3b --format gguf-q4_k
expect 0 "expert_gemm" "$moxie" explain --preset deepseek-v3 --format gguf-iq4_xs
expect 0 "GB/s" "$moxie" bench "$tmp/mixed.gguf" --tokens 1
expect 0 "1 file" made gpt-oss-20b gguf-mxfp4 "$tmp/oss.gguf"
expect 0 "^right: the worst error" "$moxie" diff "$tmp/oss.gguf" --a cpu --b ref --tokens 5
expect 0 "gguf-q4_k_m" "$moxie" synth --list
expect 0 "gguf-q4_k" "$moxie" info --support

# What has no place in GGUF is refused, and nothing is left.
expect 4 "no architecture in GGUF" made gemma-4-26b-a4b gguf-q4_0 "$tmp/none.gguf"
expect 4 "no place for experts of another width" "$moxie" synth nemotron-3-super --format gguf-q4_0 --layers 1 --experts 32 -o "$tmp/none.gguf"
expect 4 "no whole blocks of q4_k.*gguf-q5_0" "$moxie" synth gpt-oss-20b --format gguf-q4_k --layers 1 -o "$tmp/none.gguf"
expect 0 "1 file" "$moxie" synth gpt-oss-20b --format gguf-q4_k_m --layers 1 --experts 4 --hidden 288 --intermediate 96 -o "$tmp/back.gguf"
expect 0 "q5_0" "$moxie" inspect "$tmp/back.gguf"
expect 4 "no place for the activation" "$moxie" synth step-3.7-flash --format gguf-q4_0 --experts 8 --hidden 32 --intermediate 32 -o "$tmp/none.gguf"
[ ! -e "$tmp/none.gguf" ] || fail "a refused file is left"
expect 0 "GB/s" "$moxie" bench --preset qwen3-30b-a3b --experts 8 --format gguf-q4_k_m --tokens 1
expect 0 "not finite 0" "$moxie" run --preset qwen3-30b-a3b --experts 8 --format gguf-iq4_xs --tokens 3
expect 3 "exists already" made gpt-oss-20b gguf-mxfp4 "$tmp/oss.gguf"

# From a directory, and from the file that makes. The latter keeps all that are no experts.
synth qwen3-30b-a3b bf16 "$tmp/src" --layers 3 --intermediate 256
expect 0 "lossless" "$moxie" quantize "$tmp/src" --format gguf-bf16 -o "$tmp/b.gguf"
expect 0 "output rms" "$moxie" run "$tmp/b.gguf" --tokens 5 -o "$tmp/own.safetensors"
expect 0 "output rms" "$moxie" run "$tmp/b.gguf" --tokens 5 --activations ggml -o "$tmp/ggml.safetensors"
cmp "$tmp/own.safetensors" "$tmp/ggml.safetensors" || fail "ggml does not quantize the activations of bf16"
expect 0 "root mean square error, relative to the weights: 0.06" "$moxie" quantize "$tmp/src" --format q4_k -o "$tmp/a.gguf"
expect 0 "root mean square error" "$moxie" quantize "$tmp/b.gguf" --format gguf-q4_k -o "$tmp/c.gguf/" --threads 1
cmp "$tmp/a.gguf" "$tmp/c.gguf" || fail "a directory and the GGUF file of it give other bytes"
expect 0 "^right: the worst error" "$moxie" diff "$tmp/a.gguf" --a cpu --b ref --tokens 5
expect 2 "nothing would change" "$moxie" quantize "$tmp/a.gguf" --format gguf-q4_k -o "$tmp/x.gguf"
expect 3 "exists already" "$moxie" quantize "$tmp/src" --format gguf-q4_0 -o "$tmp/a.gguf"
expect 2 "scales of least mean square|plain scales" "$moxie" quantize "$tmp/src" --format gguf-q4_0 --scales four-over-six -o "$tmp/x.gguf"
expect 3 "no tensor NAME.in_sum2" "$moxie" quantize "$tmp/src" --format int4-ct --imatrix "$tmp/a.gguf" -o "$tmp/x"
expect 3 "no tensor NAME.in_sum2" "$moxie" quantize "$tmp/src" --format gguf-q4_0 --imatrix "$tmp/a.gguf" -o "$tmp/x.gguf"
expect 3 "no importance matrix|follow: the file" "$moxie" quantize "$tmp/src" --format gguf-q4_0 --imatrix "$tmp/src/config.json" -o "$tmp/x.gguf"
[ ! -e "$tmp/x.gguf" ] && [ ! -e "$tmp/x.gguf.partial" ] || fail "something is left of refused runs"

# Every type that a format has: made up and quantized, and each reads back and computes what the oracle does.
"$moxie" info --support | sed -n 's/^gguf-\([a-z0-9_]*\) .*/\1/p' >"$tmp/types"
[ "$(sort -u "$tmp/types" | wc -l)" = 31 ] || fail "not 31 formats of GGUF files"
synth qwen3-30b-a3b bf16 "$tmp/few" --intermediate 256
for type in $(grep -v '_m$' "$tmp/types") iq1_m; do
    expect 0 "1 file" "$moxie" synth qwen3-30b-a3b --format "gguf-$type" -o "$tmp/made.gguf" --layers 1 --experts 8 --hidden 256 --intermediate 256
    expect 0 "root mean square error|lossless" "$moxie" quantize "$tmp/few" --format "gguf-$type" -o "$tmp/type.gguf"
    expect 0 "$type" "$moxie" inspect "$tmp/type.gguf"
    expect 0 "not finite 0" "$moxie" run "$tmp/type.gguf" --tokens 2
    for file in made type; do
        expect 0 "^right: the worst error" "$moxie" diff "$tmp/$file.gguf" --a cpu --b ref --tokens 2
        rm "$tmp/$file.gguf"
    done
done
expect 4 "no whole blocks of iq2_xs.*use gguf-q8_0" "$moxie" synth qwen3-30b-a3b --format gguf-iq2_xs --layers 1 --hidden 96 --intermediate 96 -o "$tmp/none.gguf"

# A directory of a GGUF file: what the family's checkpoint has, computing the same. MXFP4 comes back bit for bit.
back() {
    made "$1" gguf-q8_0 "$tmp/one.gguf" >/dev/null || fail "no GGUF file of $1"
    expect 0 "root mean square error|lossless" "$moxie" quantize "$tmp/one.gguf" --format bf16 -o "$tmp/back"
    expect 0 "0 errors, 0 warnings" "$moxie" lint "$tmp/back" --deep
    "$moxie" quantize "$tmp/one.gguf" --format gguf-bf16 -o "$tmp/two.gguf" >/dev/null || fail "no bf16 file of $1"
    expect 0 "output rms" "$moxie" run "$tmp/two.gguf" --tokens 5 -o "$tmp/two.safetensors"
    expect 0 "output rms" "$moxie" run "$tmp/back" --tokens 5 -o "$tmp/back.safetensors"
    cmp "$tmp/two.safetensors" "$tmp/back.safetensors" || fail "$1: the directory computes something else than the file"
    rm -r "$tmp/back" "$tmp/one.gguf" "$tmp/two.gguf"
}
for preset in deepseek-v3 qwen3-next-80b nemotron-3-nano; do
    back "$preset"
done
synth gpt-oss-20b mxfp4-gptoss "$tmp/gptoss" --layers 2
expect 0 "lossless" "$moxie" quantize "$tmp/gptoss" --format gguf-mxfp4 -o "$tmp/gptoss.gguf"
expect 0 "lossless" "$moxie" quantize "$tmp/gptoss.gguf" --format mxfp4-gptoss -o "$tmp/gptoss2"
cat >"$tmp/gptoss.py" <<'END'
import sys
from tensors import read_all
a, b = read_all(sys.argv[1]), read_all(sys.argv[2])
assert len(a) == 16 and a == b, [k for k in a if a[k] != b.get(k)]
END
python3 "$tmp/gptoss.py" "$tmp/gptoss" "$tmp/gptoss2" || fail "gpt-oss is not the same after it was a GGUF file"

# Attention, embeddings and norms go there and back byte for byte, under llama.cpp's names; tensors without such a name stay.
synth qwen3-30b-a3b bf16 "$tmp/whole"
cat >"$tmp/attention.py" <<'END'
import json, os, random, struct, sys
random.seed(3)
path = sys.argv[1] + '/model.safetensors'
with open(path, 'rb') as f:
    header = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
    data = f.read()
layer = 'model.layers.0.'
more = {'model.embed_tokens.weight': [96, 256], 'model.norm.weight': [256], 'lm_head.weight': [96, 256],
        layer + 'input_layernorm.weight': [256], layer + 'post_attention_layernorm.weight': [256],
        layer + 'self_attn.q_proj.weight': [128, 256], layer + 'self_attn.k_proj.weight': [32, 256],
        layer + 'self_attn.v_proj.weight': [32, 256], layer + 'self_attn.o_proj.weight': [256, 128],
        layer + 'self_attn.q_norm.weight': [32], layer + 'self_attn.k_norm.weight': [32],
        layer + 'self_attn.other.weight': [7]}
for name, shape in more.items():
    n = shape[0] * (shape[1] if len(shape) > 1 else 1)
    raw = b''.join(struct.pack('<H', random.randrange(0x3d00, 0x4000) | random.randrange(2) << 15) for _ in range(n))
    header[name] = {'dtype': 'BF16', 'shape': shape, 'data_offsets': [len(data), len(data) + len(raw)]}
    data += raw
text = json.dumps(header).encode()
open(path + '.new', 'wb').write(struct.pack('<Q', len(text)) + text + data)
os.rename(path + '.new', path)
config = json.load(open(sys.argv[1] + '/config.json'))
config.update({'num_attention_heads': 4, 'num_key_value_heads': 1, 'head_dim': 32, 'rms_norm_eps': 1e-06, 'rope_theta': 1000000,
               'max_position_embeddings': 4096, 'vocab_size': 96, 'attention_bias': False, 'tie_word_embeddings': False,
               'partial_rotary_factor': 0.5, 'rope_scaling': {'type': 'yarn', 'factor': 4.0, 'beta_fast': 32.0, 'beta_slow': 1.0,
                                                              'original_max_position_embeddings': 1024.0},
               'sliding_window': -1})
json.dump(config, open(sys.argv[1] + '/config.json', 'w'))
END
python3 "$tmp/attention.py" "$tmp/whole" || fail "no checkpoint with attention"
expect 0 "1 other tensor was not written" "$moxie" quantize "$tmp/whole" --format gguf-bf16 -o "$tmp/whole.gguf"
expect 0 "lossless" "$moxie" quantize "$tmp/whole.gguf" --format bf16 -o "$tmp/whole2"
expect 0 "0 errors, 0 warnings" "$moxie" lint "$tmp/whole2"
cat >"$tmp/same.py" <<'END'
import json, struct, sys
from tensors import read_all
a, b = read_all(sys.argv[1]), read_all(sys.argv[2])
del a['model.layers.0.self_attn.other.weight']
assert a == b, [k for k in set(a) | set(b) if a.get(k) != b.get(k)]
c, d = [json.load(open(dir + '/config.json')) for dir in sys.argv[1:3]]
c['rope_scaling']['rope_type'] = c['rope_scaling'].pop('type')
for key in ('num_attention_heads', 'num_key_value_heads', 'head_dim', 'max_position_embeddings', 'rope_theta', 'rms_norm_eps',
            'vocab_size', 'attention_bias', 'tie_word_embeddings', 'partial_rotary_factor', 'rope_scaling'):
    assert c[key] == d[key], (key, c[key], d[key])
raw = open(sys.argv[3], 'rb').read()
for key, type_, form, value in (('scaling.factor', 6, 'f', 4), ('scaling.yarn_beta_fast', 6, 'f', 32), ('dimension_count', 4, 'I', 16),
                                ('scaling.yarn_beta_slow', 6, 'f', 1), ('scaling.original_context_length', 4, 'I', 1024)):
    at = raw.index(b'qwen3moe.rope.' + key.encode()) + len(b'qwen3moe.rope.' + key.encode())
    assert struct.unpack_from('<I' + form, raw, at) == (type_, value), key
assert struct.pack('<IQ', 8, 4) + b'yarn' in raw
for name in ('token_embd', 'output_norm', 'output', 'blk.0.attn_norm', 'blk.0.ffn_norm', 'blk.0.attn_q', 'blk.0.attn_k',
             'blk.0.attn_v', 'blk.0.attn_output', 'blk.0.attn_q_norm', 'blk.0.attn_k_norm'):
    text = (name + '.weight').encode()
    at = raw.find(struct.pack('<Q', len(text)) + text)
    assert at > 0, name
    rank = struct.unpack_from('<I', raw, at + 8 + len(text))[0]
    type_ = struct.unpack_from('<I', raw, at + 12 + len(text) + 8 * rank)[0]
    assert type_ == (0 if rank == 1 else 30), (name, rank, type_)  # vectors are f32
END
python3 "$tmp/same.py" "$tmp/whole" "$tmp/whole2" "$tmp/whole.gguf" || fail "other tensors are not the same after they were in a GGUF file"

expect 0 "root mean square error" "$moxie" quantize "$tmp/a.gguf" --format nvfp4-ct-w4a16 -o "$tmp/nv"
expect 0 "nvfp4-ct-w4a16" "$moxie" inspect "$tmp/nv"
expect 3 "exists already|not empty" "$moxie" quantize "$tmp/a.gguf" --format bf16 -o "$tmp/nv"

# Killed at several moments: the same command goes on to the same bytes.
for after in 0.02 0.05 0.1; do
    rm -rf "$tmp/again.gguf" "$tmp/again.gguf.partial"
    timeout -s KILL $after "$moxie" quantize "$tmp/src" --format gguf-q4_k -o "$tmp/again.gguf" >/dev/null 2>&1 || true
    resume "$tmp/again.gguf" "$moxie" quantize "$tmp/src" --format gguf-q4_k -o "$tmp/again.gguf"
    cmp "$tmp/a.gguf" "$tmp/again.gguf" || fail "other bytes after a kill at $after s"
done

# No room: files of one block at most.
expect 3 "no room|File too large|cannot" sh -c "trap '' XFSZ; ulimit -f 1; exec '$moxie' quantize '$tmp/src' --format gguf-q4_0 -o '$tmp/full.gguf'"
[ ! -e "$tmp/full.gguf" ] && [ ! -e "$tmp/full.gguf.partial" ] || fail "something is left of a run without room"

if python3 -c 'import gguf, numpy; gguf.quants.quantize' 2>/dev/null; then
    mkdir "$tmp/written"
    PYTHONDONTWRITEBYTECODE=1 python3 -W ignore tests/python/gguf_written.py "$moxie" "$tmp/written" || fail "files for gguf-py"
elif [ "$failures" = 0 ]; then
    echo "skipped: reading the files with gguf-py needs the Python packages gguf and numpy; the rest passed"
    exit 77
fi
finish
