#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moxie bench --backend cuda, all of it but the kernels: on a launch table in plain C, whose GPU reads 4000 GB/s,
# multiplies bf16 at 400 TFLOP/s and takes a microsecond a launch (tests/support/test_cuda_graph.h).
. "$(dirname "$0")/cli_lib.sh"
plain=$1/tests/libmoxie_cuda_plain.so
[ -e "$plain" ] || { echo "skipped: $plain was not built"; exit 77; }

# Without a library: the sentence that `run` uses, whichever it is here.
synth granite-3.1-1b-a400m mxfp4-ct "$tmp/model"
export MOXIE_CUDA_LIBRARY="$tmp/none.so"
expect 4 "MOXIE_CUDA_LIBRARY is .*none.so, which cannot be opened" "$moxie" bench "$tmp/model" --backend cuda
sed 's/^moxie bench/moxie run/' "$tmp/err" >"$tmp/bench.err"
expect 4 "which cannot be opened" "$moxie" run "$tmp/model" --backend cuda
cmp -s "$tmp/err" "$tmp/bench.err" || fail "bench refuses in other words than run: $(cat "$tmp/bench.err")"
expect 4 '"error"' "$moxie" bench "$tmp/model" --backend cuda --json

export MOXIE_CUDA_LIBRARY="$plain"
limits=$tmp/limits.json
bench() { "$moxie" bench "$tmp/model" --backend cuda --repeats 1 "$@"; }

# A table, with limits measured beside it.
expect 0 "sm_80; cuda, sm_80, 108 multiprocessors, exact, routing uniform" bench --tokens 3,1
grep -qE "^limits  [0-9.]+ GB/s from memory, [0-9.]+ TFLOP/s bf16 .mma.sync m16n8k16., measured" "$tmp/out" ||
    fail "no line of limits: $(grep limits "$tmp/out")"
grep -q "plan    sm80_dequant_glu+sm80_dequant" "$tmp/out" || fail "the plan is not that of a GPU without wgmma"
[ "$(awk '/^ +[0-9]+ +[0-9.]+ / { printf "%s ", $1 }' "$tmp/out")" = "3 1 " ] || fail "lines are not those of --tokens 3,1"

# JSON: every key that a line on a processor has, and what the table's clock makes of it. 16 experts, 8 chosen, 256 x 128:
# one token is 8 x 3 x 2 x 256 x 128 operations, on 8 x 3 x 256 x 128 x (1/2 + 1/32) bytes.
expect 0 '"command": "bench"' bench --tokens 1 --json --limits "$limits"
for key in preset scheme backend isa threads mode tokens routing median_ms min_ms max_ms floor_ms ratio weight_bytes \
    flop plan read_gb_s bf16_tflop_s fp8_tflop_s experts_touched gb_s gflop_s copies rows steps limits schema_version \
    preempted_runs output_rms reuse_bytes runs_at_once device host_us host_by_kernel_us; do
    grep -q "\"$key\":" "$tmp/out" || fail "no key $key in bench --json"
done
number() { sed -n "s/.*\"$1\": \([0-9.e+-]*\).*/\1/p" "$tmp/out" | head -1; }
is() {
    awk -v a="$(number "$1")" -v b="$2" 'BEGIN { exit !(a != "" && a >= 0.999 * b && a <= 1.001 * b) }' ||
        fail "$1 is $(number "$1"), not $2"
}
is weight_bytes 417792
is flop 1572864
is read_gb_s 4000
is bf16_tflop_s 400
is floor_ms 0.000104448
is ratio "$(awk -v m="$(number median_ms)" 'BEGIN { print m / 0.000104448 }')"
grep -q '"floor_by": "memory"' "$tmp/out" || fail "the floor of one token is not that of memory"
grep -q '"backend": "cuda"' "$tmp/out" || fail "the backend is not cuda"
# A run is 4 launches: permute, multiply and activate, multiply, combine; then two a graph.
awk -v m="$(number median_ms)" -v r="$(number runs_at_once)" 'BEGIN { exit !(r > 1 && m > 0.99e-3 * (4 + 2 / r) && m < 1.01e-3 * (4 + 2 / r)) }' ||
    fail "$(number runs_at_once) runs take $(number median_ms) ms each"
awk -v a="$(number reuse_bytes)" 'BEGIN { exit !(a >= 2 * 1048576) }' ||
    fail "an expert was read again after $(number reuse_bytes) bytes of others, the L2 holds 1048576"
awk -v a="$(number output_rms)" 'BEGIN { exit !(a > 0 && a < 1e6) }' || fail "no output came back"
# Limits measured with a set of kernels are not those of the device.
expect 0 "sm_80, kernels of sm80; cuda" bench --tokens 1 --device-kernels sm80 --limits "$tmp/limits-sm80.json"
grep -q '"sm_80, kernels of sm80"' "$tmp/limits-sm80.json" || fail "limits of a set of kernels are filed as the device's"
# Adapters: three launches more: pairs by adapter, W13's change, W2's. Products stay fused.
expect 0 "2 LoRA adapters of rank 4, one for each token in turn" bench --tokens 3 --adapters 2 --adapter-rank 4 --limits "$limits"
expect 0 '"adapter_rank": 16' bench --tokens 1 --adapters 1 --json --limits "$limits"
awk -v m="$(number median_ms)" -v r="$(number runs_at_once)" 'BEGIN { exit !(m > 0.99e-3 * (7 + 2 / r) && m < 1.01e-3 * (7 + 2 / r)) }' ||
    fail "$(number runs_at_once) runs with adapters take $(number median_ms) ms each"
