#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks the documents: their links exist, every public header is listed, and the commands, options and files in them exist.
. "$(dirname "$0")/../cli/cli_lib.sh"
documents="README.md CONTRIBUTING.md docs/*.md"

# shellcheck disable=SC2086 # a list of files
for document in $documents; do
    grep -o '](\([^)#]*\)' "$document" | sed 's/^](//' | grep -v '^[a-z]*://' | while read -r link; do
        [ -e "$(dirname "$document")/$link" ] || echo "$document: $link"
    done
done >"$tmp/dead"
[ ! -s "$tmp/dead" ] || fail "links that lead nowhere: $(cat "$tmp/dead")"

for header in include/moxie/*.h; do
    grep -q "\`$(basename "$header")\`" docs/architecture.md || fail "docs/architecture.md does not list $(basename "$header")"
done
for list in docs/*.md; do
    grep -q "$list" README.md || fail "README.md does not list $list"
done
grep -qi "bindings" docs/architecture.md && [ ! -d bindings ] && fail "docs/architecture.md speaks of bindings; there is no such folder"

# "moxie COMMAND --option ..." in blocks of code, which are indented or between fences, and in `...`.
# shellcheck disable=SC2086
awk '/^```/ { fenced = !fenced } fenced || /^    /' $documents | sed -nE 's/^ *(moxie [a-z]+ .*)$/\1/p' >"$tmp/commands"
# shellcheck disable=SC2086
sed -nE 's/.*`(moxie [a-z]+ [^`]*)`.*/\1/p' $documents >>"$tmp/commands"
[ "$(wc -l <"$tmp/commands")" -gt 20 ] || fail "hardly a command was found in the documents"
sed 's/ # .*//; s/[&|;].*//' "$tmp/commands" | sort -u | while read -r _ command arguments; do
    "$moxie" "$command" --usage >"$tmp/usage" 2>/dev/null || echo "moxie $command $arguments"
    for option in $(echo "$arguments" | tr ' ' '\n' | grep -oE '^--[a-z0-9-]+'); do
        tr ' ' '\n' <"$tmp/usage" | grep -qE "^\[$option(=|\])" || echo "moxie $command $option"
    done
done >"$tmp/unknown"
[ ! -s "$tmp/unknown" ] || fail "no such command or option: $(cat "$tmp/unknown")"

for target in $(grep -ohE '^ *make [a-z]+' README.md CONTRIBUTING.md | awk '{ print $2 }' | sort -u); do
    grep -qE "^$target:" Makefile || fail "no such target: make $target"
done
find src include tools python bindings tests bench fuzz examples scripts cmake -type f | sed 's/^/\//' >"$tmp/files"
for file in $(grep -ohE '`([a-z0-9_-]+/)+[a-z0-9_]+\.(c|h|cu|cuh|def|sh|py)`' README.md CONTRIBUTING.md docs/*.md | tr -d '`' | sort -u); do
    [ "$file" = src/format/f4_e3m0.h ] || # of the format that docs/adding-a-format.md makes up
        grep -q "/$file\$" "$tmp/files" || fail "no such file: $file"
done
for script in $(grep -ohE '\bscripts/[a-z0-9-]+' README.md CONTRIBUTING.md docs/*.md | sort -u); do
    [ -x "$script" ] || fail "no such script: $script"
done
finish
