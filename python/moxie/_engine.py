# SPDX-License-Identifier: Apache-2.0
"""What the adapters to vLLM and SGLang share: how a layer's experts lie in an engine's parameters, and how they are packed.

    checkpoint --- engine's loader ---> parameters of a Form --- pack() ---> moxie.Layer --- fused_moe() ---> [T, H]
                                        w13_weight, w2_scales, ...           the parameters are emptied

A Form is one checkpoint format: which parameters the engine's loader fills, and which arguments of moxie.Weights they are.
Parameters come in pairs, one for W13 (rows 2I, or I without a gate; columns H) and one for W2 (rows H, columns I).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from ._moxie import Executor
from ._objects import Layer, Weights
from .config import Activation, LayerConfig, Quant
from .errors import Error, _make
from .torch import _names, open_layer

_scales = {**_names, torch.uint8: "f8_e8m0", torch.float8_e4m3fn: "f8_e4m3"}


def refused(what: str, reason: str, remedy: str) -> Error:
    """moxie.Unsupported with the three parts that a user needs."""
    return _make("unsupported", f"{what}: {reason}; {remedy}", "", -1)


# ---- the forms -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A pair of parameters: w13_NAME and w2_NAME."""

    role: str  #: what it is to moxie.Weights: "codes", "scale", "zero", "bias"; "static": scale of activations; "": not used
    name: str
    shape: Callable  #: (rows of one half, columns, halves) -> the shape behind the axis of experts
    dtype: torch.dtype
    loads: str = ""  #: how the engine's loader cuts it: "", "tensor", "channel", "group", "block"
    keeps_type: bool = False  #: the parameter takes the type of the checkpoint's tensor, so that nothing is rounded


@dataclass(frozen=True)
class Form:
    """How the experts of a layer are quantized and stored. Scales' type "" is that of the loaded tensor."""

    name: str
    weight: Quant
    parts: tuple[Part, ...]
    activation: Quant = field(default_factory=Quant)
    transposed: bool = False  #: [E, columns, rows], as GPTQ and AWQ store
    options: dict = field(default_factory=dict)  #: of moxie.Weights

    def make_parameters(self, layer, experts: int, hidden: int, intermediate: int, halves: int, attributes: dict) -> None:
        """Registers the parameters, with what the engine's loader wants to know of each; attributes: the engine's own."""
        for part in self.parts:
            more = {**attributes, **({"quant_method": part.loads} if part.loads else {}),
                    **({"is_transposed": True} if self.transposed else {})}
            if part.keeps_type:
                more["weight_loader"] = _loader_that_keeps_types(attributes["weight_loader"])
            for side, shape in (("w13", part.shape(intermediate, hidden, halves)), ("w2", part.shape(hidden, intermediate, 1))):
                parameter = torch.nn.Parameter(torch.zeros(experts, *shape, dtype=part.dtype), requires_grad=False)
                layer.register_parameter(f"{side}_{part.name}", parameter)
                for name, value in more.items():
                    setattr(parameter, name, value)

    def empty_parameters(self, layer) -> None:
        for part in self.parts:
            for side in ("w13", "w2"):
                parameter = getattr(layer, f"{side}_{part.name}")
                parameter.data = parameter.data.new_empty(0)

    def with_16bit_activations(self) -> Form:
        parts = tuple(replace(part, role="") if part.role == "static" else part for part in self.parts)
        return replace(self, activation=Quant(), parts=parts)


def _loader_that_keeps_types(loader):
    """The engine's loader, but the parameter first takes the type of what the file has: f16 scales stay f16."""

    def load(param, loaded_weight, *args, **kwargs):
        if param.dtype != loaded_weight.dtype:
            param.data = param.data.to(loaded_weight.dtype)
        return loader(param, loaded_weight, *args, **kwargs)

    load.supports_moe_loading = True
    return load


