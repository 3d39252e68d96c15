/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_ranks.h - one layer on many ranks, for every command that takes --ranks.
 *
 *     cli_ranks.c        options; which experts and rows a rank has       --ranks, --tp, --ep-map, --tokens-as, --comm
 *     cli_ranks_comm.c   a comm and a thread for each rank; what failed
 *     cli_ranks_run.c    layers, plans and runs of all ranks
 *     cli_shares.c       expert files of each rank, where there are some
 *     cli_ranks_time.c   runs of all ranks, timed on GPUs
 *     cli_ranks_pool.c   threads that all ranks share, where there is not one for each
 *     explain_ranks.c, diff_ranks.c, bench_ranks.c    what commands make of it
 *
 * Local ranks are threads of this process, and share its processors. With --comm mpi each process is a rank, which
 * reads the same input as the others; rank 0 gets the whole batch and prints.
 */
#ifndef MOXIE_CLI_RANKS_H
#define MOXIE_CLI_RANKS_H

#include <pthread.h>

#include "balance.h"
#include "cli_ranks_pool.h"

enum { CLI_COMM_LOCAL, CLI_COMM_MPI, CLI_COMM_NCCL };

typedef struct cli_ranks_options {
    int32_t ranks;     /* 0: not given; with MPI: as many as processes */
    int32_t tp;        /* ranks that share experts; 0: not given, which is 1 */
    const char *map;   /* linear, round_robin or a file; NULL: not given */
    int32_t tokens_as; /* moxie_token_layout */
    int32_t comm;      /* CLI_COMM_LOCAL, ... */
    int64_t capacity;  /* tokens that a rank owns at most, and no counts; 0: not given */
    int64_t chunk;     /* tokens of a rank that are exchanged at a time, at most; 0: not given */
    int64_t streams;   /* of exchanges and products, over NCCL; 0: not given */
    const char *lone;  /* an option that was given and needs --ranks */
} cli_ranks_options;

/* Child parsers; their input is a cli_ranks_options. The second has --comm besides. */
extern const struct argp cli_ranks_argp, cli_comm_argp;
/* Whether ranks were asked for. */
bool cli_ranks_asked(const cli_ranks_options *options);
/* "sharded", ... */
const char *cli_tokens_as(int32_t token_layout);

/* ---- who has what (cli_ranks.c) ------------------------------------------------------------------ */

typedef struct cli_placement {
    int32_t ranks, ep, tp, ep_map;
    balance_map maps;   /* of a file */
    moxie_slot_map map; /* the layer's row of it */
    const char *name;   /* "linear", ... or the file's */
} cli_placement;
/* Reads the map for the layer of `source`. cli_placement_free() in any case. */
moxie_status cli_placement_make(const cli_ranks_options *options, const cli_layer *source, cli_placement *out,
                                moxie_error *error);
void cli_placement_free(cli_placement *placement);
/* Makes the configuration of the whole layer that of rank `rank`. */
void cli_placement_apply(const cli_placement *placement, int32_t rank, moxie_layer_config *config);

/* ---- all ranks of this process (cli_ranks_comm.c, cli_ranks_run.c) -------------------------------- */

enum { CLI_MAX_PHASES = 32 };
/* Where the time of a step went (moxie_plan_phase_at): the mean over the ranks of each phase, in seconds, and the bytes
 * that a rank sends to others. */
typedef struct cli_parts {
    int32_t count;
    const char *name[CLI_MAX_PHASES];
    double seconds[CLI_MAX_PHASES];
    double sent_bytes;
} cli_parts;

/* A whole batch in the order of its tokens, and what a run makes of it. */
typedef struct cli_batch {
    const cli_input *input;
    void *output;     /* [T,H] */
    int32_t *ids;     /* [T,K] or NULL */
    float *weights;   /* [T,K] or NULL */
    float *logits;    /* [T,E] or NULL */
    int32_t runs;     /* 1 or more */
    double *seconds;  /* [runs] or NULL: of each run, from when the first rank begins until the last one ends */
    cli_parts *parts; /* [runs] or NULL; of ranks: rank 0 gets them */
    const struct moxie_adapters *adapters; /* NULL: none; of cli_layer_run() alone */
    const struct cli_adapters *given;      /* NULL: none; of cli_ranks_run() alone, where each rank has its own */
    const int32_t *adapter_ids;            /* [T] */
} cli_batch;

typedef struct cli_rank cli_rank;
typedef struct cli_ranks {
    cli_ranks_options options;
    const cli_layer_options *layer;
    const cli_layer *source;
    cli_placement placement;
    int32_t ranks, here; /* here: how many are in this process */
    bool leader;         /* rank 0 is */
    bool echo;           /* the last error is another process's, which prints it */
    bool broken, mpi;    /* mpi: MPI was started */
    cli_rank *rank;      /* [here] */
    const cli_batch *batch;
    const void *steps;               /* of cli_ranks_time() */
    cli_ranks_pool *pool;            /* that all ranks share; NULL: each has an executor of its own */
    moxie_executor *shared_executor; /* the pool's, where it is not the layer's */
    int64_t max_tokens;
    double prepare_seconds;
} cli_ranks;

