/* SPDX-License-Identifier: Apache-2.0
 *
 * sm80_shape.h - the shape of a block of the mma.sync kernels: widths of token tiles, blocks of a multiprocessor, and
 * the ring of stages, by the shared memory that the device has. Plain C, as mma_shape.h is.
 *
 *     0        | header (sm80_ring.cuh)
 *     9216     | stage 0 | stage 1 | ...
 *
 *     stage of 16-bit elements, of integers    16384 weights | columns x 128 tokens
 *     stage of codes       chunks_per_stage x (4096, 6144 or 8192) weights | their scales | [scales of tokens]
 *                          | chunks_per_stage x (columns x 128) tokens
 */
#ifndef MOX_CUDA_SM80_SHAPE_H
#define MOX_CUDA_SM80_SHAPE_H

#include "cuda/expert_gemm/tensor_cores/mma_shape.h"

#define MOX_SM80_WIDTHS_NARROW 8, 16, MOX_SM80_NARROW_COLUMNS
/* Wide tiles run in the multiple of eight that holds their columns. */
#define MOX_SM80_WIDTHS_GROUPS      8, 16, 24, 32, 40, 48, 56, 64, 72, MOX_SM80_MAX_COLUMNS_GROUPS
#define MOX_SM80_WIDTHS_WIDE        MOX_SM80_WIDTHS_GROUPS, 88, 96, 104, MOX_SM80_MAX_COLUMNS
#define MOX_SM80_NARROW_COLUMNS     32
#define MOX_SM80_MAX_COLUMNS        112 /* more spill registers; */
#define MOX_SM80_MAX_COLUMNS_GROUPS 80  /* so do these where scales multiply sums of groups */
#define MOX_SM80_MAX_COLUMNS_SMALL  64  /* of a card that has no room for two blocks with wider tiles */
#define MOX_SM80_BLOCKS             2   /* of a multiprocessor at most: registers are for two */
#define MOX_SM80_HEADER_BYTES       9216
#define MOX_SM80_MAX_STAGES         4     /* three on their way are more than a multiprocessor's share of the latency */
#define MOX_SM80_MAX_STAGE_CODES    16384 /* bytes of codes in a stage of a narrow tile */
#define MOX_SM80_STAGE_ALIGN        128
/* Two stages of the widest tile of 16-bit weights that every device gets, and the header. */
#define MOX_SM80_MIN_SHARED_BYTES                                                                                      \
    (MOX_SM80_HEADER_BYTES + 2 * (MOX_SM90_WEIGHT_BYTES + MOX_SM80_MAX_COLUMNS_SMALL * 132))
#define MOX_SM80_MAX_SCALES 2048 /* bytes of the scales of 128 rows in a chunk of 8-bit codes, at most */

/* Where tiles are wide a warp has two groups of 16 rows, which share the tokens that it loads from shared memory. */
MOX_SM90_CONSTEXPR mox_sm80_row_groups(int32_t max_columns)
{
    return max_columns <= MOX_SM80_NARROW_COLUMNS ? 1 : 2;
}

MOX_SM90_CONSTEXPR mox_sm80_threads(int32_t max_columns)
{
    return 256 / mox_sm80_row_groups(max_columns);
}

/* Stages from which on two blocks share a multiprocessor. Narrow tiles have little work a stage. */
MOX_SM90_CONSTEXPR mox_sm80_min_stages(int32_t max_columns)
{
    return max_columns <= MOX_SM80_NARROW_COLUMNS ? 3 : 2;
}

/* Bytes for the stages of one block when `blocks` share a multiprocessor, which has 1024 bytes more than one block may
 * use. */
static inline int64_t mox_sm80_ring_bytes(int64_t shared_bytes, int32_t blocks)
{
    return (shared_bytes + MOX_SM90_RESERVED) / blocks - MOX_SM90_RESERVED - MOX_SM80_HEADER_BYTES;
}

/* Columns of the widest token tile of both products of records: two blocks fit. Codes: `decoded`. `groups`: scales of
 * one of them multiply sums. */
