#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Odd files in the place of each input: /dev/zero, a pipe without a writer, a file of 1 TB without data, a folder, a link to
# itself, an empty file, a file that may not be read. Each is refused at once (within 20 s, because the machine may be busy)
# with the documented exit code and a message that names it, and nothing is written.
. "$(dirname "$0")/faults_lib.sh"
kinds="zeros pipe huge folder loop empty"
[ "$(id -u)" = 0 ] || kinds="$kinds unreadable"
[ "$(id -u)" != 0 ] || echo "root reads every file: none that may not be read"

patience=20

# A limit, in case a command reads without end. (Sanitizers reserve more than any limit.)
limit=4000000
{ (ulimit -v "$limit" && "$moxie" --version >"$tmp/out") || limit=unlimited; } 2>"$tmp/err"

lay() {
    rm -rf "$2"
    case $1 in
    zeros) ln -s /dev/zero "$2" ;;
    pipe) mkfifo "$2" ;;
    huge) truncate -s 1T "$2" ;;
    folder) mkdir "$2" ;;
    loop) ln -s "$(basename "$2")" "$2" ;;
    empty) : >"$2" ;;
    unreadable) echo 1 >"$2" && chmod 000 "$2" ;;
    esac
}

tried=0 bad=0

# refused CODES NAME COMMAND...: the command ends soon, with one of these codes (a shell pattern), and names the file.
refused() {
    codes=$1 named=$2
    shift 2
    rm -rf "$tmp/case/out" "$tmp/case/out.partial"
    (ulimit -v "$limit" && limited $((patience + 3)) "$@" && echo "$outcome $code $took" >"$tmp/outcome")
    read -r outcome code took <"$tmp/outcome"
    tried=$((tried + 1))
    before=$failures
    # shellcheck disable=SC2254 # a pattern
    case $code in
    $codes) ;;
    *) fail "$kind $named: $outcome $code after $took s: $* $(head -c 300 "$tmp/err")" ;;
    esac
    [ "$outcome" != exit ] || [ "$code" = 0 ] || grep -qF -- "$named" "$tmp/err" ||
        fail "$kind $named: the message does not name it: $* $(head -c 300 "$tmp/err")"
    awk -v took="$took" -v most="$patience" 'BEGIN { exit !(took > most) }' && fail "$kind $named: only after $took s: $*"
    [ ! -e "$tmp/case/out" ] || fail "$kind $named: something was written: $*"
    bad=$((bad + (failures > before)))
}

# each SOURCE FILE CODES COMMAND...: every odd file in the place of FILE in a copy of $tmp/src/SOURCE at $tmp/case/in.
each() {
    source=$1 file=$2 codes=$3
    shift 3
    for kind in $kinds; do
        rm -rf "$tmp/case"
        mkdir "$tmp/case"
        cp -r "$tmp/src/$source" "$tmp/case/in"
        lay "$kind" "$tmp/case/in/$file"
        refused "$codes" "$file" "$@"
    done
}

# Checkpoints whose quantization is described in a separate file.
apart() {
    "$moxie" synth qwen3-30b-a3b --format "$1" --layers 1 --experts 8 --hidden 128 --intermediate 128 -o "$tmp/src/$1" >/dev/null
    whole=$tmp/src/$1/config.json
    { echo "{" && sed -n '/"quantization_config"/,$p' "$whole" | sed '1d;$d'; } >"$tmp/src/$1/$2"
    { sed '/"quantization_config"/,$d' "$whole" && echo '"pad_token_id": 0 }'; } >"$tmp/whole" && mv "$tmp/whole" "$whole"
    expect 0 "$1|AWQ|awq|NVFP4|gptq" "$moxie" inspect "$tmp/src/$1"
}

make_sources >/dev/null
apart gptq quantize_config.json
apart nvfp4-modelopt hf_quant_config.json
in=$tmp/case/in out=$tmp/case/out
shard=model-00002-of-00004.safetensors

# The checkpoint's own files.
for file in config.json model.safetensors.index.json "$shard"; do
    each gptoss "$file" 3 "$moxie" inspect "$in"
    each gptoss "$file" 3 "$moxie" run "$in" --tokens 1 -o "$out"
    each gptoss "$file" 3 "$moxie" explain "$in"
    each gptoss "$file" 3 "$moxie" prepare "$in" --layout triton-mxfp4 -o "$out"
done
each kimi model.safetensors 3 "$moxie" inspect "$in"
each kimi model.safetensors 3 "$moxie" diff "$tmp/src/kimi" --against "$in"
each kimi config.json 3 "$moxie" prepare --list "$in"
each gptq quantize_config.json 3 "$moxie" inspect "$in"
each nvfp4-modelopt hf_quant_config.json 3 "$moxie" inspect "$in"
# These files are only copied to the prepared folder: an empty file gives an empty copy.
all_kinds=$kinds kinds=$(echo "$kinds" | sed 's/ empty//')
each gptoss quantize_config.json 3 "$moxie" prepare "$in" --layout triton-mxfp4 -o "$out"
each gptoss hf_quant_config.json 3 "$moxie" prepare "$in" --layout triton-mxfp4 -o "$out"
kinds=$all_kinds

# A prepared folder's files. --verify exits with 1 where a file is wrong.
for file in moxie_prepare.json model.safetensors.index.json layer-00001.safetensors config.json; do
    each prepared "$file" "[13]" "$moxie" prepare --verify "$in"
    [ "$file" = model.safetensors.index.json ] || each prepared "$file" 3 "$moxie" prepare --undo "$in" -o "$out"
done
# The same in what an interrupted run left: refused, or made again.
for kind in $kinds; do
    for file in moxie_prepare.json config.json layer-00000.safetensors; do
        rm -rf "$tmp/case"
        mkdir "$tmp/case"
        cp -r "$tmp/src/prepared" "$tmp/case/again.partial"
        lay "$kind" "$tmp/case/again.partial/$file"
        refused "[03]" again.partial "$moxie" prepare "$tmp/src/gptoss" --layout triton-mxfp4 -o "$tmp/case/again"
    done
done

# Files that options name.
for kind in $kinds; do
    rm -rf "$tmp/case"
    mkdir "$tmp/case"
    for file in odd odd.safetensors; do
        lay "$kind" "$tmp/case/$file"
        refused 3 "$file" "$moxie" run "$tmp/src/gptoss" --input "$tmp/case/$file" -o "$out"
        refused 3 "$file" "$moxie" bench "$tmp/src/gptoss" --routing "$tmp/case/$file" --tokens 1 --repeats 1
    done
    refused 3 odd "$moxie" bench "$tmp/src/gptoss" --limits "$tmp/case/odd" --tokens 1 --repeats 1
    refused 3 odd "$moxie" info --limits "$tmp/case/odd"
    [ "$kind" = folder ] || refused 3 odd "$moxie" inspect "$tmp/case/odd"
    if "$moxie" bench --help | grep -q -- --compare; then
        refused 3 odd "$moxie" bench "$tmp/src/gptoss" --compare "$tmp/case/odd" --tokens 1 --repeats 1
    fi
done
echo "$tried odd files: $((tried - bad)) refused in time, $bad bad"
finish
