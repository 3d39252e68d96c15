#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One program (abi_user.c), compiled against several versions of the public headers, runs on the library of today and
# prints the same each time:
#     current    the headers of the tree
#     kept       each headers-VERSION/ here: those of a release (CONTRIBUTING.md says when to keep them)
#     older      the headers of the tree, where structs with a size lack their last fields
#     newer      the headers of the tree, where structs with a size have a field more; the program refuses to be ignored
set -eu
build=$1
here=tests/abi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# In an emulated build: the cross compiler, and how its programs start.
cc=${CC:-cc} run=${MOXIE_EMULATOR:-}
grep -q "MOXIE_SANITIZE:STRING=[at]" "$build/CMakeCache.txt" && { echo "skipped: sanitized library"; exit 77; }
fail() {
    echo "FAILED: $*"
    exit 1
}

# try NAME INCLUDE [OPTION...]: compiles, runs, and compares with what the first one printed.
try() {
    name=$1 include=$2
    shift 2
    # shellcheck disable=SC2086 # a command and its options
    $cc -std=c11 -Wall -Wextra -Wno-missing-field-initializers -Werror "$@" -I"$include" "$here/abi_user.c" \
        -o "$tmp/program-$name" -L"$build" -lmoxie || fail "$name: the program does not compile"
    mkdir "$tmp/work-$name"
    # shellcheck disable=SC2086
    LD_LIBRARY_PATH=$build $run "$tmp/program-$name" "$tmp/work-$name" >"$tmp/$name.out" || fail "$name: $(cat "$tmp/$name.out")"
    [ -e "$tmp/want" ] || cp "$tmp/$name.out" "$tmp/want"
    diff "$tmp/want" "$tmp/$name.out" || fail "$name (>) prints something else than the first one (<)"
}

try current include
grep -q '^output [0-9a-f]*$' "$tmp/want" || fail "no output: $(cat "$tmp/want")"

kept=0
for headers in "$here"/headers-*/; do
    [ -d "$headers" ] || continue
    try "kept-$(basename "$headers")" "$headers"
    kept=$((kept + 1))
done
[ $kept -gt 0 ] || fail "no headers are kept"

# Fields from the end of structs, and how many structs that are.
mkdir -p "$tmp/older/moxie" "$tmp/newer/moxie"
cp include/moxie/*.h "$tmp/older/moxie"
sed -i -e '/^ *int32_t token_layout;/d' -e '/^ *int32_t degraded;/d' -e '/^ *int32_t spare_slots;/d' \
    -e '/^ *const moxie_slot_map \*slot_map;/d' \
    -e '/^ *moxie_matrix expert_norm;/d' \
    -e '/^ *const char \*amx;/,/\*\//d' \
    -e '/^ *int64_t experts; *\/\* experts that differ/d' \
    -e 's/\*layout, \*exactness;/*layout;/' \
    -e '/^ *const char \*fp8_how;/d' \
    -e '/^ *int64_t n_warnings;/d' -e '/^ *const char \*outside;/d' -e '/^ *uint64_t layer_bytes;/d' \
    -e '/^ *int32_t pads;/d' "$tmp"/older/moxie/*.h
cat include/moxie/*.h >"$tmp/all"
changed=$(cat "$tmp"/older/moxie/*.h | diff "$tmp/all" - | grep -c '^<') || true
[ "$changed" -ge 11 ] || fail "only $changed lines of the older headers differ: fields were renamed, or others follow them"
try older "$tmp/older"

for header in include/moxie/*.h; do
    awk '/^typedef struct .*\{$/ { sized = 0 } /^ *uint32_t struct_size;/ { sized = 1 }
        /^} moxie_/ && sized { print "    uint64_t later;"; sized = 0 } { print }' "$header" >"$tmp/newer/moxie/$(basename "$header")"
done
[ "$(cat "$tmp"/newer/moxie/*.h | grep -c ' later;')" -ge 20 ] || fail "no fields were added"
try newer "$tmp/newer" -DLATER
