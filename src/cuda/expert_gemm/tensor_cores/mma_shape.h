/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_shape.h - the shape of a block of the Hopper kernels: the widths of token tiles that it has code for, which of
 * them each warp multiplies alone, and the ring of stages in its shared memory (drawn in mma_ring.cuh). Plain C that
 * CUDA C++ includes too, so that launchers, kernels and `moxie explain` share one statement of it.
 */
#ifndef MOX_CUDA_SM90_SHAPE_H
#define MOX_CUDA_SM90_SHAPE_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda/expert_gemm/tensor_cores/mma_args.h"

/* ---- token tiles ----------------------------------------------------------------------------------------------- */

/* Widths in columns of the MMA. A token tile runs in the narrowest that holds it. */
#define MOX_SM90_WIDTHS_NARROW         8, 16, 24, MOX_SM90_NARROW_COLUMNS
#define MOX_SM90_WIDTHS_NARROW_DEQUANT 8, 16, 24, 32, 40, 48, 56, MOX_SM90_NARROW_COLUMNS_DEQUANT
#define MOX_SM90_WIDTHS_W16A16                                                                                         \
    8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 136, 144, 160, 176, 192, 208, 224, 240, 256, 272,                 \
        MOX_SM90_MAX_COLUMNS_W16A16
#define MOX_SM90_WIDTHS_DEQUANT                                                                                        \
    8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 144, 160, 176, 192, 208, 224, 240,              \
        MOX_SM90_MAX_COLUMNS_DEQUANT
#define MOX_SM90_WIDTHS_FP8                                                                                            \
    8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 120, 128, 136, 144, 152, 160, MOX_SM90_MAX_COLUMNS_FP8
#define MOX_SM90_WIDTHS_DEQUANT_CHUNKS                                                                                 \
    8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, MOX_SM90_MAX_COLUMNS_DEQUANT_CHUNKS
/* MMAs of integers have multiples of 16 past 32. */
#define MOX_SM90_WIDTHS_INT8                                                                                           \
    8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, MOX_SM90_MAX_COLUMNS_INT8

/* Widths up to which each warp multiplies alone (mma.sync), where weights are dequantized to 16 bits in one chain. */
#define MOX_SM90_WARP_MMA_COLUMNS 16

MOX_SM90_CONSTEXPR mox_sm90_warp_mma_columns(int32_t element)
{
    return MOX_SM90_DECODES(element) && !MOX_SM90_BY_CHUNK(element) ? MOX_SM90_WARP_MMA_COLUMNS : 0;
}

/* Columns of the widest token tile of an element. */
MOX_SM90_CONSTEXPR mox_sm90_max_columns(int32_t element)
{
    switch (element) {
#define MOX_SM90_ELEMENT(name, file, bytes, size, scales, widths)                                                      \
    case MOX_SM90_##name:                                                                                              \
        return MOX_SM90_MAX_COLUMNS_##widths;
#define MOX_SM90_CODES MOX_SM90_ELEMENT
#include "cuda/expert_gemm/tensor_cores/mma_elements.def"
#undef MOX_SM90_CODES
#undef MOX_SM90_ELEMENT
    default: return 0;
    }
}

#define MOX_SM90_RETURN_WIDTHS(...)                                                                                    \
    do {                                                                                                               \
        static const int32_t list[] = { __VA_ARGS__ };                                                                 \
        *count = sizeof list / sizeof list[0];                                                                         \
        return list;                                                                                                   \
    } while (0)

