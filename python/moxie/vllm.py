# SPDX-License-Identifier: Apache-2.0
"""moxie as vLLM's experts, on CPUs and GPUs.

    vllm serve MODEL --quantization moxie        one model, in the format that its config.json names
    MOXIE_VLLM=1 vllm serve MODEL                the same for every model whose format moxie reads

vLLM finds register() by the entry point "moxie" of the group vllm.general_plugins. Linear layers, attention, routing, shared
experts and the exchange between ranks stay with vLLM; MOXIE_VLLM=1 leaves formats that moxie does not read to vLLM.
"""

from __future__ import annotations

import os

import torch
from vllm.model_executor.custom_op import op_registry_oot
from vllm.model_executor.layers.quantization import register_quantization_config
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig

settings: dict = {"activations": "checkpoint", "options": {}}  #: what register() was given; vllm_experts reads it
#: values of quant_method in config.json; vllm_configs.py has a class for each
METHODS = ("fp8", "mxfp4", "gpt_oss_mxfp4", "awq", "auto_awq", "gptq", "auto_gptq", "compressed-tensors")


def register(*, activations: str | None = None, **options) -> None:
    """Makes quantization="moxie" known to vLLM, and with MOXIE_VLLM=1 moxie the experts of all models.

    activations  "checkpoint" (the default): quantized where config.json says so; "16bit": never
    options      for all layers: mode, isa, max_tokens, threads, as moxie.Layer takes them

    vLLM's plugin loader gives no arguments: MOXIE_VLLM_ACTIVATIONS and MOXIE_VLLM_MODE stand for activations and mode.
    """
    activations = activations or os.environ.get("MOXIE_VLLM_ACTIVATIONS", "checkpoint")
    if activations not in ("checkpoint", "16bit"):
        raise ValueError(f"moxie.vllm: activations are {activations!r}; 'checkpoint' and '16bit' are known")
    if "MOXIE_VLLM_MODE" in os.environ:
        options.setdefault("mode", os.environ["MOXIE_VLLM_MODE"])
    settings.update(activations=activations, options=options)
    register_quantization_config("moxie")(MoxieConfig)
    if for_all():  # only then are vLLM's layers loaded here: who does not ask for moxie shall not wait for them
        from . import vllm_experts

        op_registry_oot["UnquantizedFusedMoEMethod"] = vllm_experts.MoxieUnquantizedMethod


def for_all() -> bool:
    """Whether the environment wants moxie in every layer that it can run."""
    return os.environ.get("MOXIE_VLLM", "0") not in ("", "0")


class MoxieConfig(QuantizationConfig):
    """--quantization moxie. Of a quantized checkpoint from_config() returns vLLM's own configuration with moxie's experts;
    itself it serves models that are not quantized."""

    @classmethod
    def get_name(cls):
        return "moxie"

    @classmethod
    def get_supported_act_dtypes(cls):
        return [torch.bfloat16, torch.float16, torch.float32]

    @classmethod
    def get_min_capability(cls):
        return 80

    @staticmethod
    def get_config_filenames():
        return []

    @classmethod
    def override_quantization_method(cls, hf_quant_cfg, user_quant, hf_config=None):
        if user_quant == "moxie":
            return "moxie"
        method = hf_quant_cfg.get("quant_method") if user_quant is None and for_all() else None
        return "moxie" if method in METHODS else None

    @classmethod
    def from_config(cls, config):
        from ._engine import refused
        from .vllm_configs import by_method

        method = config.get("quant_method")
        if method not in by_method:
            raise refused(f"quant_method {method}", f"in vLLM moxie reads {', '.join(METHODS)}", "serve without moxie")
        return by_method[method].from_config(config)

    def get_quant_method(self, layer, prefix):
        from vllm.model_executor.layers.fused_moe import RoutedExperts
        from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod

        from . import vllm_experts
        from ._engine import unquantized

        if not isinstance(layer, RoutedExperts):
            return UnquantizedLinearMethod() if isinstance(layer, LinearBase) else None
        return vllm_experts.MoxieMoEMethod(unquantized(layer.params_dtype, layer.moe_config.has_bias), layer.moe_config)
