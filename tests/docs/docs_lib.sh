# SPDX-License-Identifier: Apache-2.0
# Runs a page of docs/ as it is written, beside an installed copy of the build folder $1 (../bindings/bindings_lib.sh):
#
#     ```LANGUAGE FILE    becomes that file in a fresh directory
#     ```sh               runs there, in the page's order, with $MOXIE as the source tree
#     ```text             is what the block before it prints; figures may differ, and "..." stands for any lines
. "$(dirname "$0")/../bindings/bindings_lib.sh"

# Files to $tmp/work, steps to $tmp/steps: 1.sh, 1.text, 2.sh, ...
cut_page() {
    mkdir -p "$tmp/work" "$tmp/steps"
    awk -v work="$tmp/work" -v steps="$tmp/steps" '
        /^```/ && out != "" { close(out); out = ""; next }
        /^```sh$/ { out = steps "/" ++n ".sh"; next }
        /^```text$/ { out = steps "/" n ".text"; next }
        /^```[a-z]+ [^ ]+$/ { out = work "/" $2; folder = out; sub(/\/[^\/]*$/, "", folder); system("mkdir -p " folder); next }
        /^```/ { out = "/dev/null"; next }
        out != "" { print >out }' "$1"
}

# same WANTED GOT: line by line, any figure for any figure.
same() {
    for file in "$1" "$2"; do
        sed -E 's/-?[0-9][0-9.]*(e[-+]?[0-9]+)?/N/g; s/ +/ /g; s/ $//' "$file" >"$file.plain"
    done
    awk 'NR == FNR { want[++n] = $0; next }
        { if (want[at + 1] == $0 && at < n) at++
          else if (want[at + 1] == "..." && want[at + 2] == $0) at += 2
          else if (want[at + 1] != "..." && !bad) bad = FNR }
        END { if (want[at + 1] == "...") at++; exit bad || at < n }' "$1.plain" "$2.plain"
}

run_page() {
    cut_page "$1"
    [ -e "$tmp/steps/1.sh" ] || fail "$1 has no commands"
    export MOXIE="$root"
    step=1
    while [ -e "$tmp/steps/$step.sh" ]; do
        (cd "$tmp/work" && sh -eu "$tmp/steps/$step.sh") >"$tmp/out" 2>"$tmp/err" ||
            fail "$1, commands $step: $(cat "$tmp/steps/$step.sh"): $(tail -20 "$tmp/err")"
        [ ! -e "$tmp/steps/$step.text" ] || same "$tmp/steps/$step.text" "$tmp/out" ||
            fail "$1 shows $(cat "$tmp/steps/$step.text") -- its commands print $(cat "$tmp/out")"
        step=$((step + 1))
    done
    [ "$(wc -l <"$1")" -le 130 ] || fail "$1 is longer than two screens"
}
