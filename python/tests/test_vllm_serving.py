# SPDX-License-Identifier: Apache-2.0
"""vLLM serves small random models with moxie's experts: greedy tokens equal those of the same weights in bf16.

Weights are exact in bf16, so a difference is an error. Each model is served by a process of its own, which finds moxie by its
entry point; that takes about a minute. So this runs with MOXIE_TEST_QUICK=0 only.
"""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.skipif(os.environ.get("MOXIE_TEST_QUICK") != "0", reason="takes minutes: set MOXIE_TEST_QUICK=0"),
]
here = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The interpreter's, with a distribution that has moxie's entry point, as a wheel would bring it."""
    import moxie

    site = tmp_path_factory.mktemp("site")
    about = site / "moxie-0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: moxie\nVersion: 0\n")
    (about / "entry_points.txt").write_text("[vllm.general_plugins]\nmoxie = moxie.vllm:register\n")
    package = pathlib.Path(moxie.__file__).parent.parent
    path = os.pathsep.join([str(package), str(here), str(site), os.environ.get("PYTHONPATH", "")])
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MOXIE_VLLM")}
    return plain | {"PYTHONPATH": path, "MOXIE_VLLM_ACTIVATIONS": "16bit"}


def program(environment, *arguments, **more):
    done = subprocess.run([sys.executable, here / "serve_vllm.py", *arguments], env=environment | more, capture_output=True,
                          text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-4000:]
    return done.stdout


def serve(environment, directory, *arguments, **more):
    return json.loads(program(environment, "run", directory, *arguments, **more).splitlines()[-1])


@pytest.mark.parametrize("format", ["ct_int4", "mxfp4", "awq", "gptq", "fp8_block"])
def test_greedy_tokens(environment, tmp_path, format):
    program(environment, "write", format, tmp_path)
    quantized = serve(environment, tmp_path, "moxie")
    assert quantized["methods"] == ["MoxieMoEMethod"]
    dense = serve(environment, tmp_path / "dense", MOXIE_VLLM="1")
    assert dense["methods"] == ["MoxieUnquantizedMethod"]
    assert quantized["tokens"] == dense["tokens"]
    assert len({tuple(tokens) for tokens in dense["tokens"]}) == 4  # the prompts matter


def test_environment_alone_and_vllms_own_experts(environment, tmp_path):
    program(environment, "write", "ct_int4", tmp_path)
    chosen = serve(environment, tmp_path, MOXIE_VLLM="1")
    assert chosen["methods"] == ["MoxieMoEMethod"]
    own = serve(environment, tmp_path / "dense")
    assert own["methods"] == ["UnquantizedFusedMoEMethod"]
    assert chosen["tokens"] == own["tokens"]


def test_docs(environment, tmp_path):
    """The program of docs/use-from-vllm.md, as written."""
    text = (here.parents[1] / "docs" / "use-from-vllm.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.S)
    (tmp_path / "serve.py").write_text(block)
    done = subprocess.run([sys.executable, "serve.py"], cwd=tmp_path, env=environment, capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    (tokens,) = re.findall(r"^\[\d[\d, ]*\]$", done.stdout, re.M)
    assert len(json.loads(tokens)) == 8
