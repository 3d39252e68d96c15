#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moxie trace: what is recorded is what `moxie run` chooses; every form comes back; vLLM's and SGLang's arrays are read by
# another reader (Python); show's numbers are those of a count; traces in bench and balance; bad input.
. "$(dirname "$0")/cli_lib.sh"
trace() { "$moxie" trace "$@"; }

synth qwen3-30b-a3b bf16 "$tmp/model" --layers 3
"$moxie" run "$tmp/model" --layer 1 --tokens 40 --seed 3 -o "$tmp/run.safetensors" >/dev/null
expect 0 "40 tokens, 3 layers, 16 experts, top-8" trace record "$tmp/model" --tokens 40 --seed 3 --prefill 10 --step-tokens 4 -o "$tmp/a.trace"
expect 0 "1 layer" trace record "$tmp/model" --layers 1 --tokens 40 --seed 3 -o "$tmp/b.trace"
expect 0 "1 layer" trace import "$tmp/run.safetensors" --layers 1 -o "$tmp/c.trace"
for name in a b c; do trace export "$tmp/$name.trace" -o "$tmp/$name.csv" >/dev/null; done
cmp -s "$tmp/b.csv" "$tmp/c.csv" || fail "recorded choices are not those of a run"
awk -F, '$5 == 1' "$tmp/a.csv" | cut -d, -f4- >"$tmp/a.rows"
sed 1d "$tmp/b.csv" | cut -d, -f4- | cmp -s - "$tmp/a.rows" || fail "a layer among others is recorded in another way"
expect 0 "in 9 steps \(1 prefill, 8 decode\)" trace show "$tmp/a.trace"
expect 0 "40 tokens" trace record "$tmp/model" --tokens 40 --states outliers -o "$tmp/outliers.trace"
# A run's router_logits have a column for each zero expert, too.
expect 0 "12 experts" trace import "$tmp/run.safetensors" --zero-experts 4 -o "$tmp/logits.trace"
expect 2 "give --experts N" trace import "$tmp/run.safetensors" --zero-experts 16 -o "$tmp/bad.trace"

# There and back: ids alone, and everything as CSV.
for form in npy json csv; do
    expect 0 "40 tokens" trace export "$tmp/a.trace" -o "$tmp/a.$form"
    expect 0 "40 tokens, 3 layers, 16 experts" trace import "$tmp/a.$form" --experts 16 --prefill 10 --step-tokens 4 -o "$tmp/$form.trace"
done
cmp -s "$tmp/npy.trace" "$tmp/json.trace" || fail "vLLM's and SGLang's arrays make different traces"
trace export "$tmp/npy.trace" -o "$tmp/npy.csv" >/dev/null
cut -d, -f1-7 "$tmp/a.csv" | cmp -s - "$tmp/npy.csv" || fail "ids changed on the way through .npy"
trace export "$tmp/csv.trace" -o "$tmp/again.csv" >/dev/null
cmp -s "$tmp/a.csv" "$tmp/again.csv" || fail "CSV does not come back"
if command -v python3 >/dev/null; then
    # Hidden states of a file, which lie at an odd address in the second.
    python3 - "$tmp" <<'END'
import json, random, struct, sys
random.seed(5)
states = struct.pack('<10240f', *(random.gauss(0, 1) for i in range(10240)))
for name, spaces in (('even', 0), ('odd', 1)):
    header = json.dumps({'hidden_states': {'dtype': 'F32', 'shape': [40, 256], 'data_offsets': [0, len(states)]}})
    header += ' ' * (-len(header) % 8 + spaces)
    open(f'{sys.argv[1]}/{name}.safetensors', 'wb').write(struct.pack('<Q', len(header)) + header.encode() + states)
END
    for name in even odd; do
        expect 0 "40 tokens" trace record "$tmp/model" --hidden-states "$tmp/$name.safetensors" -o "$tmp/$name.trace"
        trace export "$tmp/$name.trace" -o "$tmp/$name.csv" >/dev/null
    done
    cmp -s "$tmp/even.csv" "$tmp/odd.csv" || fail "where states lie in their file changes the choices"
    python3 - "$tmp" <<'END' || fail "another reader finds other ids"
