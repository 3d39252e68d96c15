#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stores through the tool: run and diff with --budget-ram give the bytes of a run from memory, bench replays a trace and
# its hits are those of `trace simulate`, and what does not go together is refused.
. tests/cli/cli_lib.sh
ck=$tmp/ck ex=$tmp/ex trace=$tmp/made.trace

synth qwen3-30b-a3b mxfp4-ct "$ck" --layers 2
expect 0 . "$moxie" prepare "$ck" --layout moxie-auto -o "$ex"
expect 0 . "$moxie" trace record "$ck" --tokens 24 --prefill 10 -o "$trace"

for tokens in 1 33; do
    expect 0 . "$moxie" run "$ck" --tokens $tokens -o "$tmp/a.safetensors"
    expect 0 "slots a layer by lfru" "$moxie" run "$ex" --budget-ram 500K --tokens $tokens -o "$tmp/b.safetensors"
    cmp -s "$tmp/a.safetensors" "$tmp/b.safetensors" || fail "a run of $tokens tokens from a store differs"
done
expect 0 "the bytes are equal" "$moxie" diff "$ex" --budget-ram 500K --tokens 9 --policy lru
expect 0 '"equal": *true' "$moxie" diff "$ex" --budget-ram 500K --json
expect 0 '"read_bytes"' "$moxie" run "$ex" --budget-ram 500K --json

# The same trace, slots and cap of inserts, without hardware.
expect 0 "from file" "$moxie" bench "$ex" --budget-ram 900K --trace "$trace" --lookahead
for option in --phases "--repeats 3" "--limits $tmp/limits"; do
    # shellcheck disable=SC2086 # an option and its value
    expect 2 "does not go with ${option%% *}" "$moxie" bench "$ex" --budget-ram 900K --trace "$trace" $option
done
for policy in pinned frozen; do
    expect 2 "learns in the first runs.*--warm" "$moxie" bench "$ex" --budget-ram 900K --trace "$trace" --policy $policy
    expect 0 "slots a layer by $policy" "$moxie" bench "$ex" --budget-ram 900K --trace "$trace" --policy $policy --warm 6
    expect 0 "trace +$policy" "$moxie" explain "$ex" --budget-ram 900K --policy $policy --warm 6 --trace "$trace" \
        --disk-gb-s 2 --memory-gb-s 10
done
expect 2 "none is left to count" "$moxie" explain "$ex" --budget-ram 900K --policy frozen --warm 999 --trace "$trace" \
    --disk-gb-s 2 --memory-gb-s 10
expect 2 "goes with --budget-ram" "$moxie" run "$ex" --warm 3
for policy in "" "--policy lru"; do
    # shellcheck disable=SC2086 # an option and its value
    expect 2 "policies that learn.*leave --warm out" "$moxie" run "$ex" --budget-ram 900K --warm 3 $policy
    # shellcheck disable=SC2086
    expect 2 "policies that learn.*leave --warm out" "$moxie" explain "$ex" --budget-ram 900K --warm 3 $policy
done
expect 0 "trace" "$moxie" explain "$ex" --budget-ram 900K --warm 3 --trace "$trace" --disk-gb-s 2 --memory-gb-s 10
expect 2 "0 would let no expert .*frozen" "$moxie" run "$ex" --budget-ram 900K --max-inserts 0
for command in run bench diff explain "bench --budget-ram 900K --trace $trace"; do
    # shellcheck disable=SC2086 # a command and its options
    expect 2 "expert files have none: leave it out" "$moxie" $command "$ex" --allow-unread
done
expect 4 "are for GGUF files" "$moxie" bench "$ex" --budget-ram 900K --trace "$trace" --activations ggml
expect 0 . "$moxie" prepare "$ck" --layout moxie-auto --ep 0/2 -o "$tmp/half"
expect 4 "prepare files without --ep" "$moxie" bench "$tmp/half" --budget-ram 900K --trace "$trace"
expect 4 "8 of 16 experts, .*prepare files without --ep" "$moxie" explain "$tmp/half" --budget-ram 900K --memory-gb-s 10 --disk-gb-s 2
synth qwen3-30b-a3b mxfp4-ct "$tmp/wide" --layers 2 --hidden 512
expect 0 . "$moxie" prepare "$tmp/wide" --layout moxie-auto -o "$tmp/mixed"
cp "$ex/layer-00001.moxie" "$tmp/mixed"
expect 3 "layer 1 has hidden size 256 and bf16, layer 0 has 512" "$moxie" bench "$tmp/mixed" --budget-ram 4M --trace "$trace"
expect 0 "records .* in files" "$moxie" run "$tmp/half" --budget-ram 500K --tokens 5 -o "$tmp/a.safetensors"
expect 0 . "$moxie" run "$tmp/half" --tokens 5 -o "$tmp/b.safetensors"
cmp -s "$tmp/a.safetensors" "$tmp/b.safetensors" || fail "a share of experts from a store differs"
if command -v python3 >/dev/null; then
    "$moxie" bench "$ex" --budget-ram 900K --trace "$trace" --max-inserts 3 --json >"$tmp/bench.json" || fail "bench"
    slots=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["store"]["slots"])' "$tmp/bench.json")
    "$moxie" trace simulate "$trace" --slots "$slots" --max-inserts 3 --policy lfru --json >"$tmp/sim.json" ||
        fail "simulate"
    python3 - "$tmp/bench.json" "$tmp/sim.json" <<'END' || fail "hits of the store are not those of the simulation"
