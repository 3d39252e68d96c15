#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Commands that write are killed: at random moments, at one of their writes or renames, and while a second one writes the
# same output. Afterwards
#   - the command has died of that signal, or had ended before;
#   - the output does not exist, or is the whole result; --verify does not accept OUT.partial as one;
#   - after SIGTERM and SIGINT no temporary file is left;
#   - files of others are unchanged: next to the output, in OUT.partial, behind a link of that name;
#   - the same command, run again, makes the same bytes and leaves nothing else.
# quantize is killed at each call that makes, renames or removes a file: run again, it ends with the result and nothing else.
#
# Some 20 kills; MOXIE_TEST_LONG=1: 100 and more; MOXIE_TEST_KILLS=N: N. MOXIE_TEST_SEED chooses them.
. "$(dirname "$0")/faults_lib.sh"
commands="synth prepare-triton prepare-marlin undo run quantize quantize-gguf"
kills=${MOXIE_TEST_KILLS:-${long:+140}}
kills=${kills:-21}

# An empty $tmp/case but for files of others, with names like those of temporary files.
fresh() {
    rm -rf "$tmp/case"
    mkdir -p "$tmp/case/out.tmp-mine" "$tmp/case/out.partial.old" "$tmp/case/mine.moxie.tmp"
    for name in out.notes out.tmp out.safetensors.tmp out.safetensors.mine.tmp out.safetensors.moxie.tmp.old out.moxie \
        out.tmp-mine/config.json out.partial.old/layer-00001.safetensors layer-00001.safetensors moxie_prepare.json \
        mine.moxie.tmp/model.safetensors; do
        echo "mine: $name" >"$tmp/case/$name"
    done
}

output_of() {
    [ "$1" = run ] && echo "$tmp/case/out.safetensors" || echo "$tmp/case/out"
}

# The files in $tmp/case without and with the result, the names in the result, and the time that the command takes.
observe() {
    fresh
    held "$tmp/case" >"$tmp/others.held"
    (cd "$tmp/case" && find . -mindepth 1 -maxdepth 1) >"$tmp/others.names"
    perform "$1" limited 200
    [ "$outcome $code" = "exit 0" ] || fail "$1 undisturbed: $outcome $code: $(cat "$tmp/err")"
    held "$tmp/case" >"$tmp/$1.held"
    ls -A "$(output_of "$1")" >"$tmp/$1.names"
    awk -v took="$took" 'BEGIN { print int(1100 * took) + 1 }' >"$tmp/$1.ms"
    [ ! -e "$fault_preload" ] || perform "$1" counted "$1"
}

# counted NAME COMMAND...: counts the command's calls, for kills at one of them.
counted() {
    of=$1
    shift
    fresh
    limited 200 env LD_PRELOAD="$fault_preload" MOXIE_FAULT_COUNT="$tmp/count" "$@"
    grep -E '^(write|fsync|rename|open|room|mkdir|unlink|close|thread) [1-9]' "$tmp/count" >"$tmp/$of.calls"
}

died=0 ended=0 bad=0
wrong() {
    fail "$what: $1"
    echo "    $(head -c 400 "$tmp/err")"
    bad=$((bad + 1))
}

# Checks the files of others, which $tmp/case must have at all times.
others_stay() {
    held "$tmp/case" | LC_ALL=C comm -13 - "$tmp/others.held" >"$tmp/gone"
    [ ! -s "$tmp/gone" ] || wrong "files of others are gone or changed: $(cat "$tmp/gone")"
}

# Whatever happened, the output does not exist or is the whole result.
nothing_or_whole() {
    [ -e "$(output_of "$1")" ] || return 0
    held "$tmp/case" | LC_ALL=C comm -13 - "$tmp/$1.held" >"$tmp/gone"
    [ ! -s "$tmp/gone" ] || wrong "half of it is at the output's name: lacking $(cat "$tmp/gone")"
}

