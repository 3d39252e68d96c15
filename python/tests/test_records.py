# SPDX-License-Identifier: Apache-2.0
"""The tables of the C part and the dataclasses have the same fields; every field survives the way there and back."""

import dataclasses
import json
import resource
import subprocess
import sys

import moxie
import numpy as np
import pytest
from moxie import _moxie, records


def test_tables_and_classes_agree():
    tables = _moxie._record_fields()
    assert len(tables) > 20
    extra = {"Scheme": ["args"], "LintReport": ["findings"], "QuantizeReport": ["errors"], "ExpertRecord": ["data"]}
    for name, fields in tables.items():
        assert [f.name for f in dataclasses.fields(getattr(records, name))] == fields + extra.get(name, []), name


def layer_config_fields(record, prefix=()):
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if dataclasses.is_dataclass(value):
            yield from layer_config_fields(value, (*prefix, field.name))
        else:
            yield (*prefix, field.name), value


def test_every_field_goes_to_c(tmp_path):
    """A config that breaks no rule, changed in one field at a time, is another one for the library: it comes back."""
    config = moxie.LayerConfig.preset("deepseek-v3", "fp8-block")
    array = np.arange(config.experts, dtype=np.float32)
    table = np.zeros((7, config.top_k), np.int32)
    arrays = {"bias": array, "per_expert_scale": array, "bias_alt": array, "expert_alpha": array, "expert_beta": array,
              "expert_limit": array, "table": table, "custom": len, "slot_map": moxie.SlotMap((1, 0, -1), (0, 2, 3), 2, 9)}
    back = _moxie._round_trip
    assert back(config) == config
    changed = 0
    for path, value in layer_config_fields(config):
        owner = config
        for name in path[:-1]:
            owner = getattr(owner, name)
        new = arrays.get(path[-1])
        if new is None:
            new = other_value(path[-1], value)
        setattr(owner, path[-1], new)
        got = back(config)
        for name in path:
            got = getattr(got, name)
        if isinstance(new, np.ndarray):
            assert np.array_equal(np.asarray(got), new), path
        else:
            assert got == new, path
        setattr(owner, path[-1], value)
        changed += 1
    assert changed > 100 and back(config) == config


