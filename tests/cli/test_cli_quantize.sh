#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moxie quantize: tables and JSON, copied tensors and files, the configuration, lint of the result, a killed and resumed
# run, a full disk, wrong arguments.
. "$(dirname "$0")/cli_lib.sh"
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }

synth qwen3-30b-a3b bf16 "$tmp/src" --layers 3
echo "tokens" >"$tmp/src/tokenizer.json"

expect 0 "root mean square error" "$moxie" quantize "$tmp/src" --format nvfp4-ct-w4a16 -o "$tmp/q"
expect 0 "0 errors, 0 warnings" "$moxie" lint "$tmp/q" --deep
expect 0 "nvfp4-ct-w4a16" "$moxie" inspect "$tmp/q"
cmp -s "$tmp/src/tokenizer.json" "$tmp/q/tokenizer.json" || fail "the tokenizer was not copied"
[ ! -e "$tmp/q.partial" ] || fail "a partial directory is left"
ls "$tmp/q" | grep -qE "errors-|moxie" && fail "working files are left: $(ls "$tmp/q")"

cat >"$tmp/check.py" <<'END'
import glob, json, sys
from tensors import read, read_all
src, out = read_all(sys.argv[1]), read_all(sys.argv[2])
others = [k for k in src if '.experts.' not in k]
assert others and all(src[k] == out[k] for k in others), 'copied tensors differ'
index = json.load(open(sys.argv[2] + '/model.safetensors.index.json'))['weight_map']
files = {k: path.split('/')[-1] for path in glob.glob(sys.argv[2] + '/*.safetensors') for k in read(path)}
assert index == files, 'the index differs'
q = json.load(open(sys.argv[2] + '/config.json'))['quantization_config']
assert q['quant_method'] == 'compressed-tensors' and q['format'] == 'nvfp4-pack-quantized'
assert sorted(q['ignore']) == sorted(k[:-7] for k in others if k.endswith('.weight')), q['ignore']
report = json.load(open(sys.argv[3]))
assert report['command'] == 'quantize' and 0.05 < report['rms'] < 0.15 and not report['exact']
assert [l['layer'] for l in report['layers']] == [0, 1, 2]
assert all(len(l['matrices']) == 48 for l in report['layers'])
END
rm -r "$tmp/q"
"$moxie" quantize "$tmp/src" --format nvfp4-ct-w4a16 -o "$tmp/q" --json --threads 1 >"$tmp/report.json"
python3 "$tmp/check.py" "$tmp/src" "$tmp/q" "$tmp/report.json" || fail "the result is not what was asked for"

# Killed at several moments: what is left is finished layers, and the same command goes on to the same bytes.
for after in 0.01 0.03 0.06 0.1; do
    rm -rf "$tmp/again" "$tmp/again.partial"
    timeout -s KILL $after "$moxie" quantize "$tmp/src" --format nvfp4-ct-w4a16 -o "$tmp/again" >/dev/null 2>&1 || true
    resume "$tmp/again" "$moxie" quantize "$tmp/src" --format nvfp4-ct-w4a16 -o "$tmp/again"
    diff -r "$tmp/q" "$tmp/again" || fail "other bytes after a kill at $after s"
done

# No room: files of one block at most.
rm -rf "$tmp/full"
expect 3 "no room|File too large|cannot" sh -c "trap '' XFSZ; ulimit -f 1; exec '$moxie' quantize '$tmp/src' --format int4-ct -o '$tmp/full'"
[ ! -e "$tmp/full" ] && [ ! -e "$tmp/full.partial" ] || fail "something is left of a run without room"

# What somebody else keeps under the name of unfinished work stays.
mkdir "$tmp/busy.partial"
echo mine >"$tmp/busy.partial/file"
expect 3 "holds files of something else" "$moxie" quantize "$tmp/src" --format int4-ct -o "$tmp/busy"
[ "$(cat "$tmp/busy.partial/file")" = mine ] || fail "a foreign file was touched"

