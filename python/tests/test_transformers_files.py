# SPDX-License-Identifier: Apache-2.0
"""Models whose experts moxie.transformers packs straight from checkpoint files, on random small checkpoints."""

import copy
import json
import mmap
import os
import pathlib
import subprocess
import sys

import moxie
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed; transformers wants it for quantized models")
import hf_checkpoint  # noqa: E402
import moxie.transformers as mt  # noqa: E402
from hf_checkpoint import SMALL, SMALL_MLA, distance, experts, record  # noqa: E402

SIZES = {"layers": 2, "experts": 16, "hidden": 128, "intermediate": 128}
LOAD = transformers.AutoModelForCausalLM.from_pretrained
TOKENS = torch.arange(2 * 9).view(2, 9) * 7 % 64

# name: preset, format, keys of config.json, packing of attention, other arguments
CASES = {
    "gpt-oss": ("gpt-oss-20b", None, {**SMALL, "layer_types": ["full_attention"] * 2}, None, {}),
    "qwen3-bf16": ("qwen3-30b-a3b", None, SMALL, None, {}),
    "qwen3-fp8": ("qwen3-30b-a3b", "fp8-block", SMALL, hf_checkpoint.fp8_block, {}),
    "deepseek-fp8": ("deepseek-v3", None, SMALL_MLA, hf_checkpoint.fp8_block, {"first": 1}),
    "qwen3-int4-ct": ("qwen3-30b-a3b", "int4-ct-g32", SMALL, hf_checkpoint.compressed_int4, {}),
    "mixtral-awq": ("mixtral-8x7b", "awq", SMALL, hf_checkpoint.awq, {}),
    "mixtral-gptq": ("mixtral-8x7b", "gptq", SMALL, hf_checkpoint.gptq, {}),
}


@pytest.fixture(autouse=True)
def registered():
    mt.register(threads=1, max_tokens=64)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    made = {}

    def make(name):
        if name not in made:
            preset, format, changes, pack, more = CASES[name]
            made[name] = hf_checkpoint.make(tmp_path_factory.mktemp("hf") / "m", preset, format, changes, pack, **SIZES, **more)
        return made[name]

    return make


def ours(path, dtype=torch.float32):
    return LOAD(path, dtype=dtype, experts_implementation="moxie")


def reference(path, dtype=torch.float32):
    """The same checkpoint, dequantized: by transformers where it can, by hf_checkpoint otherwise."""
    config = transformers.AutoConfig.from_pretrained(path)
    method = getattr(config, "quantization_config", {}).get("quant_method")
    if method in ("awq", "gptq", "compressed-tensors"):  # the last gives float32 models experts in bf16
        config.__dict__.pop("quantization_config")
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, experts_implementation="eager").eval()
        model.load_state_dict(hf_checkpoint.dequantized(path, method))
        return model
    return LOAD(path, dtype=dtype, experts_implementation="eager")


def logits(model, routes, replay):
    """Logits, with the choice of experts noted in `routes` or taken from there: near ties would hide everything else."""
    hooks = record(model, routes, replay)
    with torch.no_grad():
        result = model(TOKENS).logits.float()
    for hook in hooks:
        hook.remove()
    return result


@pytest.mark.parametrize("name", CASES)
def test_logits(name, directory):
    """Of the float32 model; and in bf16 no further from that than transformers' own bf16 model."""
    path, routes = directory(name), []
    if name == "qwen3-int4-ct":
        pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
    want = logits(reference(path), routes, False)
    assert distance(logits(ours(path), routes, True), want) < 3e-6
    eager = distance(logits(reference(path, torch.bfloat16), routes, True), want)
    assert distance(logits(ours(path, torch.bfloat16), routes, True), want) < max(1.1 * eager, 0.012) < 0.03
    without = ours(path)
    for module in experts(without):
        module.register_forward_hook(lambda module, arguments, result: result * 0)
    assert distance(logits(without, routes, True), want) > 0.012  # experts do matter


FORMATS = {
    "gpt-oss-20b": ["mxfp4-gptoss"],
    "qwen3-30b-a3b": ["bf16", "fp8-block", "fp8-channel", "int8-w8a8", "int4-ct", "int4-ct-asym", "nvfp4-ct", "gptq", "awq"],
    "mixtral-8x7b": ["fp8-tensor", "gptq-int8"],
}


