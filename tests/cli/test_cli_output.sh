#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the tool writes: a standard output that cannot be written is always an error, a reader that goes away is none. Odd
# bytes in arguments, paths and names never reach a terminal, and JSON stays valid.
. "$(dirname "$0")/cli_lib.sh"

synth granite-3.1-1b-a400m mxfp4-ct "$tmp/model"
model=$tmp/model
small="--experts 8 --top-k 2 --hidden 64 --intermediate 96"
limits=$tmp/limits.json
"$moxie" info --limits "$limits" >/dev/null

# ---- standard output ----
# lost REASON REDIRECTION COMMAND...: exit code 3, and the reason on standard error.
lost() {
    reason=$1 to=$2
    shift 2
    code=0
    if [ "$to" = closed ]; then
        "$@" >&- 2>"$tmp/err" || code=$?
    else
        "$@" >"$to" 2>"$tmp/err" || code=$?
    fi
    [ "$code" = 3 ] || fail "exit code $code instead of 3 with standard output $to: $*"
    grep -q "cannot write to standard output: $reason" "$tmp/err" || fail "no reason with standard output $to: $* -- $(cat "$tmp/err")"
}
for arguments in --help --version "info" "info --json" "synth --list" "synth --list --json" "inspect $model" \
    "inspect $model --json" "explain $small" "explain $small --json" "run $model --tokens 1" "run $model --tokens 1 --json" \
    "diff $model --tokens 1" "diff $model --tokens 1 --json" "diff $model --against $model" \
    "bench $model --tokens 1 --repeats 1 --limits $limits" "bench $model --tokens 1 --repeats 1 --limits $limits --json" \
    "prepare --list" "prepare --list $model --json" "info --help" "synth --help" "inspect --help" "explain --help" \
    "run --help" "diff --help" "bench --help" "prepare --help" "run --version"; do
    # shellcheck disable=SC2086 # several words
    [ ! -c /dev/full ] || lost "No space left on device" /dev/full "$moxie" $arguments
done
for arguments in --help --version "info --json" "synth --list" "inspect $model" "explain $small --json" "run $model --tokens 1" \
    "diff $model --against $model" "prepare --list --json" "bench --help" "run --version"; do
    # shellcheck disable=SC2086
    lost "Bad file descriptor" closed "$moxie" $arguments
done
# A command without output loses nothing; an error of another kind keeps its code.
code=0
"$moxie" run "$model" --tokens many >&- 2>/dev/null || code=$?
[ "$code" = 2 ] || fail "a usage error with a closed standard output: exit code $code"
if [ -c /dev/full ]; then
    code=0
    "$moxie" bench "$model" --backend cuda --device 0 --json >/dev/full 2>"$tmp/err" || code=$?
    [ "$code" = 4 ] || [ "$code" = 3 ] || fail "an unsupported back end into a full disk: exit code $code"
fi
# A file that the command opens must not become standard output.
"$moxie" synth granite-3.1-1b-a400m --format mxfp4-ct -o "$tmp/again" --layers 1 --experts 16 --hidden 256 --intermediate 128 \
    >&- 2>/dev/null && fail "synth with a closed standard output: exit code 0"
cmp "$model/model.safetensors" "$tmp/again/model.safetensors" || fail "what belongs on a closed standard output went into a file"
"$moxie" run "$model" --tokens 2 >/dev/null -o "$tmp/good.safetensors"
"$moxie" run "$model" --tokens 2 -o "$tmp/closed.safetensors" >&- 2>/dev/null && fail "run with a closed standard output: exit code 0"
cmp "$tmp/good.safetensors" "$tmp/closed.safetensors" || fail "a closed standard output changed a run's file"

# A reader that has gone: no message, and the code of the signal.
gone() {
    rm -f "$tmp/reader_gone"
    {
        while [ ! -e "$tmp/reader_gone" ]; do sleep 0.05; done
        code=0
        "$@" 2>"$tmp/err" || code=$?
        echo "$code" >"$tmp/code"
    } | : >"$tmp/reader_gone"
    [ "$(cat "$tmp/code")" = 141 ] || fail "exit code $(cat "$tmp/code") when the reader has gone: $*"
    [ ! -s "$tmp/err" ] || fail "a message when the reader has gone: $(cat "$tmp/err")"
}
gone "$moxie" info --json
gone "$moxie" run --help
gone env --ignore-signal=PIPE "$moxie" info

