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

# Of every public struct one is initialized by its macro, in one program: a function for each.
{
    for header in include/moxie/*.h; do
        echo "#include <moxie/$(basename "$header")>"
    done
    for macro in $(grep -ho 'define MOXIE_[A-Z_]*_INIT' include/moxie/*.h | sed 's/define //'); do
        type=$(echo "$macro" | sed 's/_INIT$//' | tr 'A-Z' 'a-z')
        echo "unsigned size_of_$type(void);"
        echo "unsigned size_of_$type(void) { const $type s = $macro; return s.struct_size; }"
    done
} >"$tmp/init.c"
[ "$(grep -c '{ const' "$tmp/init.c")" -ge 50 ] || { echo "few macros were found"; exit 1; }
# shellcheck disable=SC2086 # compiler flags
cc -std=c11 $warnings "$tmp/init.c" || { echo "an INIT macro does not work in C11"; exit 1; }
command -v c++ >/dev/null || { echo "skipped: no C++ compiler, C11 alone was checked"; exit 77; }
cp "$tmp/init.c" "$tmp/init.cpp"
# shellcheck disable=SC2086 # compiler flags
c++ -std=c++17 $warnings "$tmp/init.cpp" || { echo "an INIT macro does not work in C++17"; exit 1; }
