#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --ranks of moxie run, diff, explain and bench: bytes of one rank, who has what, what is refused; and one run under mpirun.
. "$(dirname "$0")/cli_lib.sh"
build=$(dirname "$moxie")
synth qwen3-30b-a3b bf16 "$tmp/model" --layers 2
synth deepseek-v3 fp8-block "$tmp/shared" --intermediate 256

# ---- run: the same file -------------------------------------------------------------------------------
"$moxie" run "$tmp/model" --tokens 21 -o "$tmp/one.safetensors" >/dev/null
"$moxie" balance "$tmp/one.safetensors" --ranks 2 --slots 20 -o "$tmp/map.json" >/dev/null
# same ARGUMENTS...: ranks give the file of one rank.
same() {
    rm -f "$tmp/ranks.safetensors"
    expect 0 "ranks?, --tp" "$moxie" run "$tmp/model" --tokens 21 -o "$tmp/ranks.safetensors" "$@"
    cmp "$tmp/one.safetensors" "$tmp/ranks.safetensors" || fail "other bytes: $*"
}
same --ranks 1
same --ranks 2
same --ranks 3 --threads 3
same --ranks 2 --tp 2
same --ranks 4 --tp 2 --ep-map round_robin
same --ranks 3 --ep-map round_robin --tokens-as scattered
same --ranks 3 --tokens-as replicated
same --ranks 2 --ep-map "$tmp/map.json"
same --ranks 4 --tp 2 --ep-map "$tmp/map.json" --tokens-as replicated
same --ranks 24
same --ranks 3 --exchange-capacity 7
same --ranks 4 --exchange-chunk 2
same --ranks 4 --tp 2 --tokens-as scattered --exchange-chunk 3
same --ranks 4 --tp 2 --tokens-as replicated --exchange-capacity 6
same --ranks 3 --threads 2
expect 2 "rank 0 has 7 tokens, but the exchange has room for 6" "$moxie" run "$tmp/model" --tokens 21 --ranks 3 --exchange-capacity 6
# Ids and weights that are given; no tokens; a shared expert; a preset.
"$moxie" run "$tmp/shared" --tokens 9 -o "$tmp/a.safetensors" >/dev/null
"$moxie" run "$tmp/shared" --tokens 9 --ranks 3 -o "$tmp/b.safetensors" >/dev/null
cmp "$tmp/a.safetensors" "$tmp/b.safetensors" || fail "other bytes with a shared expert"
"$moxie" run "$tmp/shared" --tokens 9 --round-results -o "$tmp/c.safetensors" >/dev/null
"$moxie" run "$tmp/shared" --tokens 9 --round-results --ranks 3 -o "$tmp/d.safetensors" >/dev/null
cmp "$tmp/c.safetensors" "$tmp/d.safetensors" || fail "other bytes with results of 16 bits"
cmp -s "$tmp/a.safetensors" "$tmp/c.safetensors" && fail "--round-results changes nothing"
expect 0 "3 ranks" "$moxie" run "$tmp/model" --tokens 0 --ranks 3
expect 0 "2 ranks" "$moxie" run --preset granite-3.1-1b-a400m --format mxfp4-ct --experts 8 --tokens 3 --ranks 2
expect 0 '"tokens_as": "scattered"' "$moxie" run "$tmp/model" --ranks 2 --tp 2 --tokens-as scattered --json
for key in ranks tp ep_map tokens_as topk_ids output_rms; do
    grep -q "\"$key\":" "$tmp/out" || fail "run --json without $key"
done

# ---- diff ---------------------------------------------------------------------------------------------
expect 0 "right: the bytes are equal" "$moxie" diff "$tmp/model" --ranks 3
expect 0 "4 ranks, --tp 2, experts round_robin, tokens replicated" "$moxie" diff "$tmp/shared" --ranks 4 --tp 2 --ep-map round_robin --tokens-as replicated
expect 0 '"equal": true' "$moxie" diff "$tmp/model" --a ref --ranks 2 --ep-map "$tmp/map.json" --json
for key in layer ranks tp ep_map tokens_as tokens routing_equal elements first; do
    grep -q "\"$key\":" "$tmp/out" || fail "diff --json without $key"
