# SPDX-License-Identifier: Apache-2.0
"""moxie in torch: an operator that torch.compile keeps in its graph, and a module around it.

    import moxie, moxie.torch

    moe = moxie.torch.MoELayer.from_model("gpt-oss-20b", 0)        # an nn.Module
    y = moe(x)                                                     # [..., H] in, [..., H] out; the layer's own router
    y = moe(x, ids, weights)                                       # or experts that the caller chose
    fast = torch.compile(moe, fullgraph=True)
    y = moe(x, adapters=open_adapters(a), adapter_ids=n)           # LoRA: a is a moxie.Adapters, n [...] names one per token

The operator is torch.ops.moxie.fused_moe. There is no backward pass: a result that wants one raises in backward().
"""

from __future__ import annotations

import itertools
import threading
import weakref

import torch
from torch import library as operators

from ._moxie import Adapters, Workspace
from ._objects import Layer, Model, Plan
from ._torch_state import State
from .errors import Error

_names = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}
_types = {name: dtype for dtype, name in _names.items()}
_floats = tuple(_names)
_numbers = itertools.count(1)
_open: dict[int, _Opened] = {}
_open_adapters: dict[int, Adapters] = {}
_shared = Workspace()  # of all layers on the host


class _Opened:
    """A layer with the plans that its runs use: one for small batches, and one that grows for larger ones; on a GPU the first
    one grows. Plans on the host share a workspace, since a model has many layers, and only one of them runs at a time."""

    def __init__(self, layer: Layer, options: dict):
        self.layer, self.options, self.lock = layer, options, threading.Lock()
        config = layer.config
        self.hidden, self.top_k, self.dtype = config.hidden, config.top_k, _types[config.dtype]
        self.logits = config.experts + config.routing.zero_experts
        self.by_token = config.routing.select == "table"
        self.routed = config.router_width == config.hidden
        self.device = int(str(layer._options.get("device") or 0).partition(":")[0])  # of a plan on a GPU
        self.ready = self._planned(options.get("max_tokens", 0) or 256)
        self.large = self.ready
        self.captured = {}  # plans in CUDA graphs, which go on using their workspaces after a larger plan took their place

    def _planned(self, tokens: int) -> tuple[int, Plan, torch.Tensor | None]:
        plan = self.layer.plan(**{"workspace": _shared, **self.options, "max_tokens": tokens})
        memory = None
        if plan.on_gpu:
            memory = _device_memory(plan.workspace_bytes, self.device)
        return tokens, plan, memory

    def plan_for(self, tokens: int) -> tuple[int, Plan, torch.Tensor | None]:
        if tokens > self.ready[0]:
            with self.lock:
                if tokens > self.large[0]:
                    self.large = self._planned(1 << (tokens - 1).bit_length())
                    if self.large[1].on_gpu:
                        self.ready = self.large
            return self.large
        return self.ready

    def check(self, hidden, ids, weights, logits, adapter_ids, on_gpu) -> None:
        """What run_pointers() leaves to its caller."""
        tokens, where = hidden.shape[0], self.device if on_gpu else None
        _check("hidden", hidden, (tokens, self.hidden), (self.dtype,), where)
        if adapter_ids is not None:
            _check("adapter_ids", adapter_ids, (tokens,), (torch.int32, torch.int64), where)
        if (ids is None) != (weights is None):
            raise ValueError("fused_moe: ids and weights belong together; one of them is missing")
        if ids is not None:
            _check("ids", ids, (tokens, self.top_k), (torch.int32, torch.int64), where)
            _check("weights", weights, (tokens, self.top_k), _floats, where)
        elif logits is not None and not self.by_token:
            _check("logits", logits, (tokens, self.logits), _floats, where)
        elif self.by_token:
            raise ValueError("fused_moe: the layer chooses experts by token ids, which the operator does not take; give ids "
                             "and weights")
        elif not self.routed:
            raise ValueError("fused_moe: the layer has no router for its hidden states; give ids and weights, or logits")


# What needs a GPU; a test without one replaces these four.


def _device_memory(count, device):
    return torch.empty(count, dtype=torch.uint8, device=torch.device("cuda", device))


def _on_gpu(tensor) -> bool:
    return tensor.is_cuda


def _stream(tensor) -> int:
    return torch.cuda.current_stream(tensor.device).cuda_stream


def _capturing() -> bool:
    return torch.cuda.is_current_stream_capturing()


