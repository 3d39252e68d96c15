#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples/ranks_threads: four ranks give the bytes of one, for a checkpoint with a shared expert and one without.
set -eu
build=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
[ -x "$build/moxie" ] || { echo "skipped: the tool, which makes the checkpoint, is not built"; exit 77; }
for preset in gpt-oss-20b deepseek-v3; do
    "$build/moxie" synth "$preset" -o "$tmp/$preset" --layers 1 --experts 32 --hidden 256 --intermediate 128 >/dev/null 2>&1
    "$build/examples/example_ranks_threads" "$tmp/$preset" >"$tmp/out"
    grep -q "12 tokens on 4 ranks: the output bytes equal those of one rank" "$tmp/out" || { cat "$tmp/out"; exit 1; }
done
if "$build/examples/example_ranks_threads" "$tmp/absent" 2>"$tmp/err"; then echo "an absent model opened"; exit 1; fi
grep -q absent "$tmp/err"
echo "2 passed, 0 failed, 0 skipped"
