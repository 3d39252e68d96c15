# SPDX-License-Identifier: Apache-2.0
"""moxie: quantized fused mixture-of-experts layers, straight from their checkpoints' number formats.

    import moxie, numpy as np

    model = moxie.Model("gpt-oss-20b")          # a checkpoint directory
    layer = model.layer(0)                      # its experts, packed for this machine; Layer.from_file: packed before
    plan = layer.plan(max_tokens=64)            # which kernels run, and memory for them
    y = plan.run(x)                             # [T, H] in, [T, H] out; NumPy, torch, anything with DLPack
    print(plan.explain())

Letters: T tokens, E experts, K chosen experts a token, H hidden size, I intermediate size of an expert.
Number formats have names: "bf16", "f8_e4m3", "f4_e2m1"; dtypes() lists them. Libraries without bf16 and FP8 pass such
arrays as unsigned integers of the same size.

Errors are moxie.Error, with a class for each status of the C library.
"""

from ._moxie import (
    Adapters, Array, Comm, Executor, Mover, Workspace, activations, cuda_devices, cuda_info, cuda_kernels, decode, dtype_bits, dtypes, encode, expert_targets, families,
    formats, kernels, lint, lint_rules, machine, measure_disk, measure_limits, presets, quantize, read_engines,
    quantize_activations, routing_names,
    scheme_constructors, synth, transports, version,
)
from ._objects import Layer, Model, Plan, Weights, explain
from ._tool import bench
from .errors import ArgumentError, Error, FileError, FormatError, Mismatch, OutOfMemory, TimedOut, Unsupported
from .config import Activation, LayerConfig, Quant, Routing, RowNorm, SharedExpert

_later = ("CheckpointFormat", "CudaDevice", "CudaInfo", "DiskRate", "ExpertFile", "ExpertFileInfo", "ExpertRecord", "ExpertTarget",
          "ReadEngine", "Store", "StoreCounters", "StoreInfo", "Family", "Finding", "Kernel", "LayerInfo", "Limits", "LintReport",
          "LintRule", "Losses", "Machine", "ModelInfo", "MoverReport", "PlanPhase", "Preset", "QuantizeError", "QuantizeReport", "Scheme", "SchemeArgs", "SchemeTensor", "StageReport", "Step",
          "TransportInfo", "WeightsDifference")
_more = {"scheme": "make_scheme"} | {name: name for name in _later} | {"SlotMap": "SlotMap"}

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import comm, parallel, trace
    from .parallel import SlotMap
    from .store import DiskRate, ExpertFile, ExpertFileInfo, ExpertRecord, ExpertTarget, ReadEngine, Store, StoreCounters, StoreInfo
    from .records import (
        CheckpointFormat, CudaDevice, CudaInfo, Family, Finding, Kernel, LayerInfo, Limits, LintReport, LintRule, Losses,
        Machine, ModelInfo, MoverReport, PlanPhase, Preset, QuantizeError, QuantizeReport, Scheme, SchemeArgs, SchemeTensor, StageReport, Step,
        TransportInfo, WeightsDifference,
    )
    from .records import make_scheme as scheme

__version__ = version().partition(" ")[0]
__all__ = [name for name in dir() if not name.startswith("_") and name not in ("config", "errors", "TYPE_CHECKING")]
__all__ += _more


def __getattr__(name):
    """Classes of results, and moxie.comm, moxie.parallel and moxie.trace, which are loaded when they are first needed."""
    if name in ("comm", "parallel", "trace"):
        import importlib

        return importlib.import_module(f"moxie.{name}")
    if name not in _more:
        raise AttributeError(f"module 'moxie' has no attribute {name!r}")
    from . import records

    globals()[name] = value = getattr(records, _more[name])
    return value


def __dir__():
    return sorted(set(globals()) | set(__all__))
