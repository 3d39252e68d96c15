# SPDX-License-Identifier: Apache-2.0
"""The experts of a vLLM layer in moxie: vLLM's fused-MoE method, filled by moxie. moxie.vllm decides which layers get it.

    create_weights()                    the parameters of the layer's Form, which vLLM's loader fills
    process_weights_after_loading()     packed into a moxie layer; the parameters become empty
    apply()                             torch.ops.moxie.fused_moe with the ids and weights that vLLM's router chose

vLLM keeps routing, shared experts, the exchange between ranks and the last all-reduce. With expert parallelism ids of other
ranks' experts become -1, which moxie skips.
"""

from __future__ import annotations

import weakref

import torch
from vllm.model_executor.layers.fused_moe import FusedMoEMethodBase
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod

from ._engine import Form, Shape, config_of, pack, refused, unquantized
from .config import Activation
from .torch import close_layer, fused_moe
from .vllm import settings

_remedy = "run it without moxie"
_activations = {
    "silu": ("silu", {}),
    "gelu": ("gelu_erf", {}),
    "gelu_tanh": ("gelu_tanh", {}),
    "swigluoai": ("silu", {"alpha": 1.702, "beta": 1.0, "gate_limit": 7.0, "up_limit": 7.0}),
    "swigluoai_uninterleave": ("silu", {}),
    "swiglustep": ("swiglu_step", {"gate_limit": 7.0, "up_limit": 7.0}),
    "situ": ("situ", {}),
    "silu_no_mul": ("silu_no_mul", {}),
    "gelu_no_mul": ("gelu_erf_no_mul", {}),
    "gelu_tanh_no_mul": ("gelu_tanh_no_mul", {}),
    "relu2_no_mul": ("relu2_no_mul", {}),
}
_takes_parameters = ("silu", "swigluoai_uninterleave")  #: whose limit, alpha and beta vLLM's configuration gives


def activation_of(moe) -> Activation:
    """moxie's activation for a FusedMoEConfig, or moxie.Unsupported."""
    name = moe.activation.value
    if name not in _activations:
        raise refused(f"activation {name}", f"moxie has {', '.join(_activations)}", _remedy)
    kind, fixed = _activations[name]
    given = dict(fixed)
    if name in _takes_parameters:
        limit = moe.swiglu_limit or 0.0
        given = {"alpha": moe.swiglu_alpha or 0.0, "beta": moe.swiglu_beta or 0.0, "gate_limit": limit, "up_limit": limit}
        if name == "silu" and (given["alpha"] not in (0.0, 1.0) or given["beta"]):
            raise refused("activation silu", f"alpha {given['alpha']} and beta {given['beta']} are not vLLM's silu", _remedy)
    if name == "situ":
        given = {"alpha": moe.activation_situ_beta or 0.0, "beta": moe.activation_situ_linear_beta or 0.0}
    return Activation(kind, **given)


def shape_of(moe, on_input: bool = False) -> Shape:
    return Shape(moe.in_dtype, moe.num_local_experts, moe.experts_per_token, moe.hidden_dim,
                 moe.intermediate_size_per_partition, activation_of(moe),
                 interleaved=moe.activation.value == "swigluoai", on_input=on_input)


def check(form: Form, moe, on_input: bool = False) -> None:
    """Raises moxie.Unsupported, in words, for a layer that moxie does not run in vLLM."""
    parallel = moe.moe_parallel_config
    if moe.is_lora_enabled:
        raise refused("LoRA on experts", "vLLM's adapters reach into its own expert kernels", "serve without enable_lora")
    if parallel.use_all2all_kernels:
        raise refused(f"all2all_backend {parallel.all2all_backend}", "it hands tokens to vLLM's own kernels",
                      "serve with data_parallel_size=1")
    cut, groups = moe.intermediate_size_per_partition, {form.weight.group_rows, form.weight.group_cols}
    for group in groups if parallel.tp_size > 1 else ():
        if group > 1 and cut % group:
            raise refused(f"tensor_parallel_size {parallel.tp_size}", f"it cuts experts to {cut} columns, in the middle of a "
                          f"group of {group}", "serve with enable_expert_parallel, or with fewer ranks")
    config_of(form, shape_of(moe, on_input)).check()


class MoxieMoEMethod(FusedMoEMethodBase):
    """Serves a RoutedExperts layer whose experts are in a Form."""

    def __init__(self, form: Form, moe):
        FusedMoEMethodBase.__init__(self, moe)
        self.form = form.with_16bit_activations() if settings["activations"] == "16bit" else form
        self.number = 0

    def maybe_roundup_sizes(self, hidden_size, intermediate_size_per_partition, act_dtype, moe_parallel_config):
        return hidden_size, intermediate_size_per_partition

    @property
    def supports_eplb(self) -> bool:
        return False

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size_per_partition, params_dtype,
                       **extra_weight_attrs):
        on_input = layer.apply_router_weight_on_input
        check(self.form, self.moe, on_input)
        self.shape = shape_of(self.moe, on_input)
        self.form.make_parameters(layer, num_experts, hidden_size, intermediate_size_per_partition, self.shape.halves,
                                  extra_weight_attrs)

    def process_weights_after_loading(self, layer) -> None:
        if self.number:
            raise refused(layer.layer_name, "its experts are packed already and their parameters are gone",
                          "make the engine anew to load other weights")
        self.number = pack(self.form, self.shape, lambda name: getattr(layer, name).data, settings["options"])
        weakref.finalize(self, close_layer, self.number)
        self.form.empty_parameters(layer)

    def get_fused_moe_quant_config(self, layer):
        return None

    def apply(self, layer, x, topk_weights, topk_ids, shared_experts=None, shared_experts_input=None):
        if layer.expert_map is not None:
            local = layer.expert_map[topk_ids.clamp(min=0).long()]
            topk_ids = torch.where(topk_ids < 0, -1, local)
        return fused_moe(x, self.number, topk_ids.to(torch.int32), topk_weights)


class MoxieUnquantizedMethod(MoxieMoEMethod, UnquantizedFusedMoEMethod):
    """Stands for vLLM's own method wherever vLLM makes one: vLLM looks the class up by the name of its own."""

    def __init__(self, moe):
        super().__init__(unquantized(moe.in_dtype, moe.has_bias), moe)
