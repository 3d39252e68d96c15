# SPDX-License-Identifier: Apache-2.0
"""The structs of the C library as dataclasses; those of a layer's configuration are in config.py.

Each has the fields of its C struct, in the same order; py_tables.c has the other half. Names stand for enumerations and
number formats ("softmax", "bf16"; "" is no format). Zero and "" mean the default, as in C. Sizes count elements, names
that end in `bytes` count bytes.

They are loaded when the first one is needed, so that `import moxie` stays quick.

Letters: T tokens, E experts, K chosen experts a token, H hidden size, I intermediate size of an expert.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from . import _moxie
from .config import Activation, LayerConfig, Quant, Routing, RowNorm, SharedExpert
from .parallel import All2AllBackend, FusedMoE, FusedMoEArgs, Parallel, ParallelArgs, ParallelLayer, SlotMap
from .store import DiskRate, ExpertFile, ExpertFileInfo, ExpertRecord, ExpertTarget, ReadEngine, Store, StoreCounters, StoreInfo

# ---- vLLM's schemes --------------------------------------------------------------------------------


@dataclass
class SchemeTensor:
    """One of vLLM's descriptors of a quantized tensor."""

    dtype: str
    dtype_is_string: bool
    shape: tuple[int, int]  #: (0, 0): none; -1: the whole extent
    has_scale: str  #: "none", "tensor", "precision"
    has_gscale: bool
    has_zero: bool
    has_bias: bool


@dataclass
class SchemeArgs:
    """Arguments of a constructor; those that it does not use keep their default."""

    per_act_token: bool = False
    per_out_ch: bool = False
    block: tuple[int, int] = (0, 0)
    bits: int = 0  #: gptq_marlin, awq_marlin: 4 or 8
    group_size: int = 0  #: gptq_marlin, awq_marlin; -1: a scale a row
    quant_dtype: str | None = None  #: make, ocp_mx
    weight_dtype: str | None = None  #: make, ocp_mx
    has_zero: str = "usual"  #: these: "usual", "both", "w13", "w2", "none"
    has_bias: str = "usual"
    has_a_scale: str = "usual"
    has_gscale: str = "usual"
    scale_format: str = ""
    scale_linear: bool = False
    scale_precision: bool = False
    has_alphas: str = "usual"
    has_w_scale: str = "usual"
    scale_transposed: bool = False


@dataclass
class Scheme:
    """A quantization scheme: what vLLM says of it (a1, a2, w1, w2), what moxie computes (a13, act2, w13, weight2)."""

    constructor: str
    a1: SchemeTensor
    a2: SchemeTensor
    w1: SchemeTensor
    w2: SchemeTensor
    scale_swizzled: bool
    a13: Quant
    act2: Quant
    w13: Quant  #: element "": unquantized
    weight2: Quant
    scale_transposed: bool
    computable: bool  #: a layer can have it
    args: SchemeArgs = field(default_factory=SchemeArgs)

    def predicate(self, name: str) -> bool:
        """vLLM's predicates by name: "use_fp8_w8a8", "is_block_quantized", ..."""
        return _moxie.scheme_predicate(self.constructor, self.args, name)

    def config_name(self, dtype: str) -> str | None:
        """The dtype part in the name of vLLM's tuning file, for hidden states of `dtype`."""
        return _moxie.scheme_config_name(self.constructor, self.args, dtype)

    def ocp_name(self) -> str | None:
        """vLLM's name of the OCP-MX scheme."""
        return _moxie.scheme_ocp_name(self.constructor, self.args)


def make_scheme(constructor: str, **args) -> Scheme:
    """A scheme by the name of vLLM's constructor (scheme_constructors() lists them) and its arguments (SchemeArgs)."""
    return _moxie.scheme_make(constructor, SchemeArgs(**args))


# ---- models, plans, checks -------------------------------------------------------------------------


@dataclass
class ModelInfo:
    """A model as a whole."""

    family: str
    model_type: str  #: as config.json says
    quant_method: str  #: as quantization_config says; "" if it says nothing
    n_layers: int  #: MoE layers found
    n_tensors: int
    n_files: int
    tensor_bytes: int
    n_warnings: int
    n_unread_keys: int


