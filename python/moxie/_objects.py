# SPDX-License-Identifier: Apache-2.0
"""Model, Weights, Layer, Plan: the C types with what reads better in Python."""

from __future__ import annotations

from . import _moxie

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .config import LayerConfig
    from .records import LayerInfo


class Model(_moxie.Model):
    """Model(path, tensors=None, *, mmap=True, activations="checkpoint", experts_only=False, allow_unread=False)

    A checkpoint directory, config.json and safetensors files, or a GGUF file. Headers alone are read here.

    path          the directory, or the file
    tensors       {name: array} instead of the directory's files: contiguous arrays on the host with a checkpoint's
                  names, shapes and types. They must stay as they are while the model is used
    mmap          False: read tensors into memory instead of mapping the files
    activations   "checkpoint": quantized as the checkpoint says; "16bit": never; "ggml": of GGUF files, as llama.cpp does
    experts_only  layers without router and shared expert, for preparing weights
    allow_unread  load layers that have tensors which moxie does not know
    """

    def __new__(cls, path, tensors=None, **options):
        self = super().__new__(cls, path, tensors, **options)
        self.path, self.tensors, self.options = path, tensors, options
        return self

    @property
    def layers(self) -> list[LayerInfo]:
        """Its MoE layers: a list of LayerInfo. LayerInfo.layer is the number for load() and layer()."""
        return [self.describe(i) for i in range(self.info.n_layers)]

    def layer(self, number: int | None = None, **options) -> Layer:
        """The layer with this number in the checkpoint (None: the first MoE layer), prepared; options as for Layer."""
        return Layer.from_weights(self.load(self.describe(0).layer if number is None else number), **options)

    def inspect(self) -> dict:
        """What is in it, as plain data: the fields of ModelInfo, `layers`, `warnings`, `unread_keys`."""
        return {
            **vars(self.info),
            "layers": [vars(layer) for layer in self.layers],
            "warnings": self.warnings,
            "unread_keys": self.unread_keys,
        }

    def __repr__(self):
        info = self.info
        return f"<moxie.Model {info.family}: {info.n_layers} MoE layers, {info.tensor_bytes / 1e9:.3g} GB>"


class Weights(_moxie.Weights):
    """Weights(config, *, w13, w2, w13_scale=None, w2_scale=None, ..., interleaved=False, transposed=False, ...)

    Views of a layer's weights in arrays that hold all experts. Nothing is copied, and the arrays are kept alive.

    w13         [E, 2I, H] codes: gate rows, then up rows; ungated [E, I, H]. Packed types lie in integer words along
                either axis, which is then shorter: int4 in int32 words makes [E, 2I, H/8], MXFP4 bytes [E, 2I, H/2]
    w2          [E, H, I] likewise
    *_scale     [E, rows, columns] of groups; axes of one may be left out at the end. One row for both halves will do
    *_zero      zero points, as scales; packed as codes are, or one a word
    *_global    [E], [E, 2] or one a row: float32
    *_bias      [E, 2I] and [E, H]
    *_group_index   [E, H] and [E, I] int32: the group of each column (GPTQ act order)
    a13_scale, a2_scale   [E] float32: static scales of activations
    shared_w13, shared_w2, shared_w13_scale, ...   of the shared expert, without the axis E
    router, router_bias, router_norm, expert_norm, shared_gate   [E, router_width], [E], [router_width], [H], [H]
    expert_ids  global indices of the experts in the arrays, where those do not hold all E
    interleaved rows of w13, its scales and biases alternate between gate and up (gpt-oss)
    up_first    the first half of w13 is up
    transposed  matrices are [E, columns, rows], as GPTQ and AWQ store them; scales and zeros likewise
    order       "linear", "awq": how elements lie in a word
    zero_add    is added to zero points (GPTQ v1: 1)
    """

    def __repr__(self):
        c = self.config
        return f"<moxie.Weights {c.experts} experts, {c.hidden} x {c.intermediate}, {c.w13.element}>"


_moxie._use_weights_class(Weights)


