#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moxie bench --simulate-ranks: counts and link times of routings that can be counted by hand, sums of steps, keys of the
# JSON, what it rejects. Times of products are not judged.
. "$(dirname "$0")/cli_lib.sh"
limits=$tmp/limits.json
small="--preset granite-3.1-1b-a400m --format mxfp4-ct"
expect 0 read_gb_s "$moxie" info --limits "$limits" --json
# Small caches, so that few copies of the layer do.
sed -i 's/"cache_bytes": [0-9]*/"cache_bytes": 4000000/' "$limits"
cp "$limits" "$tmp/kept"
# shellcheck disable=SC2086 # $small is several words, here and below
simulate() {
    cp "$tmp/kept" "$limits"
    "$moxie" bench $small --limits "$limits" --repeats 2 "$@"
}
# The value of a key in row N; is KEY N VALUE: it is that, up to a thousandth.
value() { sed -n '/"rows": \[/,/"measured_products"/p' "$tmp/out" | awk -v key="\"$1\":" -v n="$2" '
    /"eplb": {/ { inside = 1 }
    !inside && $1 == key && ++found == n { sub(/,$/, "", $2); print $2 }
    inside && /}/ { inside = 0 }'; }
eplb() { sed -n '/"rows": \[/,/"measured_products"/p' "$tmp/out" | sed -n '/"eplb": {/,/}/p' |
    awk -v key="\"$1\":" -v n="$2" '$1 == key && ++found == n { sub(/,$/, "", $2); print $2 }'; }
close() {
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && (a - b) ^ 2 <= 1e-6 * b ^ 2 + 1e-18) }' ||
        fail "$3 is \"$1\", not $2"
}
is() { close "$(value "$1" "$2")" "$3" "$1 of row $2"; }

# ---- arguments ---------------------------------------------------------------------------------------
link="--link-gb-s 0.001 --link-us 1000"
expect 2 "needs --link-gb-s and --link-us" "$moxie" bench $small --simulate-ranks 4
expect 2 "go with --simulate-ranks" "$moxie" bench $small --link-us 1
expect 2 "go with --simulate-ranks" "$moxie" bench $small --link-us 1
expect 2 "does not go with --simulate-ranks" "$moxie" bench $small --simulate-ranks 4 $link --plot "$tmp/x.svg"
expect 2 "at most 1024 ranks" "$moxie" bench $small --simulate-ranks 8,2000 $link
expect 2 "must not be above the second" "$moxie" bench $small --simulate-ranks 8..4 $link
expect 2 "number above 0" "$moxie" bench $small --simulate-ranks 4 --link-gb-s 0 --link-us 1
expect 2 "number of 0 or more, not \"fast\"" "$moxie" bench $small --simulate-ranks 4 --link-gb-s 1 --link-us fast
expect 3 "none" "$moxie" bench $small --simulate-ranks 4 $link --trace "$tmp/none"

# ---- counted by hand ---------------------------------------------------------------------------------
# All 8 experts are chosen by every token: each of 4 ranks has 2 experts, its 2 tokens and 6 of others: 16 choices. A rank
# sends its 2 rows to 3 others: 6 rows of 1024 x 2 + 8 x 4 = 2080 bytes and 3 x 32 of counts, at 1000 bytes a millisecond,
# and 3 + 3 messages of 1 ms. Back come 6 tokens x 2 choices of 4096 bytes in 3 messages.
expect 0 '"kind": "simulated_ranks"' simulate --experts 8 --simulate-ranks 1,4 --tokens 2 $link --json
is ranks 1 1
is choices_max 1 16
is dispatch_ms 1 0
is return_ms 1 0
is ranks 2 4
is tokens_per_rank 2 2
is experts_per_rank 2 2
is choices_mean 2 16
is choices_max 2 16
is dispatch_rows_max 2 6
is return_rows_max 2 12
is dispatch_ms 2 18.576
is return_ms 2 52.152
is step_ms 2 "$(awk -v a="$(value dispatch_ms 2)" -v b="$(value products_ms 2)" -v c="$(value return_ms 2)" 'BEGIN { print a + b + c }')"
is efficiency 1 1
is efficiency 2 "$(awk -v a="$(value step_ms 1)" -v b="$(value step_ms 2)" 'BEGIN { print a / b }')"
is tokens_per_s 2 "$(awk -v a="$(value step_ms 2)" 'BEGIN { print 8000 / a }')"
is eplb_gain 2 "$(awk -v a="$(value step_ms 2)" -v b="$(eplb step_ms 2)" 'BEGIN { print a / b - 1 }')"
for key in model link_gb_s link_us eplb_history_tokens extrapolated measured_products measured_shared quiet_median_ms \
    shared_ms measured_step_ms error schema_version plan routing scheme cpu seed; do
    grep -q "\"$key\":" "$tmp/out" || fail "no key $key"
