# SPDX-License-Identifier: Apache-2.0
"""moxie as an experts implementation of transformers.

    import moxie.transformers

    moxie.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, experts_implementation="moxie")
    moxie.transformers.prepare(model)          # optional: pack now instead of in the first run
    model.set_experts_implementation("moxie")  # likewise, for a model that is there already
    moxie.transformers.prepare(model, dir)     # or its experts from the files of a checkpoint

    unquantized checkpoint   packed from the module's own parameters        (here)
    quantized checkpoint     packed straight from the checkpoint's files    (_hf_files.py)
    PEFT's LoRA on experts   factors beside the packed weights              (_hf_peft.py)

Only inference: there is no backward pass.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from dataclasses import dataclass

import torch

from . import _moxie
from ._objects import Layer, Weights
from .config import Activation, LayerConfig, Quant
from .errors import Error, _make
from .torch import _names, close_layer, fused_moe, open_layer

_options: dict = {}
_activations = "16bit"  # that of the last register()
_registered: set[str] = set()  # names in experts_implementation=
_one_at_a_time = threading.Lock()  # who packs
_suffixes = ("_scale_inv", "_activation_scale")  # of parameters of transformers' FP8 experts
_top_k_names = ("num_experts_per_tok", "top_k_experts", "moe_top_k", "moe_topk")


def register(name: str = "moxie", *, activations: str = "16bit", from_files: bool = False, **options) -> None:
    """Makes experts_implementation="moxie" known to transformers.

    activations  of quantized experts: "16bit" keeps them as they are, as transformers does where it dequantizes weights;
                 "checkpoint" quantizes them as the checkpoint's scheme says
    from_files   True: from_pretrained() packs unquantized experts, too, straight from the files. Memory holds them once; the
                 model can then neither be saved nor be switched to another experts implementation
    options      for all layers: threads, mode, isa, max_tokens, as moxie.Layer takes them
    """
    global _activations
    from transformers.integrations.finegrained_fp8 import ALL_FP8_EXPERTS_FUNCTIONS
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    from . import _hf_files, _hf_peft

    if activations not in ("16bit", "checkpoint"):
        raise ValueError(f'register: activations is "16bit" or "checkpoint", not {activations!r}')
    _options.clear()
    _options.update(options)
    _activations = activations
    ALL_EXPERTS_FUNCTIONS.register(name, experts_forward)
    ALL_FP8_EXPERTS_FUNCTIONS.register(name, experts_forward)
    _hf_files.install({name: {"activations": activations, "from_files": from_files}})
    _registered.add(name)
    _hf_peft.install()


def prepare(model: torch.nn.Module, dir=None, *, top_k: int | None = None, release: bool = False) -> int:
    """Packs the experts of all layers now, instead of in the first run, and returns how many layers there are.

    Must come before torch.compile, which cannot pack.

    dir      a checkpoint directory whose experts take the place of the model's own, whatever their format. Memory holds
             them once, packed. The model can then neither be saved nor be switched to another experts implementation
    top_k    K; None: what the model's configuration says
    release  drop the model's own expert weights, layer by layer, so that memory holds them once; the same two calls then fail
    """
    if dir is not None:
        from . import _hf_files

        return _hf_files.replace(model, dir, _activations, top_k)
    for module in model.modules():
        if type(module).__name__ == "Mxfp4GptOssExperts":
            raise _refused(module, "its weights lie in the order of a GPU kernel; from_pretrained(..., experts_implementation="
                                   "'moxie') packs the checkpoint's own")
    layers = [module for module in model.modules() if _is_experts(module)]
    for module in layers:
        packed = _packed_for(module, top_k or _top_k(module), None)
        if release and not _source(module):
            for name in _tensor_names(module):
                empty = torch.empty_like(module._parameters[name], device="meta")
                module._parameters[name] = torch.nn.Parameter(empty, requires_grad=False)
            packed.released = True
    return len(layers)


def load_adapter(model: torch.nn.Module, dir, name: str = "default") -> int:
    """Adds LoRA for the experts of a model whose experts came from files, makes it active, and returns how many layers there
    are. The experts stay as they are, quantized or not. Nothing is changed when it raises.

    dir   a directory in PEFT's format (docs/lora.md). Its factors for other modules, such as attention, are left alone: PEFT
          loads those. Experts that are parameters have PEFT's own modules: peft.get_peft_model(), PeftModel.from_pretrained()
    """
    from . import _hf_peft

    return _hf_peft.load(model, dir, name)


def set_adapter(model: torch.nn.Module, name: str | None) -> None:
    """Makes the adapter that load_adapter() named the active one of all tokens; None: no adapter."""
    from . import _hf_peft

    _hf_peft.choose(model, name)


def experts_forward(self, hidden_states, top_k_index, top_k_weights):
    """What transformers calls in place of the forward of an experts module."""
    if torch.compiler.is_compiling():
        if self.__dict__.get("_moxie_lora") or self.__dict__.get("_moxie_active"):
            raise RuntimeError("moxie: adapters on experts do not run under torch.compile; merge them, or do not compile")
        packed = getattr(self, "_moxie", None)
        if packed is None:
            raise RuntimeError("moxie: the experts are not packed; call moxie.transformers.prepare(model) before torch.compile")
    else:
        packed = _packed_for(self, top_k_index.shape[-1], hidden_states.dtype)
        if "_moxie_lora" in self.__dict__ or "_moxie_active" in self.__dict__:
            from . import _hf_peft

            wanted = _hf_peft.active(self)
            if wanted:
                return _hf_peft.run(self, packed, wanted, hidden_states, top_k_index, top_k_weights)
    return fused_moe(hidden_states, packed.number, top_k_index, top_k_weights)


# ---- packing ----------------------------------------------------------------------------------------


@dataclass
class _Packed:
    """The moxie layer of an experts module, and of which weights it was made."""

    number: int
    top_k: int
    dtype: torch.dtype
    weights: list
    close: weakref.finalize
    lora: dict  # _hf_peft: adapters that are ready
    released: bool = False

    def __reduce__(self):
        return type(None), ()  # a copy of the module packs for itself


def _is_experts(module) -> bool:
    return all(hasattr(module, name) for name in ("has_gate", "has_bias", "is_transposed", "down_proj"))


def runs_on_moxie(module) -> bool:
    return _is_experts(module) and getattr(module.config, "_experts_implementation", None) in _registered


def _source(module):
    """Where in a checkpoint's files its weights are (_hf_files.Source); None: they are its parameters."""
    return getattr(module, "_moxie_source", None)


