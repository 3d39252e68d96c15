#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --numa on made-up machines (libhwloc's HWLOC_SYNTHETIC), where nothing is pinned or bound: what info says, that no bit of a
# result depends on it, on one rank and on several, and what is refused.
. "$(dirname "$0")/cli_lib.sh"
synth granite-3.1-1b-a400m mxfp4-ct "$tmp/model"

expect 0 '"topology"' "$moxie" info --json
expect 0 "^cores  " "$moxie" info
expect 2 "auto, off, interleave or node=NUMBER, not both" "$moxie" run "$tmp/model" --numa both
expect 2 "numa" "$moxie" run "$tmp/model" --numa node=-1

# A machine that is not made up after all: the affinity mask counts. (hwloc cannot read this file, and reads the system.)
if command -v taskset >/dev/null; then
    cpu=$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')
    expect 0 "^cores +1 core on 1 node of memory" env HWLOC_XMLFILE=/nonexistent taskset -c "$cpu" "$moxie" info
fi

export HWLOC_SYNTHETIC="numa:2 core:2 pu:2"
"$moxie" info | grep -q "^cores .*(hwloc)" || { echo "skipped: libhwloc is not found, or its header was not there"; exit 77; }
expect 0 "^cores +4 cores on 2 nodes of memory, 4 of them with several hyperthreads .hwloc.; .*--threads 4 gives one a core" "$moxie" info
run() { "$moxie" run "$tmp/model" --tokens 9 "$@" >/dev/null; }
run --numa off --threads 1 -o "$tmp/want.safetensors" 2>"$tmp/err" || fail "run fails: $(cat "$tmp/err")"
for numa in auto off interleave node=0 node=1; do
    run --numa $numa --threads 3 -o "$tmp/got.safetensors" 2>"$tmp/err" || fail "run fails: $(cat "$tmp/err")"
    cmp "$tmp/want.safetensors" "$tmp/got.safetensors" || fail "--numa $numa gives other bytes"
done
run --ranks 2 --threads 4 -o "$tmp/got.safetensors" 2>"$tmp/err" || fail "run fails: $(cat "$tmp/err")"
cmp "$tmp/want.safetensors" "$tmp/got.safetensors" || fail "two ranks on two nodes give other bytes"
grep -q "note:" "$tmp/err" && fail "a note though each rank has a node"
# Where ranks get no node each, that is said; what numa off gives is not.
noted() { "$@" >/dev/null 2>"$tmp/err" || fail "$* fails: $(cat "$tmp/err")"; grep -q "note: --numa auto leaves the threads of . ranks where the system puts them: $want" "$tmp/err"; }
want="there is no node of memory for each"
noted run --ranks 3 --threads 3 -o "$tmp/got.safetensors" || fail "no note for three ranks on two nodes"
cmp "$tmp/want.safetensors" "$tmp/got.safetensors" || fail "three ranks on two nodes give other bytes"
[ "$(grep -c note: "$tmp/err")" = 1 ] || fail "a note for each rank"
want="a node has too few processors"
noted run --ranks 2 --threads 10 -o "$tmp/got.safetensors" || fail "no note for five threads on four processors"
noted run --ranks 3 --threads 3 --numa off -o "$tmp/got.safetensors" && fail "a note with --numa off"
expect 4 "auto, which gives each rank a node, or off" run --ranks 2 --threads 4 --numa interleave -o "$tmp/got.safetensors"
expect 2 "may use no processor of a node 2; it may use 2 nodes, the first is 0" run --numa node=2
expect 2 "5 pinned threads was asked for, and this process may use 4" run --numa node=1 --threads 5
finish
