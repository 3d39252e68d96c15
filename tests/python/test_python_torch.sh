#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A sample of the package's tests that need torch, transformers, PEFT and compressed-tensors, in a venv made from PyPI. That
# takes 0.7 GB of downloads and 1.6 GB of disk, so only MOXIE_TEST_TORCH=1 (as .ci/run sets) asks for it. Without it
# test_python_package runs these tests where its interpreter has torch.
set -eu
build=$(realpath "$1")
skip() { echo "skipped: $1"; exit 77; }
[ -e "$build/python/moxie/_moxie.abi3.so" ] || skip "no Python package in this build (no headers of Python 3.11 or later, or sanitized)"
[ "${MOXIE_TEST_TORCH:-}" = 1 ] || skip "torch from PyPI is 0.7 GB of downloads: set MOXIE_TEST_TORCH=1"
venv=$build/python/torch-venv log=$build/python/torch-venv.log
[ "$(df -Pm "$build" | awk 'NR == 2 { print $4 }')" -gt 3000 ] || skip "less than 3 GB of disk are free for a venv with torch"

pip_install() { timeout 300 "$venv/bin/pip" install -q --no-compile --disable-pip-version-check "$@" >>"$log" 2>&1; }
make_venv() {
    "$(cat "$build/python/interpreter")" -m venv "$venv" >"$log" 2>&1 && pip_install --no-deps torch &&
        pip_install pytest numpy transformers typing-extensions 'setuptools>=77' filelock sympy networkx jinja2 fsspec pydantic loguru psutil &&
        pip_install --no-deps compressed-tensors peft accelerate && "$venv/bin/python" tests/python/torch_without_cuda.py >>"$log" 2>&1 &&
        "$venv/bin/python" -c 'import torch, transformers' >>"$log" 2>&1
}
start=$(date +%s)
if [ ! -e "$venv/ready" ]; then
    rm -rf "$venv"
    make_venv || { rm -rf "$venv"; skip "no torch: $(tail -1 "$log" | cut -c1-200)"; }
    touch "$venv/ready"
fi
echo "venv: $(($(date +%s) - start)) s"
export PYTHONPATH="$build/python" PYTHONPYCACHEPREFIX="$venv/bytecode" MOXIE_TEST_QUICK=1
# A sample: what takes longest is left to test_python_package with an interpreter that has torch.
sample='not docs and not by_inductor and not compiled_and_released and not qwen3-bf16 and not mixtral-gptq'
sample="$sample and not (those_of_the_library and (checkpoint or int or tensor)) and not (test_peft and not logits and not from_files)"
exec "$venv/bin/python" -m pytest -q -s -p no:cacheprovider -rs --durations=5 -k "$sample" python/tests/test_torch.py \
    python/tests/test_transformers.py python/tests/test_transformers_files.py python/tests/test_peft.py