expect 0 '"adapters": 0' bench --tokens 1 --json --limits "$limits"
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys; b = json.load(open(sys.argv[1])); assert len(b["rows"]) == 1 and b["steps"]' "$tmp/out" ||
        fail "the JSON is none, or lacks rows or steps"
fi

# Limits: written once, read after; those of a GPU are of no use to a processor.
cp "$limits" "$tmp/kept"
grep -q '"gpu": "sm_80"' "$limits" || fail "the file does not name the GPU"
expect 0 "from the file" bench --tokens 1 --limits "$limits"
cmp "$limits" "$tmp/kept" || fail "limits that fit were measured again"
sed -i 's/"read_gb_s": [0-9][0-9.]*/"read_gb_s": 2000.0/' "$limits"
expect 0 "limits  2000.0 GB/s" bench --tokens 1 --limits "$limits"
sed -i 's/"bf16_tflop_s": [0-9][0-9.]*/"bf16_tflop_s": 0.0/' "$limits"
expect 3 "not positive" bench --tokens 1 --limits "$limits"
cp "$tmp/kept" "$limits"
expect 0 "measured anew" "$moxie" info --limits "$limits" --threads 1
grep -q '"cpu"' "$limits" || fail "info did not replace the limits of a GPU"

# Weights come from memory at every batch size: from one launch to the next two L2s of others are read.
expect 0 '"rows"' bench --tokens 1,2,5,16 --json
awk -F'[:,]' '/"reuse_bytes"/ { n++; if ($2 < 2 * 1048576) bad = 1 } END { exit bad || n != 4 }' "$tmp/out" ||
    fail "experts are read again too soon: $(grep reuse_bytes "$tmp/out")"

# Presets, routings, batch sizes, devices.
expect 0 "routing zipf" bench --tokens 2 --routing zipf
expect 0 "routing one-hot" bench --tokens 2 --routing one-hot
printf '0 1 2 3 4 5 6 7\n8 9 10 11 12 13 14 -1\n' >"$tmp/ids"
expect 0 '"experts_touched": 15' bench --routing "$tmp/ids" --json
expect 0 "16 experts, top-8" bench --device 0 --tokens 1
expect 2 "acts-of goes with --preset" bench --acts-of mxfp4_mxfp8
expect 2 "no scheme constructor .fp9." "$moxie" bench --preset gpt-oss-20b --acts-of fp9 --backend cuda
expect 4 "CUDA device 3 was asked for; this machine has 1" bench --device 3 --tokens 1

# An expert file's records are loaded as they lie, where the kernels read their layout.
"$moxie" prepare "$tmp/model" --layout moxie-sm80 -o "$tmp/sm80" >/dev/null
"$moxie" prepare "$tmp/model" --layout moxie-cpu -o "$tmp/cpu" >/dev/null
expect 0 '"load_gb_s": [0-9.]*[1-9]' "$moxie" bench "$tmp/sm80" --backend cuda --repeats 1 --tokens 1 --json --limits "$limits"
! grep -q "packed anew" "$tmp/err" || fail "records of moxie-sm80 were not used as they lie"
for key in bytes fill_ms first_fill_ms fill_gb_s copy_gb_s share allocate_ms pin_ms pinned_bytes; do
    grep -qE "\"$key\": [0-9.e-]*[1-9]" "$tmp/out" || fail "the fill of an expert file has no $key: $(cat "$tmp/out")"
done
expect 0 "^fill +[0-9.]+ .*B in [0-9.]+ ms by [0-9]+ threads?: [0-9.]+ GB/s, [0-9]+ % of copies from pinned memory" \
    "$moxie" bench "$tmp/sm80" --backend cuda --repeats 1 --tokens 1 --limits "$limits"
expect 0 '"fill": null' bench --tokens 1 --json --limits "$limits"
expect 0 "do not read the expert file's layout: its experts are unpacked and packed anew" "$moxie" bench "$tmp/cpu" \
    --backend cuda --repeats 1 --tokens 1 --limits "$limits"

# Info: kernels, and how many instances the library has.
expect 0 "^[0-9]+ kernels for CUDA; 7 kernel instances in .*plain" "$moxie" info --kernels
grep -qE "^expert_gemm +simple_any +cuda +rowmajor +EXACT +yes" "$tmp/out" || fail "info --kernels lists no CUDA kernel"
! grep -q "^processor" "$tmp/out" || fail "info --kernels prints more than kernels"
expect 0 '"cuda_instances": 7' "$moxie" info --json
expect 0 "their kernels are in libmoxie_cuda, which was not found" env MOXIE_CUDA_LIBRARY="$tmp/none.so" "$moxie" info
if command -v gnuplot >/dev/null; then
    expect 0 "drawn in" bench --tokens 1,2 --plot "$tmp/roof.svg"
    grep -qE "memory +4e\+03 GB/s" "$tmp/roof.svg" || fail "the roof is not the GPU's"
fi
finish
