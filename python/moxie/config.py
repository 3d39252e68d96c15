# SPDX-License-Identifier: Apache-2.0
"""A layer's configuration: moxie_layer_config and what lies in it, as dataclasses. See records.py."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from . import _moxie
from .errors import Error, _make


TYPE_CHECKING = False
if TYPE_CHECKING:
    from .parallel import SlotMap


def _records():
    from . import records

    return records


@dataclass(slots=True)
class Quant:
    """How one tensor is quantized: value = (code - zero) * scale, times or divided by a global scale."""

    element: str = ""  #: number format of the codes; of activations "": not quantized
    scale: str = ""  #: number format of the scales: "f32", "f16", "bf16", "f8_e4m3", "f8_e8m0"; "": none
    group_rows: int = 0  #: rows that share a scale; -1: all; 0 means 1
    group_cols: int = 0  #: columns that share a scale; -1: all; 0 means -1
    has_zero: bool = False  #: zero points, of integers only
    global_: str = "none"  #: "none", "multiply", "divide": one more f32 per tensor or row
    is_static: bool = False  #: activations: the scale comes with the weights
    rule: str = "default"  #: scale from amax: "default", "amax", "ceil", "quark_even", "ocp_floor", "vllm_floor", "ue8m0", "inverse"
    rounding: str = "even"  #: of integers: "even", "away", "truncate"


@dataclass(slots=True)
class Activation:
    """What stands between the two products. activations() has those with usual parameters by name."""

    kind: str = "silu"  #: "silu", "gelu_erf", "gelu_tanh", "swiglu_step", "situ", "relu2", "relu"; ungated: ..._no_mul
    alpha: float = 0.0  #: 0 means 1 ("situ": 4)
    beta: float = 0.0
    gate_limit: float = 0.0  #: 0: none
    up_limit: float = 0.0  #: 0: none
    expert_alpha: object = None  #: [E] float32, replaces alpha
    expert_beta: object = None  #: [E] float32, replaces beta
    expert_limit: object = None  #: [E] float32, replaces both limits


@dataclass(slots=True)
class Routing:
    """How experts are chosen from logits, and with which weights. Routing.by_name() has the usual methods."""

    score: str = "logit"  #: "logit", "softmax", "sigmoid", "sqrtsoftplus"
    select: str = "topk"  #: "topk", "table" (by token id), "sparsemixer", "custom", "sim_uniform", "sim_normal"
    weight: str = "score"  #: "score", "softmax_selected", "sigmoid_selected"
    norm: str = "none"  #: over the K weights: "none", "sum_plus_eps", "sum", "max_sum_eps", "sum_or_one", "root_squares"
    norm_eps: float = 0.0  #: 0 means 1e-20
    scale: float = 0.0  #: multiplies every weight, after the norm; 0 means 1
    n_group: int = 0  #: groups of experts; 0 or 1: none
    topk_group: int = 0  #: groups kept
    group_score: str = "top2_sum"  #: "top2_sum", "max"
    group_fill_zero: str = "lowest"  #: keys of dropped groups: "lowest", "zero", "zero_key"
    on_input: bool = False  #: weights multiply the expert's input instead of its output
    round_logits_bf16: bool = False
    round_weights_bf16: bool = False
    jitter: float = 0.0  #: sparsemixer; 0 means 0.01
    bias: object = None  #: [E] float32, added to the score for the choice only
    per_expert_scale: object = None  #: [E] float32, multiplies the weight of each expert
    table: object = None  #: [rows, K] int32, the experts of each token id, for "table"
    seed: int = 0  #: of the simulated methods
    custom: object = None  #: for "custom": callable(logits [T, E] float32) -> (ids [T, K] int32, weights [T, K] float32)
    softcap: float = 0.0  #: logits become softcap * tanh(logit / softcap); 0: none
    zero_experts: int = 0  #: Z more experts without weights, ids E to E + Z - 1; arrays then have E + Z entries
    zero_kind: str = "identity"  #: what they return: "identity", "null"
    topk_per_group: int = 0  #: choices in each group; 0: all experts compete
    bias_alt: object = None  #: [E] float32, a second bias for the tokens that bias_choice marks

    @staticmethod
    def by_name(name: str, **changes) -> Routing:
        """The method that engines call `name` (routing_names() lists them), with some fields changed."""
        return replace(_moxie.routing(name), **changes)


@dataclass(slots=True)
class RowNorm:
    """The norm of each row, in float32: rms is v / sqrt(mean(v^2) + eps) * weight * factor."""

    kind: str = "none"  #: "none", "rms", "rms_weighted" (the weight first)
    has_weight: bool = False
    eps: float = 0.0
    weight_add: float = 0.0  #: 1 where a checkpoint stores weight - 1
    factor: float = 0.0  #: 0 means 1


@dataclass(slots=True)
class SharedExpert:
    """A dense expert that every token visits, added after the weighted sum."""

    intermediate: int = 0  #: 0: there is none
    w13: Quant = field(default_factory=Quant)
    w2: Quant = field(default_factory=Quant)
    a13: Quant = field(default_factory=Quant)
    a2: Quant = field(default_factory=Quant)
    has_gate: bool = False  #: times sigmoid(x . gate)
    bias13: bool = False
    bias2: bool = False
    scale: float = 0.0  #: multiplies its result; 0 means 1


@dataclass(slots=True)
class LayerConfig:
    """Everything about a layer but its weights.

    Make one by hand, from a scheme (from_scheme), from a preset (preset), from a model's file (Weights.config), from a
    config.json (from_hf). check() raises for one that breaks a rule.
    """

    dtype: str = "bf16"  #: of hidden states and output: "bf16", "f16", "f32"
    experts: int = 0  #: E
    top_k: int = 0  #: K
    hidden: int = 0  #: H
    intermediate: int = 0  #: I
    activation: Activation = field(default_factory=Activation)
    routing: Routing = field(default_factory=Routing)
    w13: Quant = field(default_factory=Quant)  #: gate and up weights, [2I, H]
    w2: Quant = field(default_factory=Quant)  #: down weights, [H, I]
    a13: Quant = field(default_factory=Quant)  #: activations into w13
    a2: Quant = field(default_factory=Quant)  #: activations into w2
    bias13: bool = False
    bias2: bool = False
    shared: SharedExpert = field(default_factory=SharedExpert)
    router_width: int = 0  #: width of the router's input; 0: the layer has no router, runs get logits or ids
    router_has_bias: bool = False
    ep_size: int = 0  #: ranks that share the experts; 0 and 1: all are here
    ep_rank: int = 0
    ep_map: str = "linear"  #: "linear", "round_robin"
    router_norm: RowNorm = field(default_factory=RowNorm)  #: of the router's input
    expert_norm: RowNorm = field(default_factory=RowNorm)  #: of each expert's result, before its weight
    has_shared_activation: bool = False  #: the shared expert has shared_activation
    shared_activation: Activation = field(default_factory=Activation)
    tp_size: int = 0  #: ranks that cut each expert; 0 and 1: none
    tp_rank: int = 0
    slot_map: SlotMap | None = None  #: where experts and their replicas lie, of ep_size ranks; None: as ep_map says
    round_results: bool = False  #: each expert's result is rounded to dtype, so that ranks return 16-bit rows

    def check(self) -> None:
        """Raises moxie.Error if the configuration breaks a rule that can be checked without weights."""
        _moxie.check_config(self)

    def replace(self, **changes) -> LayerConfig:
        """A copy with some fields changed."""
        return replace(self, **changes)

    @staticmethod
    def preset(name: str, format: str | None = None) -> LayerConfig:
        """That of a real model (presets() lists them) in a checkpoint format; None: the one it was released in."""
        return _moxie.preset_config(name, format)

    @staticmethod
    def from_hf(config, layer: int = 0, format: str | None = None) -> LayerConfig:
        """What a Hugging Face configuration says about MoE layer `layer` (its number in the tensors' names).

        config  a directory with config.json, the dict of one, or an object with to_dict(), as transformers has
        format  how weights are quantized, a name of formats(); None: not at all. Tensors say it for sure: Model.load()

        Arrays of the routing (bias, table) are absent.
        """
        if hasattr(config, "to_dict"):
            config = config.to_dict()
        if not isinstance(config, dict):
            return _moxie.hf_config(config, layer, format)
        import json
        import os
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "config.json"), "w") as file:
                json.dump(config, file, default=lambda value: str(value).removeprefix("torch."))
            try:
                return _moxie.hf_config(folder, layer, format)
            except Error as error:  # the file was ours, and is gone
                raise _make(error.status, error.text, "", -1) from None

    @classmethod
    def from_scheme(cls, scheme, **fields) -> LayerConfig:
        """One whose weights and activations are quantized as a Scheme says.

        scheme  a Scheme, or the name of one of vLLM's constructors, with its arguments as a tuple (name, dict)
        fields  the others of LayerConfig: experts, top_k, hidden, intermediate, ...
        """
        if isinstance(scheme, str):
            scheme = _records().make_scheme(scheme)
        elif isinstance(scheme, tuple):
            scheme = _records().make_scheme(scheme[0], **scheme[1])
        config = cls(**fields)
        config.a13, config.a2 = scheme.a13, scheme.act2
        config.w13, config.w2 = scheme.w13, scheme.weight2
        for quant in (config.w13, config.w2):
            quant.element = quant.element or config.dtype
        config.bias13 = config.bias13 or scheme.w1.has_bias
        config.bias2 = config.bias2 or scheme.w2.has_bias
        return config
