/* SPDX-License-Identifier: Apache-2.0
 *
 * lora_args.h - the factors of adapters as kernels of family lora read them (lora.h), and the arguments of one product.
 * Pointers are to the memory of the device that runs the kernel.
 *
 *     a   [r, cols']           of one expert: cols rounded up to 16, the rest zero
 *     b   [panels, r, 16]      of one expert: 16 rows of B to a panel, transposed; rows behind the last are zero
 *
 * Factors are F32 or BF16. Those of one adapter and projection lie expert after expert, by slot.
 */
#ifndef MOX_CPU_LORA_ARGS_H
#define MOX_CPU_LORA_ARGS_H

#include <stdbool.h>

#include <moxie/moxie.h>

#include "base/shared.h"

#define MOX_LORA_LANES 16 /* rows of a panel of B, and partial sums of a row of A */

enum { MOX_LORA_GATE, MOX_LORA_UP, MOX_LORA_DOWN, MOX_LORA_MATRICES };

/* The factors of one matrix of all experts. */
typedef struct mox_lora_matrix {
    int32_t rank; /* 0: the adapter does not change this matrix */
    float scale;
    const void *a, *b;
    moxie_dtype a_dtype, b_dtype;
    int64_t a_expert_bytes, b_expert_bytes; /* from one slot to the next; 0: all experts share it */
} mox_lora_matrix;

typedef struct mox_lora_adapter {
    mox_lora_matrix matrix[MOX_LORA_MATRICES];
    bool one_a; /* gate and up have one A: up's u is the gate's */
} mox_lora_adapter;

/* One product of one pass. */
typedef struct mox_lora_args {
    const mox_lora_adapter *const *adapters; /* [count] by number; NULL: none, or on a device a disabled one */
    int32_t count;
    bool second; /* W2; else W13 */
    bool gated;  /* W13 has the rows [gate | up] */
    int64_t slots;
    const int64_t *offsets;    /* [slots+1] first pair of each slot */
    const int32_t *place_of;   /* [slots] place of a slot's expert among the factors; NULL: the slot's number */
    const int32_t *adapter_of; /* host: [pairs] a number, or -1 for none */
    const int32_t
        *adapter_ids; /* device: [tokens of the pass] the same; other numbers, or adapters above max_rank, are none */
    const int64_t *token_of; /* [pairs] */
    int64_t max_pairs;       /* upper bound of offsets[slots] */
    const void *x;           /* [rows, cols] */
    moxie_dtype x_dtype;
    int64_t cols;
    const int64_t *row_of;   /* [pairs] row of x; NULL: row p for pair p */
    const float *row_weight; /* [pairs] multiplies x, rounded to its dtype; NULL: none */
    int64_t max_rank;
    float *u; /* [pairs, 2 max_rank] for W13, gate before up; [pairs, max_rank] for W2 */
    float *out;
    bool writes;   /* device: out gets the change alone, -0 where there is none; else the change is added to it */
    int64_t n_out; /* columns of out; gated: of both halves */
    void *scratch; /* host: [workers] of scratch_floats f32, 64-byte aligned; device: cuda_lora_args.h */
    int64_t scratch_floats; /* mox_lora_scratch() */
} mox_lora_args;

#ifndef __CUDACC__
/* Where the factors of a slot's expert lie. */
static inline int64_t mox_lora_place(const mox_lora_args *args, int64_t slot)
{
    return args->place_of != NULL ? args->place_of[slot] : slot;
}
#endif

/* The matrix that column `column` of a product belongs to; *column becomes the row of that matrix. */
MOX_SHARED int mox_lora_matrix_of(const mox_lora_args *args, int64_t *column)
{
    if (args->second)
        return MOX_LORA_DOWN;
    if (!args->gated)
        return MOX_LORA_UP;
    if (*column < args->n_out / 2)
        return MOX_LORA_GATE;
    *column -= args->n_out / 2;
    return MOX_LORA_UP;
}

/* Where a pair's u for a matrix begins. */
MOX_SHARED float *mox_lora_u(const mox_lora_args *args, const mox_lora_adapter *adapter, int64_t pair, int matrix)
{
    const int64_t stride = args->second ? args->max_rank : 2 * args->max_rank;
    return args->u + pair * stride + (matrix == MOX_LORA_UP && !adapter->one_a ? args->max_rank : 0);
}

/* Columns of a row of A in memory. */
MOX_SHARED int64_t mox_lora_padded(int64_t cols)
{
    return (cols + MOX_LORA_LANES - 1) / MOX_LORA_LANES * MOX_LORA_LANES;
}

#endif
