# SPDX-License-Identifier: Apache-2.0
"""Every kind of failure is an exception of its class, which carries the library's text."""

import pathlib

import moxie
import numpy as np
import pytest
from conftest import states


def test_statuses():
    classes = [moxie.ArgumentError, moxie.Unsupported, moxie.OutOfMemory, moxie.FileError, moxie.FormatError, moxie.Mismatch,
               moxie.TimedOut]
    assert [c.status for c in classes] == ["argument", "unsupported", "memory", "io", "format", "mismatch", "timeout"]
    assert all(issubclass(c, moxie.Error) for c in classes)
    assert issubclass(moxie.FileError, OSError) and issubclass(moxie.ArgumentError, ValueError)


def test_files(tmp_path, checkpoint):
    with pytest.raises(moxie.FileError, match="no such directory") as caught:
        moxie.Model(tmp_path / "nowhere")
    assert caught.value.status == "io" and caught.value.file == str(tmp_path / "nowhere")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text('{"model_type": ')
    with pytest.raises(moxie.FormatError, match=r"config\.json") as caught:
        moxie.Model(broken)
    assert caught.value.file.endswith("config.json")
    with pytest.raises(moxie.ArgumentError, match="layer"):
        moxie.Model(checkpoint()).load(99)
    with pytest.raises(moxie.Error):
        moxie.Model(checkpoint()).describe(99)
    with pytest.raises(TypeError):
        moxie.Model(3.5)


def test_configurations():
    config = moxie.LayerConfig.preset("gpt-oss-20b")
    with pytest.raises(moxie.ArgumentError, match="top"):
        config.replace(top_k=99).check()
    with pytest.raises(moxie.ArgumentError, match='dtype: there is no number format "bf17"'):
        config.replace(dtype="bf17").check()
    with pytest.raises(moxie.ArgumentError, match="there is no .*the names are silu"):
        config.replace(activation=moxie.Activation(kind="sigmoid")).check()
    with pytest.raises(TypeError, match="moxie.LayerConfig is wanted"):
        moxie.Layer({"experts": 3})
    with pytest.raises(TypeError, match="moxie.Quant is wanted"):
        config.replace(w13=7).check()
    with pytest.raises(moxie.ArgumentError, match="preset"):
        moxie.LayerConfig.preset("gpt-oss")


def test_configurations_that_are_not_filled(model):
    config = moxie.LayerConfig(experts=8, top_k=2, hidden=256, intermediate=128)
    for part, name in ((config, "topk"), (config.w13, "group"), (config.routing, "topk"), (config.activation, "limit")):
        with pytest.raises(AttributeError, match=name):  # a misspelt field is no field
            setattr(part, name, 1)
    with pytest.raises(moxie.ArgumentError, match="w13: its number format .* is not set"):
        config.check()


def test_options(model):
    with pytest.raises(moxie.ArgumentError, match='backend: there is no "gpu"; the names are auto, ref, cpu, cuda'):
        model.layer(0, backend="gpu")
    with pytest.raises(moxie.ArgumentError, match="names no instruction set"):
        model.layer(0, isa="mmx")
    with pytest.raises(moxie.ArgumentError, match="device"):
        model.layer(0, device="x" * 100)
    with pytest.raises(TypeError):
        model.layer(0, threads="many")


BAD_STATES = {
    "dtype": (lambda x: x.astype(np.float32), "hidden: the plan takes bf16 .*this is f32"),
    "width": (lambda x: np.ascontiguousarray(x[:, :128]), r"bf16 \[tokens, 256\].*\[4, 128\]"),
    "stride": (lambda x: states(8)[::2], "not contiguous"),
    "columns": (lambda x: np.asfortranarray(x), "not contiguous"),
    "axes": (lambda x: x[0], r"this is u16 \[256\]"),
    "big-endian": (lambda x: x.astype(">u2"), "hidden: "),
    "complex": (lambda x: x.astype(np.complex64), "hidden: "),
}


@pytest.mark.parametrize("kind", BAD_STATES)
def test_arrays(plan, kind):
    make, text = BAD_STATES[kind]
    with pytest.raises(moxie.ArgumentError, match=text) as caught:
        plan.run(make(states(4)))
    assert caught.value.status == "argument"


