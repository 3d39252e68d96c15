# SPDX-License-Identifier: Apache-2.0
"""Every family that transformers has, from its saved checkpoint to the output of the whole MoE block: router, choice of
experts, activation, shared expert and scales, beside the forward() of transformers' own block, in float32. What lint finds in
such a checkpoint would be a false alarm. And the model itself, when its experts are moxie's."""

import importlib
import json

import moxie
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("transformers.integrations.moe", reason="this transformers has no interface for experts")

import moxie.transformers as mt  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

HIDDEN, WIDTH, EXPERTS, K, TOKENS = 64, 48, 8, 3, 18

# Of these keys a configuration gets those that its class knows.
SMALL = {
    "vocab_size": 64, "hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
    "head_dim": 16, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    "q_lora_rank": 32, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16,
    "index_n_heads": 4, "index_head_dim": 16, "index_topk": 4,
    "intermediate_size": WIDTH, "moe_intermediate_size": WIDTH, "shared_expert_intermediate_size": 40, "shared_intermediate_size": 40,
    "num_experts": EXPERTS, "num_local_experts": EXPERTS, "n_routed_experts": EXPERTS, "moe_num_experts": EXPERTS,
    "num_experts_per_tok": K, "num_experts_per_token": K, "moe_k": K, "moe_top_k": K, "moe_topk": K, "top_k_experts": K,
    "n_shared_experts": 1, "num_shared_experts": 1, "moe_num_shared_experts": 1, "num_shared_expert": 1,
    "n_group": 2, "topk_group": 1, "norm_topk_prob": True, "first_k_dense_replace": 0, "moe_layer_start_index": 0,
}
SPARSE = {"mlp_layer_types": ["sparse", "sparse"]}
FAMILIES = {
    "gpt_oss": {}, "qwen3_moe": {}, "qwen3_vl_moe_text": {}, "qwen2_moe": {}, "qwen3_next": {}, "qwen3_5_moe_text": {},
    "olmoe": {}, "flex_olmo": {}, "mixtral": {}, "minimax": {}, "phimoe": {"num_experts_per_tok": 2}, "minimax_m2": {},
    "minimax_m3_vl_text": {}, "deepseek_v2": {"norm_topk_prob": False}, "deepseek_v3": {}, "deepseek_v32": {},
    "deepseek_v4": {}, "glm4_moe": {}, "glm4v_moe_text": {}, "glm4_moe_lite": SPARSE, "glm_moe_dsa": {},
    "mimo_v2_flash": {}, "nemotron_h": {}, "kimi_linear": {}, "llama4_text": {}, "ernie4_5_moe": {}, "hunyuan_v1_moe": {},
    "granitemoe": {}, "granitemoeshared": {}, "granitemoehybrid": {}, "granitemoe_swa": {}, "jamba": {}, "dots1": {}, "solar_open": {},
    "lfm2_moe": {"layer_types": ["full_attention"] * 2, "num_dense_layers": 0}, "afmoe": {}, "laguna": {}, "hy_v3": {},
    "longcat_flash": {"zero_expert_num": 4, "expert_ffn_hidden_size": WIDTH}, "hy_v4": {}, "bailing_hybrid": {},
    "mistral4": {}, "cohere2_moe": {}, "aria_text": {}, "qwen4_exp_text": {}, "mellum": {}, "exaone_moe": {},
    "flint": {"mlp_only_layers": [0]}, "beam": SPARSE, "lara_mini": {}, "axk2": {"n_group": None, "topk_group": None},
    "sarvam_moe": {}, "sarvam_mla": {},
    "axk1": {},
    "kolibri1": {},
    "dots3_note_text": {"shared_experts_intermediate_size": 40},
    "openai_privacy_filter": {},
    "hy_v4_vl_text": {"qk_rope_head_dim": 64},
}
# What a configuration may say: family, changed keys.
RULES = [
    ("qwen3_moe", {"norm_topk_prob": False}), ("qwen2_moe", {"norm_topk_prob": False}), ("olmoe", {"norm_topk_prob": True}),
    ("qwen2_moe", {"shared_expert_intermediate_size": 0}), ("deepseek_v3", {"n_shared_experts": 0}),
    ("deepseek_v3", {"n_group": 4, "topk_group": 2, "norm_topk_prob": False, "routed_scaling_factor": 1.7}),
    ("deepseek_v3", {"n_group": 1, "topk_group": 1, "n_shared_experts": 2, "hidden_act": "gelu"}),
    ("deepseek_v2", {"norm_topk_prob": False, "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.7}),
    ("deepseek_v4", {"swiglu_limit": 0.5, "routed_scaling_factor": 1.7}), ("deepseek_v4", {"mlp_layer_types": ["moe", "moe"]}),
    ("laguna", {"moe_router_logit_softcapping": 0.7}), ("cohere2_moe", {"expert_selection_fn": "sigmoid", "norm_topk_prob": True}),
    ("cohere2_moe", {"expert_selection_fn": "sigmoid", "norm_topk_prob": False, "shared_expert_combination_strategy": "sum"}), ("hy_v4", {"swiglu_limit": 0.5, "n_shared_experts": 2}),
    ("minimax_m3_vl_text", {"swiglu_limit": 0.5, "routed_scaling_factor": 1.7}), ("glm4_moe", {"n_group": 4, "topk_group": 2, "norm_topk_prob": False}),
    ("mixtral", {"hidden_act": "gelu_pytorch_tanh", "num_experts_per_tok": 1}), ("granitemoe", {"hidden_act": "relu", "num_experts_per_tok": EXPERTS}),
    ("lara_mini", {"norm_topk_prob": False}), ("axk2", {"n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.7}),
    ("llama4_text", {"num_experts_per_tok": 1}), ("aria_text", {"hidden_act": "gelu"}), ("longcat_flash", {"routed_scaling_factor": 1.7}), ("ernie4_5_moe", {"moe_num_shared_experts": 2, "moe_k": 1}),
    ("sarvam_moe", {"n_group": 4, "topk_group": 2, "norm_topk_prob": False}), ("sarvam_mla", {"n_group": 1, "topk_group": 1, "n_shared_experts": 2}),
    ("axk1", {"n_group": 4, "topk_group": 2, "norm_topk_prob": False}),
    ("kolibri1", {"norm_topk_prob": False}),
    ("dots3_note_text", {"n_shared_experts": 2, "routed_scaling_factor": 1.7}),
    ("openai_privacy_filter", {"swiglu_limit": 0.5, "swiglu_alpha": 1.25, "num_experts_per_tok": 2}),
    ("hy_v4_vl_text", {"swiglu_limit": 0.5, "n_group": 4, "topk_group": 2}),
]


@pytest.fixture(autouse=True, scope="module")
def registered():
    mt.register(threads=1, max_tokens=TOKENS)


def configure(model_type, changes):
    kind = CONFIG_MAPPING[model_type]
    default = kind()
    known = {key: value for key, value in SMALL.items() if key in dir(kind) or hasattr(default, key)}
    return kind(**{**known, **changes})


def randomize(module):
    """Correction biases matter, and weights are of a size that activations and clamps feel."""
    torch.manual_seed(3)
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if tensor.is_floating_point():
                tensor.normal_(1 if "norm" in name else 0, 0.2)
    return module.eval()


def worst(got, want):
    """The largest distance of a token's row, as a part of the row's length."""
    want = want.reshape(TOKENS, -1)
    return ((torch.as_tensor(got) - want).norm(dim=1) / want.norm(dim=1)).max().item()


def block_of(model):
    """The last MoE block: its number of the layer, and forward()."""
    name, block = [(name, part) for name, part in model.named_modules() if "experts" in dict(part.named_children())][-1]
    if hasattr(block, "post_mlp_layernorm"):  # A.X-K1's norm of the sum, outside a layer here
        block.post_mlp_layernorm = torch.nn.Identity()
    beside = getattr(model.get_submodule(name.rpartition(".")[0]), "shared_mlp", None)  # Granite's shared expert
    takes_tokens = "input_ids" in block.forward.__code__.co_varnames

    def forward(x, tokens):
        out = block(x, input_ids=tokens) if takes_tokens else block(x)
        out = out[0] if isinstance(out, tuple) else out
        return out.reshape(x.shape) + (beside(x) if beside else 0)

    return int(next(part for part in name.split(".") if part.isdigit())), forward


def check_saved(path, model_type, changes):
    config = configure(model_type, changes)
    auto = transformers.AutoModelForCausalLM
    check_model(path, auto if type(config) in auto._model_mapping else transformers.AutoModel, config)


def check_model(path, auto, config):
    model = randomize(auto.from_config(config, dtype=torch.float32))
    model.set_experts_implementation("eager")
    model.save_pretrained(path)
    number, forward = block_of(model)
    x, tokens = torch.randn(2, TOKENS // 2, HIDDEN), torch.arange(TOKENS).view(2, -1) * 7 % 64
    with torch.no_grad():
        want = forward(x, tokens)
    assert not moxie.lint(path).findings
    plan = moxie.Model(path).layer(number).plan(max_tokens=TOKENS)
    assert worst(plan.run(x.view(TOKENS, -1), token_ids=tokens.flatten().int()), want) < 3e-6
    model.set_experts_implementation("moxie")  # Llama4's and LongCat's classes have no such choice
    with torch.no_grad():
        assert worst(forward(x, tokens).reshape(TOKENS, -1), want) < 3e-6


@pytest.mark.parametrize("model_type", FAMILIES)
def test_family(tmp_path, model_type):
    if model_type not in CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {model_type}")
    check_saved(tmp_path, model_type, FAMILIES[model_type])


@pytest.mark.parametrize(("model_type", "changes"), RULES, ids=lambda value: value if isinstance(value, str) else "-".join(value))
def test_rule(tmp_path, model_type, changes):
    check_saved(tmp_path, model_type, {**FAMILIES[model_type], **changes})


# ---- blocks whose whole model is large or composite: the block alone, under its own names -----------------------


def alone(path, module, name, config, prefix, *arguments):
    block = randomize(getattr(importlib.import_module(f"transformers.models.{module}.modeling_{module}"), name)(config, *arguments))
    save_file({prefix + key: value.contiguous() for key, value in block.state_dict().items()}, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps({**config.to_dict(), "dtype": "float32"}, default=str))
    assert not moxie.lint(path).findings
    return block, moxie.Model(path).layer(1).plan(max_tokens=TOKENS)


@pytest.mark.parametrize(("module", "name", "model_type", "changes", "prefix", "arguments"), [
    ("step3p7", "Step3p7SparseMoeBlock", "step3p5", {}, "model.layers.1.mlp.", (1,)),
    ("step3p7", "Step3p7SparseMoeBlock", "step3p5", {"swiglu_limits": [0.0, 0.5], "swiglu_limits_shared": [0.0, 0.4]}, "model.layers.1.mlp.", (1,)),
    ("qwen3_omni_moe", "Qwen3OmniMoeThinkerTextSparseMoeBlock", "qwen3_omni_moe_text", {}, "layers.1.mlp.", ()),
    ("glm5_next", "Glm5NextTextMoE", "glm5_next_text", {"index_topk": 16, "qk_rope_head_dim": 0}, "model.layers.1.mlp.", ()),
    ("deepseek_ocr2", "DeepseekOcr2TextMoe", "deepseek_ocr2_text", {}, "model.language_model.layers.1.mlp.", ()),
    ("deepseek_ocr2", "DeepseekOcr2TextMoe", "deepseek_ocr2_text", {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.7}, "model.layers.1.mlp.", ()),
    ("unlimited_ocr", "UnlimitedOcrTextMoe", "unlimited_ocr_text", {}, "model.language_model.layers.1.mlp.", ()),
    ("ernie4_5_vl_moe", "Ernie4_5_VLMoeMoeBlock", "ernie4_5_vl_moe_text", {"moe_intermediate_size": [WIDTH, 24]}, "model.layers.1.mlp.", ()),
])
def test_block(tmp_path, module, name, model_type, changes, prefix, arguments):
    block, plan = alone(tmp_path, module, name, configure(model_type, changes), prefix, *arguments)
    x = torch.randn(TOKENS, HIDDEN)
    text = (torch.zeros(1, TOKENS, dtype=torch.bool),) if module == "ernie4_5_vl_moe" else ()
    with torch.no_grad():
        want = block(x[None], *text)
    assert worst(plan.run(x), want[0] if isinstance(want, tuple) else want) < 3e-6


@pytest.mark.parametrize("norm", [1.0, 2.0, None])
def test_dbrx(tmp_path, norm):
    experts = {"hidden_size": HIDDEN, "ffn_hidden_size": WIDTH, "moe_num_experts": EXPERTS, "moe_top_k": K, "moe_normalize_expert_weights": norm}
    config = transformers.DbrxConfig(d_model=HIDDEN, n_heads=4, n_layers=2, vocab_size=64, ffn_config=experts)
    block, plan = alone(tmp_path, "dbrx", "DbrxFFN", config, "transformer.blocks.1.ffn.")
    x = torch.randn(TOKENS, HIDDEN)
    with torch.no_grad():
        want = block(x[None])
    assert worst(plan.run(x), want[0] if isinstance(want, tuple) else want) < 3e-6


@pytest.mark.parametrize("changes", [{}, {"n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.7}], ids=["", "groups"])
def test_mistral_large4(tmp_path, changes):
    """Of the whole model, transformers saves the released names; of its text model alone, two kinds of names."""
    if "mistral_large4" not in CONFIG_MAPPING:
        pytest.skip("this transformers has no mistral_large4")
    vision = {"model_type": "pixtral", "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 16}
    config = CONFIG_MAPPING["mistral_large4"](text_config=configure("mistral_large4_text", changes).to_dict(), vision_config=vision)
    check_model(tmp_path, transformers.AutoModelForImageTextToText, config)


@pytest.mark.parametrize("changes", [{}, {"num_experts_per_tok": 1, "activation_function": "gelu"}], ids=["", "changed"])
def test_jetmoe(tmp_path, changes):
    """The model adds the bias of the sum. The mixture of its attention is none of moxie's."""
    model = randomize(transformers.AutoModelForCausalLM.from_config(configure("jetmoe", changes), dtype=torch.float32))
    model.save_pretrained(tmp_path)
    assert not moxie.lint(tmp_path).findings
    block, x = model.get_submodule("model.layers.1.mlp"), torch.randn(TOKENS, HIDDEN)
    with torch.no_grad():
        want = block(x[None])[0] - block.bias
    assert worst(moxie.Model(tmp_path).layer(1).plan(max_tokens=TOKENS).run(x), want) < 3e-6


def test_muse_spark(tmp_path):
    """The projections around its experts are the model's."""
    config = configure("muse_spark_text", {**SPARSE, "moe_hidden_size": 32})
    block, plan = alone(tmp_path, "muse_spark", "MuseSparkMoE", config, "layers.1.mlp.")
    x = torch.randn(TOKENS, HIDDEN)
    with torch.no_grad():
        inside = plan.run(block.pre_expert_norm(block.pre_expert_proj(x)).contiguous(), router_hidden=x)
        assert worst(block.post_expert_proj(torch.as_tensor(inside)), block(x[None])) < 3e-6


def test_gemma4(tmp_path):
    """Router and experts read different states."""
    check_gemma(tmp_path, transformers.AutoModelForCausalLM, configure("gemma4_text", {"enable_moe_block": True}), "model.layers.1")


def test_diffusion_gemma(tmp_path):
    """Its encoder's experts are those of the decoder."""
    if "diffusion_gemma" not in CONFIG_MAPPING:
        pytest.skip("this transformers has no diffusion_gemma")
    vision = {"model_type": "gemma4_vision", "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
              "head_dim": 16, "position_embedding_size": 16}
    text = configure("diffusion_gemma_text", {}).to_dict()
    config = CONFIG_MAPPING["diffusion_gemma"](text_config=text, vision_config=vision)
    for name in ("encoder.language_model.layers.1", "decoder.layers.1"):
        check_gemma(tmp_path, transformers.AutoModel, config, name)


def check_gemma(tmp_path, auto, config, name):
    model = randomize(auto.from_config(config, dtype=torch.float32))
    model.set_experts_implementation("eager")
    model.save_pretrained(tmp_path)
    layer, x, residual = model.get_submodule(name), torch.randn(TOKENS, HIDDEN), torch.randn(TOKENS, HIDDEN)
    with torch.no_grad():
        _, weights, ids = layer.router(residual)
        want = layer.experts(x, ids, weights)
    assert worst(moxie.Model(tmp_path).layer(1).plan(max_tokens=TOKENS).run(x, router_hidden=residual), want) < 3e-6
