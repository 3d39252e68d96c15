#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moxie quantize --hidden-states: the importance matrix is what a program of its own computes in double, and has the
# effect of one that is given with --imatrix; neither depends on threads.
. "$(dirname "$0")/cli_lib.sh"
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }

"$moxie" synth qwen3-30b-a3b --format bf16 -o "$tmp/src" --layers 2 --experts 16 --hidden 64 --intermediate 32 >/dev/null
cat >"$tmp/states.py" <<'END'
import array, json, math, random, struct, sys
def write(path, tensors):
    header, data = {}, b''
    for name, rows in tensors.items():
        raw = struct.pack('<%df' % (len(rows) * len(rows[0])), *[v for row in rows for v in row])
        header[name] = {'dtype': 'F32', 'shape': [len(rows), len(rows[0])], 'data_offsets': [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    open(path, 'wb').write(struct.pack('<Q', len(text)) + text + data)
random.seed(5)
def rows(cols):
    # 600 tokens are more than one batch; few columns matter
    return [[random.gauss(0, 1) * (8 if c % 7 == 0 else 0.25) for c in range(cols)] for _ in range(600)]
one = [[struct.unpack('<f', struct.pack('<f', v))[0] for v in row] for row in rows(64)]
two = [[struct.unpack('<f', struct.pack('<f', v))[0] for v in row] for row in rows(64)]
write(sys.argv[1] + '/states.safetensors', {'hidden_states.0': one, 'hidden_states.1': two})
write(sys.argv[1] + '/short.safetensors', {'hidden_states.0': one})
write(sys.argv[1] + '/wide.safetensors', {'hidden_states.0': rows(32), 'hidden_states.1': rows(32)})
END
python3 "$tmp/states.py" "$tmp"

expect 0 "root mean square error" "$moxie" quantize "$tmp/src" --format gguf-q4_0 --hidden-states "$tmp/states.safetensors" --save-imatrix "$tmp/imatrix" -o "$tmp/a.gguf" --threads 1
expect 0 "root mean square error" "$moxie" quantize "$tmp/src" --format gguf-q4_0 --hidden-states "$tmp/states.safetensors" -o "$tmp/b.gguf" --threads 3
expect 0 "root mean square error" "$moxie" quantize "$tmp/src" --format gguf-q4_0 --imatrix "$tmp/imatrix" -o "$tmp/c.gguf"
expect 0 "root mean square error" "$moxie" quantize "$tmp/src" --format gguf-q4_0 -o "$tmp/d.gguf"
cmp "$tmp/a.gguf" "$tmp/b.gguf" || fail "the result depends on threads"
cmp "$tmp/a.gguf" "$tmp/c.gguf" || fail "the saved importance matrix has another effect"
cmp -s "$tmp/a.gguf" "$tmp/d.gguf" && fail "hidden states change nothing"

cat >"$tmp/reading.py" <<'END'
import json, math, struct
def read(path):
    with open(path, 'rb') as f:
        header = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        data = f.read()
    out = {}
    for name, t in header.items():
        if name == '__metadata__':
            continue
        raw = data[t['data_offsets'][0]:t['data_offsets'][1]]
        if t['dtype'] == 'F32':
            flat = struct.unpack('<%df' % (len(raw) // 4), raw)
        else:
            assert t['dtype'] == 'BF16'
            codes = struct.unpack('<%dH' % (len(raw) // 2), raw)
            flat = struct.unpack('<%df' % len(codes), struct.pack('<%dI' % len(codes), *[c << 16 for c in codes]))
        cols = t['shape'][-1]
        out[name] = [flat[i:i + cols] for i in range(0, len(flat), cols)]
    return out
def imatrix(path):
    raw = open(path, 'rb').read()
    out, at = {}, 4
    for _ in range(struct.unpack_from('<i', raw)[0]):
        n = struct.unpack_from('<i', raw, at)[0]
        name = raw[at + 4:at + 4 + n].decode()
        calls, values = struct.unpack_from('<ii', raw, at + 4 + n)
        assert calls == 1
        out[name] = struct.unpack_from('<%df' % values, raw, at + 12 + n)
        at += 12 + n + 4 * values
    assert at == len(raw)
    return out
END
cat >"$tmp/check.py" <<'END'
import json, math, struct, sys
from reading import imatrix, read
def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))
weights, states, found = read(sys.argv[1] + '/model.safetensors'), read(sys.argv[2]), imatrix(sys.argv[3])
top_k = json.load(open(sys.argv[1] + '/config.json'))['num_experts_per_tok']
experts, layer = 16, 1
assert top_k < experts
sums13, sums2, tokens = {}, {}, [0] * experts
for x in states['hidden_states.%d' % layer]:
    logits = [dot(row, x) for row in weights['model.layers.%d.mlp.gate.weight' % layer]]
    for e in sorted(range(experts), key=lambda e: -logits[e])[:top_k]:
        tokens[e] += 1
        sums13[e] = [s + v * v for s, v in zip(sums13.get(e, [0] * len(x)), x)]
        if e != 3:  # one expert's products are enough
            continue
        name = 'model.layers.%d.mlp.experts.%d.' % (layer, e)
        act = []
        for gate, up in zip(weights[name + 'gate_proj.weight'], weights[name + 'up_proj.weight']):
            g = dot(gate, x)
            act.append(g / (1 + math.exp(-g)) * dot(up, x))
        sums2[e] = [s + v * v for s, v in zip(sums2.get(e, [0] * len(act)), act)]
def near(got, want, count):
    assert len(got) == len(want) and all(abs(g - w / count) <= 1e-4 * w / count for g, w in zip(got, want)), (got, want, count)
assert tokens[3] > 0 and set(found) == {'blk.%d.ffn_%s_exps.weight' % (l, m) for l in (0, 1) for m in ('gate', 'up', 'down')}
for e in range(experts):
    for m in ('gate', 'up'):
        got = found['blk.1.ffn_%s_exps.weight' % m][e * 64:e * 64 + 64]
        near(got, sums13[e], tokens[e]) if tokens[e] else near(got, [0] * 64, 1)
near(found['blk.1.ffn_down_exps.weight'][3 * 32:4 * 32], sums2[3], tokens[3])
END
python3 "$tmp/check.py" "$tmp/src" "$tmp/states.safetensors" "$tmp/imatrix" || fail "the importances are not sums of squares"

# Directories: the importances choose among the same scales, so errors by their weights become less.
cat >"$tmp/weighted.py" <<'END'
import glob, math, sys
from reading import imatrix, read
source, found = read(sys.argv[1] + '/model.safetensors'), imatrix(sys.argv[2])
def error(path):
    quantized, sum = {}, 0
    for file in glob.glob(path + '/*.safetensors'):
        quantized.update(read(file))
    for layer in (0, 1):
        for e in range(16):
            for m, cols in (('gate', 64), ('up', 64), ('down', 32)):
                name = 'model.layers.%d.mlp.experts.%d.%s_proj.weight' % (layer, e, m)
                p = found['blk.%d.ffn_%s_exps.weight' % (layer, m)][e * cols:(e + 1) * cols]
                p = [v / (math.fsum(p) / cols) for v in p] if math.fsum(p) > 0 else [1] * cols
                for a, b in zip(source[name], quantized[name]):
                    sum += math.fsum(w * (x - y) ** 2 for w, x, y in zip(p, a, b))
    return sum
weighted, plain = error(sys.argv[3]), error(sys.argv[4])
assert weighted < 0.999 * plain, (weighted, plain)
END
for format in int4-ct-g32 int4-ct-asym nvfp4-ct-w4a16 mxfp4-ct fp8-channel int8-w8a8; do
    for threads in 1 3; do
        expect 0 "root mean square error" "$moxie" quantize "$tmp/src" --format $format --imatrix "$tmp/imatrix" --threads $threads -o "$tmp/w$threads"
    done
    expect 0 "root mean square error" "$moxie" quantize "$tmp/src" --format $format --scales mse -o "$tmp/none"
    for file in "$tmp"/w1/*.safetensors; do
        cmp "$file" "$tmp/w3/${file##*/}" || fail "$format: the result depends on threads"
    done
    expect 0 "lossless|root mean" "$moxie" quantize "$tmp/w1" --format f32 -o "$tmp/w1.f32"
    expect 0 "lossless|root mean" "$moxie" quantize "$tmp/none" --format f32 -o "$tmp/none.f32"
    PYTHONDONTWRITEBYTECODE=1 python3 "$tmp/weighted.py" "$tmp/src" "$tmp/imatrix" "$tmp/w1.f32" "$tmp/none.f32" || fail "$format: importances do not lessen the weighted error"
    rm -r "$tmp/w1" "$tmp/w3" "$tmp/none" "$tmp/w1.f32" "$tmp/none.f32"
done
python3 -c "import struct, sys
name = b'blk.1.ffn_down_exps.weight'
open(sys.argv[1], 'wb').write(struct.pack('<ii', 1, len(name)) + name + struct.pack('<ii32f', 1, 32, *range(32)))" "$tmp/one.imatrix"

expect 3 "no tensor hidden_states.1" "$moxie" quantize "$tmp/src" --format gguf-q4_0 --hidden-states "$tmp/short.safetensors" -o "$tmp/x.gguf" --save-imatrix "$tmp/x.imatrix"
expect 3 "must be .T,64." "$moxie" quantize "$tmp/src" --format gguf-q4_0 --hidden-states "$tmp/wide.safetensors" -o "$tmp/x.gguf"
expect 2 "plain scales are not chosen" "$moxie" quantize "$tmp/src" --format int4-ct-g32 --scales plain --hidden-states "$tmp/states.safetensors" -o "$tmp/x"
expect 2 "plain scales are not chosen" "$moxie" quantize "$tmp/src" --format gguf-q4_0 --scales plain --imatrix "$tmp/imatrix" -o "$tmp/x.gguf"
expect 2 "gguf-bf16 has no scales" "$moxie" quantize "$tmp/src" --format gguf-bf16 --imatrix "$tmp/imatrix" -o "$tmp/x.gguf"
expect 2 "bf16 has no scales" "$moxie" quantize "$tmp/a.gguf" --format bf16 --imatrix "$tmp/imatrix" -o "$tmp/x"
expect 3 "no entry .blk.0.ffn_gate_exps" "$moxie" quantize "$tmp/src" --format int4-ct-g32 --imatrix "$tmp/one.imatrix" -o "$tmp/x"
# An entry that is missing in the last layer is found before the first is made.
python3 -c "import sys
old, new = b'blk.1.ffn_up_exps', b'blk.1.ffn_xx_exps'
raw = open(sys.argv[1], 'rb').read()
assert raw.count(old) == 1
open(sys.argv[2], 'wb').write(raw.replace(old, new))" "$tmp/imatrix" "$tmp/without_up"
expect 3 "no entry .blk.1.ffn_up_exps" "$moxie" quantize "$tmp/src" --format int4-ct-g32 --imatrix "$tmp/without_up" -o "$tmp/x"
expect 3 "no entry .blk.1.ffn_up_exps" "$moxie" quantize "$tmp/src" --format gguf-q4_0 --imatrix "$tmp/without_up" -o "$tmp/x.gguf"
# What cannot be written is refused before hidden states are read.
for refused in "int4-ct-g32 --scales plain" "f32" "gguf-f32" "fp8-channel --input-amax 1,1"; do
    expect 2 "leave|least mean square error" "$moxie" quantize "$tmp/src" --format $refused --hidden-states "$tmp/absent" -o "$tmp/x"
done
expect 3 "exists already" "$moxie" quantize "$tmp/src" --format gguf-q4_0 --hidden-states "$tmp/absent" -o "$tmp/a.gguf"
expect 3 "exists already" "$moxie" quantize "$tmp/src" --format int4-ct-g32 --hidden-states "$tmp/absent" -o "$tmp/src"
expect 2 "leave one of the two out" "$moxie" quantize "$tmp/src" --format gguf-q4_0 --hidden-states "$tmp/states.safetensors" --imatrix "$tmp/imatrix" -o "$tmp/x.gguf"
expect 2 "add that" "$moxie" quantize "$tmp/src" --format gguf-q4_0 --save-imatrix "$tmp/x.imatrix" -o "$tmp/x.gguf"
cp "$tmp/imatrix" "$tmp/kept"
expect 3 "no tensor hidden_states.1" "$moxie" quantize "$tmp/src" --format gguf-q4_0 --hidden-states "$tmp/short.safetensors" -o "$tmp/x.gguf" --save-imatrix "$tmp/kept"
cmp "$tmp/imatrix" "$tmp/kept" || fail "a refused run took an older importance matrix away"
cp "$tmp/states.safetensors" "$tmp/kept"
expect 2 "would be replaced, and this command reads it" "$moxie" quantize "$tmp/src" --format gguf-q4_0 --hidden-states "$tmp/kept" -o "$tmp/x.gguf" --save-imatrix "$tmp/kept"
cmp "$tmp/states.safetensors" "$tmp/kept" || fail "a refused run wrote over its input"
[ ! -e "$tmp/x.partial" ] && [ ! -e "$tmp/x.gguf.partial" ] || fail "work was begun for refused runs"
[ ! -e "$tmp/x.gguf" ] && [ ! -e "$tmp/x" ] && [ ! -e "$tmp/x.imatrix" ] || fail "something is left of refused runs"
finish
