# SPDX-License-Identifier: Apache-2.0
"""Routing by a Python callable; slot maps; vLLM's parallel settings; load balancing."""

import threading
import time

import moxie
import numpy as np
import pytest
from conftest import states
from moxie import parallel
from test_long import grows


def custom_layer(checkpoint, function, **options):
    weights = moxie.Model(checkpoint("qwen3-30b-a3b", "fp8-block")).load(0)
    config = weights.config
    config.routing = moxie.Routing.by_name("custom", custom=function)
    return moxie.Layer.from_weights(weights, config, threads=1, max_tokens=16, **options)


def test_a_callable_chooses(checkpoint):
    weights = moxie.Model(checkpoint("qwen3-30b-a3b", "fp8-block")).load(0)
    k = weights.config.top_k
    seen = []

    def choose(logits):
        seen.append(logits)
        values = np.asarray(logits)
        ids = np.argsort(values, axis=1)[:, :k].astype(np.int32)  # the worst ones
        return ids, np.take_along_axis(values, ids, 1)

    layer = custom_layer(checkpoint, choose)
    assert layer.config.routing.custom is choose
    plan, x = layer.plan(), states(5)
    ids, w = plan.route(x)
    assert seen[0].shape == (5, 8) and seen[0].dtype == "f32"
    logits = np.empty((5, 8), np.float32)
    other = moxie.Layer.from_weights(weights, threads=1, max_tokens=16).plan()
    other.route(x, logits_out=logits)
    assert np.array_equal(np.asarray(seen[0]), logits)  # what the callable may keep
    want = np.argsort(logits, axis=1)[:, :k].astype(np.int32)
    assert np.array_equal(ids, want) and np.array_equal(w, np.take_along_axis(logits, want, 1))
    assert np.array_equal(plan.run(x), other.run(x, ids=np.asarray(ids), weights=np.asarray(w)))
    assert plan.run(states(0)).shape == (0, 256)
    # wide ids are taken, too
    wide = custom_layer(checkpoint, lambda logits: (choose(logits)[0].astype(np.int64), choose(logits)[1]))
    assert np.array_equal(wide.plan().run(x), plan.run(x))


def test_what_a_callable_gets_wrong(checkpoint):
    x = states(3)
    k = moxie.Model(checkpoint("qwen3-30b-a3b", "fp8-block")).load(0).config.top_k
    ids, w = np.zeros((3, k), np.int32), np.zeros((3, k), np.float32)
    for answer, kind, words in ((lambda _: 1 / 0, ZeroDivisionError, "division"), (lambda _: None, moxie.ArgumentError, "tuple"),
                                (lambda _: (ids,), moxie.ArgumentError, "tuple"),
                                (lambda _: (ids[:2], w), moxie.ArgumentError, "ids that are"),
                                (lambda _: (ids, w.astype(np.float64)), moxie.ArgumentError, "weights that are"),
                                (lambda _: (ids.astype(np.uint8), w), moxie.ArgumentError, "ids that are")):
        plan = custom_layer(checkpoint, answer).plan()
        for _ in range(2):  # a plan survives a run that failed
            with pytest.raises(kind, match=words):
                plan.run(x)
    with pytest.raises(TypeError, match="custom: a callable is wanted"):
        moxie.LayerConfig(routing=moxie.Routing(custom=3)).check()
    with pytest.raises(moxie.ArgumentError):
        custom_layer(checkpoint, None)


