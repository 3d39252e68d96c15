#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moxie explain of GPTQ checkpoints in act order: the plan is that of a run, on each kind of processor, with and without
# ranks; a group index that no layout sorts, and one that is damaged.
. "$(dirname "$0")/cli_lib.sh"
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }

# shuffle.py DIR whole|uneven|damaged: other group indices in the checkpoint's file. Whole: groups keep their number of
# columns, gate and up are in one order. Uneven: one column of each down is in the other group. Damaged: a group that is
# not there.
cat >"$tmp/shuffle.py" <<'END'
import json, random, struct, sys

path, how = sys.argv[1] + "/model.safetensors", sys.argv[2]
with open(path, "r+b") as f:
    size = struct.unpack("<Q", f.read(8))[0]
    tensors = {k: v for k, v in json.loads(f.read(size)).items() if k.endswith(".g_idx")}
    for name, tensor in tensors.items():
        index = [k // 128 for k in range(tensor["shape"][0])]
        if how == "whole":
            random.Random(name.replace("gate_proj", "up_proj")).shuffle(index)
        elif "down_proj" in name:
            index[3] = {"uneven": 1, "damaged": 2}[how]
        f.seek(8 + size + tensor["data_offsets"][0])
        f.write(struct.pack("<%di" % len(index), *index))
assert tensors
END
# Kernels of the steps of explain's or run's output, of what is chosen.
cat >"$tmp/chosen.py" <<'END'
import json, sys

report = json.load(open(sys.argv[1]))
for step in report.get("steps") or report["plan"]:
    if step.get("chosen", True):
        print(step["family"], step["role"], step["kernel"])
END

synth qwen3-30b-a3b gptq "$tmp/natural" --intermediate 256
for how in whole uneven damaged; do
    cp -r "$tmp/natural" "$tmp/$how"
    python3 "$tmp/shuffle.py" "$tmp/$how" "$how"
done

for dir in natural whole uneven; do
    expect 0 '"steps"' "$moxie" explain "$tmp/$dir" --tokens 5 --json
    python3 "$tmp/chosen.py" "$tmp/out" >"$tmp/explained"
    expect 0 '"plan"' "$moxie" run "$tmp/$dir" --tokens 5 --json
    python3 "$tmp/chosen.py" "$tmp/out" >"$tmp/ran"
    [ -s "$tmp/ran" ] || fail "no steps of a run"
    cmp -s "$tmp/explained" "$tmp/ran" || fail "$dir is explained as $(cat "$tmp/explained"), and runs as $(cat "$tmp/ran")"
done

# Whole groups are sorted, and then W13 leaves the activation to a kernel of its own; others are read as they lie.
sorted="EXACT +act order: columns are sorted by group"
expect 0 "w13 +sm90_dequant_int_blocks +cuda wgmma +hopper_codes +$sorted" "$moxie" explain "$tmp/whole" --device sm_90
expect 0 "w2 +sm80_dequant_int_blocks +cuda +hopper_codes +$sorted" "$moxie" explain "$tmp/whole" --device sm_80
expect 0 "w13 +sm90_dequant_int_blocks_glu +cuda wgmma +hopper_codes +EXACT *$" "$moxie" explain "$tmp/natural" --device sm_90
expect 0 "w2 +simple[a-z_]* +cuda +rowmajor" "$moxie" explain "$tmp/uneven" --device sm_90
expect 0 "w13 +ref +scalar +rowmajor" "$moxie" explain "$tmp/whole" --backend ref
expect 0 "w13 +sm90_dequant_int_blocks +cuda wgmma +hopper_codes +$sorted" "$moxie" explain "$tmp/whole" --device sm_90 --ranks 4 --tp 2
grep -qE "^ +3 +8 +128-255 +128-255 +8-15$" "$tmp/out" || fail "no rows of rank 3: $(cat "$tmp/out")"

expect 3 "down_proj[.]g_idx\[3\] is 2, expected a group from 0 to 1" "$moxie" explain "$tmp/damaged"
finish
