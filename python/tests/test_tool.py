# SPDX-License-Identifier: Apache-2.0
"""lint, synth, bench, explain; the tool that comes along; the README's lines."""

import pathlib
import re
import struct
import subprocess
import sys

import moxie
import numpy as np
import pytest
from moxie import _tool

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_lint(checkpoint):
    report = moxie.lint(checkpoint(), deep=True)
    assert report.ok and report.deep and report.family == "gpt-oss" and report.n_findings == len(report.findings)
    bad = moxie.lint(checkpoint("qwen3-30b-a3b", "gptq"))
    assert all(f.severity in ("note", "warning", "error") and f.found for f in bad.findings)
    with pytest.raises(moxie.FileError):
        moxie.lint("/nowhere")
    with pytest.raises(moxie.ArgumentError, match="rule"):
        moxie.lint(checkpoint(), only="nonsense")
    assert {"name", "meaning", "remedy"} <= set(vars(moxie.lint_rules()[0]))


def test_lint_finds_what_is_wrong(checkpoint, tmp_path):
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(checkpoint(), broken)
    (file,) = broken.glob("*.safetensors")
    with open(file, "r+b") as f:
        f.truncate(file.stat().st_size - 1000)
    report = moxie.lint(broken)
    assert not report.ok and report.findings[0].severity == "error" and report.input != 0


def test_quantize(checkpoint, tmp_path):
    source = checkpoint("qwen3-30b-a3b", "bf16")
    calls = []
    report = moxie.quantize(source, tmp_path / "q", "nvfp4-ct-w4a16", scales="mse", threads=2,
                            progress=lambda done, total: calls.append((done, total)))
    assert 0.05 < report.rms < 0.15 and not report.exact and calls[-1][0] == calls[-1][1] > 0
    assert {e.projection for e in report.errors} == {"gate", "up", "down"}
    assert report.expert_bytes < report.source_bytes / 3
    assert moxie.Model(tmp_path / "q").layers[0].format == "nvfp4-ct-w4a16" and moxie.lint(tmp_path / "q", deep=True).ok
    exact = moxie.quantize(checkpoint(), tmp_path / "e", "mxfp8")
    assert exact.exact and exact.rms == 0
    with pytest.raises(moxie.ArgumentError, match="there is no format"):
        moxie.quantize(source, tmp_path / "x", "int5")
    with pytest.raises(moxie.ArgumentError, match="scales"):
        moxie.quantize(source, tmp_path / "x", "int4-ct", scales="best")
    with pytest.raises(moxie.FileError, match="exists already"):
        moxie.quantize(source, tmp_path / "q", "int4-ct")


def test_quantize_to_gguf(checkpoint, tmp_path):
    source = checkpoint("qwen3-30b-a3b", "bf16")
    sums = np.exp(np.random.default_rng(0).standard_normal((3, 8, 256))).astype("<f4")
    entries = b"".join(struct.pack("<i", len(name)) + name + struct.pack("<ii", 7, of.size) + of.tobytes()
                       for name, of in zip((b"blk.0.ffn_gate_exps.weight", b"blk.0.ffn_up_exps.weight", b"blk.0.ffn_down_exps.weight"), sums))
    (tmp_path / "imatrix").write_bytes(struct.pack("<i", 3) + entries)
    for name, given in (("plain", {}), ("weighted", {"imatrix": tmp_path / "imatrix"}), ("none", {"imatrix": None})):
        report = moxie.quantize(source, tmp_path / f"{name}.gguf", "gguf-q4_k", scales="mse", **given)
        assert 0.02 < report.rms < 0.15 and moxie.lint(tmp_path / f"{name}.gguf", deep=True).ok
    plain, weighted, none = ((tmp_path / f"{name}.gguf").read_bytes() for name in ("plain", "weighted", "none"))
    assert plain == none != weighted
    with pytest.raises(moxie.FileError, match="absent"):
        moxie.quantize(source, tmp_path / "x.gguf", "gguf-q4_k", scales="mse", imatrix=tmp_path / "absent")
    with pytest.raises(moxie.ArgumentError, match="plain scales are not chosen"):
        moxie.quantize(source, tmp_path / "x.gguf", "gguf-q4_k", imatrix=tmp_path / "imatrix")
    with pytest.raises(TypeError):
        moxie.quantize(source, tmp_path / "x.gguf", "gguf-q4_k", imatrix=3)
    model = {how: moxie.Model(tmp_path / "plain.gguf", activations=how) for how in ("ggml", "16bit")}
    assert model["ggml"].layers[0].format == "q4_k"
    assert {how: bool(of.load(0).config.a13.element) for how, of in model.items()} == {"ggml": True, "16bit": False}


