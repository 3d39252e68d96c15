#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the linker was told, read back from the files: no writable table of functions, no executable stack, code that may
# lie anywhere, guarded stacks and checked copies, and no library from the working directory.
set -eu
build=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
command -v readelf >/dev/null || { echo "skipped: no readelf"; exit 77; }
grep -q "MOXIE_SANITIZE:STRING=[at]" "$build/CMakeCache.txt" && { echo "skipped: sanitizers check more"; exit 77; }
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

tool=$build/moxie
[ ! -e "$build/emulated/moxie" ] || tool=$build/emulated/moxie
[ -e "$tool" ] || { echo "skipped: $tool was not built"; exit 77; }
cuda=$build/libmoxie_cuda.so
[ -e "$cuda" ] || cuda=
uring=$build/libmoxie_uring.so # has no array that could overrun, and copies nothing
modules=
for file in "$build/libmoxie_openmpi.so" "$build/libmoxie_mpich.so" "$uring"; do
    [ ! -e "$file" ] || modules="$modules $file"
done
for file in "$tool" "$build/libmoxie.so" $cuda $modules; do
    name=$(basename "$file")
    readelf -dW "$file" >"$tmp/dynamic"
    readelf -lW "$file" >"$tmp/segments"
    readelf --dyn-syms -W "$file" >"$tmp/symbols"
    grep -qE 'BIND_NOW|Flags:.* NOW' "$tmp/dynamic" || fail "$name: functions are bound late"
    grep -q GNU_RELRO "$tmp/segments" || fail "$name: no read-only relocations"
    grep GNU_STACK "$tmp/segments" | grep -q E && fail "$name: the stack is executable"
    grep -q TEXTREL "$tmp/dynamic" && fail "$name: relocations in the code"
    # An empty entry, at either end or inside, is the working directory.
    sed -nE 's/.*\((RPATH|RUNPATH)\).*\[(.*)\]/:\2:/p' "$tmp/dynamic" | grep -q '::' &&
        fail "$name: an empty entry in its run path: $(grep -E 'RPATH|RUNPATH' "$tmp/dynamic")"
    [ "$file" = "$cuda" ] || [ "$file" = "$uring" ] || grep -q '__stack_chk_fail' "$tmp/symbols" || fail "$name: unguarded stacks"
    if [ "$file" != "$cuda" ] && [ "$file" != "$uring" ] && grep -qE 'CMAKE_BUILD_TYPE:STRING=(Release|RelWithDebInfo)' "$build/CMakeCache.txt"; then
        grep -qE '__(memcpy|snprintf|vsnprintf|read|fprintf)_chk' "$tmp/symbols" || fail "$name: unchecked copies"
    fi
done
readelf -hW "$tool" | grep -q 'DYN' || fail "the tool is not position-independent"

# A file in the working directory is no library, whatever its name.
if [ -z "${MOXIE_EMULATOR:-}" ]; then
    for library in libmoxie.so.0 $(readelf -dW "$tool" | sed -nE 's/.*NEEDED.*\[(.*)\]/\1/p'); do
        echo "no library" >"$tmp/$library"
    done
    (cd "$tmp" && "$tool" --help >/dev/null) || fail "the tool loads libraries from the working directory"
fi
[ "$failures" = 0 ] || { echo "$failures failures"; exit 1; }
