#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# libmoxie.so exports what the headers declare, all of it, and nothing else: every name begins with moxie_.
set -eu
build=$1
library=$build/libmoxie.so
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
[ -e "$library" ] || { echo "$library does not exist"; exit 1; }
grep -q "MOXIE_SANITIZE:STRING=[at]" "$build/CMakeCache.txt" && { echo "skipped: sanitizers add symbols"; exit 77; }

nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u >"$tmp/exported"
if grep -v '^moxie_' "$tmp/exported"; then
    echo "exported names that do not begin with moxie_"
    exit 1
fi
cat include/moxie/*.h | tr '\n' ' ' | grep -o 'MOXIE_API [^;]*(' | sed 's/(.*//' | grep -o 'moxie_[a-z0-9_]*$' |
    sort -u >"$tmp/declared"
if ! diff "$tmp/declared" "$tmp/exported"; then
    echo "declared (<) and exported (>) names differ"
    exit 1
fi