def _check(name, tensor, shape, dtypes, where: int | None) -> None:
    """where: the number of a CUDA device, or None for the host."""
    away = _on_gpu(tensor) != (where is not None) or (tensor.is_cuda and tensor.device.index != where)
    if tensor.shape != shape or tensor.dtype not in dtypes or away:
        wanted = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise ValueError(f"fused_moe: {name} must be {list(shape)} of {wanted} on {'cpu' if where is None else f'cuda:{where}'}; it is "
                         f"{list(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')} on {tensor.device}")


def _as(tensor, dtype):
    """Contiguous and of a dtype; itself where it is that already."""
    return (tensor if tensor.dtype is dtype else tensor.to(dtype)).contiguous()


def _numbers_of(tensor):
    """Contiguous int32. Numbers that it does not hold become its ends, which name no expert and no adapter either."""
    return _as(tensor.clamp(-(1 << 31), (1 << 31) - 1) if tensor.dtype is torch.int64 else tensor, torch.int32)


def open_layer(layer: Layer, **options) -> int:
    """A number for a prepared layer, by which the operator finds it. The layer lives until close_layer(number).

    options  those of layer.plan(). max_tokens (0 means 256) bounds the plan for small batches; another one grows for larger
             ones. workspace: layers on the host share one and take turns; a moxie.Workspace() of its own lets a layer run
             while others do
    """
    number = next(_numbers)
    _open[number] = _Opened(layer, options)
    return number


def close_layer(number: int) -> None:
    """Forgets a layer that open_layer() numbered."""
    _open.pop(number, None)


def open_adapters(adapters: Adapters) -> int:
    """A number for the adapters of a layer, by which the operator finds them; close_adapters(number) ends it. The layer was
    opened with max_adapter_rank=R, the largest rank that runs may name."""
    number = next(_numbers)
    _open_adapters[number] = adapters
    return number


def close_adapters(number: int) -> None:
    """Forgets adapters that open_adapters() numbered."""
    _open_adapters.pop(number, None)


