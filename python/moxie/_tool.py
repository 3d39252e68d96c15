# SPDX-License-Identifier: Apache-2.0
"""The moxie tool, which the package brings along: its path, a console script, and commands that only it has."""

from __future__ import annotations

import os


def path() -> str:
    """Where the tool is: MOXIE_TOOL, or the package's own."""
    return os.environ.get("MOXIE_TOOL") or os.path.join(os.path.dirname(__file__), "bin", "moxie")


def main() -> None:
    """The console script `moxie`: the C tool takes the place of this process."""
    import sys

    os.execv(path(), ["moxie", *sys.argv[1:]])


def run_json(*arguments: str) -> dict:
    """Runs the tool with --json and returns what it printed; moxie.Error if it failed."""
    import json
    import subprocess

    done = subprocess.run([path(), *arguments, "--json"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        from .errors import _make

        status = {2: "argument", 3: "format", 4: "unsupported", 5: "memory"}.get(done.returncode, "io")
        raise _make(status, done.stderr.strip() or f"the tool ended with {done.returncode}", "", -1)
    return json.loads(done.stdout)


def bench(source: str, *arguments: str, tokens=None, backend: str | None = None, mode: str | None = None, threads: int | None = None) -> dict:
    """Times a layer and sets it beside what this machine can do at most: the object that `moxie bench --json` prints.

    source     a checkpoint directory, a GGUF file, or a preset's name
    tokens     numbers of tokens, for example [1, 8, 64]
    arguments  further arguments of the tool, as it takes them (moxie bench --help)

    It runs the tool in a process of its own, so that its measurements do not share memory and threads with Python.
    """
    line = [source] if os.path.exists(source) else ["--preset", source]
    if tokens is not None:
        line += ["--tokens", ",".join(str(t) for t in tokens)]
    for name, value in (("backend", backend), ("mode", mode), ("threads", threads)):
        if value is not None:
            line += [f"--{name}", str(value)]
    return run_json("bench", *line, *arguments)