def _tensor_names(module) -> list[str]:
    names = ["gate_up_proj" if module.has_gate else "up_proj", "down_proj"]
    biases = [f"{name}_bias" for name in names] if module.has_bias else []
    more = [f"{name}{suffix}" for suffix in _suffixes for name in names]
    return names + biases + [name for name in more if module._parameters.get(name) is not None]


def _known_top_k(module) -> int | None:
    values = [getattr(module.config, name, None) for name in _top_k_names]
    return next((value for value in values if isinstance(value, int)), None)


def _top_k(module) -> int:
    known = _known_top_k(module)
    if known is not None:
        return known
    raise _refused(module, f"its configuration has none of {', '.join(_top_k_names)}; call prepare(model, top_k=K)")


def _refused(module, reason) -> Error:
    instead = "loading it with experts_implementation='grouped_mm'" if _source(module) else "set_experts_implementation('grouped_mm')"
    return _make("unsupported", f"{type(module).__name__}: {reason}. {instead} runs it without moxie", "", -1)


def _state(module) -> list:
    """What tells weights from those that replace them, also at the same address, and from what is written into them."""
    tensors = [module._parameters.get(name) for name in _tensor_names(module)]
    return [(weakref.ref(t), t.data_ptr(), -1 if t.is_inference() else t._version) for t in tensors if t is not None]


def _same(a: list, b: list) -> bool:
    return len(a) == len(b) and all(x[0]() is y[0]() and x[1:] == y[1:] for x, y in zip(a, b))


def _packed_for(module, top_k, dtype) -> _Packed:
    packed = _fitting(module, top_k, dtype)
    if packed is None:
        with _one_at_a_time:  # threads that come to a module together pack it once
            packed = _fitting(module, top_k, dtype) or _pack(module, top_k, dtype)
    return packed


def _fitting(module, top_k, dtype) -> _Packed | None:
    packed = getattr(module, "_moxie", None)
    if packed is not None and packed.top_k == top_k and dtype in (None, packed.dtype):
        if packed.released or _same(packed.weights, _state(module)):
            return packed
    return None


def _pack(module, top_k, dtype) -> _Packed:
    packed = getattr(module, "_moxie", None)
    if packed is not None and packed.released:
        raise _refused(module, f"it was packed for K = {packed.top_k} and {packed.dtype} and its weights were released; "
                               f"a run wants K = {top_k} and {dtype}")
    dtype = dtype or (packed.dtype if packed is not None else _own_dtype(module))
    if dtype not in _names:
        raise _refused(module, f"its hidden states are {dtype}; moxie takes bfloat16, float16 and float32")
    if getattr(module, "has_post_expert_norm", False):
        raise _refused(module, "it has a norm on every expert's result, which is not read from transformers yet")
    number, lora = _open(module, top_k, dtype), {}
    if packed is not None:
        packed.close()
    module._moxie = _Packed(number, top_k, dtype, _state(module), weakref.finalize(module, _close, number, lora), lora)
    return module._moxie


