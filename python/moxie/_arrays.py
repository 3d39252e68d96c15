# SPDX-License-Identifier: Apache-2.0
"""New arrays of the kind that the caller uses, and his CUDA stream. Called by the C part."""

import sys

from . import _moxie

_torch_names = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "i32": "int32"}
_numpy_names = {"bf16": "uint16", "f16": "float16", "f32": "float32", "i32": "int32"}


def _library(like):
    return type(like).__module__.partition(".")[0]


def new(like, shape, dtype, same):
    """An array of `shape`, as `like` in kind and device. same: with the dtype of `like`, by whatever name it calls that."""
    library = _library(like)
    if library == "numpy":
        return sys.modules["numpy"].empty(shape, like.dtype if same else _numpy_names[dtype])
    if library == "torch":
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=like.dtype if same else getattr(torch, _torch_names[dtype]), device=like.device)
    if library == "cupy":
        cupy = sys.modules["cupy"]
        return cupy.empty(shape, like.dtype if same else _numpy_names[dtype])
    return _moxie._new_array(shape, like.dtype if same and isinstance(like, _moxie.Array) else dtype)


def device_bytes(like, count):
    """`count` bytes of memory on the device of `like`."""
    library = _library(like)
    if library == "torch":
        torch = sys.modules["torch"]
        return torch.empty(count, dtype=torch.uint8, device=like.device)
    if library == "cupy":
        return sys.modules["cupy"].empty(count, "uint8")
    raise TypeError("the plan needs device memory: layer.plan(..., workspace=ARRAY of plan.workspace_bytes bytes)")


def stream_of(like, stream):
    """The address of a CUDA stream: of an object that has one, else of torch's current stream, else 0."""
    if stream is None:
        if _library(like) == "torch" and like.is_cuda:
            return sys.modules["torch"].cuda.current_stream(like.device).cuda_stream
        return 0
    for name in ("cuda_stream", "ptr"):
        address = getattr(stream, name, None)
        if address is not None:
            return int(address)
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is None:
        raise TypeError(f"stream: a number or a CUDA stream is wanted, not {stream!r}")
    return int(protocol()[1])
