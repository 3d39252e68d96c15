# SPDX-License-Identifier: Apache-2.0
"""LoRA on experts that moxie computes.

Experts that are parameters: PEFT's own modules (LoraConfig(target_parameters=[...]))
    ParamWrapper.forward       around an experts module, one for each parameter
      _activate_lora           PEFT would change the parameter to W + s B A. Here the wrapper is only noted in the module
        experts_forward        ... and moxie runs the packed W with the factors of all noted wrappers
    ParamWrapper.merge         changes the parameter in place: the module packs anew at its next run
Experts from files: directories in PEFT's format, by load_adapter() and set_adapter(); moxie reads the factors.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from . import transformers as door
from ._moxie import Adapters
from .torch import _open, close_adapters, close_layer, fused_moe, open_adapters, open_layer


def install() -> None:
    """Makes PEFT, if it is installed, leave the factors of such experts to moxie."""
    if importlib.util.find_spec("peft") is None:
        return
    from peft.tuners.lora import layer

    wrapper = getattr(layer, "ParamWrapper", None)  # from PEFT 0.17 on
    if wrapper is None or hasattr(wrapper, "_moxie"):
        return
    wrapper._moxie = True
    wrapper._activate_lora = _activating(wrapper._activate_lora)
    wrapper.merge, wrapper.unmerge = _changing(wrapper.merge), _changing(wrapper.unmerge)


def _activating(original):
    def _activate_lora(wrapper, active_adapters):
        module = wrapper.get_base_layer()
        return _noted(wrapper, module, active_adapters) if door.runs_on_moxie(module) else original(wrapper, active_adapters)

    return _activate_lora


@contextmanager
def _noted(wrapper, module, active):
    noted = module.__dict__.setdefault("_moxie_lora", {})
    here = threading.get_ident(), wrapper.parameter_name  # another thread may be in the same module
    noted[here] = [(wrapper, name) for name in active or () if name in wrapper.lora_A]
    try:
        yield
    finally:
        noted.pop(here, None)


def _changing(original):
    def change(wrapper, *arguments, **more):
        packed = getattr(wrapper.get_base_layer(), "_moxie", None)
        if packed is not None and packed.released:
            raise door._refused(wrapper.get_base_layer(), "its weights were released, so nothing can be merged into them")
        original(wrapper, *arguments, **more)
        if packed is not None:
            packed.weights = []  # those of no module: packed again at the next run

    return change


# ---- experts from files -----------------------------------------------------------------------------


def load(model: torch.nn.Module, dir, name: str) -> int:
    modules = [module for module in model.modules() if door._is_experts(module)]
    for module in modules:
        if not door._source(module):
            raise door._refused(module, "its experts are parameters of the model, whose adapters PEFT loads (PeftModel.from_pretrained)")
    if not modules:
        raise ValueError(f"load_adapter: {type(model).__name__} has no experts that moxie knows")
    dir, made = os.path.abspath(dir), []  # a run that packs anew reads it again
    try:
        for module in modules:
            made.append(_from_directory(module, door._packed_for(module, door._top_k(module), None), dir))
    except Exception:
        for lora in made:
            lora.close()
        raise
    for module, lora in zip(modules, made):
        _keep(module._moxie, dir, lora)
        module.__dict__.setdefault("_moxie_adapters", {})[name] = dir
    choose(model, name)
    return len(modules)


def choose(model: torch.nn.Module, name: str | None) -> None:
    modules = [module for module in model.modules() if door._source(module)]
    if not modules:
        raise ValueError(f"set_adapter: {type(model).__name__} has no experts from files; where they are parameters, PEFT has the "
                         "adapters: its own set_adapter(), disable_adapter()")
    for module in modules:
        known = getattr(module, "_moxie_adapters", {})
        if name is not None and name not in known:
            raise KeyError(f"set_adapter: there is no adapter {name!r}; load_adapter() made {sorted(known) or 'none'}")
    for module in modules:
        module._moxie_active = None if name is None else module._moxie_adapters[name]


def _from_directory(module, packed, dir: str) -> _Lora:
    source = door._source(module)
    adapters = Adapters(_open[packed.number].layer, 1)
    adapters.load(0, dir, source.files(), source.number)
    return _opened(packed, dir, adapters)


# ---- running ----------------------------------------------------------------------------------------


@dataclass
class _Lora:
    """Adapters of a module in moxie's hands, and a plan for their rank."""

    key: object
    layer: int
    adapters: int

    def close(self):
        close_adapters(self.adapters)
        close_layer(self.layer)


