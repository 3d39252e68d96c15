# SPDX-License-Identifier: Apache-2.0
"""Expert files and stores: the bytes of the results are those of the checkpoint; who holds what; what is refused."""

import gc
import json
import subprocess
import threading

import moxie
import numpy as np
import pytest
from conftest import states
from moxie import _tool
from test_comm import on_ranks
from test_long import grows

FORMATS = [("gpt-oss-20b", "mxfp4-gptoss"), ("deepseek-v3", "fp8-block"), ("mixtral-8x7b", "awq"), ("qwen3-30b-a3b", "bf16")]


def written(tmp_path, model, **options):
    path = tmp_path / "layer.moxie"
    number = model.layers[0].layer
    moxie.ExpertFile.write(path, model.load(number), layer=number, threads=1, **options)
    return path


def first(model, **options):
    return model.layer(threads=1, max_tokens=8, **options)


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """A model of three layers, and a folder of its expert files, made by the tool."""
    at = tmp_path_factory.mktemp("chain")
    moxie.synth("qwen3-30b-a3b", at / "model", format="fp8-block", layers=3, experts=16, hidden=256, intermediate=128)
    subprocess.run([_tool.path(), "prepare", at / "model", "--layout", "moxie-cpu", "-o", at / "experts"], check=True,
                   capture_output=True)
    return moxie.Model(at / "model"), at / "experts"


def budget(folder, records):
    """Bytes for so many records."""
    return records * moxie.Store.describe(folder, 1 << 30).record_bytes


# ---- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset, format", FORMATS)
def test_bits_of_a_file(tmp_path, checkpoint, preset, format):
    model = moxie.Model(checkpoint(preset, format, 16))
    weights = model.load(model.layers[0].layer)
    want = first(model).plan().run(states(5))
    path = written(tmp_path, model)
    for load in ("map", "read", "direct"):
        file = moxie.ExpertFile(path, load=load, verify=True)
        layer = moxie.Layer.from_file(file, threads=1, max_tokens=8)
        plan = layer.plan()
        assert np.array_equal(plan.run(states(5)), want)
        assert layer.config == weights.config == file.config and layer.source is file
        assert file.weights().compare(weights).count == 0
    layer.verify()
    assert max(stage.worst_ratio for stage in plan.check(file.weights(), states(5))) <= 1
    assert [s.kernel for s in file.explain(threads=1, max_tokens=8).steps if s.chosen] == [s.kernel for s in plan.steps if s.chosen]


def test_what_a_file_says(tmp_path, model):
    hashes = [2**64 - 1 - e for e in range(8)]
    path = written(tmp_path, model, source_hashes=hashes, extras={"x.note": b"hello", "x.numbers": np.arange(3)})
    file = moxie.ExpertFile(path)
    info = file.info
    assert (info.experts, info.held, info.layer, info.generation, info.version) == (8, 8, 0, 1, 1)
    assert info.file_bytes == path.stat().st_size and info.target == "moxie-cpu"
    assert info.layout == first(model).plan().steps[-2].layout
    assert bytes(file.section("x.note")) == b"hello" and file.section("x.nothing") is None
    assert np.asarray(file.section("x.numbers")).view(np.int64).tolist() == [0, 1, 2]
    data = path.read_bytes()
    for e in range(8):
        record = file.record(e)
        assert record.source_hash == hashes[e] and record.bytes == info.record_bytes
        assert bytes(record.data) == data[record.offset : record.offset + record.bytes]
    assert file.record(-1) is None  # no shared expert
    with pytest.raises(moxie.ArgumentError, match="expert 8"):
        file.record(8)
    with pytest.raises((ValueError, BufferError)):
        np.asarray(file.record(0).data)[0] = 1


def test_files_stay_open(tmp_path, model):
    """What is made of a file keeps it mapped."""
    path = written(tmp_path, model)
    want = first(model).plan().run(states(5))
    file = moxie.ExpertFile(path)
    plan = file.layer(threads=1, max_tokens=8).plan()
    data, weights = file.record(2).data, file.weights()
    path.unlink()
    del file
    gc.collect()
    assert np.array_equal(plan.run(states(5)), want)
    assert weights.compare(model.load(0)).count == 0 and len(bytes(data)) > 1000
    assert plan.layer.source.info.held == 8


