# SPDX-License-Identifier: Apache-2.0
"""moxie.torch: the operator and the module give the bits of Plan.run, eager and compiled."""

import gc
import pathlib
import re

import moxie
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import moxie.torch as mt  # noqa: E402
from torch import library  # noqa: E402


CHECKS = ("test_schema", "test_faketensor", "test_autograd_registration")


def hidden(tokens, seed=0):
    return torch.randn(tokens, 256, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


@pytest.fixture
def moe(layer):
    return mt.MoELayer(layer, max_tokens=4)


def test_bits_are_those_of_the_plan(plan, moe):
    for tokens in (0, 1, 3, 4, 5, 37):  # more than the plan holds, too
        x = hidden(tokens)
        want = plan.run(x)
        assert torch.equal(moe(x), want) and (tokens == 0 or want.any())
        ids, weights = plan.route(x)
        assert torch.equal(moe(x, ids, weights), want)
        assert torch.equal(moe(x, ids.long(), weights), want)
        logits = torch.randn(tokens, 8).to(torch.bfloat16)
        assert torch.equal(moe(x, logits=logits), plan.run(x, logits=logits))


def test_shapes_strides_and_gradients(plan, moe):
    x = hidden(6)
    want = plan.run(x)
    assert torch.equal(moe(x.view(2, 3, 256)), want.view(2, 3, 256))
    opened = mt._open[moe.number]
    assert (opened.ready[0], opened.large[0]) == (4, 8)  # 6 tokens have the plan that grows
    assert torch.equal(moe(x.t().contiguous().t()), want)
    wants = x.clone().requires_grad_()
    y = moe(wants)
    assert torch.equal(y, want)
    compiled = torch.compile(moe, fullgraph=True, backend="aot_eager")
    for call in (moe, lambda x: torch.ops.moxie.fused_moe(x, moe.number), compiled):  # the last one before it is run
        with pytest.raises(Exception, match="no backward pass"):
            call(wants).sum().backward()
    with torch.no_grad():
        assert not moe(wants).requires_grad and torch.equal(compiled(wants), want)


def test_layers_share_a_workspace(layer, plan):
    """Many layers, one workspace, as large as the largest needs; in eight threads they take turns."""
    import threading

    workspace = moxie.Workspace()
    layers = [mt.MoELayer(layer, max_tokens=4, workspace=workspace, threads=1) for _ in range(8)]
    needed = layer.plan(max_tokens=4, threads=1).workspace_bytes
    assert workspace.nbytes == needed > 0
    x = [hidden(3, seed) for seed in range(8)]
    want, wrong = [plan.run(a) for a in x], []

    def work(i):
        for _ in range(30):
            if not torch.equal(layers[i](x[i]), want[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and workspace.nbytes == needed
    big = hidden(9)
    assert torch.equal(layers[0](big), plan.run(big)) and workspace.nbytes > needed
    assert layer.plan(workspace=workspace).run(big).equal(plan.run(big))
    (comm,) = moxie.Comm.local(1)
    with pytest.raises(moxie.ArgumentError, match="wait for each other"):
        layer.plan(comm=comm, workspace=workspace)


def test_skipped_ids(plan, moe):
    x = hidden(3)
    ids, weights = plan.route(x)
    ids[1], ids[2] = -1, 8
    y = moe(x, ids, weights)
    assert torch.equal(y[0], plan.run(x)[0]) and not y[1:].any()
    wide = torch.as_tensor(ids).long()  # none of them is an expert by its lower 32 bits
    wide[1], wide[2, :2], wide[2, 2:] = 1 << 32, torch.iinfo(torch.int64).min, (5 << 32) + 3
    assert torch.equal(moe(x, wide, weights), y)


def test_adapters(layer):
    """LoRA: each token its adapter, eager and compiled."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    moe, adapters = mt.MoELayer(layer, max_tokens=16, max_adapter_rank=4), moxie.Adapters(layer, 2)
    for number in range(2):
        a, b = torch.randn(8, 3, 256), torch.randn(8, 256, 3) / 8
        adapters.set(number, gate_a=a, gate_b=b, down_a=a / 2, down_b=b)
    opened = mt.open_adapters(adapters)
    x, numbers = hidden(6), torch.tensor([0, -1, 1, 1, 0, -1])
    plan = layer.plan(max_adapter_rank=4)
    want = plan.run(x, adapters=adapters, adapter_ids=numbers.int())
    assert torch.equal(moe(x, adapters=opened, adapter_ids=numbers), want)
    assert torch.equal(moe(x)[1], want[1]) and not torch.equal(moe(x)[0], want[0])
    x3, n3 = x.view(2, 3, 256), numbers.view(2, 3)
    fast = torch.compile(moe, fullgraph=True, backend="aot_eager")
    assert torch.equal(fast(x3, adapters=opened, adapter_ids=n3).view(6, 256), want)
    with pytest.raises(ValueError, match="belong together"):
        moe(x, adapters=opened)
    with pytest.raises(ValueError, match="adapter_ids must be"):
        moe(x, adapters=opened, adapter_ids=numbers[:2])
    with pytest.raises(moxie.ArgumentError, match="2147483647"):
        moe(x, adapters=opened, adapter_ids=numbers + (1 << 32))
    mt.close_adapters(opened)
    with pytest.raises(ValueError, match="are not open"):
        moe(x, adapters=opened, adapter_ids=numbers)


def test_compiled_without_a_graph_break(plan, moe):
    torch._dynamo.reset()

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.moe = moe

        def forward(self, x, ids, weights):
            return x + self.moe(x * 2, ids, weights), self.moe(x)

    block = Block()
    fast = torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=True)
    for tokens in (5, 2, 9):
        x = hidden(tokens, tokens)
        ids, weights = plan.route(x)
        for got, want in zip(fast(x, ids.long(), weights), block(x, ids, weights)):
            assert torch.equal(got, want)


def test_compiled_by_inductor(plan, moe):
    torch._dynamo.reset()
    x = hidden(5)
    try:
        y = torch.compile(moe, fullgraph=True)(x)
    except torch._inductor.exc.InductorError as error:
        pytest.skip(f"inductor cannot compile here: {error}")
    assert torch.equal(y, plan.run(x))


def test_the_operator_keeps_its_promises(plan, moe):
    x = hidden(3)
    ids, weights = plan.route(x)
    library.opcheck(torch.ops.moxie.fused_moe.default, (x, moe.number, ids, weights), test_utils=CHECKS)
    library.opcheck(torch.ops.moxie.fused_moe.default, (x, moe.number), test_utils=CHECKS)


def test_wrong_arguments(plan, moe):
    x = hidden(3)
    ids, weights = plan.route(x)
    for arguments, words in (((x.float(),), r"hidden must be \[3, 256\] of bfloat16 on cpu; it is \[3, 256\] of float32"),
                             ((x[:, :8],), "hidden must be"), ((x, ids), "ids and weights belong together"),
                             ((x, ids[:2], weights), r"ids must be \[3, 4\]"), ((x, ids, weights[:, :1]), "weights must be"),
                             ((x, ids.float(), weights), "int32 or int64"),
                             ((x, None, None, x), r"logits must be \[3, 8\]")):
        with pytest.raises(ValueError, match=words):
            moe(*arguments)
    with pytest.raises(ValueError, match="hidden must be"):
        mt.fused_moe(x[0], moe.number)
    with pytest.raises(ValueError, match="layer 0 is not open"):
        mt.fused_moe(x, 0)


def test_a_layer_without_router(checkpoint):
    weights = moxie.Model(checkpoint(), experts_only=True).load(0)
    alone = mt.MoELayer(moxie.Layer.from_weights(weights, weights.config.replace(router_width=0), threads=1))
    with pytest.raises(ValueError, match="no router"):
        alone(hidden(2))


def test_threads_that_end(monkeypatch):
    """The pool of engines looks at all threads of the process, of which some may have ended when it comes to them."""
    from moxie import _engine

    listdir, before = _engine.os.listdir, _engine.os.sched_getaffinity(0)
    monkeypatch.setattr(_engine.os, "listdir", lambda path: [*listdir(path), "2147483647"])
    monkeypatch.setattr(_engine, "_pool", None)
    assert isinstance(_engine.threads(), moxie.Executor)
    assert _engine.os.sched_getaffinity(0) == before


def test_layers_are_given_up(layer):
    moe = mt.MoELayer(layer)
    number = moe.number
    assert number in mt._open
    del moe
    gc.collect()
    assert number not in mt._open


def test_the_module(checkpoint, plan):
    moe = mt.MoELayer.from_model(checkpoint(), 0, threads=1, max_tokens=8)
    x = hidden(5)
    assert torch.equal(moe(x), plan.run(x))
    assert not list(moe.parameters()) and "8 experts" in repr(moe)


def raw(tensor):
    return tensor.contiguous().view(torch.uint8)


@pytest.mark.parametrize("preset, format", (("gpt-oss-20b", "mxfp4-gptoss"), ("qwen3-30b-a3b", "fp8-block"),
                                            ("qwen3-30b-a3b", "awq"), ("deepseek-v3", "fp8-block")))
def test_the_state_dict_is_the_checkpoint_s(checkpoint, tmp_path, preset, format):
    from conftest import read_safetensors

    here = checkpoint(preset, format, 16)
    moe = mt.MoELayer.from_model(here, threads=1, max_tokens=8)
    files = {}
    for file in here.glob("*.safetensors"):
        files |= read_safetensors(file)
    state = moe.state_dict(prefix=moe.prefix)
    assert set(state) == {n for n in files if n.startswith(moe.prefix)} and len(state) > 4
    for name, tensor in state.items():
        assert raw(tensor).numpy().tobytes() == files[name].tobytes(), name
    # other numbers go in, and come out again; the outputs are those of a checkpoint that has them
    x = hidden(5)
    before = moe(x)
    # of every tensor the first half changes places with the second one: still numbers of the format
    other = {n: (t.roll(t.shape[0] // 2, 0) if t.dtype.itemsize > 1 else t.view(torch.uint8).roll(t.shape[0] // 2, 0).view(t.dtype))
             if ".experts." in n and "gate.weight" not in n and t.dim() else t for n, t in state.items()}
    moved = {n[len(moe.prefix) :]: t for n, t in other.items()}
    assert not moe.load_state_dict(moved).missing_keys
    model = moxie.Model(here, {n: t.contiguous() for n, t in other.items()})
    want = model.layer(threads=1, max_tokens=8).plan().run(x)
    assert torch.equal(moe(x), want) and not torch.equal(want, before)
    again = moe.state_dict()
    assert set(again) == set(moved) and all(torch.equal(raw(again[n]), raw(moved[n])) for n in moved)
    # through torch's own file, mapped, into a module in a model
    torch.save(moe.state_dict(), tmp_path / "state.pt")
    fresh = torch.nn.ModuleDict({"mlp": mt.MoELayer.from_model(here, threads=1, max_tokens=8)})
    loaded = torch.load(tmp_path / "state.pt", mmap=True)
    fresh.load_state_dict({f"mlp.{n}": t for n, t in loaded.items()})
    assert torch.equal(fresh["mlp"](x), want)
    fresh.load_state_dict({f"mlp.{n[len(moe.prefix):]}": t for n, t in state.items()})
    assert torch.equal(fresh["mlp"](x), before)


def test_a_state_dict_that_does_not_fit(checkpoint):
    moe = mt.MoELayer.from_model(checkpoint("qwen3-30b-a3b", "fp8-block"), threads=1, max_tokens=8)
    x, state = hidden(3), moe.state_dict()
    want = moe(x)
    name = next(n for n in state if n.endswith("down_proj.weight"))
    with pytest.raises(RuntimeError, match="Missing key"):
        moe.load_state_dict({n: t for n, t in state.items() if n != name})
    with pytest.raises(RuntimeError, match="Unexpected key.*nobody"):
        moe.load_state_dict({**state, "nobody": torch.zeros(1)})
    with pytest.raises(RuntimeError, match=name.split(".")[-2]):
        moe.load_state_dict({**state, name: state[name][:8]})
    assert torch.equal(moe(x), want)  # nothing was packed
    alone = mt.MoELayer(moe.layer)
    assert alone.prefix == "" and not alone.state_dict()


def test_a_gguf_file_has_no_state_dict():
    file = pathlib.Path(__file__).parents[2] / "tests/golden/gguf/small.gguf"
    moe = mt.MoELayer.from_model(file, threads=1, max_tokens=8)
    for call in (moe.state_dict, lambda: moe.load_state_dict({})):
        with pytest.raises(moxie.Unsupported, match="small.gguf.*MoELayer"):
            call()
    assert not mt.MoELayer(moe.layer).state_dict()


def test_docs(checkpoint, tmp_path, monkeypatch):
    """The torch blocks of docs/python.md."""
    text = (pathlib.Path(__file__).parents[2] / "docs" / "python.md").read_text()
    first, second = re.findall(r"```python torch\n(.*?)```", text, re.S)
    (tmp_path / "model").symlink_to(checkpoint("qwen3-30b-a3b", "fp8-block"))
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(first, names)
    assert torch.equal(names["y"], names["moe"](names["x"]))
    exec(second, names)
    assert "model.layers.0.mlp.experts.0.down_proj.weight" in names["state"]
    assert torch.equal(names["moe"](names["x"]), names["moe"](names["x"], *names["moe"].layer.plan().route(names["x"])))
