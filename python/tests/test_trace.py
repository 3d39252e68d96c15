# SPDX-License-Identifier: Apache-2.0
"""moxie.trace: arrays to a trace and back; the tool reads the same; simulation; what is refused."""

import json
import subprocess

import moxie
import numpy as np
import pytest
from moxie import _tool


def made(tokens=30, layers=3, top_k=4, experts=20):
    rng = np.random.default_rng(5)
    ids = np.argsort(rng.random((tokens, layers, experts)), axis=2)[:, :, :top_k].astype(np.int16)
    ids[3, 1, 2] = -1
    return moxie.trace.Trace(ids, experts, moxie.trace.steps(tokens, prefill=7, size=2),
                             rng.random((tokens, layers, top_k), dtype=np.float32), np.arange(tokens) // 10, [3, 4, 9],
                             model="tiny", fingerprint=2**63 + 5)


def test_there_and_back(tmp_path):
    trace = made()
    trace.save(tmp_path / "a.trace")
    back = moxie.trace.load(tmp_path / "a.trace")
    assert np.asarray(back.ids).dtype == np.int32 and np.array_equal(np.asarray(back.ids), trace.ids)
    assert np.array_equal(np.asarray(back.weights), trace.weights)
    assert np.array_equal(np.asarray(back.requests), trace.requests)
    for name in ("experts", "steps", "layers", "zero_experts", "model", "fingerprint"):
        assert getattr(back, name) == getattr(trace, name), name
    assert back.steps[0] == (7, "prefill") and back.steps[-1] == (1, "decode") and len(back.steps) == 13
    back.save(tmp_path / "b.trace")
    assert (tmp_path / "a.trace").read_bytes() == (tmp_path / "b.trace").read_bytes()
    plain = moxie.trace.Trace(trace.ids[:0], 20)
    plain.save(tmp_path / "empty.trace")
    empty = moxie.trace.load(tmp_path / "empty.trace")
    assert np.asarray(empty.ids).shape == (0, 3, 4) and empty.steps == [] and empty.weights is None


def test_the_tool_reads_it(tmp_path):
    trace = made()
    trace.save(tmp_path / "a.trace")
    shown = json.loads(subprocess.run([_tool.path(), "trace", "show", tmp_path / "a.trace", "--json"], check=True,
                                      capture_output=True).stdout)
    counts = [np.bincount(trace.ids[:, l][trace.ids[:, l] >= 0], minlength=20) for l in range(3)]
    assert [layer["largest"] for layer in shown["layers"]] == [int(c.max()) for c in counts]
    assert [layer["layer"] for layer in shown["layers"]] == [3, 4, 9]
    assert shown["model"] == "tiny" and shown["fingerprint"] == f"{2**63 + 5:016x}"


def lru(ids, slots):
    """Hits of a cache that is written down here: one step a token."""
    hits, held = 0, []
    for token in ids:
        for e in set(token.tolist()):
            hits += e in held
        now = sorted(set(token.tolist()), reverse=True)
        held = (now + [e for e in held if e not in now])[:slots]
    return hits


def test_simulation(tmp_path):
    ids = made().ids
    ids[3, 1, 2] = (set(range(20)) - set(ids[3, 1].tolist())).pop()
    moxie.trace.Trace(ids, 20).save(tmp_path / "a.trace")
    for slots in (4, 7, 20):
        found = moxie.trace.simulate(tmp_path / "a.trace", slots, "lru", best=True)
        assert found.uses == ids.size and found.slots == slots
        assert found.hits == sum(lru(ids[:, l], slots) for l in range(3))
        assert found.hits <= found.best_hits < found.uses
    census = np.zeros((3, 20))
    census[:, 5] = census[:, 7] = 1
    pinned = moxie.trace.simulate(tmp_path / "a.trace", 2, "pinned", census=census)
    assert pinned.hits == np.isin(ids, (5, 7)).sum() and pinned.inserts == 0 and pinned.best_hits == -1
    with pytest.raises(moxie.Error, match="census"):
        moxie.trace.simulate(tmp_path / "a.trace", 2, "pinned", census=census[:2])
    assert moxie.trace.policies()[:2] == ["lfru", "lru"]
    with pytest.raises(moxie.Error, match="there is no cache policy"):
        moxie.trace.simulate(tmp_path / "a.trace", 4, "fifo")


def test_refusals(tmp_path):
    path = tmp_path / "a.trace"
    trace = made()
    for change, message in (({"experts": 5}, "the trace has 5"), ({"steps": [(29, "decode")]}, "29 tokens, and ids 30"),
                            ({"steps": [(31, "decode")]}, "more tokens"), ({"layers": [1, 2]}, "3 numbers"),
                            ({"layers": [2, 1, 3]}, "ascend"), ({"weights": trace.weights[:4]}, "weights: .* as many tokens as ids$"),
                            ({"ids": trace.ids[:, :, ::2]}, None)):
        broken = made()
        for name, value in change.items():
            setattr(broken, name, value)
        with pytest.raises(moxie.Error, match=message):
            broken.save(path)
        assert not path.exists()
    with pytest.raises(ValueError, match="no phase 'prefil'"):
        moxie.trace.Trace(trace.ids, 20, steps=[(30, "prefil")]).save(path)
    for name, other in (("ids", trace.ids + np.int64(2**32)), ("ids", trace.ids + 0.5), ("requests", np.full(30, 0.5))):
        broken = made()
        setattr(broken, name, other)
        with pytest.raises(moxie.ArgumentError, match=f"{name}: whole numbers that int(32|64) holds"):
            broken.save(path)
        assert not path.exists()
    path.write_bytes(b"MOXTRACE")
    with pytest.raises(moxie.Error, match="cut off"):
        moxie.trace.load(path)
