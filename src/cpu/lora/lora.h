/* SPDX-License-Identifier: Apache-2.0
 *
 * lora.h - family lora: adds a low-rank change to a product's result, for pairs whose token has an adapter, in fp32.
 *
 *     shrink   u[i]    = s sum_k A[i,k] x[k]         i < r
 *     expand   out[n] += sum_i B[n,i] u[i]           i ascending, from zero
 *
 * Sixteen partial sums of a row of A each take every sixteenth column, in order; then the upper half is added to the
 * lower one, four times. Products and sums are rounded one by one, so all kernels give the same bits, and each pair's
 * bits are its own.
 *
 * A kernel is two tiles, of up to MOX_LORA_ROWS pairs of one expert and one adapter, which read the factors once.
 *
 *     unfused   expert_gemm w13 -> h -> [lora] -> glu -> act -> quant_act -> expert_gemm w2 -> y -> [lora]
 *     fused     shrink before phase 1; expand on each block before its activation. Shrink when an expert's
 *               activations are complete; expand on each block of phase 2
 */
#ifndef MOX_CPU_LORA_H
#define MOX_CPU_LORA_H

#include "cpu/kernel.h"
#include "cpu/lora/lora_args.h"

#define MOX_LORA_ROWS 4

/* u[j][i] = scale * dot(row i of a, x[j]). Rows of a and x have `cols` numbers, a multiple of 16. */
typedef struct mox_lora_shrink_tile {
    const void *a;
    moxie_dtype dtype;
    int64_t rank, cols;
    float scale;
    int rows;
    const float *x[MOX_LORA_ROWS];
    float *u[MOX_LORA_ROWS];
} mox_lora_shrink_tile;

/* out[j][n] += sum_i b[i][n] u[j][i], n < 16. */
typedef struct mox_lora_expand_tile {
    const void *b;
    moxie_dtype dtype;
    int64_t rank;
    int rows;
    const float *u[MOX_LORA_ROWS];
    float *out[MOX_LORA_ROWS];
} mox_lora_expand_tile;

typedef struct mox_lora_kernel {
    mox_kernel base;
    void (*shrink)(const mox_lora_shrink_tile *tile);
    void (*expand)(const mox_lora_expand_tile *tile);
} mox_lora_kernel;

const mox_lora_kernel *mox_lora_at(int32_t i);

/* What every kernel of lora.def provides. */
#define MOX_LORA(id, isa, exactness, layout)                                                                           \
    void mox_lora_##id##_shrink(const mox_lora_shrink_tile *tile);                                                     \
    void mox_lora_##id##_expand(const mox_lora_expand_tile *tile);
#include "cpu/lora/lora.def"
#undef MOX_LORA

/* Numbers of scratch of one worker, for rows of at most `cols`; a multiple of 16. */
int64_t mox_lora_scratch(int64_t cols);

/* Whether one of the pairs [first, last) has an adapter. */
bool mox_lora_any(const mox_lora_args *args, int64_t first, int64_t last);
/* Computes u of pairs [first, last), which are of one slot. */
void mox_lora_shrink_pairs(const mox_lora_kernel *kernel, const mox_lora_args *args, int64_t slot, int64_t first,
                           int64_t last, int32_t worker);
/* Adds to `count` columns, at most 16, of the pairs' results from column `column` on, a multiple of 16 in its matrix.
 * Row p of `out` is pair first + p, its rows are `stride` numbers apart. */
void mox_lora_expand_pairs(const mox_lora_kernel *kernel, const mox_lora_args *args, int64_t slot, int64_t first,
                           int64_t last, int64_t column, int64_t count, float *out, int64_t stride);

/* Computes u of all pairs. */
void mox_lora_shrink(const mox_lora_kernel *kernel, const mox_lora_args *args, const moxie_executor *executor);
/* Both steps: adds the change to all of `out`. */
void mox_lora_run(const mox_lora_kernel *kernel, const mox_lora_args *args, const moxie_executor *executor);

#endif
