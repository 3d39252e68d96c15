#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/support.md is what the tool says, and scripts/support-matrix --check fails when it is not; the JSON has every
# list, and a row of each for every device.
set -eu
[ "$(uname -m)" = x86_64 ] || { echo "the page is made on x86-64"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "$1"; exit 1; }
build=$(cd "$1" && pwd)
export MOXIE_TOOL="$build/moxie"

mkdir "$tmp/scripts" "$tmp/docs"
cp scripts/support-matrix "$tmp/scripts/"
cp docs/support.md "$tmp/docs/"
"$tmp/scripts/support-matrix" --check >"$tmp/out" || { cat "$tmp/out"; fail "docs/support.md is stale"; }
sed 's/amx_bf16/amx_bf17/' docs/support.md >"$tmp/docs/support.md"
! "$tmp/scripts/support-matrix" --check >"$tmp/out" || fail "a changed page passes"
grep -q "is stale" "$tmp/out" || fail "it does not say that the page is stale"
"$tmp/scripts/support-matrix"
cmp docs/support.md "$tmp/docs/support.md" || fail "the page that it writes is not docs/support.md"

"$MOXIE_TOOL" info --support --json >"$tmp/json"
for key in formats activations routing features families; do
    grep -q "\"$key\"" "$tmp/json" || fail "no $key in the JSON"
done
for device in scalar avx2 avx512 amx sm_80 sm_90 sm_100; do
    rows=$(grep -o "\"$device\":" "$tmp/json" | wc -l)
    names=$(grep -o '"name":' "$tmp/json" | wc -l)
    families=$(grep -o '"model_types":' "$tmp/json" | wc -l)
    [ "$rows" -eq $((names - families)) ] || fail "$device has $rows cells, not $((names - families))"
done
