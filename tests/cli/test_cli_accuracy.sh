#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts/accuracy: a line for every kernel that this machine runs, and for those of a GPU, whose launch table is in plain C.
. "$(dirname "$0")/cli_lib.sh"
export MOXIE_SYNTH_SIZES="--hidden 128 --intermediate 64"
accuracy=$(dirname "$0")/../../scripts/accuracy
case "$moxie" in /*) ;; *) moxie=$PWD/$moxie ;; esac

expect 2 "scripts/accuracy FOLDER" "$accuracy"
expect 0 "^0 wrong" "$accuracy" "$1" cpu
grep -qE "^\| scalar_any \| EXACT \| MXFP4 x bf16 \| exact \| [0-9.e-]+, [0-9.e-]+ \|" "$tmp/out" ||
    fail "no line of scalar_any and MXFP4: $(cat "$tmp/out")"
grep -q "^| scalar_int | EXACT | int8 x int8 |" "$tmp/out" || fail "no line of scalar_int"
# Errors are below bounds, and none is zero by mistake.
awk -F'[|,]' '/EXACT/ { n++; if (!($6 > 0 && $6 < $8 && $7 > 0 && $7 < $9 && $10 < 1 && $11 < 1)) exit 1 } END { exit n < 7 }' \
    "$tmp/out" || fail "errors and bounds do not fit together: $(cat "$tmp/out")"
plain=$1/tests/libmoxie_cuda_plain.so
if [ -e "$plain" ]; then
    expect 0 "sm80_w8a8_int8 . EXACT . int8 x int8" env MOXIE_CUDA_LIBRARY="$plain" "$accuracy" "$1" cuda
    cases=$(sed -n "/^cuda_cases=/,/'$/p" "$accuracy" | grep -c '|')
    [ "$cases" -gt 10 ] && [ "$(grep -cE "^. (simple|sm80)_" "$tmp/out")" = "$cases" ] || fail "not every case of a GPU has a line: $(cat "$tmp/out")"
fi
finish