@dataclass
class LayerInfo:
    """One MoE layer of a model."""

    layer: int  #: its number in the tensors' names
    format: str
    shared_format: str  #: of the shared expert; "" if there is none
    routing: str
    experts: int
    top_k: int
    hidden: int
    intermediate: int
    shared_intermediate: int
    router_width: int
    expert_bytes: int  #: of all routed experts
    total_bytes: int  #: with router and shared expert
    format_note: str
    merged_input_scales: int
    outside: str  #: what the model computes around the layer, where that is not plain
    n_unread: int


@dataclass
class Step:
    """One step of a plan, or one kernel that was rejected for the step that follows."""

    family: str  #: "topk", "expert_gemm", ...
    role: str  #: "w13", "w2", "shared w13", "router" or ""
    kernel: str
    isa: str
    layout: str  #: of the weights that it reads
    exactness: str  #: "EXACT", "W16", "TOL"
    chosen: bool
    reason: str  #: rejected: the limit that failed; chosen: "" or a remark
    remedy: str  #: rejected: the smallest change with which it would be accepted


@dataclass
class StageReport:
    """One stage of a run beside the oracle; `got`, `want`, `bound` and the place are those of its worst element."""

    stage: str
    elements: int
    beyond: int  #: outside the bound
    worst_ratio: float  #: |got - want| / bound at the worst element; at most 1 passes
    got: float
    want: float
    bound: float
    token: int  #: -1 where meaningless, as the next four
    slot: int
    expert: int
    column: int
    column_block: int
    rms_error: float
    rms_want: float
    rms_bound: float


@dataclass
class WeightsDifference:
    """Where two sets of weights first differ, and how often."""

    expert: int  #: -1: equal, or a part outside the experts
    projection: str  #: "": equal
    part: str
    row: int
    column: int
    row_block: int
    column_block: int
    count: int  #: 0: equal
    experts: int


@dataclass
class Machine:
    """This machine."""

    processors: int  #: that this process may use
    cpu: str
    isa_found: str
    isa_allowed: str  #: under the environment variable MOXIE_MAX_ISA
    features: str
    amx: str


@dataclass
class Kernel:
    """One kernel of the library."""

    runnable: bool  #: on this machine
    family: str
    name: str
    isa: str
    layout: str
    exactness: str


@dataclass
class Limits:
    """What the machine can do at most, measured; GB and TFLOP are powers of ten."""

    workers: int
    isa: str
    read_gb_s: float
    copy_gb_s: float
    l2_read_gb_s: float
    f32_tflop_s: float
    bf16_tflop_s: float
    int8_top_s: float
    l2_bytes: int
    cache_bytes: int
    read_how: str
    copy_how: str
    l2_read_how: str
    f32_how: str
    bf16_how: str
    int8_how: str
    disturbed: int  #: how many figures are rough, because other work disturbed them
    fp8_tflop_s: float
    fp8_how: str


@dataclass
class Preset:
    """The sizes of a real model."""

    name: str
    family: str
    experts: int
    top_k: int
    hidden: int
    intermediate: int
    shared_intermediate: int
    router_width: int
    layers: int
    activation: str
    formats: tuple[str, ...]  #: the first is that of the main release
    n_native: int  #: the first so many are those in which it was released
    layer_bytes: int
    gguf_architecture: str  #: general.architecture of its GGUF files; "": it has no place there


@dataclass
class Family:
    """A family of models whose checkpoints are read."""

    name: str
    model_types: tuple[str, ...]
    architecture: str
    routing: str
    activation: str


@dataclass
class CheckpointFormat:
    """How a checkpoint stores quantized matrices."""

    name: str
    quant_method: str
    summary: str


@dataclass
class CudaInfo:
    """What libmoxie_cuda and the driver are."""

    devices: int
    opened: str
    built: str
    missing: str  #: why there is no device
    kernels: int


