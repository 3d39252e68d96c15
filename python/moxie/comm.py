# SPDX-License-Identifier: Apache-2.0
"""Transports for moxie.Comm: over mpi4py, over torch.distributed, and the base of one of your own.

    comm = moxie.comm.from_mpi4py(MPI.COMM_WORLD)                 # or from_torch_distributed(), Comm.local(4), Comm.nccl(...)
    config = weights.config.replace(ep_size=comm.ranks, ep_rank=comm.rank)
    layer = moxie.Layer.from_weights(weights, config, comm=comm)  # this rank's experts
    y = layer.plan().run(x)                                       # each rank its own tokens; collective

A transport of your own is a subclass of Transport with two methods: post() starts messages, test() says whether they are
done. Everything else is made from them, and may be replaced.
"""

from __future__ import annotations

import struct
import sys
import time
from dataclasses import dataclass

from ._moxie import Comm, nccl_id, transports
from .errors import Mismatch

__all__ = ["Comm", "Rows", "Transport", "from_mpi4py", "from_torch_distributed", "nccl_id", "transports"]


@dataclass
class Rows:
    """Rows to and from every rank, as libmoxie hands them to alltoallv(), allgatherv() and reduce_scatter().

    send, recv  memory as memoryviews of bytes; row i begins at byte i * row_bytes. They are valid until the request is done
    *_rows      rows to and from rank r; *_at: at which row they begin
    """

    send: memoryview
    recv: memoryview
    row_bytes: int
    send_rows: list[int]
    send_at: list[int]
    recv_rows: list[int]
    recv_at: list[int]

    def outgoing(self, rank: int) -> memoryview:
        """The bytes for a rank."""
        return self._part(self.send, self.send_at[rank], self.send_rows[rank])

    def incoming(self, rank: int) -> memoryview:
        """Where the bytes from a rank go."""
        return self._part(self.recv, self.recv_at[rank], self.recv_rows[rank])

    def _part(self, memory, at, rows):
        return memory[at * self.row_bytes : (at + rows) * self.row_bytes] if rows else memory[:0]


class _Then:
    """A request, and what is left to do when it is done."""

    def __init__(self, request, finish):
        self.request, self.finish = request, finish


class Transport:
    """Carries bytes between `ranks` ranks, of which this is number `rank`. moxie.Comm(transport) makes a comm of it.

    A subclass sets ranks, rank and name, and has post() and test(). Operations start and return a request at once, any
    object; progress(request) is called until it is true. None says that the operation is done already. All ranks start the
    same operations in the same order, up to eight at a time. One thread calls at a time. What a method raises fails the
    call of moxie that needs it: TimeoutError and ConnectionError say that another rank is late or dead.
    """

    ranks = 1
    rank = 0
    name = "python"
    mask = None  #: mask(rank): from now on without that rank; None: this transport cannot

    def post(self, sends: list[tuple[int, memoryview]], receives: list[tuple[int, memoryview]]):
        """Starts one message to each rank of `sends` and one from each of `receives`, none of them empty nor to itself.
        Messages between two ranks arrive in the order in which they were posted."""
        raise NotImplementedError("a transport has a method post()")

    def test(self, request) -> bool:
        """Works on what post() returned without blocking; true when its messages are done."""
        raise NotImplementedError("a transport has a method test()")

    def late(self, request) -> int:
        """The lowest rank that a request still waits for; -1: unknown."""
        return -1

    def cancel(self) -> None:
        """Gives up all open requests: their memory is not touched any more."""

    def destroy(self) -> None:
        """The end; no request is open."""

    # ---- the operations of libmoxie's transport table ----

    def alltoallv(self, rows: Rows):
        """rows.send_rows[r] rows to each rank r, rows.recv_rows[r] from it."""
        me, others = self.rank, [r for r in range(self.ranks) if r != self.rank]
        if rows.recv_rows[me]:
            rows.incoming(me)[:] = rows.outgoing(me)
        sends = [(r, rows.outgoing(r)) for r in others if rows.send_rows[r]]
        receives = [(r, rows.incoming(r)) for r in others if rows.recv_rows[r]]
        return self.post(sends, receives) if sends or receives else None

    def allgatherv(self, rows: Rows):
        """rows.send_rows[0] rows from rows.send_at[0] on to every rank."""
        return self.alltoallv(Rows(rows.send, rows.recv, rows.row_bytes, rows.send_rows[:1] * self.ranks,
                                   rows.send_at[:1] * self.ranks, rows.recv_rows, rows.recv_at))

    def counts(self, send: memoryview, recv: memoryview, each: int):
        """`each` int64 to and from every rank."""
        if each == 0:
            return None
        ones, at = [1] * self.ranks, list(range(self.ranks))
        return self.alltoallv(Rows(send.cast("B"), recv.cast("B"), 8 * each, ones, at, ones, at))

    def barrier(self):
        """Done when all ranks have started it."""
        return self._gather(bytes(1), lambda gathered: None)

    def allreduce(self, values: memoryview, how: str):
        """Replaces values by their "sum_i64", "max_i64" or "max_f32" over all ranks."""
        if len(values) == 0:
            return None
        format = values.format

        def finish(gathered):
            parts = gathered.cast(format)
            for i in range(len(values)):
                values[i] = _combine(parts[i :: len(values)], how)

        return self._gather(bytes(values.cast("B")), finish)

    def reduce_scatter(self, rows: Rows):
        """Sums float32 rows of all ranks in rank order; rank r gets rows.recv_rows[r] of them, from rows.recv_at[r] on."""
        mine = rows.recv_rows[self.rank]
        size = mine * rows.row_bytes
        parts = memoryview(bytearray(size * self.ranks))
        each = [mine] * self.ranks
        request = self.alltoallv(Rows(rows.send, parts, rows.row_bytes, rows.recv_rows, rows.recv_at, each,
                                      [mine * r for r in range(self.ranks)]))
        return _Then(request, lambda: _add(parts, size, rows.recv))

    def progress(self, request) -> bool:
        """Whether a request is done."""
        if not isinstance(request, _Then):
            return self.test(request)
        if request.request is not None and not self.progress(request.request):
            return False
        request.finish()
        return True

    def _gather(self, own: bytes, finish):
        """The same number of bytes from every rank, then finish(memoryview of all)."""
        gathered = memoryview(bytearray(len(own) * self.ranks))
        n, zeros, at = self.ranks, [0] * self.ranks, list(range(self.ranks))
        request = self.alltoallv(Rows(memoryview(own), gathered, len(own), [1] * n, zeros, [1] * n, at))
        return _Then(request, lambda: finish(gathered))


