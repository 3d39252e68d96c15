# SPDX-License-Identifier: Apache-2.0
"""Every field of a public struct has its place in Python: the headers are read, and each struct has a row here."""

import ast
import dataclasses
import inspect
import pathlib
import re

import moxie
import moxie.comm
import pytest
from moxie import _moxie, parallel, records, store, trace

HEADERS = pathlib.Path(__file__).parents[2] / "include" / "moxie"
STUBS = (pathlib.Path(moxie.__file__).parent / "_moxie.pyi").read_text()


def public_structs():
    """{struct: [its fields]} of all headers."""
    structs = {}
    for header in sorted(HEADERS.glob("*.h")):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\n\} \w+;", text, re.S):
            fields = []
            for line in body.split(";"):
                line = re.sub(r"\[[^]]*\]", "", " ".join(line.split()))
                pointer = re.search(r"\(\*(.*?)\)\(", line)
                if pointer:
                    fields += re.findall(r"\(\*(\w+)\)\(|, \*(\w+)\)", line) and [
                        a or b for a, b in re.findall(r"\(\*(\w+)\)\(|, \*(\w+)\)", line)]
                elif line:
                    first, *more = line.split(",")
                    fields += [re.split(r"[ *]", part.strip())[-1] for part in (first, *more)]
            structs[name] = [f for f in fields if f and f not in ("struct_size", "reserved")]
    return structs


STRUCTS = public_structs()


def stub_arguments(owner, function):
    """Argument names of a method in the stubs."""
    body = re.search(rf"^class {owner}:(.*?)(?=^class |^def |\Z)", STUBS, re.S | re.M)[1]
    signature = re.search(rf"def {function}\((.*?)\) ->", body, re.S)[1]
    return set(re.findall(r"(\w+):", signature))


def function_arguments(function):
    """Argument names of a function in the stubs."""
    return set(re.findall(r"(\w+):", re.search(rf"^def {function}\((.*?)\) ->", STUBS, re.S | re.M)[1]))


def fields_of(cls):
    return {f.name.rstrip("_") for f in dataclasses.fields(cls)}


OPTIONS = stub_arguments("Plan", "__init__") | stub_arguments("Layer", "__init__")
RUN = stub_arguments("Plan", "run")

