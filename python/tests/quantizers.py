# SPDX-License-Identifier: Apache-2.0
"""Other libraries' quantizers of weights: what they make of the weights of source(), as float arrays.

    python3 quantizers.py tests/golden/quantize/errors.json LIBGGML.so

writes the relative root mean square errors of all, with their versions; test_quantize_error.py compares
moxie's with them. Libraries get float32, so that only their own rounding counts, and scales are rounded where a library's
quantizer rounds them.
"""

import ctypes
import importlib.metadata
import json
import pathlib
import sys

import numpy as np

EXPERTS, HIDDEN, INTERMEDIATE = 8, 256, 256
GGML = {"q8_0": 8, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q2_k": 10, "q3_k": 11, "q4_k": 12, "q5_k": 13, "q6_k": 14,
        "iq4_nl": 20, "iq4_xs": 23, "mxfp4": 39, "nvfp4": 40, "iq3_s": 21, "iq3_xxs": 18, "iq2_s": 22, "iq2_xs": 17, "iq2_xxs": 16,
        "iq1_m": 29, "iq1_s": 19, "tq1_0": 34, "tq2_0": 35, "q1_0": 41, "q2_0": 42}
NEEDS_IMPORTANCES = 16, 17, 19  # ggml refuses these types without: all weigh the same here


def source():
    """bf16 codes {(expert, projection): [N, K]}: normal, rows of different size, and one weight of 1024 eight times as large."""
    random = np.random.RandomState(31)  # its stream never changes
    made = {}
    for e in range(EXPERTS):
        for part, shape in (("gate", (INTERMEDIATE, HIDDEN)), ("up", (INTERMEDIATE, HIDDEN)), ("down", (HIDDEN, INTERMEDIATE))):
            w = 0.02 * random.standard_normal(shape) * np.exp(0.3 * random.standard_normal((shape[0], 1)))
            w = np.where(random.random_sample(shape) < 2.0**-10, 8 * w, w).astype(np.float32)
            made[e, part] = (np.ascontiguousarray(w).view(np.uint32) >> 16).astype(np.uint16)
    return made


def importances():
    """{(expert, projection): [K]}, what the squared errors of columns weigh. Powers of two, so that sums of llama.cpp's are exact."""
    random = np.random.RandomState(32)
    return {(e, part): np.exp2(random.randint(-2, 4, HIDDEN if part != "down" else INTERMEDIATE)).astype(np.float32)
            for e in range(EXPERTS) for part in ("gate", "up", "down")}


def widened(codes):
    return (codes.astype(np.uint32) << 16).view(np.float32)


def relative_error(weights, quantized, importance=None):
    """Over all matrices. importance: as importances() gives them; each matrix's have a mean of 1 then."""
    by = {k: importance[k] / importance[k].mean(dtype=np.float64) if importance else 1 for k in weights}
    squares = sum(float((by[k] * (quantized[k].astype(np.float64) - w) ** 2).sum()) for k, w in weights.items())
    return (squares / sum(float((by[k] * w.astype(np.float64) ** 2).sum()) for k, w in weights.items())) ** 0.5


# ---- compressed-tensors ------------------------------------------------------------------------------


def compressed_tensors(bits, kind, group, symmetric=True, scale=None):
    """group: a number of columns, "channel", "tensor", or (rows, columns)."""

    def run(w):
        import torch
        from compressed_tensors.quantization import QuantizationArgs
        from compressed_tensors.quantization.lifecycle.forward import fake_quantize
        from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

        x = torch.from_numpy(w.copy())
        block = {"block_structure": list(group)} if isinstance(group, tuple) else {}
        block |= {"group_size": group} if isinstance(group, int) else {}
        strategy = "block" if isinstance(group, tuple) else group if isinstance(group, str) else "group"
        strategy = "tensor_group" if scale == "e4m3" else strategy
        dtype = {None: {}, "e4m3": {"scale_dtype": torch.float8_e4m3fn}, "e8m0": {"scale_dtype": torch.uint8}}[scale]
        args = QuantizationArgs(num_bits=bits, type=kind, symmetric=symmetric, strategy=strategy, **block, **dtype)
        rows, cols = {"channel": (1, x.shape[1]), "tensor": x.shape, "block": group}.get(strategy, (1, group))
        tiles = x.reshape(x.shape[0] // rows, rows, x.shape[1] // cols, cols)
        low, high = tiles.amin((1, 3)), tiles.amax((1, 3))
        if group == "tensor":
            low, high = low.reshape(1), high.reshape(1)
        given = {"global_scale": generate_gparam(x.amin(), x.amax())} if scale == "e4m3" else {}
        scales, zeros = calculate_qparams(low, high, args, **given)
        return fake_quantize(x, scales, zeros, args, **given).float().numpy()

    return run


# ---- NVIDIA Model Optimizer --------------------------------------------------------------------------


def modelopt(name, *args, axis=None, tile=None, **options):
    """axis: of a scale a row; tile: block sizes, where quantize() takes them by name. dequantize() takes options."""

    def run(w):
        import torch
        from modelopt.torch.quantization import qtensor

        x = torch.from_numpy(w.copy())
        how = {"axis": axis} if axis is not None else {"block_sizes": tile} if tile else {}
        quantized, *scales = getattr(qtensor, name).quantize(x, *args, **how)
        given = dict(zip(("scale", "double_scale"), scales)) | ({"block_sizes": tile} if tile else {}) | options
        return quantized.dequantize(dtype=torch.float32, **given).float().numpy().reshape(w.shape)

    return run


# ---- ggml --------------------------------------------------------------------------------------------


class Traits(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("block", ctypes.c_int64), ("interleave", ctypes.c_int64), ("size", ctypes.c_size_t),
                ("quantized", ctypes.c_bool), ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64))]


