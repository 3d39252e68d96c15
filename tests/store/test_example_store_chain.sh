#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples/store_chain: five layers in a third of their memory; the next layer's router guesses experts that it then
# uses, and the outputs do not depend on the guesses.
set -eu
build=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
[ -x "$build/moxie" ] || { echo "skipped: the tool, which makes the checkpoint, is not built"; exit 77; }
"$build/moxie" synth qwen3-30b-a3b -o "$tmp/model" --layers 5 --experts 48 --hidden 256 --intermediate 64 >/dev/null 2>&1
"$build/moxie" prepare "$tmp/model" --layout moxie-auto -o "$tmp/experts" >/dev/null 2>&1
bytes=$(cat "$tmp"/experts/*.moxie | wc -c)
"$build/examples/example_store_chain" "$tmp/experts" $((bytes / 3)) >"$tmp/out"
cat "$tmp/out"
grep -q "5 layers, 24 tokens, without lookahead: .* guesses 0, used 0" "$tmp/out"
grep -q "the outputs are equal" "$tmp/out"
used=$(sed -n 's/.*with lookahead.*used //p' "$tmp/out")
[ "$used" -gt 50 ] || { echo "only $used guesses were used"; exit 1; }
if "$build/examples/example_store_chain" "$tmp/experts" 1000 2>"$tmp/err"; then echo "too small a budget passed"; exit 1; fi
grep -q "need at least" "$tmp/err"
echo "2 passed, 0 failed, 0 skipped"