def test_other_arguments(plan, model):
    x = states(4)
    ids, weights = plan.route(x)
    with pytest.raises(moxie.ArgumentError, match=r"ids: the plan takes i32 \[4, 4\], contiguous; this is i64"):
        plan.run(x, ids=ids.astype(np.int64), weights=weights)
    with pytest.raises(moxie.ArgumentError, match="weights"):
        plan.run(x, ids=ids)
    with pytest.raises(moxie.ArgumentError, match="no ids: give both"):
        plan.run(x, weights=weights)
    with pytest.raises(moxie.ArgumentError, match="no ids: give both"):
        plan.check(model.load(0), x, weights=weights)
    with pytest.raises(moxie.ArgumentError, match=r"out: .*\[4, 256\].*\[3, 256\]"):
        plan.run(x, out=states(3))
    frozen = states(4)
    frozen.flags.writeable = False
    with pytest.raises(moxie.ArgumentError, match="out: .*read-only"):
        plan.run(x, out=frozen)
    with pytest.raises(moxie.ArgumentError, match="out: .*not writable"):
        plan.run(x, out=bytes(4 * 512))
    with pytest.raises(moxie.Error, match="max_tokens"):
        plan.run(states(65))
    with pytest.raises(TypeError, match="an array is wanted"):
        plan.run([1, 2])
    with pytest.raises(TypeError, match="unknown here"):
        plan.run(x, outt=x)
    with pytest.raises(TypeError, match="positional"):
        plan.run(x, x)
    with pytest.raises(TypeError, match="given twice"):
        plan.run(x, hidden=x)
    with pytest.raises(TypeError, match="hidden is missing"):
        plan.run()
    with pytest.raises(TypeError, match="stream"):
        plan.run(x, stream="fast")


def test_plans_that_cannot_run(model):
    explained = moxie.explain(model.load(0).config, device="avx2")
    assert explained.layer is None and any(s.chosen for s in explained.steps)
    with pytest.raises(moxie.ArgumentError, match="only explains"):
        explained.run(states(4))
    with pytest.raises(moxie.ArgumentError, match="only explains"):
        explained.run_pointers(0, 0, 0)
    empty = moxie.Layer(model.load(0).config)
    with pytest.raises(moxie.Error, match="prepare"):
        empty.plan().run(states(4))


def test_progress_ends_a_call(model, tmp_path):
    weights = model.load(0)
    seen = []
    layer = moxie.Layer(weights.config, threads=1)
    layer.prepare(weights, threads=1, progress=lambda done, total: seen.append((done, total)))
    assert seen and seen[-1][1] == 8
    with pytest.raises(moxie.TimedOut) as caught:
        layer.prepare(weights, threads=1, progress=lambda done, total: True)
    assert caught.value.status == "timeout"
    with pytest.raises(ZeroDivisionError):
        layer.prepare(weights, threads=1, progress=lambda done, total: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        moxie.synth("gpt-oss-20b", tmp_path / "m", layers=1, experts=8, hidden=256, intermediate=256,
                    progress=lambda done, total: 1 / 0)
    assert not list(tmp_path.iterdir())


def test_gpu_is_missing_or_usable(model):
    if moxie.cuda_info().devices:
        pytest.skip("there is a GPU")
    with pytest.raises(moxie.Unsupported, match="libmoxie_cuda|driver|device"):
        model.layer(0, backend="cuda")


def test_update_expert(model):
    layer = model.layer(0, threads=1)
    weights = model.load(0)
    with pytest.raises(moxie.ArgumentError, match="no expert 8"):
        layer.update_expert(8, weights)
    with pytest.raises(TypeError, match="moxie.Weights is wanted"):
        layer.update_expert(1, np.zeros(3))
    with pytest.raises(moxie.Error):
        layer.update_expert(99, weights, source=0)


def test_verify_sees_damage(model):
    import ctypes

    layer = model.layer(0, threads=1)
    record = layer.record(3)
    assert record.shape[0] > 1000 and memoryview(record).readonly
    ctypes.c_uint8.from_address(record.data_ptr + 500).value ^= 1
    with pytest.raises(moxie.Mismatch, match="expert 3"):
        layer.verify()


def test_a_gguf_file_where_a_config_is_wanted():
    file = pathlib.Path(__file__).parents[2] / "tests/golden/gguf/small.gguf"
    for call in (lambda: moxie.LayerConfig.from_hf(file), lambda: moxie.Model(file, {})):
        with pytest.raises(moxie.Unsupported, match="no config.json.*itself as a model"):
            call()


def test_too_few_arguments_of_functions_behind_the_classes():
    for name in ("_map_check", "_map_replicas", "_map_loads", "_map_without", "_map_keep_slots"):
        with pytest.raises(TypeError):
            getattr(moxie._moxie, name)()
