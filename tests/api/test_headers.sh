#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every public header compiles alone, as C11 and as C++17, without a warning; and the INIT macros work in both.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
warnings="-Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only"

for header in include/moxie/*.h; do
    name=moxie/$(basename "$header")
    printf '#include <%s>\n#include <%s>\ntypedef int not_empty;\n' "$name" "$name" >"$tmp/alone.c"
    # shellcheck disable=SC2086 # compiler flags
    cc -std=c11 $warnings -Wstrict-prototypes "$tmp/alone.c" || { echo "$name does not stand alone in C11"; exit 1; }
    if command -v c++ >/dev/null; then
        cp "$tmp/alone.c" "$tmp/alone.cpp"
        # shellcheck disable=SC2086 # compiler flags
        c++ -std=c++17 $warnings "$tmp/alone.cpp" || { echo "$name does not stand alone in C++17"; exit 1; }
    fi
done

for macro in $(grep -ho 'define MOXIE_[A-Z_]*_INIT' include/moxie/*.h | sed 's/define //'); do
    type=$(echo "$macro" | sed 's/_INIT$//' | tr 'A-Z' 'a-z')
    {
        echo '#include <moxie/moxie_ckpt.h>'
        echo '#include <moxie/moxie_scheme.h>'
        echo '#include <moxie/moxie_prepare.h>'
        echo '#include <moxie/moxie_lint.h>'
        echo '#include <moxie/moxie_parallel.h>'
        echo '#include <moxie/moxie_comm.h>'
        echo '#include <moxie/moxie_cuda.h>'
        echo '#include <moxie/moxie_adapters.h>'
        echo '#include <moxie/moxie_store.h>'
        echo '#include <moxie/moxie_topology.h>'
        echo '#include <moxie/moxie_trace.h>'
        echo '#include <moxie/moxie_quantize.h>'
        echo "unsigned size_of_one(void);"
        echo "unsigned size_of_one(void) { const $type s = $macro; return s.struct_size; }"
    } >"$tmp/init.c"
    # shellcheck disable=SC2086 # compiler flags
    cc -std=c11 $warnings "$tmp/init.c" || { echo "$macro does not work in C11"; exit 1; }
    if command -v c++ >/dev/null; then
        cp "$tmp/init.c" "$tmp/init.cpp"
        # shellcheck disable=SC2086 # compiler flags
        c++ -std=c++17 $warnings "$tmp/init.cpp" || { echo "$macro does not work in C++17"; exit 1; }
    fi
done
command -v c++ >/dev/null || { echo "skipped: no C++ compiler, C11 alone was checked"; exit 77; }