# Unfinished work that is another's, or damaged, stops the same command each time: no word of going on.
for manifest in '{"other":1}' damaged; do
    mkdir -p "$tmp/other.partial"
    echo "$manifest" >"$tmp/other.partial/moxie_quantize.json"
    expect 3 "interrupted there|damaged" "$moxie" quantize "$tmp/src" --format int4-ct -o "$tmp/other"
    "$moxie" quantize "$tmp/src" --format int4-ct -o "$tmp/other" 2>&1 | grep "go on" && fail "the same command was advised"
done

expect 0 "lossless" sh -c "'$moxie' synth gpt-oss-20b -o '$tmp/oss' --layers 1 --experts 4 --hidden 256 --intermediate 128 >/dev/null && '$moxie' quantize '$tmp/oss' --format mxfp8 -o '$tmp/oss8'"
expect 0 "expert" "$moxie" quantize "$tmp/oss8" --format int4-ct --scales mse -o "$tmp/oss4"

# An FP8 shared expert beside the experts: refused unless one configuration describes both.
"$moxie" synth deepseek-v3 -o "$tmp/ds" --layers 1 --experts 16 --hidden 256 --intermediate 128 >/dev/null
expect 4 "3 other modules are quantized .*shared_experts.*allow-mixed" "$moxie" quantize "$tmp/ds" --format int4-ct -o "$tmp/ds4"
[ ! -e "$tmp/ds4" ] && [ ! -e "$tmp/ds4.partial" ] || fail "something is left of a refused run"
expect 0 "3 other quantized matrices" "$moxie" quantize "$tmp/ds" --format int4-ct -o "$tmp/ds4" --allow-mixed
expect 0 "not finite 0" "$moxie" run "$tmp/ds4" --activations 16bit
expect 0 "root mean square error" "$moxie" quantize "$tmp/ds" --format w4afp8 --input-amax 5,5 -o "$tmp/dsw"
expect 0 "0 errors, 0 warnings" "$moxie" lint "$tmp/dsw" --deep

expect 2 "did you mean nvfp4-ct" "$moxie" quantize "$tmp/src" --format nvfp4-tc -o "$tmp/x"
expect 2 "give gguf-mxfp4 for the file, or .* begin with mxfp4-" "$moxie" quantize "$tmp/src" --format mxfp4 -o "$tmp/x"
expect 2 "did you mean gguf-q4_k_m" "$moxie" quantize "$tmp/src" --format q4_k_s -o "$tmp/x"
expect 2 "named like a GGUF file: name a directory" "$moxie" quantize "$tmp/src" --format int4-ct -o "$tmp/x.gguf"
expect 2 "named like a GGUF file: name a directory" "$moxie" synth gpt-oss-20b --layers 1 -o "$tmp/x.gguf"
expect 2 "did you mean mse" "$moxie" quantize "$tmp/src" --format int4-ct --scales msee -o "$tmp/x"
expect 2 "give -o OUT" "$moxie" quantize "$tmp/src" --format int4-ct
expect 2 "give --format" "$moxie" quantize "$tmp/src" -o "$tmp/x"
expect 2 "two numbers" "$moxie" quantize "$tmp/src" --format nvfp4-ct --input-amax 5 -o "$tmp/x"
expect 2 "input-amax|or use nvfp4-ct-w4a16" "$moxie" quantize "$tmp/src" --format nvfp4-ct -o "$tmp/x"
for format in int4-ct fp8-channel gguf-q4_k f32; do
    expect 2 "$format has none for activations: leave them out" "$moxie" quantize "$tmp/src" --format $format --input-amax 5,5 -o "$tmp/x"
done
for amax in 1e-45,1 1,1e-45; do
    expect 2 "not \"1e-45\"; the least above 0 is 1e-12" "$moxie" quantize "$tmp/src" --format nvfp4-ct --input-amax $amax -o "$tmp/x"
done
expect 2 "already" "$moxie" quantize "$tmp/src" --format bf16 -o "$tmp/x"
expect 3 "exists already" "$moxie" quantize "$tmp/src" --format int4-ct -o "$tmp/q"
expect 3 "no such directory" "$moxie" quantize "$tmp/none" --format int4-ct -o "$tmp/x"
[ ! -e "$tmp/x" ] && [ ! -e "$tmp/x.partial" ] || fail "something is left of refused runs"
finish