def other_value(name, value):
    """Another value for a field of that name."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value + 0.5
    names = {"kind": "rms", "score": "sqrtsoftplus", "select": "table", "weight": "sigmoid_selected", "norm": "max_sum_eps",
             "group_score": "max" if value != "max" else "top2_sum", "group_fill_zero": "zero_key", "zero_kind": "null",
             "global_": "divide", "rule": "ue8m0", "rounding": "truncate", "ep_map": "round_robin", "dtype": "f16",
             "element": "i8", "scale": "bf16"}
    if name == "kind" and value not in ("none",):
        return "gelu_tanh"
    return names[name]


def test_arrays_need_their_lengths():
    config = moxie.LayerConfig.preset("deepseek-v3")
    config.routing.bias = [1.0, 2.0]
    with pytest.raises(moxie.ArgumentError, match=r"bias: \[256\] is wanted"):
        config.check()
    config.routing.bias = np.zeros(256, np.float64)
    with pytest.raises(moxie.ArgumentError, match="bias: f32"):
        config.check()
    config.routing.bias = list(range(256))
    config.check()
    config.experts = "many"
    with pytest.raises(TypeError, match="experts"):
        config.check()


def test_from_a_hugging_face_config(checkpoint):
    directory = checkpoint()
    loaded = moxie.Model(directory).load(0).config
    assert moxie.LayerConfig.from_hf(directory, 0, "mxfp4-gptoss") == loaded
    config = json.loads((directory / "config.json").read_text())
    assert moxie.LayerConfig.from_hf(config, 0, "mxfp4-gptoss") == loaded
    assert moxie.LayerConfig.from_hf(config).w13.element == "bf16"
    with pytest.raises(moxie.ArgumentError, match="no checkpoint format"):
        moxie.LayerConfig.from_hf(config, 0, "nonsense")
    with pytest.raises(moxie.Unsupported):
        moxie.LayerConfig.from_hf({"model_type": "nothing"})
    with pytest.raises(moxie.FormatError, match="^num_experts is missing"):  # no name of a file that is gone
        moxie.LayerConfig.from_hf({"model_type": "qwen3_moe"})


FAMILIES = {preset.family: preset.name for preset in moxie.presets()}


@pytest.mark.parametrize("preset", FAMILIES.values())
def test_config_json_alone_says_what_the_tensors_say(tmp_path, preset):
    """One preset of every family: from_hf() gives the configuration that loading the layer gives, but for arrays."""
    moxie.synth(preset, tmp_path / "model", format="bf16", layers=1, hidden=128, intermediate=64)
    model = moxie.Model(tmp_path / "model")
    layer = model.layers[0].layer
    loaded = model.load(layer).config
    alone = moxie.LayerConfig.from_hf(tmp_path / "model", layer)
    for config in (loaded, alone):
        config.routing.bias = config.routing.bias_alt = config.routing.table = config.routing.per_expert_scale = None
    assert alone == loaded


def test_schemes():
    assert len(moxie.scheme_constructors()) >= 17
    scheme = moxie.scheme("fp8_w8a8", block=(128, 128))
    assert scheme.predicate("use_fp8_w8a8") and scheme.predicate("is_block_quantized")
    assert scheme.config_name("bf16") == "fp8_w8a8" and scheme.ocp_name() is None
    config = moxie.LayerConfig.from_scheme(("fp8_w8a8", {"block": (128, 128)}), experts=4, top_k=2, hidden=256,
                                           intermediate=128)
    config.check()
    assert (config.w13.element, config.w13.group_rows, config.a13.element) == ("f8_e4m3", 128, "f8_e4m3")
    with pytest.raises(moxie.ArgumentError):
        scheme.predicate("use_magic")
    with pytest.raises(moxie.ArgumentError):
        moxie.scheme("fp7_w7a7")
    made = 0
    for name in moxie.scheme_constructors():
        arguments = {"gptq_marlin": {"bits": 4, "group_size": 128}, "awq_marlin": {"bits": 4, "group_size": 128},
                     "ocp_mx": {"quant_dtype": "mxfp4"}, "make": {"quant_dtype": "float8_e4m3fn"}}.get(name, {})
        try:
            made += moxie.scheme(name, **arguments).constructor == name
        except moxie.ArgumentError as error:  # an argument that only this one needs
            assert "block" in str(error) or "needs" in str(error), error
    assert made >= 13


def test_quantizer_of_activations():
    x = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    codes, scales = moxie.quantize_activations(moxie.Quant("i8", "f32", 1, -1), x)
    assert codes.shape == (3, 64) and scales.shape == (3, 1)
    values = np.asarray(codes).view(np.int8) * np.asarray(scales)
    assert np.abs(values - x).max() <= np.abs(x).max() / 127


def test_the_version_is_the_library_s():
    assert _moxie.version().startswith(_moxie.header_version)
    assert moxie.__version__ == _moxie.header_version


def test_names_are_documented():
    for name in moxie.__all__:
        thing = getattr(moxie, name)
        if callable(thing):
            assert thing.__doc__ and len(thing.__doc__) > 10, name
            if isinstance(thing, type):
                methods = [m for m in dir(thing) if not m.startswith("_") and callable(getattr(thing, m))]
                assert all(getattr(thing, m).__doc__ for m in methods), name


def test_lists():
    assert {"bf16", "f8_e4m3", "f4_e2m1"} <= set(moxie.dtypes())
    assert moxie.dtype_bits("f6_e3m2") == 6 and moxie.dtype_bits("nothing") == 0
    assert moxie.decode("f8_e4m3", moxie.encode("f8_e4m3", 1.75)) == 1.75
    assert any(p.name == "gpt-oss-20b" and "mxfp4-gptoss" in p.formats for p in moxie.presets())
    assert any("gpt_oss" in f.model_types for f in moxie.families())
    assert {f.name for f in moxie.formats()} >= {"awq", "gptq", "mxfp4-gptoss"}
    assert {k.family for k in moxie.kernels()} >= {"expert_gemm", "topk", "combine"}
    assert moxie.activations()["swigluoai"].up_limit == 7
    assert "deepseek_v3" in moxie.routing_names()
    assert moxie.Routing.by_name("deepseek_v3", n_group=8).n_group == 8
    assert moxie.machine().processors >= 1
    assert isinstance(moxie.cuda_devices(), list) and isinstance(moxie.cuda_info().missing, str)
    assert isinstance(moxie.cuda_kernels(), list)


def test_import_is_quick():
    """Processor time of `import moxie` beyond that of an empty Python, the best of seven: at most 50 ms."""

    def best(code):
        times = []
        for _ in range(7):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(times) * 1000

    milliseconds = best("import moxie") - best("pass")
    print(f"\nimport: {milliseconds:.1f} ms")
    assert milliseconds < 50
