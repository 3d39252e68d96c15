/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_shape.h - what a block of the Hopper kernels is like: widths of token tiles that it has code for, which of them
 * warps multiply by themselves, and the ring in its shared memory (drawn in sm90_ring.cuh). Plain C that CUDA C++
 * includes too, so that launchers, kernels and `moxie explain` have one statement of it.
 */
#ifndef MOX_CUDA_SM90_SHAPE_H
#define MOX_CUDA_SM90_SHAPE_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda/expert_gemm/sm90/sm90_args.h"

/* ---- token tiles ----------------------------------------------------------------------------------------------- */

/* Widths of the MMA; a token tile runs in the narrowest that holds it. */
#define MOX_SM90_WIDTHS_NARROW         8, 16, 24, MOX_SM90_NARROW_COLUMNS
#define MOX_SM90_WIDTHS_NARROW_DEQUANT 8, 16, 24, 32, 40, 48, 56, MOX_SM90_NARROW_COLUMNS_DEQUANT
#define MOX_SM90_WIDTHS_W16A16                                                                                         \
    8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 136, 144, 160, 176, 192, 208, 224, 240, 256, 272,                 \
        MOX_SM90_MAX_COLUMNS
#define MOX_SM90_WIDTHS_DEQUANT                                                                                        \
    8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 144, 160, 176, 192, 208, 224, 240,              \
        MOX_SM90_MAX_COLUMNS_DEQUANT
#define MOX_SM90_WIDTHS_FP8                                                                                            \
    8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 120, 128, 136, 144, 152, 160, MOX_SM90_MAX_COLUMNS_FP8
#define MOX_SM90_WIDTHS_MXFP4_FP8                                                                                      \
    8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, MOX_SM90_MAX_COLUMNS_MXFP4_FP8
/* Integers' MMAs have multiples of 16 past 32. */
#define MOX_SM90_WIDTHS_INT8                                                                                           \
    8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, MOX_SM90_MAX_COLUMNS_DEQUANT

/* Widths up to which warps multiply by themselves, where weights are decoded to 16 bits. */
#define MOX_SM90_WARP_MMA_COLUMNS 16

MOX_SM90_CONSTEXPR mox_sm90_warp_mma_columns(int32_t element)
{
    return MOX_SM90_DECODES(element) && !MOX_SM90_TO_FP8(element) ? MOX_SM90_WARP_MMA_COLUMNS : 0;
}

/* The widest that the kernel of an element has. */
MOX_SM90_CONSTEXPR mox_sm90_max_columns(int32_t element)
{
    return MOX_SM90_TO_FP8(element)        ? MOX_SM90_MAX_COLUMNS_MXFP4_FP8
           : mox_sm90_has_factors(element) ? MOX_SM90_MAX_COLUMNS_DEQUANT
           : element == MOX_SM90_E4M3      ? MOX_SM90_MAX_COLUMNS_FP8
                                           : MOX_SM90_MAX_COLUMNS;
}

/* The list that holds tiles of `most` columns, the narrow ones in a kernel of their own; *count of its widths. */
static inline const int32_t *mox_sm90_widths_of(int32_t element, int32_t max_columns, int32_t *count)
{
    static const int32_t narrow[] = { MOX_SM90_WIDTHS_NARROW }, narrow_codes[] = { MOX_SM90_WIDTHS_NARROW_DEQUANT },
                         wide[] = { MOX_SM90_WIDTHS_W16A16 }, codes[] = { MOX_SM90_WIDTHS_DEQUANT },
                         bytes[] = { MOX_SM90_WIDTHS_FP8 }, int8[] = { MOX_SM90_WIDTHS_INT8 },
                         fp8[] = { MOX_SM90_WIDTHS_MXFP4_FP8 };
    const struct {
        const int32_t *list;
        int32_t count;
    } lists[] = {
        { narrow, sizeof narrow / sizeof narrow[0] }, { narrow_codes, sizeof narrow_codes / sizeof narrow_codes[0] },
        { wide, sizeof wide / sizeof wide[0] },       { codes, sizeof codes / sizeof codes[0] },
        { bytes, sizeof bytes / sizeof bytes[0] },    { int8, sizeof int8 / sizeof int8[0] },
        { fp8, sizeof fp8 / sizeof fp8[0] }
    };
    const int32_t i = max_columns <= mox_sm90_narrow_columns(element)
                          ? (mox_sm90_narrow_columns(element) == MOX_SM90_NARROW_COLUMNS_DEQUANT ? 1 : 0)
                      : MOX_SM90_TO_FP8(element)  ? 6
                      : MOX_SM90_DECODES(element) ? 3
                      : element == MOX_SM90_E4M3  ? 4
                      : element == MOX_SM90_INT8  ? 5
                                                  : 2;
    *count = lists[i].count;
    return lists[i].list;
}

