#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moxie_version() tells the commit of the checkout that was built, and none for sources without one; a new commit
# compiles one file again. Takes the build folder.
set -eu
build=$1
script=$PWD/cmake/moxie_version.cmake
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
command -v git >/dev/null || { echo "skipped: there is no git"; exit 77; }

# What the build's own header says is this checkout's commit, changed files or not.
if [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$PWD" ]; then
    commit=$(git rev-parse --short=12 HEAD)
    grep -Eq "^#define MOX_COMMIT \"$commit[0-9a-f]*(-dirty)?\"\$" "$build/commit/moxie_commit.h" ||
        { cat "$build/commit/moxie_commit.h"; echo "the header is not of commit $commit"; exit 1; }
fi
if [ -x "$build/moxie" ]; then
    said=$(sed -n 's/^#define MOX_COMMIT "\(.*\)"$/\1/p' "$build/commit/moxie_commit.h")
    "$build/moxie" --version | grep -qF "${said:-moxie}" || { echo "moxie --version does not say \"$said\""; exit 1; }
fi

header() { # SOURCE
    cmake "-DSOURCE=$1" "-DHEADER=$tmp/commit.h" -P "$script"
    cat "$tmp/commit.h"
}
git() { command git -c user.name=test -c user.email=test@localhost -c commit.gpgsign=false "$@"; }

# A tarball, also one that lies inside another checkout.
mkdir -p "$tmp/repo/tarball" "$tmp/alone"
[ "$(header "$tmp/alone")" = '#define MOX_COMMIT ""' ] || { echo "a commit without a checkout"; exit 1; }
git -C "$tmp/repo" init -q
echo one >"$tmp/repo/file"
git -C "$tmp/repo" add file
git -C "$tmp/repo" commit -qm one
git -C "$tmp/repo" tag -a v9 -m v9
[ "$(header "$tmp/repo/tarball")" = '#define MOX_COMMIT ""' ] || { echo "another checkout's commit was taken"; exit 1; }

first=$(git -C "$tmp/repo" rev-parse --short=12 HEAD)
[ "$(header "$tmp/repo")" = "#define MOX_COMMIT \"$first\"" ] || { echo "not the commit $first: $(cat "$tmp/commit.h")"; exit 1; }
# The same again leaves the file alone, so that nothing is compiled.
touch -d '2001-01-01' "$tmp/commit.h"
header "$tmp/repo" >/dev/null
[ "$(date -r "$tmp/commit.h" +%Y)" = 2001 ] || { echo "an unchanged header was written again"; exit 1; }
echo two >"$tmp/repo/file"
[ "$(header "$tmp/repo")" = "#define MOX_COMMIT \"$first-dirty\"" ] || { echo "changed files are not told"; exit 1; }
