#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every command: --help, --json, usage errors; and the life of one layer from synth to diff through files.
. "$(dirname "$0")/cli_lib.sh"

expect 2 "Usage: moxie COMMAND" "$moxie"
expect 0 "Commands:" "$moxie" --help
grep -q "Exit codes: 0 fine" "$tmp/out" || fail "no exit codes in moxie --help"
expect 0 "^moxie [0-9]+\.[0-9]+\.[0-9]+" "$moxie" --version
# A line for each back end: what it runs on, or why it cannot.
expect 0 "^cpu   (scalar|neon|avx2|avx512|amx)( |,).*[0-9]+ processors?$" "$moxie" --version
expect 0 "^cpu   scalar.*, [0-9]+ processors?$" env MOXIE_MAX_ISA=scalar "$moxie" run --version
expect 0 "^cuda  not available: .*$tmp/no.so" env MOXIE_CUDA_LIBRARY="$tmp/no.so" "$moxie" --version
[ "$(wc -l <"$tmp/out")" = 4 ] || fail "--version is not of four lines: $(cat "$tmp/out")"
expect 2 "there is no command \"frobnicate\"" "$moxie" frobnicate

# Suggestions for unknown names.
meant() { # NAME ARGUMENTS...
    name=$1
    shift
    expect 2 "did you mean $name\?" "$moxie" "$@"
}
meant inspect inspct
meant bench Bench
meant gpt-oss-20b synth gpt-oss -o "$tmp/none"
meant gpt-oss-20b run --preset gtp-oss-20b
meant deepseek-v3 bench --preset deepseek_v3
meant gpt-oss-20b explain --preset gpt-oss20b
meant mxfp4-gptoss run --preset gpt-oss-20b --format mxfp4-gpt-oss
meant fp8-block synth deepseek-v3 --format fp8block -o "$tmp/none"
meant trtllm-mxint4 prepare "$tmp" --layout mxint4 -o "$tmp/none"
meant cuda run "$tmp" --backend cud
meant ref diff "$tmp" --a rfe
meant avx512 run "$tmp" --isa avx51
meant exact run "$tmp" --mode exat
meant checkpoint run "$tmp" --activations chekpoint
meant outliers run "$tmp" --states outlier
meant mxfp4_w4a16 explain --experts 8 --top-k 2 --hidden 64 --intermediate 96 --scheme mxfp4_w4a61
meant deepseek_v3 explain --experts 8 --top-k 2 --hidden 64 --intermediate 96 --routing deepseek-v3
meant swigluoai explain --experts 8 --top-k 2 --hidden 64 --intermediate 96 --activation swigluai
meant bf16 explain --experts 8 --top-k 2 --hidden 64 --intermediate 96 --dtype bf61
meant fp8_w8a8 bench --preset gpt-oss-20b --acts-of fp8_w8a
meant zipf bench --preset gpt-oss-20b --routing ziff
meant round-robin prepare "$tmp" --layout trtllm-mxint4 -o "$tmp/none" --ep-map roundrobin
meant sm_90 explain --preset gpt-oss-20b --device sm90
expect 2 "MOXIE_MAX_ISA: there is no instruction set \"foo\"" env MOXIE_MAX_ISA=foo "$moxie" info
case "$(uname -m)" in
x86_64) expect 2 "neon is an instruction set of 64-bit ARM" "$moxie" run "$tmp" --isa neon ;;
aarch64) expect 2 "avx2 is an instruction set of x86-64" "$moxie" run "$tmp" --isa avx2 ;;
esac
for command in info synth inspect explain run diff bench prepare; do
    expect 0 "Usage: moxie $command" "$moxie" "$command" --help
    grep -q "Exit codes: 0 fine; 1 a check failed; 2 wrong" "$tmp/out" || fail "no exit codes in moxie $command --help"
    expect 2 "there is no option --no-such-option" "$moxie" "$command" --no-such-option
    expect 2 "there is no option --jsn: did you mean --json" "$moxie" "$command" --jsn
    expect 0 "Usage: moxie $command" "$moxie" "$command" -h
