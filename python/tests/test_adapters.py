# SPDX-License-Identifier: Apache-2.0
"""LoRA: factors from arrays and from PEFT's files, against float64; tokens without adapter keep their bytes."""

import json

import moxie
import numpy as np
import pytest
from conftest import bf16, states, write_safetensors

E, K, H, I, R = 4, 2, 64, 32, 3


def floats(codes):
    return (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@pytest.fixture(scope="module")
def dense():
    """A bf16 layer from arrays: (arrays, layer, plan)."""
    rng = np.random.default_rng(11)
    arrays = {"w13": bf16(rng.standard_normal((E, 2 * I, H)) / 8), "w2": bf16(rng.standard_normal((E, H, I)) / 4)}
    config = moxie.LayerConfig(experts=E, top_k=K, hidden=H, intermediate=I)
    config.w13.element = config.w2.element = "bf16"
    layer = moxie.Layer.from_arrays(config, threads=1, max_tokens=16, max_adapter_rank=8, **arrays)
    return arrays, layer, layer.plan()


def factors(seed, shared=False):
    rng = np.random.default_rng(seed)
    lead = () if shared else (E,)
    shapes = {"gate_a": (R, H), "gate_b": (I, R), "up_a": (R, H), "up_b": (I, R), "down_a": (R, I), "down_b": (H, R)}
    return {name: rng.standard_normal((*lead, *shape)).astype(np.float32) / 4 for name, shape in shapes.items()}


def expected(arrays, x, ids, weights, lora, scale):
    """y and a bound of what bf16 rounding of the activation and of the output may change."""
    x, w13, w2 = floats(x), floats(arrays["w13"]), floats(arrays["w2"])
    y, bound = np.zeros((len(x), H)), np.zeros((len(x), H))
    at = {name: np.broadcast_to(f, (E, *f.shape[-2:])).astype(np.float64) for name, f in lora.items()}
    for t in range(len(x)):
        for e, w in zip(ids[t], weights[t]):
            gate = w13[e, :I] @ x[t] + scale * at["gate_b"][e] @ (at["gate_a"][e] @ x[t])
            up = w13[e, I:] @ x[t] + scale * at["up_b"][e] @ (at["up_a"][e] @ x[t])
            a = gate / (1 + np.exp(-gate)) * up
            y[t] += w * (w2[e] @ a + scale * at["down_b"][e] @ (at["down_a"][e] @ a))
            bound[t] += abs(w) * (np.abs(w2[e]) @ np.abs(a)) * 2.0**-8
    return y, bound + np.abs(y) * 2.0**-8 + 1e-5


def choices(tokens, seed=0):
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.permutation(E)[:K] for _ in range(tokens)]).astype(np.int32)
    return ids, rng.random((tokens, K)).astype(np.float32)


@pytest.mark.parametrize("shared", (False, True))
@pytest.mark.parametrize("dtype", ("f32", "f16", "bf16"))
def test_against_float64(dense, shared, dtype):
    arrays, layer, plan = dense
    x, (ids, weights) = states(7, H, seed=2), choices(7)
    lora = factors(5, shared)
    given = {"f32": lora, "f16": {n: f.astype(np.float16) for n, f in lora.items()},
             "bf16": {n: bf16(f) for n, f in lora.items()}}[dtype]
    used = {n: floats(f).reshape(f.shape) if dtype == "bf16" else f.astype(np.float64) for n, f in given.items()}
    adapters = moxie.Adapters(layer, 3)
    adapters.set(1, **given, gate_scale=2, up_scale=2, down_scale=2)
    assert [adapters.rank(n) for n in range(3)] == [0, R, 0] and adapters.count == 3 and adapters.nbytes > 0
    numbers = np.array([1, -1, 1, 1, -1, 1, 1], np.int32)
    y = plan.run(x, ids=ids, weights=weights, adapters=adapters, adapter_ids=numbers)
    plain = plan.run(x, ids=ids, weights=weights)
    want, bound = expected(arrays, x, ids, weights, used, 2)
    on = numbers == 1
    assert np.array_equal(y[~on], plain[~on]) and not np.array_equal(y[on], plain[on])
    assert (np.abs(floats(y) - want) <= bound)[on].all()
    assert not (np.abs(floats(plain) - want) <= bound)[on].all()  # the bound sees an adapter that is left out
    rows = plan.experts(x, ids, weights, adapters=adapters, adapter_ids=numbers)
    assert np.array_equal(plan.combine(rows, ids, weights, out=np.empty_like(x)), y)
    # run_pointers on the same arrays
    out = np.zeros_like(x)
    plan.run_pointers(7, x.ctypes.data, out.ctypes.data, ids.ctypes.data, weights.ctypes.data, adapters=adapters,
                      adapter_ids=numbers.ctypes.data)
    assert np.array_equal(out, y)


