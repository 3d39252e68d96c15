# SPDX-License-Identifier: Apache-2.0
"""Writes the golden files of this folder with gguf-py and numpy, and nothing of moxie.

    python3 make_gguf_golden.py FOLDER

blocks.safetensors   for every block type 64 blocks, TYPE.blocks u8 [64, bytes], and their weights, TYPE.bits u32 [64, weights],
                     the bits of f32, by gguf.quants.dequantize (0.19); every NaN as 0x7fc00000. gguf-py has no dequantizer
                     of q1_0 and q2_0: theirs is the formula of ggml's dequantize_row, below.
small.gguf           a model of one small layer; parts-0000N-of-00002.gguf: the same in two parts.
"""
import json
import struct
import sys

import gguf
import numpy as np

BLOCKS = 64
# Byte offsets of the f16 scales and minimums in a block; all others begin with their scale.
SCALES = {"q4_1": [0, 2], "q5_1": [0, 2], "q2_k": [80, 82], "q3_k": [108], "q4_k": [0, 2], "q5_k": [0, 2], "q6_k": [208],
          "tq1_0": [52], "tq2_0": [64], "iq1_m": [], "mxfp4_ggml": [], "nvfp4_ggml": []}
EXTREMES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x3C00, 0x0400]


def dequantize_by_hand(name, blocks):
    d = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    bits = 1 if name == "q1_0" else 2
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (blocks[:, 2:, None] >> shifts) & ((1 << bits) - 1)
    codes = codes.reshape(len(blocks), -1).astype(np.float32)
    return d * (2 * codes - 1 if bits == 1 else codes - 1)


def block_types():
    types = {t.name.lower(): gguf.GGML_QUANT_SIZES[t] for t in gguf.quants._type_traits if gguf.GGML_QUANT_SIZES[t][0] > 1}
    result = {name + ("_ggml" if name in ("mxfp4", "nvfp4") else ""): size for name, size in types.items()}
    return {**result, "q1_0": (128, 18), "q2_0": (64, 18)}


def weights_of(name, blocks):
    if name in ("q1_0", "q2_0"):
        return dequantize_by_hand(name, blocks)
    return gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name.removesuffix("_ggml").upper()])


def random_blocks(name, size, rng):
    """The first half with scales of ordinary size, the second with the extreme ones and any bytes."""
    blocks = rng.integers(0, 256, size=(BLOCKS, size), dtype=np.uint8)
    for at in SCALES.get(name, [0]):
        half = BLOCKS // 2
        blocks[:half, at:at + 2] = rng.normal(0, 0.01, (half, 1)).astype(np.float16).view(np.uint8)
        for i, bits in enumerate(EXTREMES):
            blocks[half + i, at:at + 2] = np.array([bits], np.uint16).view(np.uint8)
    if name == "mxfp4_ggml":
        blocks[:6, 0] = [0, 1, 2, 127, 254, 255]
    if name == "nvfp4_ggml":
        blocks[:2, :4] = [[0, 0x7F, 0x7E, 1], [0x80, 0xFF, 7, 8]]
    return blocks


def write_safetensors(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, (dtype, array) in tensors.items():
        raw = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def write_model(path, **split):
    """A layer of gate and up in q8_0 and down in q4_1, the same whatever the parts."""
    rng = np.random.default_rng(21)
    experts, hidden, width = 4, 64, 32
    writer = gguf.GGUFWriter(path, "qwen3moe", **split)
    writer.add_block_count(1)
    writer.add_embedding_length(hidden)
    writer.add_expert_count(experts)
    writer.add_expert_used_count(2)
    writer.add_expert_feed_forward_length(width)
    writer.add_token_list(["a", "b", "c"])
    types = gguf.GGMLQuantizationType
    for name, kind, shape in (("gate_inp", types.F32, (experts, hidden)), ("gate_exps", types.Q8_0, (experts, width, hidden)),
                              ("up_exps", types.Q8_0, (experts, width, hidden)),
                              ("down_exps", types.Q4_1, (experts, hidden, width))):
        values = (rng.standard_normal(shape) * 0.1).astype(np.float32)
        stored = values if kind == types.F32 else gguf.quants.quantize(values, kind)
        writer.add_tensor(f"blk.0.ffn_{name}.weight", stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    rng = np.random.default_rng(20)
    tensors = {}
    for name, (_, size) in sorted(block_types().items()):
        blocks = random_blocks(name, size, rng)
        bits = np.ascontiguousarray(weights_of(name, blocks), dtype=np.float32).view(np.uint32).copy()
        bits[(bits & 0x7FFFFFFF) > 0x7F800000] = 0x7FC00000
        tensors[name + ".blocks"] = ("U8", blocks)
        tensors[name + ".bits"] = ("U32", bits)
    write_safetensors(sys.argv[1] + "/blocks.safetensors", tensors,
                      {"source": "gguf-py 0.19.0, gguf.quants.dequantize; q1_0 and q2_0: the formula of ggml"})
    write_model(sys.argv[1] + "/small.gguf")
    write_model(sys.argv[1] + "/parts.gguf", split_max_tensors=3)


np.seterr(all="ignore")
main()
