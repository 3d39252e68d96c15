/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_plan.h - from the arguments of a Hopper launcher to those of its kernels, and the order in which they run. Plain
 * C for libmoxie (sizes), for the launchers (.cu) and for tests, which run kernels in plain C behind mox_sm90_ops.
 *
 *     W13       [list] -> gather -> gemm      f32 outputs, or the activations of W2 where it fuses
 *     W2        [gather] -> gemm              with the list that W13 left in the same scratch memory. For weights with
 *                                             minimums the gather makes sums of activations that W13 left tiled
 *     traced    list -> gather -> gemm to h -> gemm to act -> gemm -> trace
 *
 * A gemm fetches weights while the kernel before it, a gather or the other gemm, still runs: the list is older than
 * that kernel. With few pairs there is no list; each block computes its own from the routing (mma_inline_routing.cuh).
 *
 *     scratch | list | octets | state | gathered tokens | their scales | their sums | their factors |
 */
#ifndef MOX_CUDA_SM90_PLAN_H
#define MOX_CUDA_SM90_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "cuda/expert_gemm/cuda_expert_gemm_args.h"
#include "cuda/expert_gemm/sm80/sm80_shape.h"
#include "cuda/expert_gemm/tensor_cores/mma_shape.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MOX_SM90_MAX_SIZE (INT64_C(1) << 24) /* of H and I: all counts then fit 32 bits */
#define MOX_SM90_MAX_INT8_TERMS                                                                                        \
    ((1 << 17) - 1)             /* products of 8-bit integers, each up to 2^14, whose sum fits 31 bits */
#define MOX_SM90_PAIR_TOKENS 48 /* tokens of a slot on average from which on blocks work in pairs */
#define MOX_SM90_L2_PREFETCH_CHUNKS                                                                                    \
    4 /* of the second product: chunks that a block asks L2 for while it waits for W13 */

static inline int64_t mox_sm90_round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static inline int64_t mox_sm90_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows of tiled activations at most: each slot's tokens rounded up to 8. */
static inline int64_t mox_sm90_tiled_rows(int64_t pairs, int64_t slots)
{
    return mox_sm90_round_up(pairs + 7 * mox_sm90_min(pairs, slots), 8);
}

/* ---- either set of kernels ------------------------------------------------------------------------------------- */

static inline int32_t mox_gemm_resident_blocks(mox_sm90_element element, const mox_sm90_args *args)
{
    return args->mma_sync ? mox_sm80_resident_blocks(element, args) : mox_sm90_resident_blocks(element, args);
}

static inline uint32_t mox_gemm_make_ring(mox_sm90_element element, mox_sm90_args *args)
{
    return args->mma_sync ? mox_sm80_make_ring(element, args) : mox_sm90_make_ring(element, args);
}

/* ---- scratch --------------------------------------------------------------------------------------------------- */

typedef struct mox_sm90_sizes {
    int64_t slots, pairs, multiprocessors;
    int32_t chunks;    /* of the product */
    int32_t scales;    /* scales of a token in a chunk */
    int32_t sum_bytes; /* of the sums of a token in four chunks */
} mox_sm90_sizes;

/* Byte offsets. What both products use comes first, so that both find it in the same place. */
typedef struct mox_sm90_space {
    uint64_t list, octets, state, tiles, tile_scales, tile_sums, tile_factors, end;
    int64_t octet_count;
} mox_sm90_space;

/* Grows with pairs, slots and multiprocessors. */
mox_sm90_space mox_sm90_lay_out(const mox_sm90_sizes *s);
int64_t mox_sm90_state_words(int64_t blocks, int64_t max_columns);

/* Bytes of tiled activations beyond which L2 does not hold them. */
enum { MOX_SM90_L2_BYTES = 48 << 20 };

/* Tags of the products that may follow one gather: state words say by tag who wrote them. */
enum { MOX_SM90_TAG_H = 1, MOX_SM90_TAG_ACT, MOX_SM90_TAG_W13, MOX_SM90_TAG_W2 };

/* ---- one product ----------------------------------------------------------------------------------------------- */

