/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.h - a plan's part that ranks need to compute a layer together (options.comm).
 *
 *     rank = group * tp_size + tp_rank      a group is an expert parallel rank: it holds whole experts, tp_size ranks
 *                                           share their rows
 *
 * A batch is cut into chunks of at most chunk_tokens tokens of each rank, so that the buffers do not grow with T. In
 * the worst case all pairs of a chunk go to one rank. Two chunks have buffers for all but the return: one is
 * dispatched while the other is computed. The buffers of a chunk in the workspace, for C = chunk_tokens:
 *
 *     own tokens        position [C, K]    row of `returned` for each choice, or -1
 *     dispatch, out     coded [C], send_x [C min(K, groups)], send_ids, send_weights [.., K], send_adapters [..]
 *     dispatch, in      recv_x [R C], recv_ids, recv_weights [R C, K], recv_adapters [R C]
 *     return, out       results [R C K, cols of this rank]
 *     return, in        returned [C K, H]; with tp_size > 1 in blocks of columns, which `whole` puts together
 *
 * A row of x is a hidden state. Where W13 reads quantized activations, it is the codes and scales of one instead, which
 * its owner makes once for all ranks (quant/act_row.h); `coded` has those of own tokens.
 *
 * With a fixed capacity a batch is one chunk, C is the capacity, and all messages have room for the worst case:
 *
 *     send_x [groups C]    C rows for each group; those that are not used have no choices (ids -1)
 *     results [R C K], returned [groups C K]    the result of choice j of row i at i K + j; zeros where it has none
 *
 * Without a capacity the device may place rows, too (mox_ranks.places). Then send_x has room for C rows of each group,
 * of which only the used ones travel. Results are as above.
 *
 * In the flow: options.comm -> plan_ranks.c -> [plan] -> run_ranks.c.
 */
#ifndef MOX_LAYER_RANKS_H
#define MOX_LAYER_RANKS_H

#include "base/memory.h"
#include "base/sizes.h"
#include "comm/comm.h"
#include "cuda/cuda_table.h"
#include "layer/plan/exchange_bytes.h"

/* What the buffers of a chunk may take together. A chunk reads all local weights once, so it should be large; but its
 * worst case is R times as large as the usual one, and memory that a plan never touches is still address space. */
#define MOX_EXCHANGE_BYTES (INT64_C(256) << 20)
/* On a GPU a 16th of its memory, within these; not where rows are staged in pinned memory. There a chunk costs more:
 * its products read the weights anew, the host waits once for its counts, and its exchanges hide behind nothing, unless
 * they have a stream of their own. */
#define MOX_EXCHANGE_BYTES_DEVICE     (INT64_C(1) << 30)
#define MOX_EXCHANGE_MAX_BYTES_DEVICE (INT64_C(4) << 30)

/* With a stream of their own exchanges hide behind the products of another chunk. So a batch is cut in two where both
 * have so many tokens of a rank at least, whose products take longer than reading the weights again. */
#define MOX_EXCHANGE_BESIDE_TOKENS 256

/* Arrays of one number a rank that a run needs. */
typedef struct mox_ranks_counts {
    int64_t *rows, *at;        /* rows to each rank, and the first in send_x */
    int64_t *from_rows, *from; /* rows from each rank, and the first in recv_x */
    int64_t *pairs, *pairs_at; /* choices that each rank computes for this one; the first row in `returned` */
    int64_t *from_pairs;       /* choices that this rank computes for each */
    int64_t *next_row, *next_pair;
    int64_t *out, *out_at; /* of an exchange, in its own units */
    int64_t *in, *in_at;
    int64_t *send, *recv; /* the numbers of one message to and from each rank */
} mox_ranks_counts;

/* Byte offsets in the workspace. */
typedef struct mox_ranks_space {
    uint64_t position, token;     /* [C, K]; [rows] token of each row that is sent or taken */
    uint64_t coded, code_scratch; /* [C] rows; [workers] of code_scratch_bytes */
    uint64_t send_x, send_ids, send_weights, recv_x, recv_ids, recv_weights;
    uint64_t send_adapters, recv_adapters; /* [rows] i32 */
    uint64_t order;                        /* [pass pairs] rows of y in the order of `results` */
    uint64_t results, returned, whole;
    uint64_t output; /* [C, H] outputs that all ranks get */
    /* plans on a device: */
    uint64_t local;          /* [R C, K] pairs that this rank computes */
    uint64_t shared_offsets; /* [2] */
    uint64_t placed;         /* [groups, 2] rows and choices of each group, as the device counts them */
    uint64_t maxima;         /* [R] magnitudes, of which one scale covers the batch */
    uint64_t kept;           /* [C, K] weights of choices that are left, when others are lost */
} mox_ranks_space;

/* What a chunk needs from its dispatch on. There are two, since the next chunk is dispatched before this one is
 * computed. */
typedef struct mox_ranks_side {
    mox_ranks_space space;
    mox_ranks_counts counts;
    moxie_comm_rows rows[MOX_DISPATCHED];
    mox_comm_request requests[MOX_DISPATCHED];
    int32_t open;               /* of these requests, those that are under way */
    mox_comm_request announced; /* with a capacity: the message that goes with the rows */
} mox_ranks_side;

