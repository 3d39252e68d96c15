# SPDX-License-Identifier: Apache-2.0
"""Arrays of every kind go in and come out without a copy: buffers, NumPy, ml_dtypes, torch, bare DLPack."""

import array
import ctypes

import moxie
import numpy as np
import pytest
from conftest import states


def test_buffers(plan):
    x = states(4)
    y = plan.run(x)
    plain = array.array("H", bytes(2 * 4 * 256))
    view = memoryview(plain).cast("B").cast("H", (4, 256))
    assert plan.run(x, out=view) is view
    assert np.array_equal(np.asarray(view), y)
    made = plan.run(memoryview(x.tobytes()).cast("H", (4, 256)))
    assert isinstance(made, moxie.Array) and made.shape == (4, 256) and np.array_equal(np.asarray(made), y)
    assert plan.run(made).shape == (4, 256)  # moxie's own arrays are arrays, too


def test_out_is_used_and_returned(plan):
    x, out = states(4), np.zeros((4, 256), np.uint16)
    assert plan.run(x, out=out) is out and np.array_equal(out, plan.run(x))


def test_an_outer_stride_of_one_row_does_not_matter(plan):
    x = states(8)
    assert np.array_equal(plan.run(x[::8]), plan.run(x[:1]))


def test_hidden_states_in_f16_and_f32(checkpoint):
    weights = moxie.Model(checkpoint("qwen3-30b-a3b", "bf16")).load(0)
    x = np.random.default_rng(3).standard_normal((5, 256)).astype(np.float16)
    for dtype, name in ((np.float16, "f16"), (np.float32, "f32")):
        config = weights.config.replace(dtype=name)
        plan = moxie.Layer.from_weights(weights, config, threads=1, max_tokens=8).plan()
        y = plan.run(x.astype(dtype))
        assert y.dtype == dtype and max(r.worst_ratio for r in plan.check(weights, x.astype(dtype))) <= 1
        rows = plan.experts(x.astype(dtype), *plan.route(x.astype(dtype)))
        assert plan.combine(rows, *plan.route(x.astype(dtype))).dtype == dtype


def test_ml_dtypes(plan):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = states(4)
    y = plan.run(x.view(ml_dtypes.bfloat16))
    assert y.dtype == ml_dtypes.bfloat16 and np.array_equal(y.view(np.uint16), plan.run(x))