/* Copies the activations of W2 out of their tiles, for a trace: numbers [pairs, stride] and scales [pairs,
 * scale_count]. Where codes have become bf16 the codes are computed again from `act`, the numbers that were quantized;
 * if those codes do not give what the tiles hold, the trace has what the tiles hold. */
typedef struct mox_sm90_trace_args {
    const mox_sm90_list *list;
    int64_t max_pairs;
    moxie_dtype element; /* F8_E4M3: codes with scales */
    int32_t cols, chunks;
    int32_t scale_count; /* of a row */
    moxie_quant quant;
    float scale_factor; /* of mox_sm90_acts */
    const float *act;   /* [pairs, cols]; NULL: the tiles hold codes with scales, or unquantized numbers */
    const uint8_t *tiles;
    const float *tile_scales;
    float *to, *to_scales;
    int64_t stride;
} mox_sm90_trace_args;

typedef struct mox_sm90_ops {
    moxie_status (*list)(void *context, const mox_sm90_list_args *args, bool dependent);
    moxie_status (*gather)(void *context, const mox_sm90_gather_args *args, bool dependent);
    moxie_status (*gemm)(void *context, mox_sm90_element element, const mox_sm90_args *args, int32_t blocks,
                         bool dependent);
    moxie_status (*show)(void *context, const mox_sm90_trace_args *args);
} mox_sm90_ops;

typedef struct mox_sm90_product {
    mox_sm90_element element;
    int32_t usual_columns, max_columns, blocks;
    bool gathers;
    mox_sm90_list_args list;
    mox_sm90_gather_args gather;
    mox_sm90_args gemm;
} mox_sm90_product;

/* What dequantizing weights to 16 bits does to them. */
typedef enum mox_sm90_dequant {
    MOX_SM90_DEQUANT_NONE = 0,     /* no kernel dequantizes them */
    MOX_SM90_DEQUANT_EXACT,        /* nothing is rounded */
    MOX_SM90_DEQUANT_EXACT_BY_ROW, /* nothing with one scale a row, which is left to a factor; else rounded once */
    MOX_SM90_DEQUANT_ROUNDED       /* each weight is rounded once */
} mox_sm90_dequant;

/* A line of sm90_weights.def. */
typedef struct mox_sm90_weight {
    moxie_dtype element, scale;
    int32_t group_cols;
    mox_sm90_element kernel[2]; /* for tokens of 16 bits, of 8 */
    mox_sm90_element sums;      /* the kernel that multiplies sums of chunks by the scales */
    mox_sm90_dequant dequant;
    bool to_scale_type;
} mox_sm90_weight;

/* The line of sm90_weights.def for these weights; without one, a line that dequantizes nothing. */
const mox_sm90_weight *mox_sm90_weight_of(const moxie_quant *weight);

/* Do scales of groups of activations become token scales, as f32? Otherwise bf16 holds a code times its scale, or the
 * scale is the row's. `groups`: scales of a row. */
bool mox_sm90_has_token_scales(const moxie_quant *act, int64_t groups);
/* The element of weights whose scales multiply sums of chunks, by the above. */
mox_sm90_element mox_sm90_blocks_element(const moxie_quant *weight, const moxie_quant *act, int64_t groups);

/* Do scales multiply sums of chunks, not weights, where tokens have the type `dtype`? (cuda_expert_gemm_sm90.c) */
bool mox_sm90_scales_sums(const moxie_quant *weight, int64_t cols, moxie_dtype dtype);

/* act_groups: scales of a row of tokens that are 8-bit elements to the tensor cores; 0: they are 16-bit ones. */
mox_sm90_element mox_sm90_element_of(const moxie_quant *weight, int64_t act_groups);
void mox_sm90_product_of(const mox_cuda_expert_gemm_args *a, mox_sm90_product *p);

/* Runs the kernels of one launch. Those of a traced run wait for each other. */
moxie_status mox_sm90_enqueue(const mox_cuda_expert_gemm_args *a, const mox_sm90_ops *ops, void *context);

#ifdef __cplusplus
}
#endif

#endif
