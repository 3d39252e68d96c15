#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moxie-sys is what bindgen makes of the headers; a header that changes without it is found.
set -eu
code=0
scripts/rust-bindings --check || code=$?
[ $code = 0 ] || exit $code
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/scripts" "$tmp/bindings/rust/moxie-sys/src"
cp -r include "$tmp"
cp scripts/rust-bindings "$tmp/scripts"
cp bindings/rust/moxie-sys/src/bindings.rs "$tmp/bindings/rust/moxie-sys/src"
sed -i 's/^    int32_t token_layout;/    int64_t token_layout;/' "$tmp/include/moxie/moxie.h"
code=0
"$tmp/scripts/rust-bindings" --check >"$tmp/out" || code=$?
[ $code = 1 ] && grep -q "run scripts/rust-bindings" "$tmp/out" || { echo "a changed header: $code"; cat "$tmp/out"; exit 1; }
