#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The zsh completion, run in a zsh of its own: the test sends keys, and the screen must hold the completions.
. "$(dirname "$0")/cli_lib.sh"
command -v zsh >/dev/null || { echo "skipped: no zsh"; exit 77; }
folder=$1/shell
export PATH="$1:$PATH" HOME="$tmp" ZDOTDIR="$tmp"
zsh -n "$folder/_moxie" || fail "zsh cannot read it"

cat >"$tmp/drive.zsh" <<'END'
# drive.zsh FOLDER LINE WORD...: completes the line; every word must come up on the screen within two minutes.
zmodload zsh/zpty zsh/zselect || exit 77
folder=$1 line=$2
shift 2
# more: reads what the shell wrote, and fails where it has ended or two minutes are over.
more() {
    while ((SECONDS < 120)); do
        zpty -r -t shell part && { print -rn -- "$part"; seen+=$part; return 0; }
        zpty -t shell || return 1
        zselect -t 5
    done
    return 1
}
zpty shell 'TERM=dumb LINES=100 COLUMNS=200 zsh -f -i'
# Keys that come before the line editor is there may be lost, so it says when it is.
zpty -w shell "PS1= LISTMAX=0; fpath=($folder \$fpath); autoload -Uz compinit; compinit -u -D; bindkey '^I' list-choices
zle-line-init() { print edi''tor }; zle -N zle-line-init"
until [[ $seen == *editor* ]]; do more || exit 1; done
zpty -w -n shell "$line"$'\t'
for word; do
    # Words come in any order: what was read is kept.
    until [[ $seen == *"$word"* ]]; do more || exit 1; done
done
END
# offers LINE WORD...
offers() {
    code=0
    timeout 150 zsh -f "$tmp/drive.zsh" "$folder" "$@" >"$tmp/screen" 2>&1 </dev/null || code=$?
    [ $code != 77 ] || { echo "skipped: zsh has no zpty"; exit 77; }
    [ $code = 0 ] || fail "completions of $*: $(tail -c 600 "$tmp/screen")"
}
# shellcheck disable=SC2046 # a list of words
offers "moxie " $("$moxie" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
for command in $("$moxie" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    # shellcheck disable=SC2046
    offers "moxie $command --" $("$moxie" "$command" --usage | tr -d '\n' | tr ' ' '\n' | sed -n 's/.*\[.*\(--[a-z0-9-]*\).*/\1/p')
done
offers "moxie run --mode=" exact fast
offers "moxie diff --states " normal outliers
offers "moxie synth gpt" gpt-oss-20b gpt-oss-120b
offers "moxie bench --preset=gpt-oss-20b --format=" mxfp4-gptoss bf16
offers "moxie prepare --layout " triton-mxfp4
finish