def test_a_callable_on_several_ranks(checkpoint):
    """It sees the tokens of its rank; the output has the bytes of one rank."""
    from test_comm import mail, on_ranks

    weights = moxie.Model(checkpoint("qwen3-30b-a3b", "fp8-block")).load(0)
    k = weights.config.top_k

    def choose(logits):
        values = np.asarray(logits)
        ids = np.argsort(values, axis=1)[:, :k].astype(np.int32)
        return ids, np.take_along_axis(values, ids, 1)

    config = weights.config
    config.routing = moxie.Routing.by_name("custom", custom=choose)
    x = states(6)
    want = moxie.Layer.from_weights(weights, config, threads=1, max_tokens=16).plan().run(x)

    def work(c):
        mine = config.replace(ep_size=2, ep_rank=c.rank)
        plan = moxie.Layer.from_weights(weights, mine, comm=c, threads=1, max_tokens=16).plan()
        return plan.run(x[3 * c.rank : 3 * c.rank + 3])

    assert np.array_equal(np.concatenate(on_ranks(mail(2), work)), want)

    def fail(logits):
        raise LookupError("no")

    config.routing = moxie.Routing.by_name("custom", custom=fail)

    def refused(c):
        mine = config.replace(ep_size=2, ep_rank=c.rank)
        plan = moxie.Layer.from_weights(weights, mine, comm=c, threads=1, max_tokens=16).plan()
        with pytest.raises((LookupError, moxie.Error)) as caught:
            plan.run(x[:3])
        return caught.type

    assert on_ranks(mail(2, deadline_ms=20000), refused) == [LookupError] * 2


def test_callables_do_not_leak(checkpoint):
    answer = (np.zeros((1, 8), np.int32), np.zeros((1, 8), np.float32))
    plan = custom_layer(checkpoint, lambda logits: answer).plan()
    x = states(1)
    assert grows(lambda: plan.run(x), 2000) < 1 << 20


def test_slot_maps():
    m = moxie.SlotMap.default(4, 2, 6)
    assert m == moxie.SlotMap((0, 1, 2, 3, 0, 1), (0, 3, 6), 4) and (m.ranks, m.slots) == (2, 6)
    m.check()
    counts, slots = m.replicas()
    assert counts.tolist() == [2, 2, 1, 1] and slots.tolist() == [[0, 4], [1, 5], [2, -1], [3, -1]]
    assert m.to_logical() == slots.tolist() and m.to_logical(3)[2] == [2, -1, -1]
    assert moxie.SlotMap.from_logical(m.to_logical(), 6, 2) == m == moxie.SlotMap.from_physical(m.to_physical(), 2, 4)
    assert moxie.SlotMap.from_physical(range(7), 3, 7).first_slot == (0, 3, 5, 7)
    loads, balanced = m.loads([4, 2, 1, 1])
    assert loads == [4, 4] and balanced == 1
    left = m.without([0])
    left.check()
    assert left.ranks == 1 and set(left.expert_of) >= {0, 1, 2, 3} and left.generation == 1
    moved = moxie.SlotMap((2, 0, 1, 1, 0, 3), (0, 3, 6), 4)
    kept = moved.keep_slots(m)
    assert kept.expert_of == (0, 1, 2, 3, 0, 1)
    for wrong, words in ((moxie.SlotMap((0, 0), (0, 2), 2), "expert 1"), (moxie.SlotMap((0, 1), (0, 3), 2), "first_slot"),
                         (moxie.SlotMap((), (0,), 2), "first_slot"), (moxie.SlotMap((0, 9), (0, 2), 2), "9")):
        with pytest.raises(moxie.ArgumentError, match=words):
            wrong.check()
    config = moxie.LayerConfig.preset("gpt-oss-20b").replace(ep_size=2, slot_map=moxie.SlotMap.default(32, 2, 34))
    config.check()
    with pytest.raises(moxie.Mismatch, match="for 4 experts"):
        config.replace(slot_map=m).check()


def test_balance():
    """The worked example of DeepSeek's EPLB repository."""
    loads = [[90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86], [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27]]
    maps = parallel.balance(loads, slots=16, ranks=8, nodes=2, groups=4)
    assert [list(m.expert_of) for m in maps] == [[5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1],
                                                 [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1]]
    assert maps[0].first_slot == tuple(range(0, 17, 2))
    assert len(parallel.balance(loads[0], slots=12, ranks=5)) == 1
    with pytest.raises(moxie.ArgumentError):
        parallel.balance([1.0, float("nan")], slots=2, ranks=1)
    with pytest.raises(moxie.ArgumentError):
        parallel.balance(loads, slots=0, ranks=1)