def _close(number: int, loras: dict) -> None:
    close_layer(number)
    for lora in loras.values():
        lora.close()


def _own_dtype(module) -> torch.dtype:
    """What hidden states probably are, when a layer is packed before its first run."""
    dtype = getattr(module._parameters.get("down_proj"), "dtype", None)
    return dtype if dtype in _names else getattr(module.config, "dtype", None) or torch.bfloat16


def _open(module, top_k, dtype) -> int:
    source = _source(module)
    if source:
        (weights, config), device = source.weights(module, top_k, dtype), source.device
    else:
        weights, config, device = _own_weights(module, top_k, dtype)
    place = {"backend": "cuda", "device": str(device.index or 0)} if device.type == "cuda" else {}
    return open_layer(Layer.from_weights(weights, config, **{**_options, **place}))


# ---- weights that are the module's parameters -------------------------------------------------------


def _tensors(module) -> dict[str, torch.Tensor]:
    found = {}
    for name in _tensor_names(module):
        parameter = module._parameters.get(name)
        if parameter is None:
            raise _refused(module, f"{name} is not a parameter of it (an adapter may have replaced it)")
        tensor = parameter.detach()
        if type(tensor) is not torch.Tensor or tensor.is_meta:
            raise _refused(module, f"{name} is {type(tensor).__name__} on {tensor.device}; moxie takes plain tensors with data")
        found[name] = tensor
    return found


def _own_weights(module, top_k, dtype) -> tuple[Weights, LayerConfig, torch.device]:
    tensors = _tensors(module)
    first, down = (tensors[name] for name in _tensor_names(module)[:2])
    quants = [_quant(module, name, tensors) for name in _tensor_names(module)[:2]]
    packed = 2 if quants[1].element == "f4_e2m1" else 1
    intermediate, hidden = down.shape[1:] if module.is_transposed else (down.shape[2] * packed, down.shape[1])
    activation, layout = recognise_gate(module)
    config = LayerConfig(
        dtype=_names[dtype], experts=down.shape[0], top_k=top_k, hidden=hidden, intermediate=intermediate,
        activation=activation, w13=quants[0], w2=quants[1], bias13=module.has_bias, bias2=module.has_bias)
    if first.element_size() == 1 and _activations == "checkpoint":
        config.a13 = config.a2 = _activation_quant(module)
    named = {}
    for name in _tensor_names(module):  # on the host: the tensors themselves
        tensor = tensors[name].cpu().contiguous()
        if _argument(name).startswith("a") and not config.a13.is_static:
            continue
        named[_argument(name)] = tensor if tensor.dtype in _names else tensor.view(torch.uint8)
    return Weights(config, transposed=module.is_transposed, **named, **layout), config, down.device


def _argument(name) -> str:
    """The argument of Weights for a parameter of an experts module."""
    which, suffix = ("2", name.removeprefix("down_proj")) if name.startswith("down") else ("13", name.partition("_proj")[2])
    return f"a{which}_scale" if suffix == "_activation_scale" else f"w{which}" + suffix.removesuffix("_inv")


def _quant(module, name, tensors) -> Quant:
    """How a matrix of an experts module is quantized."""
    tensor, scales = tensors[name], tensors.get(name + "_scale_inv")
    if scales is None and tensor.dtype in _names:
        return Quant(_names[tensor.dtype])
    element, scale = _elements.get(tensor.dtype), _scales.get(getattr(scales, "dtype", None))
    if element is None or scale is None:
        raise _refused(module, f"{name} is {tensor.dtype} with scales of {getattr(scales, 'dtype', None)}; moxie takes bfloat16, "
                               "float16 and float32, or FP8 and packed FP4 with scales of float32 or float8_e8m0fnu. For a "
                               "quantized checkpoint call moxie.transformers.prepare(model, dir)")
    if element == "f4_e2m1":
        return Quant(element, scale, 1, 32)
    if module.block_size:
        return Quant(element, scale, *module.block_size)
    return Quant(element, scale, -1, -1)


def _activation_quant(module) -> Quant:
    """That of transformers' FP8 experts: static, or one scale per token and block of columns."""
    if module.activation_scheme == "static":
        return Quant("f8_e4m3", "f32", -1, -1, is_static=True)
    return Quant("f8_e4m3", "f32", 1, module.block_size[1] if module.block_size else -1)


_elements = {torch.float8_e4m3fn: "f8_e4m3", torch.int8: "f4_e2m1"}  # int8: two codes of FP4, by transformers' convention
_scales = {torch.float32: "f32", torch.float8_e8m0fnu: "f8_e8m0"}


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
