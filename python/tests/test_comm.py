# SPDX-License-Identifier: Apache-2.0
"""moxie.Comm: the operations of every transport, layers on several ranks (bytes of one rank), and what raises."""

import gc
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

import moxie
import moxie.comm
import numpy as np
import pytest
from conftest import states
from test_long import grows


class Mail(moxie.comm.Transport):
    """Ranks are threads. Message n from rank a to rank b lies in boxes[a, b, n], whichever request asks first."""

    name = "mail"

    def __init__(self, boxes, ranks, rank):
        self.boxes, self.ranks, self.rank, self.ended = boxes, ranks, rank, []
        self.sent, self.asked = [0] * ranks, [0] * ranks

    def post(self, sends, receives):
        for rank, memory in sends:
            self.boxes[self.rank, rank, self.sent[rank]] = bytes(memory)
            self.sent[rank] += 1
        request = []
        for rank, memory in receives:
            request.append((rank, self.asked[rank], memory))
            self.asked[rank] += 1
        return request

    def test(self, request):
        while request:
            rank, number, memory = request[0]
            if (rank, self.rank, number) not in self.boxes:
                return False
            memory[:] = self.boxes.pop((rank, self.rank, number))
            request.pop(0)
        return True

    def late(self, request):
        waiting = request.request if isinstance(request, moxie.comm._Then) else request
        return min((rank for rank, _, _ in waiting), default=-1) if waiting else -1

    def reduce_scatter(self, rows):
        assert len(rows.recv) == rows.recv_rows[self.rank] * rows.row_bytes and not rows.send_rows
        assert len(rows.send) == sum(rows.recv_rows) * rows.row_bytes
        return super().reduce_scatter(rows)

    def cancel(self):
        self.ended.append("cancel")

    def destroy(self):
        self.ended.append("destroy")


def mail(ranks, kind=Mail, deadline_ms=10000):
    boxes = {}
    return [moxie.Comm(kind(boxes, ranks, r), deadline_ms=deadline_ms) for r in range(ranks)]


MAKERS = {"local": moxie.Comm.local, "python": mail}


def on_ranks(comms, work):
    """work(comm) in a thread a rank; the results in rank order. Raises a rank's failure."""
    results = [None] * len(comms)

    def go(rank):
        try:
            results[rank] = work(comms[rank])
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=go, args=(r,)) for r in range(len(comms))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    failures = [r for r in results if isinstance(r, BaseException)]
    for failure in sorted(failures, key=lambda f: isinstance(f, moxie.TimedOut)):  # the others only wait for it
        raise failure
    return results


