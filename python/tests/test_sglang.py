# SPDX-License-Identifier: Apache-2.0
"""moxie.sglang: SGLang's FusedMoE layers with moxie's experts, filled by SGLang's own loader, beside a reference."""

import json

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("sglang", reason="SGLang is not installed")

import moxie  # noqa: E402
from engine_formats import Experts, reference  # noqa: E402

MODEL = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 256, "num_hidden_layers": 2,
         "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 512, "num_experts": 4, "num_experts_per_tok": 2,
         "moe_intermediate_size": 128, "intermediate_size": 256, "max_position_embeddings": 512, "torch_dtype": "bfloat16"}
CONFIGS = {
    "bf16": None,
    "fp8_block": ("fp8", {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}),
    "awq": ("awq", {"quant_method": "awq", "w_bit": 4, "q_group_size": 32, "zero_point": True}),
    "gptq": ("gptq_marlin", {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "lm_head": False,
                             "sym": True, "dynamic": {}, "checkpoint_format": "gptq"}),
}


@pytest.fixture(scope="module", autouse=True)
def engine(tmp_path_factory):
    """SGLang's configuration of one process that chose --moe-runner-backend moxie."""
    import moxie.sglang
    from sglang.srt.layers.moe import initialize_moe_config
    from sglang.srt.plugins.hook_registry import HookRegistry
    from sglang.srt.runtime_context import get_parallel
    from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

    moxie.sglang.register_moxie(threads=2)
    moxie.sglang.register_moxie(threads=2)  # a second time changes nothing
    HookRegistry.apply_hooks()
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(MODEL))
    set_global_server_args_for_scheduler(ServerArgs(model_path=str(folder), device="cpu", moe_runner_backend="moxie"))
    initialize_moe_config()
    with get_parallel().override(moe_ep_rank=0, moe_tp_rank=0, tp_group=None):
        yield


def make_layer(format="bf16", **arguments):
    from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE
    from sglang.srt.layers.quantization import get_quantization_config

    config = CONFIGS[format]
    config = get_quantization_config(config[0]).from_config(config[1]) if config else None
    return FusedMoE(num_experts=4, hidden_size=256, intermediate_size=128, layer_id=0, top_k=2, params_dtype=torch.bfloat16,
                    quant_config=config, prefix="model.layers.0.mlp.experts", **arguments)


def load(layer, experts):
    mapping = layer.make_expert_params_mapping("gate_proj", "down_proj", "up_proj", 4)
    for name, tensor in experts.tensors.items():
        for parameter_name, weight_name, expert, shard in mapping:
            full = f"experts.{name}"
            if full.startswith(weight_name) and not name.endswith("g_idx"):
                target = full.replace(weight_name, parameter_name)
                parameter = getattr(layer, target.removeprefix("experts."))
                parameter.weight_loader(parameter, tensor, target, shard_id=shard, expert_id=expert)
    layer.quant_method.process_weights_after_loading(layer)
    assert all(parameter.numel() == 0 for parameter in layer.parameters())


def run(layer, x, ids, weights):
    from sglang.srt.layers.moe.token_dispatcher import StandardDispatchOutput
    from sglang.srt.layers.moe.topk import StandardTopKOutput

    topk = StandardTopKOutput(weights, ids, torch.zeros(x.shape[0], 4))
    dispatched = StandardDispatchOutput(hidden_states=x, hidden_states_scale=None, topk_output=topk)
    return layer.run_moe_core(dispatched).hidden_states


def inputs(tokens=9):
    random = torch.Generator().manual_seed(5)
    x = torch.randn(tokens, 256, generator=random).bfloat16()
    ids = torch.rand(tokens, 4, generator=random).topk(2).indices.to(torch.int32)
    ids[0, 1] = -1  # SGLang's mark of an expert that is elsewhere
    return x, ids, torch.rand(tokens, 2, generator=random)


@pytest.mark.parametrize("format", ["bf16", "awq", "gptq"])
def test_formats(format):
    layer, experts = make_layer(format), Experts(format)
    assert type(layer.quant_method).__module__ == "moxie.sglang" and layer.runner_backend.value == "moxie"
    load(layer, experts)
    x, ids, weights = inputs()
    want, bound = reference(experts, x, ids, weights)
    assert ((run(layer, x, ids, weights).double() - want).abs() <= bound).all()


def test_quantized_activations():
    """FP8 blocks: the library's own layer, bit for bit, and near the reference."""
    experts = Experts("fp8_block")
    layer = make_layer("fp8_block")
    load(layer, experts)
    x, ids, weights = inputs()
    config = moxie.LayerConfig.preset("qwen3-30b-a3b", "fp8-block").replace(experts=4, top_k=2, hidden=256, intermediate=128)
    config.router_width = 0
    stack = lambda name, part: torch.stack([experts.tensors[f"{e}.{name}.{part}"] for e in range(4)])  # noqa: E731
    arrays = {"w2": stack("down_proj", "weight"), "w2_scale": stack("down_proj", "weight_scale_inv")}
    for name, part in (("w13", "weight"), ("w13_scale", "weight_scale_inv")):
        arrays[name] = torch.cat([stack("gate_proj", part), stack("up_proj", part)], 1)
    plan = moxie.Layer.from_arrays(config, threads=1, **arrays).plan(max_tokens=256)
    assert torch.equal(run(layer, x, ids, weights), plan.run(x, ids=ids, weights=weights))


def test_scaling_factor_and_activation():
    experts = Experts("bf16")
    layer = make_layer(activation="gelu", routed_scaling_factor=2.5)
    load(layer, experts)
    x, ids, weights = inputs()
    gelu = lambda gate, up: torch.nn.functional.gelu(gate) * up  # noqa: E731
    want, bound = reference(experts, x, ids, weights * 2.5, gelu)
    assert ((run(layer, x, ids, weights).double() - want).abs() <= bound).all()


def test_whole_layer():
    """Through SGLang's dispatcher, as a model calls it."""
    from sglang.srt.layers.moe.topk import StandardTopKOutput

    experts = Experts("awq")
    layer = make_layer("awq")
    load(layer, experts)
    x, ids, weights = inputs()
    got = layer.forward_impl(x, StandardTopKOutput(weights, ids, torch.zeros(9, 4)))
    want, bound = reference(experts, x, ids, weights)
    assert ((got.double() - want).abs() <= bound).all()


@pytest.mark.parametrize("arguments, words", [
    ({"no_combine": True}, "no_combine"), ({"activation": "relu2"}, "activation relu2"), ({"with_bias": True}, "biases"),
])
def test_refused(arguments, words):
    with pytest.raises(moxie.Unsupported, match=words):
        make_layer(**arguments)


def test_awq_without_zero_points():
    from sglang.srt.layers.quantization import get_quantization_config

    config = get_quantization_config("awq").from_config(CONFIGS["awq"][1] | {"zero_point": False})
    with pytest.raises(moxie.Unsupported, match="AWQ with zero points"):
        moxie.sglang.form_of(config, "model.layers.0.mlp.experts", torch.bfloat16)