struct cli_rank {
    cli_ranks *all;
    int32_t rank;
    moxie_comm *comm;
    moxie_comm *below; /* with NCCL: the local comm or that of MPI, by which ranks found each other; or NULL */
    char device[24];   /* the number of its CUDA device, "1", or "1:sm80"; "": the one of --device */
    moxie_executor *executor, *own_executor; /* own: to destroy; NULL: it is shared */
    moxie_expert_file *file;                 /* of its share; or NULL */
    moxie_layer *layer;
    moxie_plan *plan;
    struct moxie_adapters *adapters;
    void *workspace, *output; /* output: of a rank whose outputs nobody reads */
    moxie_status (*work)(cli_rank *rank, moxie_error *error);
    pthread_t thread;
    bool started;
    bool echo; /* its error is not the cause */
    moxie_status status;
    moxie_error error;
};

/* ---- expert files of each rank (cli_shares.c) ------------------------------------------------------ */

/* The configuration of the whole layer, from the first rank's file. */
moxie_status cli_shares_begin(const cli_layer_options *options, cli_layer *layer, moxie_error *error);
/* The layer of a rank with this configuration, out of its own directory. */
moxie_status cli_shares_layer(cli_rank *rank, const moxie_layer_config *config, const moxie_options *options,
                              moxie_error *error);

/* Whether all ranks came through; on another rank's failure an error that says so. Collective. */
moxie_status cli_rank_agree(cli_rank *rank, moxie_status status, moxie_error *error);
/* With --comm nccl: puts a comm over NCCL above the rank's. Collective. */
moxie_status cli_rank_begin_nccl(cli_rank *rank, moxie_error *error);
/* Does `work` on every rank of this process, on its thread; the error of the rank that failed first. */
moxie_status cli_ranks_each(cli_ranks *all, moxie_status (*work)(cli_rank *rank, moxie_error *error),
                            moxie_error *error);

/* The arguments of the rank's part of the batch (cli_ranks_run.c). */
moxie_status cli_rank_args(cli_rank *rank, const cli_batch *batch, moxie_run_args *args, moxie_error *error);
/* The phases of this rank's runs so far: nanoseconds, then the bytes that it sent. Returns how many phases there are.
 */
int32_t cli_rank_phases(const cli_rank *rank, int64_t values[CLI_MAX_PHASES + 1]);
/* The means over all ranks of what was counted since `before`. Collective; the first rank of the process gets them. */
moxie_status cli_rank_parts(const cli_rank *rank, const int64_t *before, cli_parts *out, moxie_error *error);

/* Makes the comms; first of all calls. cli_ranks_end() in any case. */
moxie_status cli_ranks_begin(const cli_ranks_options *options, cli_ranks *out, moxie_error *error);
/* The status of all processes: `status` and its error, or another one's. Local ranks: `status`. */
moxie_status cli_ranks_agree(cli_ranks *ranks, moxie_status status, moxie_error *error);
/* Makes the layers and plans of an opened layer; options and layer must live until the end. */
moxie_status cli_ranks_prepare(cli_ranks *ranks, const cli_layer_options *options, const cli_layer *source,
                               int64_t max_tokens, moxie_error *error);
/* Makes the plans of prepared layers anew, for other batches. */
moxie_status cli_ranks_plan_anew(cli_ranks *ranks, int64_t max_tokens, int64_t capacity, moxie_error *error);
/* Replaces *value by the largest of all processes. */
moxie_status cli_ranks_largest(cli_ranks *ranks, int64_t *value, moxie_error *error);
/* Runs the batch. With MPI, the leader gets the results of all. */
moxie_status cli_ranks_run(cli_ranks *ranks, const cli_batch *batch, moxie_error *error);
/* Times `runs` steps of all ranks, each on a batch of its own, `launches` times on GPUs (moxie_cuda_time_runs). Of the
 * leader's: seconds[launches], all steps together, of the slowest rank; and the parts of a step. */
moxie_status cli_ranks_time(cli_ranks *ranks, const cli_batch *batches, int32_t runs, int32_t launches, double *seconds,
                            cli_parts *parts, moxie_error *error);
/* The same on a prepared layer, one rank. */
moxie_status cli_layer_run(const cli_layer *layer, const cli_batch *batch, moxie_error *error);
/* Frees what cli_ranks_prepare() made; then another layer may be prepared. */
void cli_ranks_release(cli_ranks *ranks);
void cli_ranks_end(cli_ranks *ranks);
/* Whether tensor parallel ranks add their results (mode fast). */
bool cli_plan_sums(const moxie_plan *plan);
/* The plan of this process's first rank, and the bytes of all records that are here. */
const moxie_plan *cli_ranks_plan(const cli_ranks *ranks);
uint64_t cli_ranks_bytes(const cli_ranks *ranks);

#endif
