#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moxie prepare: arguments, lists, messages, bad input, a full disk and damage. test_prepare_files compares bytes.
. "$(dirname "$0")/cli_lib.sh"

expect 0 "Usage: moxie prepare" "$moxie" prepare --help
expect 0 "prepare  *a checkpoint's experts" "$moxie" --help
expect 2 "directory is needed" "$moxie" prepare
expect 2 "-o OUT is needed" "$moxie" prepare somewhere --layout trtllm-mxint4
expect 2 "--layout NAME is needed" "$moxie" prepare somewhere -o "$tmp/made"
expect 2 "R/N" "$moxie" prepare somewhere --layout trtllm-mxint4 -o "$tmp/made" --tp 2/2
expect 2 "R/N" "$moxie" prepare somewhere --layout trtllm-mxint4 -o "$tmp/made" --ep one
expect 2 "A-B" "$moxie" prepare somewhere --layout trtllm-mxint4 -o "$tmp/made" --layers 5-2
expect 2 "round-robin" "$moxie" prepare somewhere --layout trtllm-mxint4 -o "$tmp/made" --ep-map zigzag
expect 2 "second one" "$moxie" prepare somewhere else --layout trtllm-mxint4 -o "$tmp/made"

# Every layout with its limits.
expect 0 "^trtllm-mxint4: " "$moxie" prepare --list
expect 0 "intermediate  a multiple of 256: " "$moxie" prepare --list
expect 0 '"name": "trtllm-mxint4"' "$moxie" prepare --list --json
expect 0 '"multiple": 256' "$moxie" prepare --list --json

"$moxie" synth kimi-k2-thinking -o "$tmp/model" --layers 2 --experts 8 --hidden 512 --intermediate 512 >/dev/null
# Layouts that accept a checkpoint's weights, unchanged or padded, and why the others reject them.
fits() {
    "$moxie" prepare --list "$1" | awk -v name="$2" '/^[a-z]/ { heading = $0 } $1 == name { print heading }'
}
expect 0 "by its layer 1:" "$moxie" prepare --list "$tmp/model"
[ "$(fits "$tmp/model" trtllm-mxint4)" = "accept them" ] || fail "--list DIR does not say that trtllm-mxint4 accepts it"
[ "$(fits "$tmp/model" trtllm-mxfp4)" = "reject them" ] || fail "--list DIR does not say that trtllm-mxfp4 rejects it"
expect 0 "^    trtllm-mxfp4  *w13 is .*elements must be f4_e2m1" "$moxie" prepare --list "$tmp/model"
expect 0 '"fits": "no"' "$moxie" prepare --list "$tmp/model" --json
expect 3 "nowhere" "$moxie" prepare --list "$tmp/nowhere"
expect 2 "second one" "$moxie" prepare --list "$tmp/model" "$tmp/model"

prepare() {
    want=$1 text=$2
    shift 2
    expect "$want" "$text" "$moxie" prepare "$tmp/model" -o "$tmp/made" "$@"
    [ "$want" = 0 ] || [ ! -e "$tmp/made" ] || fail "$text: something is at OUT"
    [ ! -e "$tmp/made.partial" ] || fail "$text: OUT.partial stays"
}

prepare 2 "no layout \"trtllm-mxint5\": did you mean trtllm-mxint4\? Or trtllm-mxfp4, " --layout trtllm-mxint5
prepare 2 "no layout \"marlin\": did you mean marlin-ct\? .*, marlin-nvfp4-f16\?" --layout marlin
prepare 2 "no layout \"vllm\"; .moxie prepare --list. lists them" --layout vllm
prepare 2 "layers are 1 to 2" --layout trtllm-mxint4 --layers 2-9
prepare 2 "layers are 1 to 2" --layout trtllm-mxint4 --layers 0
prepare 4 "elements must be" --layout trtllm-mxfp4
prepare 4 "of 3 ranks rank 2 would get none; the nearest that would do: 2 ranks" --layout trtllm-mxint4 --tp 0/3
prepare 2 "none of the 8 experts" --layout trtllm-mxint4 --ep 8/9
expect 3 "nowhere" "$moxie" prepare "$tmp/nowhere" --layout trtllm-mxint4 -o "$tmp/made"
expect 3 "no/such" "$moxie" prepare "$tmp/model" --layout trtllm-mxint4 -o "$tmp/no/such/out"
expect 3 "moxie_prepare.json" "$moxie" prepare --verify "$tmp/model"
expect 3 "nowhere" "$moxie" prepare --verify "$tmp/nowhere"
expect 3 "moxie_prepare.json" "$moxie" prepare --undo "$tmp/model" -o "$tmp/back"
synth kimi-k2-thinking int4-ct-g32 "$tmp/narrow"
expect 4 "intermediate is 128, which must be a multiple of 256: .*nearest that would do: 256" \
    "$moxie" prepare "$tmp/narrow" --layout trtllm-mxint4 -o "$tmp/made"

