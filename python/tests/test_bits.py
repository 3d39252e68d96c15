# SPDX-License-Identifier: Apache-2.0
"""Python's results are the C program's, bit by bit, in ten formats; parts, threads, kinds of arrays do not change them."""

import subprocess

import moxie
import numpy as np
import pytest
from conftest import read_safetensors, states, write_safetensors
from moxie import _tool

FORMATS = [("gpt-oss-20b", "mxfp4-gptoss"), ("qwen3-30b-a3b", "bf16"), ("qwen3-30b-a3b", "fp8-block"),
           ("qwen3-30b-a3b", "awq"), ("qwen3-30b-a3b", "gptq"), ("qwen3-30b-a3b", "nvfp4-modelopt"),
           ("qwen3-30b-a3b", "int4-ct-g32"), ("qwen3-30b-a3b", "int8-w8a8"), ("qwen3-30b-a3b", "mxfp8"),
           ("qwen3-30b-a3b", "mxfp6-quark-e3m2"), ("deepseek-v3", "fp8-block"), ("qwen3-30b-a3b", "f16")]


@pytest.mark.parametrize(("preset", "format"), FORMATS)
def test_bits_are_those_of_the_tool(checkpoint, tmp_path, preset, format):
    experts = 16 if preset == "deepseek-v3" else 8
    directory = checkpoint(preset, format, experts)
    model = moxie.Model(directory)
    number = model.layers[0].layer
    x = states(5)
    write_safetensors(tmp_path / "in.safetensors", {"hidden_states": ("BF16", x)})
    done = subprocess.run([_tool.path(), "run", directory, "--layer", str(number), "--threads", "1", "--input", tmp_path / "in.safetensors",
                           "-o", tmp_path / "out.safetensors"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    want = read_safetensors(tmp_path / "out.safetensors")

    config = model.load(number).config
    plan = model.layer(number, threads=2).plan(max_tokens=16)
    k = config.top_k
    ids, weights = np.empty((5, k), np.int32), np.empty((5, k), np.float32)
    logits = np.empty((5, config.experts), np.float32)
    y = plan.run(x, ids_out=ids, weights_out=weights, logits_out=logits)
    assert np.array_equal(y, want["output"])
    assert np.array_equal(ids, want["topk_ids"]) and np.array_equal(weights, want["topk_weights"])
    assert np.array_equal(logits, want["router_logits"])
    assert y.any(), "an output of zeros would prove nothing"


def test_parts_make_the_whole(plan):
    x = states(7)
    whole = plan.run(x)
    ids, weights = plan.route(x)
    rows = plan.experts(x, ids, weights)
    assert rows.shape == (7, 4, 256) and rows.dtype == np.float32
    assert np.array_equal(plan.combine(rows, ids, weights), whole)
    assert np.array_equal(plan.combine(rows, ids, weights, hidden=x), whole)
    assert np.array_equal(plan.run(x, ids=ids, weights=weights), whole)


def test_logits_choose(plan):
    x = states(6)
    logits = np.full((6, 8), -10, np.float32)
    logits[:, [1, 3, 5, 7]] = [4, 3, 2, 1]
    ids, _ = plan.route(x, logits=logits)
    assert np.array_equal(ids, np.tile(np.array([1, 3, 5, 7], np.int32), (6, 1)))
    again, _ = plan.route(logits=logits.astype(np.float16))
    assert np.array_equal(again, ids)


def test_skipped_and_padded_tokens(plan):
    x = states(3)
    ids, weights = plan.route(x)
    ids[1] = -1
    ids[2] = 8  # not an expert: skipped, as engines mark experts that are elsewhere
    y = plan.run(x, ids=ids, weights=weights)
    assert np.array_equal(y[0], plan.run(x)[0]) and not y[1:].any()
    padded = plan.run(x, padding=np.array([0, 1, 0], np.uint8), ids_out=ids)
    assert not padded[1].any() and padded[2].any() and (ids[1] == -1).all()
    assert np.array_equal(plan.run(x, padding=np.array([False, True, False])), padded)


def test_no_tokens(plan):
    assert plan.run(np.empty((0, 256), np.uint16)).shape == (0, 256)


def test_the_oracle_agrees(model, plan):
    reports = plan.check(model.load(0), states(9))
    assert {"router", "topk", "gemm13", "glu", "gemm2", "combine"} <= {r.stage for r in reports}
    assert max(r.worst_ratio for r in reports) <= 1 and all(r.beyond == 0 for r in reports)


def test_the_oracle_sees_a_changed_expert(model):
    weights = model.load(0)
    layer = moxie.Layer.from_weights(weights, threads=1)
    layer.update_expert(2, weights, source=3)
    x = states(32)
    worst = max(r.worst_ratio for r in layer.plan(max_tokens=32).check(weights, x))
    assert worst > 1
    layer.update_expert(2, weights)
    assert max(r.worst_ratio for r in layer.plan(max_tokens=32).check(weights, x)) <= 1
    layer.verify()
