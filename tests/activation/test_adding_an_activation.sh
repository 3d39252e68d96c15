#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A new activation is one row and one formula: a copy of the sources with both added runs a layer in it, as the formula
# stated by added_activation.c says. Of the copy only the files that read the list are compiled; the rest comes from
# the build's library.
set -eu
build=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
grep -q "MOXIE_SANITIZE:STRING=[at]" "$build/CMakeCache.txt" && { echo "skipped: needs no sanitizer"; exit 77; }

cp -r include src "$tmp/"
list=$tmp/src/activation/activations.def formulas=$tmp/src/activation/activation_formulas.h

row='MOX_ACTIVATION(ELU, 7, elu, GATED, ALPHA, 1, 0, 0, "elu", "elu")'
formula='/* (max(g, 0) + alpha (e^min(g, 0) - 1)) u */
MOX_NUM_INLINE mox_num mox_formula_elu(const mox_num_parameters *p, mox_num g, mox_num u)
{
    const mox_num negative = num_scale(num_plus(num_exp(num_min(g, 0)), -1), p->alpha);
    return num_mul(num_add(num_max(g, 0), negative), u);
}
'
# after FILE PATTERN TEXT: TEXT after the first line that matches; before: before it.
after() { awk -v pattern="$2" -v text="$3" '{ print } !done && $0 ~ pattern { print text; done = 1 }' "$1" >"$tmp/new" && cp "$tmp/new" "$1"; }
before() { awk -v pattern="$2" -v text="$3" '!done && $0 ~ pattern { print text; done = 1 } { print }' "$1" >"$tmp/new" && cp "$tmp/new" "$1"; }
after "$list" '^MOX_ACTIVATION.RELU2,' "$row"
before "$formulas" '^/. ---- by kind' "$formula"
grep -q "ELU, 7" "$list" && grep -q mox_formula_elu "$formulas"

cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
compile="${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -ffp-contract=off -fno-math-errno -I$tmp/include -I$tmp/src"
# shellcheck disable=SC2046,SC2086 # lists of words without spaces
$compile -MM $(find "$tmp/src" -name '*.c' ! -path '*/cuda/device/*') |
    sed -e ':join' -e '/\\$/{N;s/\\\n//;bjoin' -e '}' | sed -n '/activations\.def/s/^[^:]*: *\([^ ]*\).*/\1/p' >"$tmp/sources"
echo "$(wc -l <"$tmp/sources") files read the list"
mkdir "$tmp/objects"
xargs -P "$(nproc)" -I{} sh -c "$compile -c {} -o $tmp/objects/\$(basename {} .c).o" <"$tmp/sources"
# shellcheck disable=SC2086
$compile tests/activation/added_activation.c "$tmp"/objects/*.o "$build/libmoxie.a" "$(cached PTHREADPOOL_LIBRARY)" \
    "$(cached JANSSON_LIBRARY)" -lpthread -lm -ldl -o "$tmp/added_activation"
# shellcheck disable=SC2086 # an emulator and its options, or nothing
${MOXIE_EMULATOR:-} "$tmp/added_activation"