# ---- odd bytes ----
escape=$(printf '\033[31m') latin=$(printf 'caf\351') bell=$(printf '\007')
is_json() {
    if command -v python3 >/dev/null; then
        python3 -c 'import json, sys; json.load(open(sys.argv[1], encoding="utf-8"))' "$tmp/out" || fail "no JSON from: $*"
    fi
    grep -q '"schema_version": 1' "$tmp/out" || fail "no JSON from: $*"
}
# quiet COMMAND...: prints no control byte but newlines; with --json prints an object.
quiet() {
    code=0
    "$@" >"$tmp/out" 2>"$tmp/err" || code=$?
    cat "$tmp/out" "$tmp/err" | LC_ALL=C tr -d '\n' | LC_ALL=C grep -q "[[:cntrl:]]" && fail "control bytes from: $* -- $(cat -v "$tmp/out" "$tmp/err" | head -5)"
    for word in "$@"; do
        [ "$word" != --json ] || [ "$code" = 2 ] || is_json "$@"
    done
}
for odd in "a${escape}b" "$latin" "x${bell}y"; do
    cp -r "$model" "$tmp/$odd"
    for json in "" --json; do
        # shellcheck disable=SC2086 # nothing, or one word
        {
            quiet "$moxie" inspect "$tmp/$odd" $json
            [ "$code" = 0 ] || fail "inspect of a directory with an odd name: exit code $code"
            quiet "$moxie" diff "$tmp/$odd" --against "$tmp/$odd" $json
            [ "$code" = 0 ] || fail "diff of a directory with an odd name: exit code $code"
            quiet "$moxie" synth gpt-oss-20b -o "$tmp/new$odd$json" --layers 1 --experts 4 --hidden 64 --intermediate 64 $json
            [ "$code" = 0 ] || fail "synth into a directory with an odd name: exit code $code"
            quiet "$moxie" prepare "$tmp/$odd" --layout no-such -o "$tmp/out$odd" $json
            quiet "$moxie" explain "$tmp/no$odd" $json
            quiet "$moxie" run "$tmp/no$odd" $json
            quiet "$moxie" run "$tmp/$odd" --input "$tmp/no$odd" $json
            quiet "$moxie" run "$tmp/$odd" --tokens 1 -o "$tmp/no$odd/out" $json
            quiet "$moxie" bench "$tmp/$odd" --routing "$tmp/no$odd" $json
            quiet "$moxie" info --limits "$tmp/no$odd/limits" $json
            quiet env "MOXIE_CUDA_LIBRARY=$tmp/no$odd" "$moxie" info $json
        }
    done
    for arguments in "run --preset" "run --format" "bench --acts-of" "explain --scheme" "explain --routing" "explain --activation" \
        "run --isa" "run --mode" "run --backend" "run --device" "run --tokens" "run --states" "diff --a" "prepare --layers" \
        "prepare --tp" "prepare --ep-map" "info" "info --threads" "synth" "bench --plot" "explain --dtype"; do
        # shellcheck disable=SC2086
        quiet "$moxie" $arguments "$odd"
        [ "$code" = 2 ] || fail "exit code $code instead of 2: moxie $arguments with odd bytes"
    done
    quiet "$moxie" "$odd"
    quiet "$moxie" run "--$odd"
    quiet "$moxie" run "-$odd"
    quiet "$moxie" run "$model" "$odd"
    quiet env "MOXIE_MAX_ISA=$odd" "$moxie" info
    [ "$code" = 2 ] || fail "exit code $code instead of 2: MOXIE_MAX_ISA with odd bytes"
done
for json in "" --json; do
    # shellcheck disable=SC2086
    quiet "$moxie" bench "$tmp/$latin" --tokens 1 --repeats 1 --limits "$limits" $json
    [ "$code" = 0 ] || fail "bench of a directory with an odd name: exit code $code"
done
# A name inside a file.
cp -r "$model" "$tmp/named"
sed -i 's/"model_type": *"[a-z]*"/"model_type": "gran\\u001b[31mite"/' "$tmp/named/config.json"
quiet "$moxie" inspect "$tmp/named"
quiet "$moxie" inspect "$tmp/named" --json
# Wrong options leave standard output empty, with --json too; a failure has one object.
for arguments in "run --json --frobnicate" "run --json" "run $model --json --tokens x"; do
    code=0
    # shellcheck disable=SC2086
    "$moxie" $arguments >"$tmp/out" 2>"$tmp/err" || code=$?
    [ "$code" = 2 ] && [ ! -s "$tmp/out" ] && [ -s "$tmp/err" ] || fail "moxie $arguments: code $code, $(cat "$tmp/out")"
done
expect 3 "\"status\": \"io\"" "$moxie" inspect "$tmp/nowhere" --json
finish
