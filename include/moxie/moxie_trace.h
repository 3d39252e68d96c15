/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_trace.h - routing traces: which experts the tokens of a model chose, step by step (docs/trace-file.md).
 *
 *     an engine's runs --> moxie_trace_writer_add, a step at a time --> FILE
 *     FILE --> moxie_trace_open --> moxie_trace_read      steps, again in order or not
 *                               \-> moxie_trace_simulate  hit rates of a cache of experts, without any hardware
 *
 * A step is one pass of a batch through the model: decode of some tokens, or a part of a prompt. Ids are logical ones:
 * the router's own, before a map of experts to slots (EPLB) changes them. Experts are numbered in each layer from 0.
 * The rules of moxie.h about calls, threads and structs hold here too.
 */
#ifndef MOXIE_TRACE_H
#define MOXIE_TRACE_H

#include <moxie/moxie.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The largest number of layers in a trace, and of tokens in a step. */
#define MOXIE_TRACE_MAX_LAYERS 4096
#define MOXIE_TRACE_MAX_TOKENS (1 << 20)

typedef struct moxie_trace moxie_trace;
typedef struct moxie_trace_writer moxie_trace_writer;

/* What a trace is of. */
typedef struct moxie_trace_info {
    uint32_t struct_size;
    int32_t layers, experts, top_k;
    int32_t zero_experts; /* experts without weights, with ids from `experts` on */
    int32_t has_weights;  /* the routing weight of each choice */
    int32_t has_requests; /* a number for each token that says which request it belongs to */
    uint64_t fingerprint; /* of the model: moxie_trace_fingerprint() of its config.json; 0: unknown */
    const char *model;    /* its name, at most 71 bytes of UTF-8; NULL: none. A reader's: the trace's, never NULL */
    const int32_t *layer_numbers; /* [layers] the model's numbers, ascending; NULL: 0, 1, ... A reader's: the trace's */
    int64_t steps, tokens;        /* filled by the reader; a writer ignores them */
} moxie_trace_info;
#define MOXIE_TRACE_INFO_INIT MOXIE_INIT(moxie_trace_info)

/* What a step did. */
typedef enum moxie_trace_phase {
    MOXIE_TRACE_UNKNOWN = 0,
    MOXIE_TRACE_PREFILL = 1, /* tokens of prompts */
    MOXIE_TRACE_DECODE = 2,  /* a token or a few for each request */
    MOXIE_TRACE_MIXED = 3    /* both */
} moxie_trace_phase;

/* The choices of one step. Element (t, l, j) of ids and weights is at t * token_stride + l * layer_stride + j. Both
 * strides 0: [tokens, layers, top_k]. An id below 0 chooses nothing. */
typedef struct moxie_trace_step {
    uint32_t struct_size;
    int32_t phase; /* moxie_trace_phase */
    int64_t tokens;
    int64_t token_stride, layer_stride; /* in elements; a reader's are never 0 */
    const int32_t *ids;
    const float *weights;     /* where info.has_weights, else NULL */
    const uint64_t *requests; /* [tokens], where info.has_requests, else NULL */
} moxie_trace_step;
#define MOXIE_TRACE_STEP_INIT MOXIE_INIT(moxie_trace_step)

/* XXH3-64 of some bytes. Thread-safe. */
MOXIE_API uint64_t moxie_trace_fingerprint(const void *data, uint64_t bytes);

/* ---- writing ---------------------------------------------------------------------------------------- */

/* Begins a trace. The file gets its name in moxie_trace_writer_finish(); until then nothing of that name changes.
 * Thread-safe. */
MOXIE_API moxie_status moxie_trace_writer_create(const char *path, const moxie_trace_info *info,
                                                 moxie_trace_writer **out, moxie_error *error);
/* Appends a step. MOXIE_ERR_ARGUMENT for an id that the trace's experts do not have; then the step is not written.
 * One-thread-at-a-time; so the next two calls. */
