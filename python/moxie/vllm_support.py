# SPDX-License-Identifier: Apache-2.0
"""vLLM's question "do these experts support this layer", answered by moxie for CPUs and for GPUs that need not be here.

vLLM asks a class of experts by is_supported_config(). vLLM 0.31 and 0.32 ask the classes of their own lists only and have
no registry for others; moxie's layers come by MoxieMoEMethod instead, which asks here before it makes parameters.
"""

from __future__ import annotations

import torch
from vllm.model_executor.layers.fused_moe import FusedMoEActivationFormat
from vllm.platforms import current_platform

from . import _engine
from ._engine import Form, config_of, refused
from ._objects import Plan, explain
from .errors import Error
from .vllm_experts import check, shape_of

_fp4 = torch.uint8  #: as vLLM's keys name two 4-bit numbers in a byte


def form_of_key(weight, activation, dtype: torch.dtype, bias: bool) -> Form:
    """The Form of vLLM's keys for weights and activations (QuantKey); None as weight: not quantized."""
    if weight is None:
        return _engine.unquantized(dtype, bias)
    form = _quantized(weight, weight.scale.group_shape, dtype, bias)
    return form if activation is not None else form.with_16bit_activations()


def _quantized(key, group, dtype, bias) -> Form:
    e8m0 = key.scale.dtype in (torch.uint8, torch.float8_e8m0fnu)
    if key.dtype == torch.float8_e4m3fn and not e8m0:
        if group.is_per_tensor():
            return _engine.fp8_tensor(static=False)
        if group.is_per_channel() or group.is_per_token():
            return _engine.fp8_channel()
        return _engine.fp8_block((group.row, group.col))
    if key.dtype == _fp4 and e8m0 and key.scale2 is None and (group.row, group.col) == (1, 32):
        return _engine.mxfp4(bias)
    bits = {"uint4b8": 4, "uint4": 4, "uint8b128": 8}.get(str(key.dtype))
    if bits is not None:
        return _engine.int_packed(bits, group.col, not key.symmetric, dtype, bias)
    raise refused(f"weights {key}", "in vLLM moxie reads bf16, f16, f32, FP8, MXFP4 and integers of 4 and 8 bits",
                  "serve without moxie")


def plan_for(moe, weight, activation, device: str | None = None) -> Plan:
    """The plan that a FusedMoEConfig would get; raises moxie.Unsupported with the reason.

    device  "sm_90", "sm_80", "avx2", ...; None: where vLLM runs
    """
    form = form_of_key(weight, activation, moe.in_dtype, moe.has_bias)
    check(form, moe)
    if device is None and current_platform.is_cuda():
        device = "sm_{}{}".format(*current_platform.get_device_capability())
    cuda = device is not None and device.startswith("sm_")
    return explain(config_of(form, shape_of(moe)), backend="cuda" if cuda else "cpu", **({"device": device} if device else {}))


class MoxieExperts:
    """Has the question of vLLM's FusedMoEExperts, with its arguments and its kind of answer."""

    @staticmethod
    def is_supported_config(cls, moe_config, weight_key, activation_key, activation_format, device=None):
        """(True, None), or (False, why not and what to do)."""
        if activation_format != FusedMoEActivationFormat.Standard:
            return False, f"moxie takes tokens in their order, not {activation_format.value}"
        try:
            plan_for(moe_config, weight_key, activation_key, device)
        except Error as error:
            return False, str(error)
        return True, None
