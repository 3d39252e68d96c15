#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make install PREFIX=P DESTDIR=D` and `make uninstall`: everything is there, and works after it was moved; afterwards
# nothing of it is there, and all that others put beside it is.
set -eu
build=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp" "$build"/installed*$(basename "$tmp")*' EXIT
# In an emulated build: the cross compiler, how its programs start, the option that makes CMake use both.
cc=${CC:-cc} run=${MOXIE_EMULATOR:-} toolchain=${MOXIE_TOOLCHAIN:-}
grep -q "MOXIE_SANITIZE:STRING=[at]" "$build/CMakeCache.txt" && { echo "skipped: sanitized library"; exit 77; }

# The Makefile hands PREFIX and DESTDIR on, to CMake as well: the folder of libraries depends on it.
for target in install uninstall; do
    make -n "$target" BUILD="$build" PREFIX=/a/place DESTDIR=/package >"$tmp/make"
    grep -q "scripts/$target $build \"/a/place\" \"/package\"" "$tmp/make" || { cat "$tmp/make"; exit 1; }
done
make -n install PREFIX=/a/place | grep -q 'CMAKE_INSTALL_PREFIX="/a/place"' || { echo "CMake does not get PREFIX"; exit 1; }
make -n install | grep -q 'scripts/install .* "/usr/local" ""' || { echo "no default of PREFIX"; exit 1; }

code=0
scripts/install "$build" some/where >"$tmp/out" 2>&1 || code=$?
[ $code = 2 ] && grep -q 'PREFIX is "some/where"; an absolute path' "$tmp/out" || { echo "a relative PREFIX: $code"; cat "$tmp/out"; exit 1; }

# ---- everything is there -------------------------------------------------------------------------
scripts/install "$build" "/opt/a b/" "$tmp/package" >/dev/null
there=$tmp/package/opt/a\ b
libdir=$(dirname "$(find "$there" -name libmoxie.so.0)")
for file in bin/moxie include/moxie/moxie.h include/moxie/moxie_cuda.h share/doc/moxie/LICENSE \
    share/bash-completion/completions/moxie share/zsh/site-functions/_moxie share/fish/vendor_completions.d/moxie.fish; do
    [ -f "$there/$file" ] || { echo "$file was not installed"; exit 1; }
done
for file in libmoxie.so libmoxie.a pkgconfig/moxie.pc cmake/moxie/moxieConfig.cmake; do
    [ -e "$libdir/$file" ] || { echo "$file was not installed"; exit 1; }
done
for module in libmoxie_openmpi.so libmoxie_mpich.so libmoxie_uring.so; do
    [ ! -e "$build/$module" ] || [ -e "$libdir/$module" ] || { echo "$module was not installed"; exit 1; }
done
grep -q "MOXIE_HELP2MAN:FILEPATH=.*NOTFOUND" "$build/CMakeCache.txt" || [ -f "$there/share/man/man1/moxie-run.1" ] ||
    { echo "no man pages were installed"; exit 1; }
if grep -rIl -e "$tmp" -e "/opt/a b" -e "$build" "$there"; then echo "these name the folder they were installed in"; exit 1; fi

# ---- it works, and elsewhere ----------------------------------------------------------------------
mv "$there" "$tmp/moved"
libdir=$tmp/moved${libdir#"$there"}
$run "$tmp/moved/bin/moxie" info >/dev/null

cat >"$tmp/main.c" <<'END'
#include <moxie/moxie_ckpt.h>
#include <moxie/moxie_scheme.h>
#include <moxie/moxie_prepare.h>
#include <moxie/moxie_lint.h>
#include <moxie/moxie_parallel.h>
#include <moxie/moxie_adapters.h>
#include <moxie/moxie_comm.h>
#include <stdio.h>
int main(void)
{
    moxie_model *model = NULL;
    return puts(moxie_version()) < 0 || moxie_model_open("/nowhere", NULL, &model, NULL) != MOXIE_ERR_IO;
}
END
if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH=$libdir/pkgconfig
    $cc "$tmp/main.c" -o "$tmp/main" $(pkg-config --cflags --libs moxie)
    LD_LIBRARY_PATH=$libdir $run "$tmp/main" >/dev/null
    # With the static library, and what it needs.
    $cc "$tmp/main.c" -o "$tmp/static" $(pkg-config --cflags moxie) "$libdir/libmoxie.a" \
        $(pkg-config --static --libs-only-l moxie | sed 's/-lmoxie//')
    $run "$tmp/static" >/dev/null
    readelf -dW "$tmp/static" 2>/dev/null | grep -q libmoxie && { echo "libmoxie.a was not used"; exit 1; }
fi
mkdir "$tmp/project"
cp "$tmp/main.c" "$tmp/project/"
cat >"$tmp/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(moxie REQUIRED COMPONENTS shared static)
foreach(target moxie moxie_static)
    add_executable(user_${target} main.c)
    target_link_libraries(user_${target} PRIVATE moxie::${target})
endforeach()
END
# shellcheck disable=SC2086 # an option or nothing
cmake -S "$tmp/project" -B "$tmp/project/build" $toolchain -DCMAKE_PREFIX_PATH="$tmp/moved" >/dev/null
cmake --build "$tmp/project/build" >/dev/null
$run "$tmp/project/build/user_moxie" >/dev/null
$run "$tmp/project/build/user_moxie_static" >/dev/null

# ---- and goes ------------------------------------------------------------------------------------
mv "$tmp/moved" "$there"
touch "$there/bin/other" "$there/include/moxie/other.h"
if scripts/uninstall "$build" /opt/elsewhere "$tmp/package" 2>"$tmp/err"; then echo "uninstalled from an unknown place"; exit 1; fi
grep -q "opt/a b" "$tmp/err" || { echo "it does not say where there is an installation:"; cat "$tmp/err"; exit 1; }
scripts/uninstall "$build" "/opt/a b" "$tmp/package" >/dev/null
left=$(cd "$there" && find . ! -type d | sort | tr '\n' ' ')
[ "$left" = "./bin/other ./include/moxie/other.h " ] || { echo "left after uninstall: $left"; exit 1; }
if find "$there" -type d -name moxie ! -path '*/include/*' | grep .; then echo "empty folders of moxie's own are left"; exit 1; fi