static inline int32_t mox_sm80_max_columns(bool decoded, bool groups, int64_t shared_bytes)
{
    const int32_t columns = groups ? MOX_SM80_MAX_COLUMNS_GROUPS : MOX_SM80_MAX_COLUMNS;
    const int64_t weights = decoded ? 8192 + MOX_SM80_MAX_SCALES : MOX_SM90_WEIGHT_BYTES;
    const int64_t stages = mox_sm80_min_stages(columns) * (weights + columns * (128 + (int64_t)sizeof(float)));
    return mox_sm80_ring_bytes(shared_bytes, MOX_SM80_BLOCKS) >= stages ? columns : MOX_SM80_MAX_COLUMNS_SMALL;
}

/* The widths of the kernel that runs token tiles of up to `max_columns`; *count of them. */
static inline const int32_t *mox_sm80_widths_of(int32_t element, int32_t max_columns, int32_t *count)
{
    if (max_columns <= MOX_SM80_NARROW_COLUMNS)
        MOX_SM90_RETURN_WIDTHS(MOX_SM80_WIDTHS_NARROW);
    if (MOX_SM90_BY_CHUNK(element))
        MOX_SM90_RETURN_WIDTHS(MOX_SM80_WIDTHS_GROUPS);
    MOX_SM90_RETURN_WIDTHS(MOX_SM80_WIDTHS_WIDE);
}

/* Chunks of a stage at most. Each stage costs a barrier and the addresses of its copies, and few columns leave room. */
MOX_SM90_CONSTEXPR mox_sm80_max_chunks(int32_t element, int32_t max_columns)
{
    if (!MOX_SM90_DECODES(element))
        return 1;
    return max_columns <= MOX_SM80_NARROW_COLUMNS ? MOX_SM80_MAX_STAGE_CODES / mox_sm90_chunk_bytes(element) : 2;
}

/* Stages that fit when `blocks` blocks share a multiprocessor. */
static inline int32_t mox_sm80_stages(const mox_sm90_args *args, int32_t blocks)
{
    const int64_t fit = mox_sm80_ring_bytes(args->shared_bytes, blocks) / (int64_t)args->stage_bytes;
    return fit < 0 ? 0 : fit < MOX_SM80_MAX_STAGES ? (int32_t)fit : MOX_SM80_MAX_STAGES;
}

/* Where tokens begin in a stage of `chunks` chunks, and its bytes. */
static inline void mox_sm80_lay_out_stage(mox_sm90_element element, int32_t chunks, mox_sm90_args *args)
{
    const int32_t weights = chunks * mox_sm90_chunk_bytes(element) + (int32_t)mox_sm90_scales_room(args, chunks);
    const int32_t before = weights + mox_sm90_token_scale_bytes(element, chunks, args->max_columns);
    args->chunks_per_stage = chunks;
    args->tokens_at = (uint32_t)(before + MOX_SM80_STAGE_ALIGN - 1) / MOX_SM80_STAGE_ALIGN * MOX_SM80_STAGE_ALIGN;
    args->stage_bytes = args->tokens_at + (uint32_t)(chunks * args->max_columns * 128);
}

/* Of so many chunks that two blocks share a multiprocessor, if one chunk lets them. */
static inline void mox_sm80_fill_stage(mox_sm90_element element, mox_sm90_args *args)
{
    int32_t chunks = mox_sm80_max_chunks(element, args->max_columns);
    mox_sm80_lay_out_stage(element, chunks, args);
    while (chunks > 1 && mox_sm80_stages(args, MOX_SM80_BLOCKS) < mox_sm80_min_stages(args->max_columns)) {
        chunks /= 2;
        mox_sm80_lay_out_stage(element, chunks, args);
    }
}

static inline int32_t mox_sm80_resident_blocks(mox_sm90_element element, const mox_sm90_args *args)
{
    mox_sm90_args ring = *args;
    mox_sm80_fill_stage(element, &ring);
    return mox_sm80_stages(&ring, MOX_SM80_BLOCKS) >= mox_sm80_min_stages(args->max_columns) ? MOX_SM80_BLOCKS : 1;
}

/* Sets the ring of `args` from its max_columns, scale_bytes and shared_bytes; returns the shared memory of a block. */
static inline uint32_t mox_sm80_make_ring(mox_sm90_element element, mox_sm90_args *args)
{
    mox_sm80_fill_stage(element, args);
    args->stages = mox_sm80_stages(args, mox_sm80_resident_blocks(element, args));
    return MOX_SM80_HEADER_BYTES + (uint32_t)args->stages * args->stage_bytes;
}

#endif