def _combine(values, how):
    """In rank order; a sum wraps around, NaN is below every number."""
    best = values[0]
    for value in values[1:]:
        if how == "sum_i64":
            best += value
        elif value > best or best != best:
            best = value
    return (best + 2**63) % 2**64 - 2**63 if how == "sum_i64" else best


def _add(parts, size, out):
    """out = the sum of float32 parts, in rank order, each sum rounded to float32."""
    if size == 0:
        return
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        rows = numpy.frombuffer(parts, numpy.float32).reshape(-1, size // 4)
        total = rows[0].copy()
        for row in rows[1:]:
            total += row
        out[:size] = total.tobytes()
        return
    count = size // 4
    total = list(parts[:size].cast("f"))
    for at in range(size, len(parts), size):
        sums = (a + b for a, b in zip(total, parts[at : at + size].cast("f")))
        total = list(struct.unpack(f"{count}f", struct.pack(f"{count}f", *sums)))
    out[:size] = struct.pack(f"{count}f", *total)


# ---- mpi4py ----------------------------------------------------------------------------------------


class _Mpi4py(Transport):
    """Isend and Irecv on a duplicate of a communicator. Between two ranks MPI keeps the order of messages."""

    name = "mpi4py"

    def __init__(self, communicator):
        from mpi4py import MPI

        self.mpi, self.comm = MPI, communicator.Dup()
        self.ranks, self.rank, self.open = self.comm.Get_size(), self.comm.Get_rank(), []
        self.given_up = False

    def post(self, sends, receives):
        byte = self.mpi.BYTE
        request = ([self.comm.Irecv([memory, byte], rank) for rank, memory in receives],
                   [self.comm.Isend([memory, byte], rank) for rank, memory in sends],
                   [rank for rank, _ in receives])
        self.open.append(request)
        return request

    def test(self, request):
        try:
            if not self.mpi.Request.Testall(request[0] + request[1]):
                return False
        except self.mpi.Exception as error:
            if error.Get_error_class() == self.mpi.ERR_TRUNCATE:
                raise Mismatch(f"another rank sends more than this one expects: {error}") from error
            raise ConnectionError(str(error)) from error
        self.open.remove(request)
        return True

    def late(self, request):
        request = request.request if isinstance(request, _Then) else request
        if request is None:
            return -1
        waiting = [rank for rank, receive in zip(request[2], request[0]) if not receive.Test()]
        return min(waiting, default=-1)

    def cancel(self):
        """Withdraws receives. One that has begun still writes, and sends are read, so all get a moment to end."""
        pending = [request for receives, sends, _ in self.open for request in receives + sends if request]
        for receives, _, _ in self.open:
            for receive in receives:
                if receive:  # not done
                    receive.Cancel()
        until = time.monotonic() + 0.1
        while not all([self._ended(request) for request in pending]) and time.monotonic() < until:
            time.sleep(0.0002)
        for request in pending:
            if request:
                request.Free()
        self.open.clear()
        self.given_up = True

    def _ended(self, request):
        try:
            return not request or request.Test()
        except self.mpi.Exception:
            return True

    def destroy(self):
        """Frees the communicator, but not after cancel(): others may be dead, and late messages would reach its successor."""
        if not self.mpi.Is_finalized() and not self.given_up:
            self.comm.Free()


def _mpi_address(communicator) -> int:
    """The address of an MPI_Comm: itself, or that of a communicator of mpi4py."""
    if isinstance(communicator, int):
        return communicator
    from mpi4py import MPI

    return MPI._addressof(communicator)


def from_mpi4py(communicator=None, *, deadline_ms: int = 0, native: bool | None = None) -> Comm:
    """A comm over a communicator of mpi4py (None: COMM_WORLD), which is duplicated. Collective.

    native  True: by libmoxie's own module for the MPI library that mpi4py uses (Comm.mpi), which costs less a call. False:
            by calls of mpi4py, which works with every MPI library. None: the first where it is there, on all ranks
    """
    from mpi4py import MPI

    communicator = MPI.COMM_WORLD if communicator is None else communicator
    if native is None:
        usable = any(t.name == "mpi" and t.usable for t in transports())
        native = bool(communicator.allreduce(int(usable), MPI.MIN))
    if native:
        return Comm.mpi(communicator, deadline_ms=deadline_ms)
    return Comm(_Mpi4py(communicator), deadline_ms=deadline_ms)


# ---- torch.distributed -----------------------------------------------------------------------------


class _TorchDistributed(Transport):
    """all_to_all_single on host tensors. Bytes are packed into tensors of the transport's own, and unpacked when it is
    done, so a collective that was given up touches nobody's memory."""

    name = "torch.distributed"

    def __init__(self, group):
        import torch
        from torch import distributed

        self.torch, self.dist, self.group = torch, distributed, group
        self.ranks, self.rank = distributed.get_world_size(group), distributed.get_rank(group)
        self.given_up = []
        self.open = []

    def alltoallv(self, rows):
        torch, sizes = self.torch, [n * rows.row_bytes for n in rows.send_rows]
        out = bytearray().join(rows.outgoing(r) for r in range(self.ranks))
        sent = torch.frombuffer(out, dtype=torch.uint8) if out else torch.empty(0, dtype=torch.uint8)
        received = [n * rows.row_bytes for n in rows.recv_rows]
        into = torch.empty(sum(received), dtype=torch.uint8)
        work = self.dist.all_to_all_single(into, sent, received, sizes, group=self.group, async_op=True)
        request = (work, sent, into, rows)
        self.open.append(request)
        return request

    def test(self, request):
        work, _, into, rows = request
        if not work.is_completed():
            return False
        try:
            work.wait()  # raises what went wrong, in gloo's words
        except RuntimeError as error:
            raise ConnectionError(str(error)) from error
        memory, at = memoryview(into.numpy()) if into.numel() else memoryview(b""), 0
        for rank in range(self.ranks):
            part = rows.incoming(rank)
            part[:] = memory[at : at + len(part)]
            at += len(part)
        self.open.remove(request)
        return True

    def cancel(self):
        self.given_up += self.open  # the group may still write into our tensors
        self.open.clear()

    def wait(self, request, ms):
        """Gives the group's thread a moment."""
        time.sleep(min(ms, 0.1) / 1000)


def from_torch_distributed(group=None, *, deadline_ms: int = 0) -> Comm:
    """A comm over a process group of torch.distributed that takes tensors on the host, such as "gloo" (None: the default
    group). All ranks of the group call it.

    The group is not duplicated: use it for nothing else while moxie runs. A rank that is late is noticed at deadline_ms,
    but not named, since the group does not say which one it waits for.
    """
    return Comm(_TorchDistributed(group), deadline_ms=deadline_ms)
