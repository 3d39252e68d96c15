#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moxie bench: every key of its JSON, routings, files of ids and of limits, what it rejects; moxie info --measure.
# Layers are small and runs few: times are not judged, only that they fit together.
. "$(dirname "$0")/cli_lib.sh"
limits=$tmp/limits.json
small="--preset granite-3.1-1b-a400m --format mxfp4-ct --experts 8"
# Restores the limits: runs that beat them change the file.
bench() {
    cp "$tmp/kept" "$limits"
    "$moxie" bench "$@" --limits "$limits" --repeats 2
}

expect 0 "Usage: moxie bench" "$moxie" bench --help
expect 2 "one layer is needed" "$moxie" bench
expect 2 "a directory and --preset exclude each other" "$moxie" bench "$tmp" --preset gpt-oss-20b
expect 2 "experts goes with --preset" "$moxie" bench "$tmp" --experts 8
expect 2 "goes with a directory" "$moxie" bench --preset gpt-oss-20b --layer 0
expect 2 "whole number from 1" "$moxie" bench --preset gpt-oss-20b --tokens 1,,8
expect 2 "FILE.svg or FILE.png" "$moxie" bench --preset gpt-oss-20b --plot x.pdf
expect 2 "no preset \"gpt-5\"" "$moxie" bench --preset gpt-5
expect 2 "top_k is 8" "$moxie" bench --preset granite-3.1-1b-a400m --experts 4
# shellcheck disable=SC2086 # $small is several words
{
expect 2 "sse9" "$moxie" bench $small --isa sse9
expect 4 "libmoxie_cuda" "$moxie" bench $small --backend cuda
expect 2 "adapter-rank goes with --adapters" "$moxie" bench $small --adapter-rank 4
expect 2 "timed on one rank: leave --ranks out" "$moxie" bench $small --adapters 2 --ranks 2
expect 2 "phases are of one rank: leave --ranks out" "$moxie" bench $small --phases --ranks 2
expect 2 "a list is for one rank" "$moxie" bench $small --threads 1,2 --ranks 2
expect 2 "which only bench takes" "$moxie" run "$tmp" --threads 1,2
expect 2 "auto, off, interleave or node=NUMBER, not both" "$moxie" bench $small --numa both
expect 2 "numa" "$moxie" bench $small --numa node=x
expect 2 "a GPU has none" "$moxie" bench $small --phases --backend cuda
expect 3 "uniform, zipf, one-hot, skewed, or a file" "$moxie" bench $small --routing "$tmp/none"

# Limits: measured and written once, then read.
expect 0 "read memory +[0-9.]+ +GB/s" "$moxie" info --limits "$limits"
# Small caches, so that few copies of the small layers do.
sed -i 's/"cache_bytes": [0-9]*/"cache_bytes": 4000000/' "$limits"
cp "$limits" "$tmp/kept"
expect 0 '"read_gb_s": [0-9.]+' "$moxie" info --limits "$limits" --json
cmp "$limits" "$tmp/kept" || fail "limits that fit were measured again"
expect 0 "measured anew" "$moxie" info --limits "$limits" --threads 1
cmp -s "$limits" "$tmp/kept" && fail "limits of another thread count were kept"
cp "$tmp/kept" "$limits"
echo '{"limits": {}}' >"$tmp/other"
expect 3 "other: .*holds no limits.*remove" "$moxie" bench $small --limits "$tmp/other"
echo 'text' >"$tmp/other"
expect 3 "other: byte [0-9]+: .*remove" "$moxie" bench $small --limits "$tmp/other"
[ "$(cat "$tmp/other")" = text ] || fail "a file that holds no limits was overwritten"
sed 's/"f32_tflop_s": [0-9][0-9.]*/"f32_tflop_s": -1/' "$tmp/kept" >"$tmp/other"
expect 3 "not positive" "$moxie" bench $small --limits "$tmp/other"
expect 3 "no/dir/limits: cannot be written" "$moxie" info --limits "$tmp/no/dir/limits"

# Every key, and rows in the order asked for ("limits_raised" names batch sizes, too). 8 experts, all chosen: 2 x 3 x 1024 x 512 x 8 operations a token.
expect 0 '"command": "bench"' bench $small --tokens 2,1 --json
grep -q '"limits_from_file": true' "$tmp/out" || fail "bench measured limits that the file had"
for key in preset scheme backend isa threads mode tokens routing median_ms min_ms max_ms floor_ms ratio weight_bytes \
    flop plan read_gb_s bf16_tflop_s copy_gb_s l2_read_gb_s f32_tflop_s int8_top_s experts_touched gb_s gflop_s \
    copies rows steps limits schema_version preempted_runs output_rms reuse_bytes limits_raised warning disturbed \
    quiet_median_ms; do
    grep -q "\"$key\":" "$tmp/out" || fail "no key $key in bench --json"
done
sed -n '/"rows": \[/,$p' "$tmp/out" >"$tmp/rows"
[ "$(grep '"tokens":' "$tmp/rows" | tr -dc '0-9\n' | tr '\n' ' ')" = "2 1 " ] || fail "rows are not those of --tokens 2,1"
[ "$(grep '"flop":' "$tmp/out" | tr -dc '0-9\n' | tr '\n' ' ')" = "50331648 25165824 " ] ||
    fail "one token is not 25165824 operations, or two are not twice as many"
grep -q '"weight_bytes": 6684672' "$tmp/out" || fail "8 experts are not 6684672 bytes"
grep -q '"output_rms": [0-9]' "$tmp/out" || fail "the output is not finite"
grep -q '"scheme": "mxfp4-ct"' "$tmp/out" || fail "the scheme is not the one asked for"
awk -F'[:,]' '/"median_ms"/ { m = $2 } /"min_ms"/ { low = $2 } /"max_ms"/ { high = $2 } /"floor_ms"/ { f = $2 }
    /"ratio"/ { r = $2; if (low > m || m > high || f <= 0 || r < 0.999 * m / f || r > 1.001 * m / f) bad = 1; n++ }
    END { exit bad || n != 2 }' "$tmp/out" || fail "times, floor and ratio do not fit together: $(cat "$tmp/out")"

# A limit that the runs beat is replaced by what they reached, in the figures and in the file; others stay.
with_limits() { # READ BF16
    sed -e 's/"read_gb_s": [0-9][0-9.]*/"read_gb_s": '"$1"'/' -e 's/"bf16_tflop_s": [0-9][0-9.]*/"bf16_tflop_s": '"$2"'/' "$tmp/kept" >"$limits"
}
figure() { # of the file's limits
    sed -n 's/.*"'"$1"'": *\([0-9.e-]*\),*$/\1/p' "$limits" | head -1
}
with_limits 0.001 1000
expect 0 "T = 2: its runs reached [0-9.]+ GB/s, more than the limit of 0.001: the larger one counts" \
    "$moxie" bench $small --tokens 2 --repeats 2 --limits "$limits"
grep -q "it is now in .*limits.json" "$tmp/out" || fail "nothing is said about the file"
awk -v read="$(figure read_gb_s)" 'BEGIN { exit !(read > 0.002) }' || fail "the file kept a limit that was beaten: $(figure read_gb_s)"
grep -q '"read_gb_s": "a run of moxie bench"' "$limits" || fail "the file does not say where the limit comes from"
with_limits 1000000 0.0000001
expect 0 '"limit": "bf16_tflop_s"' "$moxie" bench $small --tokens 2 --repeats 2 --limits "$limits" --json
awk -v flop="$(figure bf16_tflop_s)" 'BEGIN { exit !(flop > 0.000001) }' || fail "the file kept a limit that was beaten: $(figure bf16_tflop_s)"
awk -F'[:,]' '/"ratio"/ { exit !($2 > 0.99 && $2 < 1.01) }' "$tmp/out" || fail "the line was not compared with the larger limit"
# Fast mode may multiply narrower numbers: that says nothing about bf16.
with_limits 1000000 0.0000001
cp "$limits" "$tmp/other"
expect 0 "faster than the floor, which counts operations on narrower" "$moxie" bench $small --tokens 2 --repeats 2 --limits "$limits" --mode fast
cmp "$limits" "$tmp/other" || fail "a run in fast mode raised a bf16 limit"
with_limits 1000000 1000000
cp "$limits" "$tmp/other"
expect 0 '"limits_raised": ..,' "$moxie" bench $small --tokens 2 --repeats 2 --limits "$limits" --json
cmp "$limits" "$tmp/other" || fail "limits that no run beat were written again"
# Operations on int8 activations count by the int8 rate, where that is the larger one.
int8="--preset granite-3.1-1b-a400m --format int8-w8a8 --experts 8 --tokens 2 --repeats 2"
with_int8() { # INT8
    with_limits 1000000 0.0000001
    sed -i 's/"int8_top_s": [0-9][0-9.]*/"int8_top_s": '"$1"'/' "$limits"
}
with_int8 0.0000002
expect 0 '"limit": "int8_top_s"' "$moxie" bench $int8 --limits "$limits" --json
grep -q '"floor_by": "int8"' "$tmp/out" || fail "the floor of int8 activations is not by the int8 rate"
awk -v rate="$(figure int8_top_s)" 'BEGIN { exit !(rate > 0.000001) }' || fail "the file kept an int8 limit that was beaten: $(figure int8_top_s)"
with_int8 0.00000005
expect 0 '"floor_by": "bf16"' "$moxie" bench $int8 --limits "$limits" --json
with_int8 0.0000002
expect 0 '"limit": "bf16_tflop_s"' "$moxie" bench $small --tokens 2 --repeats 2 --limits "$limits" --json

# More threads than processors measure no more than the machine has, and are worth a warning.
if ! [ -e "$1/emulated" ]; then
    more=yes
    for try in 1 2 3 4 5; do # another program may have had the machine during the first measurement
        expect 0 read_gb_s "$moxie" info --measure --json
        cp "$tmp/out" "$tmp/usual.json"
        expect 0 "warning: 64 threads were asked for" "$moxie" info --measure --threads 64 --json
        awk -F'[:,]' '/"(read_gb_s|l2_read_gb_s|f32_tflop_s)": [0-9]/ { if (FNR == NR) usual[$1] = $2; else if ($2 > 5 * usual[$1]) bad = 1 }
        END { exit bad }' "$tmp/usual.json" "$tmp/out" && more="" && break
    done
    [ -z "$more" ] || fail "64 threads found more than there is, try $try: $(cat "$tmp/usual.json" "$tmp/out" | grep '_s": [0-9]')"
fi

# A token's ten experts of 2 x 3 x 2048 x 512 operations, with and without one that all tokens have.
shared="--preset qwen3-next-80b --format bf16 --experts 10 --tokens 1 --json"
expect 0 '"flop": 69206016' bench $shared
expect 0 '"flop": 62914560' bench $shared --no-shared
expect 2 "no shared expert" bench $small --no-shared
expect 2 "no-shared goes with --preset" "$moxie" bench "$tmp" --no-shared

# Phases: one worker's add up to the time of its runs, within what is outside the runs; none without the option.
! grep -q phases_ms "$tmp/out" || fail "phases that nobody asked for"
expect 0 '"phases_ms": ' "$moxie" bench $small --tokens 64 --repeats 5 --isa scalar --threads 1 --limits "$limits" --phases --json
for phase in route permute gather w13 activation w2 combine exchange wait idle dispatch return; do
    grep -q "\"$phase\": {" "$tmp/out" || fail "no phase $phase"
done
awk -F'[:,]' '/"phases_ms"/ { on = 1 } on && /"median"/ { sum += $2 } on && /"(w13|w2)"/ { product = 1 }
    /"min_ms"/ { low = $2 } /"max_ms"/ { high = $2 } /"exchange"/ { sent = 1 } sent && on && /"max"/ { if ($2 != 0) bad = 1; sent = 0 }
    END { exit bad || !product || sum < 0.9 * low || sum > 1.1 * high }' "$tmp/out" || fail "phases do not add up: $(cat "$tmp/out")"
expect 0 "64 +w13 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+" "$moxie" bench $small --tokens 64 --repeats 2 --limits "$limits" --phases

# A list of threads: the first one's speedup is 1, and each batch size has a row for each.
expect 0 '"speedup": 1.0' "$moxie" bench $small --tokens 1,8 --repeats 2 --threads 1,2 --limits "$limits" --json
[ "$(sed -n '/"scaling"/,$p' "$tmp/out" | grep -c '"speedup"')" = 4 ] || fail "not two rows for each of two batch sizes"
awk -F'[:,]' '/"speedup"/ { s = $2 } /"efficiency"/ { n++; e = $2; d = s / e; if (d < 0.99 || (d > 1.01 && d < 1.99) || d > 2.01) bad = 1 } END { exit bad || n != 4 }' "$tmp/out" ||
    fail "efficiencies are not speedups by thread: $(grep -A1 speedup "$tmp/out")"
expect 0 "8 +2 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+" "$moxie" bench $small --tokens 1,8 --repeats 2 --threads 1,2 --limits "$limits" --numa off

# Options reach the plan; routing by name and from files.
expect 0 '"isa": "scalar"' "$moxie" bench $small --tokens 1 --repeats 1 --isa scalar --threads 1 --json
expect 0 "ref, .*exact, routing one-hot" bench $small --tokens 1 --backend ref --routing one-hot
expect 0 "routing zipf" bench $small --tokens 3 --routing zipf --seed 7
# 64 tokens with 8 of 64 experts each: a mean of 8, so 48 for the one that has six times that. With 8 experts it has all.
expect 0 '"routing": "skewed"' bench --preset granite-3.1-1b-a400m --format mxfp4-ct --experts 64 --tokens 64 --routing skewed --json
grep -qE '"fullest_expert": (4[789]|48\.[0-9]+|47\.[0-9]+)' "$tmp/out" || fail "not 48 of 64 tokens at one expert: $(grep fullest "$tmp/out")"
expect 0 '"fullest_expert": 5.0' bench $small --tokens 5 --routing skewed --json
printf '0 1 2 3 4 5 6 7\n7 6 5 4 3 2 1 -1\n\n1 1 1 1 1 1 1 1\n' >"$tmp/ids"
expect 0 '"tokens": 3' bench $small --routing "$tmp/ids" --json
expect 0 '"experts_touched": 8' bench $small --routing "$tmp/ids" --tokens 2 --json
expect 3 "4 tokens were asked for, but it routes 3" bench $small --routing "$tmp/ids" --tokens 4
bad_ids() {
    printf "$1" >"$tmp/ids"
    expect 3 "ids: $2" bench $small --routing "$tmp/ids"
}
bad_ids '' "it holds 0 numbers"
bad_ids '1 2 3' "it holds 3 numbers; .* multiple of 8"
bad_ids '0 1 2 3\n4 five 6 7\n' 'byte 10: line 2: "five" is no expert number'
bad_ids '0 1 2 3 4 5 6 8' "byte 14: token 0, choice 7 is expert 8, but the layer has 8 experts"
bad_ids '0 1 2 3 4 5 6 7.5' 'byte 14: line 1: "7.5"'
}

