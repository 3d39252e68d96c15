#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An output that is one of the command's own inputs is refused (exit code 2) and the input keeps its bytes: a file that is
# named twice, a shard or a configuration of the model, the same by a hard link, by another path, through a link of a
# hub's cache. Other files are replaced, and so is the map that the next one starts from.
. "$(dirname "$0")/cli_lib.sh"
cd "$tmp"
case "$moxie" in /*) ;; *) moxie=$OLDPWD/$moxie ;; esac

synth qwen3-30b-a3b bf16 model
mkdir cached states
cp model/config.json cached
ln -s ../model/model.safetensors cached/model.safetensors
"$moxie" trace record model --tokens 20 -o t.trace >/dev/null
"$moxie" trace export t.trace -o t.csv >/dev/null
"$moxie" run model --tokens 2 --json >run.json
"$moxie" run model --tokens 2 -o out.safetensors >/dev/null
printf '%s\n' '{"peft_type": "LORA", "r": 3, "lora_alpha": 6}' >states/adapter_config.json
ln out.safetensors hard.safetensors
printf 'a\n-\n' >ids

# kept FILE COMMAND...: exit code 2, a message that names the output, and FILE unchanged.
kept() {
    file=$1
    shift
    before=$(cksum <"$file")
    expect 2 "would be replaced, and this command reads .*: name another file" timeout 100 "$moxie" "$@"
    [ "$(cksum <"$file")" = "$before" ] || fail "$file was lost: moxie $*"
}
kept model/model.safetensors run model --tokens 1 -o model/model.safetensors
kept model/config.json run model --tokens 1 -o ./model/../model/config.json
kept model/model.safetensors run cached --tokens 1 -o model/model.safetensors
kept model/model.safetensors run model --ranks 2 --tokens 1 -o model/model.safetensors
kept out.safetensors run model --input hard.safetensors -o out.safetensors
kept ids run model --tokens 2 --adapter a=states --adapter-ids ids -o ids
kept states/adapter_config.json run model --tokens 2 --adapter a=states -o states/adapter_config.json
kept model/model.safetensors trace record model --tokens 2 -o model/model.safetensors
kept out.safetensors trace record model --hidden-states out.safetensors -o hard.safetensors
kept t.csv trace import t.csv --experts 16 -o t.csv
kept t.trace trace export t.trace --format csv -o t.trace
kept t.trace balance t.trace --ranks 2 -o t.trace
kept run.json report --run run.json -o run.json
kept model/config.json report model -o model/config.json
kept model/model.safetensors quantize model --format gguf-q4_0 --hidden-states out.safetensors -o x.gguf --save-imatrix model/model.safetensors
"$moxie" run model --tokens 1 -o model/config.json --json >object.json 2>/dev/null || true
grep -q '"status": "argument"' object.json || fail "no JSON object: $(cat object.json)"

# What may be replaced.
expect 0 "" "$moxie" run model --tokens 1 -o out.safetensors
for _ in 1 2; do
    expect 0 "t.trace: 3 tokens" "$moxie" trace record model --tokens 3 -o model/t.trace
done
expect 0 "" "$moxie" balance t.trace --ranks 2 -o map.json
expect 0 "map.json" "$moxie" balance t.trace --map map.json --ranks 2 -o map.json
finish
