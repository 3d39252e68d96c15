#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Things that are not regular files (a device, a pipe, a huge file, a directory, a circle of links) in the place of every
# file that the tool reads or writes: each is refused at once, with a message. And signals: no unfinished file stays.
. "$(dirname "$0")/cli_lib.sh"

synth gpt-oss-20b mxfp4-gptoss "$tmp/model" --shard-bytes 300000
shard=$(basename "$(ls "$tmp"/model/*.safetensors | head -1)")
"$moxie" synth kimi-k2-thinking -o "$tmp/kimi" --layers 1 --experts 8 --hidden 256 --intermediate 256 >/dev/null
"$moxie" prepare "$tmp/kimi" --layout trtllm-mxint4 -o "$tmp/prepared" >/dev/null
"$moxie" run "$tmp/model" --tokens 2 -o "$tmp/out.safetensors" >/dev/null
echo '{}' >"$tmp/limits"

# Puts each kind of thing at $1 and expects the rest of the arguments, a command, to refuse it and to name it.
odd() {
    path=$1 name=$(basename "$1")
    shift
    for kind in device pipe huge directory circle; do
        rm -rf "$path"
        case $kind in
        device) ln -s /dev/zero "$path" ;;
        pipe) mkfifo "$path" ;;
        huge) truncate -s 1T "$path" ;;
        directory) mkdir "$path" ;;
        circle) ln -s "$name" "$path" ;;
        esac
        expect "[13]" "$name: .*(regular file|reads at most|no safetensors|header|symbolic links|[Ee]xpected|cannot)" timeout 100 "$@"
    done
    rm -rf "$path"
}

# odd_in DIR FILE COMMAND...: the same for a file of a directory, in a copy of it at $tmp/case.
odd_in() {
    rm -rf "$tmp/case"
    cp -r "$1" "$tmp/case"
    file=$2
    shift 2
    odd "$tmp/case/$file" "$@"
    rm -rf "$tmp/case"
}

for command in inspect run explain diff bench; do
    odd_in "$tmp/model" config.json "$moxie" "$command" "$tmp/case"
