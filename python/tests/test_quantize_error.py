# SPDX-License-Identifier: Apache-2.0
"""moxie's quantization error beside that of the library that defines the format, on the same weights (quantizers.py): with
plain scales within 1 %, or less. The libraries' figures are recorded in tests/golden/quantize/errors.json; where a library
is installed, it must still give its figures."""

import importlib.metadata
import json
import pathlib
import struct

import moxie
import numpy as np
import pytest
import quantizers
from conftest import read_safetensors, write_safetensors

RECORDED = json.loads((pathlib.Path(__file__).parents[2] / "tests/golden/quantize/errors.json").read_text())
CASES = [(library, form) for library, errors in RECORDED["errors"].items() for form in errors]
NAME = "model.layers.0.mlp.experts.{}.{}_proj.weight"


@pytest.fixture(scope="module")
def weights():
    return {key: quantizers.widened(codes) for key, codes in quantizers.source().items()}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("quantize") / "model"
    moxie.synth("qwen3-30b-a3b", path, format="bf16", layers=1, experts=quantizers.EXPERTS, hidden=quantizers.HIDDEN,
                intermediate=quantizers.INTERMEDIATE)
    (file,) = path.glob("*.safetensors")
    tensors = {name: ("BF16", codes) for name, codes in read_safetensors(file).items()}
    made = {NAME.format(*key): ("BF16", codes) for key, codes in quantizers.source().items()}
    assert set(made) < set(tensors) and all(tensors[name][1].shape == codes.shape for name, (_, codes) in made.items())
    write_safetensors(file, tensors | made)
    return path


def write_imatrix(path, importance):
    """llama.cpp's old format: by matrix, the values of all experts, one after the other."""
    entries = b""
    for part in ("gate", "up", "down"):
        name = f"blk.0.ffn_{part}_exps.weight".encode()
        values = np.concatenate([importance[e, part] for e in range(quantizers.EXPERTS)])
        entries += struct.pack("<i", len(name)) + name + struct.pack("<ii", 1, values.size) + values.tobytes()
    path.write_bytes(struct.pack("<i", 3) + entries)


def error_of(form, scales, checkpoint, weights, folder, importance=None):
    """From the weights that the result has, as f32; the report must say the same, without importances."""
    given = {"input_amax13": 5, "input_amax2": 5} if form == "fp8-modelopt" else {}
    if importance:
        given["imatrix"] = folder / "imatrix"
        write_imatrix(given["imatrix"], importance)
    report = moxie.quantize(checkpoint, folder / "quantized", form, scales=scales, **given)
    back = "gguf-f32" if form.startswith("gguf-") else "f32"
    moxie.quantize(folder / "quantized", folder / "f32", back)
    if back == "f32":
        stored = {name: w for file in (folder / "f32").glob("*.safetensors") for name, w in read_safetensors(file).items()}
        quantized = {key: stored[NAME.format(*key)] for key in weights}
    else:
        quantized = read_gguf(folder / "f32", weights)
    error = quantizers.relative_error(weights, quantized)
    assert report.rms == pytest.approx(error, rel=1e-5)
    return quantizers.relative_error(weights, quantized, importance) if importance else error


def read_gguf(path, weights):
    """The experts' matrices of a file of f32 that ends with them. A tensor's offset follows its name, rank, extents, type."""
    data = path.read_bytes()
    offsets = {}
    for part in ("gate", "up", "down"):
        name = f"blk.0.ffn_{part}_exps.weight".encode()
        at = data.rindex(len(name).to_bytes(8, "little") + name) + 8 + len(name) + 4 + 3 * 8 + 4
        offsets[part] = int.from_bytes(data[at : at + 8], "little")
    begin = len(data) - max(offsets.values()) - sum(w.nbytes for w in weights.values()) // 3
    return {(e, part): np.frombuffer(data, "<f4", w.size, begin + offsets[part] + e * w.nbytes).reshape(w.shape)
            for (e, part), w in weights.items()}


@pytest.mark.parametrize("library, form", CASES, ids=["-".join(case) for case in CASES])
def test_error_is_the_librarys_or_less(library, form, checkpoint, weights, tmp_path):
    scales = "mse" if library == "ggml" else "plain"  # each as the library's own tool does it
    error, theirs = error_of(form, scales, checkpoint, weights, tmp_path), RECORDED["errors"][library][form]
    print(f"{form}: {error:.5f}, {library} {theirs:.5f}, {error / theirs:.4f}")
    assert error <= 1.01 * theirs
    if scales == "plain":
        (tmp_path / "mse").mkdir()
        assert error_of(form, "mse", checkpoint, weights, tmp_path / "mse") <= error


@pytest.mark.parametrize("form", list(RECORDED["weighted"]["ggml"]))
def test_weighted_error_is_ggmls_or_less(form, checkpoint, weights, tmp_path):
    by, theirs = quantizers.importances(), RECORDED["weighted"]["ggml"][form]
    error = error_of(form, "mse", checkpoint, weights, tmp_path, by)
    print(f"{form}: {error:.5f}, ggml {theirs:.5f}, {error / theirs:.4f}")
    assert error <= 1.01 * theirs


@pytest.mark.parametrize("library, form", list(quantizers.QUANTIZERS), ids=["-".join(case) for case in quantizers.QUANTIZERS])
def test_library_gives_its_recorded_error(library, form, weights):
    try:
        version = importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{library} is not installed: its errors of version {RECORDED['versions'][library]} are taken")
    pytest.importorskip("torch", reason="torch is not installed")
    run = quantizers.QUANTIZERS[library, form]
    error = quantizers.relative_error(weights, {key: run(w) for key, w in weights.items()})
    assert error == pytest.approx(RECORDED["errors"][library][form], rel=1e-3), f"{library} {version}"
