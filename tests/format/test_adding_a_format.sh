#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks docs/adding-a-format.md: a copy of the sources with only the page's code blocks applied builds, and runs a layer
# in the new format within the oracle's bounds.
set -eu
[ "${MOXIE_TEST_QUICK:-0}" = 0 ] || { echo "skipped: builds the library again; .ci/run, or MOXIE_TEST_QUICK=0, does it"; exit 77; }
root=$(pwd)
build=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
grep -q "MOXIE_SANITIZE:STRING=[at]" "$build/CMakeCache.txt" && { echo "skipped: needs no sanitizer"; exit 77; }

cp -r CMakeLists.txt cmake include python scripts src tools "$tmp/"
# block FILE: the code block under the heading that names FILE.
block() {
    awk -v file="$1" '
        /^## / { found = index($0, "`" file "`") > 0 }
        /^```/ { inside = !inside; next }
        found && inside' "$root/docs/adding-a-format.md"
}
block src/format/f4_e3m0.h >"$tmp/src/format/f4_e3m0.h"
# Header, number, scheme, checkpoint format, fast kernels: five places.
for list in src/format/formats.def src/quant/schemes.def src/ckpt/formats/hf_quant.def src/pack/panel/element_traits.def; do
    block "$list" >"$tmp/block"
    [ -s "$tmp/block" ] || { echo "no block for $list in the document"; exit 1; }
    cat "$tmp/block" >>"$tmp/$list"
done

# Kernels that do not run here are left out: unoptimized, they take most of the time.
# shellcheck disable=SC2086 # an option or nothing: in an emulated build, the one that makes CMake cross-compile
cmake -S "$tmp" -B "$tmp/build" ${MOXIE_TOOLCHAIN:-} -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS=-O0 -DMOXIE_TESTS=OFF \
    -DMOXIE_ABSENT_ISA=leave-out -DMOXIE_MPI=OFF -DMOXIE_PYTHON=OFF >"$tmp/log" 2>&1 && cmake --build "$tmp/build" --target moxie_cli >>"$tmp/log" 2>&1 || { tail -30 "$tmp/log"; exit 1; }

moxie=$tmp/build/moxie
"$moxie" explain --scheme e3m0_w4a16 --experts 8 --top-k 2 --hidden 64 --intermediate 64
if "$moxie" info | grep -q '^expert_gemm  *avx512_fma .*yes$'; then
    "$moxie" explain --isa avx512 --scheme e3m0_w4a16 --experts 8 --top-k 2 --hidden 64 --intermediate 64 | grep -q 'w13  *avx512_'
fi
"$moxie" synth olmoe-1b-7b --format e3m0 -o "$tmp/model" --layers 1 --experts 16 --hidden 128 --intermediate 96
"$moxie" inspect "$tmp/model" | grep -q e3m0
"$moxie" run "$tmp/model" --tokens 8
"$moxie" diff "$tmp/model" --a cpu --b ref --tokens 8
