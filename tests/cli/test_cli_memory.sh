#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A failing allocation, anywhere, gives a message and exit code 5, or the whole usual output: never a signal, never an
# object without one of its keys.
. "$(dirname "$0")/cli_lib.sh"
preload=$1/tests/libfault_preload.so
[ -e "$preload" ] || { echo "skipped: no library to preload beside a sanitizer or an emulator"; exit 77; }
export MOXIE_NCCL_LIBRARY="$tmp/none" # a real one does not survive failed allocations while it is loaded
export MOXIE_URING_LIBRARY="$tmp/none" # why io_uring cannot be used may be memory

synth granite-3.1-1b-a400m mxfp4-ct "$tmp/model"
model=$tmp/model
hand="--experts 8 --top-k 2 --hidden 64 --intermediate 96"

# one NUMBER [ALL] COMMAND...: with allocation NUMBER failing. Sets $code.
one() {
    number=$1 forever=$2
    shift 2
    code=0
    env MOXIE_FAULT="alloc:$number${forever:++}:ENOMEM" LD_PRELOAD="$preload" "$@" >"$tmp/out" 2>"$tmp/err" || code=$?
    case "$code" in
    0) grep -v "needs libmoxie_cuda" "$tmp/out" | cmp -s - "$tmp/whole" || fail "exit code 0 with other output when allocation $number fails: $*" ;;
    5) [ -s "$tmp/err" ] || fail "exit code 5 without a message when allocation $number fails: $*" ;;
    *) fail "exit code $code when allocation $number ${forever:+and all later ones }fails: $* -- $(head -c 300 "$tmp/err")" ;;
    esac
}
# each COMMAND...: fails the first allocations one by one, then ever fewer of the others. The output must have no times.
each() {
    "$@" | grep -v "needs libmoxie_cuda" >"$tmp/whole" # why it cannot be opened may be memory
    number=1 met=0
    while [ "$number" -lt 30000 ]; do
        one "$number" "" "$@"
        [ "$code" != 5 ] || met=$((met + 1))
        one "$number" forever "$@"
        [ "$code" != 0 ] || break
        number=$((number + 1 + number / 5))
    done
    [ "$met" -gt 1 ] || fail "only $met allocations made a difference: $*"
}
each "$moxie" synth --list
each "$moxie" synth --list --json
each "$moxie" info
each "$moxie" info --json
# shellcheck disable=SC2086 # several words
each "$moxie" explain $hand
# shellcheck disable=SC2086
each "$moxie" explain $hand --json
each "$moxie" inspect "$model"
each "$moxie" inspect "$model" --json
each "$moxie" diff "$model" --against "$model" --json
each "$moxie" prepare --list
each "$moxie" prepare --list --json
printf '{"schema_version": 1, "command": "run", "tokens": 2, "experts": 3, "top_k": 2, "topk_ids": [-1, 3, 2, 2]}' >"$tmp/run.json"
each "$moxie" report --run "$tmp/run.json" -o "$tmp/page.html" --json
# An error must also be reported without memory: exit code 5 or the error's own.
for number in 1 2 3 4 5 6 8 10 15 20 40; do
    for forever in "" 1; do
        code=0
        env MOXIE_FAULT="alloc:$number${forever:++}:ENOMEM" LD_PRELOAD="$preload" \
            "$moxie" inspect "$tmp/nowhere$(printf '\351')" --json >"$tmp/out" 2>"$tmp/err" || code=$?
        case "$code" in
        3 | 5) [ -s "$tmp/err" ] || fail "no message when allocation $number of a refusal fails" ;;
        *) fail "exit code $code when allocation $number of a refusal fails: $(head -c 300 "$tmp/err")" ;;
        esac
    done
done
# Times differ from run to run: only the codes.
for number in 1 3 8 21 55 144 377; do
    for arguments in "run $model --tokens 1 --json" "bench $model --tokens 1 --repeats 1 --limits $tmp/limits --json" \
        "run --preset granite-3.1-1b-a400m --experts 8 --tokens 1" "diff $model --tokens 1"; do
        [ -e "$tmp/limits" ] || "$moxie" info --limits "$tmp/limits" >/dev/null
        code=0
        # shellcheck disable=SC2086
        env MOXIE_FAULT=alloc:$number:ENOMEM LD_PRELOAD="$preload" "$moxie" $arguments >"$tmp/out" 2>"$tmp/err" || code=$?
        [ "$code" = 0 ] || [ "$code" = 5 ] || fail "exit code $code when allocation $number fails: $arguments -- $(head -c 300 "$tmp/err")"
    done
done
finish
