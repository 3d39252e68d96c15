#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moxie balance: the published example, the three formats of maps, loads in every form, bounded moves, JSON, bad input.
. "$(dirname "$0")/cli_lib.sh"

# The example of deepseek-ai/EPLB's README.
cat >"$tmp/loads.csv" <<'END'
# two layers of twelve experts
90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86
20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27
END
published='[[5,6,5,7,8,4,3,4,10,9,10,2,0,1,11,1],[7,10,6,8,6,11,8,9,2,4,5,1,5,0,3,1]]'
expert_args="--ranks 8 --nodes 2 --groups 4 --slots 16"
# shellcheck disable=SC2086 # a list of options
expect 0 "balance 0\.[0-9]+ before \(linear\), 0\.[0-9]+ after" "$moxie" balance "$tmp/loads.csv" $expert_args -o "$tmp/map.json"
grep -qF "\"physical_to_logical_map\":$published" "$tmp/map.json" || fail "not the published map: $(cat "$tmp/map.json")"
for key in schema_version kind experts slots ranks generation first_slot; do
    grep -q "\"$key\":" "$tmp/map.json" || fail "MAP.json without $key"
done

# Formats of maps: written, and read again by --map, where nothing moves.
for format in moxie sglang vllm; do
    # shellcheck disable=SC2086
    expect 0 "generation" "$moxie" balance "$tmp/loads.csv" $expert_args --format $format -o "$tmp/$format.json"
    # shellcheck disable=SC2086
    expect 0 "^0 moves, 0 of them" "$moxie" balance "$tmp/loads.csv" $expert_args --map "$tmp/$format.json"
done
[ "$(cat "$tmp/vllm.json")" = "$published" ] || fail "not vLLM's array: $(cat "$tmp/vllm.json")"
[ "$(cat "$tmp/sglang.json")" = "{\"physical_to_logical_map\":$published}" ] || fail "not SGLang's: $(cat "$tmp/sglang.json")"

# Loads as JSON, as SGLang's with steps, as one layer.
same='[[90,132,40,61,104,165,39,4,73,56,183,86],[20,107,104,64,19,197,187,157,172,86,16,27]]'
echo "$same" >"$tmp/loads.json"
echo "{\"logical_count\": [$same, $same]}" >"$tmp/steps.json"
for loads in loads.json steps.json; do
    # shellcheck disable=SC2086
    expect 0 "generation" "$moxie" balance "$tmp/$loads" $expert_args -o "$tmp/again.json"
    cmp -s "$tmp/map.json" "$tmp/again.json" || fail "$loads gives another map"
done
echo '[3, 1, 2]' >"$tmp/one.json"
expect 0 "1 layer, 5 slots" "$moxie" balance "$tmp/one.json" --ranks 2 --slots 5 --distinct -o "$tmp/one-map.json"

# Ids of a run.
synth qwen3-30b-a3b bf16 "$tmp/model"
expect 0 "run" "$moxie" run "$tmp/model" --tokens 20 -o "$tmp/run.safetensors"
expect 0 "globally" "$moxie" balance "$tmp/run.safetensors" --ranks 4
"$moxie" run "$tmp/model" --tokens 20 --json >"$tmp/run.json"
"$moxie" balance "$tmp/run.safetensors" --ranks 4 --format vllm -o "$tmp/a.json" >/dev/null
"$moxie" balance "$tmp/run.json" --ranks 4 --format vllm -o "$tmp/b.json" >/dev/null
cmp -s "$tmp/a.json" "$tmp/b.json" || fail "ids of safetensors and of JSON give different maps"
expect 3 "is expert [0-9]+, and there are 8 experts" "$moxie" balance "$tmp/run.safetensors" --ranks 4 --experts 8