@pytest.mark.parametrize("activations", ["16bit", "checkpoint"])
@pytest.mark.parametrize(("preset", "format"), [(preset, format) for preset in FORMATS for format in FORMATS[preset]])
def test_bits_are_those_of_the_library(preset, format, activations, tmp_path):
    """Of a plan for the same layer of the directory, and of the tool."""
    path = hf_checkpoint.make(tmp_path / "m", preset, format, CASES["gpt-oss"][2], **SIZES)
    mt.register(threads=1, max_tokens=64, activations=activations, from_files=True)
    module = experts(ours(path, torch.bfloat16))[1]
    top_k = module._moxie.top_k
    x, ids, weights = torch.randn(7, 128).to(torch.bfloat16), torch.randint(0, 17, (7, top_k)), torch.rand(7, top_k)
    with torch.no_grad():
        got = module(x, ids, weights)
    layer = moxie.Model(path, experts_only=True, activations=activations).layer(1, threads=1)
    assert torch.equal(got, layer.plan().run(x, ids=ids.int(), weights=weights)) and got.any()
    if activations == "checkpoint":
        hf_checkpoint.save_file({"hidden_states": x, "topk_ids": ids.int(), "topk_weights": weights}, tmp_path / "in.safetensors")
        files = ["--input", tmp_path / "in.safetensors", "-o", tmp_path / "out.safetensors"]
        command = [moxie._tool.path(), "run", path, "--layer", "1", "--threads", "1", *files]
        subprocess.run(command, check=True, capture_output=True)
        with hf_checkpoint.safe_open(tmp_path / "out.safetensors", "pt") as file:
            assert torch.equal(file.get_tensor("output"), got)


def test_the_model_holds_no_second_copy(directory):
    model = ours(directory("qwen3-fp8"), torch.bfloat16)
    assert not [name for name in model.state_dict() if ".experts." in name]
    assert all(module._moxie is not None and module.down_proj is None for module in experts(model))
    assert model.config.quantization_config.to_dict()["quant_method"] == "fp8"
    with pytest.raises(ValueError, match="not serializable"):
        model.save_pretrained("nowhere")
    assert moxie.transformers.prepare(model, release=True) == 2
    options = {"max_new_tokens": 4, "do_sample": False}
    text = model.generate(TOKENS[:1], **options)
    assert torch.equal(copy.deepcopy(model).generate(TOKENS[:1], **options), text)
    fast = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert torch.equal(fast(TOKENS, use_cache=False).logits, model(TOKENS, use_cache=False).logits)


def test_other_k_and_dtype(directory):
    (module, *_) = experts(ours(directory("mixtral-awq"), torch.bfloat16))
    x, ids, weights = torch.randn(4, 128), torch.tensor([[0, 16], [16, 16], [99, 5], [7, 1]]), torch.rand(4, 2)
    with torch.no_grad():
        y = module(x.bfloat16(), ids, weights)
        assert not y[1].any() and y[0].any() and y.dtype == torch.bfloat16
        assert module(x, ids, weights).dtype == torch.float32
        assert torch.equal(module(x, ids[:, 1:], weights[:, 1:])[0], torch.zeros(128))


def test_prepare_from_a_directory(directory, tmp_path):
    path = directory("mixtral-gptq")
    config = transformers.AutoConfig.from_pretrained(path)
    del config.quantization_config
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, experts_implementation="moxie").eval()
    assert mt.prepare(model, path) == 2
    other, x, ids, weights = ours(path, torch.bfloat16), torch.randn(3, 128).bfloat16(), torch.tensor([[0, 1]] * 3), torch.rand(3, 2)
    with torch.no_grad():
        assert all(torch.equal(a(x, ids, weights), b(x, ids, weights)) for a, b in zip(experts(model), experts(other)))
    for save in (lambda: model.save_pretrained(tmp_path / "saved"), copy.deepcopy(model).state_dict):
        with pytest.raises(moxie.Unsupported, match="layers.0.*experts: .*no form that could be saved"):
            save()


def test_prepare_from_a_gguf_file():
    file = pathlib.Path(__file__).parents[2] / "tests/golden/gguf/small.gguf"
    weights = moxie.Model(file, experts_only=True).load(0)
    c = weights.config
    config = transformers.Qwen3MoeConfig(vocab_size=64, hidden_size=c.hidden, num_hidden_layers=1, num_attention_heads=4, head_dim=16,
                                         num_key_value_heads=2, moe_intermediate_size=c.intermediate, num_experts=c.experts,
                                         num_experts_per_tok=c.top_k)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, experts_implementation="moxie")
    assert mt.prepare(model, file) == 1
    (module,) = experts(model)
    x, ids, gates = torch.randn(5, c.hidden).bfloat16(), torch.randint(0, c.experts, (5, c.top_k)), torch.rand(5, c.top_k)
    want = moxie.Layer.from_weights(weights, c.replace(dtype="bf16"), threads=1).plan().run(x, ids=ids.int(), weights=gates)
    with torch.no_grad():
        assert torch.equal(module(x, ids, gates), want) and want.any()


