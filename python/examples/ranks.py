# SPDX-License-Identifier: Apache-2.0
"""The first MoE layer of a checkpoint on several ranks, each with a part of the experts and tokens of its own:

    python ranks.py DIR local 4                                   threads of this process
    mpirun -n 4 python ranks.py DIR mpi4py                        processes, by mpi4py
    torchrun --nproc-per-node 4 ranks.py DIR torch                processes, by torch.distributed (gloo)

Tokens go to the ranks that own their experts, and the results come back. Then rank 0 runs all tokens alone, and the bytes
are compared.
"""

import sys
import threading

import moxie
import moxie.comm
import numpy as np

TOKENS = 3  # of each rank


def run_rank(comm, weights, hidden):
    """What every rank does. Making the plan and running it are collective."""
    config = weights.config.replace(ep_size=comm.ranks, ep_rank=comm.rank)
    layer = moxie.Layer.from_weights(weights, config, comm=comm, threads=1, max_tokens=TOKENS)
    own = hidden[comm.rank * TOKENS : (comm.rank + 1) * TOKENS]
    return layer.plan().run(own)


def states(ranks, config):
    """The same random bf16 hidden states on every rank."""
    values = np.random.default_rng(7).standard_normal((ranks * TOKENS, config.hidden)).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def compare(outputs, weights, hidden):
    """The ranks' outputs beside those of one rank with all experts; returns an exit code."""
    alone = moxie.Layer.from_weights(weights, threads=1, max_tokens=len(hidden)).plan().run(hidden)
    same = np.array_equal(np.concatenate(outputs), alone)
    print(f"{len(hidden)} tokens on {len(outputs)} ranks: the output bytes {'equal' if same else 'DIFFER FROM'} those of one rank")
    return 0 if same else 1


def threads(weights, ranks):
    hidden, outputs = states(ranks, weights.config), [None] * ranks

    def work(comm):
        outputs[comm.rank] = run_rank(comm, weights, hidden)

    running = [threading.Thread(target=work, args=(comm,)) for comm in moxie.Comm.local(ranks)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return compare(outputs, weights, hidden)


def mpi(weights, native):
    from mpi4py import MPI

    with moxie.comm.from_mpi4py(native=native) as comm:
        hidden = states(comm.ranks, weights.config)
        outputs = MPI.COMM_WORLD.gather(run_rank(comm, weights, hidden))
    return compare(outputs, weights, hidden) if outputs else 0


def torch(weights):
    from torch import distributed

    distributed.init_process_group("gloo")
    ranks, rank = distributed.get_world_size(), distributed.get_rank()
    with moxie.comm.from_torch_distributed() as comm:
        hidden = states(comm.ranks, weights.config)
        outputs = [None] * ranks if rank == 0 else None
        distributed.gather_object(run_rank(comm, weights, hidden), outputs)
    distributed.destroy_process_group()
    return compare(outputs, weights, hidden) if rank == 0 else 0


def main(directory, how, ranks="4"):
    model = moxie.Model(directory)
    weights = model.load(model.layers[0].layer)
    if how == "mpi4py":
        return mpi(weights, native=False)
    if how == "mpi":  # libmoxie's own module for the MPI library of mpi4py
        return mpi(weights, native=True)
    return torch(weights) if how == "torch" else threads(weights, int(ranks))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