# ---- operations ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("ranks", (1, 2, 5))
def test_operations(kind, ranks):
    comms = MAKERS[kind](ranks)
    rng = np.random.default_rng(ranks)
    rows = rng.integers(0, 4, (ranks, ranks))  # rows[a, b]: from a to b; some are none
    rows[0, -1] = 3
    sent = [rng.standard_normal((rows[a].sum(), 6)).astype(np.float32) for a in range(ranks)]
    parts = [np.split(sent[a], np.cumsum(rows[a])[:-1]) for a in range(ranks)]
    sums = rng.standard_normal((ranks, rows[0].sum(), 6)).astype(np.float32)
    numbers = rng.integers(-(2**62), 2**62, (ranks, 3))
    numbers[:, 0] = 2**62  # the sum wraps around
    floats = rng.standard_normal((ranks, 4)).astype(np.float32)
    floats[0, 1] = np.nan
    folded = sums[0].copy()
    for part in sums[1:]:
        folded += part

    def work(c):
        r = c.rank
        got = np.full((rows[:, r].sum() + 1, 6), 7, np.float32)
        c.alltoallv(sent[r], got, rows[r], rows[:, r])
        assert np.array_equal(got[:-1], np.concatenate([parts[a][r] for a in range(ranks)])) and (got[-1] == 7).all()
        # backwards: rank a's rows lie where the reverse order puts them
        at = np.cumsum(rows[::-1, r])[::-1] - rows[:, r]
        c.alltoallv(sent[r], got, list(rows[r]), list(rows[:, r]), recv_at=list(at))
        assert all(np.array_equal(got[at[a] : at[a] + rows[a, r]], parts[a][r]) for a in range(ranks))
        every = np.empty((sum(len(s) for s in sent), 6), np.float32)
        c.allgatherv(sent[r], every, [len(s) for s in sent])
        assert np.array_equal(every, np.concatenate(sent))
        mine = np.empty((rows[0, r], 6), np.float32)
        c.reduce_scatter(sums[r], mine, rows[0])
        first = rows[0, :r].sum()
        assert np.array_equal(mine, folded[first : first + rows[0, r]])
        assert c.counts([10 * r + i for i in range(2 * ranks)]) == [10 * a + 2 * r + i for a in range(ranks) for i in (0, 1)]
        for how, want in (("sum_i64", numbers.sum(0)), ("max_i64", numbers.max(0))):
            values = numbers[r].copy()
            c.allreduce(values, how)
            assert np.array_equal(values, want), how
        values = floats[r].copy()
        c.allreduce(values, "max_f32")
        assert np.array_equal(values, np.fmax.reduce(floats), equal_nan=ranks == 1)
        c.barrier()
        return c.ranks, c.name

    assert on_ranks(comms, work) == [(ranks, "local" if kind == "local" else "mail")] * ranks


def test_reduce_scatter_without_numpy(monkeypatch):
    """The plain loop rounds each sum to float32, as NumPy does."""
    parts = np.random.default_rng(3).standard_normal((5, 24)).astype(np.float32) * np.float32([[1], [1e8], [1], [-1e8], [1]])
    by_numpy, plain = memoryview(bytearray(96)), memoryview(bytearray(96))
    moxie.comm._add(memoryview(parts.tobytes()), 96, by_numpy)
    monkeypatch.delitem(sys.modules, "numpy")
    moxie.comm._add(memoryview(parts.tobytes()), 96, plain)
    assert by_numpy == plain and any(plain)


def test_wrong_arguments():
    (c,) = moxie.Comm.local(1)
    rows = np.zeros((2, 4), np.float32)
    for call, words in ((lambda: c.alltoallv(rows, rows.copy(), [3], [3]), "it has 2 rows"),
                        (lambda: c.alltoallv(rows, rows.copy(), [1, 1], [1]), "1 numbers are wanted, not 2"),
                        (lambda: c.alltoallv(rows, np.zeros((2, 3), np.float32), [1], [1]), "16 bytes, one of recv 12"),
                        (lambda: c.alltoallv(rows.T, rows, [1], [1]), "contiguous"),
                        (lambda: c.reduce_scatter(np.zeros((2, 2), np.int32), np.zeros((2, 2), np.int32), [1]), "f32"),
                        (lambda: c.allreduce(np.zeros(2, np.float32)), r"i64 \[n\]"),
                        (lambda: c.allreduce(np.zeros(2), "mean"), 'no "mean"'),
                        (lambda: moxie.Comm.local(0), "0 ranks"), (lambda: moxie.Comm.local(5000), "5000 ranks"),
                        (lambda: moxie.Comm.nccl(id=b"12"), "id has 2 bytes")):
        with pytest.raises(moxie.Error, match=words):
            call()
    with pytest.raises(TypeError, match="counts"):
        moxie.Comm(object.__new__(type("Named", (), {"name": "n"})))
    with pytest.raises(TypeError, match="moxie.Comm"):
        moxie.Layer(moxie.LayerConfig.preset("gpt-oss-20b"), comm=3)
    bad = Mail({}, 2, 5)
    with pytest.raises(moxie.ArgumentError, match="rank 5"):
        moxie.Comm(bad)


# ---- layers ----------------------------------------------------------------------------------------


