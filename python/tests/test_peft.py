# SPDX-License-Identifier: Apache-2.0
"""PEFT's LoRA on the experts of transformers models: moxie's logits beside those of PEFT's own W + s B A, in float32."""

import moxie
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers.integrations.moe", reason="transformers with an interface for experts is not installed")
peft = pytest.importorskip("peft", reason="PEFT is not installed")

from hf_checkpoint import distance, experts  # noqa: E402
from test_transformers import FAMILIES, logits, make, registered  # noqa: E402, F401

TOKENS = torch.arange(2 * 9).view(2, 9) * 7 % 64
TARGETS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]


def adapted(family, adapters=("one",), targets=TARGETS):
    """A model with random adapters of different ranks, and the choice of experts of the model without."""
    model = make(family)
    for number, name in enumerate(adapters):
        config = peft.LoraConfig(r=3 + number, lora_alpha=7, target_modules=[], target_parameters=targets, use_rslora=number > 0)
        if number == 0:
            model = peft.get_peft_model(model, config, adapter_name=name)
        else:
            model.add_adapter(name, config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.3)
    model.eval()
    return model


def compare(model, routes=None, close=3e-6):
    """Logits by both; routes: a choice of experts that is there already."""
    inner, routes = model.base_model.model, [] if routes is None else routes
    want = logits(inner, TOKENS, "eager", routes, replay=bool(routes))
    got = logits(inner, TOKENS, "moxie", routes)
    assert distance(got, want) < close
    return got, routes


@pytest.mark.parametrize("family", FAMILIES)
def test_logits(family):
    model = adapted(family)
    got, routes = compare(model)
    with model.disable_adapter():
        plain, _ = compare(model, routes)
    assert distance(got, plain) > 1e-2  # the adapter does something
    assert torch.equal(logits(model.base_model.model, TOKENS, "moxie", routes), got)


@pytest.mark.parametrize("targets", [TARGETS[:1], TARGETS[1:]])
def test_one_parameter(targets):
    compare(adapted("Qwen3Moe", targets=targets))


def test_several_adapters_and_changes():
    model = adapted("Qwen3Moe", ("one", "two"))
    first, routes = compare(model)
    model.set_adapter("two")
    second, _ = compare(model, routes)
    model.base_model.set_adapter(["one", "two"])
    both, _ = compare(model, routes)
    assert min(distance(a, b) for a, b in ((first, second), (first, both), (second, both))) > 1e-2
    with torch.no_grad():
        next(p for n, p in model.named_parameters() if "lora_B.two" in n).mul_(2)
    changed, _ = compare(model, routes)
    assert distance(changed, both) > 1e-4


def test_merged_and_unmerged():
    model = adapted("GptOss")
    got, routes = compare(model)
    model.merge_adapter()
    merged, _ = compare(model, routes)
    assert distance(merged, got) < 1e-5
    model.unmerge_adapter()
    again, _ = compare(model, routes)
    assert distance(again, got) < 1e-5
    whole = model.merge_and_unload()
    assert distance(logits(whole, TOKENS, "moxie", routes), got) < 1e-5


def test_released_weights():
    model = adapted("Qwen3Moe")
    got, routes = compare(model)
    inner = model.base_model.model
    assert moxie.transformers.prepare(inner, release=True) == 2
    assert torch.equal(logits(inner, TOKENS, "moxie", routes), got)
    with pytest.raises(moxie.Unsupported, match="released"):
        model.merge_adapter()
    late = make("Qwen3Moe")
    late.set_experts_implementation("moxie")
    moxie.transformers.prepare(late, release=True)
    late = peft.get_peft_model(late, peft.LoraConfig(r=2, target_modules=[], target_parameters=TARGETS))
    with pytest.raises((moxie.Unsupported, NotImplementedError)), torch.no_grad():
        late(TOKENS)


def test_no_silent_training():
    model = adapted("Qwen3Moe")
    model.base_model.model.set_experts_implementation("moxie")
    with pytest.raises(moxie.Unsupported, match="no backward pass"):
        model(TOKENS)
    assert not any(getattr(m, "_moxie_lora", None) for m in experts(model))


def test_factors_are_given_up():
    import moxie.torch as mt

    model = adapted("Qwen3Moe")
    compare(model)
    before = len(mt._open), len(mt._open_adapters)
    for _ in range(3):
        with torch.no_grad():
            next(p for n, p in model.named_parameters() if "lora_A" in n).mul_(0.5)
        logits(model.base_model.model, TOKENS, "moxie", [], replay=False)
    assert (len(mt._open), len(mt._open_adapters)) == before


# ---- experts from files -----------------------------------------------------------------------------