# Experts without weights, whose ids follow the others', are no load.
echo '{"topk_ids": [0, 1, 5, 4, 1, 7], "experts": 4, "zero_experts": 4}' >"$tmp/zero.json"
echo '{"topk_ids": [0, 1, 5, 4, 1, 7]}' >"$tmp/untold.json"
echo '[1, 2, 0, 0]' >"$tmp/loads.json"
"$moxie" balance "$tmp/loads.json" --ranks 2 --format vllm -o "$tmp/want.json" >/dev/null
expect 0 "" "$moxie" balance "$tmp/zero.json" --ranks 2 --format vllm -o "$tmp/got.json"
cmp "$tmp/want.json" "$tmp/got.json" || fail "zero experts of a run count"
expect 0 "" "$moxie" balance "$tmp/untold.json" --ranks 2 --format vllm -o "$tmp/got.json" --experts 4 --zero-experts 4
cmp "$tmp/want.json" "$tmp/got.json" || fail "zero experts count"
expect 3 "is expert 7, and there are 7 experts: .*--zero-experts" "$moxie" balance "$tmp/untold.json" --ranks 2 --experts 4 --zero-experts 3
for number in -1 99999999999 9223372036854775807; do
    echo "{\"topk_ids\": [9223372036854775807], \"experts\": 4, \"zero_experts\": $number}" >"$tmp/wrong.json"
    expect 3 "it has $number zero experts; there are 0 to" "$moxie" balance "$tmp/wrong.json" --ranks 2
done
# router_logits have a column for each of both.
expect 0 '"experts": 12,' "$moxie" balance "$tmp/run.safetensors" --ranks 4 --zero-experts 4 --json
expect 3 "unknown: router_logits have 16 columns, and 16 experts are zero experts; give --experts N" "$moxie" \
    balance "$tmp/run.safetensors" --ranks 4 --zero-experts 16

# Bounded moves from another map, until nothing is left; the generation counts maps that differ.
echo '[[1,1,1,1,9,9,1,1,1,1,1,50]]' >"$tmp/hot.json"
echo '[[0,1,2,3,4,5,6,7,8,9,10,11,0,1,2,3]]' >"$tmp/now.json"
steps=0
while [ $steps -lt 20 ]; do
    expect 0 "moves?," "$moxie" balance "$tmp/hot.json" --ranks 4 --map "$tmp/now.json" --max-moves 2 --bytes-per-expert 1000 -o "$tmp/next.json"
    grep -qE "^[0-2] moves?, [0-2] of them from another rank \([0-9.]+ k?B\)" "$tmp/out" || fail "not bounded: $(cat "$tmp/out")"
    grep -q "not yet as wanted" "$tmp/out" || break
    mv "$tmp/next.json" "$tmp/now.json"
    steps=$((steps + 1))
done
[ $steps -gt 1 ] && [ $steps -lt 20 ] || fail "$steps steps"
expect 0 "\"generation\": $((steps + 1))" "$moxie" balance "$tmp/hot.json" --ranks 4 --map "$tmp/next.json" --json
expect 0 '"remote_bytes": 0' "$moxie" balance "$tmp/hot.json" --ranks 4 --map "$tmp/next.json" --json --max-bytes 2000 --bytes-per-expert 1000
for key in schema_version command loads map output experts slots ranks nodes groups balance_before balance_after moves \
    remote_moves moves_left generation layers layer mean largest_before largest_after hierarchical; do
    grep -q "\"$key\":" "$tmp/out" || fail "JSON without $key"
done

