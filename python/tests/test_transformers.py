# SPDX-License-Identifier: Apache-2.0
"""moxie.transformers: small random models of five families beside transformers' own implementations and a float32 model."""

import copy
import gc
import pathlib
import re
import threading
import time

import moxie
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("transformers.integrations.moe", reason="this transformers has no interface for experts")

import moxie.torch  # noqa: E402
import moxie.transformers as mt  # noqa: E402
from hf_checkpoint import distance, experts, record  # noqa: E402

COMMON = {"vocab_size": 64, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
          "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
FAMILIES = {
    "Qwen3Moe": {"head_dim": 16, "intermediate_size": 96, "moe_intermediate_size": 48, "num_experts": 8,
                 "num_experts_per_tok": 3, "norm_topk_prob": True},
    "Mixtral": {"intermediate_size": 96, "num_local_experts": 8, "num_experts_per_tok": 2},
    "Olmoe": {"intermediate_size": 48, "num_experts": 8, "num_experts_per_tok": 3},
    "DeepseekV3": {"intermediate_size": 96, "moe_intermediate_size": 48, "n_routed_experts": 8, "num_experts_per_tok": 3,
                   "n_group": 2, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1, "q_lora_rank": 32,
                   "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16},
    "GptOss": {"head_dim": 16, "intermediate_size": 48, "num_local_experts": 8, "num_experts_per_tok": 3,
               "layer_types": ["full_attention"] * 2},
}


@pytest.fixture(autouse=True, scope="module")
def registered():
    mt.register(threads=1, max_tokens=64)


def make(family, **changes):
    """A model in float32 whose weights are bf16 values."""
    torch.manual_seed(0)
    config = getattr(transformers, family + "Config")(**COMMON, **FAMILIES[family], **changes)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, experts_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.normal_(0, 0.15)
            parameter.copy_(parameter.to(torch.bfloat16))
    return model


def logits(model, tokens, implementation, routes, replay=True):
    model.set_experts_implementation(implementation)
    hooks = record(model, routes, replay)
    with torch.no_grad():
        result = model(tokens).logits.float()
    for hook in hooks:
        hook.remove()
    return result


@pytest.mark.parametrize("family", FAMILIES)
def test_logits(family):
    """One choice of experts for all, that of the float32 model: near ties would hide everything else."""
    model, tokens, routes = make(family), torch.arange(2 * 9).view(2, 9) * 7 % 64, []
    want = logits(model, tokens, "eager", routes, replay=False)
    assert distance(logits(model, tokens, "moxie", routes), want) < 3e-6
    half = copy.deepcopy(model).to(torch.bfloat16)
    eager = logits(half, tokens, "eager", routes)
    ours = logits(half, tokens, "moxie", routes)
    assert distance(ours, want) < 1.1 * distance(eager, want) < 0.03
    assert distance(ours, eager) < 0.02
    assert all(m._moxie.top_k == routes[0][0].shape[-1] for m in experts(half))


@pytest.mark.parametrize("family", ["Qwen3Moe", "GptOss"])
def test_bits_are_those_of_the_plan(family):
    """Of a plan made by hand from the same parameters."""
    model = make(family).to(torch.bfloat16)
    (module, *_), gpt = experts(model), family == "GptOss"
    x, ids, weights = torch.randn(5, 64).to(torch.bfloat16), torch.randint(0, 9, (5, 3)), torch.rand(5, 3)
    model.set_experts_implementation("moxie")
    with torch.no_grad():
        got = module(x, ids, weights)
    config = moxie.LayerConfig(experts=8, top_k=3, hidden=64, intermediate=48, w13=moxie.Quant("bf16"), w2=moxie.Quant("bf16"),
                               activation=moxie.activations()["swigluoai" if gpt else "silu"], bias13=gpt, bias2=gpt)
    biases = {"w13_bias": module.gate_up_proj_bias.detach(), "w2_bias": module.down_proj_bias.detach()} if gpt else {}
    layer = moxie.Layer.from_arrays(config, w13=module.gate_up_proj.detach(), w2=module.down_proj.detach(), transposed=gpt,
                                    interleaved=gpt, threads=1, **biases)
    assert torch.equal(got, layer.plan().run(x, ids=ids.int(), weights=weights))


def test_from_pretrained_and_generate(tmp_path):
    make("Qwen3Moe").to(torch.bfloat16).save_pretrained(tmp_path)
    load = transformers.AutoModelForCausalLM.from_pretrained
    model = load(tmp_path, dtype=torch.float32, experts_implementation="moxie").eval()
    plain = load(tmp_path, dtype=torch.float32, experts_implementation="eager").eval()
    tokens = torch.arange(8)[None]
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(model.generate(tokens, **options), plain.generate(tokens, **options))
    assert all(hasattr(module, "_moxie") for module in experts(model))


def test_experts_elsewhere_are_skipped():
    (module, *_) = experts(make("Mixtral"))
    x, ids = torch.randn(4, 64), torch.tensor([[0, 8], [8, 8], [8, 5], [7, 1]])
    weights = torch.rand(4, 2)
    with torch.no_grad():
        y = mt.experts_forward(module, x, ids, weights)
        whole = mt.experts_forward(module, x, ids.clamp(max=7), weights.masked_fill(ids == 8, 0))
    assert not y[1].any() and torch.allclose(y, whole, rtol=1e-6, atol=1e-7) and y[0].any()


def test_changed_weights_are_packed_again():
    (module, *_) = experts(make("Mixtral"))
    x, ids, weights = torch.randn(4, 64), torch.zeros(4, 2, dtype=torch.int64), torch.rand(4, 2)
    with torch.no_grad():
        before = mt.experts_forward(module, x, ids, weights)
        first = module._moxie.number
        assert torch.equal(mt.experts_forward(module, x, ids, weights), before) and module._moxie.number == first
        module.down_proj.mul_(2)
        assert torch.equal(mt.experts_forward(module, x, ids, weights), 2 * before)
        assert first not in moxie.torch._open
        assert mt.experts_forward(module, x, ids[:, :1], weights[:, :1]).any()  # another K
        assert mt.experts_forward(module, x.bfloat16(), ids, weights).dtype == torch.bfloat16
    other = copy.deepcopy(module)
    assert other._moxie is None
    number = module._moxie.number
    del module
    gc.collect()
    assert number not in moxie.torch._open


def test_threads_that_come_together_pack_once(monkeypatch):
    (module, *_) = experts(make("Mixtral"))
    x, ids, weights = torch.randn(4, 64), torch.zeros(4, 2, dtype=torch.int64), torch.rand(4, 2)
    before, start, pack = len(moxie.torch._open), threading.Barrier(4), mt._open
    monkeypatch.setattr(mt, "_open", lambda *arguments: (time.sleep(0.05), pack(*arguments))[1])

    def run():
        start.wait()
        with torch.no_grad():
            mt.experts_forward(module, x, ids, weights)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(moxie.torch._open) == before + 1


def test_a_parameter_at_the_address_of_its_predecessor_is_packed():
    (module, *_) = experts(make("Mixtral"))
    x, ids, weights = torch.randn(4, 64), torch.zeros(4, 2, dtype=torch.int64), torch.rand(4, 2)
    memory = module.down_proj.detach().clone().numpy()
    with torch.no_grad():
        module.down_proj = torch.nn.Parameter(torch.from_numpy(memory))
        before = mt.experts_forward(module, x, ids, weights)
        memory *= 2  # as an allocator that gives the freed memory to the next tensor
        module.down_proj = torch.nn.Parameter(torch.from_numpy(memory))
        assert torch.equal(mt.experts_forward(module, x, ids, weights), 2 * before)


def test_compiled_and_released():
    model = make("Qwen3Moe").to(torch.bfloat16)
    model.set_experts_implementation("moxie")
    tokens = torch.arange(9)[None]
    torch._dynamo.reset()
    fast = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        with pytest.raises(Exception, match="prepare"):
            fast(tokens, use_cache=False)
        torch._dynamo.reset()
        assert mt.prepare(model) == 2
        want = model(tokens, use_cache=False).logits
        assert torch.equal(fast(tokens, use_cache=False).logits, want)
        numbers = [module._moxie.number for module in experts(model)]
        assert mt.prepare(model, release=True) == 2 and numbers == [module._moxie.number for module in experts(model)]
        assert all(module.down_proj.is_meta for module in experts(model))
        assert torch.equal(model(tokens, use_cache=False).logits, want)
        with pytest.raises(moxie.Unsupported, match="released"):
            model.float()(tokens)


def test_a_backward_pass_is_refused():
    model = make("Mixtral")
    model.set_experts_implementation("moxie")
    with pytest.raises(RuntimeError, match="no backward pass"):
        model(torch.arange(4)[None]).logits.sum().backward()


# ---- gates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("act", "kind", "alpha"), [
    ("silu", "silu", 0.0), ("gelu", "gelu_erf", 0.0), ("gelu_pytorch_tanh", "gelu_tanh", 0.0), ("gelu_new", "gelu_tanh", 0.0),
    ("relu", "relu", 0.0), ("relu2", "relu2", 0.0), ("quick_gelu", "silu", 1.702)])
