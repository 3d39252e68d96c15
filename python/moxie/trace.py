# SPDX-License-Identifier: Apache-2.0
"""Routing traces: which experts tokens chose, in every layer and step (docs/traces.md).

    trace = moxie.trace.Trace(output.routed_experts, experts=128, steps=moxie.trace.steps(tokens, prefill=512))   # vLLM
    trace.save("chat.trace")
    trace = moxie.trace.load("chat.trace"); numpy.asarray(trace.ids)    # [tokens, layers, top_k]
    moxie.trace.simulate("chat.trace", slots=32).hits                   # of a cache of 32 experts a layer
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from . import _moxie
from .errors import _make

PHASES = ("unknown", "prefill", "decode", "mixed")


def steps(tokens: int, prefill: int = 0, size: int = 1) -> list[tuple[int, str]]:
    """One request's steps: a prefill step of `prefill` tokens, then decode steps of `size` tokens."""
    if size < 1 or prefill < 0:
        raise ValueError("size must be 1 or more, and prefill 0 or more")
    first = min(prefill, tokens)
    rest = tokens - first
    return [(first, "prefill")] * (first > 0) + [(min(size, rest - at), "decode") for at in range(0, rest, size)]


def _as(array: Any, dtype: str) -> Any:
    """The array in another whole-number or float type, contiguous, by its own library."""
    if array is None or str(getattr(array, "dtype", "")).removeprefix("torch.") == dtype:
        return array
    if hasattr(array, "astype"):
        return array.astype(dtype)
    return {"int32": array.int, "int64": array.long, "float32": array.float, "float64": array.double}[dtype]() if hasattr(array, "long") else array


def _whole(array: Any, dtype: str, name: str) -> Any:
    """The same for whole numbers: one that `dtype` cannot hold is an error, not another number."""
    made = _as(array, dtype)
    if made is not array and not bool((made == array).all()):
        raise _make("argument", f"{name}: whole numbers that {dtype} holds are wanted, and this array of {array.dtype} has others", "", -1)
    return made


@dataclass
class Trace:
    """All tokens of a trace, in the order of their steps."""

    ids: Any  #: [tokens, layers, top_k] whole numbers; below 0: no choice
    experts: int  #: E
    steps: list[tuple[int, str]] = field(default_factory=list)  #: (tokens, a name of PHASES); empty: a decode step a token
    weights: Any = None  #: [tokens, layers, top_k] routing weights
    requests: Any = None  #: [tokens] number of the request
    layers: list[int] = field(default_factory=list)  #: the model's numbers of the layers; empty: 0, 1, ...
    zero_experts: int = 0
    model: str = ""
    fingerprint: int = 0  #: of the model; 0: unknown

    def save(self, path: Any) -> None:
        """Writes the trace; the file gets its name when it is whole."""
        ids = _whole(self.ids, "int32", "ids")
        tokens, layers = ids.shape[0], ids.shape[1]
        parts = self.steps or steps(tokens)
        unknown = {phase for _, phase in parts} - set(PHASES)
        if unknown:
            raise ValueError(f"steps: there is no phase {min(unknown, key=str)!r}; there are {', '.join(PHASES)}")
        _moxie._trace_write(path, ids, _as(self.weights, "float32"), _whole(self.requests, "int64", "requests"),
                            [(count, PHASES.index(phase)) for count, phase in parts],
                            list(self.layers) or list(range(layers)), self.experts, self.zero_experts, self.model,
                            self.fingerprint)


@dataclass(frozen=True)
class CacheHits:
    """What a simulation counted, over all layers."""

    slots: int  #: of each layer: no more than experts
    steps: int
    tokens: int
    uses: int  #: (step, layer, expert)
    hits: int
    inserts: int  #: misses that got a slot
    decode_uses: int  #: in steps that are not prefill
    decode_hits: int
    best_hits: int  #: of a cache that knows the future; -1: not asked for


def load(path: Any) -> Trace:
    """Reads and checks a trace file. Arrays are moxie.Array."""
    ids, weights, requests, parts, layers, experts, zero_experts, model, fingerprint = _moxie._trace_read(path)
    return Trace(ids, experts, [(count, PHASES[phase]) for count, phase in parts], weights, requests, layers, zero_experts,
                 model, fingerprint)


def policies() -> list[str]:
    """Names of cache policies; the first one is the default."""
    return _moxie._cache_policies()


def simulate(path: Any, slots: int, policy: str | None = None, *, max_inserts: int = 0, warm_steps: int = 0,
             half_life: float = 0.0, census: Any = None, best: bool = False) -> CacheHits:
    """Counts the hits of a cache with so many slots for each layer. max_inserts: experts that get a slot in one step of a
    layer once all are filled, 0: any number. warm_steps are not counted. census: [layers, experts] numbers, by which "pinned" chooses. best:
    also those of a cache that knows the future."""
    return CacheHits(**_moxie._trace_simulate(path, slots, policy, max_inserts, warm_steps, half_life, best,
                                              _as(census, "float64")))
