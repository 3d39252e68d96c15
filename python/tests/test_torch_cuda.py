# SPDX-License-Identifier: Apache-2.0
"""moxie.torch and moxie.transformers on a real GPU: tensors of torch on its streams, in CUDA graphs, compiled."""

import copy
import os

import moxie
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("torch has no CUDA device here", allow_module_level=True)
if "cuda_plain" in os.environ.get("MOXIE_CUDA_LIBRARY", "") or not moxie.cuda_info().devices:
    pytest.skip(f"libmoxie_cuda has no device: {moxie.cuda_info()}", allow_module_level=True)

import moxie.torch as mt  # noqa: E402
from test_bits import FORMATS  # noqa: E402


def hidden(tokens, seed=0, width=256):
    return torch.randn(tokens, width, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def made(checkpoint, preset="gpt-oss-20b", format=None, **options):
    directory = checkpoint(preset, format, 16 if preset == "deepseek-v3" else 8)
    return moxie.Model(directory).layer(backend="cuda", **{"max_tokens": 64, **options})


@pytest.fixture(scope="module")
def gpu(checkpoint):
    return made(checkpoint)


@pytest.mark.parametrize(("preset", "format"), FORMATS)
def test_bits_are_those_of_host_arrays(checkpoint, preset, format):
    layer = made(checkpoint, preset, format)
    plan, moe = layer.plan(), mt.MoELayer(layer, max_tokens=8)
    for tokens in (1, 5, 37):
        x = hidden(tokens, tokens)
        want = plan.run(x)
        assert want.any() and not want.isnan().any()
        got = moe(x.cuda())
        assert got.is_cuda and torch.equal(got.cpu(), want), tokens
        ids, weights = plan.route(x)
        assert torch.equal(moe(x.cuda(), ids.long().cuda(), weights.cuda()).cpu(), want), tokens


def test_plans_take_tensors_by_dlpack(gpu):
    plan = gpu.plan()
    plan = gpu.plan(workspace=torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda"))
    x = hidden(9)
    want = gpu.plan().run(x)
    out = torch.full((9, 256), float("nan"), dtype=torch.bfloat16, device="cuda")
    assert plan.run(x.cuda(), out=out) is out and torch.equal(out.cpu(), want)
    ids, weights = plan.route(x)
    out.fill_(float("nan"))
    plan.run(x.cuda(), out=out, ids=ids.cuda(), weights=weights.cuda())
    assert torch.equal(out.cpu(), want)


def test_cupy_arrays(gpu):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    plan = gpu.plan(workspace=cupy.empty(gpu.plan().workspace_bytes, cupy.uint8))
    out = torch.empty(9, 256, dtype=torch.bfloat16, device="cuda")
    x = hidden(9).cuda()
    torch.cuda.synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    plan.run(x, out=out, stream=stream)
    stream.synchronize()
    assert torch.equal(out.cpu(), gpu.plan().run(hidden(9)))


def test_other_streams(gpu):
    """What the stream's earlier work writes is what the layer reads, and later work sees its result."""
    moe, x, slow = mt.MoELayer(gpu, max_tokens=64), hidden(64).cuda(), torch.randn(4096, 4096, device="cuda")
    want = moe(x).clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    for _ in range(20):
        late, out = torch.zeros_like(x), torch.zeros_like(x)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for _ in range(4):
                slow @ slow
            late.copy_(x)
            out.copy_(moe(late))
            late.zero_()
        stream.synchronize()
        assert torch.equal(out, want)


def test_a_captured_run_has_new_routing_at_each_replay(gpu):
    moe, plan = mt.MoELayer(gpu, max_tokens=16), gpu.plan()
    x = hidden(16).cuda()
    warm = torch.cuda.Stream()
    with torch.cuda.stream(warm):
        moe(x)
    warm.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = moe(x)
    for seed in range(1, 6):
        x.copy_(hidden(16, seed))
        graph.replay()
        assert torch.equal(y.cpu(), plan.run(hidden(16, seed))), seed
    moe(hidden(100).cuda())  # a larger plan takes the place of the graph's, whose memory stays
    x.copy_(hidden(16, 7))
    graph.replay()
    assert torch.equal(y.cpu(), plan.run(hidden(16, 7)))


def test_adapters(gpu):
    torch.manual_seed(0)
    moe, adapters = mt.MoELayer(gpu, max_tokens=16, max_adapter_rank=4), moxie.Adapters(gpu, 2)
    for number in range(2):
        a, b = torch.randn(8, 3, 256), torch.randn(8, 256, 3) / 8
        adapters.set(number, gate_a=a, gate_b=b, down_a=a / 2, down_b=b)
    x, numbers = hidden(6), torch.tensor([0, -1, 1, 1, 0, -1])
    want = gpu.plan(max_adapter_rank=4).run(x, adapters=adapters, adapter_ids=numbers.int())
    got = moe(x.cuda(), adapters=mt.open_adapters(adapters), adapter_ids=numbers.cuda()).cpu()
    assert torch.equal(got, want) and torch.equal(got[1], moe(x.cuda())[1].cpu()) and not torch.equal(got[0], moe(x.cuda())[0].cpu())


def test_compiled(gpu):
    torch._dynamo.reset()
    moe, plan = mt.MoELayer(gpu, max_tokens=64), gpu.plan()

    class Block(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.rms_norm(x, (256,)) + moe(x)

    block = Block()
    block.moe = moe
    for mode in ("default", "reduce-overhead"):
        fast = torch.compile(block, fullgraph=True, mode=mode)
        for tokens in (5, 5, 5):
            x = hidden(tokens).cuda()
            torch.compiler.cudagraph_mark_step_begin()
            got = fast(x).clone()
            want = torch.nn.functional.rms_norm(x, (256,)) + plan.run(hidden(tokens)).cuda()
            assert (got.float() - want.float()).abs().max() < 0.02 * want.float().abs().max(), mode


def test_wrong_devices(gpu):
    moe, x = mt.MoELayer(gpu, max_tokens=8), hidden(3)
    with pytest.raises(ValueError, match="on cuda:0; it is .* on cpu"):
        moe(x)
    ids, weights = gpu.plan().route(x)
    with pytest.raises(ValueError, match="ids must be .* on cuda:0"):
        moe(x.cuda(), ids, weights.cuda())
    with pytest.raises(moxie.ArgumentError, match="all arrays of a call are in one place"):
        gpu.plan().run(x.cuda(), out=torch.empty_like(x))


def test_memory_stays_flat(gpu):
    moe, x = mt.MoELayer(gpu, max_tokens=8), hidden(8).cuda()
    moe(x)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
    for _ in range(2000):
        y = moe(x)
    del y
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before[0] + x.nbytes and torch.cuda.mem_get_info()[0] >= before[1] - (8 << 20)


@pytest.mark.parametrize("family", ["Qwen3Moe", "DeepseekV3", "GptOss"])
def test_transformers_on_a_gpu(family):
    pytest.importorskip("transformers.integrations.moe", reason="this transformers has no interface for experts")
    import moxie.transformers
    from hf_checkpoint import distance
    from test_transformers import logits, make

    moxie.transformers.register(max_tokens=64)
    model, tokens, routes = make(family), torch.arange(2 * 9).view(2, 9) * 7 % 64, []
    want = logits(model, tokens, "eager", routes, replay=False)
    half = copy.deepcopy(model).to(torch.bfloat16).cuda()
    routes = [tuple(t.cuda() for t in route) for route in routes]
    eager = logits(half, tokens.cuda(), "eager", routes).cpu()
    ours = logits(half, tokens.cuda(), "moxie", routes).cpu()
    assert distance(ours, want) < 1.1 * distance(eager, want) < 0.05