/* What one stream of a run waits for on the other (run/ranks_streams.h). */
typedef enum mox_ranks_event {
    MOX_RANKS_ROUTED,     /* exchanges wait for: routing, and what the caller's stream had before */
    MOX_RANKS_DISPATCHED, /* products: the rows of a chunk have come */
    MOX_RANKS_COMPUTED,   /* exchanges: the results of a chunk are there */
    MOX_RANKS_RETURNED,   /* products: they have left, so the next may take their place */
    MOX_RANKS_SHARED,     /* exchanges: the shared expert's results of own tokens are there */
    MOX_RANKS_COMBINED,   /* products: they have been read */
    MOX_RANKS_ENDED,      /* products: all exchanges of the run have ended */
    MOX_RANKS_EVENTS
} mox_ranks_event;

typedef struct mox_ranks {
    moxie_comm *comm;
    int32_t count, rank, groups, group, tp_size, tp_rank;
    moxie_token_layout layout;
    int64_t generation;
    int64_t number;         /* of the plan: the comm's operations when it was made, so plans of one comm differ */
    int32_t *first_replica; /* [E + 1] */
    int32_t *replica;       /* groups that hold expert e: replica[first_replica[e] ..], rising */
    int64_t *col;           /* [tp_size + 1] first column of y on each rank of a group */
    int64_t *tp_numbers;    /* [4 count] of an exchange in a tensor parallel group */
    int64_t *share;         /* [tp_size] tokens that each rank brings to the shared expert */
    int64_t unit;           /* columns that divide the widths of all ranks */
    int64_t chunk_tokens;   /* of one rank, at most */
    int64_t asked_chunk;    /* options.exchange_chunk; 0: chosen by the buffers' bytes */
    int64_t capacity;       /* 0, or chunk_tokens: no counts are exchanged */
    void *refusal;          /* with a capacity: rows to send and receive for a run whose arguments are wrong */
    void *refusal_x;        /* the same of x where it alone is on the device */
    bool coded;             /* rows are codes and scales */
    bool adapted;           /* rows have an adapter's number */
    float static_scale;     /* of W13's activations, the same for all experts of all ranks, where codes need one */
    int64_t row_bytes;      /* of a row of x */
    uint64_t code_scratch_bytes;
    int64_t max_rows; /* that come to one rank in a chunk */
    mox_ranks_side sides[2];
    mox_ranks_space space; /* of the present chunk's side */
    mox_ranks_counts counts;
    bool one_chunk;      /* a scale covers the whole batch: every rank takes part in it, also without rows */
    int64_t calls;       /* runs so far: all ranks must be at the same one */
    uint64_t sent_bytes; /* of runs so far, to other ranks */
    /* Plans on a device: pinned memory, which mirrors the first bytes of the workspace (run/ranks_device.h). */
    bool staged;           /* rows travel through it */
    uint64_t number_bytes; /* of the workspace, that hold numbers; rows follow, to `bytes` */
    uint64_t bytes;
    char *pinned;
    uint64_t pinned_ids, pinned_weights, pinned_outputs; /* offsets: [T, K], [T, K], [R C, H] */
    uint64_t pinned_adapters, pinned_amax;               /* [T], [1] */
    uint64_t pinned_sent, pinned_came;                   /* of what tensor parallel ranks gather */
    /* The device decides which row goes where (run/ranks_place.h). Without a capacity the host learns how many. */
    bool places;
    int32_t *tables;           /* on the device: first_replica [E + 1], replica */
    int64_t tables_generation; /* of the map that they are of */
    mox_cuda_event last_run;   /* recorded when a run has enqueued its last operation */
    int64_t asked_streams;     /* options.exchange_streams */
    bool beside;               /* exchanges are on a stream of their own: this one, with these events */
    mox_cuda_stream exchanges;
    mox_cuda_event events[MOX_RANKS_EVENTS];
    bool timed; /* the present run waits for the device at the end of each phase, so that its time is known */
    moxie_degraded degraded;
    int64_t lost_slots, lost_tokens; /* of the last run */
    mox_arena arena;
} mox_ranks;

/* Lets space and counts be those of chunk `number`. */
static inline void mox_ranks_use(mox_ranks *x, int64_t number)
{
    x->space = x->sides[number % 2].space;
    x->counts = x->sides[number % 2].counts;
}

/* Whether no part of a run needs the host, so that a graph can hold it. */
static inline bool mox_ranks_fit_graph(const mox_ranks *x)
{
    return x->places && x->capacity > 0 && !x->staged;
}

static inline mox_dispatch mox_ranks_dispatch(const mox_ranks *x)
{
    return (mox_dispatch) { .codes = x->coded, .adapters = x->adapted };
}

/* The size of a chunk where as few as possible of at most `most` tokens are alike. */
static inline int64_t mox_ranks_even_chunk(int64_t tokens, int64_t most)
{
    const int64_t chunks = mox_ceil_div(tokens, most);
    return chunks > 1 ? mox_ceil_div(tokens, chunks) : mox_min_i64(tokens, most);
}

/* Of tokens that all ranks have: the first that `rank` owns. */
static inline int64_t mox_ranks_first_token(const mox_ranks *x, int64_t tokens, int32_t rank)
{
    return rank * tokens / x->count;
}

#endif