done
# One rank is this machine: the model's time and a run of the whole layer.
awk -v a="$(value step_ms 1)" -v b="$(value measured_step_ms 1)" -v e="$(value error 1)" \
    'BEGIN { exit !(b > 0 && (a / b - 1 - e) ^ 2 < 1e-6) }' || fail "one rank was not run: $(value measured_step_ms 1)"
[ "$(value measured_step_ms 2)" = null ] || fail "four ranks were run"

# A trace whose tokens all choose experts 0 to 7 of 64: rank 0 of 8 has all 8 x 8 choices. EPLB knows that and spreads
# them: 8 a rank. Ranks without experts: 64 experts on 128.
for _ in 1 2 3; do echo 0 1 2 3 4 5 6 7; done >"$tmp/trace"
expect 0 simulated simulate --experts 64 --simulate-ranks 8,128 --tokens 1 --link-gb-s 1 --link-us 0 --trace "$tmp/trace" --json
is choices_mean 1 8
is choices_max 1 64
is return_rows_max 1 56
is dispatch_rows_max 1 7
close "$(eplb choices_max 1)" 8 "choices with EPLB"
close "$(eplb experts_per_rank 1)" 9 "experts a rank with EPLB"
is experts_per_rank 2 1
is choices_max 2 128
grep -q '"eplb_history_tokens": 3' "$tmp/out" || fail "the trace's tokens were not all counted"
grep -q '"routing": ".*trace"' "$tmp/out" || fail "the trace is not named"

# A run's output is a trace, too; one that is shorter than a rank's tokens is refused.
"$moxie" run $small --experts 64 --tokens 20 -o "$tmp/run.safetensors" >/dev/null
expect 0 '"eplb_history_tokens": 20' simulate --experts 64 --simulate-ranks 4 --tokens 16 $link --trace "$tmp/run.safetensors" --json
expect 3 "32 tokens were asked for" simulate --experts 64 --simulate-ranks 4 --tokens 32 $link --trace "$tmp/run.safetensors"

# ---- the same counts again, a table, a shared expert, a directory ---------------------------------------
expect 0 simulated simulate --experts 64 --simulate-ranks 4..16 --tokens 8 $link --routing zipf --json
grep -E '"(choices|dispatch|return|rank)' "$tmp/out" >"$tmp/one"
expect 0 simulated simulate --experts 64 --simulate-ranks 4..16 --tokens 8 $link --routing zipf --json
grep -E '"(choices|dispatch|return|rank)' "$tmp/out" | cmp - "$tmp/one" || fail "two simulations count differently"
[ "$(grep -c '"ranks":' "$tmp/out")" = 3 ] || fail "4..16 is not 4, 8, 16"
awk -v a="$(value choices_max 3)" -v b="$(value choices_mean 3)" 'BEGIN { exit !(a > 1.2 * b) }' || fail "zipf loads all ranks alike"
expect 0 "a model: products and the shared expert were measured on this machine" simulate --experts 64 --simulate-ranks 4 $link
grep -qE "^ +4 +64 +512.0 " "$tmp/out" || fail "no row of 4 ranks with 64 tokens: $(cat "$tmp/out")"
grep -q "EPLB: one slot more on each rank, placed by the loads of 16384 tokens" "$tmp/out" || fail "nothing says what EPLB knew"
small="--preset qwen3-next-80b --format fp8-block"
expect 0 simulated simulate --experts 16 --simulate-ranks 4 --tokens 2,4 $link --json
awk -v a="$(value shared_ms 2)" 'BEGIN { exit !(a > 0) }' || fail "the shared expert takes no time"
synth granite-3.1-1b-a400m mxfp4-ct "$tmp/model"
small=$tmp/model
expect 0 simulated simulate --simulate-ranks 4 --tokens 2 $link --json
is experts_per_rank 1 4
finish
