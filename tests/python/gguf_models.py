# SPDX-License-Identifier: Apache-2.0
"""Models that gguf-py writes with random tensors, and what numpy makes of them.

    python3 gguf_models.py MOXIE FOLDER

Each case is an architecture and the types of gate, up and down. gguf-py writes the file; moxie runs it on the hidden states
that this script makes; numpy computes the layer from gguf-py's dequantized weights, with the formulas of llama.cpp's
build_moe_ffn. Outputs must agree within a bound from the magnitude of their sums.
"""
import json
import struct
import subprocess
import sys

import gguf
import numpy as np

E, K, H, I, S, T = 8, 2, 256, 256, 256, 7
TYPES = gguf.GGMLQuantizationType
# Bytes of a block at which its f16 scales lie, where that is not the first.
SCALES = {"Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "TQ1_0": [52], "TQ2_0": [64],
          "NVFP4": []}
SHARED = {"qwen2moe", "deepseek2", "glm4moe", "qwen3next"}
SIGMOID = {"glm4moe", "minimax-m2", "dots1", "llama4", "afmoe"}
SCALED = {"glm4moe": 2.5, "deepseek2": 1.5, "dots1": 2.5}
BIASED = {"glm4moe", "minimax-m2", "ernie4_5-moe"}
NO_NORM = {"qwen2moe", "olmoe", "jamba", "llama4"}
OF_KEY = {"glm4moe": True, "deepseek2": False, "dots1": True, "afmoe": True}
CASES = [("qwen3moe", "Q8_0", "Q8_0", "Q8_0"), ("qwen2moe", "Q4_0", "Q4_0", "Q4_1"), ("gpt-oss", "MXFP4", "MXFP4", "MXFP4"),
         ("deepseek2", "Q4_K", "Q4_K", "Q6_K"), ("glm4moe", "IQ4_NL", "IQ4_NL", "Q5_1"), ("olmoe", "Q5_0", "Q5_0", "Q5_K"),
         ("minimax-m2", "NVFP4", "NVFP4", "NVFP4"), ("ernie4_5-moe", "Q2_K", "Q2_K", "Q3_K"), ("llama4", "BF16", "BF16", "F16"),
         ("llama", "Q4_K", "Q5_K", "IQ4_XS"), ("dots1", "TQ2_0", "TQ2_0", "TQ1_0"), ("grok", "F32", "F32", "F32"),
         ("qwen3next", "IQ3_XXS", "IQ3_XXS", "IQ3_S"), ("jamba", "IQ2_XXS", "IQ2_XS", "IQ2_S"),
         ("smallthinker", "IQ1_S", "IQ1_S", "IQ1_M")]


