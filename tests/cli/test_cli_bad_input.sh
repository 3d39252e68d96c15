#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Bad input: each case exits with 3 or 4, names the file, the tensor, what was expected and what was found, and
# writes nothing. Names inside a safetensors header are changed to others of the same length, so that everything
# else about the file stays valid.
. "$(dirname "$0")/cli_lib.sh"
umask 022

synth deepseek-v3 fp8-block "$tmp/good" --shard-bytes 400000
shards=$(ls "$tmp/good"/*.safetensors | wc -l)
[ "$shards" -gt 2 ] || fail "expected several shards, found $shards"
expect 0 "fp8-block" "$moxie" inspect "$tmp/good"

# refused CODE TEXT: the damaged copy is refused by run, with nothing written; then a fresh copy is laid.
fresh() {
    rm -rf "$tmp/case"
    cp -r "$tmp/good" "$tmp/case"
}
refused() {
    expect "$1" "$2" "$moxie" run "$tmp/case" --layer 3 --tokens 2 -o "$tmp/written.safetensors"
    [ ! -e "$tmp/written.safetensors" ] || fail "$2: something was written"
    fresh
}
first=$(ls "$tmp/good" | grep safetensors$ | head -1)
fresh

rm "$tmp/case/$first";                                          refused 3 "$first"
truncate -s -100 "$tmp/case/$first";                            refused 3 "$first"
truncate -s 5 "$tmp/case/$first";                               refused 3 "$first"
printf '\377\377\377\377\377\377\377\177' | dd of="$tmp/case/$first" conv=notrunc 2>/dev/null
refused 3 "$first"
sed -i 's/"F8_E4M3"/"F8_E5M2"/g' "$tmp/case"/*.safetensors;     refused 4 "gate_proj.weight is F8_E5M2"
sed -i 's/"F8_E4M3"/"F8_X9Y9"/g' "$tmp/case"/*.safetensors;     refused 3 "F8_X9Y9"
sed -i 's/weight_scale_inv/weight_scale_xyz/g' "$tmp/case"/*.safetensors "$tmp/case"/*.json
refused "[34]" "weight_scale"
sed -i 's/"hidden_size": *256/"hidden_size": 384/' "$tmp/case/config.json"; refused 3 "384|256"
sed -i 's/"n_routed_experts": *16/"n_routed_experts": 24/' "$tmp/case/config.json"; refused 3 "24|16"
sed -i 's/"num_experts_per_tok": *8/"num_experts_per_tok": 20/' "$tmp/case/config.json"; refused 3 "20.*16|16.*20"
sed -i 's/"model_type": *"deepseek_v3"/"model_type": "deepseek_v99"/' "$tmp/case/config.json"; refused 4 "deepseek_v99"
sed -i 's/"n_group": *8/"n_group": 7/' "$tmp/case/config.json"; refused 3 "group"
sed -i 's/"n_shared_experts": *1/"n_shared_experts": 0/' "$tmp/case/config.json"; refused 3 "n_shared_experts is 0.*shared_experts.up_proj"
printf '{"model_type": "deepseek_v3", ' >"$tmp/case/config.json"; refused 3 "config.json"
rm "$tmp/case/config.json";                                     refused 3 "config.json"
sed -i 's/"weight_map": *{/"weight_map": {"x": "..\/..\/etc\/passwd",/' "$tmp/case/model.safetensors.index.json"
refused 3 "passwd|file name"
sed -i 's/"weight_map": *{/"weight_map": {"no.such.tensor": "'"$first"'",/' "$tmp/case/model.safetensors.index.json"
refused 3 "no.such.tensor"

# Tensors and keys that moxie does not know
synth glm-4.5-air bf16 "$tmp/unread"
sed -i 's/gate.e_score_correction_bias/gate.e_score_correction_bios/' "$tmp/unread"/*.safetensors "$tmp/unread"/*.json
sed -i 's/"n_shared_experts"/"moe_mystery_factor": 2, "n_shared_experts"/' "$tmp/unread/config.json"
for command in inspect "run --tokens 1" explain; do
    # shellcheck disable=SC2086 # a command and its options
    expect 4 "mlp.gate.e_score_correction_bios .*--allow-unread" "$moxie" $command "$tmp/unread"
done
expect 0 "moe_mystery_factor is not read" "$moxie" inspect "$tmp/unread" --allow-unread
expect 0 "mlp.gate.e_score_correction_bios is not read" "$moxie" inspect "$tmp/unread" --allow-unread
expect 0 '"unread_keys": \[' "$moxie" inspect "$tmp/unread" --allow-unread --json
expect 0 "" "$moxie" run "$tmp/unread" --tokens 1 --allow-unread

expect 2 "9999" "$moxie" run "$tmp/good" --layer 9999
expect 3 "nowhere" "$moxie" run "$tmp/nowhere"
expect 3 "nowhere" "$moxie" inspect "$tmp/nowhere"
expect 3 "nothing.safetensors" "$moxie" run "$tmp/good" --layer 3 --input "$tmp/nothing.safetensors"
expect 3 "directory|written" "$moxie" run "$tmp/good" --layer 3 --tokens 1 -o "$tmp/no/such/dir/out.safetensors"
finish
