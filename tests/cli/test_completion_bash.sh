#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The bash completion, sourced and called as bash does: it offers each command, each option of --help, the values that
# the tool accepts, and nothing that it rejects.
. "$(dirname "$0")/cli_lib.sh"
export PATH="$1:$PATH"
file=$1/shell/moxie.bash
[ -f "$file" ] || fail "$file was not built"
# shellcheck disable=SC1090 # made by the build
. "$file"
compopt() { :; } # bash has it only while it completes

# complete_words WORD...: COMPREPLY for the last word. bash splits at "=".
complete_words() {
    local word
    COMP_WORDS=()
    for word in "$@"; do
        case $word in
        --*=) COMP_WORDS+=("${word%=}" =) ;;
        --*=*) COMP_WORDS+=("${word%%=*}" = "${word#*=}") ;;
        *) COMP_WORDS+=("$word") ;;
        esac
    done
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _moxie
}
# offers "WORDS..." WORD...: those are the completions of the last word.
offers() {
    local want=$1
    shift
    complete_words "$@"
    [ "${COMPREPLY[*]}" = "$want" ] || fail "completions of $*: ${COMPREPLY[*]} -- instead of $want"
}
help_of() { "$moxie" "$@" --help; }

commands=$("$moxie" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | tr '\n' ' ')
[ "$(echo "$commands" | wc -w)" -ge 8 ] || fail "commands: $commands"
offers "$commands--help --version" moxie ""
offers "prepare" moxie pre
for command in $commands; do
    # The options that argp prints for the usage message, another source than the completion's.
    want=$("$moxie" "$command" --usage | tr -d '\n' | tr ' ' '\n' | sed -n 's/.*\[.*\(--[a-z0-9-]*=\{0,1\}\).*/\1/p' | sort | tr '\n' ' ')
    [ "$(echo "$want" | wc -w)" -ge 4 ] || fail "options of $command: $want"
    complete_words moxie "$command" --
    got=$(printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' ')
    [ "$got" = "$want" ] || fail "options of $command: $got -- instead of $want"
done

# Values: what is offered is taken, and all of what is taken is offered.
offers "exact fast" moxie run --mode=
offers "fast" moxie bench --mode=fa
offers "fast" moxie diff --mode fa
offers "normal outliers" moxie diff --states ""
offers "auto ref cpu cuda" moxie explain --backend=
offers "bf16 f16 f32" moxie explain --dtype ""
offers "linear round-robin" moxie prepare --ep-map=
complete_words moxie bench --routing=
[[ " ${COMPREPLY[*]} " == *" uniform zipf one-hot skewed "* ]] || fail "completions of bench --routing: ${COMPREPLY[*]}"
for option in activation routing scheme isa activations; do
    complete_words moxie explain "--$option="
    [ ${#COMPREPLY[@]} -ge 2 ] || fail "no values of explain --$option: ${COMPREPLY[*]}"
    for value in "${COMPREPLY[@]}"; do
        code=0
        "$moxie" explain --experts 4 --top-k 2 --hidden 256 --intermediate 128 "--$option=$value" >/dev/null 2>"$tmp/err" || code=$?
        [ $code != 2 ] || ! grep -qE "unknown|no routing|is one of|names no|there is no" "$tmp/err" || fail "offered, but refused: --$option=$value: $(cat "$tmp/err")"
    done
done

# What is asked of the tool when the completion runs.
presets=$("$moxie" synth --list | awk 'NR > 1 { print $1 }' | tr '\n' ' ')
offers "${presets% }" moxie bench --preset=
offers "gpt-oss-20b gpt-oss-120b" moxie synth gpt-
gguf=$("$moxie" info --support 2>/dev/null | grep -oE '\bgguf-[a-z0-9_]+' | awk '!seen[$0]++' | paste -sd' ')
[ "$(echo "$gguf" | wc -w)" -ge 19 ] || fail "GGUF formats: $gguf"
offers "mxfp4-gptoss bf16 $gguf" moxie synth gpt-oss-20b --format ""
offers "gguf-q5_k gguf-q5_k_m" moxie quantize in --format gguf-q5_k
offers "int4-ct-asym int4-ct-g32 int4-ct int4-ct-tensor" moxie quantize --format=int4-ct
offers "mxfp4-gptoss" moxie bench --preset=gpt-oss-20b --format=mx
layouts=$("$moxie" prepare --list --json | sed -n 's/^ *"name": "\(.*\)".*/\1/p' | awk '!seen[$0]++' | tr '\n' ' ')
[ -n "$layouts" ] || fail "no layouts in prepare --list --json"
offers "${layouts% }" moxie prepare --layout ""

mkdir -p "$tmp/here/a model"
touch "$tmp/here/in.safetensors"
cd "$tmp/here"
offers "a model" moxie run ""
offers "a model" moxie prepare -o ""
offers "in.safetensors" moxie run --input=in
offers "" moxie run --tokens ""
finish
