#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the venv of test_python_torch: torch_venv.sh PYTHON FOLDER. The versions are fixed, so that what PyPI gets tomorrow
# changes no result of a test.
set -eu
python=$1 venv=$2
install() { "$venv/bin/pip" install -q --no-compile --disable-pip-version-check --no-cache-dir "$@"; }
"$python" -m venv "$venv"
install --no-deps 'torch~=2.15.0'
install pytest numpy 'transformers~=5.24.0' typing-extensions 'setuptools>=77' filelock sympy networkx jinja2 fsspec pydantic loguru psutil
install --no-deps 'compressed-tensors~=0.20.0' 'peft~=0.21.0' 'accelerate~=1.15.0'
"$venv/bin/python" tests/python/torch_without_cuda.py
"$venv/bin/python" -c 'import compressed_tensors, peft, torch, transformers'