# A checkpoint; a run's output holds topk_ids.
synth granite-3.1-1b-a400m mxfp4-ct "$tmp/model"
expect 0 '"preset": null' bench "$tmp/model" --layer 0 --tokens 2 --json
grep -q '"scheme": "mxfp4-ct"' "$tmp/out" || fail "the scheme is not the checkpoint's"
expect 0 "output rms" "$moxie" run "$tmp/model" --tokens 5 -o "$tmp/run.safetensors"
expect 0 '"tokens": 5' bench "$tmp/model" --routing "$tmp/run.safetensors" --json
expect 3 "topk_ids" bench "$tmp/model" --routing "$tmp/model/model.safetensors"
expect 3 "nowhere" bench "$tmp/nowhere"

# Info: what was there before, and what is new.
expect 0 '"isa_allowed": "scalar"' env MOXIE_MAX_ISA=scalar "$moxie" info --json
for key in cpu processors isa_found features cuda kernels runnable amx isa_cap features_allowed features_capped families \
    capped here limits; do
    grep -q "\"$key\":" "$tmp/out" || fail "no key $key in info --json"
done
! grep -q '"isa_found": "a' "$tmp/out" ||
    sed -n '/"features_capped"/,/]/p' "$tmp/out" | grep -q avx2 || fail "MOXIE_MAX_ISA=scalar did not cap avx2"

