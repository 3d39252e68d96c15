#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One flipped weight byte in a copy: diff names the expert and the block, and exits 1.
. "$(dirname "$0")/cli_lib.sh"

synth gpt-oss-20b mxfp4-gptoss "$tmp/good"
cp -r "$tmp/good" "$tmp/bad"
file=$tmp/bad/model.safetensors
expect 0 "the weights are equal" "$moxie" diff "$tmp/good" --layer 0 --against "$tmp/bad"

# down_proj_blocks [16, 256, 4, 16]: expert 11, row 37, block 2, byte 5 holds columns 74 and 75.
header=$(od -An -t u8 -N 8 "$file" | tr -d ' ')
begin=$(dd if="$file" bs=1 skip=8 count="$header" 2>/dev/null | grep -o '"[^"]*down_proj_blocks":{[^}]*' |
    sed 's/.*"data_offsets":\[\([0-9]*\).*/\1/')
offset=$((8 + header + begin + ((11 * 256 + 37) * 4 + 2) * 16 + 5))
byte=$(od -An -t u1 -j "$offset" -N 1 "$file" | tr -d ' ')
printf "$(printf '\\%03o' $((byte ^ 1)))" | dd of="$file" bs=1 seek="$offset" conv=notrunc 2>/dev/null

expect 1 "expert 11 down codes, row 37, column 74, block \(37, 2\)" "$moxie" diff "$tmp/good" --layer 0 --against "$tmp/bad"
expect 1 '"expert": 11' "$moxie" diff "$tmp/good" --layer 0 --against "$tmp/bad" --json
finish
