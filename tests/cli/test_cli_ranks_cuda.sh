#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks on GPUs from the command line, without one: four devices of a launch table in plain C, and a stub of NCCL. The bytes
# are those of one device alone.
. "$(dirname "$0")/cli_lib.sh"
export MOXIE_CUDA_LIBRARY="$1/tests/libmoxie_cuda_plain.so" MOXIE_NCCL_LIBRARY="$1/tests/libnccl_stub.so" MOXIE_PLAIN_DEVICES=4
[ -e "$MOXIE_CUDA_LIBRARY" ] && [ -e "$MOXIE_NCCL_LIBRARY" ] || { echo "skipped: no launch table in plain C"; exit 77; }
synth qwen3-30b-a3b bf16 "$tmp/model"
synth deepseek-v3 fp8-block "$tmp/shared" --intermediate 256

expect 0 "" "$moxie" run "$tmp/model" --backend cuda --tokens 11 -o "$tmp/one.safetensors"
# same ARGUMENTS...: ranks give the file of one device.
same() {
    rm -f "$tmp/ranks.safetensors"
    expect 0 "ranks?, --tp" "$moxie" run "$tmp/model" --backend cuda --tokens 11 -o "$tmp/ranks.safetensors" "$@"
    cmp "$tmp/one.safetensors" "$tmp/ranks.safetensors" || fail "other bytes: $*"
}
same --ranks 2
same --ranks 3 --tokens-as replicated --device 1
same --ranks 1 --comm nccl
same --ranks 4 --comm nccl
same --ranks 3 --comm nccl --tokens-as replicated --ep-map round_robin
same --ranks 4 --comm nccl --tokens-as scattered
same --ranks 4 --comm nccl --device-kernels sm80
same --ranks 3 --comm nccl --exchange-streams 2 --exchange-chunk 2
same --ranks 4 --tp 2 --comm nccl
same --ranks 2 --tp 2
same --ranks 3 --comm nccl --exchange-capacity 4
expect 0 "right: the bytes are equal" "$moxie" diff "$tmp/shared" --a cuda --ranks 2 --comm nccl
expect 0 "right: the bytes are equal" "$moxie" diff "$tmp/shared" --a cuda --ranks 3
expect 0 "nccl, ranks are CUDA devices" "$moxie" info

# Steps on GPUs: those of a fixed capacity in a graph.
expect 0 "^ *2 +1 +graph .*" "$moxie" bench "$tmp/model" --backend cuda --ranks 2 --comm nccl --tokens 2,8 --exchange-capacity 1 --repeats 2
expect 0 '"timed_as": "calls"' "$moxie" bench "$tmp/model" --backend cuda --ranks 2 --tp 2 --tokens 3 --repeats 2 --json

# What is refused.
expect 4 "CUDA device 4 was asked for; this machine has 4" "$moxie" run "$tmp/model" --backend cuda --ranks 5 --comm nccl
expect 4 "CUDA device 4 was asked for" "$moxie" run "$tmp/model" --ranks 5 --comm nccl --device-kernels sm80
expect 2 "goes with --ranks N" "$moxie" run "$tmp/model" --backend cuda --comm nccl
expect 2 "comm mpi is for .moxie run" "$moxie" diff "$tmp/model" --comm mpi
expect 4 "MOXIE_NCCL_LIBRARY is /nowhere" env MOXIE_NCCL_LIBRARY=/nowhere "$moxie" run "$tmp/model" --backend cuda --ranks 2 --comm nccl
finish
