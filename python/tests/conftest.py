# SPDX-License-Identifier: Apache-2.0
"""Checkpoints and arrays for the tests of the package; safetensors files, read and written without another package."""

import json
import struct

import moxie
import numpy as np
import pytest

NUMPY = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "U8": "u1", "I8": "i1", "F8_E4M3": "u1", "F8_E8M0": "u1", "I32": "<i4",
         "I64": "<i8"}


def read_safetensors(path):
    data = np.fromfile(path, np.uint8)
    (size,) = struct.unpack("<Q", data[:8].tobytes())
    header = json.loads(data[8 : 8 + size].tobytes())
    header.pop("__metadata__", None)
    return {
        name: data[8 + size + t["data_offsets"][0] : 8 + size + t["data_offsets"][1]].view(NUMPY[t["dtype"]]).reshape(t["shape"])
        for name, t in header.items()
    }


def write_safetensors(path, tensors):
    """tensors: {name: (dtype of safetensors, array)}"""
    header, at = {}, 0
    for name, (dtype, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for _, a in tensors.values()))


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """checkpoint(preset, format): a small directory, made once."""
    made = {}

    def make(preset="gpt-oss-20b", format=None, experts=8, size=256):
        key = (preset, format, experts, size)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("checkpoint") / "model"
            moxie.synth(preset, made[key], format=format, layers=1, experts=experts, hidden=size, intermediate=size)
        return made[key]

    return make


def bf16(values):
    """bf16 codes of float32 values, cut off."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def states(tokens, width=256, seed=0):
    """Random hidden states as bf16 codes."""
    return bf16(np.random.default_rng(seed).standard_normal((tokens, width)))


@pytest.fixture(scope="session")
def model(checkpoint):
    return moxie.Model(checkpoint())


@pytest.fixture(scope="session")
def layer(model):
    return model.layer(0, threads=1, max_tokens=64)


@pytest.fixture(scope="session")
def plan(layer):
    return layer.plan()