done
# A rank that computes one element wrongly: a library in front of libmoxie flips a bit of the second run's output.
cat >"$tmp/wrong.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <moxie/moxie.h>
moxie_status moxie_plan_run(moxie_plan *plan, const moxie_run_args *args, moxie_error *error)
{
    static int calls;
    moxie_status (*run)(moxie_plan *, const moxie_run_args *, moxie_error *);
    void *found = dlsym(RTLD_NEXT, "moxie_plan_run");
    memcpy(&run, &found, sizeof run);
    const moxie_status status = run(plan, args, error);
    if (__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) == 1)
        ((char *)args->output)[2 * (256 + 3)] ^= 1; /* token 1, column 3 */
    return status;
}
END
if ! grep -q "MOXIE_SANITIZE:STRING=[at]" "$build/CMakeCache.txt" && [ "$(head -c 2 "$moxie")" != "#!" ] &&
    cc -shared -fPIC -I"$(dirname "$0")/../../include" -o "$tmp/wrong.so" "$tmp/wrong.c" -ldl 2>/dev/null; then
    expect 1 "WRONG: 1 of 4096 outputs differ; the first: token 1, column 3" env LD_PRELOAD="$tmp/wrong.so" "$moxie" diff "$tmp/model" --ranks 1
    expect 1 '"equal": false' env LD_PRELOAD="$tmp/wrong.so" "$moxie" diff "$tmp/model" --ranks 1 --json
else
    echo "no rank that computes wrongly: it needs a compiler for this machine, and no sanitizer"
fi

# Fast mode may sum over ranks: then bytes are not compared.
synth granite-3.1-1b-a400m bf16 "$tmp/wide" --hidden 128 --intermediate 512 --experts 8
expect 4 "in fast mode tensor parallel ranks of this layer add their results" "$moxie" diff "$tmp/wide" --ranks 2 --tp 2 --mode fast
expect 0 "the bytes are equal" "$moxie" diff "$tmp/wide" --ranks 2 --tp 2
expect 0 "the bytes are equal" "$moxie" diff "$tmp/wide" --ranks 2 --mode fast

# ---- explain ------------------------------------------------------------------------------------------
# 16 experts, 8 a token; hidden 256, intermediate 128. A token of rank 0 sends its row, with 8 ids, to both other groups'
# ranks and its own partner: 3 rows of 512 + 32 bytes.
expect 0 "4 ranks, --tp 2, experts linear, tokens sharded" "$moxie" explain "$tmp/model" --ranks 4 --tp 2
for line in '^ +0 +8 +0-63 +0-127 +0-7$' '^ +3 +8 +64-127 +128-255 +8-15$' '^dispatch +544 +[23]\.[0-9]+ .* 1\.6 kB$' \
    '^act +256 +8\.00 +2\.0 kB +2\.0 kB$' '^return +1024 +[56]\.'; do
    grep -qE "$line" "$tmp/out" || fail "explain without $line: $(cat "$tmp/out")"
done
# The shared expert of 2048 rows is cut, too: each rank's rows and bytes beside those of a whole one.
expect 0 "^ +1 +1024-2047 +3584-7167 +22\.0 MB +44\.1 MB" "$moxie" explain --preset deepseek-v3 --ranks 4 --tp 2
for line in '^tensor_parallel +shared +rows ' '^shared_x +14336 +1\.00 ' '^shared_act +8192 +1\.00 ' '^shared_y +28672 +0\.50 '; do
    grep -qE "$line" "$tmp/out" || fail "explain of a shared expert without $line: $(cat "$tmp/out")"
