#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Expert files through the tool: every layout, formats of many kinds. A run from the files equals a run from the
# checkpoint, --undo gives the experts' tensors back byte for byte, a reader written from docs/expert-file.md alone reads
# them, damage is found, and an interrupted command goes on.
. tests/cli/cli_lib.sh
reader=tests/store/expert_file_reader.py
command -v python3 >/dev/null || reader=

# The tensors of the second checkpoint are in the first, and equal.
same_tensors() {
    python3 - "$1" "$2" <<'END'
import glob, json, struct, sys

def tensors(folder):
    found = {}
    for name in glob.glob(folder + "/*.safetensors"):
        data = open(name, "rb").read()
        size = struct.unpack("<Q", data[:8])[0]
        for key, v in json.loads(data[8 : 8 + size]).items():
            if key != "__metadata__":
                begin, end = v["data_offsets"]
                found[key] = v["dtype"], v["shape"], data[8 + size + begin : 8 + size + end]
    return found

whole, back = tensors(sys.argv[1]), tensors(sys.argv[2])
sys.exit(not back or any(whole.get(key) != value for key, value in back.items()))
END
}

# one PRESET FORMAT LAYOUT...
one() {
    preset=$1 format=$2
    shift 2
    ck=$tmp/ck
    rm -rf "$ck"
    synth "$preset" "$format" "$ck"
    for layout in "$@"; do
        what="$preset $format $layout"
        rm -rf "$tmp/ex" "$tmp/back"
        expect 0 "prepared as $layout" "$moxie" prepare "$ck" --layout "$layout" -o "$tmp/ex"
        expect 0 "whole as $layout" "$moxie" prepare --verify "$tmp/ex"
        expect 0 "restored" "$moxie" prepare --undo "$tmp/ex" -o "$tmp/back"
        [ -z "$reader" ] || same_tensors "$ck" "$tmp/back" || fail "$what: --undo gives other tensors"
        [ -z "$reader" ] || expect 0 "$layout" python3 $reader "$tmp/ex"/*.moxie
        case $layout in
        moxie-rowmajor) isa=scalar ;;
        *) isa= ;;
        esac
        case $layout in
        moxie-cpu | moxie-rowmajor)
            expect 0 . "$moxie" run "$ck" --tokens 5 ${isa:+--isa $isa} -o "$tmp/a.safetensors"
            expect 0 . "$moxie" run "$tmp/ex" --tokens 5 ${isa:+--isa $isa} -o "$tmp/b.safetensors"
            cmp -s "$tmp/a.safetensors" "$tmp/b.safetensors" || fail "$what: a run from the file differs"
            ;;
        *) expect 4 "moxie prepare DIR --layout moxie-cpu" "$moxie" run "$tmp/ex" --tokens 5 ;;
        esac
    done
}

one deepseek-v3 fp8-block moxie-cpu moxie-rowmajor moxie-sm90 moxie-sm80
one gpt-oss-20b mxfp4-gptoss moxie-cpu moxie-sm90
one qwen3-30b-a3b gptq moxie-cpu moxie-rowmajor
one qwen3-30b-a3b nvfp4-ct moxie-sm80
one kimi-k2-thinking int4-ct-g32 moxie-cpu
if [ "${MOXIE_TEST_QUICK:-1}" = 0 ]; then
    for format in bf16 awq nvfp4-modelopt fp8-block-bf16; do
        one qwen3-30b-a3b $format moxie-cpu moxie-rowmajor moxie-sm90 moxie-sm80
    done
    one llama-4-scout fp8-channel moxie-cpu moxie-sm90
    one minimax-m3 mxfp8-m3 moxie-cpu moxie-sm80
fi

# ---- the commands, on the last files ---------------------------------------------------------------------------
rm -rf "$tmp/ck" "$tmp/ex"
synth deepseek-v3 fp8-block "$tmp/ck" --layers 2
expect 0 "2 layers prepared as moxie-rowmajor" "$moxie" prepare "$tmp/ck" --layout moxie-rowmajor -o "$tmp/ex"
expect 0 "expert files of 2 layers" "$moxie" inspect "$tmp/ex"
expect 0 '"kind": "expert files"' "$moxie" inspect "$tmp/ex" --json
expect 0 "right" "$moxie" diff "$tmp/ex" --tokens 2 --isa scalar
expect 0 "the weights are equal" "$moxie" diff "$tmp/ck" --against "$tmp/ex"
expect 0 "scalar_any" "$moxie" explain "$tmp/ex" --isa scalar
expect 0 "output rms" "$moxie" run "$tmp/ex" --tokens 3 --ranks 2
expect 0 "unpacked and packed anew" "$moxie" run "$tmp/ex" --tokens 3 --ranks 2
"$moxie" prepare "$tmp/ck" --layout moxie-cpu -o "$tmp/fast" >/dev/null
expect 4 "moxie prepare DIR --layout moxie-rowmajor" "$moxie" run "$tmp/fast" --isa scalar
expect 3 "moxie prepare. writes it" sh -c "cp -r $tmp/ex $tmp/half && rm $tmp/half/layer-00004.moxie && exec $moxie inspect $tmp/half"
cp -r "$tmp/ex" "$tmp/moved" && cp "$tmp/moved/layer-00004.moxie" "$tmp/moved/layer-00003.moxie"
expect 3 "it holds layer 4, and its name is that of layer 3" "$moxie" run "$tmp/moved" --layer 3 --tokens 1
expect 2 "has no layer 99" "$moxie" run "$tmp/ex" --layer 99
expect 2 "expert files hold experts as they are" "$moxie" prepare "$tmp/ck" --layout moxie-cpu --pad -o "$tmp/no"
[ ! -e "$tmp/no" ] || fail "a refused command made a directory"

# Of a GGUF file: run, checked, found whole, kept by a second command; there is no way back but the file.
gguf=tests/golden/gguf/small.gguf
expect 0 "1 layer prepared as moxie-cpu" "$moxie" prepare $gguf --layout moxie-cpu -o "$tmp/gguf"
expect 0 "whole as moxie-cpu" "$moxie" prepare --verify "$tmp/gguf"
expect 0 . "$moxie" run $gguf --tokens 5 -o "$tmp/a.safetensors"
expect 0 . "$moxie" run "$tmp/gguf" --tokens 5 -o "$tmp/b.safetensors"
cmp -s "$tmp/a.safetensors" "$tmp/b.safetensors" || fail "a run from a GGUF file's expert file differs"
expect 0 "right" "$moxie" diff "$tmp/gguf" --a cpu --b ref --tokens 4
expect 0 "right: the bytes are equal" "$moxie" diff "$tmp/gguf" --budget-ram 30K
[ -z "$reader" ] || expect 0 "moxie-cpu" python3 $reader "$tmp/gguf"/*.moxie
expect 4 "keep that file" "$moxie" prepare --undo "$tmp/gguf" -o "$tmp/no"
cp "$tmp/gguf/layer-00000.moxie" "$tmp/a.moxie"
mv "$tmp/gguf" "$tmp/gguf.partial"
expect 0 "1 layer prepared" "$moxie" prepare $gguf --layout moxie-cpu -o "$tmp/gguf"
cmp -s "$tmp/gguf/layer-00000.moxie" "$tmp/a.moxie" || fail "a second command makes another file"
[ ! -e "$tmp/no" ] || fail "a refused command made a directory"

# A plan is that of the run, whose options change the configuration.
synth qwen3-30b-a3b int8-w8a8 "$tmp/i8"
"$moxie" prepare "$tmp/i8" --layout moxie-cpu -o "$tmp/i8_ex" >/dev/null
"$moxie" explain "$tmp/i8" --activations 16bit | grep "expert_gemm" | grep -v rejected >"$tmp/want"
"$moxie" explain "$tmp/i8_ex" --activations 16bit | grep "expert_gemm" | grep -v rejected | cmp -s - "$tmp/want" ||
    fail "explain shows other kernels for the files"

# Loaded in every way, from two drives, with layers on two drives: the same bytes.
expect 0 . "$moxie" run "$tmp/fast" --layer 4 --tokens 5 -o "$tmp/a.safetensors"
cp -r "$tmp/fast" "$tmp/mirror"
mkdir "$tmp/drive2"
cp -r "$tmp/fast" "$tmp/striped"
mv "$tmp/striped/layer-00004.moxie" "$tmp/drive2"
ln -s "$tmp/drive2/layer-00004.moxie" "$tmp/striped"
for how in "--load read" "--load direct" "--load direct --read-engine pread --read-depth 3 --read-chunk 64" \
    "--load direct --mirror $tmp/mirror"; do
    for dir in fast striped; do
        # shellcheck disable=SC2086 # several options
        expect 0 . "$moxie" run "$tmp/$dir" --layer 4 --tokens 5 $how -o "$tmp/b.safetensors"
        cmp -s "$tmp/a.safetensors" "$tmp/b.safetensors" || fail "a run with $how from $dir differs"
    done
done
expect 0 "right" "$moxie" diff "$tmp/fast" --tokens 2 --load direct
expect 3 "No such file" "$moxie" run "$tmp/fast" --load direct --mirror "$tmp/nowhere"
cp "$tmp/mirror/layer-00004.moxie" "$tmp/mirror/layer-00003.moxie"
expect 3 "it is no mirror of" "$moxie" run "$tmp/fast" --layer 3 --load direct --mirror "$tmp/mirror"
mkdir -p "$tmp/folder/layer-00003.moxie"
expect 3 "layer-00003.moxie: cannot read it: Is a directory" "$moxie" run "$tmp/fast" --layer 3 --load direct --mirror "$tmp/folder"
expect 2 "go with --load direct" "$moxie" run "$tmp/fast" --mirror "$tmp/mirror"
expect 2 "did you mean direct" "$moxie" run "$tmp/fast" --load dirct
expect 2 "multiples of 4 KiB" "$moxie" run "$tmp/fast" --load direct --read-chunk 5
expect 2 "is for a directory of expert files" "$moxie" run "$tmp/ck" --load direct
expect 2 "makes a layer up in memory" "$moxie" run --preset qwen3-30b-a3b --load read
expect 0 "GB/s from .*reads of" "$moxie" info --disk "$tmp/striped"
expect 0 '"gb_s"' "$moxie" info --json --disk "$tmp/fast" --mirror "$tmp/fast" --read-engine pread
expect 3 "No such file" "$moxie" info --disk "$tmp/nowhere"
mkdir "$tmp/nothing"
expect 2 "there is no file of 4 KiB or more" "$moxie" info --disk "$tmp/nothing"
expect 2 "go with --disk" "$moxie" info --read-depth 4

# Shares: each rank has the files of its experts; all together give the checkpoint back.
for rank in 0 1 2; do
    expect 0 "prepared" "$moxie" prepare "$tmp/ck" --layout moxie-cpu --ep $rank/3 -o "$tmp/ep$rank"
done
expect 0 "note: .* has [56] of 16 experts" "$moxie" run "$tmp/ep0" --tokens 3
expect 4 "those of rank 0 of 3, and all are needed|--ranks places all" "$moxie" run "$tmp/ep0" --tokens 3 --ranks 2
expect 4 "those of rank 1 of 3, and all are needed" "$moxie" bench "$tmp/ep1" --tokens 3
for command in "quantize --format bf16 -o $tmp/no" "bake --adapter a=$tmp/none -o $tmp/no" "trace record --tokens 2 -o $tmp/no"; do
    expect 4 "these are expert files" "$moxie" $command "$tmp/ex"
done
rm -rf "$tmp/back"
expect 0 "restored" "$moxie" prepare --undo "$tmp/ep0" "$tmp/ep1" "$tmp/ep2" -o "$tmp/back"
[ -z "$reader" ] || same_tensors "$tmp/ck" "$tmp/back" || fail "shares give other tensors"

# Tensor parallel shares: the rows of a rank, which only ranks run; all together give the checkpoint back.
for rank in 0/2-0/2 1/2-0/2 0/2-1/2 1/2-1/2; do
    expect 0 "2 layers prepared" "$moxie" prepare "$tmp/ck" --layout moxie-cpu --tp ${rank%-*} --ep ${rank#*-} \
        -o "$tmp/tp$(echo $rank | tr -d /)"
done
expect 0 "whole as moxie-cpu" "$moxie" prepare --verify "$tmp/tp12-02"
expect 2 "rows of tensor parallel rank 1 of 2, and options.comm is NULL" "$moxie" run "$tmp/tp12-02" --tokens 3
expect 4 "those of rank 0 of 2, and all are needed|rows of tensor parallel rank" "$moxie" bench "$tmp/tp12-02" --tokens 3
expect 4 "a store reads whole" "$moxie" run "$tmp/tp12-02" --tokens 3 --budget-ram 1G
shares="$tmp/tp02-02 $tmp/tp12-02 $tmp/tp02-12 $tmp/tp12-12"
# shellcheck disable=SC2086 # a list of paths without spaces
expect 0 "output rms" "$moxie" run $shares --ranks 4 --tp 2 --tokens 7 -o "$tmp/shares.safetensors"
expect 0 "output rms" "$moxie" run "$tmp/ck" --backend cpu --tokens 7 -o "$tmp/whole.safetensors"
cmp "$tmp/shares.safetensors" "$tmp/whole.safetensors" || fail "ranks of shares give other bytes"
expect 3 "in the order of the ranks" "$moxie" run "$tmp/tp12-02" "$tmp/tp02-02" "$tmp/tp02-12" "$tmp/tp12-12" --ranks 4 --tp 2
expect 2 "of 4 directories that are each a rank's, give --ranks 4" "$moxie" run $shares
expect 2 "2 ranks and 4 directories" "$moxie" run $shares --ranks 2 --tp 2
expect 2 "each is to have expert files" "$moxie" run "$tmp/ck" "$tmp/tp12-02" --ranks 2 --tp 2
# A share of other weights.
synth deepseek-v3 fp8-block "$tmp/unlike" --layers 2 --seed 5
expect 0 "2 layers prepared" "$moxie" prepare "$tmp/unlike" --layout moxie-cpu --tp 1/2 --ep 1/2 -o "$tmp/unlike-12"
expect 3 "unlike-12: rank 3: it was prepared of other weights than the first" "$moxie" run "$tmp/tp02-02" "$tmp/tp12-02" "$tmp/tp02-12" "$tmp/unlike-12" --ranks 4 --tp 2
expect 2 "needs all 4 directories" "$moxie" prepare --undo "$tmp/tp02-02" "$tmp/tp12-02" -o "$tmp/no"
rm -rf "$tmp/back"
expect 0 "restored" "$moxie" prepare --undo "$tmp/tp02-02" "$tmp/tp12-02" "$tmp/tp02-12" "$tmp/tp12-12" -o "$tmp/back"
[ -z "$reader" ] || same_tensors "$tmp/ck" "$tmp/back" || fail "tensor parallel shares give other tensors"

# A machine without vectors: what moxie-auto writes runs there.
if [ -z "${MOXIE_MAX_ISA:-}" ]; then
    expect 0 "prepared as moxie-rowmajor" env MOXIE_MAX_ISA=scalar "$moxie" prepare "$tmp/ck" --layout moxie-auto -o "$tmp/old"
    expect 0 "output rms" env MOXIE_MAX_ISA=scalar "$moxie" run "$tmp/old" --tokens 2
fi

# An interrupted command: one layer is finished, the other was being written.
mkdir "$tmp/new.partial"
cp "$tmp/ex"/moxie_prepare.json "$tmp/ex"/config.json "$tmp/ex"/layer-00003.moxie "$tmp/new.partial"
head -c 50000 "$tmp/ex/layer-00004.moxie" >"$tmp/new.partial/layer-00004.moxie"
expect 0 "2 layers prepared as moxie-rowmajor .1 of them before" \
    "$moxie" prepare "$tmp/ck" --layout moxie-rowmajor -o "$tmp/new"
cmp -s "$tmp/ex/layer-00004.moxie" "$tmp/new/layer-00004.moxie" || fail "a continued command writes other bytes"

# A layer is written anew when something else than its experts changed, as its router.
if [ -n "$reader" ]; then
    mkdir "$tmp/other.partial"
    cp "$tmp/ex"/* "$tmp/other.partial"
    cp -r "$tmp/ck" "$tmp/other_ck"
    python3 - "$tmp/other_ck" <<'END' || fail "no router was found"
import glob, json, struct, sys

for path in glob.glob(sys.argv[1] + "/*.safetensors"):
    data = bytearray(open(path, "rb").read())
    (size,) = struct.unpack("<Q", data[:8])
    for key, v in json.loads(data[8 : 8 + size]).items():
        if key.endswith("layers.3.mlp.gate.weight"):
            data[8 + size + v["data_offsets"][0]] ^= 1
            open(path, "wb").write(data)
            sys.exit(0)
sys.exit(1)
END
    expect 0 "2 layers prepared as moxie-rowmajor .1 of them before" \
        "$moxie" prepare "$tmp/other_ck" --layout moxie-rowmajor -o "$tmp/other"
fi

# Killed while it writes: nothing that opens.
synth qwen3-30b-a3b bf16 "$tmp/big" --experts 64 --hidden 1024
"$moxie" prepare "$tmp/big" --layout moxie-cpu -o "$tmp/killed" >/dev/null 2>&1 &
pid=$!
sleep 0.05
kill -9 $pid 2>/dev/null || true
wait $pid 2>/dev/null || true
if [ -e "$tmp/killed" ]; then
    expect 0 "whole" "$moxie" prepare --verify "$tmp/killed" # it was faster
else
    expect 3 . "$moxie" run "$tmp/killed"
    expect 0 "prepared" "$moxie" prepare "$tmp/big" --layout moxie-cpu -o "$tmp/killed"
fi

# Damage.
printf 'X' | dd of="$tmp/ex/layer-00004.moxie" bs=1 seek=400000 conv=notrunc 2>/dev/null
expect 1 "damaged: the checksum differs" "$moxie" prepare --verify "$tmp/ex"
[ -z "$reader" ] || expect 1 "the checksum differs" python3 $reader "$tmp/ex/layer-00004.moxie"
cp "$tmp/ex/layer-00003.moxie" "$tmp/ex/layer-00004.moxie"
expect 1 "it is layer 3, by its name it is layer 4" "$moxie" prepare --verify "$tmp/ex"
truncate -s 300000 "$tmp/ex/layer-00004.moxie"
expect 3 "cut short" "$moxie" run "$tmp/ex" --layer 4
finish
