# SPDX-License-Identifier: Apache-2.0
"""vLLM's quantization configurations with moxie's experts: each is vLLM's own, but for the layers of experts.

Linear layers, attention and caches stay with vLLM. What a class here adds is the Form of a layer's experts, or None where
the checkpoint leaves them unquantized.
"""

from __future__ import annotations

from vllm.logger import init_logger
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.quantization.auto_awq import AutoAWQConfig
from vllm.model_executor.layers.quantization.auto_gptq import AutoGPTQConfig
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import CompressedTensorsConfig
from vllm.model_executor.layers.quantization.fp8 import Fp8Config
from vllm.model_executor.layers.quantization.mxfp4 import GptOssMxfp4Config, Mxfp4Config
from vllm.model_executor.layers.quantization.utils.gptq_utils import get_dynamic_override
from vllm.model_executor.layers.quantization.utils.quant_utils import is_layer_skipped

from . import _engine
from ._engine import refused
from .errors import Error
from .vllm import for_all
from .vllm_experts import MoxieMoEMethod

logger = init_logger(__name__)
_remedy = "serve without moxie"


class _MoxieExperts:
    """get_quant_method() for a configuration with experts_form()."""

    def get_quant_method(self, layer, prefix):
        if not isinstance(layer, RoutedExperts):
            return super().get_quant_method(layer, prefix)
        try:
            form = self.experts_form(layer, prefix)
        except Error as error:
            if not for_all():
                raise
            logger.warning("%s: %s. vLLM's own experts run it", prefix, error)
            return super().get_quant_method(layer, prefix)
        return MoxieMoEMethod(form or _engine.unquantized(layer.params_dtype, layer.moe_config.has_bias), layer.moe_config)


def _no_bias(name, layer) -> None:
    if layer.moe_config.has_bias:
        raise refused(f"{name} experts with biases", "moxie's parameters for it have none", _remedy)


class MoxieFp8Config(_MoxieExperts, Fp8Config):
    def experts_form(self, layer, prefix):
        if is_layer_skipped(prefix=prefix, ignored_layers=self.ignored_layers, fused_mapping=self.packed_modules_mapping,
                            match_mode=self.ignored_layers_match_mode):
            return None
        _no_bias("fp8", layer)
        if not self.is_checkpoint_fp8_serialized or self.store_dtype == "mxfp4":
            raise refused("fp8 experts", f"this checkpoint stores {self.store_dtype or 'unquantized weights'}", _remedy)
        if self.weight_block_size:
            return _engine.fp8_block(tuple(self.weight_block_size))
        return _engine.fp8_tensor(self.activation_scheme == "static")


class MoxieMxfp4Config(_MoxieExperts, Mxfp4Config):
    def experts_form(self, layer, prefix):
        return _engine.mxfp4(layer.moe_config.has_bias)


class MoxieGptOssMxfp4Config(_MoxieExperts, GptOssMxfp4Config):
    experts_form = MoxieMxfp4Config.experts_form


class MoxieAwqConfig(_MoxieExperts, AutoAWQConfig):
    def experts_form(self, layer, prefix):
        if is_layer_skipped(prefix, self.modules_to_not_convert or [], match_mode="substring"):
            return None
        _no_bias("awq", layer)
        if not self.zero_point:
            raise refused("awq without zero points", "moxie's parameters for it have them", _remedy)
        return _engine.awq(self.weight_bits, self.group_size)


class MoxieGptqConfig(_MoxieExperts, AutoGPTQConfig):
    def experts_form(self, layer, prefix):
        if get_dynamic_override(self, layer_name=prefix) is False:
            return None
        _no_bias("gptq", layer)
        bits = get_dynamic_override(self, prefix, "bits", self.weight_bits)
        group = get_dynamic_override(self, prefix, "group_size", self.group_size)
        return _engine.gptq(bits, group, 0 if self.full_config.get("checkpoint_format") == "gptq_v2" else 1)


class MoxieCompressedTensorsConfig(_MoxieExperts, CompressedTensorsConfig):
    def experts_form(self, layer, prefix):
        self._add_fused_moe_to_target_scheme_map()
        names = (layer.ckpt_gate_proj_name, layer.ckpt_up_proj_name, layer.ckpt_down_proj_name)
        first, *rest = [self.get_scheme_dict(layer, f"{prefix}.0.{name}") for name in names if name]
        if any(other != first for other in rest):
            raise refused(prefix, "its projections are quantized in different ways", _remedy)
        if first is None:
            return None
        return _form_of_scheme(first, layer)


def _form_of_scheme(scheme, layer):
    """The Form of compressed-tensors' arguments for weights and activations."""
    weights, inputs, layout = scheme["weights"], scheme.get("input_activations"), scheme.get("format")
    kind, strategy = (str(getattr(name, "value", name)) for name in (weights.type, weights.strategy))
    if kind == "int" and layout == "pack-quantized" and strategy in ("group", "channel") and not inputs:
        if getattr(weights, "actorder", None) == "group":
            raise refused("compressed-tensors actorder group", "vLLM's loader drops the order", _remedy)
        return _engine.int_packed(weights.num_bits, weights.group_size or -1 if strategy == "group" else -1,
                                  not weights.symmetric, layer.params_dtype, layer.moe_config.has_bias)
    _no_bias("compressed-tensors", layer)
    if kind == "float" and weights.num_bits == 8 and inputs and inputs.num_bits == 8:
        if strategy == "block" and inputs.dynamic:
            return _engine.fp8_block(tuple(weights.block_structure), "weight_scale")
        if strategy == "channel" and inputs.dynamic:
            return _engine.fp8_channel()
        if strategy == "tensor":
            return _engine.fp8_tensor(not inputs.dynamic)
    raise refused(f"compressed-tensors {kind} {weights.num_bits} bits, {strategy}, {layout}",
                  "in vLLM moxie reads pack-quantized integers and FP8 by tensor, channel or block", _remedy)


#: quant_method of config.json -> the class that reads it
by_method = {
    "fp8": MoxieFp8Config,
    "mxfp4": MoxieMxfp4Config,
    "gpt_oss_mxfp4": MoxieGptOssMxfp4Config,
    "awq": MoxieAwqConfig,
    "auto_awq": MoxieAwqConfig,
    "gptq": MoxieGptqConfig,
    "auto_gptq": MoxieGptqConfig,
    "compressed-tensors": MoxieCompressedTensorsConfig,
}

