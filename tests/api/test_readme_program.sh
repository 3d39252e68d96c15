#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# README.md's program, as printed there, beside an installed copy under a private prefix: compiled through pkg-config by
# the command that README.md gives and by its CMakeLists.txt, run on the checkpoint that it makes, with the output that it shows.
set -eu
build=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp" "$build"/installed*$(basename "$tmp")*' EXIT
# In an emulated build: the cross compiler, how its programs start, the option that makes CMake use both.
run=${MOXIE_EMULATOR:-} toolchain=${MOXIE_TOOLCHAIN:-}
grep -q "MOXIE_SANITIZE:STRING=[at]" "$build/CMakeCache.txt" && { echo "skipped: sanitized library"; exit 77; }
fail() {
    echo "FAILED: $*"
    exit 1
}

# block LANGUAGE N: the N-th fenced block of that language under "From C".
block() {
    awk -v fence="\`\`\`$1" -v n="$2" '/^## / { on = /^## From C/ } !on { next }
        /^```/ && inside { inside = 0; next } inside && at == n { print } $0 == fence { inside = 1; at++ }' README.md
}
mkdir "$tmp/work"
block c 1 >"$tmp/work/moe.c"
block cmake 1 >"$tmp/work/CMakeLists.txt"
block sh 1 >"$tmp/commands"
block text 1 >"$tmp/want"
[ "$(wc -l <"$tmp/work/moe.c")" -gt 20 ] || fail "no program in README.md"
[ "$(wc -l <"$tmp/want")" -gt 3 ] || fail "no output in README.md"
grep -q '^cc moe.c .*pkg-config' "$tmp/commands" || fail "no command that compiles it in README.md"
grep -q 'max_tokens = 1;' "$tmp/work/moe.c" || fail "the program reserves a workspace for more tokens than it has"

scripts/install "$build" "$tmp/usr" >/dev/null
libdir=$(dirname "$(find "$tmp/usr" -name libmoxie.so.0)")

# The figures may differ in the last digit: kernels of different machines round differently.
compare() {
    awk 'NR == FNR { want[FNR] = $0; rows = FNR; next }
        { n = split(want[FNR], w, " "); if (n != NF) bad = 1
          for (i = 1; i <= NF; i++) if (w[i] != $i && (w[i] !~ /^-?[0-9.]+,?$/ || (w[i] - $i) ^ 2 > 0.0011 ^ 2)) bad = 1 }
        END { exit bad || FNR != rows }' "$tmp/want" "$1" || fail "README.md shows $(cat "$tmp/want") -- it prints $(cat "$1")"
}

if [ -n "$run" ]; then
    # Only the checkpoint: the compiler's name is another, and the tool is started by a script.
    (cd "$tmp/work" && grep '^moxie' "$tmp/commands" | PATH=$build:$PATH sh -e >/dev/null)
else
    command -v pkg-config >/dev/null || { echo "skipped: no pkg-config"; exit 77; }
    (cd "$tmp/work" && PATH=$tmp/usr/bin:$PATH PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir sh -e "$tmp/commands") >"$tmp/all"
    # The last lines are the program's; before them `moxie synth` says what it made.
    tail -n "$(wc -l <"$tmp/want")" "$tmp/all" >"$tmp/got"
    compare "$tmp/got"
    # As strict as the library's own code; and what it says when it cannot go on.
    cc -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$tmp/usr/include" "$tmp/work/moe.c" || fail "README.md's program has warnings"
    export LD_LIBRARY_PATH="$libdir"
    code=0
    "$tmp/work/moe" >"$tmp/out" 2>"$tmp/err" || code=$?
    [ $code = 2 ] && grep -q "usage: .*moe MODEL_DIRECTORY" "$tmp/err" || fail "without an argument: $code, $(cat "$tmp/err")"
    code=0
    "$tmp/work/moe" "$tmp/nowhere" 2>"$tmp/err" || code=$?
    [ $code = 1 ] && grep -q "^$tmp/nowhere: there is no such directory" "$tmp/err" || fail "for an absent directory: $code, $(cat "$tmp/err")"
    unset LD_LIBRARY_PATH
fi
# shellcheck disable=SC2086 # an option or nothing
cmake -S "$tmp/work" -B "$tmp/work/build" $toolchain -DCMAKE_PREFIX_PATH="$tmp/usr" >"$tmp/log" || fail "$(cat "$tmp/log")"
cmake --build "$tmp/work/build" >"$tmp/log" || fail "$(cat "$tmp/log")"
(cd "$tmp/work" && $run build/moe model) >"$tmp/got"
compare "$tmp/got"
