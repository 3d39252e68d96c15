#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every struct of the public headers can grow: it begins with its size, or has reserved words at its end, or is returned
# by const pointer and by nothing else.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
by_pointer="moxie_plan_step moxie_stage_report"

cat include/moxie/*.h | tr -s ' \n\t' ' ' | sed 's|/\*[^*]*\*\**\([^/*][^*]*\*\**\)*/||g' >"$tmp/headers"
grep -o 'typedef struct [a-z0-9_]* {[^}]*}' "$tmp/headers" >"$tmp/structs"
[ "$(wc -l <"$tmp/structs")" -ge 40 ] || { echo "only $(wc -l <"$tmp/structs") structs were found"; exit 1; }
bad=0
while read -r _ _ name rest; do
    case " $by_pointer " in *" $name "*) continue ;; esac
    case "$rest" in
    '{ uint32_t struct_size;'*) ;;
    *reserved\[*\]\;*) echo "$rest" | grep -q 'reserved\[[0-9]*\]; *}$' || { echo "$name: reserved is not its last field"; bad=1; } ;;
    *) echo "$name: neither a size nor reserved words"; bad=1 ;;
    esac
done <"$tmp/structs"
for name in $by_pointer; do
    # Used as a const pointer only; the rest is its own definition.
    if sed "s/typedef struct $name {[^}]*} $name;//; s/const $name \*//g" "$tmp/headers" | grep -q "\\b$name\\b"; then
        echo "$name: used other than as a const pointer"
        bad=1
    fi
done
exit $bad
