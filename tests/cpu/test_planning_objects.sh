#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Planning may happen on a processor that lacks a kernel's instructions: `moxie explain --isa avx512`, `moxie info`. So no
# function that it calls may be compiled with an instruction set's flags, which let a compiler use them anywhere.
#
#     an object with flags     named _avx2, _avx512, _amx, _neon_bf16, ... (cmake/moxie_build.cmake)
#     the law                  objects without flags name a function of one with flags only to run it: runs() lists
#                              these, each called after a look at the processor. Data, like lists of variants, are free
#
# A kernel list names bind(), admit() and scratch_bytes() in an object without flags, so the law covers them.
set -eu
build=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
nm=$(${CC:-cc} -print-prog-name=nm)
command -v "$nm" >/dev/null || { echo "skipped: no $nm here"; exit 77; }

# Rows of glu.def and lora.def, whose functions only run; the others ask mox_cpu() before they call.
runs() { grep -Ev '^mox_(glu|lora)_(avx2|avx512)_[a-z]+$|^mox_(checksum|by_zeros|panel_codes_[a-z_]+)_avx2$'; }

objects=$build/CMakeFiles/moxie_objects.dir
flags='_(avx2|avxvnni|avx512[a-z0-9_]*|amx|neon_[a-z0-9_]+)\.c\.o$'
find "$objects" -name '*.c.o' | sort >"$tmp/all"
grep -E "$flags" "$tmp/all" >"$tmp/flagged"
grep -Ev "$flags" "$tmp/all" >"$tmp/plain"
[ "$(wc -l <"$tmp/flagged")" -ge 20 ] && [ "$(wc -l <"$tmp/plain")" -ge 100 ] ||
    { echo "these are not all objects: $(wc -l <"$tmp/flagged") with flags of $(wc -l <"$tmp/all")"; exit 1; }

xargs "$nm" --defined-only <"$tmp/flagged" | awk '$2 == "T" { print $3 }' | sort -u >"$tmp/defined"
xargs "$nm" --undefined-only <"$tmp/plain" | awk '$1 == "U" { print $2 }' | sort -u >"$tmp/named"
# On a processor family without such kernels the first list is short, but never the second.
[ "$(wc -l <"$tmp/named")" -gt 100 ] || { echo "nm names no functions"; exit 1; }
comm -12 "$tmp/defined" "$tmp/named" | runs >"$tmp/breaches" || true
[ ! -s "$tmp/breaches" ] && exit 0

echo "planning may call functions that are compiled with an instruction set's flags:"
sed 's/^/    /' "$tmp/breaches"
echo "move each to a file whose name has no such suffix (<isa>_plan.c)"
exit 1
