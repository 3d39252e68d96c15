# SPDX-License-Identifier: Apache-2.0
"""GGUF files that moxie writes, read by gguf-py.

    python3 gguf_written.py MOXIE FOLDER

Types with one scale are compared with gguf-py's own quantizers byte for byte. Models of ten architectures are written as
GGUF and as safetensors, both in f32: gguf-py must read the first, and both must give the same outputs. Importance
matrices in both forms must give the same bytes, and less weighted error than none. Names of other tensors
(src/ckpt/gguf/gguf_names.def) are those of gguf-py's map.
"""
import json
import pathlib
import re
import struct
import subprocess
import sys

import gguf
import numpy as np

TYPES = gguf.GGMLQuantizationType
PRESETS = ["gpt-oss-20b", "mixtral-8x7b", "qwen2-57b-a14b", "qwen3-next-80b", "deepseek-v3", "glm-4.5-air", "llama-4-scout",
           "ernie-4.5-21b-a3b", "nemotron-3-nano", "granite-4.0-h-small"]
SAME = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4", "TQ1_0", "TQ2_0"]
E, H, I = 8, 256, 256
DTYPES = {"F32": np.float32, "BF16": np.uint16, "I32": np.int32}


def call(moxie, *args):
    return subprocess.run([moxie, *map(str, args)], check=True, capture_output=True, text=True).stdout


def synth(moxie, preset, form, out, *more):
    call(moxie, "synth", preset, "--format", form, "--layers", 1, "--hidden", H, "--intermediate", I, "-o", out, *more)


def safetensors(path):
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {name: np.frombuffer(data[8 + size + v["data_offsets"][0]:8 + size + v["data_offsets"][1]],
                                DTYPES[v["dtype"]]).reshape(v["shape"])
            for name, v in header.items() if name != "__metadata__"}


def tensors(path):
    return {t.name: t for t in gguf.GGUFReader(path).tensors}


def experts(source, part):
    return np.stack([source[f"model.layers.0.mlp.experts.{e}.{part}_proj.weight"] for e in range(E)])


def check_plain(moxie, folder):
    source = safetensors(folder / "qwen3" / "model.safetensors")
    for name in SAME:
        tools = ["synth", "quantize"] if name in ("Q5_1", "MXFP4") else ["quantize"]
        for tool, path in ((tool, folder / f"{tool}.{name}.gguf") for tool in tools):
            form = "gguf-" + name.lower()
            if tool == "synth":
                synth(moxie, "qwen3-30b-a3b", form, path, "--experts", E)
            else:
                call(moxie, "quantize", folder / "qwen3", "--format", form, "--scales", "plain", "-o", path)
            for part in ("gate", "up", "down"):
                stored = tensors(path)[f"blk.0.ffn_{part}_exps.weight"]
                assert stored.tensor_type == TYPES[name], (name, stored.tensor_type)
                want = gguf.quants.quantize(experts(source, part), TYPES[name])
                got = stored.data.view(np.uint8).reshape(-1)
                assert np.array_equal(got, want.view(np.uint8).reshape(-1)), f"{tool} {name} {part}: other bytes than gguf-py"


def check_architectures(moxie, folder):
    for preset in PRESETS:
        synth(moxie, preset, "gguf-f32", folder / "a.gguf", "--experts", 16)
        synth(moxie, preset, "f32", folder / "a", "--experts", 16)
        call(moxie, "quantize", folder / "a", "--format", "gguf-q4_k", "-o", folder / "k.gguf")
        read, quantized = tensors(folder / "a.gguf"), tensors(folder / "k.gguf")
        assert list(read) == list(quantized), preset
        layer = json.loads(call(moxie, "inspect", folder / "a.gguf", "--json"))["layers"][0]["layer"]
        outputs = []
        for path in ("a", "a.gguf"):
            call(moxie, "run", folder / path, "--layer", layer, "--tokens", 5, "--threads", 1, "-o", folder / "out.safetensors")
            out = safetensors(folder / "out.safetensors")
            outputs.append((out["topk_ids"], out["output"].astype(np.uint32) << 16))
        assert np.array_equal(outputs[0][0], outputs[1][0]), f"{preset}: other experts"
        a, b = (o[1].view(np.float32).astype(np.float64) for o in outputs)
        assert np.abs(a - b).max() <= np.abs(a).max() / 64, f"{preset}: other outputs, {np.abs(a - b).max()}"
        subprocess.run(["rm", "-r", str(folder / "a")], check=True)
        for path in ("a.gguf", "k.gguf"):
            (folder / path).unlink()


