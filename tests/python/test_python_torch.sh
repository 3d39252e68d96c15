#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A sample of the package's tests that need torch, transformers, PEFT and compressed-tensors, in a venv made from PyPI. That
# takes 0.7 GB of downloads and 1.6 GB of disk, so only MOXIE_TEST_TORCH=1 (as .ci/run sets) asks for it. Without it
# test_python_package runs these tests where its interpreter has torch. The venv has 180 s, all has 240 s; whoever is slower
# skips what is left.
set -eu
build=$(realpath "$1")
skip() { echo "skipped: $1"; exit 77; }
[ -e "$build/python/moxie/_moxie.abi3.so" ] || skip "no Python package in this build (no headers of Python 3.11 or later, or sanitized)"
[ "${MOXIE_TEST_TORCH:-}" = 1 ] || skip "torch from PyPI is 0.7 GB of downloads: set MOXIE_TEST_TORCH=1"
venv=$build/python/torch-venv log=$build/python/torch-venv.log scratch=$build/python/torch-scratch limit=180 total=240
[ "$(df -Pm "$build" | awk 'NR == 2 { print $4 }')" -gt 3000 ] || skip "less than 3 GB of disk are free for a venv with torch"
# pip, torch and pytest put their scratch files and caches into the build folder, too.
rm -rf "$scratch"
mkdir -p "$scratch"
trap 'rm -rf "$scratch"' EXIT
export TMPDIR="$scratch" XDG_CACHE_HOME="$scratch" HF_HOME="$scratch" HF_HUB_OFFLINE=1 TORCHINDUCTOR_CACHE_DIR="$scratch/inductor"

start=$(date +%s)
if [ ! -e "$venv/ready" ]; then # else an earlier run has made it
    rm -rf "$venv"
    status=0
    timeout -k 5 $limit tests/python/torch_venv.sh "$(cat "$build/python/interpreter")" "$venv" >"$log" 2>&1 || status=$?
    if [ $status -ne 0 ]; then
        rm -rf "$venv"
        [ $status -ne 124 ] || skip "a venv with torch takes more than $limit s here"
        skip "no torch: $(tail -1 "$log" | cut -c1-200)"
    fi
    touch "$venv/ready"
fi
echo "venv: $(($(date +%s) - start)) s"
export PYTHONPATH="$build/python" PYTHONPYCACHEPREFIX="$venv/bytecode" MOXIE_TEST_QUICK=1
# A sample: what takes longest is left to test_python_package with an interpreter that has torch.
sample='not docs and not by_inductor and not compiled_and_released and not qwen3-bf16 and not mixtral-gptq'
sample="$sample and not test_family and not librarys_or_less and not (those_of_the_library and (checkpoint or int or tensor)) and not (test_peft and not logits and not from_files)"
# A test that fails ends the run (-x), so that one which takes too long has had no failure.
left=$((total - $(date +%s) + start)) status=0
timeout -k 5 $left "$venv/bin/python" -m pytest -x -q -s -p no:cacheprovider -rs --durations=5 -k "$sample" python/tests/test_torch.py \
    python/tests/test_transformers.py python/tests/test_transformers_files.py python/tests/test_peft.py python/tests/test_quantize_error.py \
    python/tests/test_transformers_blocks.py || status=$?
[ $status -ne 124 ] || skip "the tests were stopped after $left s, without a failure until then"
exit $status