done
expect 0 '"shared_whole_bytes": 44051008' "$moxie" explain --preset deepseek-v3 --ranks 4 --tp 2 --json
expect 0 "^dispatch +7424 " "$moxie" explain --preset deepseek-v3 --ranks 4
expect 0 "^dispatch +14372 " "$moxie" explain --preset deepseek-v3 --ranks 4 --adapter-rank 16 # hidden states, and a number
expect 0 "^gather +512 +1\.00" "$moxie" explain "$tmp/model" --ranks 2 --ep-map "$tmp/map.json" --tokens-as replicated
grep -qE "^ +0 +10 " "$tmp/out" || fail "not the map's slots: $(cat "$tmp/out")"
grep -q "^dispatch" "$tmp/out" && fail "replicated tokens are dispatched"
expect 0 '"exchange_per_token"' "$moxie" explain "$tmp/model" --ranks 3 --ep-map round_robin --json
for key in count ep tp ep_map tokens_as ranks rank ep_rank tp_rank experts slots w13_rows w2_rows w2_columns step row_bytes rows \
    bytes most_bytes; do
    grep -q "\"$key\":" "$tmp/out" || fail "explain --json without $key"
done

# Fast mode: sums over ranks where they are fewer bytes, and the reason where they are not.
expect 0 "tensor_parallel +w2 +rows .* EXACT +as in exact mode: sums of results are more bytes" "$moxie" explain "$tmp/model" --ranks 2 --tp 2 --mode fast
expect 0 "tensor_parallel +w2 +columns .* TOL +fast mode: 2 ranks each multiply their own columns" "$moxie" explain --experts 8 --top-k 2 --hidden 256 --intermediate 1024 --ranks 2 --tp 2 --mode fast
grep -qE "^ +1 +8 +512-1023 +512-1023 +0-7$" "$tmp/out" || fail "not the columns of down: $(cat "$tmp/out")"
grep -qE "^sum +1024 +2\.00 " "$tmp/out" || fail "no sum of results: $(cat "$tmp/out")"
expect 0 "every dot product is whole on one rank" "$moxie" explain --experts 8 --top-k 2 --hidden 256 --intermediate 1024 --ranks 2 --tp 2

# Expected times: of a link that is counted by hand, and of a machine's limits. Two ranks, tokens sharded, 4096 tokens:
# each rank sends half of the rows of 4096 tokens, at 1000 bytes a millisecond, and one message (two in the dispatch) of 2 ms.
limits=$tmp/limits.json
cat >"$limits" <<'END'
{ "schema_version": 1, "kind": "moxie limits", "cpu": "another", "threads": 7, "isa": "avx2",
  "limits": { "read_gb_s": 1e-3, "copy_gb_s": 1, "l2_read_gb_s": 1, "f32_tflop_s": 1, "bf16_tflop_s": 1, "fp8_tflop_s": 0,
    "int8_top_s": 0, "l2_bytes": 1, "cache_bytes": 1, "disturbed": 0, "how": {} } }
END
expect 0 '"times"' "$moxie" explain "$tmp/model" --ranks 2 --tokens 4096 --limits "$limits" --link-gb-s 0.001 --link-us 2000 --json
for key in unknown products_ms dispatch_ms act_ms return_ms gather_ms step_ms; do
    grep -q "\"$key\":" "$tmp/out" || fail "explain --json without $key"
done
# number KEY: its first value in the JSON.
number() { sed -n "s/.*\"$1\": *\([-0-9.e+]*\).*/\1/p" "$tmp/out" | head -1; }
rows=$(sed -n '/"step": "dispatch"/,/}/s/.*"rows": *\([0-9.]*\).*/\1/p' "$tmp/out")
awk -v ms="$(number dispatch_ms)" -v rows="$rows" 'BEGIN { exit !((ms - (rows * 544 * 4096 / 2 / 1000 + 4)) ^ 2 < 1) }' ||
    fail "dispatch takes $(number dispatch_ms) ms for $rows rows a token"
