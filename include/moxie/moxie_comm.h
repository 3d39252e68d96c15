/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_comm.h - ranks: what carries rows of tokens between processes, threads or devices.
 *
 *     transport   a table of functions that move bytes: local, mpi, nccl, or an engine's own
 *     comm        a transport with a deadline; one for each rank, the same kind on all of them
 *
 *     moxie_comm_local_create, moxie_comm_mpi_create, moxie_comm_create (a transport of your own)
 *         -> options.comm                     -> moxie_plan_create, moxie_plan_run: tokens go to the ranks that own
 *                                                their experts, results come back
 *         -> moxie_comm_alltoallv, ...        -> the same operations for the caller's own use
 *
 * The output bytes of N ranks equal those of one: a row leaves its owner once for each destination. One row comes
 * back for each choice, unweighted. The owner sums them in slot order (docs/ranks.md).
 *
 * The rules of moxie.h about calls, threads and structs hold here too.
 */
#ifndef MOXIE_COMM_H
#define MOXIE_COMM_H

#include <moxie/moxie.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The largest number of ranks. */
#define MOXIE_MAX_RANKS 1024

/* ------------------------------------------------------------------------------------------- */
/* Transports                                                                                  */
/* ------------------------------------------------------------------------------------------- */

/* Rows to and from every rank. For rank r: rows [send_at[r], send_at[r] + send_rows[r]) of `send` go there, and
 * recv_rows[r] rows come from there to row recv_at[r] of `recv`. Each array has one number a rank. Both sides know the
 * numbers of rows; they must agree. Ranks that exchange no rows need not wait for each other. The own rank's rows are
 * copied. Sent ranges may overlap each other, received ones may not, and `send` may not overlap `recv`. */
typedef struct moxie_comm_rows {
    const void *send;
    void *recv;
    uint64_t row_bytes; /* of each row, 1 or more; row i begins at byte i * row_bytes */
    const int64_t *send_rows, *send_at, *recv_rows, *recv_at;
    /* on_device 1: `send` and `recv` are memory of the transport's device. The transfer begins when what is enqueued on
     * `stream` (a cudaStream_t) so far has ended, and what is enqueued there after the request is done begins later.
     * 2: the same, but the request is done when the transfer is enqueued there: `stream` is being captured in a graph,
     * or a later request is waited for. */
    void *stream;
    uint32_t on_device;
    uint32_t reserved[1]; /* zero */
} moxie_comm_rows;

typedef enum moxie_comm_sum { MOXIE_COMM_SUM_I64 = 0, MOXIE_COMM_MAX_I64 = 1, MOXIE_COMM_MAX_F32 = 2 } moxie_comm_sum;

/* What moves the bytes. Fill one to bring a network of your own. `self` is the first argument of every function.
 *
 * The five operations start and return at once; *request gets a number that progress() accepts. All pointers stay valid
 * and unchanged until the request is done. Every rank starts the same operations in the same order; up to 8 requests
 * may be open at a time. An operation may also finish before it returns.
 *
 * A failure is MOXIE_ERR_TIMEOUT when another rank is dead or was cancelled, and its text names the rank. After one
 * failure every further call but cancel() and destroy() may fail. `error` is never NULL. Functions of one transport are
 * called one-thread-at-a-time; transports of different ranks work at the same time. Sizes are checked before: numbers
 * are not negative, bytes fit 63 bits, pointers are there where rows are. */