# Bad input: file, position, remedy.
bad() {
    printf '%s' "$1" >"$tmp/bad.json"
    shift
    expect "$@" "$moxie" balance "$tmp/bad.json" --ranks 2
}
bad '[[1, 2], [3]]' 3 "row 1 of the array has 1 numbers, the first one 2"
bad '[[1, "x"]]' 3 "row 0, column 1 of the array is no number"
bad '[[1, 2' 3 "line 1, column"
bad '[[1, -2]]' 3 "layer 0, expert 1 has the load -2"
bad '{"counts": [[1]]}' 3 "it has no loads"
bad '[]' 3 "no array of numbers"
bad '' 3 "0 layers"
bad '1 2
3 x' 3 "byte 6: line 2: \"x\" is no load"
bad '1 2
3' 3 "line 2 has 1 numbers, the lines before 2"
bad '{"topk_ids": [1, 2]}' 3 'unknown: no number "experts" is beside them; give --experts N'
bad '{"topk_ids": [1, 2.5], "experts": 3}' 3 "number 1 of topk_ids is no whole number"
bad "$(cat "$tmp/map.json")" 3 "a map of today goes to --map"
cp "$tmp/loads.json" "$tmp/loads.pt"
expect 4 "a pickle of Python.*json.dump" "$moxie" balance "$tmp/loads.pt" --ranks 2
expect 3 "cannot open" "$moxie" balance "$tmp/nowhere.json" --ranks 2

# Maps that do not fit.
bad_map() {
    printf '%s' "$1" >"$tmp/bad.json"
    shift
    expect "$@" "$moxie" balance "$tmp/hot.json" --ranks 4 --map "$tmp/bad.json" -o "$tmp/never.json"
    [ ! -e "$tmp/never.json" ] || fail "a map was written"
}
bad_map '[[0,1,2,3,4,5,6,7,8,9,10,12]]' 3 "layer 0, slot 11 holds expert 12"
bad_map '[[0,1,2,3,4,5,6,7,8,9,10,10]]' 3 "layer 0: .*expert 11 is in none of the 12 slots"
bad_map '[[0,1,2,3,4,5,6,7,8,9,10,1.5]]' 3 "slot 11 holds expert 1.5"
bad_map '{"logical_count": [[1]]}' 3 "loads of experts and no map"
bad_map '{"kind": "moxie limits", "physical_to_logical_map": [[0]]}' 3 "its kind is .moxie limits."
bad_map '{"schema_version": 9, "physical_to_logical_map": [[0]]}' 4 "schema_version is not 1"
bad_map '{"ranks": 8, "physical_to_logical_map": [[0,1,2,3,4,5,6,7,8,9,10,11]]}' 3 "the map is of 8 ranks, and 4 are asked"
bad_map '{"first_slot": [0,6,9,12,12], "physical_to_logical_map": [[0,1,2,3,4,5,6,7,8,9,10,11]]}' 4 "rank 1 begins at slot 6"
bad_map '[[0,1,2,3,4,5,6,7,8,9,10,11],[0,1,2,3,4,5,6,7,8,9,10,11]]' 3 "the map has 2 layers"

# Usage.
echo '[[1e308,1e308,1,1]]' >"$tmp/huge.json"
expect 3 "expert 0 has the load 1e.308: loads are numbers from 0 to 1e.100" "$moxie" balance "$tmp/huge.json" --ranks 2
expect 2 "loads of experts is needed" "$moxie" balance --ranks 2
expect 2 "ranks is needed" "$moxie" balance "$tmp/hot.json"
expect 2 "second one" "$moxie" balance a b --ranks 2
expect 2 "from 2 to" "$moxie" balance "$tmp/hot.json" --ranks 2 --map x --max-moves 1
expect 2 "give it with --map" "$moxie" balance "$tmp/hot.json" --ranks 2 --max-moves 4
expect 2 "give --bytes-per-expert" "$moxie" balance "$tmp/hot.json" --ranks 2 --map x --max-bytes 4
expect 2 "give 2000 or more" "$moxie" balance "$tmp/hot.json" --ranks 2 --map x --max-bytes 1999 --bytes-per-expert 1000
expect 2 "every expert needs a slot" "$moxie" balance "$tmp/hot.json" --ranks 2 --slots 11
expect 2 "3 nodes for 2 ranks" "$moxie" balance "$tmp/hot.json" --ranks 2 --nodes 3
expect 0 "packed globally, as if --nodes were 1: --nodes 3 must divide --groups 1" "$moxie" balance "$tmp/hot.json" --ranks 4 --nodes 3
expect 2 "sglang" "$moxie" balance "$tmp/hot.json" --ranks 2 --format sglan
finish
