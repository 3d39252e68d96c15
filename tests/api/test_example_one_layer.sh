#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The longer of the README's examples runs on a small synthetic checkpoint: four tokens, finite numbers, not all alike.
set -eu
build=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
[ -x "$build/moxie" ] || { echo "skipped: the tool, which makes the checkpoint, is not built"; exit 77; }

"$build/moxie" synth qwen3-30b-a3b -o "$tmp/model" --layers 1 --experts 8 >/dev/null 2>&1
"$build/examples/example_one_layer" "$tmp/model" >"$tmp/out"
[ "$(grep -c '^token [0-3], first expert [0-9]*:' "$tmp/out")" = 4 ] || { cat "$tmp/out"; exit 1; }
if grep -qi 'nan\|inf' "$tmp/out"; then cat "$tmp/out"; exit 1; fi
[ "$(cut -d: -f2 "$tmp/out" | sort -u | wc -l)" = 4 ] || { echo "tokens are alike"; cat "$tmp/out"; exit 1; }
if "$build/examples/example_one_layer" "$tmp/absent" 2>"$tmp/err"; then echo "an absent model opened"; exit 1; fi
grep -q "^$tmp/absent: there is no such directory" "$tmp/err"
code=0
"$build/examples/example_one_layer" 2>"$tmp/err" || code=$?
[ $code = 2 ] && grep -q "usage: .* MODEL_DIRECTORY" "$tmp/err" || { echo "without an argument: $code"; cat "$tmp/err"; exit 1; }
grep -q "max_tokens = TOKENS;" examples/one_layer.c || { echo "it reserves a workspace for more tokens than it has"; exit 1; }