typedef struct moxie_transport {
    uint32_t struct_size;
    int32_t ranks, rank;
    const char *name; /* "local", "mpi", ...; lives as long as the transport */
    void *self;
    /* All-to-all of `each` numbers: send[r * each ..] goes to rank r, recv[r * each ..] came from there. */
    moxie_status (*counts)(void *self, const int64_t *send, int64_t *recv, int64_t each, int64_t *request,
                           moxie_error *error);
    moxie_status (*alltoallv)(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error);
    /* As alltoallv, but send_rows[0] rows from send_at[0] go to every rank; the other entries are not read. */
    moxie_status (*allgatherv)(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error);
    /* Sums f32 rows of all ranks in rank order: from `send`, [rows of all ranks, cols], rank r gets the recv_rows[r]
     * rows from row recv_at[r] on, summed, to row 0 of its `recv`. Both arrays are the same on all ranks. send_rows and
     * send_at are not read; row_bytes is 4 cols. It rounds once a rank, so it serves mode FAST only. */
    moxie_status (*reduce_scatter)(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error);
    /* Replaces values[n] by their sum or maximum over all ranks, in rank order; the type is `how`'s. A sum wraps around
     * where it does not fit. NaN is below every number. */
    moxie_status (*allreduce)(void *self, void *values, int64_t n, moxie_comm_sum how, int64_t *request,
                              moxie_error *error);
    moxie_status (*barrier)(void *self, int64_t *request, moxie_error *error);
    /* Works on open requests without blocking. *done: 1 when `request` is done; then its number is free again. */
    moxie_status (*progress)(void *self, int64_t request, int32_t *done, moxie_error *error);
    /* The lowest rank that `request` still waits for, or -1 when that is unknown. Also called for a request that failed
     * with MOXIE_ERR_TIMEOUT: which rank is to blame. */
    int32_t (*late)(void *self, int64_t request);
    /* Gives up all open requests: then it touches none of their memory. Other ranks that wait for this one fail. */
    void (*cancel)(void *self);
    void (*destroy)(void *self); /* frees `self`; no request is open */
    /* May be NULL: then the comm polls. Sleeps until `request` may have come further, at most `ms` milliseconds. */
    void (*wait)(void *self, int64_t request, int32_t ms);
    /* 0: all memory is the host's. n + 1: alltoallv and allgatherv also take rows that are on CUDA device n. */
    int32_t device;
    /* May be NULL: then a degraded run (moxie_degraded) ends with what this rank has, without any other one. From now
     * on this rank exchanges nothing with `rank`: open and later operations count its rows as exchanged, touch no
     * memory for them, and leave its values out of sums. It is called after a failure too, which it mends. The ranks
     * that are left may be told of it, or call it on their own. MOXIE_ERR_TIMEOUT: `rank` is alive and waits for
     * another one, so it may still come. Any other failure: this rank cannot go on. */
    moxie_status (*mask)(void *self, int32_t rank, moxie_error *error);
} moxie_transport;
#define MOXIE_TRANSPORT_INIT MOXIE_INIT(moxie_transport)

/* A transport that libmoxie brings. */
typedef struct moxie_transport_info {
    uint32_t struct_size;
    int32_t usable;    /* 0: `missing` says why it is not, here and now */
    const char *name;  /* "local", "mpi", ...; static */
    const char *ranks; /* what its ranks are: "threads of one process"; static */
    char missing[512]; /* "" when it is usable */
} moxie_transport_info;
#define MOXIE_TRANSPORT_INFO_INIT MOXIE_INIT(moxie_transport_info)
/* Fills `out` with transport `index`, counted from 0. Returns 0 behind the last one, or when `out` is NULL. It may open
 * the transport's library. Thread-safe. */
MOXIE_API int moxie_transport_at(int32_t index, moxie_transport_info *out);

/* ------------------------------------------------------------------------------------------- */
/* Comms                                                                                       */
/* ------------------------------------------------------------------------------------------- */

typedef struct moxie_comm moxie_comm;

typedef struct moxie_comm_options {
    uint32_t struct_size;
    int32_t deadline_ms; /* how long a rank waits for others in one operation, no other work included; 0: 30000 */
} moxie_comm_options;
#define MOXIE_COMM_OPTIONS_INIT MOXIE_INIT(moxie_comm_options)

/* A comm over a transport of the caller's. Copies the struct; the comm calls destroy() in the end, also when this call
 * fails after checking the struct. `options` may be NULL. Thread-safe. */
MOXIE_API moxie_status moxie_comm_create(const moxie_transport *transport, const moxie_comm_options *options,
                                         moxie_comm **out, moxie_error *error);

/* Bytes that ranks on the host exchange for a layer: *dispatch for a token's row, with its choices, to each rank that
 * computes one of them; *result for the result of a choice. Where W13 reads quantized activations a row is codes and
 * scales; static scales count as the same for all experts, without which it is hidden states. Thread-safe. */
