#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python package of the build folder under its own tests (python/tests, pytest). NumPy and pytest come from the
# interpreter, else from PyPI into a venv in the build folder. torch, JAX and ml_dtypes are tested where they are there.
set -eu
build=$(realpath "$1")
[ -e "$build/python/moxie/_moxie.abi3.so" ] || { echo "skipped: no Python package in this build (no headers of Python 3.11 or later, or sanitized)"; exit 77; }
python=$(cat "$build/python/interpreter")
export PYTHONPATH="$build/python" PYTHONDONTWRITEBYTECODE=1
if ! "$python" -c 'import numpy, pytest' 2>/dev/null; then
    venv=$build/python/venv
    if ! "$venv/bin/python" -c 'import numpy, pytest' 2>/dev/null; then
        rm -rf "$venv"
        "$python" -m venv "$venv" >"$build/python/venv.log" 2>&1 &&
            timeout 120 "$venv/bin/pip" install -q --disable-pip-version-check numpy pytest >>"$build/python/venv.log" 2>&1 ||
            { rm -rf "$venv"; echo "skipped: no NumPy and pytest: $(tail -1 "$build/python/venv.log" | cut -c1-200)"; exit 77; }
    fi
    python=$venv/bin/python
fi
"$python" -m pytest -q -s -p no:cacheprovider -rs --durations=5 python/tests
# CUDA's way through the package, with the library that has all kernels in plain C and calls host memory a device.
plain=$build/tests/libmoxie_cuda_plain.so
[ ! -e "$plain" ] || MOXIE_CUDA_LIBRARY=$plain "$python" -m pytest -q -p no:cacheprovider -rs python/tests/test_cuda.py
