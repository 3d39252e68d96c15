# SPDX-License-Identifier: Apache-2.0
"""moxie.vllm: layers of vLLM with moxie's experts, filled by vLLM's own loader, beside a reference in double precision."""

import os

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

import moxie  # noqa: E402
from engine_formats import Experts, reference, swiglu, swiglu_oai  # noqa: E402

CT = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": []}
INT = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True, "dynamic": False}
FLOAT = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}


def ct(weights, inputs=None, format="pack-quantized"):
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": inputs, "format": format}}
    return CT | {"format": format, "config_groups": groups}


CONFIGS = {
    "bf16": None,
    "fp8_block": {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"},
    "fp8_tensor": {"quant_method": "fp8", "activation_scheme": "static"},
    "fp8_channel": ct(FLOAT, FLOAT | {"strategy": "token", "dynamic": True}, "float-quantized"),
    "ct_int4": ct(INT),
    "ct_int8": ct(INT | {"num_bits": 8}),
    "ct_int4_zero": ct(INT | {"symmetric": False}),
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True},
    "gptq_int8": {"quant_method": "gptq", "bits": 8, "group_size": 32, "desc_act": False, "sym": True},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True},
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """vLLM's configuration and groups of one process, with moxie in all layers, weights only."""
    import moxie.vllm
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import (destroy_distributed_environment, destroy_model_parallel, init_distributed_environment,
                                  initialize_model_parallel)

    os.environ["MOXIE_VLLM"] = "1"
    moxie.vllm.register(activations="16bit", threads=2)
    config = VllmConfig()
    with set_current_vllm_config(config):
        init_distributed_environment(1, 0, f"file://{tmp_path_factory.mktemp('vllm') / 'group'}", 0, "gloo")
        initialize_model_parallel(1, 1)
        yield config
        destroy_model_parallel()
        destroy_distributed_environment()
    del os.environ["MOXIE_VLLM"]


def make_layer(engine, quantization, experts=4, hidden=256, intermediate=128, name="model.layers.0.mlp.experts", **arguments):
    from moxie.vllm import MoxieConfig
    from vllm.model_executor.layers.fused_moe import FusedMoEFactory

    engine.compilation_config.static_forward_context.clear()
    config = MoxieConfig.from_config(quantization) if quantization else None
    return FusedMoEFactory(num_experts=experts, top_k=2, hidden_size=hidden, intermediate_size=intermediate, prefix=name,
                           params_dtype=torch.bfloat16, renormalize=True, quant_config=config, **arguments)


def load(layer, experts):
    routed = layer.routed_experts
    tensors = [(name, tensor) for name, tensor in experts.tensors.items() if not name.endswith("g_idx")]
    assert set(routed.load_weights(tensors)) == {name for name, _ in routed.named_parameters()}
    finish(routed)


def finish(routed):
    routed.quant_method.process_weights_after_loading(routed)
    assert all(parameter.numel() == 0 for parameter in routed.parameters())


def states(tokens, width=256):
    return torch.randn(tokens, width, generator=torch.Generator().manual_seed(5)).bfloat16()


def choices(tokens, experts, top_k=2):
    random = torch.Generator().manual_seed(6)
    ids = torch.rand(tokens, experts, generator=random).topk(top_k).indices.to(torch.int32)
    return ids, torch.rand(tokens, top_k, generator=random)


def run(layer, x, ids, weights):
    return layer.routed_experts.forward_modular(x, weights, ids)


def assert_close(got, want, bound):
    assert got.isfinite().all()
    worst = ((got.double() - want).abs() / bound).max()
    assert worst <= 1, f"{worst:.3g} times the bound"


@pytest.mark.parametrize("format", CONFIGS)
def test_formats(engine, format):
    """Each format through vLLM's loader; weights are exact, so the bound is that of 16-bit activations alone."""
    experts = Experts(format)
    layer = make_layer(engine, CONFIGS[format])
    assert "Moxie" in type(layer.routed_experts.quant_method).__name__
    load(layer, experts)
    x, (ids, weights) = states(9), choices(9, 4)
    assert_close(run(layer, x, ids, weights), *reference(experts, x, ids, weights))
    assert run(layer, x[:0], ids[:0], weights[:0]).shape == (0, 256)


def test_gpt_oss(engine):
    experts = Experts("mxfp4")
    layer = make_layer(engine, {"quant_method": "gpt_oss_mxfp4"}, has_bias=True, activation="swigluoai")
    routed, random = layer.routed_experts, torch.Generator().manual_seed(7)
    bias13, bias2 = (torch.randn(4, rows, generator=random).bfloat16() for rows in (256, 256))
    for name, part in (("weight", "blocks"), ("weight_scale", "scales")):
        for side, tensor in zip(("w13", "w2"), experts.stacked(part)):
            parameter = getattr(routed, f"{side}_{name}")
            parameter.weight_loader(parameter, tensor, weight_name=f"{side}_{name}", shard_id=None, expert_id=None)
    for side, tensor in (("w13", bias13), ("w2", bias2)):
        parameter = getattr(routed, f"{side}_bias")
        parameter.weight_loader(parameter, tensor, weight_name=f"{side}_bias", shard_id=None, expert_id=None)
    finish(routed)
    x, (ids, weights) = states(9), choices(9, 4)
    bias = (bias13[:, ::2].double(), bias13[:, 1::2].double(), bias2.double())
    assert_close(run(layer, x, ids, weights), *reference(experts, x, ids, weights, swiglu_oai, bias))