def _up(n: int, by: int) -> int:
    return -(-n // by)


def _bias(dtype) -> tuple[Part, ...]:
    return (Part("bias", "bias", lambda r, c, n: (n * r,), dtype),)


def unquantized(dtype: torch.dtype, bias: bool = False) -> Form:
    codes = Part("codes", "weight", lambda r, c, n: (n * r, c), dtype)
    return Form(_names[dtype], Quant(_names[dtype]), (codes, *(_bias(dtype) if bias else ())))


def fp8(name: str, scale: Part, weight: Quant, activation: Quant, more: tuple[Part, ...] = ()) -> Form:
    codes = Part("codes", "weight", lambda r, c, n: (n * r, c), torch.float8_e4m3fn)
    return Form(name, replace(weight, element="f8_e4m3"), (codes, scale, *more), activation)


def fp8_block(block: tuple[int, int], scale_name: str = "weight_scale_inv") -> Form:
    rows, cols = block
    scale = Part("scale", scale_name, lambda r, c, n: (n * _up(r, rows), _up(c, cols)), torch.float32, "block")
    return fp8("fp8-block", scale, Quant("", "f32", rows, cols), Quant("f8_e4m3", "f32", 1, cols))


def fp8_tensor(static: bool) -> Form:
    scale = Part("scale", "weight_scale", lambda r, c, n: (n,) if n == 2 else (), torch.float32, "tensor")
    activation = Quant("f8_e4m3", "f32", -1, -1, is_static=True) if static else Quant("f8_e4m3", "f32", 1, -1)
    more = (Part("static", "input_scale", lambda r, c, n: (), torch.float32),) if static else ()
    return fp8("fp8-tensor", scale, Quant("", "f32", -1, -1), activation, more)


def fp8_channel() -> Form:
    scale = Part("scale", "weight_scale", lambda r, c, n: (n * r, 1), torch.float32, "channel")
    return fp8("fp8-channel", scale, Quant("", "f32", 1, -1), Quant("f8_e4m3", "f32", 1, -1))


def mxfp4(bias: bool, scale_name: str = "weight_scale", bias_dtype=torch.bfloat16) -> Form:
    codes = Part("codes", "weight", lambda r, c, n: (n * r, c // 2), torch.uint8)
    scale = Part("scale", scale_name, lambda r, c, n: (n * r, _up(c, 32)), torch.uint8, "block")
    return Form("mxfp4", Quant("f4_e2m1", "f8_e8m0", 1, 32), (codes, scale, *(_bias(bias_dtype) if bias else ())))


def int_packed(bits: int, group: int, zero: bool, scales: torch.dtype, bias: bool = False) -> Form:
    """compressed-tensors "pack-quantized": codes along the columns, zero points along the rows, in int32 words."""
    per, many = 32 // bits, group > 0
    loads, cols = ("group", lambda c: _up(c, group)) if many else ("channel", lambda c: 1)
    parts = (Part("codes", "weight_packed", lambda r, c, n: (n * r, c // per), torch.int32, loads),
             Part("scale", "weight_scale", lambda r, c, n: (n * r, cols(c)), scales, loads, keeps_type=True),
             Part("", "weight_shape", lambda r, c, n: (2,), torch.int64))
    if zero:
        parts += (Part("zero", "weight_zero_point", lambda r, c, n: (n * r // per, cols(c)), torch.int32, loads),)
    weight = Quant(f"u{bits}b{1 << (bits - 1)}", "", 1, group if many else -1, has_zero=zero)
    return Form("compressed-tensors int", weight, parts + (_bias(scales) if bias else ()))


def int_by_columns(name: str, bits: int, group: int, along_columns: bool, options: dict) -> Form:
    """AWQ and GPTQ: [E, columns, rows]; GPTQ packs codes along the columns, AWQ along the rows, both zeros along the rows."""
    per, many = 32 // bits, group > 0
    loads, groups = ("group", lambda c: _up(c, group)) if many else ("channel", lambda c: 1)
    codes = (lambda r, c, n: (c // per, n * r)) if along_columns else (lambda r, c, n: (c, n * r // per))
    parts = (Part("codes", "qweight", codes, torch.int32, loads),
             Part("scale", "scales", lambda r, c, n: (groups(c), n * r), torch.float16, loads, keeps_type=True),
             Part("zero", "qzeros", lambda r, c, n: (groups(c), n * r // per), torch.int32, loads))
    weight = Quant(f"u{bits}b{1 << (bits - 1)}", "", 1, group if many else -1, has_zero=True)
    return Form(name, weight, parts, transposed=True, options=options)


def awq(bits: int, group: int) -> Form:
    return int_by_columns("awq", bits, group, False, {"order": "awq"})


def gptq(bits: int, group: int, zero_add: int = 1) -> Form:
    """zero_add: 1 where the file stores zero points less one (GPTQ v1)."""
    return int_by_columns("gptq", bits, group, True, {"zero_add": zero_add})


# ---- a layer of a form -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """What an engine says of a layer, beside how it is quantized."""

    dtype: torch.dtype
    experts: int  #: those in the parameters
    top_k: int
    hidden: int
    intermediate: int  #: on this rank
    activation: Activation
    interleaved: bool = False  #: rows of gate and up alternate
    on_input: bool = False

    @property
    def halves(self) -> int:
        return 1 if self.activation.kind.endswith("_no_mul") else 2


def config_of(form: Form, shape: Shape, scale: dict[str, str] | None = None) -> LayerConfig:
    """scale: {"w13": format, "w2": format} of the loaded scales; without it f16 stands for those that vary."""
    if shape.dtype not in _names:
        raise refused(form.name, f"hidden states are {shape.dtype}", "moxie takes bfloat16, float16 and float32")
    has_bias = any(part.role == "bias" for part in form.parts)
    has_scale = any(part.role == "scale" for part in form.parts)
    quant = {name: replace(form.weight, scale=(scale or {}).get(name) or form.weight.scale or ("f16" if has_scale else ""))
             for name in ("w13", "w2")}
    config = LayerConfig(dtype=_names[shape.dtype], experts=shape.experts, top_k=shape.top_k, hidden=shape.hidden,
                         intermediate=shape.intermediate, activation=shape.activation, a13=form.activation,
                         a2=form.activation, bias13=has_bias, bias2=has_bias, **quant)
    config.routing.on_input = shape.on_input
    return config


def arrays_of(form: Form, tensors: Callable[[str], torch.Tensor]) -> tuple[dict, dict]:
    """Arguments of moxie.Weights and the scales' types, from a function that finds a parameter by its name."""
    arrays, scale = {}, {}
    for side in ("w13", "w2"):
        for part in form.parts:
            if not part.role:
                continue
            tensor = tensors(f"{side}_{part.name}").detach().cpu().contiguous()
            if part.role == "static":
                arrays["a13_scale" if side == "w13" else "a2_scale"] = tensor
                continue
            if part.role == "scale":
                scale[side] = _scales[tensor.dtype]
            arrays[side if part.role == "codes" else f"{side}_{part.role}"] = tensor
    return arrays, scale


def pack(form: Form, shape: Shape, tensors: Callable[[str], torch.Tensor], options: dict) -> int:
    """Packs the experts and returns the number of the layer for moxie.torch.fused_moe. The tensors are not needed after."""
    arrays, scale = arrays_of(form, tensors)
    config = config_of(form, shape, scale)
    weights = Weights(config, transposed=form.transposed, interleaved=shape.interleaved, **form.options, **arrays)
    device = tensors("w13_" + form.parts[0].name).device
    place = {"backend": "cuda", "device": str(device.index or 0)} if device.type == "cuda" else {"backend": "cpu"}
    return open_layer(Layer.from_weights(weights, **{"threads": threads(), **place, **options}))


_pool: Executor | None = None


def _processors() -> set[int]:
    """All that a thread of this process may use. Threads may end meanwhile."""
    found = set(os.sched_getaffinity(0))
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            found |= os.sched_getaffinity(int(thread))
    return found


def threads() -> Executor:
    """One pool for all layers, as wide as torch's, on all processors that this process may use.

    Engines bind the calling thread to one processor, and threads inherit that; so the pool is made on the union of what
    the process's threads are bound to.
    """
    global _pool
    if _pool is None:
        mine = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, _processors())
            _pool = Executor(torch.get_num_threads())
        finally:
            os.sched_setaffinity(0, mine)
    return _pool
