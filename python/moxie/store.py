# SPDX-License-Identifier: Apache-2.0
"""Expert files and stores: layers whose experts lie on disk exactly as kernels read them (docs/expert-file.md, docs/store.md).

    moxie.ExpertFile.write("layer-00000.moxie", model.load(0))      # or `moxie prepare DIR --layout moxie-auto -o OUT`
    layer = moxie.Layer.from_file("layer-00000.moxie")              # mapped: no copy, no arithmetic

    store = moxie.Store("OUT", ram_bytes=24 << 30)                  # layers in less memory than they need
    plans = [store.layer(number).plan(max_tokens=64) for number in store.layers]
    print(store.counters().hit_rate)

Results are the same bytes wherever the experts lie, except with compute_where_it_lies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import _moxie
from ._objects import Layer, Plan
from .config import LayerConfig

# ---- structs of the C library ----------------------------------------------------------------------


@dataclass
class ExpertTarget:
    """Whose kernels read an expert file."""

    name: str  #: "moxie-cpu"
    summary: str


@dataclass
class ExpertFileInfo:
    """What an expert file is."""

    version: int  #: of the file format
    target: str  #: "moxie-cpu"
    layout: str  #: of the routed experts' records
    shared_layout: str  #: of the shared expert's; "" without one
    layer: int  #: its number in the checkpoint
    experts: int  #: E
    held: int  #: experts that the file has
    record_bytes: int
    shared_bytes: int
    file_bytes: int
    generation: int  #: 1, and one more for each replaced expert
    source_xxh3: int  #: fingerprint of the weights that it was made of
    direct: bool  #: it was read past the page cache
    unused_bytes: int  #: of records that were replaced
    read_engine: str  #: that read it past the page cache; "" when none did
    read_why: str  #: what was refused before that engine, or why the page cache was not passed


@dataclass
class ExpertRecord:
    """One expert in a file."""

    offset: int
    bytes: int
    checksum: int
    generation: int
    source_hash: int
    data: Any  #: [bytes] uint8, a read-only moxie.Array: a view of the file


@dataclass
class StoreInfo:
    """What a store makes of its budget."""

    layers: int
    policy: str
    slots: int  #: of each layer; a layer with fewer experts has as many as these
    read_buffers: int
    record_bytes: int  #: of a slot or buffer: the largest record, padded to a page
    buffer_bytes: int  #: of all slots and buffers
    shared_bytes: int  #: of the shared experts, which stay in memory
    file_bytes: int  #: of all routed experts' records
    reader: str  #: "uring", "pread"
    direct: bool  #: past the page cache, all files
    device_slots: int  #: on a GPU, of each layer
    device_buffers: int
    device_record_bytes: int
    device_shared_bytes: int
    host_slots: int  #: with compute_where_it_lies: of records for the CPU, of each layer; `slots` is 0 then
    host_read_buffers: int
    host_record_bytes: int


@dataclass
class StoreCounters:
    """What runs did. A use is an expert in one run of one layer."""

    runs: int
    uses: int
    hits: int  #: the expert had a slot
    inserts: int  #: misses that got a slot
    reads: int  #: records that runs and prefetches read
    read_bytes: int  #: of these, from files
    ram_bytes: int  #: of hits' records
    waits: int  #: how often a run waited for a read
    wait_seconds: float
    prefetches: int
    prefetches_used: int
    prefetches_wasted: int
    failed_reads: int
    device_uses: int  #: of slots on a GPU, as the next two; then uses, hits and inserts are RAM's
    device_hits: int
    device_inserts: int
    copies: int  #: records that runs copied to the GPU
    copied_bytes: int
    id_waits: int  #: how often the host waited for the chosen experts: once a run
    id_wait_seconds: float
    copy_waits: int
    copy_wait_seconds: float
    host_uses: int  #: uses that had no slot on the GPU, which the CPU computed where they lie
    host_seconds: float  #: the CPU took for these, waits for their reads included

    @property
    def hit_rate(self) -> float:
        """Hits of RAM's slots by uses of them; 0 before the first run."""
        return self.hits / self.uses if self.uses else 0.0


@dataclass
class ReadEngine:
    """What reads files past the page cache."""

    usable: bool
    name: str  #: "uring", "pread"
    about: str
    missing: str  #: why it is not usable here and now


@dataclass
class DiskRate:
    """What measure_disk() found."""

    gb_s: float  #: 10^9 bytes a second
    bytes: int
    records: int
    seconds: float
    engine: str
    depth: int
    threads: int
    drives: int
    direct: bool  #: every file was read past the page cache; else the rate may be that of memory
    chunk_bytes: int
    why: str  #: what was refused before the engine, or is missing


# ---- expert files ----------------------------------------------------------------------------------