done
# An option stands in --help under the heading that it belongs to.
under() {
    "$moxie" "$1" --help | sed -n "/^ $2/,/^ [A-Z]/p" >"$tmp/out"
    shift 2
    for option in "$@"; do
        grep -q "^ *$option\\b" "$tmp/out" || fail "$option stands under another heading"
    done
}
for command in run bench diff; do
    under $command "Expert files" --load --mirror --read-engine --read-depth --read-chunk
done
under run "On many ranks" --ranks --comm --tp
under bench "Many ranks that run here" --ranks --comm --tp
under diff "N ranks against one" --ranks --comm --tp
under bench "A trace on layers" --lookahead --budget-ram --warm
under explain "What a store would do" --budget-ram --trace --disk-gb-s --memory-gb-s --copy-gb-s --mirror --read-depth
under explain "How long it may take" --limits --link-gb-s --link-us

expect 2 "preset" "$moxie" synth
expect 2 "directory" "$moxie" run
expect 2 "whole number" "$moxie" run somewhere --tokens many
expect 2 "no back end \"tpu\".*There are auto, ref, cpu, cuda" "$moxie" run somewhere --backend tpu

expect 0 "expert_gemm" "$moxie" info
expect 0 '"schema_version": 1' "$moxie" info --json
expect 0 "gpt-oss-20b" "$moxie" synth --list
expect 0 '"name": "deepseek-v3"' "$moxie" synth --list --json

synth gpt-oss-20b mxfp4-gptoss "$tmp/model"
expect 0 "mxfp4-gptoss" "$moxie" inspect "$tmp/model"
expect 0 '"format": "mxfp4-gptoss"' "$moxie" inspect "$tmp/model" --json
# 16 experts of 256 x 256 and 256 x 128: half a byte and 1/32 byte an element, 2 bytes a bias.
expect 0 '"expert_bytes": 851968' "$moxie" inspect "$tmp/model" --json
expect 0 "expert_gemm" "$moxie" explain "$tmp/model" --layer 0
expect 0 "rejected:" "$moxie" explain --preset deepseek-v3 --isa scalar
! grep -q "batch sizes" "$tmp/out" || fail "a plan for a processor has launches"
expect 0 '"steps"' "$moxie" explain --json --experts 8 --top-k 2 --hidden 64 --intermediate 96 --scheme int8_w8a8
expect 4 "libmoxie_cuda" "$moxie" explain --preset deepseek-v3 --backend cuda
# How a GPU that is not here would be used. 4096 tokens are 128 for each of 128 experts, and tiles of 176 hold
# what even routing gives nearly all of them; blocks work in pairs.
expect 0 "^exact mode, one arithmetic for all batch sizes" "$moxie" explain --preset gpt-oss-120b --device sm_90
grep -qE "^w13 +sm90_dequant_glu +4096 +176 +8-16 +24-176 +1 +[0-9]+ x 2 +yes$" "$tmp/out" ||
    fail "no launch of 4096 tokens: $(tail -15 "$tmp/out")"
[ "$(grep -c "^w2 " "$tmp/out")" = 5 ] || fail "not five usual batch sizes: $(tail -15 "$tmp/out")"
expect 0 "^a call .* that equals the one before is launched as one graph" "$moxie" explain --preset gpt-oss-120b --device sm_90
expect 0 '"tile_tokens": 64' "$moxie" explain --preset gpt-oss-120b --device sm_90 --tokens 512 --json
grep -q '"call_graphs": true' "$tmp/out" || fail "explain --json does not say that equal calls are graphs"
expect 0 '"call_graphs": false' "$moxie" explain --preset gpt-oss-120b --json
expect 0 "sm80_dequant_glu" "$moxie" explain --preset gpt-oss-120b --device sm_90 --device-kernels sm80
expect 2 'kernels of "sm80x"; it must be one of sm_80, .* without the underscore' "$moxie" explain --preset gpt-oss-120b --device sm_90:sm80x
expect 0 "best pair of kernels in list order" "$moxie" explain --preset deepseek-v3 --device sm_90 --mode fast --tokens 1,64
expect 2 "tokens takes a whole number from 1" "$moxie" explain --preset gpt-oss-120b --tokens 1,,2
expect 2 "top_k|top-k|K" "$moxie" explain --experts 8 --top-k 9 --hidden 64 --intermediate 96
expect 0 "right: the worst error" "$moxie" diff "$tmp/model" --layer 0 --a cpu --b ref
expect 0 '"right": true' "$moxie" diff "$tmp/model" --layer 0 --a cpu --b ref --json
expect 0 "right: the worst error" "$moxie" diff "$tmp/model" --layer 0 --a ref --b ref --tokens 3
! grep -q "^outputs" "$tmp/out" || fail "outputs of the oracle were compared with themselves"
expect 0 "^outputs of cpu and ref differ by [0-9.e+-]+ .*; 0 of 7 tokens" "$moxie" diff "$tmp/model" --tokens 7
expect 0 '"difference": [0-9]' "$moxie" diff "$tmp/model" --states outliers --json
grep -q '"rms_error": [0-9]' "$tmp/out" || fail "no error of a stage in diff --json"
expect 2 "there are normal, outliers" "$moxie" diff "$tmp/model" --states odd

