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
expect 4 "auto, which gives each rank a node, or off" run --ranks 2 --threads 4 --numa interleave -o "$tmp/got.safetensors"
expect 2 "may use no processor of a node 2; it may use 2 nodes, the first is 0" run --numa node=2
expect 2 "5 pinned threads was asked for, and this process may use 4" run --numa node=1 --threads 5
finish