@pytest.mark.parametrize("others", [None, ["lm_head"]])
def test_a_gpu_keeps_linear_layers_in_fp8(others, directory):
    """What transformers does to the rest of the model where it runs FP8: experts stay with moxie."""
    from moxie import _hf_files
    from transformers.integrations.finegrained_fp8 import FP8Linear

    config = transformers.AutoConfig.from_pretrained(directory("qwen3-fp8"))
    described = {**config.__dict__.pop("quantization_config"), "modules_to_not_convert": others}
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
        found = _hf_files.sources(model, directory("qwen3-fp8"), "16bit")
        rest = _hf_files._rest_of(described, "a key", model, list(found))
        assert not rest.quantization_config.dequantize
        rest._process_model_before_weight_loading(model)
    assert len(experts(model)) == 2 and not any("FP8" in type(module).__name__ for module in experts(model))
    assert type(model.model.layers[0].self_attn.q_proj) is FP8Linear and type(model.lm_head) is torch.nn.Linear


# ---- transformers' own FP8 experts ------------------------------------------------------------------


@pytest.mark.parametrize(("block", "scale"), [((32, 32), torch.float32), ((128, 128), torch.float8_e8m0fnu), (None, torch.float32)])
def test_fp8_experts_of_transformers(block, scale):
    """The registry for FP8: a module with FP8 parameters, whose weights are those of its own dequantization."""
    from transformers.integrations import finegrained_fp8 as fp8
    from transformers.integrations.moe import use_experts_implementation

    made = use_experts_implementation(type("Experts", (fp8.FP8Experts,), {}), experts_interface=fp8.ALL_FP8_EXPERTS_FUNCTIONS)
    config = transformers.Qwen3MoeConfig(hidden_size=256, moe_intermediate_size=128, num_experts=4, num_experts_per_tok=2)
    config._experts_implementation = "moxie"
    fmt = "float" if scale == torch.float32 else "ue8m0"
    module, plain = made(config, block_size=block, scale_fmt=fmt), {}
    for name in ("gate_up_proj", "down_proj"):
        parameter, scales = getattr(module, name), getattr(module, name + "_scale_inv")
        parameter.data = (torch.randn(parameter.shape) * 50).to(torch.float8_e4m3fn)
        scales.data = torch.exp2(torch.randint(-10, -7, scales.shape).float()).to(scale)
        plain[name] = fp8.Fp8Dequantize(None)._dequantize_one(parameter.data, scales.data, torch.float32)
    assert mt.prepare(torch.nn.ModuleList([module])) == 1
    x, ids, weights = torch.randn(5, 256), torch.randint(0, 5, (5, 2)), torch.rand(5, 2)
    with torch.no_grad():
        got, want = module(x, ids, weights), torch.zeros(5, 256)
        for t, j in torch.cartesian_prod(torch.arange(5), torch.arange(2)).tolist():
            if ids[t, j] < 4:
                both = module._apply_gate(plain["gate_up_proj"][ids[t, j]] @ x[t])
                want[t] += weights[t, j] * (plain["down_proj"][ids[t, j]] @ both)
    assert torch.allclose(got, want, rtol=1e-4, atol=1e-5 * want.abs().max().item())


# ---- refusals ---------------------------------------------------------------------------------------


def change(path, tmp_path, **keys):
    """A copy of a checkpoint with other keys in config.json."""
    for file in path.iterdir():
        (tmp_path / file.name).hardlink_to(file)
    text = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({**text, **keys}))
    return tmp_path


def test_what_is_refused(directory, tmp_path, monkeypatch):
    path = directory("qwen3-fp8")
    other = change(path, tmp_path, quantization_config={"quant_method": "unheard-of"})
    with pytest.raises(moxie.Unsupported, match="self_attn.*outside the experts.*'unheard-of'"):
        ours(other)
    with pytest.raises(ValueError, match="16bit"):
        mt.register(activations="8bit")
    qwen = sys.modules["transformers.models.qwen3_moe.modeling_qwen3_moe"]
    monkeypatch.setattr(qwen.Qwen3MoeExperts, "_apply_gate", lambda self, both: both.chunk(2, -1)[0].sin())
    with pytest.raises(moxie.Unsupported, match="none of moxie's activations"):
        ours(path)