def test_a_share_of_the_experts(tmp_path, model):
    config = model.load(0).config.replace(ep_size=2, ep_rank=1)
    path = written(tmp_path, model, config=config)
    file = moxie.ExpertFile(path)
    assert file.info.held == 4 and file.record(0) is None and file.record(7) is not None
    want = moxie.Layer.from_weights(model.load(0), config, threads=1, max_tokens=8).plan().run(states(5))
    assert np.array_equal(file.layer(threads=1, max_tokens=8).plan().run(states(5)), want)
    with pytest.raises(moxie.Mismatch, match="expert"):
        file.layer(model.load(0).config)
    whole = moxie.ExpertFile(written(tmp_path, model))
    assert np.array_equal(whole.layer(config, threads=1, max_tokens=8).plan().run(states(5)), want)
    mapped = model.load(0).config.replace(ep_size=2, ep_rank=0, slot_map=moxie.SlotMap((6, 1, 0, 2, 3, 4, 5, 7), (0, 2, 8), 8, 1))
    written(tmp_path, model, config=mapped)
    file = moxie.ExpertFile(path)
    assert [e for e in range(8) if file.record(e)] == [1, 6]


def test_a_tensor_parallel_share(tmp_path, model):
    """Each of two ranks has a file of its rows; together they give the bytes of one rank."""
    weights = model.load(0)
    want = first(model).plan().run(states(5))
    files = []
    for rank in range(2):
        config = weights.config.replace(tp_size=2, tp_rank=rank)
        (tmp_path / str(rank)).mkdir()
        files.append(moxie.ExpertFile(written(tmp_path / str(rank), model, config=config), verify=True))
        assert files[rank].config == config and files[rank].info.held == 8

    def work(comm):
        return files[comm.rank].layer(comm=comm, threads=1, max_tokens=8, token_layout="replicated").plan().run(states(5))

    assert all(np.array_equal(got, want) for got in on_ranks(moxie.Comm.local(2), work))
    with pytest.raises(moxie.ArgumentError, match="rank 1 of 2, and options.comm is NULL"):
        files[1].layer(threads=1)
    with pytest.raises(moxie.Mismatch, match="tensor parallel rank 0 of 1"):
        files[1].layer(weights.config)
    with pytest.raises(moxie.Unsupported, match="rows of tensor parallel rank 1 of 2"):
        files[1].weights()
    with pytest.raises(moxie.Unsupported, match="whole experts"):
        moxie.Store(tmp_path / "1", 1 << 24)


def test_a_replaced_expert(tmp_path, model):
    path = written(tmp_path, model)
    before = moxie.ExpertFile(path)
    want = before.layer(threads=1, max_tokens=8).plan().run(states(5))
    moxie.ExpertFile.replace(path, 3, model.load(0), source=5, source_hash=7)
    after = moxie.ExpertFile(path, verify=True)
    assert after.info.generation == 2 and after.record(3).source_hash == 7 and after.info.unused_bytes > 0
    assert bytes(after.record(3).data)[64:] == bytes(before.record(5).data)[64:]
    assert np.array_equal(before.layer(threads=1, max_tokens=8).plan().run(states(5)), want)
    layer = first(model)
    layer.update_expert(3, model.load(0), 5)
    changed = layer.plan().run(states(5))
    assert np.array_equal(after.layer(threads=1, max_tokens=8).plan().run(states(5)), changed)
    own = before.layer(threads=1, max_tokens=8)
    own.update_expert(3, model.load(0), 5)
    assert np.array_equal(own.plan().run(states(5)), changed)
    before.verify()
    assert np.array_equal(before.layer(threads=1, max_tokens=8).plan().run(states(5)), want)


def test_a_writer_that_is_stopped(tmp_path, model):
    seen = []

    def progress(done, total):
        seen.append((done, total))
        return done == 3

    with pytest.raises(moxie.TimedOut, match="after 3 of 8 experts"):
        written(tmp_path, model, progress=progress)
    assert seen == [(1, 8), (2, 8), (3, 8)] and list(tmp_path.iterdir()) == []
    with pytest.raises(ZeroDivisionError):
        written(tmp_path, model, progress=lambda done, total: 1 / 0)
    assert list(tmp_path.iterdir()) == []


