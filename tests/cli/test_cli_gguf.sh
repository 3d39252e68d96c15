#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A GGUF file wherever the tool takes a directory: a golden file of gguf-py, the same in two parts, damaged ones. With
# gguf-py (PyPI package gguf) and numpy, models of 15 architectures in all its block types are written, run, and compared
# with numpy; without, that part is skipped.
. "$(dirname "$0")/cli_lib.sh"
golden=tests/golden/gguf
small=$golden/small.gguf

expect 0 "qwen3moe \(family gguf\), quantization gguf, 1 MoE layer, 4 tensors" "$moxie" inspect $small
expect 0 "q8_0 +4 +2 +64 +32 .* 22.5 kB" "$moxie" inspect $small
expect 0 '"format": ?"q8_0"' "$moxie" inspect $small --json
expect 0 "0 errors, 0 warnings, 0 notes; 1 MoE layer, 4 tensors, 1 file, headers and numbers" "$moxie" lint $small --deep
expect 0 "expert_gemm +w2 +scalar_any" "$moxie" explain $small --isa scalar
expect 0 "expert_gemm +w2 +(avx512_fma|avx2_fma|scalar_any)" "$moxie" explain $small
expect 0 "scalar_int .*rejected: .*q4_1" "$moxie" explain $small --isa scalar
expect 0 "^right: the worst error" "$moxie" diff $small --a cpu --b ref --tokens 9
expect 0 "^right: the worst error" "$moxie" diff $small --a ref --b ref --tokens 1
expect 0 "GB/s" "$moxie" bench $small --tokens 1,4
expect 0 "^right: the worst error" "$moxie" diff $small --a cpu --b ref --tokens 9 --mode fast
expect 0 "^right: the worst error" "$moxie" diff $small --a cpu --b ref --tokens 9 --activations ggml
expect 0 "^right: the worst error" "$moxie" diff $small --a cpu --b ref --tokens 9 --activations ggml --mode fast
expect 0 "output rms" "$moxie" run $small --tokens 5 -o "$tmp/own.safetensors"
expect 0 "output rms" "$moxie" run $small --tokens 5 --activations ggml -o "$tmp/ggml.safetensors"
cmp -s "$tmp/own.safetensors" "$tmp/ggml.safetensors" && fail "--activations ggml changes nothing"
expect 2 "for GGUF files" "$moxie" bench --preset olmoe-1b-7b --activations ggml --tokens 1
expect 4 "not prepared for other engines" "$moxie" prepare $small --layout marlin-gptq -o "$tmp/prepared"
expect 4 "not prepared for other engines" "$moxie" prepare $small --list
expect 4 "not written: merge into the model's release" "$moxie" bake $small --adapter "x=$tmp/x" -o "$tmp/prepared"
[ ! -e "$tmp/prepared" ] || fail "a refused command left something"

# Any part of a split model opens all of it.
expect 0 "output rms" "$moxie" run $small --tokens 5 -o "$tmp/whole.safetensors"
for part in 1 2; do
    expect 0 "output rms" "$moxie" run $golden/parts-0000$part-of-00002.gguf --tokens 5 -o "$tmp/part.safetensors"
    cmp "$tmp/whole.safetensors" "$tmp/part.safetensors" || fail "part $part gives another result"
done
expect 0 "4 tensors, .* in 2 files" "$moxie" inspect $golden/parts-00002-of-00002.gguf
cp $golden/parts-00001-of-00002.gguf "$tmp/"
expect 3 "parts-00002-of-00002.gguf.*cannot open" "$moxie" inspect "$tmp/parts-00001-of-00002.gguf"
cp $golden/parts-00001-of-00002.gguf "$tmp/parts-00002-of-00002.gguf"
expect 3 "part 1 of 2 .*expected part 2 of 2|in this file and in" "$moxie" inspect "$tmp/parts-00001-of-00002.gguf"
cp $golden/parts-00001-of-00002.gguf "$tmp/renamed.gguf"
expect 3 "must end in -00001-of-00002.gguf" "$moxie" inspect "$tmp/renamed.gguf"

# Damage: by command, each with a reason; nothing is left.
head -c 20000 $small >"$tmp/cut.gguf"
for command in inspect explain "run --tokens 1" "bench --tokens 1" "diff --a cpu --b ref"; do
    # shellcheck disable=SC2086 # a command and its options
    expect 3 "cut.gguf.*cut short or damaged" "$moxie" $command "$tmp/cut.gguf"
done
expect 3 "file-unreadable.*cut short" "$moxie" lint "$tmp/cut.gguf"
sed 's/qwen3moe/qwen3mop/g' $small >"$tmp/unknown.gguf"
expect 4 'general.architecture is "qwen3mop".*known are afmoe' "$moxie" inspect "$tmp/unknown.gguf"
sed 's/expert_count/expert_cound/' $small >"$tmp/dense.gguf"
expect 4 "no mixture of experts" "$moxie" inspect "$tmp/dense.gguf"
sed 's/ffn_gate_exps/ffn_gate_expz/' $small >"$tmp/absent.gguf"
expect 3 "ffn_gate_exps" "$moxie" run "$tmp/absent.gguf" --tokens 1
sed 's/ffn_down_exps.weight/ffn_down_expt.weight/' $small >"$tmp/odd.gguf"
expect "[34]" "ffn_down_exp" "$moxie" run "$tmp/odd.gguf" --tokens 1

if python3 -c 'import gguf, numpy; gguf.quants.dequantize' 2>/dev/null; then
    mkdir "$tmp/models"
    PYTHONDONTWRITEBYTECODE=1 python3 -W ignore tests/python/gguf_models.py "$moxie" "$tmp/models" || fail "models of gguf-py"
    expect 0 "gate and up are of different types" "$moxie" inspect "$tmp/models/llama.gguf"
    expect 0 "0 errors, 0 warnings" "$moxie" lint "$tmp/models/llama.gguf" --deep
    expect 0 "unused.weight.*q8_k" "$moxie" lint "$tmp/models/olmoe.gguf" --deep
    expect 0 "0 errors, 1 warning, 0 notes; 1 MoE layer, 6 tensors" "$moxie" lint "$tmp/models/olmoe.gguf" --deep
elif [ "$failures" = 0 ]; then
    echo "skipped: models that gguf-py writes need the Python packages gguf and numpy; the rest passed"
    exit 77
fi
finish
