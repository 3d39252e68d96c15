#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stores on a GPU through the tool, on a launch table in plain C: with --budget-gpu run and diff give the bytes of the layer
# that is all on the GPU, bench replays a trace with the hits that explain said, and what does not go is refused.
. tests/cli/cli_lib.sh
plain=$1/tests/libmoxie_cuda_plain.so
[ -e "$plain" ] || { echo "skipped: $plain was not built"; exit 77; }
export MOXIE_CUDA_LIBRARY="$plain"
ck=$tmp/ck ex=$tmp/ex trace=$tmp/made.trace

synth qwen3-30b-a3b mxfp4-ct "$ck" --layers 2
expect 0 . "$moxie" prepare "$ck" --layout moxie-sm80 -o "$ex"
expect 0 . "$moxie" trace record "$ck" --tokens 24 --prefill 10 -o "$trace"

expect 0 . "$moxie" run "$ex" --backend cuda --tokens 9 -o "$tmp/a.safetensors"
expect 0 "GPU: .* a layer, .* buffers for copies" "$moxie" run "$ex" --budget-ram 900K --budget-gpu 900K --tokens 9 \
    -o "$tmp/b.safetensors"
cmp -s "$tmp/a.safetensors" "$tmp/b.safetensors" || fail "a run from a store on a GPU differs"
expect 0 "the bytes are equal" "$moxie" diff "$ex" --budget-ram 500K --budget-gpu 500K --tokens 9
expect 0 '"copied_bytes"' "$moxie" diff "$ex" --budget-ram 500K --budget-gpu 900K --tokens 1 --json
expect 0 "a run takes .* ms, its copies alone" "$moxie" bench "$ex" --budget-ram 2M --budget-gpu 900K --trace "$trace"

rates="--disk-gb-s 2 --memory-gb-s 1000 --copy-gb-s 50"
if command -v python3 >/dev/null; then
    # shellcheck disable=SC2086 # several options
    "$moxie" explain "$ex" --budget-ram 2M --budget-gpu 900K --trace "$trace" $rates --json >"$tmp/explain.json" ||
        fail "explain"
    "$moxie" bench "$ex" --budget-ram 2M --budget-gpu 900K --trace "$trace" --json >"$tmp/bench.json" || fail "bench"
    python3 - "$tmp/explain.json" "$tmp/bench.json" <<'END' || fail "explain expects another store"
import json, sys

explained, bench = (json.load(open(name)) for name in sys.argv[1:])
e, row, b = explained["store"], explained["store"]["rows"][0], bench["store"]
gpu = b["all"]["gpu"]
assert e["gpu_slots"] == b["gpu_slots"] > 0 and e["slots"] == b["slots"]
assert abs(row["hit_rate"] - gpu["hits"] / gpu["uses"]) < 1e-8
assert gpu["copies"] == gpu["uses"] - gpu["hits"] == b["all"]["uses"] and gpu["id_waits"] == b["all"]["runs"]
misses = gpu["copies"] / bench["tokens"]
assert abs(row["copy_ms"] - 1e3 * misses * b["record_bytes"] / 50e9) < 1e-7
total = row["disk_ms"] + row["copy_ms"] + row["memory_ms"]
assert abs(row["max_tokens_per_s"] * total / 1e3 - 1) < 1e-7
END
fi
# shellcheck disable=SC2086
expect 0 "of a layer have a slot there" "$moxie" explain "$ex" --budget-ram 2M --budget-gpu 900K --device sm_90 $rates
expect 2 "goes with --budget-ram" "$moxie" run "$ex" --budget-gpu 1M
expect 2 "back end is ref" "$moxie" run "$ex" --budget-ram 1M --budget-gpu 1M --backend ref
expect 2 "does not go with --budget-gpu" "$moxie" bench "$ex" --budget-ram 1M --budget-gpu 1M --trace "$trace" --lookahead
expect 5 "on the GPU: 1 layers need at least" "$moxie" run "$ex" --budget-ram 1M --budget-gpu 10K
expect 0 . "$moxie" prepare "$ck" --layout moxie-cpu -o "$tmp/cpu"

# Experts that the CPU computes where they lie. What is pinned on the GPU stays, so runs repeat; the sums are near those of
# either processor.
where="--budget-ram 2M --budget-gpu 900K --cpu-experts $tmp/cpu"
# shellcheck disable=SC2086
for o in c d; do
    expect 0 "CPU: .* computed .* where they lie" "$moxie" run "$ex" $where --policy frozen --warm 1 --tokens 9 \
        -o "$tmp/$o.safetensors"
done
cmp -s "$tmp/c.safetensors" "$tmp/d.safetensors" || fail "experts that stay in RAM: a run does not repeat"
# shellcheck disable=SC2086
{
    expect 0 . "$moxie" trace record "$ck" --tokens 2 --prefill 1 -o "$tmp/two.trace"
    expect 0 "CPU: .* computed [1-9]" "$moxie" bench "$ex" $where --max-inserts 1 --policy lru --trace "$tmp/two.trace"
    expect 0 "the CPU computes where they lie" "$moxie" explain "$ex" $where --device sm_90 $rates
    "$moxie" explain "$ex" $where --device sm_90 $rates --json >"$tmp/where.json" || fail "explain of two processors"
    expect 2 "bits that depend on which experts" "$moxie" diff "$ex" $where
}
if command -v python3 >/dev/null; then
    python3 - "$tmp/where.json" <<'END' || fail "explain does not name both processors' kernels"
import json, sys

explained = json.load(open(sys.argv[1]))
kernels = {key: {s["role"]: s["isa"] for s in explained[key] if s["chosen"] and s["family"] == "expert_gemm"}
           for key in ("steps", "host_steps")}
assert set(kernels["steps"]) >= {"w13", "w2"} and set(kernels["host_steps"]) == {"w13", "w2"}
assert not set(kernels["steps"].values()) & set(kernels["host_steps"].values()), kernels
assert explained["store"]["host_slots"] > 0 and explained["store"]["slots"] == 0
END
fi
expect 2 "goes with --budget-gpu" "$moxie" run "$ex" --budget-ram 1M --cpu-experts "$tmp/cpu"
expect 4 "moxie prepare DIR --layout moxie-sm90" "$moxie" run "$tmp/cpu" --budget-ram 1M --budget-gpu 1M
finish