def share(tokens, ranks, rank):
    return slice(tokens * rank // ranks, tokens * (rank + 1) // ranks)


def run_on(comms, weights, x, layout="sharded", tp=1, **more):
    """All outputs of a layer whose ranks are `comms`, in token order."""
    changes = {k: more.pop(k) for k in ("ep_map", "slot_map", "round_results") if k in more}

    def work(c):
        config = weights.config.replace(ep_size=c.ranks // tp, ep_rank=c.rank // tp, tp_size=tp, tp_rank=c.rank % tp, **changes)
        layer = moxie.Layer.from_weights(weights, config, comm=c, threads=1, max_tokens=64, token_layout=layout, **more)
        plan = layer.plan()
        mine = x[share(len(x), c.ranks, c.rank)] if layout == "sharded" else x
        out = plan.run(mine)
        assert np.array_equal(plan.run(mine), out)
        assert any(p.name == "exchange" and (p.sent_bytes > 0 or c.ranks == 1) for p in plan.phases())
        return out[share(len(x), c.ranks, c.rank)] if layout == "scattered" else out

    outputs = on_ranks(comms, work)
    if layout == "replicated":
        assert all(np.array_equal(o, outputs[0]) for o in outputs)
        return outputs[0]
    return np.concatenate(outputs)


@pytest.fixture(scope="module")
def qwen(checkpoint):
    return moxie.Model(checkpoint("qwen3-30b-a3b", "fp8-block")).load(0)


@pytest.fixture(scope="module")
def alone(qwen):
    x = states(13, seed=5)
    return x, moxie.Layer.from_weights(qwen, threads=1).plan(max_tokens=64).run(x)


@pytest.mark.parametrize("kind", MAKERS)
def test_bytes_are_those_of_one_rank(kind, qwen, alone):
    x, want = alone
    assert want.any()
    for ranks, options in ((2, {}), (3, {}), (4, {"ep_map": "round_robin"}), (4, {"tp": 2}), (2, {"layout": "replicated"}),
                           (2, {"exchange_capacity": 8}), (2, {"exchange_chunk": 2}),
                           (3, {"slot_map": moxie.SlotMap((0, 1, 2, 3, 4, 5, 6, 7, 0, -1, 3), (0, 4, 8, 11), 8, 4)})):
        assert np.array_equal(run_on(MAKERS[kind](ranks), qwen, x, **options), want), (ranks, options)
    few = x[:1]  # ranks without tokens
    assert np.array_equal(run_on(MAKERS[kind](4), qwen, few), want[:1])


def test_scattered_outputs(qwen, alone):
    x, want = alone
    comms = mail(3)

    def work(c):
        config = qwen.config.replace(ep_size=3, ep_rank=c.rank)
        layer = moxie.Layer.from_weights(qwen, config, comm=c, threads=1, max_tokens=64, token_layout="scattered")
        return layer.plan().run(x)[: len(x) * (c.rank + 1) // 3 - len(x) * c.rank // 3]

    assert np.array_equal(np.concatenate(on_ranks(comms, work)), want)


def test_experts_move_between_runs(qwen, alone):
    """A Mover brings the layer to another map, step by step; every run in between has the same bytes."""
    x, want = alone
    start = moxie.SlotMap.default(8, 2)
    target = moxie.SlotMap((7, 1, 5, 3, 4, 2, 6, 0), start.first_slot, 8)

    def work(c):
        config = qwen.config.replace(ep_size=2, ep_rank=c.rank, slot_map=start)
        layer = moxie.Layer.from_weights(qwen, config, comm=c, threads=1, max_tokens=64, spare_slots=2)
        plan, mine, reports = layer.plan(), share(len(x), 2, c.rank), []
        record = layer.record(4 * c.rank).shape[0]
        mover = moxie.Mover(layer, target, comm=c, max_bytes=2 * record)
        while not reports or reports[-1].left:
            assert np.array_equal(plan.run(x[mine]), want[mine])
            reports.append(mover.step())
        assert np.array_equal(plan.run(x[mine]), want[mine])
        return sum(r.moves for r in reports), reports[-1].generation, len(reports)

    (moves, generation, steps), other = on_ranks(mail(2), work)
    assert (moves, generation, steps) == other and moves == 4 and generation == steps > 1


# ---- what goes wrong -------------------------------------------------------------------------------


def layer_of(qwen, comm, **options):
    config = qwen.config.replace(ep_size=comm.ranks, ep_rank=comm.rank)
    return moxie.Layer.from_weights(qwen, config, comm=comm, threads=1, max_tokens=64, **options)


@pytest.mark.parametrize("raised, kind", ((ValueError("no way"), moxie.FileError), (TimeoutError("slow"), moxie.TimedOut),
                                          (ConnectionResetError("gone"), moxie.TimedOut), (MemoryError("full"), moxie.OutOfMemory),
                                          (moxie.Mismatch("other"), moxie.Mismatch), (KeyboardInterrupt(), KeyboardInterrupt)))
@pytest.mark.parametrize("where", ("post", "test"))
def test_exceptions_of_a_transport(raised, kind, where):
    class Broken(Mail):
        pass

    def fail(self, *arguments):
        raise raised

    setattr(Broken, where, fail)
    comms = mail(2, Broken)
    with pytest.raises(kind) as caught:
        comms[0].barrier()
    if kind is KeyboardInterrupt:
        assert caught.value is raised
    else:
        assert caught.value.__cause__ is raised and type(raised).__name__ in str(caught.value)
        assert any(entry.name == "fail" for entry in __import__("traceback").extract_tb(raised.__traceback__))
    with pytest.raises(moxie.Error):  # the comm is broken; the cause was told once
        comms[0].barrier()


def test_a_torch_process_dies(tmp_path):
    """Rank 1 ends between two operations: rank 0 has TimedOut long before its deadline, and ends cleanly."""
    pytest.importorskip("torch", reason="torch is not installed")
    program = f"""
import os, sys
import moxie, moxie.comm
from torch import distributed
rank = int(sys.argv[1])
distributed.init_process_group("gloo", init_method="file://{tmp_path}/meet", rank=rank, world_size=2)
comm = moxie.comm.from_torch_distributed(deadline_ms=60000)
comm.barrier()
if rank == 1:
    os._exit(0)
try:
    comm.barrier()
except moxie.TimedOut as error:
    assert isinstance(error.__cause__, ConnectionError)
    comm.close()
    print("named")
"""
    processes = [subprocess.Popen([sys.executable, "-c", program, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}) for rank in (0, 1)]
    texts = [p.communicate(timeout=600)[0] for p in processes]
    assert "named" in texts[0] and [p.returncode for p in processes] == [0, 0], texts


def test_what_cannot_fail_raises_later():
    """wait() has no status: what it raises fails the operation that waits. late() may say nonsense, and mask is absent."""
    class Interrupted(Mail):
        def wait(self, request, ms):
            assert 0 < ms <= 10001
            raise KeyboardInterrupt

        def late(self, request):
            return "me"

    comms = mail(2, Interrupted)
    with pytest.raises(KeyboardInterrupt):
        comms[0].barrier()
    comms = mail(2, type("Vague", (Mail,), {"late": lambda self, request: 10**9}), deadline_ms=50)
    with pytest.raises(moxie.TimedOut, match="deadline_ms"):
        comms[0].barrier()


def test_a_run_fails_with_the_transport(qwen):
    """In the middle of a run; plans and comms are given up cleanly afterwards."""
    class Later(Mail):
        armed = False

        def test(self, request):
            if Later.armed:
                raise OSError("the cable")
            return super().test(request)

    meet = threading.Barrier(2)

    def work(c):
        plan = layer_of(qwen, c).plan()
        plan.run(states(3))
        meet.wait()
        Later.armed = True
        try:
            plan.run(states(3))
        except moxie.Error as error:
            return error.status, repr(error.__cause__), str(error)
        return None

    errors = on_ranks(mail(2, Later, deadline_ms=5000), work)
    assert all(e[:2] == ("io", "OSError('the cable')") and "the cable" in e[2] for e in errors)


def test_a_late_rank_is_named():
    comms = mail(3, deadline_ms=1000)
    start = time.monotonic()

    def work(c):
        if c.rank == 1:
            return None  # never comes
        with pytest.raises(moxie.TimedOut, match="rank 1") as caught:
            c.barrier()
        return caught.value.status, c.lost(1), c.lost(0)

    assert [r for r in on_ranks(comms, work) if r] == [("timeout", True, False)] * 2
    assert time.monotonic() - start < 30


def test_degraded_runs_go_on(qwen):
    """Rank 1 leaves; rank 0 ends its run without rank 1's experts, and says what it lost."""
    x = states(5)
    full = moxie.Layer.from_weights(qwen, threads=1).plan(max_tokens=64)
    ids, weights = full.route(x)
    comms = moxie.Comm.local(2, deadline_ms=20000)
    left = threading.Event()

    def work(c):
        plan = layer_of(qwen, c, degraded="keep").plan()
        plan.run(x)
        if c.rank == 1:
            del plan
            gc.collect()
            c.close()
            left.set()
            return None
        left.wait()
        out = plan.run(x)
        return out, plan.losses

    out, losses = on_ranks(comms, work)[0]
    gone = np.asarray(ids) >= 4
    kept = np.where(gone, -1, ids).astype(np.int32)
    assert losses.ranks == 1 and losses.slots == gone.sum() > 0
    assert np.array_equal(out, full.run(x, ids=kept, weights=weights))
    (rest,) = (comms[0].without([1]),)
    assert (rest.ranks, rest.rank) == (1, 0)


class Held(Mail):
    """Its messages arrive when the test lets them."""

    def __init__(self):
        super().__init__({}, 2, 0)
        self.begun, self.go = threading.Event(), threading.Event()

    def test(self, request):
        self.begun.set()
        return self.go.is_set()


def outcome(results, name, work):
    try:
        results[name] = work()
    except Exception as error:
        results[name] = error


def refused(work):
    try:
        work()
    except moxie.ArgumentError as error:
        return "closed" in str(error)
    return False


def test_close_while_a_thread_exchanges(qwen):
    """close() waits its turn; who comes later is refused at once, who waits finds the comm open or closed."""
    transport, results = Held(), {}
    c = moxie.Comm(transport, deadline_ms=60000)
    layer = layer_of(qwen, moxie.Comm(Mail({}, 1, 0)))

    def start(name, work):
        thread = threading.Thread(target=outcome, args=(results, name, work))
        thread.start()
        return thread

    threads = [start("first", c.barrier)]
    assert transport.begun.wait(20)
    threads += [start("waits", lambda: c.counts([1, 2])), start("close", c.close)]
    end = time.monotonic() + 20
    while not refused(lambda: c.rank) and time.monotonic() < end:
        time.sleep(0.01)
    late = [refused(c.barrier), refused(lambda: layer.plan(comm=c)), refused(lambda: c.rank)] if time.monotonic() < end else []
    transport.go.set()
    for thread in threads:
        thread.join()
    assert late == [True, True, True]
    assert results["first"] is None and results["close"] is None
    assert isinstance(results["waits"], list) or "closed" in str(results["waits"])
    assert transport.ended == ["destroy"]


def test_plan_waits_for_prepare(qwen):
    """A plan of a layer that another thread prepares is made afterwards."""
    layer, made = moxie.Layer(qwen.config), threading.Event()
    threads, early = [], []

    def plan():
        layer.plan(threads=1)
        made.set()

    def progress(done, total):
        if not threads:
            threads.append(threading.Thread(target=plan))
            threads[0].start()
            early.append(made.wait(0.5))

    layer.prepare(qwen, threads=1, progress=progress)
    threads[0].join()
    assert made.is_set() and early == [False]


def test_life_of_a_comm(qwen):
    transport = Mail({}, 1, 0)
    c = moxie.Comm(transport)
    plan = layer_of(qwen, c).plan()
    with pytest.raises(moxie.ArgumentError, match="1 plans or calls under way still use this comm"):
        c.close()
    plan.run(states(2))
    assert plan.losses == moxie.Losses(0, 0, 0)
    del plan
    gc.collect()
    with c:
        assert c.rank == 0
    assert transport.ended[-1] == "destroy" and transport.ended.count("destroy") == 1
    for use in (c.barrier, lambda: c.rank, lambda: layer_of(qwen, c), lambda: c.counts([1])):
        with pytest.raises(moxie.ArgumentError, match="closed"):
            use()
    c.close()


def test_comms_do_not_leak(qwen):
    def life():
        for c in [*moxie.Comm.local(2), *mail(2)]:
            c.close()

    assert grows(life, 300) < 1 << 20
    (c,) = mail(1)
    numbers, rows = np.arange(4), np.zeros((2, 4), np.float32)

    def operations():
        c.allreduce(numbers)
        c.alltoallv(rows, rows.copy(), [2], [2])
        c.counts([1, 2])

    assert grows(operations, 1500) < 1 << 20
    plan = layer_of(qwen, c).plan()
    x = states(1)
    assert grows(lambda: plan.run(x), 500) < 1 << 20


# ---- other processes -------------------------------------------------------------------------------

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "ranks.py"


def test_example_threads(checkpoint):
    done = subprocess.run([sys.executable, EXAMPLE, checkpoint("qwen3-30b-a3b", "fp8-block"), "local", "3"],
                          capture_output=True, text=True)
    assert done.returncode == 0 and "9 tokens on 3 ranks: the output bytes equal" in done.stdout, done.stderr


@pytest.mark.parametrize("ranks", (2, 4))
def test_example_mpi(checkpoint, ranks):
    """By calls of mpi4py, and by libmoxie's own module where it was built."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("there is no mpirun")
    probe = subprocess.run([sys.executable, "-c", "from mpi4py import MPI; print(MPI.Get_library_version())"],
                           capture_output=True, text=True)
    if probe.returncode != 0:
        pytest.skip(f"mpi4py finds no MPI library: {probe.stderr.strip().splitlines()[-1][:200]}")
    if "Open MPI" not in probe.stdout:
        pytest.skip("mpi4py uses another MPI library than Open MPI, whose mpirun this test calls")
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    native = pathlib.Path(os.environ.get("PYTHONPATH", ".").split(":")[0]).parent / "libmoxie_openmpi.so"
    for how in ("mpi4py", "mpi") if native.exists() else ("mpi4py",):
        done = subprocess.run([mpirun, "--oversubscribe", "-n", str(ranks), sys.executable, EXAMPLE,
                               checkpoint("qwen3-30b-a3b", "fp8-block"), how], capture_output=True, text=True, env=environment)
        assert done.returncode == 0 and f"{3 * ranks} tokens on {ranks} ranks: the output bytes equal" in done.stdout, done.stderr


@pytest.mark.parametrize("ranks", (2, 4))
def test_example_torch(checkpoint, ranks):
    """What torchrun does, without torchrun: a process a rank, which find each other by a port."""
    pytest.importorskip("torch", reason="torch is not installed")
    for _ in range(5):
        with __import__("socket").socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        processes = []
        for rank in range(ranks):
            environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks),
                           "RANK": str(rank), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, EXAMPLE, checkpoint("qwen3-30b-a3b", "fp8-block"), "torch"]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                              env=environment))
        texts = [p.communicate(timeout=600)[0] for p in processes]
        if "EADDRINUSE" not in texts[0]:  # another process has taken the port meanwhile
            break
    assert [p.returncode for p in processes] == [0] * ranks, texts
    assert f"{3 * ranks} tokens on {ranks} ranks: the output bytes equal" in texts[0]