def _opened(packed, key, adapters: Adapters) -> _Lora:
    return _Lora(key, open_layer(_open[packed.number].layer, max_adapter_rank=adapters.rank(0)), open_adapters(adapters))


def _keep(packed, slot: str, lora: _Lora) -> None:
    before = packed.lora.get(slot)
    packed.lora[slot] = lora
    if before is not None:
        before.close()


def active(module):
    """What run() needs of a module whose adapters are active; None where none is."""
    here = threading.get_ident()
    noted = list(module.__dict__.get("_moxie_lora", {}).items())
    found = {name: pairs for (thread, name), pairs in noted if thread == here and pairs}
    return found or module.__dict__.get("_moxie_active")


def run(module, packed, wanted, hidden_states, ids, weights) -> torch.Tensor:
    """fused_moe() with the active adapters, all of them for every token."""
    slot, key = ("peft", _key(module, wanted)) if isinstance(wanted, dict) else (wanted, wanted)
    if slot not in packed.lora or packed.lora[slot].key != key:
        _keep(packed, slot, _of_peft(module, packed, wanted, key) if slot == "peft" else _from_directory(module, packed, wanted))
    lora = packed.lora[slot]
    numbers = torch.zeros(hidden_states.shape[0], dtype=torch.int32, device=hidden_states.device)
    return fused_moe(hidden_states, lora.layer, ids, weights, None, lora.adapters, numbers)


# ---- PEFT's factors ---------------------------------------------------------------------------------


def _key(module, wanted: dict) -> tuple:
    """What tells factors from those that replace them, and from what is written into them."""
    pairs = [(parameter, w, name) for parameter, found in sorted(wanted.items()) for w, name in found]
    tensors = [t for _, w, name in pairs for t in (w.lora_A[name].weight, w.lora_B[name].weight)]
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        raise door._refused(module, "its adapter's factors want gradients, and moxie has no backward pass. Run under torch.no_grad(), "
                                    "or train with another experts implementation")
    states = [(id(t), t.data_ptr(), -1 if t.is_inference() else t._version) for t in tensors]
    return *((parameter, name, w.scaling[name]) for parameter, w, name in pairs), *states


def _of_peft(module, packed, wanted, key) -> _Lora:
    adapters, arguments = Adapters(_open[packed.number].layer, 1), {}
    for parameter, pairs in wanted.items():
        arguments |= _projections(module, parameter, *_factors(module, pairs))
    adapters.set(0, **arguments)
    return _opened(packed, key, adapters)


def _factors(module, pairs):
    """A [E, r, in] and B [E, out, r] on the host, and their scale. Of several adapters the ranks lie side by side."""
    found = []
    for wrapper, name in pairs:
        a, b, experts = wrapper.lora_A[name].weight.detach(), wrapper.lora_B[name].weight.detach(), wrapper.num_experts
        if a.is_meta:
            raise door._refused(module, f"adapter {name!r} was added after prepare(release=True), which leaves PEFT no memory to put "
                                        "its factors in. Add adapters first")
        found.append((a.cpu().reshape(experts, -1, a.shape[1]), b.cpu().reshape(b.shape[0], -1, experts).permute(2, 0, 1),
                      wrapper.scaling[name]))
    if len(found) == 1:
        return found[0]
    return torch.cat([a.float() for a, _, _ in found], 1), torch.cat([s * b.float() for _, b, s in found], 2), 1.0


def _projections(module, parameter, a, b, scale) -> dict:
    """The arguments of Adapters.set() for one parameter."""
    if parameter == "down_proj":
        return {"down_a": a, "down_b": b, "down_scale": scale}
    up = {"up_a": a, "up_b": b, "up_scale": scale}
    if not module.has_gate:
        return up
    _, layout = door.recognise_gate(module)
    half = b.shape[1] // 2
    gate, up["up_b"] = (b[:, 0::2], b[:, 1::2]) if layout.get("interleaved") else (b[:, :half], b[:, half:])
    if layout.get("up_first"):
        gate, up["up_b"] = up["up_b"], gate
    return {"gate_a": a, "gate_b": gate, "gate_scale": scale, **up}