def test_refused_files(tmp_path, model):
    with pytest.raises(moxie.ArgumentError, match="there is no target|moxie-gpu"):
        written(tmp_path, model, target="moxie-gpu")
    with pytest.raises(moxie.ArgumentError, match="8 numbers are wanted"):
        written(tmp_path, model, source_hashes=[1, 2])
    with pytest.raises(moxie.ArgumentError, match="x\\."):
        written(tmp_path, model, extras={"note": b"hello"})
    numbers = bytearray(64)
    with pytest.raises(moxie.ArgumentError, match="x.odd must be contiguous"):
        written(tmp_path, model, extras={"x.odd": memoryview(numbers)[::2]})
    numbers += b"more"  # nothing holds them
    with pytest.raises(TypeError, match="moxie.Weights is wanted"):
        moxie.ExpertFile.write(tmp_path / "a", 3)
    with pytest.raises(moxie.ArgumentError, match="layer is -5"):
        moxie.ExpertFile.write(tmp_path / "a", model.load(0), layer=-5)
    assert list(tmp_path.iterdir()) == []
    path = written(tmp_path, model)
    with pytest.raises(moxie.ArgumentError, match="the weights have no expert 9"):
        moxie.ExpertFile.replace(path, 3, model.load(0), source=9)
    with pytest.raises(moxie.ArgumentError, match='load: there is no "mmap"; the names are map, read, direct'):
        moxie.ExpertFile(path, load="mmap")
    with pytest.raises(moxie.Unsupported, match="--layout moxie-rowmajor"):
        moxie.Layer.from_file(path, isa="scalar")
    with pytest.raises(moxie.Mismatch, match="another shape"):
        moxie.Layer.from_file(path, model.load(0).config.replace(hidden=128, router_width=128))
    with pytest.raises(moxie.FileError, match="cannot open|No such file"):
        moxie.ExpertFile(tmp_path / "nowhere")
    data = bytearray(path.read_bytes())
    data[moxie.ExpertFile(path).record(6).offset + 500] ^= 4
    path.write_bytes(data)
    with pytest.raises(moxie.Mismatch, match="expert 6") as caught:
        moxie.ExpertFile(path).verify(threads=1)
    assert caught.value.status == "mismatch"
    with pytest.raises(moxie.Mismatch):
        moxie.ExpertFile(path, verify=True)
    path.write_bytes(data[:9000])
    with pytest.raises(moxie.FormatError) as caught:
        moxie.ExpertFile(path)
    assert caught.value.file == str(path)


# ---- stores ----------------------------------------------------------------------------------------


def test_bits_of_a_store(chain):
    model, folder = chain
    assert "store" in json.loads(subprocess.run(
        [_tool.path(), "run", folder, "--layer", "1", "--budget-ram", "1M", "--json"], check=True, capture_output=True).stdout)
    want = [model.layer(n, threads=1, max_tokens=8).plan().run(states(5)) for n in range(3)]
    store = moxie.Store(folder, budget(folder, 20))
    assert store.layers == [0, 1, 2] and store.info.slots < 16
    plans = [store.layer(n, threads=1, max_tokens=8).plan() for n in store.layers]
    for _ in range(3):
        for plan, bytes_of in zip(plans, want):
            assert np.array_equal(plan.run(states(5)), bytes_of)
    found = store.counters()
    assert found.runs == 9 and 0 < found.hits < found.uses and 0 < found.hit_rate < 1 and found.read_bytes > 0
    assert store.counters(1).runs == 3 and store.counters(1, last_run=True).runs == 1
    assert plans[0].layer.config == store.layer_config(0) == model.load(0).config
    store = None
    gc.collect()
    assert np.array_equal(plans[2].run(states(5)), want[2])  # the layer keeps its store
    assert plans[2].layer.source.counters().runs == 10


def test_a_store_hits_as_its_simulation(chain, tmp_path):
    """Counters of a store = hits of moxie.trace.simulate on the ids that ran."""
    _, folder = chain
    store = moxie.Store(folder, budget(folder, 20), max_inserts=2, prefetch=False)
    plan = store.layer(1, threads=1, max_tokens=1).plan()
    ids = np.stack([np.random.default_rng(s).permutation(16)[:8] for s in range(40)]).astype(np.int32)
    weights = np.full((1, 8), 0.125, np.float32)
    for row in ids:
        plan.run(states(1), ids=row[None], weights=weights)
    moxie.trace.Trace(ids[:, None, :], 16).save(tmp_path / "a.trace")
    found = moxie.trace.simulate(tmp_path / "a.trace", store.info.slots, max_inserts=2)
    assert 0 < found.hits == store.counters(1).hits and found.uses == store.counters(1).uses == 320