def write_imatrix(folder, sums):
    entries = b""
    writer = gguf.GGUFWriter(folder / "new.imatrix", "imatrix")
    for name, values in sums.items():
        entries += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", 7, values.size) + values.tobytes()
        writer.add_tensor(name + ".in_sum2", values)
        writer.add_tensor(name + ".counts", np.full((E, 1), 7, np.float32))
    (folder / "old.imatrix").write_bytes(struct.pack("<i", len(sums)) + entries + struct.pack("<ii", 7, 4) + b"text")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_importance(moxie, folder):
    rng = np.random.default_rng(5)
    source = safetensors(folder / "qwen3" / "model.safetensors")
    widths = {"gate": H, "up": H, "down": I}
    sums = {f"blk.0.ffn_{part}_exps.weight": np.exp(1.5 * rng.standard_normal((E, width))).astype(np.float32)
            for part, width in widths.items()}
    write_imatrix(folder, sums)
    for name in ("Q4_0", "Q4_K", "Q6_K", "IQ4_XS", "IQ3_S", "IQ2_XXS", "IQ1_M", "NVFP4"):
        files = {"none": [], "old": ["--imatrix", folder / "old.imatrix"], "new": ["--imatrix", folder / "new.imatrix"]}
        errors = {}
        for key, args in files.items():
            path = folder / f"{key}.{name}.gguf"
            call(moxie, "quantize", folder / "qwen3", "--format", "gguf-" + name.lower(), "-o", path, *args)
            errors[key] = 0
            for part in widths:
                tensor = f"blk.0.ffn_{part}_exps.weight"
                got = gguf.quants.dequantize(tensors(path)[tensor].data, TYPES[name]).astype(np.float64)
                errors[key] += (sums[tensor][:, None, :] * (got - experts(source, part)) ** 2).sum()
        assert errors["old"] < 0.97 * errors["none"], (name, errors)
        assert (folder / f"old.{name}.gguf").read_bytes() == (folder / f"new.{name}.gguf").read_bytes(), name


def check_names():
    """Every row of the list, for every architecture that it is for and that has such a tensor."""
    text = pathlib.Path("src/ckpt/gguf/gguf_names.def").read_text()
    rows = re.findall(r'^MOX_GGUF_NAME\((?:NULL|"(.*?)"), "(.*?)", "(.*?)"\)', text, re.M)
    architectures = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    seen, found = {}, set()
    for name in re.findall(r'^MOX_GGUF_SAME_VALUES\("(.*?)"\)', text, re.M):
        names = gguf.get_tensor_name_map(architectures[name], 4)
        for only, ours, theirs in rows:
            stem, dot, suffix = theirs.replace("{L}", "3").rpartition(".")
            if only and only != name or (name, theirs) in seen:
                continue
            seen[name, theirs] = True
            if suffix not in ("weight", "bias"):  # the conversion calls sinks a weight
                stem, suffix = stem + dot + suffix, "weight"
            want = names.get_name(stem)
            assert want is None or want + "." + suffix == ours.replace("{L}", "3"), (name, theirs, want, ours)
            found |= {(only, ours)} if want else set()
    assert len(rows) == len(found) > 20, [row for row in rows if row[:2] not in found]


def main():
    moxie, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    synth(moxie, "qwen3-30b-a3b", "f32", folder / "qwen3", "--experts", E)
    check_plain(moxie, folder)
    check_importance(moxie, folder)
    check_architectures(moxie, folder)
    check_names()
    print("gguf-py reads what is written: 11 types, 10 architectures, importance matrices")


main()
