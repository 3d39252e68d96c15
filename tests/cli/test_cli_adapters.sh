#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `moxie run --adapter`: what is refused, and that tokens without an adapter keep their bytes.
. "$(dirname "$0")/cli_lib.sh"
synth qwen3-30b-a3b bf16 "$tmp/model"
mkdir "$tmp/adapter"
expect 3 "adapter_config.json" "$moxie" run "$tmp/model" --adapter "a=$tmp/adapter"
echo '{"peft_type": "LORA", "r": 2, "lora_alpha": 4}' >"$tmp/adapter/adapter_config.json"
expect 3 "adapter_model.safetensors" "$moxie" run "$tmp/model" --adapter "a=$tmp/adapter"

# Shared factors of the down projection as safetensors: A [1, 2, 128], B [16, 256, 2], all 0.5 (f32 0x3f000000).
name=base_model.model.model.layers.0.mlp.experts.w2
a=$((2 * 128 * 4))
b=$((16 * 256 * 2 * 4))
header="{\"$name.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[1,2,128],\"data_offsets\":[0,$a]},"
header="$header\"$name.lora_B.weight\":{\"dtype\":\"F32\",\"shape\":[16,256,2],\"data_offsets\":[$a,$((a + b))]}}"
while [ $((${#header} % 8)) -ne 0 ]; do header="$header "; done
{
    # shellcheck disable=SC2059 # octal escapes
    printf "\\$(printf %o $((${#header} % 256)))\\$(printf %o $((${#header} / 256)))\\0\\0\\0\\0\\0\\0"
    printf '%s' "$header"
    i=0
    while [ $i -lt $(((a + b) / 4)) ]; do printf '\000\000\000\077'; i=$((i + 1)); done
} >"$tmp/adapter/adapter_model.safetensors"

run() { "$moxie" run "$tmp/model" --tokens 3 --seed 5 "$@" >"$tmp/log" 2>&1 || fail "run $*: $(cat "$tmp/log")"; }
run -o "$tmp/none.safetensors"
run --adapter "a=$tmp/adapter" -o "$tmp/all.safetensors"
grep -q "1 adapter of rank 2 or less, for 3 of the tokens" "$tmp/log" || fail "no word of the adapter: $(cat "$tmp/log")"
grep -q "lora  *w2" "$tmp/log" || fail "the plan has no step for adapters"
cmp -s "$tmp/none.safetensors" "$tmp/all.safetensors" && fail "the adapter changes nothing"
echo "- - -" >"$tmp/ids"
run --adapter "a=$tmp/adapter" --adapter-ids "$tmp/ids" -o "$tmp/off.safetensors"
cmp "$tmp/none.safetensors" "$tmp/off.safetensors" || fail "tokens without adapter have other bytes"
expect 0 '"adapted_tokens": 3' "$moxie" run "$tmp/model" --tokens 3 --adapter "a=$tmp/adapter" --json

printf 'a\n- b' >"$tmp/ids"
expect 3 'word 3, "b"' "$moxie" run "$tmp/model" --tokens 3 --adapter "a=$tmp/adapter" --adapter-ids "$tmp/ids"
echo "a" >"$tmp/ids"
expect 3 "1 token" "$moxie" run "$tmp/model" --tokens 3 --adapter "a=$tmp/adapter" --adapter-ids "$tmp/ids"
expect 2 "NAME=DIR" "$moxie" run "$tmp/model" --adapter "$tmp/adapter"
expect 2 "nothing says which token" "$moxie" run "$tmp/model" --adapter "a=$tmp/adapter" --adapter "b=$tmp/adapter"
expect 2 "two adapters" "$moxie" run "$tmp/model" --adapter "a=$tmp/adapter" --adapter "a=$tmp/adapter"
expect 2 "there is none" "$moxie" run "$tmp/model" --adapter-ids "$tmp/ids"
expect 2 "preset" "$moxie" run --preset qwen3-30b-a3b --adapter "a=$tmp/adapter"
for as in "--ranks 2" "--ranks 2 --tokens-as replicated" "--ranks 2 --tp 2"; do
    # shellcheck disable=SC2086 # several words
    run --adapter "a=$tmp/adapter" $as -o "$tmp/ranks.safetensors"
    cmp "$tmp/all.safetensors" "$tmp/ranks.safetensors" || fail "other bytes with $as"
done
expect 0 "after the bias, before the activation" "$moxie" explain --preset qwen3-30b-a3b --adapter-rank 16
expect 0 "before W13, which adds the change after the bias" "$moxie" explain --preset qwen3-30b-a3b --device sm_90 --adapter-rank 16
expect 0 "before W13, which adds the change after the bias" "$moxie" explain --preset qwen3-30b-a3b --device sm_80 --adapter-rank 16
expect 2 "adapter-rank" "$moxie" explain --preset qwen3-30b-a3b --adapter-rank 513
finish
