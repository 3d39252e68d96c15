#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python package of the build folder under its own tests (python/tests, pytest). NumPy, pytest, ml_dtypes and mpi4py come
# from the interpreter, else from PyPI into a venv in the build folder that sees the interpreter's packages, too. torch,
# transformers and JAX are tested where the interpreter has them; test_python_torch makes a venv with the first two.
# MOXIE_TEST_PYTHON names another interpreter, such as that of a venv with torch.
set -eu
build=$(realpath "$1")
[ -e "$build/python/moxie/_moxie.abi3.so" ] || { echo "skipped: no Python package in this build (no headers of Python 3.11 or later, or sanitized)"; exit 77; }
python=${MOXIE_TEST_PYTHON:-$(cat "$build/python/interpreter")}
export PYTHONPATH="$build/python" PYTHONDONTWRITEBYTECODE=1
if [ -z "${MOXIE_TEST_PYTHON:-}" ] && ! "$python" -c 'import numpy, pytest, ml_dtypes, mpi4py' 2>/dev/null; then
    venv=$build/python/venv
    install() { timeout 120 "$venv/bin/pip" install -q --disable-pip-version-check "$@" >>"$build/python/venv.log" 2>&1; }
    if ! "$venv/bin/python" -c 'import numpy, pytest' 2>/dev/null; then
        rm -rf "$venv"
        "$python" -m venv --system-site-packages "$venv" >"$build/python/venv.log" 2>&1 && install numpy pytest ||
            { rm -rf "$venv"; echo "skipped: no NumPy and pytest: $(tail -1 "$build/python/venv.log" | cut -c1-200)"; exit 77; }
        install --only-binary :all: ml_dtypes mpi4py || true # their tests say that they are not there
    fi
    python=$venv/bin/python
fi
"$python" -m pytest -q -s -p no:cacheprovider -rs --durations=5 python/tests
# CUDA's way through the package, with the library that has all kernels in plain C and calls host memory a device.
plain=$build/tests/libmoxie_cuda_plain.so
[ ! -e "$plain" ] || MOXIE_CUDA_LIBRARY=$plain "$python" -m pytest -q -p no:cacheprovider -rs python/tests/test_cuda.py
