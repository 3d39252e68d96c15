/* SPDX-License-Identifier: Apache-2.0
 *
 * explain_ranks.h - `moxie explain --ranks N`: who has what, and what a token sends.
 */
#ifndef MOXIE_EXPLAIN_RANKS_H
#define MOXIE_EXPLAIN_RANKS_H

#include <moxie/moxie_parallel.h>

#include "cli_ranks.h"

/* What a rank has. Rows: [first, end). */
typedef struct explain_rank {
    int32_t ep_rank, tp_rank;
    int32_t count;          /* its experts */
    const int32_t *experts; /* [slots], -1: an empty slot */
    int32_t slots;
    int64_t w13[2], w2[2];
    int32_t columns;                 /* w2: columns of down, all of its rows */
    int64_t shared13[2], shared2[2]; /* rows of the shared expert */
    uint64_t shared_bytes[2];        /* of it: this rank's, all */
} explain_rank;

/* What leaves the ranks for one token, in one step: the mean over choices that are spread evenly, and the most. */
typedef struct explain_exchange {
    const char *step;
    uint64_t row_bytes;
    double rows;
    int64_t most;
    bool of_group; /* between the tensor parallel ranks of a group */
} explain_exchange;

/* Of the experts; of the shared expert: hidden states, activations, results. */
enum { EXPLAIN_EXCHANGES = 7 };

typedef struct explain_ranks {
    const cli_ranks_options *options;
    moxie_layer_config config;
    int32_t backend; /* moxie_backend */
    bool adapters;   /* tokens may have some */
    cli_placement placement;
    balance_map own; /* the map, where none was given */
    moxie_slot_map map;
    explain_rank *rank;
    explain_exchange exchange[EXPLAIN_EXCHANGES];
    int64_t tokens;    /* of a rank, at most */
    char chunks[320];  /* how they are cut; "": a capacity takes all at once */
    char streams[320]; /* of exchanges and products, on a GPU; else "" */
} explain_ranks;

/* `plan`: the options of one rank's plan. `options` must live as long. explain_ranks_free() in any case. */
moxie_status explain_ranks_find(const cli_ranks_options *options, const cli_layer *source, const moxie_options *plan,
                                explain_ranks *out, moxie_error *error);
void explain_ranks_print(const explain_ranks *r);
json_t *explain_ranks_json(const explain_ranks *r);
void explain_ranks_free(explain_ranks *r);

#endif