def test_activations(act, kind, alpha):
    (module, *_) = experts(make("Mixtral", hidden_act=act))
    found, layout = mt.recognise_gate(module)
    assert (found.kind, found.alpha, found.gate_limit, layout) == (kind, alpha, 0, {})
    x, ids, weights = torch.randn(6, 64) * 3, torch.randint(0, 8, (6, 2)), torch.rand(6, 2)
    with torch.no_grad():
        assert torch.allclose(mt.experts_forward(module, x, ids, weights), module(x, ids, weights), rtol=1e-4, atol=1e-4)


def test_gates_of_their_own():
    (module, *_) = experts(make("Mixtral"))
    module.limit = 3.0

    def gates(function):
        module._apply_gate = lambda both: function(*both.chunk(2, dim=-1))
        x, ids, weights = torch.randn(6, 64) * 3, torch.randint(0, 8, (6, 2)), torch.rand(6, 2)
        with torch.no_grad():
            module._moxie = None
            want = transformers.integrations.moe.batched_mm_experts_forward(module, x, ids, weights)
            assert torch.allclose(mt.experts_forward(module, x, ids, weights), want, rtol=1e-4, atol=1e-4)
        return mt.recognise_gate(module)

    silu = torch.nn.functional.silu
    found, layout = gates(lambda g, u: silu(u) * g)
    assert layout == {"up_first": True} and found.gate_limit == 0
    found, _ = gates(lambda g, u: silu(g.clamp(max=3)) * u.clamp(-3, 3))
    assert (found.kind, found.gate_limit, found.up_limit) == ("silu", 3, 3)
    found, _ = gates(lambda g, u: silu(g).clamp(max=3) * u.clamp(-3, 3))
    assert (found.kind, found.gate_limit) == ("swiglu_step", 3)
    with pytest.raises(moxie.Unsupported, match="none of moxie's activations.*set_experts_implementation"):
        gates(lambda g, u: silu(g) * u.sin())
    with pytest.raises(moxie.Unsupported, match="none of"):
        gates(lambda g, u: silu(g.clamp(max=5)) * u)  # a limit that the module does not name


