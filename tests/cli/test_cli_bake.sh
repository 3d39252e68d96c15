#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moxie bake: every element of a merged checkpoint against W + s B A computed here, in checkpoints with a tensor for each
# expert and with 3-D tensors; all other files and tensors keep their bytes; what is refused leaves nothing behind.
. "$(dirname "$0")/cli_lib.sh"
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }

cat >"$tmp/check.py" <<'END'
# check.py write ADAPTER: random factors of layer 0's 16 experts, rank 3, hidden 256, intermediate 128.
# check.py compare MODEL BAKED: recomputes them and every changed tensor.
# check.py split MODEL: two shards; the second has experts of layer 0 again, after layer 1 in the first.
import json, os, random, re, struct, sys
from tensors import read_all

E, R, H, I, SCALE = 16, 3, 256, 128, 6 / 3
def f32(x): return struct.unpack('<f', struct.pack('<f', x))[0]
def bf16(x):
    bits = struct.unpack('<I', struct.pack('<f', x))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16
def widen(code): return struct.unpack('<f', struct.pack('<I', code << 16))[0]
def factors():
    rng = random.Random(1)
    sizes = {'gate_proj': (I, H), 'up_proj': (I, H), 'down_proj': (H, I)}
    draw = lambda rows, cols: [[f32(rng.uniform(-1, 1) / 8) for _ in range(cols)] for _ in range(rows)]
    return {(e, p): (draw(R, k), draw(n, R)) for e in range(E) for p, (n, k) in sizes.items() if e != 5}
def write_file(path, tensors):
    header, blobs, at = {}, [], 0
    for name, (dtype, shape, data) in tensors:
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        blobs.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + b''.join(blobs))
def split(dir):
    tensors = read_all(dir)
    late = lambda name: re.search('layers[.]0[.].*experts[.](8|9|1.)[.]', name) is not None
    os.unlink(dir + '/model.safetensors')
    index = {}
    for number, is_late in ((1, False), (2, True)):
        file = 'model-%05d-of-00002.safetensors' % number
        part = [(name, tensors[name]) for name in sorted(tensors) if late(name) == is_late]
        write_file(dir + '/' + file, part)
        index.update((name, file) for name, _ in part)
    with open(dir + '/model.safetensors.index.json', 'w') as f:
        json.dump({'metadata': {}, 'weight_map': index}, f)
def write(dir):
    tensors = []
    for (e, p), ab in factors().items():
        for which, m in zip('AB', ab):
            blob = b''.join(struct.pack('<%df' % len(row), *row) for row in m)
            name = 'base_model.model.model.layers.0.mlp.experts.%d.%s.lora_%s.weight' % (e, p, which)
            tensors.append((name, ('F32', [len(m), len(m[0])], blob)))
    write_file(dir + '/adapter_model.safetensors', tensors)
# All weights of an expert's matrix [N][K] as codes, from either way to store them.
def matrix(tensors, e, p, n, k):
    prefix = [t for t in tensors if '.experts.' in t and 'down_proj' in t and 'bias' not in t][0].split('experts.')[0] + 'experts.'
    single = prefix + '%d.%s.weight' % (e, p)
    if single in tensors:
        codes = struct.unpack('<%dH' % (n * k), tensors[single][2])
        return [codes[r * k:(r + 1) * k] for r in range(n)]
    name = prefix + ('down_proj' if p == 'down_proj' else 'gate_up_proj')
    dtype, shape, data = tensors[name]
    rows, cols = shape[1], shape[2]
    size = rows * cols
    codes = struct.unpack('<%dH' % size, data[2 * e * size:2 * (e + 1) * size])
    if p == 'down_proj':          # gpt-oss: [E, I, H]
        return [[codes[c * cols + r] for c in range(k)] for r in range(n)]
    first = 0 if p == 'gate_proj' else 1  # [E, H, 2 I], gate and up alternate
    return [[codes[c * cols + 2 * r + first] for c in range(k)] for r in range(n)]
