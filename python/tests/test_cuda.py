# SPDX-License-Identifier: Apache-2.0
"""Plans on a GPU: arrays by DLPack on a stream, workspace, what does not go. It runs where MOXIE_CUDA_LIBRARY names the
library whose kernels are plain C and whose device memory is the host's; arrays then only claim to be on a device."""

import os
import sys
import threading
import weakref

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


def test_first_runs_of_two_threads(layer, monkeypatch):
    """Both make a workspace; one stays, and goes with the plan."""
    plan, alive, both = layer.plan(), [], threading.Barrier(2)

    def device_bytes(like, count):
        made = on_device(np.zeros(count, np.uint8), 1, 8)
        alive.append(weakref.ref(made))
        both.wait(20)
        return made

    def first_run():
        x, out = on_device(states(4), 4, 16), on_device(np.zeros((4, 256), np.uint16), 4, 16)
        plan.run(x, out=out)

    monkeypatch.setattr("moxie._arrays.device_bytes", device_bytes)
    threads = [threading.Thread(target=first_run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(made() is not None for made in alive) == 1 and len(alive) == 2
    del plan
    assert not any(made() is not None for made in alive)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs Python 3.12, whose classes can have the buffer protocol")
def test_arrays_that_refuse_the_buffer_protocol(layer):
    """As CuPy's do."""

    class Refusing(Capsule):
        def __buffer__(self, flags):
            raise BufferError("not on the host")

    x, plan = on_device(states(4), 4, 16), layer.plan()
    want = plan.run(states(4))
    x.__class__ = Refusing
    plan = layer.plan(workspace=on_device(np.zeros(plan.workspace_bytes, np.uint8), 1, 8))
    out = on_device(np.zeros((4, 256), np.uint16), 4, 16)
    plan.run(x, out=out)
    assert np.array_equal(out.values, want)


def test_what_does_not_go(layer):
    plan = layer.plan()
    x = on_device(states(4), 4, 16)
    with pytest.raises(TypeError, match="workspace=ARRAY"):
        plan.run(x, out=on_device(np.zeros((4, 256), np.uint16), 4, 16))
    with pytest.raises(moxie.ArgumentError, match="all arrays of a call are in one place"):
        plan.run(x, out=np.zeros((4, 256), np.uint16))
    with pytest.raises(moxie.ArgumentError, match="workspace: device memory"):
        layer.plan(workspace=np.zeros(plan.workspace_bytes, np.uint8)).run(x, out=on_device(np.zeros((4, 256), np.uint16), 4, 16))
    away = on_device(states(4), 4, 16)
    away.tensor.device[1] = 1
    with pytest.raises(moxie.ArgumentError, match="out: .*CUDA device 1; .* CUDA device 0"):
        plan.run(x, out=away)
    small = on_device(np.zeros(100, np.uint8), 1, 8)
    with pytest.raises(moxie.Error, match="workspace"):
        layer.plan(workspace=small).run(x, out=on_device(np.zeros((4, 256), np.uint16), 4, 16))
    rows = on_device(np.zeros((4, 4, 256), np.float32), 2, 32)
    ids, weights = on_device(np.zeros((4, 4), np.int32), 0, 32), on_device(np.zeros((4, 4), np.float32), 2, 32)
    with pytest.raises(moxie.Unsupported, match="parts of a run"):
        plan.experts(x, ids, weights, out=rows)


def test_a_record_on_a_device_is_an_address(layer):
    record = layer.record(0)
    assert record.data_ptr and record.shape[0] > 0
    for read in (bytes, np.frombuffer, memoryview, lambda r: r == layer.record(0), lambda r: r.tolist()):
        with pytest.raises(BufferError, match="its address"):
            read(record)


def test_streams():
    """An int, torch's and CuPy's streams, NVIDIA's protocol: the address that reaches DLPack and the library."""
    from moxie._arrays import stream_of

    class Named:
        def __init__(self, **attributes):
            self.__dict__.update(attributes)

    class Protocol:
        def __cuda_stream__(self):
            return (0, 77)

    assert stream_of(None, Named(cuda_stream=75)) == 75 and stream_of(None, Named(ptr=76)) == 76
    assert stream_of(None, Protocol()) == 77 and stream_of(np.zeros(1), None) == 0
    with pytest.raises(TypeError, match="a CUDA stream is wanted"):
        stream_of(None, object())


def test_a_protocol_s_stream_reaches_the_arrays(layer):
    class Protocol:
        def __cuda_stream__(self):
            return (0, 0)

    plan = layer.plan(workspace=on_device(np.zeros(layer.plan().workspace_bytes, np.uint8), 1, 8))
    x, out = on_device(states(4), 4, 16), on_device(np.zeros((4, 256), np.uint16), 4, 16)
    plan.run(x, out=out, stream=Protocol())
    assert x.stream == 1 and np.array_equal(out.values, layer.plan().run(states(4)))


def test_torch_s_operator(layer, monkeypatch):
    """fused_moe for tensors on CUDA, with host memory in their place: workspace, stream, growth, refusals."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import moxie.torch as mt

    asked, made, streams = [], [], []

    def memory(count, device):
        asked.append((count, device))
        made.append(torch.from_numpy(aligned((count,), np.uint8)))
        return made[-1]

    monkeypatch.setattr(mt, "_device_memory", memory)
    monkeypatch.setattr(mt, "_on_gpu", lambda tensor: True)
    monkeypatch.setattr(mt, "_stream", lambda tensor: streams.append(tensor.shape) or 0)
    capturing = iter([False] * 3 + [True] + [False] * 4)  # of the runs below
    monkeypatch.setattr(mt, "_capturing", lambda: next(capturing))
    moe = mt.MoELayer(layer, max_tokens=4)
    assert asked == [(layer.plan(max_tokens=4).workspace_bytes, 0)]
    for tokens in (0, 3, 9, 2):
        x = torch.from_numpy(states(tokens).view(np.int16)).view(torch.bfloat16)
        want = torch.from_numpy(layer.plan().run(states(tokens)).view(np.int16)).view(torch.bfloat16)
        assert torch.equal(moe(x), want), tokens
        ids, weights = (torch.from_numpy(np.asarray(a)) for a in layer.plan().route(states(tokens)))
        assert torch.equal(moe(x, ids.long(), weights), want), tokens
    assert len(streams) == 8 and len(asked) == 2 and asked[1][0] > asked[0][0]  # one larger workspace
    kept = mt._open[moe.number].captured  # a graph holds the first plan's workspace
    assert list(kept) == [4] and kept[4][1] is made[0]
    monkeypatch.setattr(mt, "_on_gpu", lambda tensor: False)
    with pytest.raises(ValueError, match="on cuda:0; it is"):
        moe(x)


def test_the_machine():
    assert moxie.cuda_info().devices >= 1 and moxie.cuda_devices()[0].usable and moxie.cuda_kernels()


def test_a_store_on_the_device(tmp_path):
    """Experts in RAM and on the device: the bytes of a layer with all experts there."""
    moxie.synth("qwen3-30b-a3b", tmp_path / "model", format="fp8-block", layers=1, experts=16, hidden=256, intermediate=128)
    model, path = moxie.Model(tmp_path / "model"), tmp_path / "layer.moxie"
    moxie.ExpertFile.write(path, model.load(0), target="moxie-rowmajor", threads=1)
    want = model.layer(0, backend="cuda", threads=1, max_tokens=8).plan().run(states(5))
    assert np.array_equal(moxie.Layer.from_file(path, backend="cuda", threads=1, max_tokens=8).plan().run(states(5)), want)
    record = moxie.Store.describe(path, 1 << 24).record_bytes
    store = moxie.Store(path, 12 * record, device_bytes=6 * record)
    plan = store.layer(threads=1, max_tokens=8).plan()
    assert plan.on_gpu and store.info.device_slots > 0
    for _ in range(2):
        assert np.array_equal(plan.run(states(5)), want)
    assert store.counters().copies > 0 and store.counters().id_waits == 2
    plan.lookahead(states(5))
    assert np.array_equal(plan.run(states(5)), want)