MOXIE_API moxie_status moxie_exchange_row_bytes(const moxie_layer_config *config, uint64_t *dispatch, uint64_t *result,
                                                moxie_error *error);

/* The same for plans with `options`. Three of them count: backend, token_layout and max_adapter_rank. With adapters a
 * row is a hidden state and the adapter's number. On GPUs and on the ref back end it is a hidden state. Where all ranks
 * have all tokens, *dispatch is 0. NULL: sharded tokens on the host without adapters. Thread-safe. */
MOXIE_API moxie_status moxie_exchange_row_bytes_with(const moxie_layer_config *config, const moxie_options *options,
                                                     uint64_t *dispatch, uint64_t *result, moxie_error *error);

/* `ranks` comms in this process, out[r] for rank r. One thread uses a comm at a time. Destroy each of them: they share
 * memory that the last one frees. A thread that waits sleeps. Rows are copied once, from the sender's memory to the
 * receiver's, by whichever of the two is in a call. There may be more ranks than processors. Thread-safe. */
MOXIE_API moxie_status moxie_comm_local_create(int32_t ranks, const moxie_comm_options *options, moxie_comm **out,
                                               moxie_error *error);

/* After a failure: a comm of the ranks of `comm` without the `count` ones of `dead`, for the calling rank, which is not
 * among them. Ranks keep their order. `comm` is one of moxie_comm_local_create, or of this call; destroy it as ever,
 * before or after. Each rank that is left calls this once, with the same list: another list is MOXIE_ERR_MISMATCH, with
 * both. It does not wait for the others; a rank that never calls is late in the new comm. Thread-safe. */
MOXIE_API moxie_status moxie_comm_local_without(const moxie_comm *comm, const int32_t *dead, int32_t count,
                                                const moxie_comm_options *options, moxie_comm **out,
                                                moxie_error *error);

/* A comm over MPI. libmoxie does not link MPI: it opens libmoxie_openmpi.so or libmoxie_mpich.so, the one that fits the
 * MPI library in this process; the environment variable MOXIE_MPI_LIBRARY names another file. `communicator` points to
 * an MPI_Comm, or is NULL for MPI_COMM_WORLD; it is duplicated, which takes at most deadline_ms. MPI must be
 * initialised: MOXIE_ERR_ARGUMENT otherwise. MOXIE_ERR_UNSUPPORTED when there is no such module.
 *
 * Collective over the communicator, and so is destroying it: that waits up to one second for the other ranks. Comms are
 * destroyed before MPI_Finalize. Thread-safe as far as MPI is (MPI_THREAD_SERIALIZED is enough for one comm a process).
 *
 * When a process dies, launchers kill the others, unless told not to: Open MPI's mpirun by --enable-recovery, that of
 * version 5 by --with-ft ulfm. Then the others fail at their deadline, or as soon as MPI says that it is dead. (MPICH
 * 4.0's mpirun mostly ends all in spite of its -disable-auto-cleanup.) Over TCP a program must ignore SIGPIPE, or the
 * signal of a broken connection ends it. MPI cannot withdraw a message that was sent, and may still read it. So a
 * program whose comm has failed frees its plans' memory last. It ends without MPI_Finalize, which may wait for the dead
 * process. MPICH reports broken messages to MPI_COMM_WORLD: set MPI_ERRORS_RETURN there, or its default ends it. */
MOXIE_API moxie_status moxie_comm_mpi_create(const void *communicator, const moxie_comm_options *options,
                                             moxie_comm **out, moxie_error *error);

/* Starts MPI in a program that does not call MPI itself, as moxie's tool under mpirun: opens the module of the
 * launcher's MPI library, or the one that MOXIE_MPI_LIBRARY names, and calls MPI_Init_thread. MOXIE_ERR_ARGUMENT when
 * no mpirun started this process, or MPI is initialised already. From here on SIGPIPE is ignored, if it has no handler.
 * By the main thread, once. */
MOXIE_API moxie_status moxie_comm_mpi_launch(moxie_error *error);
/* MPI_Finalize for moxie_comm_mpi_launch, after all comms are destroyed. Not after a comm has failed: see above. */
MOXIE_API void moxie_comm_mpi_finish(void);