import base64, csv, json, struct, sys
tmp = sys.argv[1]
want = [int(row["expert"]) for row in csv.DictReader(open(tmp + "/a.csv"))]
npy = open(tmp + "/a.npy", "rb").read()
size = struct.unpack("<H", npy[8:10])[0]
header = eval(npy[10:10 + size])
assert npy[:8] == b"\x93NUMPY\x01\x00" and (10 + size) % 64 == 0 and npy[9 + size:10 + size] == b"\n"
assert header == {"descr": "<i2", "fortran_order": False, "shape": (40, 3, 8)}, header
assert list(struct.unpack("<960h", npy[10 + size:])) == want
sglang = json.load(open(tmp + "/a.json"))["meta_info"]["routed_experts"]
assert list(struct.unpack("<960i", base64.b64decode(sglang, validate=True))) == want
counts = [[0] * 16 for _ in range(3)]
for row in csv.DictReader(open(tmp + "/a.csv")):
    counts[int(row["layer"])][int(row["expert"])] += 1
json.dump({"logical_count": counts}, open(tmp + "/counts.json", "w"))
# Two requests: a list of responses without shapes; and an array of int64 in version 2 of the format.
half = [base64.b64encode(struct.pack("<480i", *want[i:i + 480])).decode() for i in (0, 480)]
json.dump([{"meta_info": {"routed_experts": h}} for h in half], open(tmp + "/list.json", "w"))
text = b"{'descr': '<i8', 'fortran_order': False, 'shape': (40, 3, 8), }".ljust(115) + b"\n"
open(tmp + "/wide.npy", "wb").write(b"\x93NUMPY\x02\x00" + struct.pack("<I", 116) + text + struct.pack("<960q", *want))
END
    expect 0 "40 tokens" trace import "$tmp/list.json" --experts 16 --layers 0-2 --top-k 8 --prefill 10 -o "$tmp/list.trace"
    expect 0 "in 22 steps \(2 prefill, 20 decode\).*request ids" trace show "$tmp/list.trace"
    expect 0 "20 tokens" trace export "$tmp/list.trace" --request 1 -o "$tmp/second.npy"
    expect 3 "no token belongs to request 2" trace export "$tmp/list.trace" --request 2 -o "$tmp/third.npy"
    expect 0 "40 tokens" trace import "$tmp/wide.npy" --experts 16 --prefill 10 --step-tokens 4 -o "$tmp/wide.trace"
    cmp -s "$tmp/wide.trace" "$tmp/npy.trace" || fail "int64 and int16 make different traces"
    "$moxie" balance "$tmp/counts.json" --ranks 4 --format vllm -o "$tmp/map1.json" >/dev/null
    expect 0 "balance 0" "$moxie" balance "$tmp/a.trace" --ranks 4 --format vllm -o "$tmp/map2.json"
    cmp -s "$tmp/map1.json" "$tmp/map2.json" || fail "a trace and its counts give different maps"
    expect 0 "960|40 tokens" trace export "$tmp/a.trace" -o "$tmp/a.counts.json"
    "$moxie" balance "$tmp/a.counts.json" --ranks 4 --format vllm -o "$tmp/map3.json" >/dev/null
    cmp -s "$tmp/map1.json" "$tmp/map3.json" || fail "exported counts differ"
fi

# What show finds, in a trace whose numbers are plain.
cat >"$tmp/plain.csv" <<'END'
token,layer,expert
0,4,0
1,4,0
2,4,1
3,4,0
END
trace import "$tmp/plain.csv" --experts 4 --name tiny -o "$tmp/plain.trace" >/dev/null
expect 0 "tiny: 4 tokens in 4 steps" trace show "$tmp/plain.trace"
# Requests and phases are of steps.
for column in request phase; do
    printf 'token,%s,layer,expert\n0,%s,4,0\n' $column "$([ $column = phase ] && echo decode || echo 5)" >"$tmp/stepless.csv"
    expect 3 "names the column $column, but no step" trace import "$tmp/stepless.csv" --experts 4 -o "$tmp/bad.trace"
done
expect 0 "^ +4 +2 +75.0% +0.81 +2.00 +0.333 +33.3% +1.0 +-" trace show "$tmp/plain.trace"
expect 0 '"counts": \[' trace show "$tmp/plain.trace" --layer 4 --json
expect 3 "no layer 3" trace show "$tmp/plain.trace" --layer 3