# Where the fields of a struct are: a dataclass, or a set of argument names. Then the fields that Python says otherwise.
PLACES = {
    "moxie_quant": (moxie.Quant, {}),
    "moxie_activation": (moxie.Activation, {}),
    "moxie_routing": (moxie.Routing, {"table_rows": "the table's shape", "custom_user": "a callable has its own"}),
    "moxie_row_norm": (moxie.RowNorm, {}),
    "moxie_shared_config": (moxie.SharedExpert, {}),
    "moxie_layer_config": (moxie.LayerConfig, {}),
    "moxie_slot_map": (moxie.SlotMap, {"ranks": "a property", "slots": "a property"}),
    "moxie_options": (OPTIONS, {"executor": "threads", "progress_user": "a callable has its own",
                                "device_memory": "torch or CuPy allocate: Plan(workspace=)"}),
    "moxie_run_args": (RUN, {"tokens": "hidden's shape", "output": "out", "logits_dtype": "logits says it",
                             "workspace": "the plan's", "workspace_bytes": "the plan's"}),
    "moxie_comm_options": (stub_arguments("Comm", "__init__"), {}),
    "moxie_nccl_options": (stub_arguments("Comm", "nccl"), {}),
    "moxie_comm_rows": (moxie.comm.Rows, {"stream": "host memory only",
                                                                             "on_device": "host memory only"}),
    "moxie_transport": (moxie.comm.Transport,
                        {"self": "an object has its own", "device": "host memory only", "wait": "optional"}),
    "moxie_transport_info": (records.TransportInfo, {}),
    "moxie_losses": (records.Losses, {}),
    "moxie_plan_phase": (records.PlanPhase, {}),
    "moxie_mover_options": (stub_arguments("Mover", "__init__"), {}),
    "moxie_mover_report": (records.MoverReport, {}),
    "moxie_parallel_args": (parallel.ParallelArgs, {}),
    "moxie_parallel": (parallel.Parallel, {}),
    "moxie_all2all_backend": (parallel.All2AllBackend, {}),
    "moxie_fused_moe_args": (parallel.FusedMoEArgs, {}),
    "moxie_fused_moe": (parallel.FusedMoE, {}),
    "moxie_parallel_layer": (parallel.ParallelLayer, {}),
    "moxie_eplb_config": (set(inspect.signature(parallel.balance).parameters),
                          {"layers": "the loads' shape", "experts": "the loads' shape"}),
    "moxie_lora": (stub_arguments("Adapters", "set"), {}),
    "moxie_model_options": (stub_arguments("Model", "__init__"), {"no_mmap": "mmap", "n_tensors": "the mapping's length"}),
    "moxie_synth_options": (function_arguments("synth"), {"progress_user": "a callable has its own"}),
    "moxie_lint_options": (function_arguments("lint"), {"some_layers": "first_layer is not -1",
                                                        "progress_user": "a callable has its own"}),
    "moxie_plan_step": (records.Step, {}),
    "moxie_stage_report": (records.StageReport, {}),
    "moxie_weights_difference": (records.WeightsDifference, {}),
    "moxie_machine": (records.Machine, {}),
    "moxie_kernel_info": (records.Kernel, {}),
    "moxie_limits": (records.Limits, {}),
    "moxie_scheme": (records.Scheme, {}),
    "moxie_scheme_desc": (records.SchemeTensor, {}),
    "moxie_scheme_args": (records.SchemeArgs, {}),
    "moxie_model_info": (records.ModelInfo, {}),
    "moxie_model_layer_info": (records.LayerInfo, {}),
    "moxie_preset_info": (records.Preset, {"n_formats": "the tuple's length"}),
    "moxie_family_info": (records.Family, {"n_model_types": "the tuple's length"}),
    "moxie_checkpoint_format_info": (records.CheckpointFormat, {}),
    "moxie_cuda_info": (records.CudaInfo, {}),
    "moxie_cuda_device": (records.CudaDevice, {}),
    "moxie_finding": (records.Finding, {}),
    "moxie_lint_info": (records.LintReport, {}),
    "moxie_lint_rule": (records.LintRule, {}),
    "moxie_quantize_options": (function_arguments("quantize"),
                               {"executor": "threads", "progress_user": "a callable has its own",
                                "error": "the report has all", "error_user": "the report has all"}),
    "moxie_quantize_error": (records.QuantizeError, {}),
    "moxie_quantize_summary": (records.QuantizeReport, {}),
    "moxie_trace_info": (trace.Trace, {"top_k": "ids' shape", "tokens": "ids' shape", "has_weights": "weights are there",
                                       "has_requests": "requests are there", "layer_numbers": "layers"}),
    "moxie_cache_config": (set(inspect.signature(trace.simulate).parameters), {"with_best": "best"}),
    "moxie_cache_hits": (trace.CacheHits, {}),
    "moxie_expert_target": (store.ExpertTarget, {}),
    "moxie_expert_writer_options": (stub_arguments("ExpertFile", "write"),
                                    {"executor": "threads", "n_extras": "the mapping's length"}),
    "moxie_expert_file_options": (stub_arguments("ExpertFile", "__init__"), {"access": "load", "executor": "threads"}),
    "moxie_expert_file_info": (store.ExpertFileInfo, {}),
    "moxie_expert_record": (store.ExpertRecord, {}),
    "moxie_store_options": (stub_arguments("Store", "__init__"),
                            {"census_experts": "the census' shape", "n_pinned": "the length", "no_prefetch": "prefetch"}),
    "moxie_store_info": (store.StoreInfo, {}),
    "moxie_store_counters": (store.StoreCounters, {}),
    "moxie_read_engine": (store.ReadEngine, {}),
    "moxie_disk_options": (function_arguments("measure_disk"), {}),
    "moxie_disk_rate": (store.DiskRate, {}),
}
# Structs that Python has no place for, and why.
ABSENT = {
    "moxie_error": "exceptions have its fields",
    "moxie_allocator": "Python's own memory is not the library's",
    "moxie_cuda_allocator": "torch or CuPy allocate: Plan(workspace=)",
    "moxie_tensor": "arrays", "moxie_packing": "arrays", "moxie_grid": "arrays", "moxie_matrix": "Weights takes arrays",
    "moxie_expert": "Weights takes arrays", "moxie_weights": "Weights takes arrays",
    "moxie_executor": "Executor is libmoxie's pool",
    "moxie_named_tensor": "Model takes a mapping", "moxie_sealed_tensor": "writes files: of the tool",
    "moxie_topology": "moxie info, the tool",
    "moxie_cuda_fill": "moxie bench, the tool",
    "moxie_cuda_launch": "of libmoxie's own benchmarks", "moxie_cuda_timed_run": "of libmoxie's own benchmarks",
    "moxie_eplb_moves": "Mover moves experts; moxie_eplb_step is not bound",
    "moxie_trace_step": "a Trace has the arrays of all steps",
    "moxie_expert_extra": "ExpertFile.write() takes a mapping",
    "moxie_prepare_layout": "moxie prepare, the tool", "moxie_prepare_limit": "moxie prepare, the tool",
    "moxie_preparation_options": "moxie prepare, the tool", "moxie_preparation_info": "moxie prepare, the tool",
    "moxie_prepared_tensor": "moxie prepare, the tool", "moxie_preparation_facts": "moxie prepare, the tool",
}


