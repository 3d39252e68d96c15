# SPDX-License-Identifier: Apache-2.0
"""Plans on a GPU: arrays by DLPack on a stream, workspace, what does not go. It runs where MOXIE_CUDA_LIBRARY names the
library whose kernels are plain C and whose device memory is the host's; arrays then only claim to be on a device."""

import os

import moxie
import numpy as np
import pytest
from conftest import states
from test_arrays import Capsule

pytestmark = pytest.mark.skipif("cuda_plain" not in os.environ.get("MOXIE_CUDA_LIBRARY", ""),
                                reason="needs MOXIE_CUDA_LIBRARY=.../libmoxie_cuda_plain.so")


def aligned(shape, dtype):
    """Zeros at a multiple of 256 bytes."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(count + 256, np.uint8)
    start = -memory.ctypes.data % 256
    return memory[start : start + count].view(dtype).reshape(shape)


def on_device(values, code, bits):
    copy = aligned(values.shape, values.dtype)
    copy[...] = values
    return Capsule(copy, code, bits, device=2)


@pytest.fixture(scope="module")
def layer(model):
    return model.layer(0, backend="cuda", max_tokens=16, threads=1)


def test_host_arrays_are_copied(layer, model):
    plan = layer.plan()
    assert plan.on_gpu and all(s.isa.startswith("cuda") for s in plan.steps if s.chosen)
    y = plan.run(states(4))
    # The simple CUDA kernels have the bits of the scalar CPU kernels.
    assert np.array_equal(y, model.layer(0, isa="scalar", threads=1).plan().run(states(4)))


def test_device_arrays_run_on_the_stream(layer):
    plan = layer.plan()
    want = plan.run(states(4))
    workspace = on_device(np.zeros(plan.workspace_bytes, np.uint8), 1, 8)
    plan = layer.plan(workspace=workspace)
    x, out = on_device(states(4), 4, 16), on_device(np.zeros((4, 256), np.uint16), 4, 16)
    assert plan.run(x, out=out) is out
    assert np.array_equal(out.values, want)
    assert x.stream == 1 and workspace.stream == 1  # the default stream, by DLPack's name
    ids, weights = plan.route(states(4))
    out.values[...] = 0
    plan.run_pointers(4, x.values.ctypes.data, out.values.ctypes.data, workspace=workspace.values.ctypes.data)
    assert np.array_equal(out.values, want)
    out.values[...] = 0
    plan.run(x, out=out, ids=on_device(ids, 0, 32), weights=on_device(weights, 2, 32))
    assert np.array_equal(out.values, want)

    class Stream:
        cuda_stream = 0

    plan.run(x, out=out, stream=Stream())
    plan.run(x, out=out, stream=0)
    assert x.stream == 1


def test_what_does_not_go(layer):
    plan = layer.plan()
    x = on_device(states(4), 4, 16)
    with pytest.raises(TypeError, match="workspace=ARRAY"):
        plan.run(x, out=on_device(np.zeros((4, 256), np.uint16), 4, 16))
    with pytest.raises(moxie.ArgumentError, match="all arrays of a call are in one place"):
        plan.run(x, out=np.zeros((4, 256), np.uint16))
    with pytest.raises(moxie.ArgumentError, match="workspace: device memory"):
        layer.plan(workspace=np.zeros(plan.workspace_bytes, np.uint8)).run(x, out=on_device(np.zeros((4, 256), np.uint16), 4, 16))
    small = on_device(np.zeros(100, np.uint8), 1, 8)
    with pytest.raises(moxie.Error, match="workspace"):
        layer.plan(workspace=small).run(x, out=on_device(np.zeros((4, 256), np.uint16), 4, 16))
    rows = on_device(np.zeros((4, 4, 256), np.float32), 2, 32)
    ids, weights = on_device(np.zeros((4, 4), np.int32), 0, 32), on_device(np.zeros((4, 4), np.float32), 2, 32)
    with pytest.raises(moxie.Unsupported, match="parts of a run"):
        plan.experts(x, ids, weights, out=rows)


def test_the_machine():
    assert moxie.cuda_info().devices >= 1 and moxie.cuda_devices()[0].usable and moxie.cuda_kernels()