import json, sys

store, simulated = json.load(open(sys.argv[1]))["store"]["all"], json.load(open(sys.argv[2]))["rows"][0]
assert 0 < store["hits"] < store["uses"]
sys.exit((store["uses"], store["hits"], store["inserts"]) != tuple(simulated[k] for k in ("uses", "hits", "inserts")))
END
fi

expect 0 "the bytes are equal" "$moxie" diff "$ex" --budget-ram 500K --mirror "$ex" --read-engine pread --read-depth 3
expect 2 "leave one out" "$moxie" run "$ex" --budget-ram 500K --load read
# Advice before a run: the slots and hits of the store that was replayed, and bytes / rates.
rates="--disk-gb-s 2 --memory-gb-s 10"
if command -v python3 >/dev/null; then
    # shellcheck disable=SC2086 # several options
    "$moxie" explain "$ex" --budget-ram 900K --max-inserts 3 --trace "$trace" $rates --json >"$tmp/explain.json" ||
        fail "explain"
    # shellcheck disable=SC2086
    "$moxie" explain "$ex" --budget-ram 900K $rates --json >"$tmp/assumed.json" || fail "explain without a trace"
    python3 - "$tmp/explain.json" "$tmp/bench.json" "$tmp/assumed.json" <<'END' || fail "explain expects another store"
import json, sys

explained, bench, assumed = (json.load(open(name)) for name in sys.argv[1:])
e, row, b = explained["store"], explained["store"]["rows"][0], bench["store"]
assert (e["slots"], e["read_buffers"], e["record_bytes"]) == (b["slots"], b["read_buffers"], b["record_bytes"])
assert abs(row["hit_rate"] - b["all"]["hits"] / b["all"]["uses"]) < 1e-8 and not e["assumed"]
misses = (b["all"]["uses"] - b["all"]["hits"]) / bench["tokens"]
disk = misses * b["record_bytes"] / 2e9
memory = (b["all"]["uses"] / bench["tokens"] * b["record_bytes"] + b["shared_bytes"]) / 10e9
assert abs(row["misses_per_token"] - misses) < 1e-7
assert abs(row["max_tokens_per_s"] * (disk + memory) - 1) < 1e-7
assert abs(row["max_tokens_per_s_overlapped"] * max(disk, memory) - 1) < 1e-7

# Zipf's law by its definition: draws with replacement until a token has so many different experts on average.
a, experts, k = assumed["store"], assumed["experts"], assumed["top_k"]
uniform, zipf = a["rows"]
assert a["assumed"] and abs(uniform["hit_rate"] - a["slots"] / experts) < 1e-8
weight = [1 / (i + 1) for i in range(experts)]
def used(draws):
    return [1 - (1 - w / sum(weight)) ** draws for w in weight]
low, high = 0, 1e6
while high - low > 1e-9:
    middle = (low + high) / 2
    low, high = (middle, high) if sum(used(middle)) < k else (low, middle)
assert abs(zipf["misses_per_token"] - a["layers"] * sum(used(low)[a["slots"]:])) < 1e-6
END
fi
expect 0 "GB/s, measured: .*reads of" "$moxie" explain "$ex" --budget-ram 900K --memory-gb-s 10
expect 0 "these are assumptions" "$moxie" explain "$ex" --budget-ram 900K --memory-gb-s 10
expect 4 "moxie prepare DIR --layout moxie-auto" "$moxie" explain "$ck" --budget-ram 900K
expect 5 "at least" "$moxie" explain "$ex" --budget-ram 10K
expect 2 "goes with --budget-ram" "$moxie" explain "$ex" --trace "$trace"
expect 2 "goes with --budget-ram" "$moxie" explain "$ex" --read-depth 4
expect 2 "goes with a directory of expert files" "$moxie" explain --preset qwen3-30b-a3b --budget-ram 1G
expect 2 "leave one of the two out" "$moxie" explain "$ex" --budget-ram 1G --ranks 2
expect 2 "goes with --ranks" "$moxie" explain "$ex" --limits nowhere
synth gpt-oss-20b mxfp4-gptoss "$tmp/other" --layers 1
expect 0 . "$moxie" trace record "$tmp/other" --tokens 3 -o "$tmp/other.trace"
expect 3 "choose 4 of" "$moxie" explain "$ex" --budget-ram 900K --trace "$tmp/other.trace" --disk-gb-s 1 --memory-gb-s 1

expect 4 "moxie prepare DIR --layout moxie-auto" "$moxie" run "$ck" --budget-ram 500K
expect 5 "at least" "$moxie" run "$ex" --budget-ram 10K
expect 2 "goes with --budget-ram" "$moxie" run "$ex" --policy lru
expect 2 "leave one of the two out" "$moxie" run "$ex" --budget-ram 500K --ranks 2
expect 2 "give --trace" "$moxie" bench "$ex" --budget-ram 500K
expect 2 "needs --budget-gpu" "$moxie" run "$ex" --budget-ram 500K --backend cuda
expect 2 "there is no cache policy .*did you mean lfru" "$moxie" run "$ex" --budget-ram 500K --policy lfuu
expect 2 "there is no cache policy" "$moxie" run "$ex" --budget-ram 500K --policy best
finish