# --verify accepts OUT or OUT.partial only if it is whole.
verify_tells() {
    case $1 in prepare*) ;; *) return 0 ;; esac
    [ -d "$tmp/case/out.partial" ] || return 0
    limited 200 "$moxie" prepare --verify "$tmp/case/out"
    [ -e "$tmp/case/out" ] || [ "$outcome $code" = "exit 3" ] || wrong "--verify OUT of what was left: $outcome $code"
    limited 200 "$moxie" prepare --verify "$tmp/case/out.partial"
    case "$outcome $code" in
    "exit 1" | "exit 3") ;;
    "exit 0") [ "$(ls -A "$tmp/case/out.partial")" = "$(cat "$tmp/$1.names")" ] || wrong "--verify passes what was left" ;;
    *) wrong "--verify of what was left: $outcome $code" ;;
    esac
}

# After a signal that can be caught there are only files of others, the result, or finished layers of it.
no_temporaries() {
    left=$(cd "$tmp/case" && find . -mindepth 1 ! -path './out/*' | LC_ALL=C sort)
    for path in $left; do
        case $path in
        ./out | ./out.safetensors | ./out.partial) continue ;;
        ./out.partial/*.moxie.tmp*) ;;
        ./out.partial/moxie_quantize.*json | ./out.partial/errors-*.bin | ./out.partial/model-*) continue ;;
        ./out.partial/*) grep -qx "${path#./out.partial/}" "$tmp/$1.names" && continue ;;
        *) grep -qF " $path" "$tmp/others.held" && continue ;;
        esac
        wrong "$path stays"
    done
}

# Runs the same command again. Removes an existing result first, which would be refused.
again() {
    rm -rf "$(output_of "$1")"
    perform "$1" limited 200
    if [ "$outcome $code" != "exit 0" ]; then
        wrong "the run behind it ends with $outcome $code"
    elif ! held "$tmp/case" | cmp -s - "$tmp/$1.held"; then
        wrong "the run behind it leaves other files: $(held "$tmp/case" | diff - "$tmp/$1.held" | grep '^[<>]' | head -5)"
    fi
}

# judge NAME SIGNAL: checks everything after a kill, or after a command that ended before it.
judge() {
    case "$outcome $code" in
    "exit 0")
        ended=$((ended + 1))
        [ -e "$(output_of "$1")" ] || wrong "exit 0, but no output"
        ;;
    "signal $2") died=$((died + 1)) ;;
    *) wrong "$outcome $code" ;;
    esac
    others_stay
    nothing_or_whole "$1"
    [ "$2" = 9 ] || no_temporaries "$1"
    verify_tells "$1"
    again "$1"
}

pick() {
    shift "$1"
    echo "$2"
}

# The I-th kill of a command, at a random moment of its run.
kill_in_time() {
    signal=$(pick "$(random 3 "signal $2")" 9 15 2)
    ms=$(random "$(cat "$tmp/$1.ms")" "moment $2")
    delay=$((ms / 1000)).$(printf %03d $((ms % 1000)))
    what="$1, signal $signal after $delay s"
    fresh
    perform "$1" delayed "$signal" "$delay"
    judge "$1" "$signal"
}

delayed() {
    signal=$1 delay=$2
    shift 2
    "$fault_run" 200 "$tmp/ended" "$signal" "$delay" "$@" >"$tmp/out" 2>"$tmp/err"
    read -r outcome code took <"$tmp/ended"
}

# The I-th kill of a command, at one of its calls.
kill_at_call() {
    signal=$(pick "$(random 3 "signal $2")" "9 KILL" "15 TERM" "2 INT")
    lines=$(wc -l <"$tmp/$1.calls")
    line=$(sed -n "$(($(random "$lines" "kind $2") + 1))p" "$tmp/$1.calls")
    at=$(($(random "${line#* }" "call $2") + 1))
    what="$1, signal ${signal#* } at ${line% *} $at"
    fresh
    perform "$1" limited 200 env LD_PRELOAD="$fault_preload" MOXIE_FAULT="${line% *}:$at:${signal#* }"
    judge "$1" "${signal% *}"
}

# Two of the same command at once, the second a moment later; the first is killed in every second case.
two_at_once() {
    span=$(cat "$tmp/$1.ms")
    ms=$(random "$((span / 2))" "second $2")
    signal=0 delay=0
    if [ $(($2 % 2)) = 0 ]; then
        signal=$(pick "$(random 3 "signal $2")" 9 15 2)
        delay=$(awk -v ms="$(random "$((2 * span))" "moment $2")" 'BEGIN { print ms / 1000 }')
    fi
    what="two of $1, the second after $ms ms, signal $signal to the first after $delay s"
    fresh
    perform "$1" "$fault_run" 200 "$tmp/ended.1" "$signal" "$delay" >"$tmp/out.1" 2>"$tmp/err.1" &
    sleep "0.$(printf %03d "$((ms % 1000))")"
    perform "$1" "$fault_run" 200 "$tmp/ended.2" - 0 >"$tmp/out.2" 2>"$tmp/err"
    wait
    first=$(cut -d' ' -f1,2 "$tmp/ended.1") second=$(cut -d' ' -f1,2 "$tmp/ended.2")
    case "$first, $second" in
    "exit 0, exit 0") [ "$1" = run ] || wrong "both say that they made it" ;;
    "exit 0, exit 3" | "exit 3, exit 0") [ "$1" != run ] || wrong "$first, $second" ;;
    "signal $signal, exit 0" | "signal $signal, exit 3") died=$((died + 1)) ;;
    *) wrong "$first ($(cat "$tmp/err.1")), $second" ;;
    esac
    case "$first, $second" in *"exit 0"*) [ -e "$(output_of "$1")" ] || wrong "exit 0, but no output" ;; esac
    others_stay
    nothing_or_whole "$1"
    again "$1"
}

# Killed at each of these calls. With a result the second run is refused, but removes what the first has left.
kill_at_each_call() {
    grep -E '^(mkdir|rename|unlink) ' "$tmp/$1.calls" >"$tmp/each.calls"
    while read -r kind calls; do
        for at in $(seq "$calls"); do
            what="$1, killed at $kind $at of $calls"
            fresh
            perform "$1" limited 200 env LD_PRELOAD="$fault_preload" MOXIE_FAULT="$kind:$at:KILL"
            [ "$outcome $code" = "signal 9" ] || wrong "$outcome $code"
            nothing_or_whole "$1"
            wanted="exit 0"
            [ ! -e "$(output_of "$1")" ] || wanted="exit 3"
            perform "$1" limited 200
            [ "$outcome $code" = "$wanted" ] || wrong "the run behind it: $outcome $code instead of $wanted"
            held "$tmp/case" | diff - "$tmp/$1.held" >"$tmp/gone" || wrong "other files: $(grep '^[<>]' "$tmp/gone" | head -5)"
            each=$((each + 1))
        done
    done <"$tmp/each.calls"
}

# A foreign OUT.partial, and a link of that name to a folder with files of moxie's names: both stay unchanged.
foreign_partial() {
    for kind in folder link mixed; do
        what="$1 beside a foreign OUT.partial, $kind"
        fresh
        case $kind in
        folder) mkdir "$tmp/case/out.partial" && echo mine >"$tmp/case/out.partial/layer-00001.safetensors.orig" ;;
        link) mkdir "$tmp/case/elsewhere" && ln -s elsewhere "$tmp/case/out.partial" &&
            for name in config.json layer-00000.safetensors layer-00007.safetensors layer-mine.txt moxie_prepare.json.bak; do
                echo mine >"$tmp/case/elsewhere/$name"
            done ;;
        mixed) mkdir "$tmp/case/out.partial" && cp "$tmp/src/gptoss/config.json" "$tmp/case/out.partial" &&
            echo mine >"$tmp/case/out.partial/config.json.mine" && echo mine >"$tmp/case/out.partial/layer-notes.txt" ;;
        esac
        held "$tmp/case" >"$tmp/before.held"
        perform "$1" limited 200
        # Refused, or made next to them.
        case "$outcome $code" in "exit 3" | "exit 0") ;; *) wrong "$outcome $code" ;; esac
        [ "$code" = 3 ] || sed -i -E 's#( \./out)\.partial([/ ]|$)#\1\2#' "$tmp/before.held"
        LC_ALL=C sort -o "$tmp/before.held" "$tmp/before.held"
        held "$tmp/case" | LC_ALL=C comm -13 - "$tmp/before.held" >"$tmp/gone"
        [ ! -s "$tmp/gone" ] || wrong "gone: $(cat "$tmp/gone")"
    done
}

# A foreign file put into OUT.partial after a kill: it still exists after the next run.
foreign_inside() {
    what="$1, a file of others in what a kill left"
    fresh
    ms=$(($(cat "$tmp/$1.ms") * 2 / 3))
    perform "$1" delayed 9 "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
    [ -d "$tmp/case/out.partial" ] || return 0
    echo mine >"$tmp/case/out.partial/layer-00001.safetensors.orig"
    echo mine >"$tmp/case/out.partial/mine.txt"
    perform "$1" limited 200
    [ "$outcome" = exit ] || wrong "$outcome $code"
    for name in layer-00001.safetensors.orig mine.txt; do
        [ -e "$tmp/case/out.partial/$name" ] || [ -e "$tmp/case/out/$name" ] || wrong "$name was deleted"
    done
}

# A foreign link or folder with the name of the temporary file that a kill leaves. The link may be removed, but neither its
# target nor the folder's file.
foreign_temporary() {
    for kind in link folder; do
        what="$1 beside a foreign temporary, $kind"
        fresh
        perform "$1" limited 200 env LD_PRELOAD="$fault_preload" MOXIE_FAULT=rename:1:KILL
        left=$(cd "$tmp/case" && find . -mindepth 1 -maxdepth 1 | grep -vxFf "$tmp/others.names") || continue
        mkdir "$tmp/case/elsewhere"
        echo mine >"$tmp/case/elsewhere/config.json"
        target=elsewhere
        [ -d "$tmp/case/$left" ] || target=elsewhere/config.json
        rm -rf "${tmp:?}/case/$left"
        held "$tmp/case" >"$tmp/before.held"
        case $kind in
        link) ln -s "$target" "$tmp/case/$left" ;;
        folder) mkdir "$tmp/case/$left" && echo mine >"$tmp/case/$left/mine.txt" && held "$tmp/case" >"$tmp/before.held" ;;
        esac
        perform "$1" limited 200
        case "$outcome $code" in "exit 3" | "exit 0") ;; *) wrong "$outcome $code" ;; esac
        held "$tmp/case" | LC_ALL=C comm -13 - "$tmp/before.held" >"$tmp/gone"
        [ ! -s "$tmp/gone" ] || wrong "gone: $(cat "$tmp/gone")"
    done
}

make_sources >/dev/null
held "$tmp/src" >"$tmp/src.held"
for command in $commands; do
    observe "$command"
done
turn=0 moments=0 at_calls=0 pairs=0
while [ "$turn" -lt "$kills" ]; do
    for command in $commands; do
        turn=$((turn + 1))
        case $((turn % 4)) in
        0) two_at_once "$command" "$turn" && pairs=$((pairs + 1)) ;;
        1) kill_in_time "$command" "$turn" && moments=$((moments + 1)) ;;
        *) if [ -e "$fault_preload" ]; then
            kill_at_call "$command" "$turn" && at_calls=$((at_calls + 1))
        else
            kill_in_time "$command" "$turn" && moments=$((moments + 1))
        fi ;;
        esac
    done
done
for command in prepare-triton undo; do
    foreign_partial "$command"
    foreign_inside "$command"
done
each=0
[ ! -e "$fault_preload" ] || for command in quantize quantize-gguf; do
    kill_at_each_call "$command"
done
[ ! -e "$fault_preload" ] || for command in synth run; do
    foreign_temporary "$command"
done
held "$tmp/src" | cmp -s - "$tmp/src.held" || fail "the sources changed"
echo "$turn kills: $moments at a moment, $at_calls at a call, $pairs of two writers at once; $died died, $ended had ended;" \
    "$each at each call of quantize; $bad bad"
finish