def test_quantized_activations(engine, monkeypatch):
    """With the checkpoint's own activations the result is another, and that of the library's FP8 layer, bit for bit."""
    from moxie.vllm import settings

    experts = Experts("fp8_block")
    x, (ids, weights) = states(9), choices(9, 4)
    found = []
    for activations in ("16bit", "checkpoint"):
        monkeypatch.setitem(settings, "activations", activations)
        layer = make_layer(engine, CONFIGS["fp8_block"])
        load(layer, experts)
        found.append(run(layer, x, ids, weights))
    config = moxie.LayerConfig.preset("qwen3-30b-a3b", "fp8-block").replace(experts=4, top_k=2, hidden=256, intermediate=128)
    config.router_width = 0
    stack = lambda name, part: torch.stack([experts.tensors[f"{e}.{name}.{part}"] for e in range(4)])  # noqa: E731
    sides = {"w13": "weight", "w13_scale": "weight_scale_inv"}
    arrays = {name: torch.cat([stack("gate_proj", part), stack("up_proj", part)], 1) for name, part in sides.items()}
    arrays |= {"w2": stack("down_proj", "weight"), "w2_scale": stack("down_proj", "weight_scale_inv")}
    plan = moxie.Layer.from_arrays(config, threads=1, **arrays).plan(max_tokens=256)
    assert torch.equal(plan.run(x, ids=ids, weights=weights), found[1])
    assert not torch.equal(*found)


def test_router_and_shared_expert(engine):
    """The whole layer: vLLM routes and adds a shared expert."""
    from vllm.forward_context import set_forward_context

    torch.manual_seed(9)
    shared = torch.nn.Linear(256, 256, bias=False, dtype=torch.bfloat16)
    experts = Experts("ct_int4")
    layer = make_layer(engine, CONFIGS["ct_int4"], shared_experts=shared)
    load(layer, experts)
    x = states(7)
    logits = torch.randn(7, 4, generator=torch.Generator().manual_seed(8))
    with set_forward_context(None, engine, num_tokens=7), torch.no_grad():
        y = layer(x, logits)
        added = shared(x)
    weights, ids = logits.softmax(-1).topk(2)
    want, bound = reference(experts, x, ids, weights / weights.sum(-1, keepdim=True))
    total = want + added.double()
    assert_close(y, total, bound + 2.0**-8 * (total.abs() + bound))  # the sum is rounded once more


@pytest.mark.parametrize("strategy", ["linear", "round_robin"])
def test_expert_map(engine, monkeypatch, strategy):
    """Two ranks with half of the experts each: every rank adds its own experts, and no other."""
    from vllm.model_executor.layers.fused_moe import layer as factory

    experts = Experts("awq", experts=6)
    x, (ids, weights) = states(9), choices(9, 6)
    plain = factory.make_parallel_config
    monkeypatch.setattr(engine.parallel_config, "expert_placement_strategy", strategy)
    total = parts = 0
    for rank in range(2):
        def two_ranks(*arguments, rank=rank, **keywords):
            config = plain(*arguments, **keywords)
            config.use_ep, config.ep_size, config.ep_rank = True, 2, rank
            return config

        monkeypatch.setattr(factory, "make_parallel_config", two_ranks)
        layer = make_layer(engine, CONFIGS["awq"], experts=6, num_expert_group=2)
        routed = layer.routed_experts
        assert routed.local_num_experts == 3
        mine = (routed.expert_map >= 0).nonzero().flatten().tolist()
        load(layer, experts)
        there = torch.where(torch.isin(ids, torch.tensor(mine)), ids, -1)
        assert_close(run(layer, x, ids, weights), *reference(experts, x, there, weights))
        part = run(layer, x, ids, weights).double()
        total, parts = total + part, parts + part.abs()
    want, bound = reference(experts, x, ids, weights)
    assert_close(total, want, bound + 2.0**-8 * (parts + bound))  # each part is rounded to bf16


def test_other_activations(engine):
    experts = Experts("bf16")
    gelu = lambda gate, up: torch.nn.functional.gelu(gate) * up  # noqa: E731
    limited = lambda gate, up: swiglu(gate.clamp(max=1.5), up.clamp(-1.5, 1.5))  # noqa: E731
    for name, function, limit in (("gelu", gelu, None), ("silu", limited, 1.5)):
        layer = make_layer(engine, None, activation=name, swiglu_limit=limit)
        load(layer, experts)
        x, (ids, weights) = states(5), choices(5, 4)
        assert_close(run(layer, x, ids, weights), *reference(experts, x, ids, weights, function))


