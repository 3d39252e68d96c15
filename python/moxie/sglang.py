# SPDX-License-Identifier: Apache-2.0
"""moxie as SGLang's experts: a runner of mixture-of-experts layers that SGLang takes from outside.

    import moxie.sglang

    moxie.sglang.register_moxie()                # SGLang's plugin loader calls it by itself
    sglang serve MODEL --moe-runner-backend moxie

FusedMoE layers then get MoxieMoEMethod: parameters in the checkpoint's own format, which SGLang's loader fills; packed once,
then emptied; a run hands ids and weights of SGLang's router to moxie.
"""

from __future__ import annotations

import inspect
import weakref
from dataclasses import dataclass

import torch
from sglang.srt.layers.moe.moe_runner.base import DispatchMoeRunnerCore, MoeQuantInfo
from sglang.srt.layers.moe.moe_runner.runner import MoeRunner, register_moe_runner_core
from sglang.srt.layers.moe.token_dispatcher import StandardCombineInput
from sglang.srt.layers.moe.utils import get_moe_runner_backend, resolve_moe_runner_backend
from sglang.srt.layers.quantization.base_config import FusedMoEMethodBase
from sglang.srt.layers.quantization.utils import is_layer_skipped

from . import _engine
from ._engine import Form, Shape, config_of, pack, refused
from .config import Activation
from .torch import close_layer, fused_moe

NAME = "moxie"
_options: dict = {}
_remedy = "serve with another --moe-runner-backend"
_gated = {"silu": "silu", "gelu": "gelu_erf"}
_plain = {"silu": "silu_no_mul", "relu2": "relu2_no_mul"}
_registered: list[str] = []


def register_moxie(**options) -> None:
    """Makes --moe-runner-backend moxie known. options: of all layers, as moxie.Layer takes them (threads, mode, isa, ...)."""
    _options.clear()
    _options.update(options)
    if _registered:
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.srt.server_args import add_moe_runner_backend_choices

    register_moe_runner_core(NAME, MoxieRunnerCore)
    add_moe_runner_backend_choices([NAME])
    HookRegistry.register("sglang.srt.layers.moe.fused_moe_triton.layer.FusedMoE.__init__", make_layer, HookType.AROUND)
    _registered.append(NAME)


def make_layer(init, layer, *args, **kwargs):
    """Around FusedMoE.__init__: gives the layer moxie's method where moxie is the chosen backend."""
    if get_moe_runner_backend().value == NAME and kwargs.get("quant_method") is None:
        given = inspect.signature(init).bind(layer, *args, **kwargs)
        given.apply_defaults()
        values = given.arguments
        form = form_of(values["quant_config"], values["prefix"], values["params_dtype"] or torch.get_default_dtype(),
                       values["with_bias"])
        kwargs["quant_method"] = MoxieMoEMethod(form)
    return init(layer, *args, **kwargs)


def form_of(quant_config, prefix: str, dtype: torch.dtype, bias: bool = False) -> Form:
    """The Form of a layer's experts for one of SGLang's quantization configurations (None: not quantized)."""
    name = quant_config.get_name() if quant_config is not None else None
    skipped = getattr(quant_config, "ignored_layers", None) or getattr(quant_config, "modules_to_not_convert", None) or []
    if bias:
        raise refused("experts with biases", "in SGLang moxie has no parameters for them", _remedy)
    if name is None or is_layer_skipped(prefix, skipped):
        form = _engine.unquantized(dtype)
    elif name == "fp8" and quant_config.is_checkpoint_fp8_serialized and not quant_config.use_mxfp8:
        block = quant_config.weight_block_size
        form = _engine.fp8_block(tuple(block)) if block else _engine.fp8_tensor(quant_config.activation_scheme == "static")
    elif name in ("awq", "awq_marlin") and quant_config.zero_point:
        form = _engine.awq(quant_config.weight_bits, quant_config.group_size)
    elif name in ("gptq", "gptq_marlin") and not quant_config.desc_act and not quant_config.dynamic:
        given = getattr(quant_config, "full_config", {}).get("checkpoint_format")
        version = getattr(quant_config, "checkpoint_format", given)
        form = _engine.gptq(quant_config.weight_bits, quant_config.group_size, 0 if version == "gptq_v2" else 1)
    else:
        raise refused(f"{name} experts", "in SGLang moxie reads unquantized ones, serialized FP8, AWQ with zero points, and GPTQ "
                      "without act order and rules", _remedy)
    return form