# All 8 experts of a rank are read by so many tokens: 8 x 3 x 256 x 128 x 2 bytes at 1000 bytes a millisecond.
awk -v ms="$(number products_ms)" 'BEGIN { exit !((ms - 8 * 3 * 256 * 128 * 2 / 1000) ^ 2 < 1) }' || fail "products take $(number products_ms) ms"
awk -v a="$(number dispatch_ms)" -v b="$(number return_ms)" -v c="$(number products_ms)" -v s="$(number step_ms)" \
    'BEGIN { exit !((a + b + c - s) ^ 2 < 1) }' || fail "the step is not the sum of its parts"
expect 0 "give --limits FILE" "$moxie" explain "$tmp/model" --ranks 2 --link-gb-s 1 --link-us 1
grep -qE "^ +4096 +not known +[0-9.]+ +[0-9.]+ +not known" "$tmp/out" || fail "a time that cannot be known: $(cat "$tmp/out")"
expect 0 "give --link-gb-s and --link-us" "$moxie" explain "$tmp/model" --ranks 2 --limits "$limits"
grep -q "0.001 GB/s, 1 TFLOP/s of bf16 on 7 threads" "$tmp/out" || fail "the limits are not named"
expect 2 "go together" "$moxie" explain "$tmp/model" --ranks 2 --link-us 1
expect 2 "--limits goes with --ranks N" "$moxie" explain "$tmp/model" --limits "$limits"
expect 3 "none" "$moxie" explain "$tmp/model" --ranks 2 --limits "$tmp/none.json"
expect 3 "holds no limits" "$moxie" explain "$tmp/model" --ranks 2 --limits "$tmp/map.json"
# Codes of 256 columns and two scales a row, results of 16 bits, and messages of a fixed capacity.
expect 0 "^dispatch +[0-9]+ " "$moxie" explain "$tmp/shared" --ranks 2 --round-results --exchange-capacity 4
grep -qE "^return +512 " "$tmp/out" || fail "results are not of 16 bits: $(cat "$tmp/out")"
grep -q "room for 4 tokens" "$tmp/out" || fail "explain without the capacity: $(cat "$tmp/out")"
expect 0 "its 50 tokens in chunks: 2 of at most 25 tokens of each rank, as options.exchange_chunk asks; buffers of .* travel while" \
    "$moxie" explain "$tmp/shared" --ranks 2 --tokens 100 --exchange-chunk 30
expect 0 "its 50 tokens in chunks: 1 of at most 50 tokens of each rank; buffers of [0-9]+ MiB$" "$moxie" explain "$tmp/shared" --ranks 2 --tokens 100
expect 2 "--exchange-chunk goes with --ranks N" "$moxie" explain "$tmp/shared" --exchange-chunk 30
# Exchanges and products on two streams: over NCCL alone.
expect 2 "--exchange-streams goes with --ranks N" "$moxie" explain "$tmp/shared" --exchange-streams 2
expect 4 "exchange_streams is 2, but the plan is on the host" "$moxie" explain "$tmp/shared" --ranks 2 --exchange-streams 2
expect 0 "streams over NCCL: 1: exchanges and products take turns; options.exchange_streams 2, which was mostly slower" "$moxie" explain "$tmp/shared" --ranks 2 --device sm_90
expect 0 "streams over NCCL: 2, as options.exchange_streams asks" "$moxie" explain "$tmp/shared" --ranks 2 --device sm_90 --exchange-streams 2
expect 0 '"exchange_streams": 1' "$moxie" explain "$tmp/shared" --ranks 2 --tp 2 --device sm_90 --json
expect 0 '"exchange_streams": 2' "$moxie" explain "$tmp/shared" --ranks 2 --device sm_90 --exchange-streams 2 --json
# Refused as the plan refuses it.
expect 4 "tensor parallel ranks exchange activations between the products" "$moxie" explain "$tmp/shared" --ranks 2 --tp 2 --device sm_90 --exchange-streams 2
synth qwen3-30b-a3b fp8-channel "$tmp/one_scale"
sed 's/"strategy": *"token"/"strategy": "tensor"/' "$tmp/one_scale/config.json" >"$tmp/config.json" && mv "$tmp/config.json" "$tmp/one_scale"
expect 4 "one activation scale between the products" "$moxie" explain "$tmp/one_scale" --ranks 2 --device sm_90 --exchange-streams 2
# Chunks have room in the memory of the GPU that is asked for.
expect 0 "in chunks: 2 of at most 2048 tokens of each rank; buffers of [0-9]+ MiB; .* travel while another is computed .over NCCL" \
    "$moxie" explain --preset qwen3-30b-a3b --format bf16 --tokens 8192 --ranks 2 --device sm_90 --exchange-streams 2