def test_scales_keep_their_type(engine):
    """vLLM would round f16 scales to the model's bf16."""
    experts = Experts("gptq")
    for name, tensor in experts.tensors.items():
        if name.endswith("scales"):
            tensor.copy_(tensor * 1.0029296875)  # 1 + 3/1024: an f16 number, no bf16 number
    layer = make_layer(engine, CONFIGS["gptq"])
    routed = layer.routed_experts
    assert len(list(routed.load_weights([(n, t) for n, t in experts.tensors.items() if not n.endswith("g_idx")]))) == 36
    assert routed.w13_scales.dtype == torch.float16
    assert torch.equal(routed.w2_scales[3], experts.tensors["3.down_proj.scales"])


REFUSED = [
    (CONFIGS["awq"], {"has_bias": True}, "biases"),
    (CONFIGS["awq"] | {"zero_point": False}, {}, "without zero points"),
    (None, {"activation": "relu2"}, "relu2"),
]


@pytest.mark.parametrize("config, arguments, words", REFUSED)
def test_refused(engine, monkeypatch, config, arguments, words):
    monkeypatch.setenv("MOXIE_VLLM", "0")
    with pytest.raises((moxie.Unsupported, NotImplementedError), match=words):
        make_layer(engine, config, **arguments)


def test_refused_config():
    import moxie.vllm

    with pytest.raises(moxie.Unsupported, match="quant_method torchao.*compressed-tensors"):
        moxie.vllm.MoxieConfig.from_config({"quant_method": "torchao"})


def test_unread_scheme(engine, monkeypatch):
    """Asked for by name moxie refuses; as the environment's choice for all models it leaves the layer to vLLM."""
    config = ct(FLOAT | {"num_bits": 4, "strategy": "tensor_group", "group_size": 16}, None, "nvfp4-pack-quantized")
    with monkeypatch.context() as patch:
        patch.delenv("MOXIE_VLLM")
        with pytest.raises(moxie.Unsupported, match="float 4 bits, tensor_group"):
            make_layer(engine, config)
    with pytest.raises(NotImplementedError, match="(?i)nvfp4"):  # vLLM's CPU platform has no experts for it either
        make_layer(engine, config)


def test_eplb_is_refused(engine, monkeypatch):
    monkeypatch.setattr(engine.parallel_config, "enable_eplb", True)
    with pytest.raises(NotImplementedError, match="MoxieMoEMethod"):
        make_layer(engine, CONFIGS["awq"])


def test_second_load_is_refused(engine):
    layer = make_layer(engine, None)
    load(layer, Experts("bf16"))
    with pytest.raises(moxie.Unsupported, match="packed already"):
        layer.routed_experts.quant_method.process_weights_after_loading(layer.routed_experts)


def test_chosen_by_environment_or_argument(monkeypatch):
    from moxie.vllm import MoxieConfig

    chosen = MoxieConfig.override_quantization_method
    monkeypatch.delenv("MOXIE_VLLM", raising=False)
    assert chosen({"quant_method": "awq"}, "moxie") == "moxie"
    assert chosen({"quant_method": "awq"}, None) is None
    monkeypatch.setenv("MOXIE_VLLM", "1")
    assert chosen({"quant_method": "awq"}, None) == "moxie"
    assert chosen({"quant_method": "awq"}, "awq") is None
    assert chosen({"quant_method": "torchao"}, None) is None


def test_what_is_supported(engine):
    """vLLM's question, for devices that are not here."""
    from moxie.vllm_support import MoxieExperts, plan_for
    from vllm.model_executor.layers.fused_moe import FusedMoEActivationFormat as Format
    from vllm.model_executor.layers.quantization.utils import quant_utils as keys

    moe = make_layer(engine, None).moe_config
    asked = [(None, None), (keys.kFp8Static128BlockSym, keys.kFp8Dynamic128Sym), (keys.kMxfp4Static, None),
             (keys.kInt4Static32, None), (keys.kInt8Static, None), (keys.kFp8StaticChannelSym, keys.kFp8DynamicTokenSym)]
    for device in (None, "sm_90", "sm_80"):
        for weight, activation in asked:
            answer = MoxieExperts.is_supported_config(MoxieExperts, moe, weight, activation, Format.Standard, device)
            assert answer == (True, None), answer
            chosen = [step for step in plan_for(moe, weight, activation, device).steps if step.chosen]
            assert any(step.family == "expert_gemm" for step in chosen)
    yes, reason = MoxieExperts.is_supported_config(MoxieExperts, moe, keys.kNvfp4Static, keys.kNvfp4Dynamic, Format.Standard)
    assert not yes and "MXFP4 and integers" in reason
    yes, reason = MoxieExperts.is_supported_config(MoxieExperts, moe, None, None, Format.BatchedExperts)
    assert not yes and "tokens in their order" in reason
    moe.moe_parallel_config.tp_size, moe.intermediate_size_per_partition = 2, 96
    yes, reason = MoxieExperts.is_supported_config(MoxieExperts, moe, keys.kFp8Static128BlockSym, None, Format.Standard)
    assert not yes and "cuts experts to 96 columns" in reason