def test_guesses(chain):
    model, folder = chain
    store = moxie.Store(folder, budget(folder, 24))
    plan = store.layer(1, threads=1, max_tokens=1).plan()
    ids, _ = plan.route(states(1))
    assert plan.lookahead(states(1)) is None
    begun = store.counters(1).prefetches
    assert begun > 0
    plan.run(states(1))
    assert store.counters(1).prefetches_used == begun
    store.prefetch(0, [1, 2, 99])
    store.prefetch(0, np.asarray(ids))
    assert store.counters(0).prefetches >= 2
    logits = np.zeros((1, 16), np.float32)
    plan.lookahead(logits=logits)
    with pytest.raises(moxie.ArgumentError, match="store"):
        model.layer(0, threads=1).plan().lookahead(states(1))
    quiet = moxie.Store(folder, budget(folder, 24), prefetch=False)
    quiet.prefetch(0, [1, 2])
    assert quiet.counters().prefetches == 0


def test_what_a_store_holds(chain):
    _, folder = chain
    bytes_of = budget(folder, 20)
    described = moxie.Store.describe(folder, bytes_of)
    store = moxie.Store([folder / f"layer-{n:05d}.moxie" for n in range(3)], bytes_of)
    assert described.slots == store.info.slots and described.reader == "" and store.info.reader in ("uring", "pread")
    census = np.zeros((3, 16), np.int64)
    census[:, 4:9] = 5
    pinned = moxie.Store(folder, bytes_of, policy="pinned", census=census, pinned=[(1, 15)])
    plan = pinned.layer(1, threads=1, max_tokens=1).plan()
    weights = np.full((1, 8), 0.125, np.float32)
    plan.run(states(1), ids=np.array([[15, 0, 1, 2, 3, 12, 13, 14]], np.int32), weights=weights)
    assert pinned.counters(1).hits == 1  # expert 15, which was pinned
    plan.run(states(1), ids=np.array([[0, 1, 2, 3, 4, 5, 6, 7]], np.int32), weights=weights)
    assert pinned.counters(1, last_run=True).hits == min(pinned.info.slots - 1, 4)  # of the census
    assert pinned.counters(0).uses == 0


def test_where_experts_are_computed(chain, tmp_path):
    """What two budgets give to a GPU and to the CPU beside it, which needs no GPU to say."""
    model, folder = chain
    moxie.ExpertFile.write(tmp_path / "layer-00001.moxie", model.load(1), target="moxie-sm90", layer=1, threads=1)
    record = budget(tmp_path, 1)
    both = dict(ram_bytes=64 * record, device_bytes=16 * record)
    (tmp_path / "cpu").mkdir()
    moxie.ExpertFile.write(tmp_path / "cpu" / "layer.moxie", model.load(1), target="moxie-cpu", layer=1, threads=1)
    where = moxie.Store.describe(tmp_path, **both, compute_where_it_lies=tmp_path / "cpu")
    assert where.slots == 0 < where.host_slots and where.host_read_buffers > 0 and where.device_slots > 0
    assert where.host_record_bytes == budget(folder, 1)
    with pytest.raises(moxie.Mismatch, match="expert 0 of layer 1"):  # of the tool, which writes hashes
        moxie.Store.describe(tmp_path, **both, compute_where_it_lies=folder / "layer-00001.moxie")
    without = moxie.Store.describe(tmp_path, **both)
    assert without.slots > 0 == without.host_slots
    for open_it in (moxie.Store, moxie.Store.describe):
        with pytest.raises(moxie.ArgumentError, match="device_bytes is 0"):
            open_it(folder, 1 << 22, compute_where_it_lies=folder)
    with pytest.raises(moxie.FileError, match="experts that the CPU computes|nowhere"):
        moxie.Store.describe(tmp_path, **both, compute_where_it_lies=tmp_path / "nowhere")
    with pytest.raises(TypeError):
        moxie.Store(tmp_path, **both, compute_where_it_lies=3)