MOXIE_API moxie_status moxie_trace_writer_add(moxie_trace_writer *writer, const moxie_trace_step *step,
                                              moxie_error *error);
/* Ends the trace, flushes it to the disk and gives it its name. Nothing can be added after it. */
MOXIE_API moxie_status moxie_trace_writer_finish(moxie_trace_writer *writer, moxie_error *error);
/* Removes an unfinished trace. */
MOXIE_API void moxie_trace_writer_destroy(moxie_trace_writer *writer);

/* ---- reading ---------------------------------------------------------------------------------------- */

/* 1 when the file begins like a trace. Thread-safe. */
MOXIE_API int moxie_trace_is_trace(const char *path);
/* Opens a trace and checks all of it: MOXIE_ERR_FORMAT for a malformed or unfinished file, MOXIE_ERR_MISMATCH where a
 * checksum differs. Steps are read from the file when they are asked for. Thread-safe. */
MOXIE_API moxie_status moxie_trace_open(const char *path, moxie_trace **out, moxie_error *error);
/* One-thread-at-a-time. */
MOXIE_API void moxie_trace_close(moxie_trace *trace);
/* Immutable. */
MOXIE_API moxie_status moxie_trace_get_info(const moxie_trace *trace, moxie_trace_info *info, moxie_error *error);
/* Reads step `index`. Its arrays are the trace's and valid until the next call that gets `trace`.
 * One-thread-at-a-time. */
MOXIE_API moxie_status moxie_trace_read(moxie_trace *trace, int64_t index, moxie_trace_step *step, moxie_error *error);

/* ---- simulation ------------------------------------------------------------------------------------- */

/* A cache of experts: each layer has `slots` places. In a step a layer uses each expert that a token chose once. If the
 * expert has a slot, that is a hit. If not, it is read; then the policy says whether it gets a slot, and whose. */
typedef struct moxie_cache_config {
    uint32_t struct_size;
    int32_t slots;       /* of each layer; at least 1 */
    const char *policy;  /* a name of moxie_cache_policy_at(); NULL: the first one */
    int32_t max_inserts; /* experts that get a slot in one step of one layer, once all are filled; 0: any number */
    int32_t warm_steps;  /* steps at the beginning that change the cache and are not counted */
    double half_life;    /* of lfru and frozen, in steps; 0: MOXIE_CACHE_HALF_LIFE */
    /* [layers, experts] what `pinned` takes; NULL: the uses in the warm steps. The other policies ignore it. */
    const double *census;
    int32_t with_best; /* 1: best_hits, too, which reads the trace once for each layer */
} moxie_cache_config;
#define MOXIE_CACHE_CONFIG_INIT MOXIE_INIT(moxie_cache_config)
#define MOXIE_CACHE_HALF_LIFE   16.0

/* What a simulation counted, over all layers. */
typedef struct moxie_cache_hits {
    uint32_t struct_size;
    int32_t slots; /* of each layer: no more than experts */
    int64_t steps, tokens;
    int64_t uses, hits;               /* (step, layer, expert) */
    int64_t inserts;                  /* misses that got a slot */
    int64_t decode_uses, decode_hits; /* in steps that are not prefill */
    int64_t best_hits; /* of a cache that knows the future (Belady), without a limit of inserts; -1: not asked for */
} moxie_cache_hits;
#define MOXIE_CACHE_HITS_INIT MOXIE_INIT(moxie_cache_hits)

/* Name of policy i, or NULL after the last one; *about (if not NULL) becomes a sentence about it. Immutable. */
MOXIE_API const char *moxie_cache_policy_at(int32_t i, const char **about);
/* Replays the trace. by_layer, [layers, 2] or NULL, becomes uses and hits of each layer. One-thread-at-a-time. */
MOXIE_API moxie_status moxie_trace_simulate(moxie_trace *trace, const moxie_cache_config *config,
                                            moxie_cache_hits *hits, int64_t *by_layer, moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif /* MOXIE_TRACE_H */