def compare(model, baked):
    before, after = read_all(model), read_all(baked)
    assert set(before) == set(after), 'other tensors'
    for name in before:
        changes = 'experts.' in name and 'bias' not in name
        assert changes or before[name] == after[name], name + ' changed'
    worst = 0
    for e in range(E):
        for p, (n, k) in {'gate_proj': (I, H), 'up_proj': (I, H), 'down_proj': (H, I)}.items():
            w, got = matrix(before, e, p, n, k), matrix(after, e, p, n, k)
            ab = factors_of.get((e, p))
            if ab is None:
                assert w == got, 'expert %d has no factors, and changed' % e
                continue
            a, b = ab
            for r in range(0, n, 5):
                for c in range(0, k, 3):
                    exact = widen(w[r][c]) + SCALE * sum(b[r][i] * a[i][c] for i in range(R))
                    low, high = bf16(f32(exact - abs(exact) * 1e-6)), bf16(f32(exact + abs(exact) * 1e-6))
                    assert got[r][c] in (low, high), '%s of expert %d [%d, %d]' % (p, e, r, c)
factors_of = factors()
if sys.argv[1] == 'write':
    write(sys.argv[2])
elif sys.argv[1] == 'split':
    split(sys.argv[2])
else:
    compare(sys.argv[2], sys.argv[3])
END

mkdir "$tmp/adapter"
echo '{"peft_type": "LORA", "r": 3, "lora_alpha": 6}' >"$tmp/adapter/adapter_config.json"
python3 "$tmp/check.py" write "$tmp/adapter"
for preset in qwen3-30b-a3b gpt-oss-20b; do
    synth "$preset" bf16 "$tmp/$preset"
    echo "a note" >"$tmp/$preset/notes.txt"
    expect 0 "1 adapter of 1 layer merged" "$moxie" bake "$tmp/$preset" --adapter "a=$tmp/adapter" -o "$tmp/$preset.baked"
    python3 "$tmp/check.py" compare "$tmp/$preset" "$tmp/$preset.baked" || fail "$preset: not W + s B A"
    for file in config.json notes.txt; do
        cmp "$tmp/$preset/$file" "$tmp/$preset.baked/$file" || fail "$preset: $file differs"
    done
    expect 0 "" "$moxie" run "$tmp/$preset.baked" --tokens 2
done
expect 0 '"relative_error": 0.0' "$moxie" bake "$tmp/qwen3-30b-a3b" --adapter "a=$tmp/adapter" -o "$tmp/json" --json

# Quantized: the same as merging and quantizing one after the other.
mkdir "$tmp/int4"
expect 0 "quantized to int4-ct: root mean square error" "$moxie" bake "$tmp/qwen3-30b-a3b" --adapter "a=$tmp/adapter" --format int4-ct -o "$tmp/int4/"
"$moxie" quantize "$tmp/qwen3-30b-a3b.baked" --format int4-ct -o "$tmp/int4.2" >/dev/null
diff -r "$tmp/int4" "$tmp/int4.2" || fail "merged and quantized at once differs"
[ ! -e "$tmp/int4.merged" ] && [ ! -e "$tmp/int4.partial" ] || fail "working directories are left"
expect 3 "not empty" "$moxie" bake "$tmp/qwen3-30b-a3b" --adapter "a=$tmp/adapter" --format int4-ct -o "$tmp/int4"
# Refused before the quantized directory is begun.
expect 2 "nothing would change" "$moxie" bake "$tmp/qwen3-30b-a3b" --adapter "a=$tmp/adapter" --format bf16 -o "$tmp/same"
[ ! -e "$tmp/same" ] && [ ! -e "$tmp/same.merged" ] && [ ! -e "$tmp/same.partial" ] || fail "something is left of a format that is refused"
mkdir -p "$tmp/folder/folder"
expect 3 "not empty: folder" "$moxie" bake "$tmp/qwen3-30b-a3b" --adapter "a=$tmp/adapter" -o "$tmp/folder"
expect 3 "not empty: folder" "$moxie" bake "$tmp/qwen3-30b-a3b" --adapter "a=$tmp/adapter" --format int4-ct -o "$tmp/folder"
# Refused in the second layer: nothing of the first one is left for a run that merges something else.
synth qwen3-30b-a3b bf16 "$tmp/large" --layers 2
python3 - "$tmp/large" <<'END'
import glob, json, struct, sys
for path in glob.glob(sys.argv[1] + '/*.safetensors'):
    with open(path, 'r+b') as f:
        n = struct.unpack('<Q', f.read(8))[0]
        t = json.loads(f.read(n)).get('model.layers.1.mlp.experts.3.up_proj.weight')
        if t:
            f.seek(8 + n + t['data_offsets'][0])
            f.write(struct.pack('<H', 0x4f80))