def test_refused_stores(chain, model):
    _, folder = chain
    with pytest.raises(moxie.OutOfMemory, match="need at least"):
        moxie.Store(folder, 1000)
    for wrong in (dict(ram_bytes=-1), dict(ram_bytes=1 << 64), dict(ram_bytes=1 << 20, device_bytes=-1)):
        with pytest.raises(OverflowError):
            moxie.Store(folder, **wrong)
    with pytest.raises(moxie.ArgumentError, match="policy"):
        moxie.Store(folder, 1 << 20, policy="fifo")
    with pytest.raises(moxie.Mismatch, match="census: it has 2 rows, and the store 3 layers"):
        moxie.Store(folder, 1 << 22, policy="pinned", census=np.ones((2, 16)))
    with pytest.raises(moxie.ArgumentError, match="census: an array"):
        moxie.Store(folder, 1 << 22, census=[1.0, 2.0])
    with pytest.raises(moxie.ArgumentError, match="expert 99 of layer 0"):
        moxie.Store(folder, 1 << 22, pinned=[(0, 99)])
    with pytest.raises(moxie.FileError):
        moxie.Store(folder / "nowhere", 1 << 20)
    with pytest.raises(moxie.Error):
        moxie.Store([], 1 << 20)
    with pytest.raises(TypeError):
        moxie.Store(3.5, 1 << 20)
    with pytest.raises(TypeError, match="moxie.ExpertFile or a moxie.Store"):
        moxie.Layer._stored(folder, 0, None)
    store = moxie.Store(folder, 1 << 22)
    with pytest.raises(moxie.ArgumentError, match="no layer 7"):
        store.layer(7)
    with pytest.raises(moxie.ArgumentError, match="no layer -2"):
        store.counters(-2)
    with pytest.raises(moxie.ArgumentError, match="no layer 9"):
        store.prefetch(9, [1])
    with pytest.raises(moxie.ArgumentError, match="ids: i32"):
        store.prefetch(0, np.zeros(3, np.int64))
    with pytest.raises(OverflowError, match="32 bits"):
        store.prefetch(0, [2**32 + 1])
    layer = store.layer(0, threads=1)
    for change in (lambda: layer.update_expert(0, model.load(0)), lambda: layer.prepare(moxie.Model(chain[0].path).load(0))):
        with pytest.raises(moxie.Unsupported, match="of a store"):
            change()


def test_a_read_that_fails(chain, tmp_path):
    """The run raises, which expert and where; other experts go on."""
    _, folder = chain
    path = tmp_path / "layer-00001.moxie"
    path.write_bytes((folder / path.name).read_bytes())
    store = moxie.Store(path, budget(folder, 10), verify=True)
    plan = store.layer(threads=1, max_tokens=1).plan()
    offset = moxie.ExpertFile(path).record(5).offset + 300
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\1\2\3")
    weights = np.full((1, 8), 0.125, np.float32)
    with pytest.raises(moxie.Error, match="expert 5") as caught:
        plan.run(states(1), ids=np.arange(8, dtype=np.int32)[None], weights=weights)
    assert caught.value.file == str(path) and store.counters().failed_reads > 0
    plan.run(states(1), ids=np.arange(8, 16, dtype=np.int32)[None], weights=weights)


def test_threads_share_a_store(chain):
    model, folder = chain
    store = moxie.Store(folder, budget(folder, 20))
    want = [model.layer(n, threads=1, max_tokens=8).plan().run(states(5)) for n in range(3)]
    wrong = []

    def work(number):
        plan = store.layer(number, threads=1, max_tokens=8).plan()
        for _ in range(10):
            if not np.array_equal(plan.run(states(5)), want[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n % 3,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and store.counters().runs == 60


def test_files_and_stores_do_not_leak(chain):
    _, folder = chain

    def life():
        file = moxie.ExpertFile(folder / "layer-00000.moxie")
        file.record(1), file.config, file.weights(threads=1), file.explain(threads=1)
        file.layer(threads=1, max_tokens=1).plan().run(states(1))
        store = moxie.Store(folder, 1 << 21)
        store.layer(1, threads=1, max_tokens=1).plan().run(states(1))
        store.prefetch(1, [1, 2])
        with pytest.raises(moxie.Error):
            moxie.Store(folder, 1000)

    assert grows(life, 60) < 1 << 20


def test_lists_and_disks(chain):
    _, folder = chain
    assert {"moxie-auto", "moxie-cpu", "moxie-sm90"} <= {target.name for target in moxie.expert_targets()}
    engines = moxie.read_engines()
    assert engines[-1].name == "pread" and engines[-1].usable and all(e.usable or e.missing for e in engines)
    rate = moxie.measure_disk([folder / "layer-00000.moxie"], engine="pread", depth=4, record_bytes=1 << 16, milliseconds=5)
    assert rate.gb_s > 0 and rate.engine == "pread" and rate.depth == 4 and rate.records > 0
    with pytest.raises(moxie.ArgumentError, match="mirrors: 1 paths are wanted"):
        moxie.measure_disk(folder / "layer-00000.moxie", mirrors=["a", "b"])
    with pytest.raises(moxie.ArgumentError, match="engine"):
        moxie.measure_disk(folder / "layer-00000.moxie", engine="aio", record_bytes=1 << 16)