def save(folder, layers=2, experts=8, size=64, inner=48, seed=0):
    """An adapter in PEFT's format for every expert; returns {name: [E, ...] float32} of each layer."""
    import json

    from safetensors.torch import save_file

    torch.manual_seed(seed)
    shapes = {"gate_proj": (inner, size), "up_proj": (inner, size), "down_proj": (size, inner)}
    found = [{f"{n}.{h}": torch.randn(experts, *((4, k) if h == "A" else (rows, 4))) * 0.3 for n, (rows, k) in shapes.items() for h in "AB"}
             for _ in range(layers)]
    tensors = {}
    for layer, factors in enumerate(found):
        for key, factor in factors.items():
            name, half = key.split(".")
            for e in range(experts):
                tensors[f"base_model.model.model.layers.{layer}.mlp.experts.{e}.{name}.lora_{half}.weight"] = factor[e].contiguous()
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["gate_proj", "up_proj", "down_proj"]}))
    return found


def test_experts_from_files(tmp_path):
    """The logits of a float32 model whose weights are W + s B A."""
    import moxie.transformers as mt
    import transformers

    plain = make("Qwen3Moe")
    plain.to(torch.bfloat16).save_pretrained(tmp_path / "m")
    factors = save(tmp_path / "a")
    mt.register(threads=1, max_tokens=64, from_files=True)
    load = transformers.AutoModelForCausalLM.from_pretrained
    try:
        model = load(tmp_path / "m", dtype=torch.float32, experts_implementation="moxie").eval()
    finally:
        mt.register(threads=1, max_tokens=64)
    changed, routes = load(tmp_path / "m", dtype=torch.float32, experts_implementation="eager").eval(), []
    before = logits(changed, TOKENS, "eager", routes, replay=False)
    with torch.no_grad():
        for module, f in zip(experts(changed), factors):
            both = torch.cat([f[n + ".B"] @ f[n + ".A"] for n in ("gate_proj", "up_proj")], 1)
            module.gate_up_proj += 2 * both
            module.down_proj += 2 * f["down_proj.B"] @ f["down_proj.A"]
    want = logits(changed, TOKENS, "eager", routes)

    def got():
        from hf_checkpoint import record

        hooks = record(model, routes, True)
        with torch.no_grad():
            result = model(TOKENS).logits
        for hook in hooks:
            hook.remove()
        return result

    assert mt.load_adapter(model, tmp_path / "a", "a") == 2
    assert distance(got(), want) < 3e-6 < 1e-2 < distance(want, before)
    mt.set_adapter(model, None)
    assert distance(got(), before) < 3e-6
    mt.set_adapter(model, "a")
    assert distance(got(), want) < 3e-6
    with pytest.raises(KeyError, match="'b'.*'a'"):
        mt.set_adapter(model, "b")
    with pytest.raises(moxie.Error):
        mt.load_adapter(model, tmp_path / "nowhere", "b")
    save(tmp_path / "wide", size=32)
    with pytest.raises(moxie.Error):
        mt.load_adapter(model, tmp_path / "wide", "b")
    assert distance(got(), want) < 3e-6
    with pytest.raises(moxie.Unsupported, match="PEFT loads"):
        mt.load_adapter(changed, tmp_path / "a")


def test_nothing_is_left_of_a_model():
    import gc

    import moxie.torch as mt

    gc.collect()
    before = len(mt._open), len(mt._open_adapters)
    model = adapted("Qwen3Moe")
    compare(model)
    assert len(mt._open_adapters) > before[1]
    del model
    gc.collect()
    assert (len(mt._open), len(mt._open_adapters)) == before


def test_threads_in_one_module():
    """One thread's run ends while another's is in the module: its adapter stays."""
    import threading

    from moxie import _hf_peft

    model = adapted("Qwen3Moe", targets=TARGETS[:1])
    model.base_model.model.set_experts_implementation("moxie")
    wrapper = next(m for m in model.modules() if type(m).__name__ == "ParamWrapper")
    module = wrapper.get_base_layer()

    def run():
        with wrapper._activate_lora(["one"]):
            assert _hf_peft.active(module)

    with wrapper._activate_lora(["one"]):
        other = threading.Thread(target=run)
        other.start()
        other.join()
        assert list(_hf_peft.active(module)) == TARGETS[0].split(".")[-1:]
    assert not _hf_peft.active(module)


def test_models_without_experts_from_files():
    import moxie.transformers as mt

    with pytest.raises(ValueError, match="no experts from files"):
        mt.set_adapter(make("Qwen3Moe"), "a")
    with pytest.raises(ValueError, match="no experts that moxie knows"):
        mt.load_adapter(torch.nn.Linear(2, 2), "anywhere")
