/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_sm90_list.h - the work list and the gather of the rows on layout hopper in plain C (test_cuda_sm90.h), and
 * where the operand of a token tile has its numbers.
 */
#ifndef TEST_CUDA_SM90_LIST_H
#define TEST_CUDA_SM90_LIST_H

#include "cuda/expert_gemm/sm90/sm90_plan.h"

/* A list of few pairs, with its octets. */
typedef struct own_list {
    mox_sm90_list head;
    mox_sm90_entry entries[MOX_SM90_INLINE_PAIRS];
    mox_sm90_octet octets[MOX_SM90_INLINE_PAIRS];
} own_list;

static inline const mox_sm90_entry *entries_of(const mox_sm90_list *list)
{
    return (const mox_sm90_entry *)(const void *)(list + 1);
}

/* A token tile of an entry. */
typedef struct token_tile {
    int32_t pair, columns, row, rows;
} token_tile;

static inline token_tile tile_of(const mox_sm90_entry *entry, int32_t t)
{
    const int32_t each = ((entry->tokens + entry->tiles - 1) / entry->tiles + 7) / 8 * 8;
    const int32_t left = entry->tokens - t * each, columns = left < 0 ? 0 : left < each ? left : each;
    return (token_tile) { entry->pair + t * each, columns, entry->row + t * each, (columns + 7) / 8 * 8 };
}

/* Byte `at` of row i in chunk k of a tiled operand. */
static inline int64_t tiled_at(const token_tile *t, int32_t chunks, int64_t i, int64_t at)
{
    const int64_t k = at / 128, in = at % 128;
    return (int64_t)t->row * chunks * 128 + k * t->rows * 128 + i * 128 + (in / 16 ^ i % 8) * 16 + in % 16;
}

/* The scale of row i in chunk k. */
static inline int64_t scale_at(const token_tile *t, int32_t chunks, int64_t i, int64_t k)
{
    return (int64_t)t->row * chunks + k * t->rows + i;
}

/* The work list that the kernels make of few pairs for themselves, in `own`. */
const mox_sm90_list *test_cuda_sm90_list_of_few(const mox_sm90_routing *few, int32_t most, own_list *own);

/* Number k of row `row` of the gather's codes, as bf16. */
uint16_t test_cuda_sm90_act(const mox_sm90_gather_args *a, int64_t row, int64_t k);

/* Two of mox_sm90_ops. Where MOX_TEST_EMULATED is defined, the kernels leave the same bytes. */
moxie_status test_cuda_sm90_list(void *context, const mox_sm90_list_args *a, bool dependent);
moxie_status test_cuda_sm90_gather(void *context, const mox_sm90_gather_args *a, bool dependent);

#endif