# Caches: one slot holds expert 0 in steps 1 and (lfru) 3; lru loses it in step 2.
expect 0 "1 +lfru +50.0%" trace simulate "$tmp/plain.trace" --slots 1
expect 0 "1 +lru +25.0%" trace simulate "$tmp/plain.trace" --slots 1
expect 0 "1 +best +50.0%" trace simulate "$tmp/plain.trace" --slots 1 --best
expect 0 "2 +lfru +50.0% .* 20 B +50000000.00" trace simulate "$tmp/plain.trace" --budget 80 --bytes-per-expert 40 --read-gb-s 1
expect 0 "4 +lfru +50.0%" trace simulate "$tmp/plain.trace" --budget 4294967296 --bytes-per-expert 1
# As many sizes as an option takes, and the one of --budget.
trace simulate "$tmp/plain.trace" --slots "$(seq -s, 1 64)" --budget 80 --bytes-per-expert 40 --policy lfru --json >"$tmp/sizes.json"
[ "$(grep -c '"slots"' "$tmp/sizes.json")" = 65 ] || fail "64 sizes and a budget are not 65 simulations"
expect 0 "1 +pinned +75.0%" trace simulate "$tmp/plain.trace" --slots 1 --census "$tmp/plain.trace"
expect 2 "needs the bytes of an expert" trace simulate "$tmp/plain.trace" --budget 1G
expect 2 "takes them all" trace simulate "$tmp/plain.trace" --warm 4
expect 2 "learns in warm steps" trace simulate "$tmp/plain.trace" --policy frozen
expect 2 "there is no cache policy" trace simulate "$tmp/plain.trace" --policy fifo

# Replay, and what does not fit.
expect 0 "routing $tmp/a.trace" "$moxie" bench "$tmp/model" --layer 1 --trace "$tmp/a.trace" --tokens 4 --repeats 1
expect 3 "it has no layer 0" "$moxie" bench "$tmp/model" --trace "$tmp/b.trace" --tokens 4
expect 3 "it has no layer 2" "$moxie" bench "$tmp/model" --layer 2 --trace "$tmp/b.trace" --tokens 4
expect 3 "the layer chooses 8 of 16" "$moxie" bench "$tmp/model" --trace "$tmp/plain.trace" --tokens 4
expect 3 "not finish it|cut off" sh -c "head -c 400 $tmp/a.trace >$tmp/cut && exec $moxie trace show $tmp/cut"
expect 3 "is --experts right" trace import "$tmp/a.npy" --experts 3 -o "$tmp/bad.trace"
expect 2 "give --experts N" trace import "$tmp/a.npy" -o "$tmp/bad.trace"
expect 0 "3 experts" trace import "$tmp/a.npy" --experts 3 --zero-experts 13 -o "$tmp/zero.trace"
expect 0 '"zero_experts": 13' trace show "$tmp/zero.trace" --json
expect 3 "names 2" trace import "$tmp/a.npy" --experts 16 --layers 0-1 -o "$tmp/bad.trace"
expect 2 "from 0 to 1000000" trace import "$tmp/a.npy" --experts 16 --layers 4294967296 -o "$tmp/bad.trace"
printf "\\223NUMPY\\001\\000\\070\\000{'fortran_order': False, 'shape': (0, 1, 1), 'descr': '\\n" >"$tmp/short.npy"
expect 3 "no array of ids" trace import "$tmp/short.npy" --experts 16 -o "$tmp/bad.trace"
expect 4 "counts have no tokens" trace import "$tmp/x.counts.json" -o "$tmp/bad.trace"
# No tokens at all.
printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '<i2', 'fortran_order': False, 'shape': (0, 1, 8), }" >"$tmp/none.npy"
expect 0 "0 tokens" trace import "$tmp/none.npy" --experts 16 -o "$tmp/none.trace"
expect 0 "0 tokens in 0 steps" trace show "$tmp/none.trace"
expect 3 "found a directory; give a file" trace show "$tmp"
expect 3 "it has no steps" trace simulate "$tmp/none.trace"
expect 3 "it has no tokens" "$moxie" bench "$tmp/model" --trace "$tmp/none.trace" --tokens 4
expect 2 "does not go with" trace show "$tmp/a.trace" --slots 3
expect 2 "name it with -o" trace import "$tmp/a.npy"
expect 2 "did you mean show" trace shwo "$tmp/a.trace"
[ ! -e "$tmp/bad.trace" ] || fail "a refused import left a file"
finish
