# SPDX-License-Identifier: Apache-2.0
"""Experts of a transformers model, packed straight from the files of its checkpoint.

    from_pretrained(dir, experts_implementation="moxie")
      get_hf_quantizer(config) ---> ExpertsFromFiles     in place of the quantizer of the checkpoint's method
        before loading   experts modules lose their parameters; so transformers reads none of their tensors
        loading          the rest of the model, by transformers' own quantizer, or _hf_linear.py for AWQ and GPTQ
        after loading    moxie.Model(dir) views each layer's experts in the mapped files; moxie packs them

The experts are never dequantized, and memory holds them once: moxie drops the pages of the files as it packs.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import os
import re

import torch
import transformers
import transformers.modeling_utils as modeling
from safetensors import safe_open
from transformers.quantizers import auto
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from . import transformers as door
from ._hf_linear import PackedLinears, take_any_shape
from ._objects import Model
from .config import Routing
from .errors import _make
from .torch import _names

# Tensors that only a quantized matrix has.
_companions = re.compile(r"\.(weight_packed|weight_scale|weight_scale_inv|weight_scale_2|qweight|scale|scales|qscale_weight)$")


class Source:
    """Where the experts of a module come from: one layer of a checkpoint directory."""

    def __init__(self, dir: str, number: int, activations: str, model: Model | None = None):
        self.dir, self.number, self.activations, self.model = dir, number, activations, model
        self.device = torch.device("cpu")

    def __reduce__(self):
        return Source, (self.dir, self.number, self.activations)  # a copy opens the files for itself

    def files(self) -> Model:
        self.model = self.model or _open(self.dir, self.activations)
        return self.model

    def weights(self, module, top_k: int, dtype: torch.dtype):
        """Views of the files, and the configuration for a run that brings ids and weights."""
        weights = self.files().load(self.number)
        config = weights.config
        self._check(module, config)
        activation, _ = door.recognise_gate(module)
        return weights, config.replace(dtype=_names[dtype], top_k=top_k, activation=activation, routing=Routing())

    def _check(self, module, config) -> None:
        found, here = (config.experts, config.hidden, config.intermediate), module._parameters.get("down_proj")
        here = (getattr(module, "num_experts", config.experts),) if here is None or here.dtype is torch.int8 else here.shape
        if len(here) == 3 and module.is_transposed:
            here = (here[0], here[2], here[1])
        if tuple(here) != found[: len(here)] or bool(module.has_bias) != config.bias13:
            raise door._refused(module, f"the model's experts are {list(here)}{' with' if module.has_bias else ' without'} biases; "
                                        f"layer {self.number} of {self.dir} has {list(found)}"
                                        f"{' with' if config.bias13 else ' without'} (experts, hidden, intermediate)")


def _open(dir: str, activations: str) -> Model:
    return Model(dir, experts_only=True, activations=activations)


def sources(model: torch.nn.Module, dir, activations: str) -> dict[str, Source]:
    """The layer of `dir` for each experts module of a model: the one with the last number in the module's name."""
    files = _open(os.fspath(dir), activations)
    layers = {info.layer for info in files.layers}
    found = {}
    for name, module in model.named_modules():
        if not door._is_experts(module):
            continue
        number = int((re.findall(r"\.(\d+)\.", f".{name}.") or [-1])[-1])
        if number not in layers:
            raise door._refused(module, f"{name} is not one of the MoE layers that {dir} still has: {sorted(layers)}")
        layers.remove(number)
        found[name] = Source(os.fspath(dir), number, activations, files)
    return found


def take(model: torch.nn.Module, found: dict[str, Source]) -> None:
    """Takes the parameters from the experts modules: their weights come from the files from now on."""
    for name, source in found.items():
        module = model.get_submodule(name)
        for parameter in door._tensor_names(module):
            module._parameters[parameter] = None
        module._moxie_source, module._is_hf_initialized = source, True


def _trim_heap() -> None:
    """Gives the system back what the conversion of linear layers freed: glibc keeps it, and packed experts lie elsewhere, so
    that memory would hold both."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def pack(model: torch.nn.Module, found: dict[str, Source], dtype: torch.dtype, top_k: int | None = None) -> None:
    """Packs the layers, each for the device of the modules around it. Where nothing says K, the first run does."""
    _trim_heap()
    for name, source in found.items():
        module, around = model.get_submodule(name), model.get_submodule(name.rpartition(".")[0])
        source.device = next((p.device for p in around.parameters()), torch.device("cpu"))
        top_k = top_k or door._known_top_k(module)
        if top_k:
            door._packed_for(module, top_k, dtype)


def _no_state_dict(module, prefix, keep_vars) -> None:
    """Saving would leave the experts out without a word."""
    raise _make("unsupported", f"{prefix.rstrip('.')}: its weights are packed and have no form that could be saved. Save a model "
                "that was loaded with another experts_implementation", "", -1)


def replace(model: torch.nn.Module, dir, activations: str, top_k: int | None) -> int:
    """Puts the experts of `dir` in place of a model's own, or raises and changes nothing."""
    found = sources(model, dir, activations)
    dtype = next((p.dtype for p in model.parameters() if p.dtype in _names), torch.bfloat16)
    for name, source in found.items():
        module = model.get_submodule(name)
        source.weights(module, top_k or door._top_k(module), dtype)
    take(model, found)
    pack(model, found, dtype, top_k)
    for name in found:
        model.get_submodule(name).register_state_dict_pre_hook(_no_state_dict)
    return len(found)


