#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks the CUDA sources with nvcc, without a GPU. All compile for every generation of libmoxie_cuda; the products
# (*_sm90*.cu, *_sm80*.cu) only for the one that they are named after. Products keep everything in registers, and their
# main loops use the generation's instructions: that needs optimised code, a minute of a processor for each source, so by
# default only `optimised` are looked at; the library's own build warns of spills in all. Kernels are short, and have few
# instances.
#   test_cuda_objects.sh BUILD [SOURCE...]     by default all sources compile; those that are named are optimised, too
#   MOXIE_TEST_OPTIMISED=all                   all products are
set -eu
[ "${MOXIE_TEST_QUICK:-0}" = 0 ] || { echo "skipped: takes minutes of nvcc; .ci/run, or MOXIE_TEST_QUICK=0, runs it"; exit 77; }
cd "$(dirname "$0")/../.."
nvcc=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
command -v "$nvcc" >/dev/null || { echo "skipped: nvcc is not installed"; exit 77; }
ptxas=$(dirname "$nvcc")/ptxas
command -v "$ptxas" >/dev/null || ptxas=ptxas
max_instances=144 max_lines=150 # 56 without the products: 24 elements by wgmma, 20 by mma.sync, narrow and wide tiles
# One source of each skeleton and each way to the tensor cores, with the most registers.
optimised="expert_gemm_sm90_bf16 expert_gemm_sm90_e4m3 expert_gemm_sm90_w8_blocks_qact expert_gemm_sm90_int4_blocks_short
expert_gemm_sm80_int4"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# One source for one generation, with the flags of cmake/moxie_cuda.cmake: PTX, and of optimised products what the
# assembler says. Without optimisation the compiler is six times as fast, and thirty times where it has a level for that.
plain="-Xcicc -O0"
! "$nvcc" --help | grep -q -e --Ofast-compile || plain="--Ofast-compile max"
cat >"$tmp/compile" <<END
set -e
name=\$(basename "\$2" .cu).\$1
case "\$3" in optimised) flags=-O3 ;; *) flags="$plain" ;; esac
"$nvcc" -ptx -arch=sm_\$1 \$flags -DNDEBUG -std=c++20 -fmad=false --expt-relaxed-constexpr -Iinclude -Isrc \
    -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers "\$2" -o "$tmp/\$name.ptx" >"$tmp/\$name.log" 2>&1 ||
    { echo "FAILED: \$2 does not compile for sm_\$1:"; head -20 "$tmp/\$name.log"; exit 1; }
[ "\$3" = optimised ] || exit 0
touch "$tmp/\$name.optimised"
"$ptxas" -v -O3 -arch=sm_\$1 "$tmp/\$name.ptx" -o /dev/null >>"$tmp/\$name.log" 2>&1 ||
    { echo "FAILED: \$2 does not assemble for sm_\$1:"; head -20 "$tmp/\$name.log"; exit 1; }
END

# The longest sources first. Nothing in them asks for a generation after sm_90: sm_120's source is sm_90's.
[ $# -eq 0 ] || shift
sources=${*:-$(find src/cuda -name '*.cu')}
[ $# -eq 0 ] || MOXIE_TEST_OPTIMISED=all
how() {
    case "${MOXIE_TEST_OPTIMISED:-} $(echo $optimised) " in all*|*" $(basename "$1" .cu) "*) echo optimised ;; *) echo plain ;; esac
}
for file in $sources; do
    case $file in
    *_sm90*) echo "$(how "$file") $(wc -c <"$file") 90a $file $(how "$file")" ;;
    *_sm80*) echo "$(how "$file") $(wc -c <"$file") 80 $file $(how "$file")" ;;
    *) for sm in 80 90a; do echo "plain $(wc -c <"$file") $sm $file plain"; done ;;
    esac
done | sort -k1,1 -k2,2nr | cut -d' ' -f3- | xargs -P "$(nproc)" -n 3 sh "$tmp/compile" || fail "sources that do not compile"

# Products spill no registers, keep no array in local memory, and wgmma is not serialized.
for log in "$tmp"/*_sm90*.90a.log "$tmp"/*_sm80*.80.log; do
    name=$(basename "$log" .log)
    [ -e "$tmp/$name.optimised" ] || continue
    awk '/Compiling entry function/ { kernel = $7 }
        /bytes stack frame/ && ($1 > 0 || $5 > 0 || $9 > 0) { print kernel ": " $0; bad = 1 }
        /Potential Performance Loss|Registers are spilled|Local memory used/ { print; bad = 1 }
        END { exit bad }' "$log" || fail "$name: registers or arrays in local memory, or products in order"
done

# Their main loops: every kernel with sm90_gemm or sm80_gemm in its name.
for ptx in "$tmp"/*_sm90*.90a.ptx "$tmp"/*_sm80*.80.ptx; do
    [ -e "${ptx%.ptx}.optimised" ] || continue
    awk 'function check() {
            if (kernel ~ /sm80_gemm/) {
                count++
                if (!mma) { print kernel ": no mma.sync"; bad = 1 }
                if (!async) { print kernel ": no cp.async into shared memory"; bad = 1 }
            }
            if (kernel ~ /sm90_gemm/) {
                count++
                if (!wgmma) { print kernel ": no wgmma.mma_async"; bad = 1 }
                if (!bulk) { print kernel ": no cp.async.bulk into shared memory"; bad = 1 }
                if (!barrier) { print kernel ": no mbarrier"; bad = 1 }
            }
            wgmma = bulk = barrier = mma = async = 0
        }
        /^[ \t]*\/\// { next }
        /\.entry/ { check(); kernel = $NF }
        /wgmma\.mma_async/ { wgmma = 1 }
        /cp\.async\.bulk\.shared/ { bulk = 1 }
        /mbarrier\./ { barrier = 1 }
        /mma\.sync/ { mma = 1 }
        /cp\.async\.cg\.shared/ { async = 1 }
        END { check(); print count + 0 > counts; exit bad }' counts="$ptx.count" "$ptx" ||
        fail "$(basename "$ptx" .ptx): a main loop without the instructions of its generation"
done
loops=$(find "$tmp" -name '*.count' -exec cat {} + | awk '{ n += $1 } END { print n + 0 }')
[ $# -gt 0 ] || [ "$loops" -ge 5 ] || fail "$loops main loops were found in five sources"

# Instances: entries of libmoxie_cuda's code for one generation.
instances=$(cat "$tmp"/*.90a.ptx "$tmp"/*_sm80*.80.ptx | grep -c '\.entry')
[ "$instances" -le $max_instances ] || fail "$instances kernel instances, $max_instances are meant to be enough"

# Lengths, from the line with the name to the closing brace in the first column.
find src/cuda '(' -name '*.cu' -o -name '*.cuh' ')' -exec awk -v max=$max_lines '
    FNR == 1 { start = 0 }
    /__global__|__device__/ && !start { start = FNR }
    /;$/ && start == FNR { start = 0 }
    /^}/ { if (start && FNR - start + 1 > max) { print FILENAME ":" start ": " FNR - start + 1 " lines"; bad = 1 } start = 0 }
    END { exit bad }' {} + || fail "kernels of more than $max_lines lines"

echo "$(echo "$sources" | wc -w) sources, $instances kernel instances, $loops main loops of products"
[ $failures = 0 ]