def test_a_model_without_experts_is_refused(directory):
    with pytest.raises(moxie.Unsupported, match="Qwen3ForCausalLM has no experts"):
        transformers.Qwen3ForCausalLM.from_pretrained(directory("qwen3-fp8"), experts_implementation="moxie")


def test_layers_that_are_not_there(directory):
    config = transformers.AutoConfig.from_pretrained(directory("qwen3-fp8"))
    del config.quantization_config
    config.num_hidden_layers = 3
    model = transformers.AutoModelForCausalLM.from_config(config, experts_implementation="moxie")
    with pytest.raises(moxie.Unsupported, match=r"layers.2.mlp.experts is not one of the MoE layers"):
        mt.prepare(model, directory("qwen3-fp8"))
    assert model.model.layers[0].mlp.experts.down_proj is not None  # nothing half done
    with pytest.raises(moxie.FileError):
        mt.prepare(model, "nowhere")
    config.num_hidden_layers, config.num_experts = 2, 8
    model = transformers.AutoModelForCausalLM.from_config(config, experts_implementation="moxie")
    with pytest.raises(moxie.Unsupported, match=r"\[8, .*16, 128, 128"):
        mt.prepare(model, directory("qwen3-fp8"))
    assert model.model.layers[0].mlp.experts.down_proj is not None


# ---- packed linear layers ---------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_words(bits):
    from moxie._hf_linear import unpack

    codes = torch.randint(0, 2**bits, (5, 96))
    stream = [sum(int(c) << bits * i for i, c in enumerate(row)) for row in codes]
    words = [[(value >> 32 * w & 0xFFFFFFFF) for w in range(3 * bits)] for value in stream]
    packed = torch.tensor(words).to(torch.int32) if bits < 2 else torch.tensor(words).apply_(lambda v: v - 2**32 if v >= 2**31 else v)
    assert torch.equal(unpack(packed.to(torch.int32), bits).long(), codes)


@pytest.mark.parametrize(("rows", "columns"), [(576, 200), (144, 128), (64, 64), (256, 384)])
def test_fp8_blocks_that_are_cut_off(rows, columns):
    """As kv_a_proj_with_mqa of DeepSeek-V3, whose 576 rows have five scales."""
    from moxie._hf_linear import take_any_shape
    from transformers.quantizers import auto

    weight = torch.randn(rows, columns) * torch.linspace(0.1, 9, rows)[:, None]
    packed = hf_checkpoint.fp8_block("w", weight)
    config = auto.AutoQuantizationConfig.from_dict({"quant_method": "fp8", "weight_block_size": [128, 128], "dequantize": True})
    quantizer = take_any_shape(auto.AutoHfQuantizer.from_config(config, pre_quantized=True))
    got = quantizer.get_load_operations()["dequantize"](quantizer)._dequantize_one(packed["w"], packed["w_scale_inv"], torch.float32)
    scales = packed["w_scale_inv"].repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]
    assert torch.equal(got, packed["w"].float() * scales)


def resident(path):
    """Bytes of a file's mappings that are in memory."""
    maps = pathlib.Path("/proc/self/smaps").read_text().split(str(path))
    return sum(1024 * int(part.split("Rss:")[1].split()[0]) for part in maps[1:])


def test_pages_that_were_read_for_the_last_time(tmp_path):
    from moxie._hf_linear import let_go

    path, count = tmp_path / "numbers", 1 << 20
    torch.arange(count, dtype=torch.int32).numpy().tofile(path)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE) as probe:
        os.fsync(file.fileno())  # pages that wait to be written stay
        assert len(bytes(probe)) == 4 * count
        probe.madvise(21)
        if resident(path) > count:
            pytest.skip("the system keeps pages in memory that MADV_PAGEOUT is for")
    tensor = torch.tensor([], dtype=torch.int32).set_(torch.UntypedStorage.from_file(str(path), False, 4 * count))
    tensor[3000] = -7  # this process's alone
    assert tensor.long().sum() == count * (count - 1) // 2 - 3007 and resident(path) > 3 * count
    let_go(tensor[5:-5])
    assert resident(path) < count
    assert tensor[3000] == -7 and tensor.long().sum() == count * (count - 1) // 2 - 3007
    let_go(tensor[:, None][::2], tensor[:3], torch.empty(2, device="meta"))  # nothing to do