# Groups that do not divide a row: rejected, or made smaller where the layout's loader does that, with a message; and restored.
"$moxie" synth qwen3-30b-a3b --format awq -o "$tmp/groups" --layers 1 --experts 8 --hidden 320 --intermediate 256 >/dev/null
expect 4 "hidden is 320, which must be a multiple of the group, 128: .*256 or 384 \(groups of 64, .*--pad" \
    "$moxie" prepare "$tmp/groups" --layout moe-wna16 -o "$tmp/made"
[ "$(fits "$tmp/groups" moe-wna16)" = "accept them with --pad" ] || fail "--list DIR does not say that --pad helps"
expect 0 "groups: made 2 times smaller" "$moxie" prepare "$tmp/groups" --layout moe-wna16 --pad -o "$tmp/halved"
expect 0 '"scales_repeated": 2' "$moxie" prepare --verify "$tmp/halved" --json
expect 0 "1 layer restored" "$moxie" prepare --undo "$tmp/halved" -o "$tmp/whole"

# A whole directory, its metadata, and the checkpoint restored from it.
prepare 0 "peak memory: " --layout trtllm-mxint4
expect 0 "2 layers whole as trtllm-mxint4" "$moxie" prepare --verify "$tmp/made"
expect 0 '"mode": "verify"' "$moxie" prepare --verify "$tmp/made" --json
expect 3 "exists already" "$moxie" prepare "$tmp/model" --layout trtllm-mxint4 -o "$tmp/made"
grep -q '"model.layers.1.mlp.experts.w13_weight[a-z_]*": "layer-00001.safetensors"' "$tmp/made/model.safetensors.index.json" ||
    fail "the index lacks vLLM's parameter names"
expect 0 "2 layers restored" "$moxie" prepare --undo "$tmp/made" -o "$tmp/back/"
expect 3 "exists already" "$moxie" prepare --undo "$tmp/made" -o "$tmp/back"
[ ! -e "$tmp/back.partial" ] || fail "undo leaves its working directory"

# Threads and a second run make the same bytes.
expect 0 "layers_made" "$moxie" prepare "$tmp/model" --layout trtllm-mxint4 -o "$tmp/again" --threads 1 --json
for layer in "$tmp"/made/layer-*; do
    cmp "$layer" "$tmp/again/$(basename "$layer")" || fail "threads changed the bytes of $layer"
done

# Versions of a layout: listed, chosen by --for, recorded, found again by --verify and --undo.
expect 0 "^trtllm-mxfp4 --for vllm-0.18: " "$moxie" prepare --list
expect 0 "version  *vllm-0.33 vllm-0.18, the default" "$moxie" prepare --list
expect 0 '"release": "vllm-0.18"' "$moxie" prepare --list --json
expect 2 'layout trtllm-mxfp4 has no version for "vllm-0.1": it has those for vllm-0.33, vllm-0.18;' \
    "$moxie" prepare "$tmp/model" --layout trtllm-mxfp4 --for vllm-0.1 -o "$tmp/case"
expect 2 "--for chooses a version" "$moxie" prepare --verify "$tmp/made" --for vllm-0.33
"$moxie" synth gpt-oss-20b -o "$tmp/oss" --layers 1 --experts 4 --hidden 256 --intermediate 320 >/dev/null
for release in vllm-0.33 vllm-0.18; do
    expect 0 "intermediate size 320 to $([ $release = vllm-0.33 ] && echo 384 || echo 512)" \
        "$moxie" prepare "$tmp/oss" --layout trtllm-mxfp4 --for "$release" --pad -o "$tmp/case"
    grep -q "\"for\": \"$release\"" "$tmp/case/moxie_prepare.json" || fail "the manifest does not say for which release"
    expect 0 "\"for\": \"$release\"" "$moxie" prepare --verify "$tmp/case" --json
    expect 0 "1 layer restored" "$moxie" prepare --undo "$tmp/case" -o "$tmp/case.back"
    sed -i 's/"for": "[^"]*"/"for": "vllm-0.1"/' "$tmp/case/moxie_prepare.json"
    expect "[1234]" "vllm-0.1" "$moxie" prepare --verify "$tmp/case"
    expect "[1234]" "vllm-0.1" "$moxie" prepare --undo "$tmp/case" -o "$tmp/case.again"
    rm -rf "$tmp/case" "$tmp/case.back"
