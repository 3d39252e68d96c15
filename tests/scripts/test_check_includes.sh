#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts/check-includes passes on the tree and finds breaches of the law of includes, also in a tree without git.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export GIT_CEILING_DIRECTORIES="$tmp" # a repository further up is not this tree's
mkdir "$tmp/tree" "$tmp/tree/scripts"
cp -R include src tools examples python tests fuzz bench "$tmp/tree/"
cp scripts/check-includes "$tmp/tree/scripts/"
cd "$tmp/tree"
scripts/check-includes >"$tmp/out" 2>&1 || { echo "the tree breaks the law:"; cat "$tmp/out"; exit 1; }
[ ! -s "$tmp/out" ] || { echo "it prints something although there is no breach:"; cat "$tmp/out"; exit 1; }

echo '#include "layer/weights/layer.h"' >>src/base/status.c
echo '#include "base/status.h"' >>tools/moxie/main.c
touch tools/moxie/status.c
echo '#include "base/executor.h"' >>src/base/memory.c
echo '#include "base/memory.h"' >>src/base/executor.h
if scripts/check-includes >"$tmp/out" 2>&1; then echo "four breaches were not found"; exit 1; fi
for text in "src/base may not include: src/base/status.c" "tools/moxie/main.c: only include/moxie" "used twice: status.c" \
    "circle:"; do
    grep -q "$text" "$tmp/out" || { echo "no \"$text\" in:"; cat "$tmp/out"; exit 1; }
done