# ---- transformers' loading --------------------------------------------------------------------------


class Method(QuantizationConfigMixin):
    """The quantization_config of a checkpoint as it is, under transformers' interface."""

    def __init__(self, described: dict):
        self.described, self.quant_method = described, described.get("quant_method", "moxie")

    def to_dict(self):
        return dict(self.described)


class ExpertsFromFiles(HfQuantizer):
    """Leaves the experts to moxie, and the rest of the model to transformers."""

    is_trainable = False

    def __init__(self, described: dict, activations: str):
        super().__init__(Method(described))
        if "model" not in inspect.signature(HfQuantizer.update_weight_conversions).parameters:
            raise _make("unsupported", f"transformers {transformers.__version__} does not tell a quantizer the model that it loads; "
                        "experts come from files with transformers 5.21 or later", "", -1)
        self.activations, self.rest, self.found = activations, None, {}

    def is_serializable(self):
        return False

    def _process_model_before_weight_loading(self, model, checkpoint_files=None, device_map=None, **more):
        if not checkpoint_files or not checkpoint_files[0].endswith(".safetensors"):
            raise _make("unsupported", "moxie reads the experts of safetensors files, and this model comes from none. Give "
                        "from_pretrained() a checkpoint with safetensors, or another experts_implementation", "", -1)
        dir = os.path.dirname(checkpoint_files[0])
        self.found = sources(model, dir, self.activations)
        if not self.found:
            raise _make("unsupported", f"{type(model).__name__} has no experts that transformers lets another package compute; "
                        "leave experts_implementation out", "", -1)
        take(model, self.found)
        files = next(iter(self.found.values())).model
        prefixes = tuple(files.expert_prefix(info.layer) for info in files.layers)
        ignored = {rf"^{re.escape(name)}\." for name in (*self.found, *(p.rstrip(".") for p in prefixes))}
        model._keys_to_ignore_on_load_unexpected = set(model._keys_to_ignore_on_load_unexpected or ()) | ignored
        others = [key for key in _keys(checkpoint_files) if not key.startswith(prefixes)]
        quantized = next((key for key in others if _companions.search(key)), None)
        if quantized:
            self.rest = _rest_of(self.quantization_config.described, quantized, model, list(self.found))
            self.rest.validate_environment(device_map=device_map, weights_only=True)
            self.rest._process_model_before_weight_loading(model, device_map=device_map, checkpoint_files=checkpoint_files, **more)
        return model

    def _process_model_after_weight_loading(self, model, **more):
        if self.rest:
            self.rest._process_model_after_weight_loading(model, **more)
        pack(model, self.found, model.dtype)
        return model

    def update_weight_conversions(self, weight_conversions, model):
        return self.rest.update_weight_conversions(weight_conversions, model) if self.rest else weight_conversions

    def get_new_dtype(self, converter, param, dtype):
        return (self.rest or super()).get_new_dtype(converter, param, dtype)


def _keys(files):
    for path in files:
        with safe_open(path, framework="pt") as file:
            yield from file.keys()


def _rest_of(described: dict, key: str, model, experts: list[str]) -> HfQuantizer:
    """The quantizer for matrices outside the modules `experts`. key: a tensor that shows that there are such."""
    method = described.get("quant_method")
    if method in ("awq", "gptq"):
        return PackedLinears(described)
    if method not in auto.AUTO_QUANTIZER_MAPPING:
        raise _make("unsupported", f"{key}: outside the experts, too, the model is quantized, by the method {method!r}. "
                    f"transformers reads {', '.join(auto.AUTO_QUANTIZER_MAPPING)}", "", -1)
    config = auto.AutoQuantizationConfig.from_dict(described)
    if method == "compressed-tensors":
        config.dequantize = True
    if hasattr(config, "modules_to_not_convert"):
        others = config.modules_to_not_convert
        others = HfQuantizer.get_modules_to_not_convert(model) if others is None else others
        config.modules_to_not_convert = [*others, *experts]
    return take_any_shape(auto.AutoHfQuantizer.from_config(config, pre_quantized=True))


def install(implementations: dict) -> None:
    """Lets from_pretrained() take ExpertsFromFiles for the implementations: {name: options of register()}."""
    original = modeling.get_hf_quantizer
    if hasattr(original, "implementations"):
        original.implementations.update(implementations)
        return

    @functools.wraps(original)
    def get_hf_quantizer(config, quantization_config, device_map, weights_only, user_agent, **more):
        chosen = get_hf_quantizer.implementations.get(config._experts_implementation)
        described = _described(config)
        if chosen is None or more.get("gguf_file") or not (described or chosen["from_files"]):
            return original(config, quantization_config, device_map, weights_only, user_agent, **more)
        if getattr(config, "distributed_config", None) is not None:
            raise _make("unsupported", "moxie packs the experts of a checkpoint whole, and distributed_config (or tp_plan) "
                        "shares them among ranks. Leave it out, or take another experts_implementation", "", -1)
        return ExpertsFromFiles(described or {}, chosen["activations"]), config, device_map

    get_hf_quantizer.implementations = dict(implementations)
    modeling.get_hf_quantizer = get_hf_quantizer


def _described(config) -> dict | None:
    for one in (config, config.get_text_config(decoder=True)):
        described = getattr(one, "quantization_config", None)
        if described is not None:
            return described if isinstance(described, dict) else described.to_dict()
    return None
