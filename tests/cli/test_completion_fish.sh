#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The fish completion: each command, each option of --help, and values, as fish itself lists them.
. "$(dirname "$0")/cli_lib.sh"
command -v fish >/dev/null || { echo "skipped: no fish"; exit 77; }
file=$1/shell/moxie.fish
export PATH="$1:$PATH" HOME="$tmp" XDG_CONFIG_HOME="$tmp" XDG_DATA_HOME="$tmp"
fish -n "$file" || fail "fish cannot read it"

# offers "WORDS" LINE: those are what completes the line, sorted, without their descriptions.
offers() {
    got=$(fish -c "source $file; complete -C '$2'" 2>&1 | cut -f1 | sort | tr '\n' ' ')
    [ "${got% }" = "$1" ] || fail "completions of $2: $got -- instead of $1"
}
commands=$("$moxie" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | sort | tr '\n' ' ')
offers "${commands% }" "moxie "
offers "--help --version" "moxie --"
for command in $commands; do
    want=$("$moxie" "$command" --usage | tr -d '\n' | tr ' ' '\n' | sed -n 's/.*\[.*\(--[a-z0-9-]*\).*/\1/p' | sort | tr '\n' ' ')
    offers "${want% }" "moxie $command --"
done
offers "--mode=exact --mode=fast" "moxie run --mode="
offers "normal outliers" "moxie diff --states "
offers "gpt-oss-120b gpt-oss-20b" "moxie synth gpt-"
offers "--format=mxfp4-gptoss" "moxie bench --preset=gpt-oss-20b --format=mx"
offers "bf16" "moxie synth gpt-oss-20b --format b"
offers "gguf-iq4_nl gguf-iq4_xs" "moxie synth gpt-oss-20b --format gguf-iq4"
"$moxie" prepare --list --json | grep -q '"name": "triton-mxfp4"' || fail "no layout triton-mxfp4"
fish -c "source $file; complete -C 'moxie prepare --layout '" | cut -f1 | grep -qx triton-mxfp4 || fail "no layouts"
finish
