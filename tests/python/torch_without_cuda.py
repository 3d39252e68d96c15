# SPDX-License-Identifier: Apache-2.0
"""Lets PyPI's torch load without the large CUDA libraries, which nothing calls on a CPU.

    python torch_without_cuda.py         in a venv, after: pip install --no-deps torch

PyPI's torch for Linux on x86-64 is a CUDA build (2.15: 0.5 GB to download) that needs 3 GB of other packages to load. This
installs the small ones (the CUDA runtime and two more, 60 MB). For every other library that torch's files name it makes one
of that name in torch/lib. It defines the symbols that torch's files miss; a program that calls one of them dies. A CPU
build of torch names none, and nothing happens.
"""

import collections
import importlib.metadata
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile

SMALL = r"nvidia-(cuda-runtime|cuda-cupti|cufile)"


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def small_packages():
    """Of torch's requirements those that are installed as they are."""
    for line in importlib.metadata.requires("torch") or ():
        line = line.partition(";")[0].strip()
        if line.startswith("cuda-toolkit["):
            yield re.sub(r"\[.*\]", "[cudart,cufile,cupti]", line)
        elif re.match(SMALL, line):
            yield line


def read(files):
    """Of shared objects: libraries needed, {library: versions wanted}, {version: symbols missed}, symbols defined."""
    needed, versions, missed, defined = set(), collections.defaultdict(set), collections.defaultdict(set), set()
    for file in files:
        heads, table = output("objdump", "-p", file), output("objdump", "-T", file)
        needed.update(re.findall(r"NEEDED +(\S+)", heads))
        for library, lines in re.findall(r"required from (\S+):\n((?: +0x.*\n)*)", heads):
            versions[library].update(re.findall(r"0x\S+ 0x\S+ \d+ (\S+)", lines))
        for line in table.splitlines():
            flags, _, rest = line.partition("*UND*\t")
            if rest and " w " not in flags:  # size, version in brackets or "Base", name
                _, version, *_, name = rest.split()
                missed[version.strip("()")].add(name)
            elif not rest and line.strip():
                defined.add(line.split()[-1])
    return needed, versions, missed, defined


def make(library, nodes, others, scratch):
    """A shared object. nodes: {version: symbols}; others: symbols without a version."""
    code, script = scratch / "stub.s", scratch / "stub.map"
    names = sorted(others.union(*nodes.values()))
    code.write_text("".join(f".globl {name}\n.type {name},@function\n{name}: ud2\n" for name in names))
    script.write_text("".join(f"{version} {{ global: {' '.join(f'{n};' for n in sorted(of))} }};\n" for version, of in nodes.items()))
    versions = [f"-Wl,--version-script={script}"] if nodes else []
    output("cc", "-shared", "-nostdlib", f"-Wl,-soname,{library.name}", *versions, "-o", library, code)


def main():
    folder = pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0]) / "lib"
    small = list(small_packages())
    if small:
        output(sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", *small)
    there = {file.name for place in (folder, *folder.parents[1].glob("nvidia/**/lib")) for file in place.glob("*.so*")}
    needed, versions, missed, defined = read(folder.glob("*.so*"))
    # The driver's library is named by a file alone that torch opens on a GPU.
    wanted = sorted(name for name in needed - there if re.match("lib(cu|nv|nccl)", name) and name != "libcuda.so.1")
    others = missed["Base"] - defined
    with tempfile.TemporaryDirectory() as scratch:
        for name in wanted:
            make(folder / name, {version: missed[version] for version in versions[name]}, others, pathlib.Path(scratch))
            others = set()  # the first library has them
    print("stand-ins:", *wanted)


if __name__ == "__main__":
    main()
