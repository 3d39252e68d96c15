#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples/cuda_chain.c: three layers in one graph, three batches. On a GPU where there is one; else on a launch table and
# a driver that compute on the host.
set -eu
build=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
example=$build/examples/example_cuda_chain
plain=$build/tests/libmoxie_cuda_plain.so
[ -x "$build/moxie" ] || { echo "skipped: the tool, which makes the checkpoint, is not built"; exit 77; }

"$build/moxie" synth qwen3-30b-a3b -o "$tmp/model" --layers 3 --experts 8 --hidden 256 --intermediate 128 >/dev/null 2>&1
code=0
"$example" "$tmp/model" >"$tmp/out" || code=$?
if [ $code = 77 ]; then
    cat "$tmp/out"
    grep -q '^skipped: ' "$tmp/out"
    [ -e "$plain" ] || { echo "skipped: there is no $plain"; exit 77; }
    cat >"$tmp/driver.c" <<'C'
#include <stdlib.h>
#include <string.h>
int cuMemAlloc_v2(unsigned long long *memory, size_t bytes)
{
    return (*memory = (unsigned long long)aligned_alloc(256, (bytes + 255) / 256 * 256)) == 0;
}
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes) { return memcpy((void *)to, from, bytes) == 0; }
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes) { return memcpy(to, (void *)from, bytes) == 0; }
C
    ${CC:-cc} -shared -fPIC -o "$tmp/libcuda.so.1" "$tmp/driver.c"
    LD_LIBRARY_PATH=$tmp MOXIE_CUDA_LIBRARY=$plain "$example" "$tmp/model" >"$tmp/out"
elif [ $code != 0 ]; then
    exit 1
fi
[ "$(grep -c '^batch [0-2] through 3 layers: outputs ' "$tmp/out")" = 3 ] || { cat "$tmp/out"; exit 1; }
[ "$(cut -d: -f2 "$tmp/out" | sort -u | wc -l)" = 3 ] || { echo "batches are alike"; cat "$tmp/out"; exit 1; }
code=0
"$example" 2>"$tmp/err" || code=$?
[ $code = 2 ] && grep -q "usage: .* MODEL_DIRECTORY" "$tmp/err" || { echo "without an argument: $code"; cat "$tmp/err"; exit 1; }
