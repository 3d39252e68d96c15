#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One call of a command fails, or that call and all later ones of its kind: an allocation, a write, a rename, a thread
# that does not start (fault_preload.c). The command must then end by itself, either with 0 and the same result as without
# the fault, or with 3 or 5, a message, and no output. Run again, it must make that result and leave nothing else. The
# sources must not change.
#
# Some 80 faults; MOXIE_TEST_LONG=1: 400; MOXIE_TEST_FAULTS=N: N. Each pair of a command and a kind of call gets a share of
# them, spread by MOXIE_TEST_SEED over the calls that the command makes without faults.
. "$(dirname "$0")/faults_lib.sh"
[ -e "$fault_preload" ] || { echo "skipped: no library to preload beside a sanitizer or an emulator"; exit 77; }
commands="synth synth-gguf quantize quantize-gguf prepare-triton prepare-marlin undo verify list run inspect lint explain diff"
budget=${MOXIE_TEST_FAULTS:-${long:+400}}
budget=${budget:-80}

# preloaded NAME VARIABLE=VALUE...: the command of that name, in an empty $tmp/case.
preloaded() {
    name=$1
    shift
    perform "$name" limited 200 env LD_PRELOAD="$fault_preload" "$@"
}

# The output without times and memory, which differ from run to run.
said() {
    sed -E 's/, [0-9.]+ s$//; /peak memory/d; /"(seconds|peak_memory_bytes|prepare_s|run_ms)"/d' "$1"
}

# A command's result without faults, and how often it calls each kind.
observe() {
    rm -rf "$tmp/case"
    mkdir "$tmp/case"
    preloaded "$1" MOXIE_FAULT_COUNT="$tmp/count"
    [ "$outcome $code" = "exit 0" ] || fail "$1 undisturbed: $outcome $code: $(cat "$tmp/err")"
    held "$tmp/case" >"$tmp/$1.held"
    said "$tmp/out" >"$tmp/$1.said"
    sed "s/^/$1 /" "$tmp/count" >>"$tmp/counts"
}

# Lines "COMMAND KIND N HOW". In each round allocations get three faults, other kinds one, as long as they have calls left.
choose_faults() {
    awk -v budget="$budget" -v seed="$seed" '
        BEGIN {
            srand(seed)
            how["alloc"] = "ENOMEM"; how["write"] = "ENOSPC SHORT EIO EINTR"; how["fsync"] = "EIO ENOSPC"
            how["rename"] = "EIO EROFS"; how["mmap"] = "ENOMEM EAGAIN"; how["thread"] = "EAGAIN"
            how["open"] = "EMFILE EIO ENOMEM"; how["close"] = "EIO ENOSPC"; how["room"] = "ENOSPC EOPNOTSUPP"
            how["mkdir"] = "ENOSPC"; how["unlink"] = "EIO"; how["read"] = "EIO SHORT EINTR"; how["flock"] = "ENOLCK"
            how["stat"] = "EIO EACCES"; how["readdir"] = "EIO"
        }
        $3 > 0 { pairs++; name[pairs] = $1 " " $2; kind[pairs] = $2; calls[pairs] = $3 }
        END {
            while (budget > 0) {
                before = budget
                for (i = 1; i <= pairs; i++)
                    for (part = kind[i] == "alloc" ? 3 : 1; part > 0 && budget > 0 && share[i] < calls[i]; part--) {
                        share[i]++
                        budget--
                    }
                if (budget == before)
                    break
            }
            for (i = 1; i <= pairs; i++)
                for (k = 0; k < share[i]; k++) {
                    n = split(how[kind[i]], words, " ")
                    word = words[int(rand() * n) + 1]
                    stays = rand() < 0.25 && word != "SHORT" && word != "EINTR" ? "+" : ""
                    print name[i], int((k + rand()) * calls[i] / share[i]) + 1 stays, word
                }
        }' "$tmp/counts"
}

equal=0 refused=0 missed=0 bad=0

# The functions around the call that failed, innermost first: "object(function+0x1)[0x2]", or "object(+0x1)[0x2]".
where() {
    grep -v fault_preload "$tmp/log" | head -12 | sed -n 's/^\(.*\)(\(.*\)+\(0x[0-9a-f]*\)).*/\1 \3 \2/p' |
        while read -r object offset function; do
            [ -n "$function" ] || function=$(addr2line -f -e "$object" "$offset" 2>/dev/null | head -1)
            echo "$function"
        done | paste -sd' '
}

# wrong TEXT: the command handled the present fault badly.
wrong() {
    fail "$fault: $1"
    echo "    $(head -c 400 "$tmp/err")"
    [ ! -e "$tmp/log" ] || echo "    in: $(where)"
    bad=$((bad + 1))
}

# A command that ended with 0 must have made the right result and printed the right text.
judge_done() {
    if ! said "$tmp/out" | cmp -s - "$tmp/$1.said"; then
        wrong "exit 0 with another output"
    elif ! held "$tmp/case" | cmp -s - "$tmp/$1.held"; then
        wrong "exit 0 with other files"
    else
        equal=$((equal + 1))
    fi
}

# A command that reported an error: there is no output, and the next run makes all of it. Or all of it is there, when only
# the report could not be printed.
judge_refused() {
    if [ ! -s "$tmp/err" ]; then
        wrong "exit $code without a message"
    elif [ -e "$tmp/case/out" ] || [ -e "$tmp/case/out.safetensors" ]; then
        if held "$tmp/case" | cmp -s - "$tmp/$1.held"; then
            refused=$((refused + 1))
        else
            wrong "exit $code, and there is $(cd "$tmp/case" && find . | paste -sd' ')"
        fi
    else
        preloaded "$1" MOXIE_FAULT_LOG=
        if [ "$outcome $code" != "exit 0" ]; then
            wrong "the run behind it ends with $outcome $code"
        elif ! held "$tmp/case" | cmp -s - "$tmp/$1.held"; then
            wrong "the run behind it leaves $(cd "$tmp/case" && find . | paste -sd' ')"
        else
            refused=$((refused + 1))
        fi
    fi
}

# Which exit codes are right: 5 for memory and threads, 3 for files; also 3 where libc's own allocation for a file fails and
# the message says so.
try() {
    fault="$1 $2:$3:$4"
    rm -rf "$tmp/case" "$tmp/log"
    mkdir "$tmp/case"
    preloaded "$1" MOXIE_FAULT="$2:$3:$4" MOXIE_FAULT_LOG="$tmp/log"
    [ -e "$tmp/log" ] || missed=$((missed + 1))
    case "$outcome $code $2" in
    "exit 0 "*) judge_done "$1" ;;
    "exit 3 alloc" | "exit 3 thread")
        if grep -q "Cannot allocate memory" "$tmp/err"; then judge_refused "$1"; else wrong "exit 3"; fi
        ;;
    "exit 3 "* | "exit 5 "*) judge_refused "$1" ;;
    *) wrong "$outcome $code" ;;
    esac
}

make_sources >/dev/null
held "$tmp/src" >"$tmp/src.held"
for command in $commands; do
    observe "$command"
done
choose_faults >"$tmp/faults"
while read -r name kind n how; do
    try "$name" "$kind" "$n" "$how"
done <"$tmp/faults"
held "$tmp/src" | cmp -s - "$tmp/src.held" || fail "the sources changed"
echo "$(wc -l <"$tmp/faults") faults: $equal exits 0 with equal output, $refused refused and made by the next run, $bad bad" \
    "($missed of them where no call came to it)"
finish