class Capsule:
    """An array that speaks DLPack only, on any device that it claims; like torch's it shares its memory."""

    class Tensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("axes", ctypes.c_int32),
                    ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                    ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                    ("offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

    def __init__(self, values, code, bits, device=1, strides=False, offset=0):
        self.values, self.device, self.stream, self.live = values, device, "not asked", 0
        self.shape = (ctypes.c_int64 * values.ndim)(*values.shape)
        steps = [s // values.itemsize for s in values.strides]
        self.strides = (ctypes.c_int64 * values.ndim)(*steps) if strides else None
        self.tensor = self.Tensor(values.ctypes.data - offset, (ctypes.c_int32 * 2)(device, 0), values.ndim, code, bits, 1,
                                  self.shape, self.strides, offset, None, None)

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, stream="absent"):
        self.stream = stream
        self.live += 1
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


def test_dlpack(plan):
    x = states(4)
    y = plan.run(x)
    for arguments in ({}, {"strides": True}, {"offset": 64}):
        out = Capsule(np.zeros((4, 256), np.uint16), 4, 16, **arguments)
        assert plan.run(Capsule(x, 4, 16, **arguments), out=out) is out
        assert np.array_equal(out.values, y) and out.stream == "absent"
    for code, dtype in ((4, "bf16"), (1, "u16")):  # a result has the dtype of what came, whatever its library calls that
        made = plan.run(Capsule(x, code, 16))
        assert isinstance(made, moxie.Array) and made.dtype == dtype and np.array_equal(np.asarray(made), y)
    with pytest.raises(moxie.ArgumentError, match="f16"):
        plan.run(Capsule(x, 2, 16))
    with pytest.raises(moxie.ArgumentError, match="not known"):
        plan.run(Capsule(x, 5, 16))
    with pytest.raises(moxie.ArgumentError, match="not contiguous"):
        plan.run(Capsule(np.asfortranarray(x), 4, 16, strides=True))
    with pytest.raises(moxie.ArgumentError, match="on CUDA device 0; the plan runs on the host"):
        plan.run(Capsule(x, 4, 16, device=2))
    with pytest.raises(moxie.ArgumentError, match="out: .*on CUDA device 0"):
        plan.run(x, out=Capsule(x.copy(), 4, 16, device=2))
    for kind in (8, 10, 14):  # Metal, ROCm, oneAPI: not to be read as the host's
        with pytest.raises(moxie.ArgumentError, match=f"hidden: .* device of DLPack's kind {kind}"):
            plan.run(Capsule(x, 4, 16, device=kind))
    assert np.array_equal(np.asarray(plan.run(Capsule(x, 1, 16, device=3))), y)  # the host's, pinned


def test_arrays_of_moxie(layer):
    record = layer.record(0)
    assert record.dtype == "u8" and len(record) == record.shape[0] and record.tolist()[:4] == list(np.asarray(record)[:4])
    assert record == layer.record(0) and record != layer.record(1)
    with pytest.raises(BufferError, match="read-only"):
        record.__dlpack__()
    with pytest.raises(TypeError):
        hash(record)
    with pytest.raises(TypeError):
        moxie.Array()
    codes, _ = moxie.quantize_activations(moxie.Quant("i8", "f32", 1, -1), np.ones((2, 8), np.float32))
    assert np.array_equal(np.from_dlpack(codes), np.asarray(codes))


# ---- torch -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


def test_torch(torch, plan):
    x = torch.from_numpy(states(4).view(np.int16)).view(torch.bfloat16)
    y = plan.run(x)
    want = plan.run(states(4))
    assert y.dtype == torch.bfloat16 and np.array_equal(y.view(torch.int16).numpy().view(np.uint16), want)
    out = torch.zeros_like(x)
    assert plan.run(x, out=out) is out and torch.equal(out, y)
    ids, weights = plan.route(x)
    assert ids.dtype == torch.int32 and weights.dtype == torch.float32
    assert torch.equal(plan.run(x, ids=ids, weights=weights), y)
    assert torch.equal(plan.combine(plan.experts(x, ids, weights), ids, weights), y)
    plan.run_pointers(4, x.data_ptr(), out.zero_().data_ptr(), ids=ids.data_ptr(), weights=weights.data_ptr())
    assert torch.equal(out, y)
    with pytest.raises(moxie.ArgumentError, match="i64"):
        plan.run(x, ids=ids.long(), weights=weights)
    with pytest.raises(moxie.ArgumentError, match="f32"):
        plan.run(x.float())
    with pytest.raises(moxie.ArgumentError, match="not contiguous"):
        plan.run(torch.zeros(256, 4, dtype=torch.bfloat16).t())
    with pytest.raises(moxie.ArgumentError, match="hidden: "):
        plan.run(torch.zeros(4, 256, dtype=torch.bfloat16, requires_grad=True))
    with pytest.raises(moxie.ArgumentError, match="hidden: "):
        plan.run(torch.zeros(4, 256, dtype=torch.bfloat16, device="meta"))


def test_torch_weights_and_models_without_copies(torch, checkpoint):
    directory = checkpoint("qwen3-30b-a3b", "fp8-block")
    from conftest import read_safetensors

    (file,) = directory.glob("*.safetensors")
    tensors = {}
    for name, values in read_safetensors(file).items():
        tensor = torch.from_numpy(values.copy())
        tensors[name] = tensor.view(torch.float8_e4m3fn) if values.dtype == np.uint8 else (
            tensor.view(torch.bfloat16) if values.dtype == np.uint16 else tensor)
    memory = moxie.Model(directory, tensors=tensors).load(0)
    assert memory.compare(moxie.Model(directory).load(0)).count == 0
    name = next(n for n in tensors if n.endswith("experts.3.up_proj.weight"))
    tensors[name].view(torch.uint8)[0, 0] += 1  # the model sees the tensor itself
    found = memory.compare(moxie.Model(directory).load(0))
    assert (found.expert, found.projection, found.part, found.count) == (3, "up", "codes", 1)
