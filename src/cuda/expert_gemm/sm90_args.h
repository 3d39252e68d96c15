/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_args.h - what the Hopper kernels of family expert_gemm get, in device pointers. Plain C that CUDA C++ includes
 * too.
 *
 *     out[p, n] = sum_k w[n, k] a[p, k]      weights in layout "hopper" (pack/hopper.h), p over the pairs of each slot
 *
 * One product is cut twice. By columns: the tokens of a slot are split evenly into token tiles of at most `most`
 * columns. By rows: a product has `tiles` row tiles of 128 rows. A *job* is one row tile times one token tile over all
 * of K; jobs are ordered by slot, then row tile, then token tile, so that what runs at one time shares weights and
 * tokens in L2.
 *
 *     work list (sm90_list.cu)      entry | slot, first pair, tokens, first token tile |  one for every slot with
 * tokens
 *
 * The blocks of a launch, one for each multiprocessor, take jobs in turn while more than two rounds are left; the
 * chunks of the last jobs are then dealt out evenly, so that a job may be begun by one block and ended by the next. The
 * block that ends it goes on from the very accumulators of the one that began it (`state`), and does so last, when that
 * one, which did so first, is long done. So a dot product is one chain of additions in the order of K, whoever computes
 * which part of it: its bits depend neither on the cut, nor (hopper tensor cores) on the width of the token tile.
 *
 * Tokens come as rows, which the kernel gathers, 16 bytes a lane; or, where many of them make that the slower part, as
 * a tiled operand: token tile by token tile, chunk by chunk, just as a bulk copy brings it to shared memory.
 *
 *     tile of w columns (a multiple of 8), first row r:   codes at r * chunks * 128 + k * w * 128 for chunk k, row i in
 * it at 128 i, swizzled; scales of 8-bit elements: f32 at r * chunks + k * w + i
 */
#ifndef MOX_CUDA_SM90_ARGS_H
#define MOX_CUDA_SM90_ARGS_H

#include <stdint.h>

#include <moxie/moxie.h>

#define MOX_SM90_MOST_COLUMNS       256 /* of a token tile */
#define MOX_SM90_MOST_BYTES_COLUMNS 192 /* with 8-bit elements, which need a second set of accumulators */
#define MOX_SM90_GROUPS             2   /* consumer warpgroups: 64 rows each */

/* A slot that has tokens. */
typedef struct mox_sm90_entry {
    int32_t slot, pair, tokens;
    int32_t first; /* token tiles of all entries before */
    int32_t row;   /* rows of a tiled operand before: their tokens, each rounded up to 8 */
} mox_sm90_entry;

/* entries[count] follows, and one more: its `first` is the number of token tiles in all. */
typedef struct mox_sm90_list {
    int32_t count, most;
    int32_t padding[2];
} mox_sm90_list;

/* Makes the list, and zeroes the words by which blocks of both products find each other. */
typedef struct mox_sm90_list_args {
    const int64_t *offsets; /* [slots + 1] pairs */
    int64_t slots;
    int32_t most; /* columns of a token tile: a multiple of 8, up to 256 */
    mox_sm90_list *list;
    uint32_t *words; /* [word_count] */
    int64_t word_count;
} mox_sm90_list_args;

/* Rows to a tiled operand. */
typedef struct mox_sm90_gather_args {
    const mox_sm90_list *list;
    int64_t max_rows; /* of the tiled operand, at most: pairs + 7 for each slot that may have any */
    const uint8_t *a; /* as in mox_sm90_args */
    int64_t a_stride;
    int32_t a_bytes, a_scale_step, chunks;
    const int64_t *a_row;
    const float *a_scale; /* or NULL */
    int64_t a_scale_stride;
    uint8_t *to;
    float *to_scale;
} mox_sm90_gather_args;

typedef enum mox_sm90_element { MOX_SM90_BF16 = 0, MOX_SM90_F16, MOX_SM90_E4M3, MOX_SM90_ELEMENTS } mox_sm90_element;

typedef enum mox_sm90_output {
    MOX_SM90_ROWS_F32 = 0, /* out[p, n]; gated: [gate I | up I] */
    MOX_SM90_ACT_F32,      /* wide[p, i] = act(gate, up) */
    MOX_SM90_ACT_BF16,     /* next[p, i], rounded once */
    MOX_SM90_ACT_F16,
    MOX_SM90_ACT_E4M3 /* by way of `wide`: next[p, i] and next_scale[p, i / 128], by the rule of quant/act_quant.c */
} mox_sm90_output;

typedef struct mox_sm90_args {
    const mox_sm90_list *list;
    /* weights: records end to end, offsets as in mox_hopper_matrix */
    const uint8_t *records;
    uint64_t record_bytes, tiles_at, tile_bytes, row_scale_at, bias_at;
    int32_t tiles, chunks, last_rows;
    int32_t rows; /* of one matrix: I or H */
    int32_t gated;
    /* tokens: a tiled operand (below), or rows of 16-bit elements or of codes; addresses and strides multiples of 16
     * bytes */
    int32_t a_tiled;
    const uint8_t *a;
    int64_t a_stride;     /* bytes */
    int32_t a_bytes;      /* of a row; what follows up to the chunk's end counts as zero */
    int32_t a_scale_step; /* 1: a scale for every 128 columns, 0: one for the row */
    const int64_t *a_row; /* row of pair p; NULL: p */
    const float *a_scale; /* E4M3 only */
    int64_t a_scale_stride;
    /* between blocks */
    float *state;     /* [blocks][2][most / 2][128] */
    uint32_t *flags;  /* [blocks + 1][2], zero */
    uint32_t *counts; /* [token tiles][groups of 128 outputs], zero; ACT_E4M3 only */
    /* what becomes of it */
    int32_t output, next_tiled;
    moxie_activation activation;   /* its arrays in device memory */
    const int64_t *expert_of;      /* [slots] global expert, for those; NULL: none */
    int32_t scale_is_power_of_two; /* of next_scale */
    int32_t early_list;            /* the list was complete before the kernel that this one depends on began */
    float *out;
    int64_t out_stride;
    float *wide; /* [pairs, wide_stride], wide_stride a multiple of 128 */
    int64_t wide_stride;
    void *next; /* [pairs, next_stride] elements or codes */
    int64_t next_stride;
    float *next_scale;
    int64_t next_scale_stride;
    /* the ring in shared memory: mox_sm90_ring() */
    int32_t stages;
    uint32_t stage_bytes;
} mox_sm90_args;

#ifdef __cplusplus
extern "C" {
#endif

/* The ring for token tiles of `most` columns: stages, bytes of one; returns the shared memory of a block. */
uint32_t mox_sm90_ring(mox_sm90_element element, int32_t most, int32_t *stages, uint32_t *stage_bytes);

/* Launchers; `stream` is a cudaStream_t. `dependent`: the kernel before may still run (programmatic dependent launch).
 * Return a cudaError_t. Neither allocates nor waits. */
int mox_sm90_launch_list(const mox_sm90_list_args *args, int dependent, void *stream);
int mox_sm90_launch_gather(const mox_sm90_gather_args *args, int dependent, void *stream);
int mox_sm90_launch_gemm(mox_sm90_element element, const mox_sm90_args *args, int32_t blocks, int dependent,
                         void *stream);

#ifdef __cplusplus
}
#endif

#endif