def test_slices_and_rows():
    config = moxie.LayerConfig.preset("qwen3-30b-a3b", "bf16")
    parts = [parallel.tp_slice(config, 3, rank) for rank in range(3)]
    assert [i for gate, _, _ in parts for i in gate] == list(range(config.intermediate))  # end to end
    assert [i for _, down, _ in parts for i in down] == list(range(config.hidden)) and not any(c for _, _, c in parts)
    shared = moxie.LayerConfig.preset("deepseek-v3", "fp8-block")
    parts = [parallel.tp_slice_shared(shared, 3, rank) for rank in range(3)]
    assert [i for gate, _, _, _ in parts for i in gate] == list(range(shared.shared.intermediate))
    assert [i for _, down, _, _ in parts for i in down] == list(range(shared.hidden))
    assert all(0 < here < whole for _, _, here, whole in parts)
    assert parallel.tp_slice_shared(config, 3, 0) == (range(0, 0), range(0, 0), 0, 0)
    dispatch, result = parallel.exchange_row_bytes(config)
    assert dispatch >= 2 * config.hidden and result == 4 * config.hidden
    assert parallel.exchange_row_bytes(config.replace(round_results=True))[1] == 2 * config.hidden
    assert parallel.exchange_row_bytes(config, max_adapter_rank=8) == (dispatch + 4, result)
    assert parallel.exchange_row_bytes(config, token_layout="replicated") == (0, result)
    for call in (lambda: parallel.tp_slice(config, 3, 3), lambda: parallel.tp_slice(config, 2, 0, "slow")):
        with pytest.raises(moxie.ArgumentError):
            call()


def test_vllm_s_settings():
    args = parallel.ParallelArgs(tp_size=2, dp_size=4, tp_rank=1, dp_rank=2, enable_expert_parallel=True)
    made = parallel.make(args)
    assert (made.ep_size, made.ep_rank, made.tp_size, made.use_ep) == (8, 5, 1, True)  # dp_rank * 2 + tp_rank
    layer = parallel.FusedMoEArgs(num_logical_experts=64, experts_per_token=8, hidden_dim=256, intermediate_size=128)
    placed = parallel.plan(args, layer)
    assert (placed.ranks, placed.rank, placed.ep_size, placed.ep_rank) == (8, 5, 8, 5) and placed.vllm_accepts
    moxie.LayerConfig.preset("qwen3-30b-a3b").replace(**placed.config()).check()
    assert parallel.check_vllm(args, layer).num_local_experts == 8
    assert parallel.predicate(args, "use_all2all_kernels") and "is_sequence_parallel" in parallel.predicates()
    assert {b.name for b in parallel.all2all_backends()} >= {"naive", "deepep_low_latency"}
    for call in (lambda: parallel.make(parallel.ParallelArgs(tp_size=2, tp_rank=2)),
                 lambda: parallel.make(parallel.ParallelArgs(all2all_backend="pigeon")),
                 lambda: parallel.predicate(args, "use_pigeons"), lambda: parallel.plan(args, parallel.FusedMoEArgs())):
        with pytest.raises(moxie.ArgumentError):
            call()


def until_it_waits(thread):
    """Until it has slept for a fifth of a second, whenever it was looked at."""
    asleep, end = 0, time.monotonic() + 60
    while asleep < 20 and time.monotonic() < end:
        time.sleep(0.01)
        with open(f"/proc/self/task/{thread.native_id}/stat") as file:
            asleep = asleep + 1 if file.read().rpartition(")")[2].split()[0] == "S" else 0


def test_an_update_goes_before_runs_that_come_later(checkpoint):
    """Else plans that run all the time would never let it in."""
    weights = moxie.Model(checkpoint("qwen3-30b-a3b", "fp8-block")).load(0)
    k, results, went, go = weights.config.top_k, [], [], threading.Event()

    def choose(logits):
        went.append("run")
        assert go.wait(60)
        return np.zeros((1, k), np.int32), np.ones((1, k), np.float32)

    def update():
        layer.update_expert(0, weights, 1)

    def run():
        results.append(layer.plan().run(states(1)))

    layer = custom_layer(checkpoint, choose)
    threads = [threading.Thread(target=work) for work in (run, update, run)]
    for thread in threads:
        thread.start()
        until_it_waits(thread)  # the second for the first, the third for the second
    assert went == ["run"]
    go.set()
    for thread in threads:
        thread.join()
    new = layer.plan().run(states(1))
    assert sorted(np.array_equal(y, new) for y in results) == [False, True]