def test_the_headers_are_read():
    assert {"tp_rank", "slot_map", "round_results", "shared_activation"} <= set(STRUCTS["moxie_layer_config"])
    assert {"aiter_fmoe", "aiter_shared_expert"} <= set(STRUCTS["moxie_fused_moe_args"])
    assert {"alltoallv", "mask", "device"} <= set(STRUCTS["moxie_transport"])
    assert {"alpha", "beta", "gate_limit", "expert_beta"} <= set(STRUCTS["moxie_activation"])


def test_every_struct_has_a_place():
    assert set(STRUCTS) - set(PLACES) - set(ABSENT) == set()
    assert set(PLACES) <= set(STRUCTS) and set(ABSENT) <= set(STRUCTS)


@pytest.mark.parametrize("struct", PLACES)
def test_every_field_has_its_counterpart(struct):
    place, otherwise = PLACES[struct]
    there = fields_of(place) if dataclasses.is_dataclass(place) else place if isinstance(place, set) else set(dir(place))
    missing = [f for f in STRUCTS[struct] if f.rstrip("_") not in there]
    assert sorted(missing) == sorted(otherwise), f"{struct}: not in Python, or named here without need"


# ---- stubs -----------------------------------------------------------------------------------------


def parameters(arguments):
    """Names of an ast's arguments, without self and cls."""
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [a.arg for a in every if a.arg not in ("self", "cls")] + ([arguments.kwarg.arg] if arguments.kwarg else [])


def test_stubs_say_what_is_there():
    """Names of classes, methods, attributes and functions of the C part, and arguments as help() shows them."""
    tree = ast.parse(STUBS)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    there = {name: thing for name, thing in vars(_moxie).items() if not name.startswith("__")}
    assert set(functions) | set(classes) | {"header_version"} == set(there)
    compared = 0
    for name, node in classes.items():
        members = {m.name: m for m in node.body if isinstance(m, ast.FunctionDef)}
        attributes = {m.target.id for m in node.body if isinstance(m, ast.AnnAssign)}
        public = {m for m in vars(there[name]) if not m.startswith("_")}
        assert {m for m in members if not m.startswith("_")} | attributes == public, name
        functions |= {f"{name}.{m}": f for m, f in members.items() if m in public}
    for name, node in functions.items():
        thing = there[name] if "." not in name else getattr(there[name.split(".")[0]], name.split(".")[1])
        signature = getattr(thing, "__text_signature__", None)
        if signature and not name.startswith("_"):
            said = [p for p in re.findall(r"(\w+)", re.sub(r"=[^,)]*", "", signature)) if p not in ("self", "type", "module")]
            assert parameters(node.args) == said, name
            compared += 1
    assert compared > 30
