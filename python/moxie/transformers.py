# SPDX-License-Identifier: Apache-2.0
"""moxie as an experts implementation of transformers, for unquantized experts.

    import moxie.transformers

    moxie.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, experts_implementation="moxie")
    moxie.transformers.prepare(model)          # optional: pack now instead of in the first run
    model.set_experts_implementation("moxie")  # likewise, for a model that is there already

Only inference: there is no backward pass. Models whose experts are quantized keep transformers' own code.
"""

from __future__ import annotations

import itertools
import weakref
from dataclasses import dataclass

import torch

from . import _moxie
from ._objects import Layer, Weights
from .config import Activation, LayerConfig, Quant
from .errors import Error, _make
from .torch import _names, close_layer, fused_moe, open_layer

_options: dict = {}
_top_k_names = ("num_experts_per_tok", "top_k_experts", "moe_top_k", "moe_topk")


def register(name: str = "moxie", **options) -> None:
    """Makes experts_implementation="moxie" known to transformers.

    options  for all layers: threads, mode, isa, max_tokens, as moxie.Layer takes them
    """
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    _options.clear()
    _options.update(options)
    ALL_EXPERTS_FUNCTIONS.register(name, experts_forward)


def prepare(model: torch.nn.Module, *, top_k: int | None = None, release: bool = False) -> int:
    """Packs the experts of all layers now, instead of in the first run, and returns how many layers there are.

    Must come before torch.compile, which cannot pack.

    top_k    K; None: what the model's configuration says
    release  drop the model's own expert weights, layer by layer, so that memory holds them once. The model can then
             neither be saved nor be switched to another experts implementation
    """
    layers = [module for module in model.modules() if _is_experts(module)]
    for module in layers:
        packed = _packed_for(module, top_k or _top_k(module), None)
        if release:
            for name in _tensor_names(module):
                empty = torch.empty_like(module._parameters[name], device="meta")
                module._parameters[name] = torch.nn.Parameter(empty, requires_grad=False)
            packed.released = True
    return len(layers)


def experts_forward(self, hidden_states, top_k_index, top_k_weights):
    """What transformers calls in place of the forward of an experts module."""
    if torch.compiler.is_compiling():
        packed = getattr(self, "_moxie", None)
        if packed is None:
            raise RuntimeError("moxie: the experts are not packed; call moxie.transformers.prepare(model) before torch.compile")
    else:
        packed = _packed_for(self, top_k_index.shape[-1], hidden_states.dtype)
    return fused_moe(hidden_states, packed.number, top_k_index, top_k_weights)


# ---- packing ----------------------------------------------------------------------------------------


@dataclass
class _Packed:
    """The moxie layer of an experts module, and of which weights it was made."""

    number: int
    top_k: int
    dtype: torch.dtype
    weights: tuple
    close: weakref.finalize
    released: bool = False

    def __reduce__(self):
        return type(None), ()  # a copy of the module packs for itself


def _is_experts(module) -> bool:
    return all(hasattr(module, name) for name in ("has_gate", "has_bias", "is_transposed", "down_proj"))


def _tensor_names(module) -> list[str]:
    names = ["gate_up_proj" if module.has_gate else "up_proj", "down_proj"]
    return names + [f"{name}_bias" for name in names] if module.has_bias else names


def _top_k(module) -> int:
    for name in _top_k_names:
        value = getattr(module.config, name, None)
        if isinstance(value, int):
            return value
    raise _refused(module, f"its configuration has none of {', '.join(_top_k_names)}; call prepare(model, top_k=K)")


def _refused(module, reason) -> Error:
    return _make("unsupported", f"{type(module).__name__}: {reason}. model.set_experts_implementation('grouped_mm') runs it "
                 "without moxie", "", -1)


def _state(module) -> tuple:
    """Changes whenever weights are replaced, or written in place."""
    tensors = [module._parameters.get(name) for name in _tensor_names(module)]
    return tuple((t.data_ptr(), -1 if t.is_inference() else t._version) for t in tensors if t is not None)


def _packed_for(module, top_k, dtype) -> _Packed:
    packed = getattr(module, "_moxie", None)
    if packed is not None and packed.top_k == top_k and dtype in (None, packed.dtype):
        if packed.released or packed.weights == _state(module):
            return packed
    if packed is not None and packed.released:
        raise _refused(module, f"it was packed for K = {packed.top_k} and {packed.dtype} and its weights were released; "
                               f"a run wants K = {top_k} and {dtype}")
    tensors = _tensors(module)
    number = _open(module, tensors, top_k, dtype)
    if packed is not None:
        packed.close()
    module._moxie = _Packed(number, top_k, dtype or tensors["down_proj"].dtype, _state(module),
                            weakref.finalize(module, close_layer, number))
    return module._moxie


def _tensors(module) -> dict[str, torch.Tensor]:
    found = {}
    for name in _tensor_names(module):
        parameter = module._parameters.get(name)
        if parameter is None:
            raise _refused(module, f"{name} is not a parameter of it (an adapter may have replaced it)")
        tensor = parameter.detach()
        if type(tensor) is not torch.Tensor or tensor.dtype not in _names or tensor.is_meta:
            raise _refused(module, f"{name} is {type(tensor).__name__} of {tensor.dtype} on {tensor.device}; moxie takes "
                                   "plain tensors of bfloat16, float16 or float32 with data")
        found[name] = tensor
    return found