class Ungated(torch.nn.Module):
    """Experts without a gate, under transformers' own decorator."""

    def __init__(self, config):
        super().__init__()
        self.num_experts = 8
        self.up_proj = torch.nn.Parameter(torch.randn(8, 96, 64) / 8)
        self.down_proj = torch.nn.Parameter(torch.randn(8, 64, 96) / 8)
        self.act_fn = transformers.activations.ACT2FN[config.hidden_act]

    def forward(self, hidden_states, top_k_index, top_k_weights):
        raise NotImplementedError


@pytest.mark.parametrize("act", ["relu2", "silu", "gelu", "linear"])
def test_experts_without_gate(act):
    made = transformers.integrations.moe.use_experts_implementation(type("Experts", (Ungated,), {}), has_gate=False)
    module = made(transformers.MixtralConfig(hidden_act=act))
    x, ids, weights = torch.randn(6, 64), torch.randint(0, 8, (6, 2)), torch.rand(6, 2)
    with torch.no_grad():
        want = transformers.integrations.moe.batched_mm_experts_forward(module, x, ids, weights)
        assert torch.allclose(mt.experts_forward(module, x, ids, weights), want, rtol=1e-4, atol=1e-4)
    assert mt.recognise_gate(module)[0].kind.endswith("_no_mul")


def test_refusals():
    (module, *_) = experts(make("Mixtral"))
    x, ids, weights = torch.randn(4, 64), torch.zeros(4, 2, dtype=torch.int64), torch.rand(4, 2)
    with pytest.raises(moxie.Unsupported, match="hidden states are torch.float64"):
        mt.experts_forward(module, x.double(), ids, weights)
    module.has_post_expert_norm = True
    with pytest.raises(moxie.Unsupported, match="norm on every expert"):
        mt.experts_forward(module, x, ids, weights)
    module.has_post_expert_norm = False
    module.down_proj = torch.nn.Parameter(module.down_proj.detach().to(torch.float8_e4m3fn), requires_grad=False)
    with pytest.raises(moxie.Unsupported, match="float8_e4m3fn"):
        mt.experts_forward(module, x, ids, weights)
    del module.down_proj
    module.down_proj = torch.zeros(8, 64, 96)
    with pytest.raises(moxie.Unsupported, match="down_proj is not a parameter"):
        mt.experts_forward(module, x, ids, weights)


def test_docs(tmp_path, monkeypatch, capsys):
    """docs/use-from-transformers.md, all blocks one after the other."""
    text = (pathlib.Path(__file__).parents[2] / "docs" / "use-from-transformers.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    monkeypatch.chdir(tmp_path)
    exec("\n".join(blocks), {})
    assert len(blocks) == 4 and "\n2 meta\n" in capsys.readouterr().out