/* ---- the ring -------------------------------------------------------------------------------------------------- */

#define MOX_SM90_HEADER_BYTES       8192 /* bytes before the first stage; narrow token tiles: and before */
#define MOX_SM90_CONSTANTS_BYTES    1024 /* factors and biases of a tile's rows */
#define MOX_SM90_WEIGHT_BYTES       16384
#define MOX_SM90_MAX_STAGES         16
#define MOX_SM90_CO_RESIDENT_STAGES 3             /* of a block beside another product's */
#define MOX_SM90_SHARED             (228u * 1024) /* of a multiprocessor, */
#define MOX_SM90_RESERVED           1024u         /* for each block */

/* Bytes before the first stage. */
MOX_SM90_CONSTEXPR mox_sm90_header_bytes(int32_t element, int32_t max_columns)
{
    return MOX_SM90_HEADER_BYTES + (max_columns <= mox_sm90_narrow_columns(element) ? MOX_SM90_CONSTANTS_BYTES : 0);
}

/* Where the tokens begin in a stage of weights that are not decoded. */
MOX_SM90_CONSTEXPR mox_sm90_tokens_from(int32_t element)
{
    return MOX_SM90_WEIGHT_BYTES + (element == MOX_SM90_E4M3 ? 1024 : 0);
}

/* Codes come several chunks at a time where tokens leave room for that: a barrier less a chunk. */
static inline void mox_sm90_fill_stage(mox_sm90_element element, mox_sm90_args *args)
{
    const uint32_t codes = (uint32_t)mox_sm90_chunk_bytes(element), scales = (uint32_t)args->scale_bytes;
    const uint32_t per_stage = (uint32_t)mox_sm90_chunks_per_stage(element, args->max_columns),
                   columns = (uint32_t)args->max_columns;
    args->chunks_per_stage = (int32_t)per_stage;
    args->tokens_at = MOX_SM90_DECODES(element) ? (per_stage * (codes + scales) + 1023) / 1024 * 1024
                                                : (uint32_t)mox_sm90_tokens_from(element);
    args->stage_bytes = args->tokens_at + per_stage * columns * 128;
}

/* Blocks of a product that share a multiprocessor. */
static inline int32_t mox_sm90_blocks_of(mox_sm90_element element, const mox_sm90_args *args)
{
    return args->co_resident == MOX_SM90_EXCLUSIVE ? mox_sm90_blocks(element, args->max_columns) : 1;
}

/* Sets the ring of `args`, by its `most` and scale_bytes; returns the shared memory of a block. */
static inline uint32_t mox_sm90_make_ring(mox_sm90_element element, mox_sm90_args *args)
{
    const uint32_t max_stages = args->inline_routing.ids != NULL ? MOX_SM90_INLINE_STAGES : MOX_SM90_MAX_STAGES;
    const uint32_t header = (uint32_t)mox_sm90_header_bytes(element, args->max_columns),
                   overhead = MOX_SM90_RESERVED + header;
    mox_sm90_fill_stage(element, args);
    const uint32_t fit = (MOX_SM90_SHARED / (uint32_t)mox_sm90_blocks_of(element, args) - overhead) / args->stage_bytes;
    args->stages = (int32_t)(fit < max_stages ? fit : max_stages);
    if (args->co_resident == MOX_SM90_CO_RESIDENT_W13)
        args->stages = (int32_t)((MOX_SM90_SHARED - 2 * overhead) / args->stage_bytes - MOX_SM90_CO_RESIDENT_STAGES);
    if (args->co_resident == MOX_SM90_CO_RESIDENT_W2)
        args->stages = MOX_SM90_CO_RESIDENT_STAGES;
    return header + (uint32_t)args->stages * args->stage_bytes;
}

#endif