class Layer(_moxie.Layer):
    """Layer(config, *, backend="auto", mode="exact", isa=None, max_tokens=0, threads=None, device=None)

    Slots for the experts of a layer, in the layout that the chosen kernels read. prepare() fills them.

    config      a LayerConfig
    backend     "auto", "cpu", "cuda", "ref" (the oracle)
    mode        "exact", or "fast": also kernels that round more, within stated bounds, where they are faster
    isa         the largest instruction set: "scalar", "avx2", "avx512", "amx", "neon"; None: this machine's
    max_tokens  the largest T of a run; 0 means 4096
    threads     None: one per processor; a number; or an Executor
    device      "0", "1", ... for "cuda"
    call_graphs for "cuda": 1: calls that equal the one before are launched as a graph; 2: never; 0: the plan chooses

    For a layer on several ranks (docs/ranks.md), all of them the same on all ranks but `comm`:

    comm               this rank's moxie.Comm; config.ep_size, ep_rank, tp_size, tp_rank say which part is here
    token_layout       "sharded": each rank has tokens of its own; "replicated", "scattered": all have the same
    exchange_capacity  the most tokens a rank owns in a run: then no counts travel; 0: any number
    degraded           when a rank is lost: "none" raises, "keep" and "renormalize" go on without it
    spare_slots        so many slots more, for experts that a Mover brings
    exchange_chunk     the most tokens of a rank that are exchanged at a time; 0: as many as the plan has memory for
    exchange_streams   over NCCL: 1: exchanges and products take turns; 2: they run side by side; 0: the plan chooses

    max_adapter_rank   the largest rank of the LoRA adapters that runs may name; 0: none (Adapters)
    """

    def __init__(self, config: LayerConfig, **options):
        options.pop("progress", None)
        self._options = options

    @classmethod
    def from_weights(cls, weights: _moxie.Weights, config: LayerConfig | None = None, *, progress=None, **options) -> Layer:
        """A prepared layer. config: None for that of the weights, or a changed copy of it (another rank, say)."""
        layer = cls(weights.config if config is None else config, **options)
        layer.prepare(weights, threads=options.get("threads"), progress=progress)
        return layer

    @classmethod
    def from_model(cls, model, number: int | None = None, **options) -> Layer:
        """A prepared layer of a Model or of a directory; number: in the tensors' names, None for the first MoE layer."""
        return (model if isinstance(model, _moxie.Model) else Model(model)).layer(number, **options)

    @classmethod
    def from_file(cls, file, config: LayerConfig | None = None, **options) -> Layer:
        """A layer of an expert file, an ExpertFile or its path: its experts are the file's records, which nobody packs
        or copies. config: None for the file's, or a copy of it with another dtype, routing, or share of the experts."""
        if not isinstance(file, _moxie.ExpertFile):
            from .store import ExpertFile

            file = ExpertFile(file)
        layer = cls._stored(file, 0, config, **options)
        layer._options = options
        return layer

    @classmethod
    def from_arrays(cls, config: LayerConfig, *, progress=None, **arguments) -> Layer:
        """A prepared layer from arrays as Weights takes them, and options as Layer does."""
        names = ("backend", "mode", "isa", "max_tokens", "threads", "device", "comm", "token_layout", "max_adapter_rank",
                 "exchange_capacity", "degraded", "spare_slots", "exchange_chunk", "exchange_streams", "call_graphs")
        options = {name: arguments.pop(name) for name in names if name in arguments}
        return cls.from_weights(Weights(config, **arguments), config, progress=progress, **options)

    def plan(self, **options) -> Plan:
        """A Plan for it. Options are those of Layer, whose values are the defaults, and `workspace`: an array on the
        device for plans there, or a moxie.Workspace that plans on the host share."""
        return Plan(self, **{**self._options, **options})

    def __repr__(self):
        c = self.config
        return f"<moxie.Layer {c.experts} experts, top-{c.top_k}, {c.hidden} x {c.intermediate}, {c.w13.element}>"


class Plan(_moxie.Plan):
    """Plan(layer, *, backend="auto", mode="exact", isa=None, max_tokens=0, threads=None, device=None, workspace=None)

    The kernels chosen for a layer, and what their runs need. layer.plan() makes one with the layer's options.

    Given a LayerConfig instead of a Layer it only explains: it needs no weights and cannot run, and `device` may name a
    machine that is not here ("sm_90", "avx2"). An ExpertFile is explained likewise.

    A plan runs one run at a time; threads that shall run at the same time have a plan each.
    """

    def explain(self, rejected: bool = True) -> str:
        """The plan as a table of text; rejected=False leaves out the kernels that were not chosen."""
        rows = [("step", "role", "kernel", "isa", "layout", "class", "")]
        for step in self.steps:
            if step.chosen or rejected:
                rows.append((step.family, step.role, ("" if step.chosen else "- ") + step.kernel, step.isa, step.layout,
                             step.exactness, _remark(step)))
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        lines = ["  ".join([row[i].ljust(widths[i]) for i in range(6)] + [row[6]]).rstrip() for row in rows]
        return "\n".join(lines)

    def __str__(self):
        return self.explain(rejected=False)

    def __repr__(self):
        products = "+".join(step.kernel for step in self.steps if step.chosen and step.family == "expert_gemm")
        return f"<moxie.Plan {products}, workspace {self.workspace_bytes / 1e6:.3g} MB>"

    def _repr_html_(self) -> str:
        """The plan as a table for notebooks; rejected kernels are grey."""
        import html

        head = "".join(f"<th>{name}</th>" for name in ("step", "role", "kernel", "isa", "layout", "class", ""))
        rows = []
        for step in self.steps:
            cells = (step.family, step.role, step.kernel, step.isa, step.layout, step.exactness, _remark(step))
            style = "" if step.chosen else ' style="opacity:.55"'
            rows.append(f"<tr{style}>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _remark(step) -> str:
    if step.chosen:
        return step.reason
    return f"rejected: {step.reason}" + (f"; to get it: {step.remedy}" if step.remedy else "")


def explain(config: LayerConfig | str, **options) -> Plan:
    """The plan that a LayerConfig (or a preset's name) would get, without weights; options as for Plan."""
    if isinstance(config, str):
        config = _moxie.preset_config(config)
    return Plan(config, **options)