done
# The other version's name: sizes differ.
"$moxie" prepare "$tmp/oss" --layout trtllm-mxfp4 --pad -o "$tmp/case" >/dev/null
sed -i 's/"for": "vllm-0.33"/"for": "vllm-0.18"/' "$tmp/case/moxie_prepare.json"
expect 1 "another type or shape|another layout, version" "$moxie" prepare --verify "$tmp/case"
rm -rf "$tmp/case"

# Symmetric GPTQ: no zero points for moe-wna16, and the checkpoint's come back.
"$moxie" synth qwen3-30b-a3b --format gptq -o "$tmp/gptq" --layers 1 --experts 8 --hidden 256 --intermediate 256 >/dev/null
"$moxie" prepare "$tmp/gptq" --layout moe-wna16 -o "$tmp/case" >/dev/null
grep -q '"symmetric": 1' "$tmp/case/moxie_prepare.json" || fail "the manifest does not say that the file is symmetric"
grep -q 'moxie[.]w13_qzeros"' "$tmp/case/model.safetensors.index.json" || fail "moxie.w13_qzeros is missing"
grep -q 'experts[.]w13_qzeros"' "$tmp/case/model.safetensors.index.json" && fail "a symmetric file got w13_qzeros"
expect 0 "1 layer restored" "$moxie" prepare --undo "$tmp/case" -o "$tmp/case.back"
rm -rf "$tmp/case" "$tmp/case.back"

# Shares: uneven over 3 ranks is not possible with 2 units, over 2 it is even; the index of one layer only.
expect 0 "share: 256 to 511 of the intermediate size of 512" \
    "$moxie" prepare "$tmp/model" --layout trtllm-mxint4 --tp 1/2 --layers 2 -o "$tmp/tp1"
expect 0 '"experts": 4' "$moxie" prepare "$tmp/model" --layout trtllm-mxint4 --ep 1/2 --ep-map round-robin --layers 1-1 -o "$tmp/ep1" --json
expect 2 "share of rank 1 of 2 .*needs all 2 directories, 1 given" "$moxie" prepare --undo "$tmp/tp1" -o "$tmp/nothing"
expect 3 "not prepared in the same way" "$moxie" prepare --undo "$tmp/tp1" "$tmp/ep1" -o "$tmp/nothing"
[ ! -e "$tmp/nothing" ] || fail "a refused undo left something"

# Damage, one kind at a time: --verify says so with exit code 1, --undo refuses.
damaged() {
    expect 1 "$1" "$moxie" prepare --verify "$tmp/case"
    expect "[34]" "$1" "$moxie" prepare --undo "$tmp/case" -o "$tmp/nothing"
    [ ! -e "$tmp/nothing" ] || fail "$1: the damage was undone to something"
    rm -rf "$tmp/case"
    cp -r "$tmp/made" "$tmp/case"
}
cp -r "$tmp/made" "$tmp/case"
size=$(stat -c %s "$tmp/case/layer-00001.safetensors")
for at in 100 5000 $((size / 2)) $((size - 1)); do
    printf '\125\252' | dd of="$tmp/case/layer-00001.safetensors" bs=1 seek="$at" conv=notrunc 2>/dev/null
    damaged "layer-00001.safetensors"
done
truncate -s -1 "$tmp/case/layer-00002.safetensors";                            damaged "layer-00002.safetensors"
cp "$tmp/case/layer-00002.safetensors" "$tmp/case/layer-00001.safetensors";    damaged "layer|index"
rm "$tmp/case/model.safetensors.index.json";                                   damaged "interrupted"
sed -i 's/layer-00002/layer-00001/' "$tmp/case/model.safetensors.index.json";  damaged "index"
sed -i 's/"layout": "trtllm-mxint4"/"layout": "trtllm-mxfp4"/' "$tmp/case/moxie_prepare.json"
expect "[14]" "mxfp4" "$moxie" prepare --verify "$tmp/case"
rm -rf "$tmp/case"

# No room: a limit on the size of files, a small file system, a directory that is only for reading.
(
    ulimit -f 100
    expect 3 "layer-00001.safetensors: .*room|layer-00001.safetensors: .*write" \
        "$moxie" prepare "$tmp/model" --layout trtllm-mxint4 -o "$tmp/full"
    [ "$failures" = 0 ]
) || failures=$((failures + 1))
[ ! -e "$tmp/full" ] && [ ! -e "$tmp/full.partial" ] || fail "a full disk left something"
mkdir "$tmp/small"
if mount -t tmpfs -o size=6m none "$tmp/small" 2>/dev/null; then
    expect 3 "room|space" "$moxie" prepare "$tmp/model" --layout trtllm-mxint4 -o "$tmp/small/out"
    [ ! -e "$tmp/small/out" ] || fail "a full file system has OUT"
    umount "$tmp/small"