def _open(module, tensors, top_k, dtype) -> int:
    if getattr(module, "has_post_expert_norm", False):
        raise _refused(module, "it has a norm on every expert's result, which is not read from transformers yet")
    first, down = tensors[_tensor_names(module)[0]], tensors["down_proj"]
    if dtype is not None and dtype not in _names:
        raise _refused(module, f"its hidden states are {dtype}; moxie takes bfloat16, float16 and float32")
    intermediate, hidden = down.shape[1:] if module.is_transposed else (down.shape[2], down.shape[1])
    activation, layout = recognise_gate(module)
    config = LayerConfig(
        dtype=_names[dtype or down.dtype], experts=down.shape[0], top_k=top_k, hidden=hidden, intermediate=intermediate,
        activation=activation, w13=Quant(_names[first.dtype]), w2=Quant(_names[down.dtype]),
        bias13=module.has_bias, bias2=module.has_bias)
    place = {"backend": "cuda", "device": str(down.device.index or 0)} if down.is_cuda else {}
    arrays = [tensors[name].cpu().contiguous() for name in _tensor_names(module)]  # on the host: the tensors themselves
    named = dict(zip(("w13", "w2", "w13_bias", "w2_bias"), arrays))
    weights = Weights(config, transposed=module.is_transposed, **named, **layout)
    return open_layer(Layer.from_weights(weights, **{**_options, **place}))


# ---- which function stands between the products ----------------------------------------------------


def recognise_gate(module) -> tuple[Activation, dict]:
    """The moxie activation of an experts module and how its rows lie (arguments of Weights).

    The module's own function is tried on numbers far inside and outside all limits, and compared with those that moxie
    has. Limits and factors are attributes of the module. No match: moxie.Unsupported.
    """
    limits, alphas = _parameters_of_gate(module)
    values = torch.linspace(-24, 24, 49).tolist() + [s * v for v in (1e2, 1e4, *limits) for s in (-1.5, 1.5) if v > 0]
    device = next((p.device for p in module._parameters.values() if p is not None and not p.is_meta), "cpu")
    with torch.no_grad():
        if not module.has_gate:
            x = torch.tensor(values, device=device)
            return _match(module, module.act_fn(x), [(x, None, {})], "_no_mul", limits, alphas)
        gate, up = torch.cartesian_prod(*(torch.tensor(values, device=device),) * 2).T
        got = module._apply_gate(torch.cat([gate, up])[None])[0]
        layouts = [(gate, up, {}), (up, gate, {"up_first": True})]
        if not getattr(module, "is_concatenated", True):
            got = module._apply_gate(torch.stack([gate, up], -1).reshape(1, -1))[0]
            layouts = [(gate, up, {"interleaved": True})]
        return _match(module, got, layouts, "", limits, alphas)


def _parameters_of_gate(module) -> tuple[list[float], list[float]]:
    numbers = {name: float(v) for name, v in vars(module).items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
    limits = {v for name, v in numbers.items() if "limit" in name and 0 < v < 1e30}
    alphas = {v for name, v in numbers.items() if "alpha" in name and v != 1}
    return [0.0, *sorted(limits)], [0.0, *sorted(alphas | {1.702})]


def _match(module, got, layouts, suffix, limits, alphas):
    known = {a.kind for a in _moxie.activations().values() if a.kind.endswith("_no_mul") == bool(suffix)}
    candidates = list(_candidates([kind for kind in _functions if kind + suffix in known], limits, alphas, not suffix))
    for gate, up, layout in layouts:
        slack = 1e-6 * (1 + gate.abs()) * (1 if up is None else 1 + up.abs())  # of float32, where a factor cancels
        for kind, limit, alpha, beta in candidates:
            want = _gated(kind, gate, up, limit, alpha, beta)
            if ((got - want).abs() <= 1e-5 * want.abs() + slack).all():
                return Activation(kind + suffix, alpha, beta, limit, limit), layout
    raise _refused(module, f"what it does between the two products is none of moxie's activations ({', '.join(sorted(known))})")


def _candidates(kinds, limits, alphas, gated):
    """Activations to try: kind, limit, alpha, beta; the plain ones first."""
    for kind in kinds:
        if kind == "silu" and gated:
            yield from itertools.product([kind], limits, alphas, [0.0, 1.0])
        else:
            yield from itertools.product([kind], limits if kind == "swiglu_step" else [0.0], [0.0], [0.0])


_functions = {
    "silu": lambda g, alpha: g * torch.sigmoid(g * (alpha or 1)),
    "gelu_erf": lambda g, _: torch.nn.functional.gelu(g),
    "gelu_tanh": lambda g, _: torch.nn.functional.gelu(g, approximate="tanh"),
    "relu2": lambda g, _: torch.relu(g) ** 2,
    "relu": lambda g, _: torch.relu(g),
    "identity": lambda g, _: g,
    "swiglu_step": lambda g, _: torch.nn.functional.silu(g),
}


def _gated(kind, gate, up, limit, alpha, beta):
    """moxie's definition of an activation (moxie.h), in float32."""
    step = kind == "swiglu_step"  # its limit comes after the function
    if limit and not step:
        gate = gate.clamp(max=limit)
    value = _functions[kind](gate, alpha)
    if limit and step:
        value = value.clamp(max=limit)
    if up is None:
        return value
    return value * ((up.clamp(-limit, limit) if limit else up) + beta)
