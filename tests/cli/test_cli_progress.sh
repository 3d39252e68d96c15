#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A command that loads a layer draws a bar on stderr when that is a terminal, and removes it at the end. It draws none
# into a file, into a pipe or with --json.
. "$(dirname "$0")/cli_lib.sh"
command -v script >/dev/null || { echo "skipped: no script(1), which lends a terminal"; exit 77; }
# Where there is no pseudo-terminal (no /dev/ptmx, no devpts), script(1) cannot make one.
if ! script -qec "test -t 2" /dev/null </dev/null >"$tmp/out" 2>&1; then
    echo "skipped: no pseudo-terminal here: $(head -1 "$tmp/out" | tr -d '\r')"
    exit 77
fi

# on_terminal COMMAND: its stderr, as a terminal got it, one line for each time the cursor went back.
on_terminal() {
    script -qec "$1 >$tmp/out" /dev/null </dev/null | tr '\r' '\n' >"$tmp/screen"
}

synth gpt-oss-20b mxfp4-gptoss "$tmp/model"
for command in "run $tmp/model --tokens 1" "diff $tmp/model --a cpu --b ref --tokens 1"; do
    on_terminal "'$moxie' $command"
    grep -q "^prepare  *\[#* *\] *[0-9]*%$" "$tmp/screen" || fail "no bar on a terminal: moxie $command"
    grep -q "^prepare  *\[########################################\] 100%$" "$tmp/screen" || fail "no full bar: moxie $command"
    [ -z "$(tail -n 1 "$tmp/screen" | tr -d ' \n')" ] || fail "something stays on the terminal: moxie $command"
    grep -q '\[##' "$tmp/out" && fail "the bar went to stdout: moxie $command"
done
on_terminal "'$moxie' run $tmp/model --tokens 1 --json"
[ ! -s "$tmp/screen" ] || fail "--json drew on the terminal: $(cat "$tmp/screen")"
"$moxie" run "$tmp/model" --tokens 1 >"$tmp/out" 2>"$tmp/err"
[ ! -s "$tmp/err" ] || fail "a file got the bar: $(cat "$tmp/err")"
finish