class ExpertFile(_moxie.ExpertFile):
    """ExpertFile(path, *, load="map", verify=False, threads=None, read_engine=None, read_depth=0, read_chunk_bytes=0,
    mirror=None)

    One layer's experts on disk, and all else that a run needs. Opening checks everything but the records' bytes.

    load     "map": pages are read when a run first touches them. If the file is cut off meanwhile, the process gets SIGBUS;
             replacing it by a rename does no harm. "read": into memory. "direct": into memory, past the page cache
    verify   also read and check every record
    threads  that read side by side: None, a number, an Executor
    read_engine, read_depth, read_chunk_bytes, mirror   of load="direct": a name of read_engines(); reads in flight, 0: 32;
             bytes of one, 0: 256 KiB; the same file on another drive, which shares the reads
    """

    def __new__(cls, path, **options):
        self = super().__new__(cls, path, **options)
        self.path = path
        return self

    def layer(self, config: LayerConfig | None = None, **options: Any) -> Layer:
        """A Layer whose experts are the file's records; options as for Layer. It keeps the file open.

        config: None for the file's own, or a changed copy of it: another dtype, routing, or share of the experts.
        moxie.Unsupported when the kernels of the options read another layout; the text says which file would do.
        """
        return Layer.from_file(self, config, **options)

    def explain(self, **options: Any) -> Plan:
        """The Plan that its layer would get, which only explains; options as for Plan."""
        return Plan(self, **options)

    def __repr__(self):
        info = self.info
        return f"<moxie.ExpertFile layer {info.layer}: {info.held} of {info.experts} experts, {info.layout}>"


# ---- stores ----------------------------------------------------------------------------------------


def _census(census: Any) -> Any:
    """The uses of each expert as float64."""
    if census is None or str(getattr(census, "dtype", "")).removeprefix("torch.") == "float64":
        return census
    return census.astype("float64") if hasattr(census, "astype") else census.double() if hasattr(census, "double") else census


def _flat(pinned: Any) -> Any:
    return None if pinned is None else [int(number) for pair in pinned for number in pair]


class Store(_moxie.Store):
    """Store(paths, ram_bytes, *, device_bytes=0, policy=None, max_inserts=0, ...)

    Layers of expert files in less memory than they need: experts are read when a run needs them.

    paths         a folder, whose files NAME.moxie are taken, an expert file, or a list of such
    ram_bytes     memory for records: shared experts, slots, buffers for reads. Tables, routers, workspaces come on top
    device_bytes  memory of a GPU for records; 0: layers run on the host. Then ram_bytes are pinned
    policy        which experts keep a slot, a name of moxie.trace.policies(); None: the first one
    max_inserts   misses that get a slot in one run of a layer; 0: the layer's top-k, -1: any number
    half_life     in runs of the layer, as in moxie.trace.simulate()
    warm_runs     of each layer, in which "pinned" and "frozen" learn; 0 with a census
    census        [layers, experts] the uses of each expert, rows as `layers`
    pinned        [(layer number, expert), ...] which get a slot at once and keep it
    read_buffers  besides the slots; 0: twice top-k, at most a quarter of all
    prefetch      False: prefetch() and Plan.lookahead() do nothing
    verify        check each record that was read
    reader, read_depth, read_chunk_bytes   a name of read_engines(); reads in flight on a drive; bytes of one read
    buffered      read through the page cache
    mirror        a folder with the same files on another drive
    device        "0", "1", ... of device_bytes; device_buffers: for copies, besides its slots
    compute_where_it_lies   of device_bytes: a folder with files of the same layers for the CPU (moxie-cpu), which then computes
                  the experts without a slot on the GPU. Bits of results depend on which these are; None: the GPU computes all

    moxie.OutOfMemory when the budget is too small, with the bytes that would do.
    """

    def __new__(cls, paths, ram_bytes, *, census=None, pinned=None, **options):
        return super().__new__(cls, paths, ram_bytes, census=_census(census), pinned=_flat(pinned), **options)

    @staticmethod
    def describe(paths: Any, ram_bytes: int, *, census: Any = None, pinned: Any = None, **options: Any) -> StoreInfo:
        """The StoreInfo of a store that is not opened: what would become of the budget. No record is read."""
        return _moxie.Store.describe(paths, ram_bytes, census=_census(census), pinned=_flat(pinned), **options)

    def layer(self, number: int | None = None, config: LayerConfig | None = None, **options: Any) -> Layer:
        """The Layer with this number (None: the first) whose experts the store reads; options as for Layer. It keeps the
        store open. Results have the bytes of the layer with all experts in memory, except with compute_where_it_lies.

        config: None for the file's own, or a changed copy of layer_config(number). With device_bytes the back end is "cuda".
        """
        if self.info.device_slots > 0:
            options.setdefault("backend", "cuda")
        number = self.layers[0] if number is None else number
        layer = Layer._stored(self, number, config, **options)
        layer._options = options
        return layer

    def __repr__(self):
        info = self.info
        return f"<moxie.Store {info.layers} layers, {info.slots} slots each by {info.policy}, {info.file_bytes / 1e9:.3g} GB on disk>"