# ---- bench --------------------------------------------------------------------------------------------
expect 0 "ranks / one" "$moxie" bench "$tmp/model" --ranks 2 --tokens 1,16 --repeats 3
grep -qE "^ +16 .* 3$" "$tmp/out" || fail "no line of 16 tokens: $(cat "$tmp/out")"
expect 0 '"kind": "ranks"' "$moxie" bench --preset granite-3.1-1b-a400m --format mxfp4-ct --experts 8 --ranks 4 --tp 2 --tokens 4 --repeats 2 --json
for key in ranks tp ep_map tokens_as comm threads one_rank_threads lines tokens repeats one_rank_ms one_rank_min_ms ranks_ms \
    ranks_min_ms ratio parts products_ms exchange_ms wait_ms sent_bytes phases_ms route permute gather w13 activation w2 \
    combine exchange wait idle; do
    grep -q "\"$key\":" "$tmp/out" || fail "bench --json without $key"
done
# The parts of a step add up to it, none is negative, and ranks send something.
awk -v s="$(number ranks_ms)" -v p="$(number products_ms)" -v e="$(number exchange_ms)" -v w="$(number wait_ms)" \
    -v sent="$(number sent_bytes)" 'BEGIN { exit !(p > 0 && e > 0 && w >= 0 && (p + e + w - s) ^ 2 < 1e-6 * s ^ 2 && sent > 0) }' ||
    fail "the parts are not those of the step: $(cat "$tmp/out")"
# The model of --simulate-ranks beside the same ranks here.
model="--simulate-ranks 1,2 --link-gb-s 10 --link-us 1 --tokens 4 --repeats 2 --threads 1"
if [ "$(nproc)" -ge 2 ]; then
    # shellcheck disable=SC2086 # several words
    expect 0 "checked: the step of 2 ranks with 4 tokens" "$moxie" bench "$tmp/model" $model --ranks 2
fi
# shellcheck disable=SC2086
expect 2 "does not list 3" "$moxie" bench "$tmp/model" $model --ranks 3
# shellcheck disable=SC2086
expect 2 "leave --tp out" "$moxie" bench "$tmp/model" $model --ranks 2 --tp 2
# shellcheck disable=SC2086
expect 2 "leave --comm mpi out" "$moxie" bench "$tmp/model" $model --comm mpi
expect 2 "leave --limits out" "$moxie" bench "$tmp/model" --ranks 2 --limits "$tmp/limits"
expect 2 "leave --plot out" "$moxie" bench "$tmp/model" --ranks 2 --plot "$tmp/x.svg"
# shellcheck disable=SC2086
expect 2 "leave --backend cuda out" "$moxie" bench "$tmp/model" $model --ranks 2 --backend cuda

# ---- what is refused ----------------------------------------------------------------------------------
for option in "--tp 2" "--ep-map linear" "--tokens-as sharded"; do
    # shellcheck disable=SC2086 # two words
    expect 2 "${option%% *} goes with --ranks N" "$moxie" run "$tmp/model" $option
