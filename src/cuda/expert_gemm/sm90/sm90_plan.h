/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_plan.h - from the arguments of a row on layout hopper to what its kernels get, and the order in which they run.
 * Plain C for libmoxie (sizes), for the launchers (.cu) and for the tests, which put kernels in plain C behind
 * mox_sm90_ops.
 *
 *     W13    [list] -> gather -> gemm (rows, or the fused operand of W2)
 *     W2     [gather] -> gemm, with the list that W13 left in the same scratch
 *     traced list -> gather -> gemm to h -> gemm to act -> gemm -> show
 *
 * A gemm's weights are on their way before the kernel in front of it, a gather or the other gemm, has ended: the list
 * is older than that. Of few pairs there is none; each block makes its own.
 *
 *     scratch | list | octets | state | gathered tokens | their scales | their factors |
 */
#ifndef MOX_CUDA_SM90_PLAN_H
#define MOX_CUDA_SM90_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "cuda/expert_gemm/cuda_expert_gemm_args.h"
#include "cuda/expert_gemm/sm90/sm90_shape.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MOX_SM90_MAX_SIZE           (INT64_C(1) << 24) /* of H and I: what is counted in 32 bits then fits */
#define MOX_SM90_MAX_INT8_TERMS     ((1 << 17) - 1) /* products of 8-bit integers, up to 2^14, whose sum fits 31 bits */
#define MOX_SM90_PAIR_TOKENS        48              /* a slot on average, from which on blocks work in pairs */
#define MOX_SM90_L2_PREFETCH_CHUNKS 4 /* chunks that L2 is asked for by a product that waits for the other */

static inline int64_t mox_sm90_round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static inline int64_t mox_sm90_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows of a tiled operand at most: each slot's tokens rounded up to 8. */
static inline int64_t mox_sm90_tiled_rows(int64_t pairs, int64_t slots)
{
    return mox_sm90_round_up(pairs + 7 * mox_sm90_min(pairs, slots), 8);
}

/* ---- scratch --------------------------------------------------------------------------------------------------- */

typedef struct mox_sm90_sizes {
    int64_t slots, pairs, multiprocessors;
    int32_t chunks; /* of the product */
    int32_t scales; /* of a token in each */
} mox_sm90_sizes;

/* What both products share comes first, so that both find it in the same place. */
typedef struct mox_sm90_space {
    uint64_t list, octets, state, tiles, tile_scales, tile_factors, end;
    int64_t octet_count;
} mox_sm90_space;

/* Grows with pairs, slots and multiprocessors. */
mox_sm90_space mox_sm90_lay_out(const mox_sm90_sizes *s);
int64_t mox_sm90_state_words(int64_t blocks, int64_t max_columns);

/* Bytes of a tiled operand that L2 does not hold. */
enum { MOX_SM90_L2_BYTES = 48 << 20 };

/* Tags of the products that may follow one gather. */
enum { MOX_SM90_TAG_H = 1, MOX_SM90_TAG_ACT, MOX_SM90_TAG_W13, MOX_SM90_TAG_W2 };

/* ---- one product ----------------------------------------------------------------------------------------------- */

/* The operand of W2 as numbers [pairs, stride] and scales [pairs, shown], for those who look at a run. Codes that have
 * become bf16 are found again from what was quantized, `act`; where the operand holds anything else, that is shown. */
typedef struct mox_sm90_trace_args {
    const mox_sm90_list *list;
    int64_t max_pairs;
    moxie_dtype element; /* F8_E4M3: codes with scales */
    int32_t cols, chunks;
    int32_t scale_count; /* scales of a row */
    moxie_quant quant;
    float scale_factor; /* of mox_sm90_acts */
    const float *act;   /* [pairs, cols]; NULL: codes and scales, or unquantized */
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
    int32_t max_columns, blocks;
    bool gathers;
    mox_sm90_list_args list;
    mox_sm90_gather_args gather;
    mox_sm90_args gemm;
} mox_sm90_product;

/* `bytes`: tokens are 8-bit elements to the tensor cores. */
mox_sm90_element mox_sm90_element_of(const moxie_quant *weight, bool bytes);
void mox_sm90_product_of(const mox_cuda_expert_gemm_args *a, mox_sm90_product *p);

/* One call of a launcher. Kernels of a traced run wait for each other. */
moxie_status mox_sm90_enqueue(const mox_cuda_expert_gemm_args *a, const mox_sm90_ops *ops, void *context);

#ifdef __cplusplus
}
#endif

#endif