def shape_of(config, dtype: torch.dtype) -> Shape:
    """A MoeRunnerConfig's layer, or moxie.Unsupported."""
    kinds = _gated if config.is_gated else _plain
    limit, alpha = config.gemm1_clamp_limit or config.swiglu_limit, config.gemm1_alpha
    if config.activation not in kinds or (alpha is not None and not config.is_gated):
        raise refused(f"activation {config.activation}{'' if config.is_gated else ' without gate'}",
                      f"moxie takes {', '.join(kinds)} here", _remedy)
    beta = config.gemm1_beta if config.gemm1_beta is not None else (1.0 if alpha is not None else 0.0)
    activation = Activation(kinds[config.activation], alpha or 0.0, beta, limit or 0.0, limit or 0.0)
    return Shape(dtype, config.num_local_experts, config.top_k, config.hidden_size, config.intermediate_size_per_partition,
                 activation, interleaved=alpha is not None and config.gate_up_interleaved,
                 on_input=config.apply_router_weight_on_input)


def check(form: Form, config, dtype: torch.dtype) -> None:
    for name, reason in (("no_combine", "moxie returns the weighted sum"), ("num_fused_shared_experts", "moxie keeps shared "
                         "experts with SGLang: --disable-shared-experts-fusion")):
        if getattr(config, name):
            raise refused(f"{name}={getattr(config, name)}", reason, _remedy)
    config_of(form, shape_of(config, dtype)).check()


@dataclass
class MoxieQuantInfo(MoeQuantInfo):
    number: int  #: of the layer, for moxie.torch.fused_moe


class MoxieRunnerCore(DispatchMoeRunnerCore):
    @property
    def runner_backend(self):
        return resolve_moe_runner_backend(NAME)

    def run_from_dispatch(self, dispatch_output, quant_info, runner_config, hooks=None):
        if hooks is not None:
            raise refused("LoRA on experts", "SGLang's hooks reach into its own kernels", _remedy)
        weights, ids = dispatch_output.topk_output[:2]
        weights = weights * (runner_config.routed_scaling_factor or 1.0)
        return StandardCombineInput(hidden_states=fused_moe(dispatch_output.hidden_states, quant_info.number, ids, weights))


class MoxieMoEMethod(FusedMoEMethodBase):
    """Serves a FusedMoE layer whose experts are in a Form: FusedMoE(..., quant_method=MoxieMoEMethod(form))."""

    def __init__(self, form: Form):
        self.form, self.number, self.dtype = form, 0, None

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size_per_partition, params_dtype, with_bias=False,
                       **extra_weight_attrs):
        self.dtype = params_dtype
        config = layer.moe_runner_config
        check(self.form, config, params_dtype)
        self.form.make_parameters(layer, num_experts, hidden_size, intermediate_size_per_partition, 2 if config.is_gated else 1,
                                  extra_weight_attrs)

    def process_weights_after_loading(self, layer) -> None:
        if self.number:
            raise refused("weights", "the experts are packed already and their parameters are gone", "make the engine anew")
        shape = shape_of(layer.moe_runner_config, self.dtype)
        self.number = pack(self.form, shape, lambda name: getattr(layer, name).data, _options)
        weakref.finalize(self, close_layer, self.number)
        self.form.empty_parameters(layer)

    def create_moe_runner(self, layer, moe_runner_config):
        self.runner = MoeRunner(resolve_moe_runner_backend(NAME), moe_runner_config)

    def apply(self, layer, dispatch_output):
        return self.runner.run(dispatch_output, MoxieQuantInfo(self.number))
