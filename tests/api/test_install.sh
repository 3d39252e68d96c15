#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is installed is enough: headers, shared object with its name and symbols, pkg-config, CMake package.
set -eu
build=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# In an emulated build: the cross compiler, how its programs start, the option that makes CMake use both.
cc=${CC:-cc} run=${MOXIE_EMULATOR:-} toolchain=${MOXIE_TOOLCHAIN:-}
grep -q "MOXIE_SANITIZE:STRING=[at]" "$build/CMakeCache.txt" && { echo "skipped: sanitized library"; exit 77; }

cmake --install "$build" --prefix "$tmp/usr" >/dev/null
library=$(find "$tmp/usr" -name 'libmoxie.so.0' | head -1)
[ -n "$library" ] || { echo "libmoxie.so.0 was not installed"; exit 1; }
libdir=$(dirname "$library")
$run "$tmp/usr/bin/moxie" info >/dev/null

cat >"$tmp/main.c" <<'END'
#include <moxie/moxie_ckpt.h>
#include <moxie/moxie_scheme.h>
#include <moxie/moxie_prepare.h>
#include <stdio.h>
int main(void)
{
    return puts(moxie_version()) < 0;
}
END
if command -v pkg-config >/dev/null; then
    flags=$(PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config --define-variable=prefix="$tmp/usr" --cflags --libs moxie)
    # shellcheck disable=SC2086 # compiler flags
    $cc "$tmp/main.c" -o "$tmp/main" $flags
    LD_LIBRARY_PATH=$libdir $run "$tmp/main"
fi
mkdir "$tmp/project"
cp "$tmp/main.c" "$tmp/project/"
cat >"$tmp/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(moxie REQUIRED)
add_executable(user main.c)
target_link_libraries(user PRIVATE moxie::moxie)
END
# shellcheck disable=SC2086 # an option or nothing
cmake -S "$tmp/project" -B "$tmp/project/build" $toolchain -DCMAKE_PREFIX_PATH="$tmp/usr" >/dev/null
cmake --build "$tmp/project/build" >/dev/null
$run "$tmp/project/build/user"

# The README's program, as printed there.
awk '/^## From C/ { found = 1 } /^Link with/ { exit } found && /^    / { print substr($0, 5) }' README.md >"$tmp/readme.c"
[ "$(wc -l <"$tmp/readme.c")" -gt 20 ] || { echo "no program found in README.md"; exit 1; }
$cc -std=c11 -Wall -Wextra -Werror "$tmp/readme.c" -o "$tmp/readme" -I"$tmp/usr/include" -L"$libdir" -lmoxie
$run "$tmp/usr/bin/moxie" synth gpt-oss-20b -o "$tmp/model" --layers 1 --experts 8 --hidden 64 --intermediate 64 >/dev/null
LD_LIBRARY_PATH=$libdir $run "$tmp/readme" "$tmp/model"
