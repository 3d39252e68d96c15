/* SPDX-License-Identifier: Apache-2.0
 *
 * lora_args.h - the factors of adapters as kernels of family lora read them (lora.h), and the arguments of one product.
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

#include "base/sizes.h"
#include "format/format.h"

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
    const mox_lora_adapter *const *adapters; /* by number */
    bool second;                             /* W2; else W13 */
    bool gated;                              /* W13 has the rows [gate | up] */
    int64_t slots;
    const int64_t *offsets;    /* [slots+1] first pair of each slot */
    const int32_t *adapter_of; /* [pairs] a number, or -1 for none */
    const void *x;             /* [rows, cols] */
    moxie_dtype x_dtype;
    int64_t cols;
    const int64_t *row_of;   /* [pairs] row of x; NULL: row p for pair p */
    const float *row_weight; /* [pairs] multiplies x, rounded to its dtype; NULL: none */
    int64_t max_rank;
    float *u; /* [pairs, 2 max_rank] for W13, gate before up; [pairs, max_rank] for W2 */
    float *out;
    int64_t n_out;          /* columns of out; gated: of both halves */
    float *scratch;         /* [workers] of scratch_floats, 64-byte aligned */
    int64_t scratch_floats; /* mox_lora_scratch() */
} mox_lora_args;

/* The matrix that column `column` of a product belongs to; *column becomes the row of that matrix. */
static inline int mox_lora_matrix_of(const mox_lora_args *args, int64_t *column)
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
static inline float *mox_lora_u(const mox_lora_args *args, const mox_lora_adapter *adapter, int64_t pair, int matrix)
{
    const int64_t stride = args->second ? args->max_rank : 2 * args->max_rank;
    return args->u + pair * stride + (matrix == MOX_LORA_UP && !adapter->one_a ? args->max_rank : 0);
}

/* Columns of a row of A in memory. */
static inline int64_t mox_lora_padded(int64_t cols)
{
    return mox_ceil_div(cols, MOX_LORA_LANES) * MOX_LORA_LANES;
}

/* A[i,k] and B[n,i] of a slot's expert, for code that reads one at a time. `cols`: columns of A. */
static inline double mox_lora_a(const mox_lora_matrix *m, int64_t slot, int64_t cols, int64_t i, int64_t k)
{
    const char *a = (const char *)m->a + slot * m->a_expert_bytes;
    return mox_load(m->a_dtype, a + (i * mox_lora_padded(cols) + k) * mox_dtype_bytes(m->a_dtype));
}

static inline double mox_lora_b(const mox_lora_matrix *m, int64_t slot, int64_t n, int64_t i)
{
    const char *b = (const char *)m->b + slot * m->b_expert_bytes;
    const int64_t at = (n / MOX_LORA_LANES * m->rank + i) * MOX_LORA_LANES + n % MOX_LORA_LANES;
    return mox_load(m->b_dtype, b + at * mox_dtype_bytes(m->b_dtype));
}

#endif