/* The widths of the kernel that runs token tiles of up to `max_columns`; *count of them. */
static inline const int32_t *mox_sm90_widths_of(int32_t element, int32_t max_columns, int32_t *count)
{
    const int32_t narrow = mox_sm90_narrow_columns(element);
    if (max_columns <= narrow && narrow == MOX_SM90_NARROW_COLUMNS_DEQUANT)
        MOX_SM90_RETURN_WIDTHS(MOX_SM90_WIDTHS_NARROW_DEQUANT);
    if (max_columns <= narrow)
        MOX_SM90_RETURN_WIDTHS(MOX_SM90_WIDTHS_NARROW);
    switch (element) {
#define MOX_SM90_ELEMENT(name, file, bytes, size, scales, widths)                                                      \
    case MOX_SM90_##name:                                                                                              \
        MOX_SM90_RETURN_WIDTHS(MOX_SM90_WIDTHS_##widths);
#define MOX_SM90_CODES MOX_SM90_ELEMENT
#include "cuda/expert_gemm/tensor_cores/mma_elements.def"
#undef MOX_SM90_CODES
#undef MOX_SM90_ELEMENT
    default: *count = 0; return NULL;
    }
}

/* ---- the ring -------------------------------------------------------------------------------------------------- */

#define MOX_SM90_HEADER_BYTES       8192 /* barriers, queue and arguments, before the first stage */
#define MOX_SM90_CONSTANTS_BYTES    1024 /* and behind them, with narrow token tiles: row factors, biases */
#define MOX_SM90_WEIGHT_BYTES       16384
#define MOX_SM90_MAX_STAGES         16
#define MOX_SM90_CO_RESIDENT_STAGES 3 /* of a block that shares its multiprocessor with the other product's */
#define MOX_SM90_SHARED             (228u * 1024) /* of a multiprocessor, */
#define MOX_SM90_RESERVED           1024u         /* each block reserves so much of it */

/* Bytes before the first stage. */
MOX_SM90_CONSTEXPR mox_sm90_header_bytes(int32_t element, int32_t max_columns)
{
    return MOX_SM90_HEADER_BYTES + (max_columns <= mox_sm90_narrow_columns(element) ? MOX_SM90_CONSTANTS_BYTES : 0);
}

/* Where the tokens begin in a stage of weights that are not dequantized. */
MOX_SM90_CONSTEXPR mox_sm90_tokens_from(int32_t element)
{
    return MOX_SM90_WEIGHT_BYTES + (element == MOX_SM90_E4M3 ? 1024 : 0);
}

/* Bytes of the token scales in a stage of codes; they end where the tokens begin. */
MOX_SM90_CONSTEXPR mox_sm90_token_scale_bytes(int32_t element, int32_t chunks, int32_t columns)
{
    return mox_sm90_token_scales(element) * chunks * columns * (int32_t)sizeof(float);
}

/* Bytes of the sums of tokens in a stage, which has the last chunk of one block of 256 columns at most. They end where
 * the tokens begin. */
MOX_SM90_CONSTEXPR mox_sm90_stage_sum_bytes(int32_t element, int32_t columns)
{
    return mox_sm90_token_sum_bytes(element) * columns;
}

/* Bytes for the blocks of scales that a stage of `chunks` chunks touches, at most. */
static inline uint32_t mox_sm90_scales_room(const mox_sm90_args *args, int32_t chunks)
{
    const int32_t shift = args->scale_shift;
    const int32_t touched = shift < MOX_SM90_ONE_SCALE ? ((chunks - 1 + (1 << shift) - 1) >> shift) + 1 : 1;
    return (uint32_t)(touched * args->scale_bytes);
}

/* Lays out a stage for token tiles of up to `columns`; returns its bytes. Codes come several chunks at a time where
 * tokens leave room: fewer barriers. */
static inline uint32_t mox_sm90_lay_out_stage(mox_sm90_element element, const mox_sm90_args *args, int32_t columns,
                                              int32_t *chunks, uint32_t *tokens_at)
{
    const uint32_t per_stage = (uint32_t)mox_sm90_chunks_per_stage(element, columns);
    const uint32_t codes = per_stage * (uint32_t)mox_sm90_chunk_bytes(element);
    const uint32_t scales = mox_sm90_scales_room(args, (int32_t)per_stage);
    const uint32_t of_tokens = (uint32_t)(mox_sm90_token_scale_bytes(element, (int32_t)per_stage, columns) +
                                          mox_sm90_stage_sum_bytes(element, columns));
    *chunks = (int32_t)per_stage;
    *tokens_at = MOX_SM90_DECODES(element) ? (codes + scales + of_tokens + 1023) / 1024 * 1024
                                           : (uint32_t)mox_sm90_tokens_from(element);
    return *tokens_at + per_stage * (uint32_t)columns * 128;
}

/* Lays out the stages of a ring. In the narrow kernel of weights that are dequantized, token tiles of few columns have
 * more chunks in a stage than wider ones. Both have about the same bytes. */
static inline void mox_sm90_fill_stage(mox_sm90_element element, mox_sm90_args *args)
{
    const bool two_layouts = args->max_columns <= mox_sm90_narrow_columns(element) &&
                             mox_sm90_narrow_columns(element) == MOX_SM90_NARROW_COLUMNS_DEQUANT &&
                             args->usual_columns <= MOX_SM90_NARROW_COLUMNS;
    const int32_t few_columns =
        two_layouts && args->max_columns > MOX_SM90_NARROW_COLUMNS ? args->usual_columns : args->max_columns;
    const uint32_t few = mox_sm90_lay_out_stage(element, args, few_columns, &args->few_chunks, &args->few_tokens_at);
    const uint32_t wide =
        mox_sm90_lay_out_stage(element, args, args->max_columns, &args->chunks_per_stage, &args->tokens_at);
    args->few_columns = two_layouts ? few_columns : -1;
    args->stage_bytes = few > wide ? few : wide;
}

/* Blocks of a product that share a multiprocessor. */
static inline int32_t mox_sm90_resident_blocks(mox_sm90_element element, const mox_sm90_args *args)
{
    return args->co_resident == MOX_SM90_EXCLUSIVE ? mox_sm90_blocks_per_sm(element, args->max_columns) : 1;
}

/* Sets the ring of `args` from its max_columns, usual_columns and scale_bytes; returns the shared memory of a block. */
static inline uint32_t mox_sm90_make_ring(mox_sm90_element element, mox_sm90_args *args)
{
    const uint32_t max_stages = args->inline_routing.ids != NULL ? MOX_SM90_INLINE_STAGES : MOX_SM90_MAX_STAGES;
    const uint32_t header = (uint32_t)mox_sm90_header_bytes(element, args->max_columns),
                   overhead = MOX_SM90_RESERVED + header;
    mox_sm90_fill_stage(element, args);
    const uint32_t fit =
        (MOX_SM90_SHARED / (uint32_t)mox_sm90_resident_blocks(element, args) - overhead) / args->stage_bytes;
    args->stages = (int32_t)(fit < max_stages ? fit : max_stages);
    if (args->co_resident == MOX_SM90_CO_RESIDENT_W13)
        args->stages = (int32_t)((MOX_SM90_SHARED - 2 * overhead) / args->stage_bytes - MOX_SM90_CO_RESIDENT_STAGES);
    if (args->co_resident == MOX_SM90_CO_RESIDENT_W2)
        args->stages = MOX_SM90_CO_RESIDENT_STAGES;
    return header + (uint32_t)args->stages * args->stage_bytes;
}

#endif