# A whole picture, or no file at all. A path without gnuplot still needs the emulator, if there is one, and what starts it.
mkdir "$tmp/bin"
for program in env qemu-x86_64 qemu-aarch64; do
    ! command -v "$program" >/dev/null || ln -s "$(command -v "$program")" "$tmp/bin/$program"
done
# shellcheck disable=SC2086
expect 4 "gnuplot-nox" env PATH="$tmp/bin" "$moxie" bench $small --tokens 1 --plot "$tmp/plot.svg"
printf '#!/bin/sh\n[ "$1" = --version ]\n' >"$tmp/bin/gnuplot"
chmod +x "$tmp/bin/gnuplot"
# shellcheck disable=SC2086
expect 4 "gnuplot failed .exit code 1" env PATH="$tmp/bin:$PATH" "$moxie" bench $small --tokens 1 --repeats 1 \
    --limits "$limits" --plot "$tmp/plot.svg"
# shellcheck disable=SC2012
[ "$(ls "$tmp" | grep -c plot)" = 0 ] || fail "without gnuplot something was written"
# Nothing is measured before gnuplot is found, not even limits.
rm "$tmp/bin/gnuplot"
# shellcheck disable=SC2086
expect 4 "gnuplot, which was not found.*apt-get install gnuplot-nox" env PATH="$tmp/bin" "$moxie" bench $small --tokens 1 \
    --limits "$tmp/unmeasured" --plot "$tmp/plot.svg"
[ ! -e "$tmp/unmeasured" ] || fail "limits were measured before gnuplot was found to be missing"
# What gnuplot is told. Two threads that share a processor with a busy one are disturbed in runs of this length.
printf '#!/bin/sh\n[ "$1" = --version ] || { cat >"$PLOT_SCRIPT"; echo picture; }\n' >"$tmp/bin/gnuplot"
chmod +x "$tmp/bin/gnuplot"
PLOT_SCRIPT=$tmp/script
export PLOT_SCRIPT
if command -v taskset >/dev/null; then
    cpu=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')
    taskset -c "$cpu" sh -c 'while :; do :; done' &
    busy=$!
    # shellcheck disable=SC2086
    expect 0 "other work took a processor away in [1-9] of 3 runs" taskset -c "$cpu" env PATH="$tmp/bin:$PATH" "$moxie" bench $small \
        --tokens 128 --isa scalar --threads 1 --repeats 3 --limits "$limits" --plot "$tmp/busy.svg"
    kill "$busy"
    grep -q "hollow: other work took" "$PLOT_SCRIPT" || fail "the picture hides that runs were disturbed: $(cat "$PLOT_SCRIPT")"
    grep -qE '"[1-3] of 3 runs disturbed"' "$PLOT_SCRIPT" || fail "the picture does not say how many runs were disturbed"
    median=$(awk '$1 == 128 { print $2 }' "$tmp/out")
    grep -q "\"$median ms, " "$PLOT_SCRIPT" || fail "the picture's median is not $median ms: $(grep ' ms' "$PLOT_SCRIPT")"
    grep -qE "^ +128 +[0-9.]+ +[0-9.]+ +[0-9.]+ +3 +[1-3] " "$tmp/out" || fail "no count of disturbed runs in the table: $(cat "$tmp/out")"
fi
unset PLOT_SCRIPT
rm "$tmp/bin/gnuplot"
if ! command -v gnuplot >/dev/null; then
    [ "$failures" = 0 ] || finish
    echo "skipped: gnuplot is not installed, so no picture was drawn"
    exit 77
fi
# shellcheck disable=SC2086
expect 0 "drawn in" bench $small --tokens 1,4 --plot "$tmp/plot.svg"
grep -q "T = 4" "$tmp/plot.svg" || fail "the picture has no point for 4 tokens"
grep -q "</svg>" "$tmp/plot.svg" || fail "the picture is not whole"
# shellcheck disable=SC2086
expect 0 "drawn in" bench $small --tokens 1 --plot "$tmp/plot.png"
[ "$(head -c 4 "$tmp/plot.png" | tail -c 3)" = PNG ] || fail "the picture is no PNG"
# shellcheck disable=SC2086
expect 3 "no/plot.png: cannot be written" bench $small --tokens 1 --plot "$tmp/no/plot.png"
mkdir "$tmp/plot.dir.png"
# shellcheck disable=SC2086
expect 3 "cannot be written: Is a directory" bench $small --tokens 1 --plot "$tmp/plot.dir.png"
rmdir "$tmp/plot.dir.png"
# shellcheck disable=SC2012
[ "$(ls "$tmp" | grep -c plot)" = 2 ] || fail "other files than the pictures were left: $(ls "$tmp")"
finish
