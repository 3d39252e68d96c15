# SPDX-License-Identifier: Apache-2.0
"""The state dict of a MoELayer: its tensors in the checkpoint's format, under the checkpoint's names.

A packed layer has no way back to the checkpoint, so the tensors come from where they were: the files, which are mapped and
not read before somebody does, or the tensors that were loaded last.
"""

from __future__ import annotations

import json
import mmap
import pathlib
import struct

import torch

from . import errors
from ._objects import Model

_dtypes = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
           "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
           "U8": "uint8", "BOOL": "bool"}


def _headers(path):
    """{tensor name: (file, safetensors' entry, where the data begin)} of a checkpoint directory."""
    if not pathlib.Path(path).is_dir():
        raise errors._make("unsupported", "the module's state dict comes from safetensors files, and this is none of them. Make "
                           "the module by MoELayer(layer), which has no state dict, or from a directory", str(path), -1)
    found = {}
    for file in sorted(pathlib.Path(path).glob("*.safetensors")):
        with open(file, "rb") as stream:
            (size,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(size))
        header.pop("__metadata__", None)
        found |= {name: (file, entry, 8 + size) for name, entry in header.items()}
    return found


def _mapped(file, entry, base, maps):
    """A tensor of a file, as a private mapping of it."""
    if file not in maps:
        with open(file, "rb") as stream:
            maps[file] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    name = _dtypes.get(entry["dtype"])
    dtype = getattr(torch, name or "", None)
    if dtype is None:
        raise errors.Unsupported(f"{file}: torch has no type for {entry['dtype']}")
    start, end = entry["data_offsets"]
    if start == end:
        return torch.empty(entry["shape"], dtype=dtype)
    data = torch.frombuffer(maps[file], dtype=torch.uint8, count=end - start, offset=base + start)
    if data.data_ptr() % dtype.itemsize:
        data = data.clone()
    return data.view(dtype).reshape(entry["shape"])


class State:
    """Where the tensors of one MoE layer are, and how they get into a layer.

    prefix  what the names in the checkpoint begin with; the module's own names are what follows
    """

    def __init__(self, model: Model, number: int):
        self.path, self.options, self.number = model.path, model.options, number
        self.tensors = model.tensors  # {name: array}, or None: the files of `path`
        names = list(_headers(self.path) if self.tensors is None else self.tensors)
        experts = model.expert_prefix(number)
        block = experts.rstrip(".").rpartition(".")[0] + "."
        self.names = [name for name in names if name.startswith(block)]
        if not self._complete():  # the router is elsewhere in the layer
            block = experts[: experts.index(f".{number}.") + len(f".{number}.")]
            self.names = [name for name in names if name.startswith(block)]
        self.prefix = block

    def _complete(self) -> bool:
        try:
            self.weights(self.read())
        except errors.Error:
            return False
        return True

    def read(self) -> dict[str, torch.Tensor]:
        """{the module's own name: tensor}."""
        start = len(self.prefix) if hasattr(self, "prefix") else 0
        if self.tensors is not None:
            return {name[start:]: torch.as_tensor(self.tensors[name]) for name in self.names}
        headers, maps = _headers(self.path), {}
        return {name[start:]: _mapped(*headers[name], maps) for name in self.names}

    def weights(self, tensors: dict[str, torch.Tensor]):
        """The moxie.Weights of such tensors, with the directory's config.json."""
        prefix = getattr(self, "prefix", "")
        return Model(self.path, {prefix + name: tensor for name, tensor in tensors.items()}, **self.options).load(self.number)

    def load(self, layer, tensors: dict[str, torch.Tensor]) -> None:
        """Packs them into the layer, which must have been made for weights of that kind."""
        ours = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        weights = self.weights(ours)
        if weights.config.w13 != layer.config.w13 or weights.config.w2 != layer.config.w2:
            raise errors.Mismatch(f"the tensors are quantized as {weights.config.w13.element}, the layer was made for "
                                  f"{layer.config.w13.element}")
        layer.prepare(weights, threads=layer._options.get("threads"))
        self.tensors = {self.prefix + name: tensor for name, tensor in ours.items()}
