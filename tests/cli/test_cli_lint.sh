#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moxie lint: exit codes, the table, JSON, options; what cannot be read is reported, and the rest is checked all the same;
# docs/lint.md is what scripts/lint-page makes of the list.
. "$(dirname "$0")/cli_lib.sh"

synth qwen3-30b-a3b nvfp4-modelopt "$tmp/good" --shard-bytes 400000
expect 0 "0 errors, 0 warnings.*headers only" "$moxie" lint "$tmp/good"
expect 0 "0 errors, 0 warnings.*numbers" "$moxie" lint "$tmp/good" --deep
first=$(ls "$tmp/good" | grep 'safetensors$' | head -1)
[ "$(ls "$tmp/good" | grep -c 'safetensors$')" -gt 2 ] || fail "expected several shards"

# lay: a fresh copy, to be damaged
lay() {
    rm -rf "$tmp/case"
    cp -r "$tmp/good" "$tmp/case"
}
lay
expect 3 "there is no such directory; give" "$moxie" lint "$tmp/nowhere"
expect 3 "config.json" "$moxie" lint "$tmp"
truncate -s -100 "$tmp/case/$first"
sed -i 's/"norm_topk_prob"/"moe_mystery": 2, "norm_topk_prob"/' "$tmp/case/config.json"
expect 3 "$first" "$moxie" lint "$tmp/case"
for found in file-unreadable config-unread-key tensor-missing; do
    grep -q "$found" "$tmp/out" || fail "a cut shard hides $found"
done
grep -q "not everything could be read" "$tmp/err" || fail "nothing on stderr about the cut shard"
rm "$tmp/case/$first"
expect 3 "file-unreadable.*$first" "$moxie" lint "$tmp/case"
lay
echo '{' >"$tmp/case/model.safetensors.index.json"
expect 3 "file-unreadable.*index.json" "$moxie" lint "$tmp/case"
lay
echo '{' >"$tmp/case/config.json"
expect 3 "model-refused" "$moxie" lint "$tmp/case"

# An error is exit code 1, a warning 0.
lay
sed -i 's/"num_experts": 16/"num_experts": 17/' "$tmp/case/config.json"
expect 1 "error +config-contradicts +0 .*17 experts" "$moxie" lint "$tmp/case"
expect 0 "0 errors" "$moxie" lint "$tmp/case" --only scale-zero
expect 1 "tensor-missing" "$moxie" lint "$tmp/case" --only tensor-missing
! grep -q config-contradicts "$tmp/out" || fail "--only shows more than one kind"
expect 1 "1 MoE layer" "$moxie" lint "$tmp/case" --layers 0
lay
sed -i 's/"norm_topk_prob"/"rope_theta": Infinity, "norm_topk_prob"/' "$tmp/case/config.json"
expect 0 "warning +json-not-finite" "$moxie" lint "$tmp/case"

# JSON: one object, stable keys.
expect 0 '"schema_version": 1' "$moxie" lint "$tmp/case" --json
for key in command dir family deep layers tensors files errors warnings notes input input_text findings name severity \
    layer file tensor found more meaning engines remedy; do
    grep -q "\"$key\":" "$tmp/out" || fail "JSON without $key"
done
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys; o = json.load(sys.stdin); assert o["findings"][0]["layer"] is None and o["input"] == "ok", o' \
        <"$tmp/out" || fail "JSON is not one object, or has other values"
fi
expect 0 '"rules"' "$moxie" lint --list --json

# An adapter, beside its model: one expert of the layer has another rank than the configuration, and its B has no A.
mkdir "$tmp/adapter"
printf '{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["down_proj", "q_proj"]}' >"$tmp/adapter/adapter_config.json"
python3 - "$tmp/adapter/adapter_model.safetensors" <<'END' || fail "no adapter"
import json, struct, sys
name = "base_model.model.model.layers.0.mlp.experts.1.down_proj.lora_B.weight"
header = json.dumps({name: {"dtype": "F32", "shape": [64, 8], "data_offsets": [0, 2048]}}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(header)) + header + bytes(2048))
END
expect 1 "error +adapter-half" "$moxie" lint "$tmp/adapter" --deep --model "$tmp/good"
for line in 'error +adapter-rank .*tensor has rank 8' 'warning +adapter-target .*q_proj' 'note +adapter-zero'; do
    grep -qE "$line" "$tmp/out" || fail "lint of an adapter without $line: $(cat "$tmp/out")"
done
expect 3 "nowhere" "$moxie" lint "$tmp/adapter" --model "$tmp/nowhere"
expect 2 "no adapter_config" "$moxie" lint "$tmp/good" --model "$tmp/good"

# Usage.
expect 2 "directory is needed" "$moxie" lint
expect 2 "second one" "$moxie" lint a b
expect 2 "takes no directory" "$moxie" lint --list a
expect 2 "no finding.*scale-zero" "$moxie" lint "$tmp/good" --only scale-zeros
expect 2 "A-B" "$moxie" lint "$tmp/good" --layers 3-1
expect 2 "layers 98 to 99 were asked for, and its mixture-of-experts layers are [0-9]+ to" "$moxie" lint "$tmp/good" --layers 98-99
one=$(ls "$tmp/good"/*.safetensors | head -1)
expect 3 "one file of it: give .*good" "$moxie" lint "$one"
"$moxie" prepare "$tmp/good" --layout moxie-rowmajor -o "$tmp/experts" >/dev/null
expect 1 "these are expert files.*give the checkpoint" "$moxie" lint "$tmp/experts"

"$(dirname "$0")/../../scripts/lint-page" "$moxie" >"$tmp/page"
cmp -s "$tmp/page" "$(dirname "$0")/../../docs/lint.md" || fail "docs/lint.md is stale: scripts/lint-page MOXIE >docs/lint.md"
finish