done
expect 2 "--ranks 3 is no multiple of --tp 2" "$moxie" run "$tmp/model" --ranks 3 --tp 2
expect 2 "--ranks takes a whole number from 1 to 1024" "$moxie" run "$tmp/model" --ranks 0
expect 2 "did you mean round_robin" "$moxie" run "$tmp/model" --ranks 2 --ep-map roundrobin
expect 2 "wrote, not .*none.json.*is not there" "$moxie" explain "$tmp/model" --ranks 2 --ep-map "$tmp/none.json"
expect 3 "map is of 2 ranks, and 3 are asked for" "$moxie" run "$tmp/model" --ranks 3 --ep-map "$tmp/map.json"
expect 3 "map is of 16 experts" "$moxie" run --preset granite-3.1-1b-a400m --format mxfp4-ct --ranks 2 --ep-map "$tmp/map.json"
echo '[[0,1,2],[0,1,2],[2,1,0]]' >"$tmp/three.json"
expect 3 "maps of 3 layers|experts" "$moxie" run "$tmp/model" --ranks 2 --ep-map "$tmp/three.json"
expect 2 "leave --b out" "$moxie" diff "$tmp/model" --ranks 2 --b ref
expect 2 "is for running" "$moxie" diff "$tmp/model" --ranks 2 --against "$tmp/shared"
expect 4 "rank 0: " "$moxie" run "$tmp/model" --ranks 2 --backend cuda
expect 2 "mpirun" "$moxie" run "$tmp/model" --comm mpi
expect 3 "no such directory" "$moxie" run "$tmp/none" --ranks 2

# ---- processes ----------------------------------------------------------------------------------------
if command -v mpirun.openmpi >/dev/null && [ -e "$build/libmoxie_openmpi.so" ] &&
    ! grep -q "MOXIE_SANITIZE:STRING=thread" "$build/CMakeCache.txt"; then # MPI libraries are not built for TSan
    export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"              # and they leak
    # As in tests/comm/mpi_lib.sh: a container, root, fewer processors than ranks.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
    mpi() { TMPDIR=$tmp timeout -k 2 100 mpirun.openmpi --oversubscribe --bind-to none "$@"; }
    rm -f "$tmp/ranks.safetensors"
    expect 0 "2 ranks, --tp 1" mpi -n 2 "$moxie" run "$tmp/model" --tokens 21 --comm mpi -o "$tmp/ranks.safetensors"
    cmp "$tmp/one.safetensors" "$tmp/ranks.safetensors" || fail "other bytes under mpirun"
    for rank in 0 1; do
        expect 0 "2 layers prepared" "$moxie" prepare "$tmp/model" --layout moxie-cpu --tp $rank/2 -o "$tmp/share-$rank"
    done
    expect 0 "output rms" mpi -n 2 "$moxie" run "$tmp/share-0" "$tmp/share-1" --tp 2 --tokens 21 --comm mpi -o "$tmp/shares.safetensors"
    cmp "$tmp/one.safetensors" "$tmp/shares.safetensors" || fail "other bytes of expert files of shares under mpirun"
    [ "$(grep -c "^routing" "$tmp/out")" = 1 ] || fail "more than one rank printed"
    expect 0 "2 ranks, --tp 2.* 1 thread each, over MPI" mpi -n 2 "$moxie" bench "$tmp/model" --comm mpi --tp 2 --threads 1 --tokens 2,16 --repeats 3
    [ "$(grep -c "^tokens: " "$tmp/out")" = 1 ] || fail "not one rank printed the bench: $(cat "$tmp/out")"
    grep -qE "^ +16 .* 3$" "$tmp/out" || fail "no line of 16 tokens over MPI: $(cat "$tmp/out")"
    expect 3 "no such directory" mpi -n 2 "$moxie" bench "$tmp/none" --comm mpi
    expect 2 "mpirun started 2 processes, and --ranks 3" mpi -n 2 "$moxie" run "$tmp/model" --comm mpi --ranks 3
else
    echo "no run under mpirun: mpirun.openmpi or libmoxie_openmpi.so is missing, or TSan is there"
fi
finish