fi
if [ "$(id -u)" != 0 ]; then
    chmod 555 "$tmp/small"
    expect 3 "small" "$moxie" prepare "$tmp/model" --layout trtllm-mxint4 -o "$tmp/small/out"
fi

# An interrupted undo is continued; a layer that is damaged, or of other weights, is made again.
mkdir "$tmp/later.partial"
expect 3 "later.partial: is what an interrupted run left" "$moxie" prepare --verify "$tmp/later/"
rmdir "$tmp/later.partial"
interrupted_undo() {
    rm -rf "$tmp/going" "$tmp/going.partial"
    cp -r "$tmp/back" "$tmp/going.partial"
    rm "$tmp/going.partial/model.safetensors.index.json"
}
same_as_back() {
    expect 0 "$1" "$moxie" prepare --undo "$tmp/made" -o "$tmp/going"
    for layer in "$tmp"/back/layer-*; do
        cmp "$layer" "$tmp/going/$(basename "$layer")" || fail "$1: going on made other bytes"
    done
    [ ! -e "$tmp/going.partial" ] || fail "undo leaves its working directory"
}
interrupted_undo
same_as_back "2 of them before"
interrupted_undo
rm "$tmp/going.partial/layer-00002.safetensors"
same_as_back "1 of them before"
# A file that this run does not write is named in the message, and nothing is changed.
interrupted_undo
cp "$tmp/back/layer-00001.safetensors" "$tmp/going.partial/layer-00007.safetensors"
expect 3 '"layer-00007.safetensors" is not what this run writes' "$moxie" prepare --undo "$tmp/made" -o "$tmp/going"
cmp "$tmp/back/layer-00001.safetensors" "$tmp/going.partial/layer-00007.safetensors" || fail "a foreign layer was touched"
interrupted_undo
printf '\125\252' | dd of="$tmp/going.partial/layer-00001.safetensors" bs=1 seek=90000 conv=notrunc 2>/dev/null
same_as_back "1 of them before"
interrupted_undo
cp "$tmp/back/layer-00002.safetensors" "$tmp/going.partial/layer-00001.safetensors"
same_as_back "1 of them before"
interrupted_undo
cp "$tmp/made/moxie_prepare.json" "$tmp/going.partial"
expect 3 "what a preparation left" "$moxie" prepare --undo "$tmp/made" -o "$tmp/going"

# The same for a preparation: here the last expert of the last layer has changed.
cp -r "$tmp/model" "$tmp/other"
last=$(ls "$tmp"/other/*.safetensors | tail -1)
"$moxie" prepare --undo "$tmp/made" -o "$tmp/known" >/dev/null
at=$(grep -aob 'layers.2.mlp.experts.7.down_proj.weight_packed' "$last" | head -1 | cut -d: -f1)
[ -n "$at" ] || fail "no last expert in $last"
data=$(($(od -An -t u8 -N 8 "$last") + 8))
offset=$(tail -c +"$((at + 1))" "$last" | head -c 300 | tr -d '\0' | sed 's/.*"data_offsets":\[\([0-9]*\),.*/\1/;q')
printf '\125\252\125' | dd of="$last" bs=1 seek="$((data + offset + 5))" conv=notrunc 2>/dev/null
cp -r "$tmp/made" "$tmp/newer.partial"
expect 0 "1 of them before" "$moxie" prepare "$tmp/other" --layout trtllm-mxint4 -o "$tmp/newer"
expect 0 "2 layers whole" "$moxie" prepare --verify "$tmp/newer"
cmp -s "$tmp/made/layer-00002.safetensors" "$tmp/newer/layer-00002.safetensors" && fail "a layer of other weights was kept"

# A run does not continue what another preparation left.
mkdir "$tmp/mixed.partial"
cp "$tmp/ep1/moxie_prepare.json" "$tmp/ep1/config.json" "$tmp/mixed.partial"
expect 3 "another preparation" "$moxie" prepare "$tmp/model" --layout trtllm-mxint4 -o "$tmp/mixed"
mkdir "$tmp/foreign.partial"
echo mine >"$tmp/foreign.partial/mine.txt"
expect 3 "foreign.partial" "$moxie" prepare "$tmp/model" --layout trtllm-mxint4 -o "$tmp/foreign"
[ "$(cat "$tmp/foreign.partial/mine.txt")" = mine ] || fail "a foreign directory was touched"
finish