END
expect 4 "the largest number of f16" "$moxie" bake "$tmp/large" --adapter "a=$tmp/adapter" --format f16 -o "$tmp/f16"
[ ! -e "$tmp/f16" ] && [ ! -e "$tmp/f16.merged" ] && [ ! -e "$tmp/f16.partial" ] || fail "something is left of a run that failed"
expect 2 "did you mean int4-ct" "$moxie" bake "$tmp/qwen3-30b-a3b" --adapter "a=$tmp/adapter" --format int4-tc -o "$tmp/none"

# A layer's experts in two shards, with another layer's between them. Each of two adapters is for one of the layers.
synth qwen3-30b-a3b bf16 "$tmp/two" --layers 2
python3 "$tmp/check.py" split "$tmp/two"
mkdir "$tmp/adapter1"
cp "$tmp/adapter/adapter_config.json" "$tmp/adapter1"
sed 's/layers\.0\./layers.1./g' "$tmp/adapter/adapter_model.safetensors" >"$tmp/adapter1/adapter_model.safetensors"
expect 0 "2 adapters of 2 layers merged" "$moxie" bake "$tmp/two" --adapter "a=$tmp/adapter" --adapter "b=$tmp/adapter1" -o "$tmp/two.baked"
python3 "$tmp/check.py" compare "$tmp/two" "$tmp/two.baked" || fail "two shards: not W + s B A"
expect 0 "48 matrices changed" "$moxie" bake "$tmp/two" --adapter "b=$tmp/adapter1" -o "$tmp/two.1"
if python3 "$tmp/check.py" compare "$tmp/two" "$tmp/two.1" 2>/dev/null; then fail "layer 0 is merged without its adapter"; fi

# A signal at the writing of a file: nothing is left.
preload=$(dirname "$moxie")/tests/libfault_preload.so
for call in write:1 rename:1 rename:2; do
    [ -e "$preload" ] || break
    code=0
    MOXIE_FAULT=$call:TERM LD_PRELOAD="$preload" "$moxie" bake "$tmp/two" --adapter "b=$tmp/adapter1" -o "$tmp/ended" >/dev/null 2>&1 || code=$?
    [ $code = 143 ] || fail "a signal at $call: exit code $code"
    [ ! -e "$tmp/ended" ] || fail "a signal at $call left $(ls "$tmp/ended")"
done

# What an interrupted --format left: said how to go on, and that works.
"$moxie" bake "$tmp/two" --adapter "b=$tmp/adapter1" -o "$tmp/cut.merged" >/dev/null
expect 3 "cut.merged: an interrupted .* go on with .moxie quantize" "$moxie" bake "$tmp/two" --adapter "b=$tmp/adapter1" --format int4-ct -o "$tmp/cut"
expect 0 "2 layers as int4-ct" "$moxie" quantize "$tmp/cut.merged" --format int4-ct -o "$tmp/cut"
rm -rf "$tmp/cut.merged" "$tmp/cut"
expect 0 "quantized to int4-ct" "$moxie" bake "$tmp/two" --adapter "b=$tmp/adapter1" --format int4-ct -o "$tmp/cut"
[ ! -e "$tmp/cut.merged" ] || fail "the merged checkpoint was left"

# Refused, and nothing is left. Of two adapters none is left out because it is for another model.
synth qwen3-30b-a3b bf16 "$tmp/narrow" --hidden 128
expect 3 "is the adapter for this model" "$moxie" bake "$tmp/narrow" --adapter "a=$tmp/adapter" -o "$tmp/none"
expect 3 "is the adapter for this model" "$moxie" bake "$tmp/narrow" --adapter "b=$tmp/adapter1" --adapter "a=$tmp/adapter" -o "$tmp/none"
expect 3 "not empty" "$moxie" bake "$tmp/qwen3-30b-a3b" --adapter "a=$tmp/adapter" -o "$tmp/json"
expect 2 "an adapter is needed" "$moxie" bake "$tmp/qwen3-30b-a3b" -o "$tmp/none"
expect 2 "where to" "$moxie" bake "$tmp/qwen3-30b-a3b" --adapter "a=$tmp/adapter"
synth qwen3-30b-a3b awq "$tmp/awq"
expect 4 "are quantized" "$moxie" bake "$tmp/awq" --adapter "a=$tmp/adapter" -o "$tmp/none"
[ ! -e "$tmp/none" ] || fail "a refused merge left $(ls "$tmp/none")"
sed -i 's/layers\.0\./layers.7./g' "$tmp/adapter/adapter_model.safetensors"
expect 3 "no adapter has factors" "$moxie" bake "$tmp/qwen3-30b-a3b" --adapter "a=$tmp/adapter" -o "$tmp/none"
finish
