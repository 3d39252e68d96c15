#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# src/layer/config/public_structs.def lists what the public headers declare: every struct that begins with its size, and every
# field of it in order.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# One line a struct, without comments; then one line a field: "type field".
cat include/moxie/*.h | tr -s ' \n\t' ' ' | sed 's|/\*[^*]*\*\**\([^/*][^*]*\*\**\)*/||g' | tr -s ' ' |
    grep -o 'typedef struct [a-z0-9_]* { uint32_t struct_size;[^}]*}' | sed 's/^typedef struct \([a-z0-9_]*\) {/\1;/; s/}$//' |
    awk -F';' '{
        for (i = 3; i <= NF; i++) {
            declaration = $i
            if (match(declaration, /\(\*[a-z0-9_]+\)/)) {
                print $1, substr(declaration, RSTART + 2, RLENGTH - 3)
                continue
            }
            count = split(declaration, names, ",")
            for (n = 1; n <= count; n++) {
                name = names[n]
                sub(/ *(\[[^]]*\] *)?$/, "", name)
                sub(/^.*[ *]/, "", name)
                if (name != "")
                    print $1, name
            }
        }
    }' | sort -s -k1,1 >"$tmp/headers"
sed -n 's/^MOX_STRUCT_FIELD(\([a-z0-9_]*\), \([a-z0-9_]*\))$/\1 \2/p' src/layer/config/public_structs.def | sort -s -k1,1 >"$tmp/list"

[ "$(wc -l <"$tmp/headers")" -ge 150 ] || { echo "only $(wc -l <"$tmp/headers") fields were found in the headers"; exit 1; }
diff "$tmp/headers" "$tmp/list" || { echo "src/layer/config/public_structs.def (>) differs from the headers (<)"; exit 1; }