def random_tensor(rng, kind, shape):
    """Bytes as gguf-py stores them, and the numbers that they are."""
    values = (rng.standard_normal(shape) * 0.05).astype(np.float32)
    if kind == TYPES.F32:
        return values, values
    if kind == TYPES.F16:
        return values.astype(np.float16), values.astype(np.float16).astype(np.float32)
    try:
        stored = gguf.quants.quantize(values, kind)
    except NotImplementedError:
        weights, size = gguf.GGML_QUANT_SIZES[kind]
        stored = rng.integers(0, 256, size=(*shape[:-1], shape[-1] // weights, size), dtype=np.uint8)
        for at in SCALES.get(kind.name, [0]):
            scale = (rng.random(stored.shape[:-1]) * 0.002).astype(np.float16)
            stored[..., at:at + 2] = scale.view(np.uint8).reshape(*stored.shape[:-1], 2)
        if kind == TYPES.IQ1_M:  # the upper nibbles of four words are an f16: 2^-9
            for i, nibble in enumerate([0x00, 0x00, 0x80, 0x10]):
                stored[..., 49 + 2 * i] = stored[..., 49 + 2 * i] & 0x0F | nibble
        if kind == TYPES.NVFP4:  # scales around 1/16, without the codes that are NaN by the standard
            stored[..., :4] = rng.integers(0x10, 0x28, size=(*stored.shape[:-1], 4))
        stored = stored.reshape(*shape[:-1], -1)
    return stored, gguf.quants.dequantize(stored, kind).astype(np.float32)


class Model:
    def __init__(self, path, arch, kinds, rng):
        self.arch, self.rng, self.tensors = arch, rng, {}
        self.writer = gguf.GGUFWriter(path, arch)
        self.add_keys()
        gate, up, down = (TYPES[k] for k in kinds)
        if arch == "olmoe":  # a type that moxie has no numbers for
            self.writer.add_tensor("unused.weight", np.zeros((2, 292), np.uint8), raw_dtype=TYPES.Q8_K)
        self.add("ffn_norm.weight", TYPES.F32, (H,))
        self.add("ffn_gate_inp.weight", TYPES.F32, (E, H), 4)
        self.add("ffn_gate_exps.weight", gate, (E, I, H))
        self.add("ffn_up_exps.weight", up, (E, I, H))
        self.add("ffn_down_exps.weight", down, (E, H, I))
        if arch in BIASED:
            self.add("exp_probs_b.bias", TYPES.F32, (E,))
        if arch == "gpt-oss":
            self.add("ffn_gate_inp.bias", TYPES.F32, (E,))
            for name, width in (("gate", I), ("up", I), ("down", H)):
                self.add(f"ffn_{name}_exps.bias", TYPES.F32, (E, width), 4)
        if arch in SHARED:
            for name, shape in (("gate", (S, H)), ("up", (S, H)), ("down", (H, S))):
                self.add(f"ffn_{name}_shexp.weight", TYPES.Q8_0, shape)
        if arch in ("qwen2moe", "qwen3next"):
            self.add("ffn_gate_inp_shexp.weight", TYPES.F32, (H,))
        if "NVFP4" in kinds:
            for name in ("gate", "up", "down"):
                self.add(f"ffn_{name}_exps.scale", TYPES.F32, (E,), 20)
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()

    def add_keys(self):
        w = self.writer
        w.add_block_count(1)
        w.add_embedding_length(H)
        w.add_expert_count(E)
        w.add_expert_used_count(K)
        w.add_expert_feed_forward_length(I)
        w.add_token_list(["a", "b"] * 500)
        if self.arch in SIGMOID or self.arch == "smallthinker":
            w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        if self.arch in SCALED:
            w.add_expert_weights_scale(SCALED[self.arch])
        if self.arch in OF_KEY:
            w.add_expert_weights_norm(OF_KEY[self.arch])

    def add(self, name, kind, shape, factor=1):
        stored, values = random_tensor(self.rng, kind, shape)
        if factor != 1:
            stored = values = values * np.float32(factor)
        self.tensors[name] = values.astype(np.float64)
        self.writer.add_tensor("blk.0." + name, stored, raw_dtype=kind)

    def get(self, name, fallback=None):
        return self.tensors.get(name, fallback)


def activation(arch, gate, up):
    if arch == "gpt-oss":
        gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
        return gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
    if arch == "grok":
        return 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) * up
    if arch == "smallthinker":
        return np.maximum(gate, 0) * up
    return gate / (1 + np.exp(-gate)) * up


def bf16(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32).astype(np.float64)


def route(model, x):
    """Chosen experts and weights, as build_moe_ffn chooses."""
    arch = model.arch
    logits = model.get("ffn_gate_inp.weight") @ x + model.get("ffn_gate_inp.bias", 0)
    probs = 1 / (1 + np.exp(-logits)) if arch in SIGMOID or arch == "smallthinker" else np.exp(logits - logits.max())
    if arch not in SIGMOID and arch != "smallthinker":
        probs = probs / probs.sum()
    keys = logits if arch in ("gpt-oss", "llama4") else probs + model.get("exp_probs_b.bias", 0)
    chosen = np.argsort(-keys, kind="stable")[:K]
    if arch == "gpt-oss":
        weights = np.exp(logits[chosen] - logits[chosen].max())
        return chosen, weights / weights.sum()
    weights = probs[chosen]
    if OF_KEY.get(arch, arch not in NO_NORM):
        weights = weights / weights.sum()
    return chosen, weights * SCALED.get(arch, 1)


def expert(model, x, e):
    def product(name, v):
        w = model.get(f"ffn_{name}_exps.weight")[e]
        scale = model.get(f"ffn_{name}_exps.scale")
        bias = model.get(f"ffn_{name}_exps.bias")
        return w @ v * (1 if scale is None else scale[e]) + (0 if bias is None else bias[e])
    return product("down", activation(model.arch, product("gate", x), product("up", x)))


def layer(model, x):
    chosen, weights = route(model, x)
    out, size = np.zeros(H), np.zeros(H)
    for e, w in zip(chosen, weights):
        y = expert(model, x * w, e) if model.arch == "llama4" else w * expert(model, x, e)
        out, size = out + y, size + abs(y)
    if model.arch in SHARED:
        g, u, d = (model.get(f"ffn_{n}_shexp.weight") for n in ("gate", "up", "down"))
        y = d @ activation(model.arch, g @ x, u @ x)
        gate = model.get("ffn_gate_inp_shexp.weight")
        y = y if gate is None else y / (1 + np.exp(-gate @ x))
        out, size = out + y, size + abs(y)
    return out, size


def write_input(path, x):
    raw = x.astype(np.float32).tobytes()
    text = json.dumps({"hidden_states": {"dtype": "F32", "shape": list(x.shape), "data_offsets": [0, len(raw)]}}).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + raw)


def read_output(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8:8 + n])["output"]
    begin, end = entry["data_offsets"]
    return np.frombuffer(data[8 + n + begin:8 + n + end], np.float32).reshape(entry["shape"]).astype(np.float64)


def main():
    moxie, folder = sys.argv[1:3]
    rng = np.random.default_rng(31)
    failed = 0
    for arch, *kinds in CASES:
        path = f"{folder}/{arch}.gguf"
        model = Model(path, arch, kinds, rng)
        x = bf16(rng.standard_normal((T, H)))
        write_input(folder + "/in.safetensors", x)
        subprocess.run([moxie, "run", path, "--input", folder + "/in.safetensors", "-o", folder + "/out.safetensors"],
                       check=True, stdout=subprocess.DEVNULL)
        got = read_output(folder + "/out.safetensors")
        worst = 0.0
        for t in range(T):
            want, size = layer(model, x[t])
            # Two fp32 sums of 256 terms each, and as much again for routing and activation: 2^-24 * 4 * 256.
            bound = 2.0**-14 * np.sqrt(np.mean(size**2))
            error = float(np.max(abs(got[t] - want) / bound))
            worst = max(worst, error if np.isfinite(error) else np.inf)
        verdict = "agrees" if worst < 1 else "DIFFERS"
        failed += worst >= 1
        print(f"{arch:14} {'/'.join(kinds):28} {verdict}, worst {worst:.3f} of the bound")
    sys.exit(failed != 0)


np.seterr(all="ignore")
main()