# The operator of torch.ops. custom_op() would do, but its way to a Python function takes 5 us longer.
_fragment = operators.Library("moxie", "FRAGMENT")
_fragment.define("fused_moe(Tensor hidden, int layer, Tensor? ids=None, Tensor? weights=None, Tensor? logits=None, "
                 "int adapters=0, Tensor? adapter_ids=None) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_operator = torch.ops.moxie.fused_moe.default


def _run(hidden, layer, ids=None, weights=None, logits=None, adapters=0, adapter_ids=None):
    opened = _open.get(layer)
    if opened is None:
        raise ValueError(f"fused_moe: layer {layer} is not open; open_layer() gives such numbers, close_layer() ends them")
    tokens = hidden.shape[0] if hidden.dim() == 2 else -1
    limit, plan, memory = opened.plan_for(tokens)
    opened.check(hidden, ids, weights, logits, adapter_ids, memory is not None)
    hidden = hidden.contiguous()
    out = torch.empty_like(hidden)
    more = {}
    if ids is not None:
        ids, weights = _numbers_of(ids), _as(weights, torch.float32)
        more = {"ids": ids.data_ptr(), "weights": weights.data_ptr()}
    elif logits is not None:
        logits = logits.contiguous()
        more = {"logits": logits.data_ptr(), "logits_dtype": _names[logits.dtype]}
    if (adapter_ids is None) != (adapters == 0):
        raise ValueError("fused_moe: adapters and adapter_ids belong together; one of them is missing")
    if adapter_ids is not None:
        if adapters not in _open_adapters:
            raise ValueError(f"fused_moe: adapters {adapters} are not open; open_adapters() gives such numbers")
        adapter_ids = _numbers_of(adapter_ids)
        more |= {"adapters": _open_adapters[adapters], "adapter_ids": adapter_ids.data_ptr()}
    if memory is not None:
        more["workspace"] = memory.data_ptr()
        more["stream"] = _stream(hidden)
        if _capturing():
            opened.captured[limit] = plan, memory
    plan.run_pointers(tokens, hidden.data_ptr(), out.data_ptr(), **more)
    return out


@operators.register_fake("moxie::fused_moe", lib=_fragment)
def _shape(hidden, layer, ids=None, weights=None, logits=None, adapters=0, adapter_ids=None):
    return torch.empty_like(hidden, memory_format=torch.contiguous_format)


def _no_backward(ctx, grad):
    raise RuntimeError("fused_moe has no backward pass: run it under torch.no_grad(), or detach() what it reads")


for _device in ("CPU", "CUDA"):
    _fragment.impl("fused_moe", _run, _device)
operators.register_autograd("moxie::fused_moe", _no_backward, lib=_fragment)


def fused_moe(hidden: torch.Tensor, layer: int, ids: torch.Tensor | None = None, weights: torch.Tensor | None = None,
              logits: torch.Tensor | None = None, adapters: int = 0, adapter_ids: torch.Tensor | None = None) -> torch.Tensor:
    """The layer's result [T, H], bit for bit that of Plan.run().

    hidden   [T, H] of the layer's dtype
    layer    the number that open_layer() gave
    ids      [T, K] int32 or int64, the chosen experts; ids below 0 and from E on are skipped
    weights  [T, K], their weights, in float32 or what converts to it
    logits   [T, E] instead of both; with none of the three the layer's own router chooses
    adapters the number that open_adapters() gave, or 0; adapter_ids [T] int32 or int64: each token's adapter there, -1 for none
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return _operator(hidden, layer, ids, weights, logits, adapters, adapter_ids)
    with torch._C._AutoDispatchBelowAutograd():  # no result wants a gradient: 2 us less
        return _operator(hidden, layer, ids, weights, logits, adapters, adapter_ids)


class MoELayer(torch.nn.Module):
    """A prepared moxie.Layer as a module. It has no parameters: the weights lie packed in the layer.

    layer    a moxie.Layer that holds its weights
    options  those of layer.plan()

    A module of from_model() with a directory has a state dict in the checkpoint's format: the tensors of the MoE block, with
    the names that follow `prefix` in the checkpoint. In a model that has the module at the same place all names are the checkpoint's;
    alone, moe.state_dict(prefix=moe.prefix) has them. The tensors are mappings of the files. load_state_dict() packs such
    tensors into the layer; it keeps them for the next state_dict(), so load them mapped (torch.load(mmap=True)) or they
    take memory beside the packed ones.
    """

    def __init__(self, layer: Layer, **options):
        super().__init__()
        self.layer = layer
        self._state: State | None = None
        self._model: Model | None = None
        self.number = open_layer(layer, **options)
        weakref.finalize(self, close_layer, self.number)

    @classmethod
    def from_model(cls, model, number: int | None = None, **options) -> MoELayer:
        """A layer of a moxie.Model, a checkpoint directory or a GGUF file; options as for moxie.Layer."""
        model = model if isinstance(model, Model) else Model(model)
        number = model.layers[0].layer if number is None else number
        self = cls(model.layer(number, **options))
        self._model, self._number = model, number
        return self

    def state(self) -> State | None:
        """Where its tensors are; made when it is first needed."""
        if self._state is None and self._model is not None:
            self._state = State(self._model, self._number)
            self._model = None
        return self._state

    @property
    def prefix(self) -> str:
        """What the checkpoint's names of its tensors begin with; "" without a checkpoint."""
        state = self.state()
        return "" if state is None else state.prefix

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.state() is not None:
            destination.update({prefix + name: tensor for name, tensor in self.state().read().items()})

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing_keys, unexpected_keys, error_msgs):
        state = self.state()
        known = set() if state is None else {name[len(state.prefix) :] for name in state.names}
        given = {name[len(prefix) :]: tensor for name, tensor in state_dict.items() if name.startswith(prefix)}
        missing_keys += sorted(prefix + name for name in known - set(given))
        if strict:
            unexpected_keys += sorted(prefix + name for name in set(given) - known)
        if state is None or not known <= set(given):
            return  # as it was; the caller hears of the missing ones
        try:
            state.load(self.layer, {name: given[name] for name in known})
        except Error as error:
            error_msgs.append(f"{prefix or 'the layer'}: {error}")

    def forward(self, hidden, ids=None, weights=None, logits=None, adapters=0, adapter_ids=None):
        """[..., H] in and out; ids and weights [..., K], logits [..., E], adapter_ids [...]. See fused_moe()."""
        rows = [None if t is None else t.reshape(-1, t.shape[-1]) for t in (ids, weights, logits)]
        numbers = None if adapter_ids is None else adapter_ids.reshape(-1)
        return fused_moe(hidden.reshape(-1, hidden.shape[-1]), self.number, *rows, adapters, numbers).reshape(hidden.shape)

    def extra_repr(self):
        return repr(self.layer)
