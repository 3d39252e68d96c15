#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Shared by the tests that disturb the command-line tool: cli_lib.sh, commands under a time limit, what a folder holds.
. "$(dirname "$0")/../cli/cli_lib.sh"
fault_run=$1/tests/fault_run fault_preload=$1/tests/libfault_preload.so
[ -x "$fault_run" ] || { echo "skipped: $fault_run was not built"; exit 77; }
# The short form is the same in each run; the long one is new each time.
long=${MOXIE_TEST_LONG:-}
seed=${MOXIE_TEST_SEED:-${long:+$(date +%s)}}
seed=${seed:-1}
echo "MOXIE_TEST_SEED=$seed"

# limited SECONDS COMMAND...: sets $outcome to exit, signal or hang, $code, and $took seconds. Output to $tmp/out, $tmp/err.
limited() {
    limit=$1
    shift
    "$fault_run" "$limit" "$tmp/ended" - 0 "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    read -r outcome code took <"$tmp/ended"
}

# random N SEED-TEXT: a whole number from 0 to N-1, the same for the same seeds.
random() {
    echo "$(printf '%s %s' "$seed" "$2" | cksum | cut -d' ' -f1) % $1" | { read -r a _ b; echo $((a % b)); }
}

# held FOLDER: a line for each file with its sum, for each link with its target, and for each folder. OUT.partial, empty,
# may stay where a folder cannot be removed.
held() {
    (cd "$1" && find . -type f -exec sha256sum {} + && find . ! -type f -printf '%y %p %l\n') | grep -v '^d ./out.partial $' |
        LC_ALL=C sort
}

# The sources that the commands read, and the folder where they write.
make_sources() {
    mkdir "$tmp/src"
    "$moxie" synth gpt-oss-20b --layers 2 --experts 4 --hidden 128 --intermediate 64 --shard-bytes 40000 -o "$tmp/src/gptoss"
    "$moxie" synth kimi-k2-thinking --layers 2 --experts 8 --hidden 128 --intermediate 128 -o "$tmp/src/kimi"
    "$moxie" prepare "$tmp/src/gptoss" --layout triton-mxfp4 -o "$tmp/src/prepared"
    "$moxie" run "$tmp/src/gptoss" --tokens 3 -o "$tmp/src/run.safetensors"
}

# perform NAME PREFIX...: runs PREFIX with the command of that name, whose results go to $tmp/case.
perform() {
    name=$1
    shift
    case $name in
    synth) "$@" "$moxie" synth gpt-oss-20b --layers 2 --experts 4 --hidden 128 --intermediate 64 --shard-bytes 40000 -o "$tmp/case/out" ;;
    prepare-triton) "$@" "$moxie" prepare "$tmp/src/gptoss" --layout triton-mxfp4 --threads 2 -o "$tmp/case/out" ;;
    prepare-marlin) "$@" "$moxie" prepare "$tmp/src/kimi" --layout marlin-ct-fp8 --threads 2 --json -o "$tmp/case/out" ;;
    undo) "$@" "$moxie" prepare --undo "$tmp/src/prepared" --threads 2 -o "$tmp/case/out" ;;
    verify) "$@" "$moxie" prepare --verify "$tmp/src/prepared" --threads 2 --json ;;
    list) "$@" "$moxie" prepare --list "$tmp/src/kimi" ;;
    quantize) "$@" "$moxie" quantize "$tmp/src/gptoss" --format int4-ct --threads 2 --json -o "$tmp/case/out" ;;
    quantize-gguf) "$@" "$moxie" quantize "$tmp/src/gptoss" --format gguf-q4_0 --threads 2 --json -o "$tmp/case/out" ;;
    synth-gguf) "$@" "$moxie" synth gpt-oss-20b --format gguf-q8_0 --layers 2 --experts 4 --hidden 128 --intermediate 64 -o "$tmp/case/out" ;;
    run) "$@" "$moxie" run "$tmp/src/gptoss" --tokens 3 --threads 2 -o "$tmp/case/out.safetensors" ;;
    inspect) "$@" "$moxie" inspect "$tmp/src/gptoss" ;;
    lint) "$@" "$moxie" lint "$tmp/src/kimi" --deep --json ;;
    explain) "$@" "$moxie" explain "$tmp/src/kimi" --json ;;
    diff) "$@" "$moxie" diff "$tmp/src/gptoss" --tokens 2 --threads 2 --json ;;
    esac
}
