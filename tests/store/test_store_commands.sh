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
expect 4 "moxie prepare DIR --layout moxie-auto" "$moxie" run "$ck" --budget-ram 500K
expect 5 "at least" "$moxie" run "$ex" --budget-ram 10K
expect 2 "goes with --budget-ram" "$moxie" run "$ex" --policy lru
expect 2 "leave one of the two out" "$moxie" run "$ex" --budget-ram 500K --ranks 2
expect 2 "give --trace" "$moxie" bench "$ex" --budget-ram 500K
expect 2 "no tier on a GPU" "$moxie" run "$ex" --budget-ram 500K --backend cuda
expect 2 "there is no cache policy" "$moxie" run "$ex" --budget-ram 500K --policy best
finish
