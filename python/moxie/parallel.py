# SPDX-License-Identifier: Apache-2.0
"""Where experts lie on ranks (SlotMap), how load is balanced (balance), and what vLLM's parallel settings mean (plan).

    maps = moxie.parallel.balance(loads, slots=16, ranks=4)             # DeepSeek's EPLB: a SlotMap for each layer
    config.ep_size, config.ep_rank, config.slot_map = 4, rank, maps[0]

    args = moxie.parallel.ParallelArgs(tp_size=2, dp_size=4, tp_rank=0, dp_rank=1, enable_expert_parallel=True)
    placed = moxie.parallel.plan(args, layer)                           # ep_size, ep_rank, token_layout, ...

Nothing here talks to another rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import _moxie


@dataclass(frozen=True)
class SlotMap:
    """Where every expert lies, with replicas: slot p holds expert expert_of[p], or none where that is -1; rank r has the
    slots from first_slot[r] on, up to first_slot[r + 1]. Every expert has a slot. All ranks must have the same map."""

    expert_of: tuple[int, ...]  #: [slots]
    first_slot: tuple[int, ...]  #: [ranks + 1]
    experts: int  #: E
    generation: int = 0  #: counts the maps of a layer

    @property
    def slots(self) -> int:
        return len(self.expert_of)

    @property
    def ranks(self) -> int:
        return len(self.first_slot) - 1

    @staticmethod
    def default(experts: int, ranks: int, slots: int | None = None, kind: str = "linear") -> SlotMap:
        """The one to begin with: slots, shared out evenly, hold experts 0 to E - 1 and again from 0 on; "linear" in the
        order of the slots, "round_robin" one slot of every rank after the other. slots None: one an expert."""
        return _moxie._map_default(kind, experts, experts if slots is None else slots, ranks)

    def check(self) -> None:
        """Raises moxie.ArgumentError for a map that breaks a rule: it names the first slot, rank or expert."""
        _moxie._map_check(self)

    def replicas(self) -> tuple[_moxie.Array, _moxie.Array]:
        """How many slots every expert has, [E], and which, [E, width], -1 behind the last (logical_to_physical_map)."""
        return _moxie._map_replicas(self)

    def loads(self, loads) -> tuple[list[float], float]:
        """Each rank's load, from those of experts [E], and their balancedness, mean / largest: 1 is perfect."""
        return _moxie._map_loads(self, loads)

    def without(self, dead, loads=None) -> SlotMap:
        """The map without the ranks of `dead`: their experts go to the others, heaviest first; loads [E] or None."""
        return _moxie._map_without(self, dead, loads)

    def keep_slots(self, old: SlotMap) -> SlotMap:
        """The same experts on the same ranks, in an order in which an expert that stays on its rank keeps its slot."""
        return _moxie._map_keep_slots(old, self)

    @staticmethod
    def from_physical(physical_to_logical, ranks: int, experts: int, generation: int = 0) -> SlotMap:
        """From one layer's physical_to_logical_map of vLLM or SGLang: [slots] experts, shared out evenly over ranks."""
        expert_of = tuple(int(e) for e in physical_to_logical)
        first = [0]
        for rank in range(ranks):
            first.append(first[-1] + len(expert_of) // ranks + (rank < len(expert_of) % ranks))
        return SlotMap(expert_of, tuple(first), experts, generation)

    def to_physical(self) -> list[int]:
        """physical_to_logical_map, as vLLM and SGLang keep it for a layer: the expert of every slot."""
        return list(self.expert_of)

    @staticmethod
    def from_logical(logical_to_physical, slots: int, ranks: int, generation: int = 0) -> SlotMap:
        """From one layer's logical_to_physical_map: rows of slots for each expert, -1 where a row is shorter."""
        expert_of = [-1] * slots
        experts = 0
        for expert, row in enumerate(logical_to_physical):
            experts += 1
            for slot in row:
                if int(slot) >= 0:
                    expert_of[int(slot)] = expert
        return SlotMap.from_physical(expert_of, ranks, experts, generation)

    def to_logical(self, width: int | None = None) -> list[list[int]]:
        """logical_to_physical_map: the slots of every expert, filled up with -1 to `width` (None: the longest row)."""
        rows = [[] for _ in range(self.experts)]
        for slot, expert in enumerate(self.expert_of):
            if expert >= 0:
                rows[expert].append(slot)
        width = max(len(row) for row in rows) if width is None else width
        return [row + [-1] * (width - len(row)) for row in rows]


def balance(loads, *, slots: int, ranks: int, nodes: int = 1, groups: int = 1, distinct: bool = False) -> list[SlotMap]:
    """DeepSeek's expert load balancing: a map for each layer.

    loads     [layers, E], or [E] for one layer: tokens of each expert
    slots     of all ranks, at least E
    nodes     of near ranks; groups: equal runs of experts whose tokens go together. groups % nodes == 0: each group
              stays on one node
    distinct  no expert twice on a rank, where that can be
    """
    rows = [list(row) for row in loads] if len(loads) and hasattr(loads[0], "__len__") else [list(loads)]
    return _moxie._eplb_balance([x for row in rows for x in row], len(rows), len(rows[0]), slots, ranks, nodes, groups,
                                distinct)


# ---- what a rank holds and sends -------------------------------------------------------------------


def tp_slice(config, tp_size: int, tp_rank: int, mode: str = "exact") -> tuple[range, range, bool]:
    """Of every expert, what rank tp_rank of tp_size holds: rows of gate and of up each, of the I rows; rows of down, of the H
    rows; and whether the second range counts columns of down instead, as it may in mode "fast"."""
    w13, w2, columns = _moxie._tp_slice(config, tp_size, tp_rank, mode)
    return range(*w13), range(*w2), columns


def tp_slice_shared(config, tp_size: int, tp_rank: int, *, on_device: bool = False) -> tuple[range, range, int, int]:
    """Of the shared expert, what rank tp_rank of tp_size holds: rows of gate and of up each, rows of down; and the bytes of
    that, and of a whole one. All rows where each rank computes it whole."""
    w13, w2, here, whole = _moxie._tp_slice_shared(config, on_device, tp_size, tp_rank)
    return range(*w13), range(*w2), here, whole


def exchange_row_bytes(config, *, backend: str = "cpu", token_layout: str = "sharded",
                       max_adapter_rank: int = 0) -> tuple[int, int]:
    """Bytes of a token's row to each rank that computes one of its choices, and of the result of a choice, in a Plan with
    these arguments."""
    return _moxie._exchange_row_bytes(config, backend, token_layout, max_adapter_rank)


# ---- vLLM's parallel settings ----------------------------------------------------------------------


@dataclass
class ParallelArgs:
    """What vLLM's ParallelConfig says about a MoE layer, and this device's ranks in its groups."""

    tp_size: int = 0  #: tensor parallel; sizes of 0 count as 1
    pcp_size: int = 0  #: prefill context parallel
    dp_size: int = 0  #: data parallel
    tp_rank: int = 0
    pcp_rank: int = 0
    dp_rank: int = 0
    sp_size: int = 0  #: 0: as vLLM chooses it
    enable_expert_parallel: bool = False
    enable_eplb: bool = False
    all2all_backend: str | None = None  #: None: "allgather_reducescatter"; all2all_backends() lists them


@dataclass
class Parallel:
    """vLLM's FusedMoEParallelConfig."""

    tp_size: int
    tp_rank: int
    pcp_size: int
    pcp_rank: int
    dp_size: int
    dp_rank: int
    ep_size: int
    ep_rank: int
    sp_size: int
    use_ep: bool
    enable_eplb: bool
    all2all_backend: str


@dataclass
class FusedMoEArgs:
    """What vLLM's FusedMoEConfig is made from; tp_in_ep is moxie's own."""

    num_logical_experts: int = 0
    num_redundant_experts: int = 0
    experts_per_token: int = 0
    hidden_dim: int = 0
    intermediate_size: int = 0
    num_expert_group: int = 0
    max_num_tokens: int = 0  #: 0: 256
    in_dtype: str = "bf16"
    router_logits_dtype: str = ""  #: "": in_dtype
    hidden_dim_unpadded: int = 0
    intermediate_size_per_partition_unpadded: int = 0
    platform: str = "cuda"  #: "cuda", "rocm", "xpu", "cpu"
    aiter_fmoe: bool = False
    aiter_shared_expert: bool = False
    defer_moe_finalize: bool = False
    activation: str | None = None  #: None: "silu"
    expert_placement_strategy: str | None = None  #: "linear", "round_robin"
    tp_in_ep: int = 0  #: so many ranks cut each expert, inside an expert parallel group


@dataclass
class FusedMoE:
    """What vLLM's FusedMoEConfig holds then."""

    num_experts: int
    num_local_experts: int
    num_logical_experts: int
    intermediate_size_per_partition: int
    intermediate_size_per_partition_unpadded: int
    hidden_dim_unpadded: int
    is_act_and_mul: bool
    w13_num_shards: int
    max_num_tokens: int
    router_logits_dtype: str
    use_deferred_moe_finalize: bool
    placement: str
    placement_reason: str


@dataclass
class ParallelLayer:
    """What moxie makes of it: fields of LayerConfig and options for this device."""

    ranks: int  #: of the comm
    rank: int
    ep_size: int
    ep_rank: int
    tp_size: int
    tp_rank: int
    ep_map: str
    slots: int
    token_layout: str
    token_parts: int  #: this rank runs part token_part of its group's tokens, of token_parts
    token_part: int
    exchange: str  #: "local", "sharded", "capacity", "replicated"
    vllm_accepts: bool
    differs: str  #: what vLLM computes otherwise

    def config(self) -> dict:
        """The fields for LayerConfig.replace()."""
        return {name: getattr(self, name) for name in ("ep_size", "ep_rank", "tp_size", "tp_rank", "ep_map")}


@dataclass
class All2AllBackend:
    """One of vLLM's all2all back ends, and moxie's exchange in its place."""

    exchange: str
    name: str
    vllm_name: str  #: what vLLM makes of the name; "": it does not know it
    differs: str


def make(args: ParallelArgs) -> Parallel:
    """vLLM's FusedMoEParallelConfig.make()."""
    return _moxie._parallel(args)


def plan(args: ParallelArgs, layer: FusedMoEArgs) -> ParallelLayer:
    """How moxie runs such a layer on this device."""
    return _moxie._parallel(args, layer, False)


def check_vllm(args: ParallelArgs, layer: FusedMoEArgs) -> FusedMoE:
    """vLLM's own checks: moxie.Unsupported where it refuses, with its rule and what moxie does instead."""
    return _moxie._parallel(args, layer, True)


def predicate(args: ParallelArgs, name: str) -> bool:
    """One of vLLM's predicates, such as "use_deepep_ht_kernels"; predicates() lists them."""
    return _moxie._parallel_predicate(args, name)


def predicates() -> list[str]:
    """Names of vLLM's predicates."""
    return _moxie._parallel_predicates()


def all2all_backends() -> list[All2AllBackend]:
    """vLLM's all2all back ends, and what stands in their place here."""
    return _moxie._all2all_backends()