def ggml(path, number):
    library = ctypes.CDLL(path)
    library.ggml_get_type_traits.restype = ctypes.POINTER(Traits)
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + 3 * [ctypes.c_int64] + [ctypes.c_void_p]

    def run(w, importance=None):
        stored, out = np.zeros(w.nbytes, np.uint8), np.empty_like(w)
        ones = np.ones(w.shape[1], np.float32) if importance is None else importance
        given = ones.ctypes.data if importance is not None or number in NEEDS_IMPORTANCES else None
        library.ggml_quantize_chunk(number, w.ctypes.data, stored.ctypes.data, 0, *w.shape, given)
        library.ggml_get_type_traits(number).contents.to_float(stored.ctypes.data, out.ctypes.data, w.size)
        return out

    return run


# (library's name on PyPI, moxie's format) -> its quantizer of one matrix
QUANTIZERS = {
    ("compressed-tensors", "int4-ct-g32"): compressed_tensors(4, "int", 32),
    ("compressed-tensors", "int4-ct"): compressed_tensors(4, "int", 128),
    ("compressed-tensors", "int4-ct-asym"): compressed_tensors(4, "int", 128, symmetric=False),
    ("compressed-tensors", "int8-w8a8"): compressed_tensors(8, "int", "channel"),
    ("compressed-tensors", "int8-w8a8-asym"): compressed_tensors(8, "int", "channel", symmetric=False),
    ("compressed-tensors", "int8-tensor"): compressed_tensors(8, "int", "tensor"),
    ("compressed-tensors", "fp8-tensor-dynamic"): compressed_tensors(8, "float", "tensor"),
    ("compressed-tensors", "fp8-channel"): compressed_tensors(8, "float", "channel"),
    ("compressed-tensors", "fp8-block-ct"): compressed_tensors(8, "float", (128, 128)),
    ("compressed-tensors", "mxfp8"): compressed_tensors(8, "float", 32, scale="e8m0"),
    ("compressed-tensors", "mxfp6-ct"): compressed_tensors(6, "float", 32, scale="e8m0"),
    ("compressed-tensors", "mxfp4-ct"): compressed_tensors(4, "float", 32, scale="e8m0"),
    ("compressed-tensors", "nvfp4-ct-w4a16"): compressed_tensors(4, "float", 16, scale="e4m3"),
    ("nvidia-modelopt", "fp8-modelopt"): modelopt("FP8QTensor"),
    ("nvidia-modelopt", "fp8-channel-modelopt"): modelopt("FP8QTensor", axis=0),
    ("nvidia-modelopt", "fp8-block-modelopt"): modelopt("FP8QTensor", tile={-1: 128, -2: 128}),
    ("nvidia-modelopt", "int4-modelopt"): modelopt("INT4QTensor", 128, block_sizes={-1: 128}),
    ("nvidia-modelopt", "int8-w8a8"): modelopt("INT8QTensor", axis=0),
    ("nvidia-modelopt", "mxfp8"): modelopt("MXFP8QTensor"),
    ("nvidia-modelopt", "mxfp4-quark"): modelopt("MXFP4QTensor", 32, block_sizes={-1: 32}),
    ("nvidia-modelopt", "nvfp4-modelopt-w4a16"): modelopt("NVFP4QTensor", 16, block_sizes={-1: 16}),
}


def main(out, path):
    quantizers = QUANTIZERS | {("ggml", "gguf-" + name): ggml(path, number) for name, number in GGML.items()}
    weights = {key: widened(codes) for key, codes in source().items()}
    errors, versions = {}, {}
    for (library, form), run in quantizers.items():
        versions[library] = importlib.metadata.version(library) if library != "ggml" else "of llama-cpp-python 0.3.36"
        errors.setdefault(library, {})[form] = relative_error(weights, {key: run(w) for key, w in weights.items()})
    weighted = {}
    for name, number in GGML.items():
        run, by = ggml(path, number), importances()
        weighted["gguf-" + name] = relative_error(weights, {key: run(w, by[key]) for key, w in weights.items()}, by)
    made = {"made_by": "python/tests/quantizers.py", "versions": versions, "errors": errors, "weighted": {"ggml": weighted}}
    pathlib.Path(out).write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