done
odd_in "$tmp/model" model.safetensors.index.json "$moxie" run "$tmp/case"
odd_in "$tmp/model" "$shard" "$moxie" run "$tmp/case"
for name in hf_quant_config.json quantize_config.json; do
    mkdir "$tmp/plain"
    cp "$tmp/model"/* "$tmp/plain"
    sed -i 's/"quantization_config"/"no_such_config"/' "$tmp/plain/config.json"
    odd_in "$tmp/plain" $name "$moxie" inspect "$tmp/case"
    rm -r "$tmp/plain"
    # Copied for the way back, whoever reads it.
    odd_in "$tmp/kimi" $name "$moxie" prepare "$tmp/case" --layout trtllm-mxint4 -o "$tmp/nothing"
    [ ! -e "$tmp/nothing" ] && [ ! -e "$tmp/nothing.partial" ] || fail "$name: something was prepared"
done
for name in moxie_prepare.json model.safetensors.index.json config.json layer-00001.safetensors; do
    odd_in "$tmp/prepared" $name "$moxie" prepare --verify "$tmp/case"
    odd_in "$tmp/prepared" $name "$moxie" prepare --undo "$tmp/case" -o "$tmp/nothing"
    [ ! -e "$tmp/nothing" ] && [ ! -e "$tmp/nothing.partial" ] || fail "$name: something was restored"
done
odd "$tmp/odd.safetensors" "$moxie" run "$tmp/model" --input "$tmp/odd.safetensors"
odd "$tmp/odd.safetensors" "$moxie" bench "$tmp/model" --routing "$tmp/odd.safetensors"
odd "$tmp/odd.txt" "$moxie" bench "$tmp/model" --routing "$tmp/odd.txt"
odd "$tmp/odd.limits" "$moxie" info --limits "$tmp/odd.limits"
odd "$tmp/odd.limits" "$moxie" bench "$tmp/model" --limits "$tmp/odd.limits"

# Outputs are checked before the work: here the work would fail, but the message names the output.
early() {
    expect 3 "$1" timeout 100 "$moxie" run "$tmp/nowhere" -o "$2"
    expect 3 "$1" timeout 100 "$moxie" bench "$tmp/nowhere" --limits "$tmp/limits" --plot "$2"
}
mkdir "$tmp/folder.svg"
command -v gnuplot >/dev/null || early() { expect 3 "$1" timeout 100 "$moxie" run "$tmp/nowhere" -o "$2"; }
early "folder.svg: cannot be written: Is a directory" "$tmp/folder.svg"
early "no/such.svg: cannot be written: No such file" "$tmp/no/such.svg"
mkfifo "$tmp/pipe.svg"
early "pipe.svg: cannot be written: it is a device, pipe" "$tmp/pipe.svg"
ln -s limits "$tmp/link.svg"
early "link.svg: cannot be written: it is a symbolic link" "$tmp/link.svg"
[ "$(cat "$tmp/limits")" = '{}' ] || fail "an output went through a symbolic link"
if [ "$(id -u)" != 0 ]; then
    mkdir -m 555 "$tmp/closed"
    early "closed/x.svg: cannot be written: Permission denied" "$tmp/closed/x.svg"
fi
expect 0 "output rms" "$moxie" run "$tmp/model" --tokens 2 -o "$tmp/out.safetensors"
[ -z "$(ls "$tmp" | grep moxie.tmp)" ] || fail "temporaries stay: $(ls "$tmp" | grep moxie.tmp)"

# Two writers of one file: both finish, and the file is whole.
"$moxie" run "$tmp/model" --tokens 2 -o "$tmp/both.safetensors" >/dev/null &
first=$!
expect 0 "output rms" "$moxie" run "$tmp/model" --tokens 2 -o "$tmp/both.safetensors"
wait $first || fail "the first of two writers failed"
cmp "$tmp/out.safetensors" "$tmp/both.safetensors" || fail "two writers made something else of a file"

# synth reports an output that it cannot create before it makes anything.
ln -s nothing "$tmp/link"
expect 3 "link: .*symbolic link" "$moxie" synth gpt-oss-20b -o "$tmp/link" --layers 1
mkfifo "$tmp/pipe"
expect 3 "pipe: .*Not a directory" "$moxie" synth gpt-oss-20b -o "$tmp/pipe" --layers 1
expect "[23]" "exists already" "$moxie" prepare "$tmp/kimi" --layout trtllm-mxint4 -o "$tmp/link"
(cd "$tmp/folder.svg" && expect 2 "name of a directory" "$moxie" prepare "$tmp/kimi" --layout trtllm-mxint4 -o . && [ "$failures" = 0 ]) || fail "OUT is \".\""
expect 2 "5000 bytes, of at most [0-9]+" "$moxie" prepare "$tmp/kimi" --layout trtllm-mxint4 -o "$(printf '%05000d' 0)"

# A full disk while JSON is written, of 1.5 kB and of 16: an error, never a broken file. (Blocks of 512 bytes.)
full() {
    (
        ulimit -f "$1"
        expect 3 "$2: cannot write: File too large" "$moxie" synth kimi-k2.5 -o "$tmp/full" --layers 1 --experts 16 \
            --hidden 32 --intermediate 32 --shard-bytes 1
        [ "$failures" = 0 ]
    ) || failures=$((failures + 1))
    [ ! -e "$tmp/full" ] && [ ! -e "$tmp/full.moxie.tmp" ] || fail "a full disk left something"
}
full 2 config.json
full 8 model.safetensors.index.json

# Signals. The first one that ends the program removes what it was writing, and the shell sees which it was.
when() { # when FILE PID: the file is there, and the process still is
    tries=0
    while [ ! -e "$1" ] && kill -0 "$2" 2>/dev/null && [ $tries -lt 6000 ]; do
        sleep 0.01
        tries=$((tries + 1))
    done
    kill -0 "$2" 2>/dev/null
}
for signal in INT TERM HUP; do
    case $signal in INT) code=130 ;; TERM) code=143 ;; HUP) code=129 ;; esac
    # A shell without job control lets its children ignore SIGINT; env puts that back.
    env --default-signal=INT,QUIT "$moxie" synth deepseek-v3 -o "$tmp/large" --layers 1 >/dev/null 2>&1 &
    child=$!
    when "$tmp/large.moxie.tmp/config.json" $child || fail "synth was too quick for $signal"
    kill -$signal $child
    got=0
    wait $child || got=$?
    [ $got = $code ] || fail "synth: exit code $got after $signal"
    left=$(ls -d "$tmp"/large* 2>/dev/null) || true
    [ -z "$left" ] || fail "synth: $signal left $left"
done

# SIGKILL cannot be caught: the next writer of the same file removes what is left.
"$moxie" synth deepseek-v3 -o "$tmp/large" --layers 1 >/dev/null 2>&1 &
child=$!
when "$tmp/large.moxie.tmp/config.json" $child || fail "synth was too quick to be killed"
expect 3 "large.moxie.tmp: another moxie( \(process $child\))? is at work there" \
    "$moxie" synth gpt-oss-20b -o "$tmp/large" --layers 1 --experts 4 --hidden 64 --intermediate 64
kill -KILL $child
wait $child || true
[ -e "$tmp/large.moxie.tmp" ] || fail "nothing was left to sweep"
expect 0 "1 MoE layer" "$moxie" synth gpt-oss-20b -o "$tmp/large" --layers 1 --experts 4 --hidden 64 --intermediate 64
[ ! -e "$tmp/large.moxie.tmp" ] || fail "what a killed synth left was not swept"
cp "$tmp/out.safetensors" "$tmp/swept.safetensors.moxie.tmp"
expect 0 "output rms" "$moxie" run "$tmp/model" --tokens 2 -o "$tmp/swept.safetensors"
cmp "$tmp/out.safetensors" "$tmp/swept.safetensors" || fail "a run in the place of a killed one made other bytes"
[ ! -e "$tmp/swept.safetensors.moxie.tmp" ] || fail "what a killed run left was not swept"
finish