/* NCCL, between CUDA devices: one rank a device. libmoxie opens libnccl.so.2 (2.18 or later) when it is first asked for
 * a comm; the environment variable MOXIE_NCCL_LIBRARY names another file. Set one of id, over and file: how the ranks
 * find each other. */
#define MOXIE_NCCL_ID_BYTES 128
typedef struct moxie_nccl_options {
    uint32_t struct_size;
    int32_t ranks, rank; /* not read with `over` */
    const char *device;  /* of this rank, as in moxie_options; NULL: the first */
    const void *id;      /* [MOXIE_NCCL_ID_BYTES], which moxie_comm_nccl_id gave one rank, and which all have */
    moxie_comm *over;    /* another comm of the same ranks, such as one over MPI; it may be destroyed afterwards */
    const char *file;    /* rank 0 writes it, the others wait for it, rank 0 removes it; it must not be there before */
} moxie_nccl_options;
#define MOXIE_NCCL_OPTIONS_INIT MOXIE_INIT(moxie_nccl_options)

/* A new id, for one comm. MOXIE_ERR_UNSUPPORTED without NCCL. Thread-safe. */
MOXIE_API moxie_status moxie_comm_nccl_id(void *id, moxie_error *error);

/* Collective: it waits at most deadline_ms for the other ranks. It takes rows that are on its device, for plans of the
 * cuda back end there. Other operations, and rows of the host, are copied to the device and back. MOXIE_ERR_UNSUPPORTED
 * without NCCL or the device.
 *
 * A rank that is dead or late fails the others at their deadline. Their text names it when they wait for numbers, as at
 * the beginning of each chunk of a run. NCCL does not say which rank it is while rows travel between devices. Ranks
 * that share a device are refused by NCCL. Destroying waits up to one second for the other ranks. Where not all ranks
 * have called this, or destroyed theirs, in time, NCCL still waits for them, on a thread that is left behind.
 * Thread-safe. */
MOXIE_API moxie_status moxie_comm_nccl_create(const moxie_nccl_options *nccl, const moxie_comm_options *options,
                                              moxie_comm **out, moxie_error *error);

/* After its plans. Ranks that still wait for this one fail. One-thread-at-a-time. */
MOXIE_API void moxie_comm_destroy(moxie_comm *comm);

/* Immutable. */
MOXIE_API int32_t moxie_comm_ranks(const moxie_comm *comm);
MOXIE_API int32_t moxie_comm_rank(const moxie_comm *comm);
MOXIE_API const char *moxie_comm_name(const moxie_comm *comm);

/* 1: this comm gave up on `rank`, or broke because of it; 0: it did not, or who is to blame is unknown. Immutable. */
MOXIE_API int32_t moxie_comm_lost(const moxie_comm *comm, int32_t rank);

/* What the last run of a plan with options.degraded went without. */
typedef struct moxie_losses {
    uint32_t struct_size;
    int32_t ranks;  /* that this rank has lost so far; moxie_comm_lost says which */
    int64_t slots;  /* choices of this rank's own tokens whose results are lost, so they counted zero */
    int64_t tokens; /* REPLICATED: tokens of lost ranks, whose outputs are zero */
} moxie_losses;
#define MOXIE_LOSSES_INIT MOXIE_INIT(moxie_losses)
/* All zero for a plan without a comm or before its first run. Immutable. */
MOXIE_API moxie_status moxie_plan_losses(const moxie_plan *plan, moxie_losses *out, moxie_error *error);

/* The transport's operations, each to its end. Memory is the caller's, not touched after the call. Failures:
 *
 *     MOXIE_ERR_TIMEOUT    a rank is dead, has left, or is late past the deadline; the text names it
 *     MOXIE_ERR_MISMATCH   ranks disagree about the operation, numbers of rows or row_bytes; the text names two ranks
 *                          and both numbers. Transports that see it report it; local does, on all ranks of it
 *     MOXIE_ERR_ARGUMENT   NULL, negative or too large numbers: nothing was started, and the comm works on
 *
 * Any failure but MOXIE_ERR_ARGUMENT breaks the comm, and received memory may be partly written. Further calls fail
 * with the first text: destroy the comm and its plans, and make new ones. One-thread-at-a-time. */
