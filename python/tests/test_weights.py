# SPDX-License-Identifier: Apache-2.0
"""Weights from arrays that hold all experts are those of the checkpoint that the arrays were read from."""

import moxie
import numpy as np
import pytest
from conftest import read_safetensors, states


def tensors_of(directory):
    (file,) = directory.glob("*.safetensors")
    return read_safetensors(file)


def stack(tensors, projection, suffix, experts=8):
    """[E, ...] of one tensor of every expert."""
    return np.stack([tensors[f"model.layers.0.mlp.experts.{e}.{projection}_proj.{suffix}"] for e in range(experts)])


def both(tensors, suffix, axis):
    """Gate and up, one behind the other along an axis."""
    return np.concatenate([stack(tensors, "gate", suffix), stack(tensors, "up", suffix)], axis)


def router(tensors):
    return tensors["model.layers.0.mlp.gate.weight"]


def gpt_oss(tensors):
    p = "model.layers.0.mlp."
    return dict(w13=tensors[p + "experts.gate_up_proj_blocks"].reshape(8, 512, 128),
                w13_scale=tensors[p + "experts.gate_up_proj_scales"], w13_bias=tensors[p + "experts.gate_up_proj_bias"],
                w2=tensors[p + "experts.down_proj_blocks"].reshape(8, 256, 128),
                w2_scale=tensors[p + "experts.down_proj_scales"], w2_bias=tensors[p + "experts.down_proj_bias"],
                router=tensors[p + "router.weight"], router_bias=tensors[p + "router.bias"], interleaved=True)


def fp8_block(t):
    return dict(w13=both(t, "weight", 1), w13_scale=both(t, "weight_scale_inv", 1), w2=stack(t, "down", "weight"),
                w2_scale=stack(t, "down", "weight_scale_inv"), router=router(t))


def bf16_weights(t):
    return dict(w13=both(t, "weight", 1), w2=stack(t, "down", "weight"), router=router(t))


def awq(t):
    return dict(w13=both(t, "qweight", 2), w13_scale=both(t, "scales", 2), w13_zero=both(t, "qzeros", 2),
                w2=stack(t, "down", "qweight"), w2_scale=stack(t, "down", "scales"), w2_zero=stack(t, "down", "qzeros"),
                router=router(t), transposed=True, order="awq")


def gptq(t):
    """Its zero points are 7 plus 1 for all, which the configuration of the checkpoint takes into the number format."""
    return dict(w13=both(t, "qweight", 2), w13_scale=both(t, "scales", 2), w2=stack(t, "down", "qweight"),
                w2_scale=stack(t, "down", "scales"), router=router(t), transposed=True)


CASES = [("gpt-oss-20b", "mxfp4-gptoss", gpt_oss), ("qwen3-30b-a3b", "fp8-block", fp8_block),
         ("qwen3-30b-a3b", "bf16", bf16_weights), ("qwen3-30b-a3b", "awq", awq), ("qwen3-30b-a3b", "gptq", gptq)]


@pytest.mark.parametrize(("preset", "format", "arrays"), CASES, ids=[c[1] for c in CASES])
def test_stacked_weights_are_the_checkpoint_s(checkpoint, preset, format, arrays):
    directory = checkpoint(preset, format)
    loaded = moxie.Model(directory).load(0)
    arguments = arrays(tensors_of(directory))
    if format == "gptq" and loaded.config.w13.has_zero:
        t = tensors_of(directory)
        arguments |= dict(w13_zero=both(t, "qzeros", 2), w2_zero=stack(t, "down", "qzeros"), zero_add=1)
    if format == "gptq":
        t = tensors_of(directory)
        arguments |= dict(w13_group_index=stack(t, "gate", "g_idx"), w2_group_index=stack(t, "down", "g_idx"))
    built = moxie.Weights(loaded.config, **arguments)
    assert built.n_experts == 8 and built.config == loaded.config
    found = loaded.compare(built)
    assert found.count == 0, found
    x = states(5)
    options = {"threads": 1, "max_tokens": 8}
    want = moxie.Layer.from_weights(loaded, **options).plan().run(x)
    assert np.array_equal(moxie.Layer.from_arrays(loaded.config, **arguments, **options).plan().run(x), want)


def test_a_changed_code_is_found(checkpoint):
    directory = checkpoint()
    loaded = moxie.Model(directory).load(0)
    arguments = gpt_oss(tensors_of(directory))
    arguments["w13"] = arguments["w13"].copy()
    arguments["w13"][5, 7, 3] ^= 0x10
    found = loaded.compare(moxie.Weights(loaded.config, **arguments))
    assert (found.expert, found.projection, found.part, found.row, found.column) == (5, "up", "codes", 3, 7)


def test_up_first(checkpoint):
    directory = checkpoint("qwen3-30b-a3b", "bf16")
    loaded = moxie.Model(directory).load(0)
    arguments = bf16_weights(tensors_of(directory))
    arguments["w13"] = np.concatenate([arguments["w13"][:, 256:], arguments["w13"][:, :256]], 1)
    assert loaded.compare(moxie.Weights(loaded.config, **arguments)).count > 0
    assert loaded.compare(moxie.Weights(loaded.config, **arguments, up_first=True)).count == 0


def test_some_experts_update_a_layer(checkpoint):
    directory = checkpoint("qwen3-30b-a3b", "bf16")
    loaded = moxie.Model(directory).load(0)
    layer = moxie.Layer.from_weights(loaded, threads=1, max_tokens=16)
    plan, x = layer.plan(), states(16)
    before = plan.run(x)
    t = tensors_of(directory)
    one = {"w13": both(t, "weight", 1)[5:6], "w2": stack(t, "down", "weight")[5:6], "router": router(t), "expert_ids": [2]}
    layer.update_expert(2, moxie.Weights(loaded.config, **one))
    after = plan.run(x)
    assert not np.array_equal(after, before)
    layer.update_expert(2, loaded, source=5)
    assert np.array_equal(plan.run(x), after)
    layer.update_expert(2, loaded)
    assert np.array_equal(plan.run(x), before)


def test_arrays_that_do_not_fit(checkpoint):
    directory = checkpoint()
    config = moxie.Model(directory).load(0).config
    good = gpt_oss(tensors_of(directory))

    def with_(**changes):
        return moxie.Weights(config, **(good | changes))

    with pytest.raises(moxie.ArgumentError, match="w13: experts, 512 rows, 256 columns of f4_e2m1"):
        with_(w13=good["w13"][:, :, :100])
    with pytest.raises(moxie.ArgumentError, match="w2_scale: "):
        with_(w2_scale=good["w2_scale"].astype(np.float32))
    with pytest.raises(moxie.ArgumentError, match="w13_bias: the configuration wants"):
        with_(w13_bias=None)
    with pytest.raises(moxie.ArgumentError, match="w13_zero: the configuration has no use"):
        with_(w13_zero=good["w13_scale"])
    with pytest.raises(moxie.ArgumentError, match="negative stride"):
        with_(w2=good["w2"][::-1])
    with pytest.raises(moxie.ArgumentError, match="expert_ids: 8 is no expert"):
        with_(expert_ids=[8])
    with pytest.raises(TypeError, match="no argument 'w14'"):
        with_(w14=good["w2"])
    with pytest.raises(moxie.ArgumentError, match="order: there is no"):
        with_(order="zigzag")


def test_parts_of_a_layer_for_another_rank(checkpoint):
    """Two ranks' experts, added up, are the whole but for the order of the sum."""
    weights = moxie.Model(checkpoint("qwen3-30b-a3b", "bf16")).load(0)
    x = np.random.default_rng(0).standard_normal((6, 256)).astype(np.float32)
    config = weights.config.replace(dtype="f32")

    def run(**ranks):
        return moxie.Layer.from_weights(weights, config.replace(**ranks), threads=1, max_tokens=8).plan().run(x)

    whole = run()
    halves = run(ep_size=2, ep_rank=0), run(ep_size=2, ep_rank=1)
    assert halves[0].any() and halves[1].any()
    np.testing.assert_allclose(halves[0] + halves[1], whole, rtol=1e-4, atol=1e-5 * np.abs(whole).max())


def test_options_of_a_layer_are_those_of_its_plans(model):
    weights = model.load(0)
    layer = moxie.Layer(weights.config, max_tokens=4, threads=1, progress=lambda done, total: None)
    layer.prepare(weights)
    assert layer.plan().workspace_bytes == moxie.Layer.from_weights(weights, max_tokens=4, threads=1).plan().workspace_bytes
    with pytest.raises(moxie.ArgumentError, match="4"):
        layer.plan().run(states(5))
    assert layer.plan(max_tokens=5).run(states(5)).shape == (5, 256)