# A run's output is an input's shape and dtype; equal seeds give equal files, threads do not matter.
expect 0 "output rms" "$moxie" run "$tmp/model" --layer 0 --tokens 5 --seed 3 -o "$tmp/a.safetensors"
expect 0 '"topk_ids"' "$moxie" run "$tmp/model" --layer 0 --tokens 5 --seed 3 --threads 1 -o "$tmp/b.safetensors" --json
cmp "$tmp/a.safetensors" "$tmp/b.safetensors" || fail "threads changed the bytes of a run"
expect 0 "output rms" "$moxie" run "$tmp/model" --tokens 0
expect 0 "hidden states, 1 token$" "$moxie" run "$tmp/model" --tokens 1
expect 0 "1 MoE layer, [0-9]+ tensors, .* in 1 file$" "$moxie" inspect "$tmp/model"

# A layer without a checkpoint: weights from a seed, the same for the same one; the output is a run's input again.
expect 0 "^preset granite-3.1-1b-a400m, mxfp4-ct: 8 experts" "$moxie" run --preset granite-3.1-1b-a400m --format mxfp4-ct \
    --experts 8 --tokens 3 -o "$tmp/p.safetensors"
expect 0 '"format": "mxfp4-ct"' "$moxie" run --preset granite-3.1-1b-a400m --format mxfp4-ct --experts 8 --tokens 3 \
    --threads 1 -o "$tmp/q.safetensors" --json
cmp "$tmp/p.safetensors" "$tmp/q.safetensors" || fail "equal seeds made different runs of a preset"
expect 0 '"output_not_finite": 0' "$moxie" run --preset granite-3.1-1b-a400m --format mxfp4-ct --experts 8 --tokens 3 --seed 1 \
    -o "$tmp/q.safetensors" --json
cmp -s "$tmp/p.safetensors" "$tmp/q.safetensors" && fail "another seed changed nothing of a preset's run"
expect 2 "a directory and --preset exclude each other" "$moxie" run "$tmp/model" --preset gpt-oss-20b
expect 2 "layer goes with a directory" "$moxie" run --preset gpt-oss-20b --layer 1
expect 2 "format goes with --preset" "$moxie" run "$tmp/model" --format bf16
expect 0 "output rms" "$moxie" run "$tmp/model" --tokens 5 --seed 3 --states outliers -o "$tmp/outliers.safetensors"
cmp -s "$tmp/a.safetensors" "$tmp/outliers.safetensors" && fail "outliers changed nothing"
expect 3 "hidden_states" "$moxie" run "$tmp/model" --layer 0 --input "$tmp/a.safetensors"

# Equal seeds make equal checkpoints; another seed another one.
synth gpt-oss-20b mxfp4-gptoss "$tmp/again"
cmp "$tmp/model/model.safetensors" "$tmp/again/model.safetensors" || fail "equal seeds made different checkpoints"
synth gpt-oss-20b mxfp4-gptoss "$tmp/other" --seed 1
cmp -s "$tmp/model/model.safetensors" "$tmp/other/model.safetensors" && fail "another seed made the same checkpoint"
expect 3 "not empty" "$moxie" synth gpt-oss-20b -o "$tmp/model"
expect 2 "no format \"fp3\".*mxfp4-quark" "$moxie" synth gpt-oss-20b --format fp3 -o "$tmp/none"
expect 2 "preset|gpt-5" "$moxie" synth gpt-5 -o "$tmp/none"
[ ! -e "$tmp/none" ] || fail "a refused synth left $tmp/none"
finish
