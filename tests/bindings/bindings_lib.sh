# SPDX-License-Identifier: Apache-2.0
# Shared by the tests of the bindings. Sourced with the build folder as $1: an installed copy of it lies under $tmp/usr,
# on the paths of programs, of pkg-config and of the loader, and a small checkpoint in $tmp/model.
set -eu
build=$1
skip() {
    echo "skipped: $*"
    exit 77
}
grep -q "MOXIE_SANITIZE:STRING=[at]" "$build/CMakeCache.txt" && skip "sanitized library"
[ -z "${MOXIE_TOOLCHAIN:-}" ] || skip "a library for another machine"
[ -x "$build/moxie" ] || skip "the tool, which makes the checkpoint, is not built"
command -v pkg-config >/dev/null || skip "no pkg-config"
root=$(pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp" "$build"/installed*$(basename "$tmp")*' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}

install_it() {
    scripts/install "$build" "$tmp/usr" >/dev/null
    libdir=$(dirname "$(find "$tmp/usr" -name libmoxie.so.0)")
    export PATH="$tmp/usr/bin:$PATH" PKG_CONFIG_PATH="$libdir/pkgconfig" LD_LIBRARY_PATH="$libdir"
}

# same_as_c PROGRAM: it does what examples/one_layer.c does, to the byte, for four formats and three types of hidden
# states; without arguments and without a checkpoint it ends as that.
same_as_c() {
    for made in "gpt-oss-20b mxfp4-gptoss" "qwen3-30b-a3b fp8-block" "mixtral-8x7b awq" "qwen3-30b-a3b f32"; do
        rm -rf "$tmp/model"
        # shellcheck disable=SC2086 # preset and format
        set -- "$1" $made
        moxie synth "$2" --format "$3" -o "$tmp/model" --layers 1 --experts 8 --hidden 256 --intermediate 256 >/dev/null 2>&1
        "$build/examples/example_one_layer" "$tmp/model" >"$tmp/want"
        "$1" "$tmp/model" >"$tmp/got" || fail "$1: $made"
        [ "$(wc -l <"$tmp/want")" = 4 ] || fail "the C program: $(cat "$tmp/want")"
        cmp -s "$tmp/want" "$tmp/got" || fail "$made: C prints $(cat "$tmp/want") -- $1 $(cat "$tmp/got")"
    done
    code=0
    "$1" "$tmp/nowhere" 2>"$tmp/err" || code=$?
    [ $code = 1 ] && grep -q "^$tmp/nowhere: there is no such directory" "$tmp/err" || fail "an absent model: $code, $(cat "$tmp/err")"
    code=0
    "$1" 2>"$tmp/err" || code=$?
    [ $code = 2 ] && grep -q "usage: .* MODEL_DIRECTORY" "$tmp/err" || fail "without an argument: $code, $(cat "$tmp/err")"
}