def test_strides(dense):
    """Views of a fused [gate; up] B, and transposed factors: no copy is needed."""
    _, layer, plan = dense
    x, (ids, weights) = states(5, H, seed=3), choices(5)
    lora = factors(6)
    both = np.concatenate([lora["gate_b"], lora["up_b"]], axis=1)
    tall = {name: np.ascontiguousarray(f.swapaxes(-1, -2)).swapaxes(-1, -2) for name, f in lora.items()}
    outputs = []
    for more in ({}, {"gate_b": both[:, :I], "up_b": both[:, I:]}, tall):
        adapters = moxie.Adapters(layer)
        adapters.set(0, **{**lora, **more})
        outputs.append(plan.run(x, ids=ids, weights=weights, adapters=adapters, adapter_ids=np.zeros(5, np.int32)))
    assert np.array_equal(outputs[0], outputs[1]) and np.array_equal(outputs[0], outputs[2])


def test_changes_between_runs(dense):
    _, layer, plan = dense
    x, (ids, weights) = states(4, H, seed=4), choices(4)
    adapters, on = moxie.Adapters(layer, 2), np.zeros(4, np.int32)

    def run():
        return plan.run(x, ids=ids, weights=weights, adapters=adapters, adapter_ids=on).tobytes()

    plain = plan.run(x, ids=ids, weights=weights).tobytes()
    adapters.set(0, **factors(1))
    first = run()
    adapters.set(0, **factors(2))
    second = run()
    adapters.enable(0, False)
    assert run() == plain
    adapters.enable(0)
    assert run() == second and len({plain, first, second}) == 3
    with pytest.raises(moxie.Error):
        adapters.set(0, down_a=np.zeros((R, I + 1), np.float32), down_b=np.zeros((H, R), np.float32))
    assert run() == second  # the old one stays
    adapters.remove(0)
    assert adapters.rank(0) == 0
    with pytest.raises(moxie.Error):
        run()


def test_peft_directory(checkpoint, tmp_path):
    """adapter_config.json and adapter_model.safetensors with a module an expert, beside set() with the same factors."""
    model = moxie.Model(checkpoint("qwen3-30b-a3b", "bf16"))
    layer = model.layer(0, threads=1, max_tokens=8, max_adapter_rank=4)
    rng = np.random.default_rng(8)
    size, r = 256, 4
    lora = {n: rng.standard_normal((8, *((r, size) if n.endswith("a") else (size, r)))).astype(np.float32)
            for n in ("gate_a", "gate_b", "up_a", "up_b", "down_a", "down_b")}
    tensors = {}
    for e in range(8):
        for name, factor in lora.items():
            projection, half = name.split("_")
            tensors[f"base_model.model.model.layers.0.mlp.experts.{e}.{projection}_proj.lora_{half.upper()}.weight"] = (
                "F32", factor[e])
    config = {"peft_type": "LORA", "r": r, "lora_alpha": 8, "target_modules": ["gate_proj", "up_proj", "down_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    write_safetensors(tmp_path / "adapter_model.safetensors", tensors)
    adapters = moxie.Adapters(layer, 2)
    adapters.load(0, tmp_path, model, 0)
    adapters.set(1, **lora, gate_scale=2, up_scale=2, down_scale=2)
    x, plan = states(5), layer.plan()
    first, second = (plan.run(x, adapters=adapters, adapter_ids=np.full(5, n, np.int32)) for n in (0, 1))
    assert np.array_equal(first, second) and not np.array_equal(first, plan.run(x))
    with pytest.raises(moxie.Error):
        adapters.load(0, tmp_path / "nowhere", model, 0)


def test_wrong_arguments(dense):
    _, layer, plan = dense
    x, (ids, weights) = states(4, H), choices(4)
    adapters = moxie.Adapters(layer)
    for arguments, kind, words in (({"adapters": 3, "adapter_ids": np.zeros(4, np.int32)}, TypeError, "moxie.Adapters"),
                                   ({"adapters": adapters, "adapter_ids": np.zeros(3, np.int32)}, moxie.ArgumentError, "adapter_ids"),
                                   ({"adapters": adapters, "adapter_ids": np.zeros(4, np.int64)}, moxie.ArgumentError, "adapter_ids"),
                                   ({"adapters": adapters, "adapter_ids": np.full(4, 7, np.int32)}, moxie.Error, "7"),
                                   ({"adapter_ids": np.zeros(4, np.int32)}, moxie.Error, "adapter")):
        with pytest.raises(kind, match=words):
            plan.run(x, ids=ids, weights=weights, **arguments)
    with pytest.raises(moxie.ArgumentError, match="down_a: "):
        adapters.set(0, down_a=np.zeros(4, np.float32), down_b=np.zeros((H, 1), np.float32))
    with pytest.raises(moxie.Error):
        adapters.set(3, **factors(0))
    with pytest.raises(TypeError):
        moxie.Adapters(3)
    adapters.set(0, **factors(1))
    with pytest.raises(moxie.Error, match="max_adapter_rank"):
        layer.plan(max_adapter_rank=0).run(x, ids=ids, weights=weights, adapters=adapters, adapter_ids=np.zeros(4, np.int32))
