# SPDX-License-Identifier: Apache-2.0
"""Random checkpoints for transformers: experts by moxie.synth, the rest of the model from its configuration. And what
tests do with the experts of a model."""

import json
import re

import moxie
import moxie.transformers as mt
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

SMALL = {"vocab_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "bos_token_id": 1,
         "eos_token_id": 2, "pad_token_id": 0}
SMALL_MLA = {"vocab_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 96, "q_lora_rank": 32,
             "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16, "n_group": 2, "topk_group": 1,
             "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def make(path, preset, format, changes=SMALL, pack=None, seed=0, first=None, times=1, **sizes):
    """Writes a checkpoint; returns its directory.

    changes  keys of config.json
    pack     pack(name, weight) -> {name: tensor} for the linear layers of attention; None: they are bf16
    first    the number of the first MoE layer, where the preset has a greater one of as many digits
    times    every expert occurs so often: more bytes without more numbers to make
    sizes    of moxie.synth: layers, experts, hidden, intermediate
    """
    moxie.synth(preset, path, format=format, seed=seed, **sizes)
    experts = (path / "model.safetensors").rename(path / "experts.safetensors")
    config = json.loads((path / "config.json").read_text())
    if first is not None:
        config["first_k_dense_replace"] = first
        config["num_hidden_layers"] = first + sizes["layers"]
        _renumber(experts, first)
    if times > 1:
        _repeat(experts, config, sizes["experts"], times)
    config.update({"max_position_embeddings": 4096, **changes})
    (path / "config.json").write_text(json.dumps(config))
    with safe_open(experts, "pt") as file:
        names = dict.fromkeys(file.keys(), experts.name)
    plain = transformers.AutoConfig.from_pretrained(path)
    plain.__dict__.pop("quantization_config", None)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(plain, dtype=torch.bfloat16)
    torch.manual_seed(seed)
    rest = {}
    for name, parameter in model.state_dict().items():
        if re.search(r"\.experts\.|\.mlp\.gate\.|\.router\.|\.shared_experts\.", name):
            continue
        value = torch.ones(parameter.shape) if "norm" in name else torch.randn(parameter.shape) / parameter.shape[-1] ** 0.5
        value = (value / 64 if "embed" in name or "o_proj" in name else value).to(torch.bfloat16)  # so that experts matter
        rest.update(pack(name, value) if pack and "_proj" in name and value.dim() == 2 else {name: value})
    save_file(rest, path / "rest.safetensors", {"format": "pt"})
    names.update(dict.fromkeys(rest, "rest.safetensors"))
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return path


def _renumber(file, first):
    """Changes the layers' numbers in the header of a safetensors file, in place."""
    with open(file, "r+b") as f:
        text = f.read(int.from_bytes(f.read(8), "little"))
        old = min(int(n) for n in re.findall(rb"\.layers\.(\d)\.", text))
        f.seek(8)
        f.write(re.sub(rb"\.layers\.(\d)\.", lambda m: b".layers.%d." % (int(m[1]) - old + first), text))


def _repeat(file, config, experts, times):
    """Makes experts E, E + 1, ... of experts 0, 1, ..., with router rows of their own."""
    config.update({key: times * experts for key in ("num_experts", "num_local_experts", "n_routed_experts") if key in config})
    tensors = {}
    with safe_open(file, "pt") as source:
        for name in source.keys():
            tensor, one = source.get_tensor(name), re.fullmatch(r"(.*\.experts\.)(\d+)(\..*)", name)
            if one:
                tensors.update({f"{one[1]}{int(one[2]) + n * experts}{one[3]}": tensor.clone() for n in range(times)})
            elif ".experts." in name:
                tensors[name] = torch.cat([tensor] * times)
            elif re.search(r"\.(gate|router)\.", name):
                tensors[name] = torch.cat([tensor.roll(n, -1) for n in range(times)])
            else:
                tensors[name] = tensor
    file.unlink()
    save_file(tensors, file, {"format": "pt"})


# ---- other engines' packing of a linear layer, for `pack` ---------------------------------------------


def fp8_block(name, weight):
    """128 x 128 blocks, one float32 scale each."""
    rows, columns = weight.shape
    padded = torch.nn.functional.pad(weight.float(), (0, -columns % 128, 0, -rows % 128))
    blocks = padded.unflatten(1, (-1, 128)).unflatten(0, (-1, 128))
    scale = blocks.abs().amax((1, 3)) / 448
    codes = (blocks / scale[:, None, :, None]).to(torch.float8_e4m3fn).flatten(2).flatten(0, 1)[:rows, :columns]
    return {name: codes.contiguous(), name + "_scale_inv": scale}


def _grouped(weight, group):
    """Codes 0..15, zero points and scales of a weight [out, in], transposed to [in, ...]."""
    parts = weight.float().T.unflatten(0, (-1, group))
    low, high = parts.amin(1), parts.amax(1)
    scale = ((high - low) / 15).half()
    zero = (-low / scale.float()).round().clamp(0, 15)
    codes = (parts / scale.float()[:, None] + zero[:, None]).round().clamp(0, 15)
    return codes.flatten(0, 1).long(), zero.long(), scale


def _words(codes):
    """[rows, 8n] codes -> [rows, n] int32, the first one in the lowest bits."""
    words = (codes.unflatten(1, (-1, 8)) << 4 * torch.arange(8)).sum(-1)
    return (words - (words >= 2**31).long() * 2**32).to(torch.int32)


def awq(name, weight, group=64):
    codes, zero, scale = _grouped(weight, group)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    name = name.removesuffix(".weight")
    shuffled = [_words(t.unflatten(1, (-1, 8))[..., order].flatten(1)) for t in (codes, zero)]
    return {name + ".qweight": shuffled[0], name + ".qzeros": shuffled[1], name + ".scales": scale}


def gptq(name, weight, group=64):
    codes, zero, scale = _grouped(weight, group)
    name = name.removesuffix(".weight")
    return {name + ".qweight": _words(codes.T).T.contiguous(), name + ".qzeros": _words((zero - 1) % 16), name + ".scales": scale,
            name + ".g_idx": torch.arange(codes.shape[0], dtype=torch.int32) // group}


def compressed_int4(name, weight, group=32):
    """Symmetric, in groups: compressed-tensors' pack-quantized."""
    parts = weight.float().unflatten(1, (-1, group))
    scale = (parts.abs().amax(-1) / 7).to(torch.bfloat16)
    codes = (parts / scale.float()[..., None]).round().clamp(-8, 7).long().flatten(1) + 8
    name = name.removesuffix(".weight")
    return {name + ".weight_packed": _words(codes), name + ".weight_scale": scale,
            name + ".weight_shape": torch.tensor(weight.shape)}


# ---- and back, element by element as the formats are described ------------------------------------------


def dequantized(path, method, dtype=torch.float32):
    """The state dict of an AWQ, GPTQ or compressed-tensors INT4 checkpoint."""
    tensors = {}
    for name in ("experts", "rest"):
        with safe_open(path / f"{name}.safetensors", "pt") as file:
            tensors.update({key.replace("block_sparse_moe", "mlp"): file.get_tensor(key) for key in file.keys()})
    plain = {name: value.to(dtype) for name, value in tensors.items() if name.endswith((".weight", ".bias"))}
    packed = ".weight_packed" if method == "compressed-tensors" else ".qweight"
    for name in [key.removesuffix(packed) for key in tensors if key.endswith(packed)]:
        weight = _matrix({part: tensors.get(f"{name}.{part}") for part in _parts}, method)
        if method == "compressed-tensors" and ".experts." not in name:
            weight = weight.to(torch.bfloat16)  # that library's result has the type of the scales
        plain[name + ".weight"] = weight.to(dtype)
    count = 1 + max(int(m[1]) for m in re.finditer(r"experts\.(\d+)\.", " ".join(plain)))
    for prefix in {name.partition(".experts.")[0] + ".experts." for name in plain if ".experts." in name}:
        names = ("w1", "w2", "w3") if f"{prefix}0.w1.weight" in plain else ("gate_proj", "down_proj", "up_proj")
        gate, down, up = (torch.stack([plain.pop(f"{prefix}{e}.{n}.weight") for e in range(count)]) for n in names)
        plain[prefix + "gate_up_proj"], plain[prefix + "down_proj"] = torch.cat([gate, up], 1), down
    return plain


_parts = ("weight_packed", "weight_scale", "qweight", "qzeros", "scales")


def _matrix(t, method):
    """One weight [out, in] from its tensors."""
    eight = 4 * torch.arange(8)
    if method == "compressed-tensors":
        codes = (t["weight_packed"][..., None] >> eight & 15).flatten(1) - 8
        return codes * t["weight_scale"].float().repeat_interleave(codes.shape[1] // t["weight_scale"].shape[1], 1)
    scales, columns = t["scales"].float(), t["scales"].shape[1]
    shift = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7] if method == "awq" else range(8)).repeat(columns // 8) * 4
    zero = (t["qzeros"].repeat_interleave(8, 1) >> shift & 15) + (method == "gptq")
    if method == "awq":
        codes = t["qweight"].repeat_interleave(8, 1) >> shift & 15
    else:
        codes = (t["qweight"][:, None] >> eight[:, None] & 15).flatten(0, 1)
    group = torch.arange(codes.shape[0]) // (codes.shape[0] // scales.shape[0])
    return ((codes - zero[group]) * scales[group]).T


# ---- models -------------------------------------------------------------------------------------------


def experts(model):
    found = [module for module in model.modules() if mt._is_experts(module)]
    assert found
    return found


def record(model, routes, replay=False):
    """Hooks that note the experts of every call, or put the noted ones in place of a model's own."""
    rest = iter(list(routes))

    def before(module, arguments):
        if not replay:
            routes.append(arguments[1:])
            return None
        ids, weights = next(rest)
        return arguments[0], ids, weights.to(arguments[2].dtype)

    return [module.register_forward_pre_hook(before) for module in experts(model)]


def distance(a, b):
    return ((a - b).norm() / b.norm()).item()