def test_synth_gives_equal_bytes(tmp_path):
    for name in ("a", "b"):
        moxie.synth("gpt-oss-20b", tmp_path / name, layers=1, experts=8, hidden=64, intermediate=64, seed=5)
    files = [sorted(p.name for p in (tmp_path / n).iterdir()) for n in "ab"]
    assert files[0] == files[1]
    assert all((tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes() for f in files[0])
    with pytest.raises(moxie.FileError):
        moxie.synth("gpt-oss-20b", tmp_path / "a", layers=1)


def test_bench(checkpoint):
    result = moxie.bench(str(checkpoint()), tokens=[1, 4], threads=1)
    rows = result["rows"]
    assert [r["tokens"] for r in rows] == [1, 4] and all(r["median_ms"] > 0 for r in rows)
    assert moxie.bench(str(ROOT / "tests/golden/gguf/small.gguf"), tokens=[1], threads=1)["rows"][0]["median_ms"] > 0
    with pytest.raises(moxie.Error, match="no-such-preset"):
        moxie.bench("no-such-preset")


def test_explain(plan):
    text = plan.explain()
    lines = text.splitlines()
    assert lines[0].split() == ["step", "role", "kernel", "isa", "layout", "class"]
    chosen = [s for s in plan.steps if s.chosen]
    assert len(plan.explain(rejected=False).splitlines()) == len(chosen) + 1 == len(str(plan).splitlines())
    assert any("rejected: " in line for line in lines) or len(chosen) == len(plan.steps)
    html = plan._repr_html_()
    assert html.startswith("<table>") and html.count("<tr") == len(plan.steps) + 1 and "expert_gemm" in html
    gpu = moxie.explain("gpt-oss-20b", device="sm_90", backend="cuda")
    assert any(s.chosen and s.kernel.startswith("sm90") for s in gpu.steps)


def test_model(model, checkpoint):
    info = model.inspect()
    assert info["family"] == "gpt-oss" and info["layers"][0]["format"] == "mxfp4-gptoss" and info["warnings"] == []
    assert model.expert_prefix(0).startswith("model.layers.0.mlp.experts")
    assert moxie.Layer.from_model(checkpoint(), threads=1).nbytes == model.layer(threads=1).nbytes > 1000
    assert "gpt-oss" in repr(model) and "f4_e2m1" in repr(model.load(0)) and "top-4" in repr(model.layer(0))
    products = [step.kernel for step in model.layer(0).plan().steps if step.chosen and step.family == "expert_gemm"]
    assert products[0] in repr(model.layer(0).plan()) and "MB" in repr(model.layer(0).plan())
    sixteen = moxie.Model(checkpoint(), activations="16bit", mmap=False)
    assert sixteen.load(0).config.a13.element == ""


def test_the_tool_answers():
    code = "import sys; sys.argv = ['moxie', '--version']; from moxie._tool import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and moxie.__version__ in done.stdout
    assert _tool.run_json("info")["schema_version"] == 1


def test_readme(tmp_path):
    """The README's Python lines, after the command that makes their checkpoint."""
    text = (ROOT / "README.md").read_text()
    section = text.split("\n## From Python\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```(\w+)\n(.*?)```", section, re.S)
    code = next(body for kind, body in blocks if kind == "python")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "expert_gemm" in done.stdout


def test_docs(tmp_path):
    """Every Python block of docs/python.md, one after the other in one process."""
    text = (ROOT / "docs" / "python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) >= 4
    done = subprocess.run([sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