MOXIE_API moxie_status moxie_comm_counts(moxie_comm *comm, const int64_t *send, int64_t *recv, int64_t each,
                                         moxie_error *error);
MOXIE_API moxie_status moxie_comm_alltoallv(moxie_comm *comm, const moxie_comm_rows *rows, moxie_error *error);
MOXIE_API moxie_status moxie_comm_allgatherv(moxie_comm *comm, const moxie_comm_rows *rows, moxie_error *error);
MOXIE_API moxie_status moxie_comm_reduce_scatter(moxie_comm *comm, const moxie_comm_rows *rows, moxie_error *error);
MOXIE_API moxie_status moxie_comm_allreduce(moxie_comm *comm, void *values, int64_t n, moxie_comm_sum how,
                                            moxie_error *error);
MOXIE_API moxie_status moxie_comm_barrier(moxie_comm *comm, moxie_error *error);
/* Whether all ranks have succeeded in what each did alone, such as the capture of a graph: each gives its status. A
 * rank that gives a failure gets it back, with *error as it was. The others get MOXIE_ERR_MISMATCH, which names the
 * lowest rank that failed and its status; the comm works on. One-thread-at-a-time. */
MOXIE_API moxie_status moxie_comm_agree(moxie_comm *comm, moxie_status status, moxie_error *error);

/* ------------------------------------------------------------------------------------------- */
/* Moving experts between runs                                                                 */
/* ------------------------------------------------------------------------------------------- */

/* Moves experts of a layer from its present slot map to another one, some with each step, while the layer is used: a
 * step between two runs, on all ranks. Every rank computes from both maps what moves in a step, so no collective is
 * needed: a rank that sends and gets nothing does not wait. After each step that changed something the layer has a new
 * map, whose generation is one higher; plans of the layer use it from their next run on. Outputs have the same bytes
 * before, between and after the steps. Where nothing changes, nothing moves.
 *
 * The layer was created with options.spare_slots, and lies in host memory. */
typedef struct moxie_mover moxie_mover;

typedef struct moxie_mover_options {
    uint32_t struct_size;
    struct moxie_comm *comm;      /* records come from other ranks; not used beside weights */
    const moxie_weights *weights; /* records come from these views instead, which outlive the mover; or NULL */
    uint64_t max_bytes; /* of all records that move in a step, on all ranks together; at least one record's. 0: as many
                         * as there are spare slots for. The same on all ranks */
} moxie_mover_options;
#define MOXIE_MOVER_OPTIONS_INIT MOXIE_INIT(moxie_mover_options)

typedef struct moxie_mover_report {
    uint32_t struct_size;
    int32_t moves;       /* records that moved in this step, on all ranks together */
    int32_t left;        /* records that are still to move; 0: the layer has the target's experts */
    uint64_t bytes;      /* of `moves` */
    uint64_t own_bytes;  /* of the moves to this rank */
    uint64_t generation; /* of the layer's map now */
} moxie_mover_report;
#define MOXIE_MOVER_REPORT_INIT MOXIE_INIT(moxie_mover_report)

/* `target` is for the ranks and experts of the layer's map; its generation is not read. On each rank it has at most as
 * many experts as the layer's first map had slots there, and spare_slots - 1 more: MOXIE_ERR_MEMORY otherwise. The map
 * is not needed afterwards; the layer outlives the mover. A layer has one mover at a time. Thread-safe. */
MOXIE_API moxie_status moxie_mover_create(moxie_layer *layer, const moxie_slot_map *target,
                                          const moxie_mover_options *options, moxie_mover **out, moxie_error *error);
/* One-thread-at-a-time. */
MOXIE_API void moxie_mover_destroy(moxie_mover *mover);
/* One step. No plan of the layer may be running. On failure the layer is as it was, and the comm may be broken. Records
 * of another layout or with a wrong checksum are MOXIE_ERR_MISMATCH. `report` may be NULL. One-thread-at-a-time. */
MOXIE_API moxie_status moxie_mover_step(moxie_mover *mover, moxie_mover_report *report, moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif
