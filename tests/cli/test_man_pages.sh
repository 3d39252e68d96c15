#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A man page for the tool and for each sub-command, with every option of --help; groff and lexgrog read them without a
# complaint, where they are installed.
. "$(dirname "$0")/cli_lib.sh"
folder=$1/shell/man1
grep -q "MOXIE_HELP2MAN:FILEPATH=.*NOTFOUND" "$1/CMakeCache.txt" && { echo "skipped: help2man was not found, so there are none"; exit 77; }

commands=$("$moxie" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
want=$(for command in $commands; do echo "moxie-$command.1"; done | sort | tr '\n' ' ')
got=$(cd "$folder" && echo moxie-*.1)
[ "$got" = "${want% }" ] || fail "pages: $got -- instead of $want"
for command in "" $commands; do
    page=$folder/moxie${command:+-$command}.1
    name=moxie${command:+-$command}
    grep -q "^$name \\\\- [a-z]" "$page" || fail "$name: no line for apropos: $(grep -A1 '^.SH NAME' "$page")"
    grep -q "^\.TH $(echo "$name" | tr '[:lower:]' '[:upper:]') .*$("$moxie" --version | sed -n '1s/^moxie \([0-9.]*\).*/\1/p')" "$page" ||
        fail "$name: title without name or version: $(grep '^.TH' "$page")"
    grep -q "^\.SH \"SEE ALSO\"" "$page" || fail "$name: no other page is named"
    for option in $([ -z "$command" ] || "$moxie" "$command" --usage | tr -d '\n' | tr ' ' '\n' | sed -n 's/.*\[.*--\([a-z0-9-]*\).*/\1/p'); do
        grep -q "^.*\\\\-\\\\-$(echo "$option" | sed 's/-/\\\\-/g')\\\\fR" "$page" || fail "$name: no --$option"
    done
    if command -v groff >/dev/null; then
        groff -man -Tutf8 -ww "$page" >/dev/null 2>"$tmp/err"
        [ ! -s "$tmp/err" ] || fail "$name: $(head -3 "$tmp/err")"
    fi
    ! command -v lexgrog >/dev/null || lexgrog "$page" >/dev/null || fail "$name: lexgrog finds no name"
done
for command in $commands; do
    grep -q "BR moxie-$command (1)" "$folder/moxie.1" || fail "moxie.1 does not name moxie-$command"
done
finish
