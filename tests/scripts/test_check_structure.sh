#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts/check-structure finds functions that are too long and repeated lines, also in a tree without git.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export GIT_CEILING_DIRECTORIES="$tmp" # a repository further up is not this tree's
mkdir "$tmp/tree" "$tmp/tree/scripts"
cp -R src tools examples python tests fuzz bench "$tmp/tree/"
cp scripts/check-structure "$tmp/tree/scripts/"
cd "$tmp/tree"
scripts/check-structure >"$tmp/out" 2>&1 || { echo "the tree does not pass:"; cat "$tmp/out"; exit 1; }

# Prints a function with the given name and number of lines, all different.
long() {
    printf 'static int %s(int i)\n{\n' "$1"
    i=0
    while [ $i -lt "$2" ]; do echo "    i = i * $i + $2;" && i=$((i + 1)); done
    printf '}\n'
}
long sixty 60 >>src/base/status.c
scripts/check-structure || { echo "60 lines are allowed"; exit 1; }
long sixty_one 61 >>src/base/status.c
long thirteen 13 | tee -a src/base/memory.c >>tools/moxie/main.c
if scripts/check-structure >"$tmp/out" 2>&1; then echo "nothing was found"; exit 1; fi
for text in "src/base/status.c:[0-9]*: a function of 61 lines" "tools/moxie/main.c:[0-9]*: the same 12 lines as src/base/memory.c"; do
    grep -q "$text" "$tmp/out" || { echo "no \"$text\" in:"; cat "$tmp/out"; exit 1; }
done