@dataclass
class CudaDevice:
    """An NVIDIA GPU."""

    sm: int  #: compute capability, 90 for 9.0
    multiprocessors: int
    usable: bool
    shared_bytes: int
    l2_bytes: int
    memory_bytes: int
    name: str
    features: str


# ---- lint ------------------------------------------------------------------------------------------


@dataclass
class LintRule:
    """One kind of finding."""

    name: str
    topic: str
    severity: str  #: "note", "warning", "error"
    deep: bool
    meaning: str
    engines: str
    remedy: str


@dataclass
class Finding:
    """One finding in a checkpoint."""

    name: str  #: of its rule
    severity: str
    layer: int  #: -1: no layer's
    file: str
    tensor: str
    found: str
    more: int  #: how many more of the same in the same layer
    meaning: str
    engines: str
    remedy: str


@dataclass
class LintReport:
    """What lint() found, worst first."""

    n_findings: int
    n_errors: int
    n_warnings: int
    n_notes: int
    n_layers: int
    n_tensors: int
    n_files: int
    family: str
    deep: bool
    input: int  #: 0, or the C status why a file could not be read
    input_text: str
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """No error was found."""
        return self.n_errors == 0


# ---- quantize --------------------------------------------------------------------------------------


@dataclass
class QuantizeError:
    """What quantization did to one matrix of one expert."""

    layer: int
    expert: int
    projection: str  #: "gate", "up", "down"
    squares: float  #: sum of squared errors
    weight_squares: float  #: sum of squared weights
    worst: float  #: largest error, at:
    worst_row: int
    worst_col: int
    exact: bool  #: every weight is what it was

    @property
    def rms(self) -> float:
        """Relative root mean square error."""
        return (self.squares / self.weight_squares) ** 0.5 if self.weight_squares > 0 else 0.0


@dataclass
class QuantizeReport:
    """What quantize() wrote, and the error of every matrix."""

    layers: int
    resumed_layers: int  #: that an earlier call had finished
    source_bytes: int
    expert_bytes: int
    copied_bytes: int
    other_quantized: int  #: quantized matrices that are no routed experts', and that were copied
    left_out: int  #: tensors of the source that are not written, between directories and GGUF files
    tokens: int  #: of the tokenizer, from a directory to a GGUF file
    no_tokenizer: str  #: why a GGUF file of a directory has no tokenizer; "" when it has
    errors: list[QuantizeError] = field(default_factory=list)

    @property
    def rms(self) -> float:
        """Relative root mean square error of all matrices together."""
        weights = sum(e.weight_squares for e in self.errors)
        return (sum(e.squares for e in self.errors) / weights) ** 0.5 if weights > 0 else 0.0

    @property
    def exact(self) -> bool:
        """Every weight is what it was."""
        return all(e.exact for e in self.errors)


# ---- ranks -----------------------------------------------------------------------------------------


@dataclass
class TransportInfo:
    """A transport that libmoxie brings."""

    usable: bool
    name: str  #: "local", "mpi", "nccl"
    ranks: str  #: what its ranks are
    missing: str  #: why it is not usable here and now


@dataclass
class Losses:
    """What the last run of a plan with `degraded` went without."""

    ranks: int  #: lost so far; Comm.lost() says which
    slots: int  #: choices of this rank's tokens that counted zero
    tokens: int  #: of lost ranks, whose outputs are zero


@dataclass
class PlanPhase:
    """Seconds of one worker in one phase, over all runs of a plan so far."""

    name: str  #: "route", "permute", "gather", "w13", "activation", "w2", "combine", "exchange", "wait", "idle"
    seconds: float
    sent_bytes: int  #: "exchange" of worker 0: to other ranks


@dataclass
class MoverReport:
    """What a step of a Mover did."""

    moves: int  #: experts that moved in this step, on all ranks together
    left: int  #: that are still to move; 0: the layer has the target's experts
    bytes: int  #: of `moves`
    own_bytes: int  #: of those that came to this rank
    generation: int  #: of the layer's slot map now
