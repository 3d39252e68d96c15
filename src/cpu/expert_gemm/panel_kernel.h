/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_kernel.h - the inner product of every kernel that reads layout panel16: one or two panels of an expert's matrix
 * times up to MOX_PANEL_BLOCK rows of activations.
 *
 *     c[r, 16 j + n] = sum over segments s in order of  (C_s [* sa[r, s]]) * sw[n, s]      j < panels, n < 16
 *
 *     C_s     sum over the columns k of segment s of  w[n, k] a[r, k];  w: the code less its zero point
 *     sw, sa  scales of weights and of activations
 *
 * sums.def lists the orders in which kernels sum; here is what they are. Kernels of one order give the same bits.
 *
 * FMA_STEPS. A step is 32 columns (16 when the weights' groups are 16 columns). The even columns of a step form a chain
 * of fused multiply-adds from zero in ascending order, the odd columns another; t = even + odd. A segment is the run of
 * steps inside one weight group and one activation group: C = 0 + t_0 + t_1 + ... in order. Then sum = fma(C * sa, sw,
 * sum), from sum = 0, where a missing sa or sw is left out; with neither, sum = C of the only segment. Everything is
 * fp32, rounded to nearest even; subnormal inputs and results count as zero. (So TDPBF16PS is defined; other units
 * imitate it.)
 *
 * INT32_STEPS. Activations and weights are integers of 8 bits: C is an exact int32, rounded once to fp32.
 *
 * DOT_STEPS differs from FMA_STEPS in the chains: one is of a step's first 16 columns, the other of its last 16. Of
 * each pair of columns the odd one comes first. A step of 16 columns is one chain. (So VDPBF16PS is defined.)
 *
 * ODD_PAIRS differs from FMA_STEPS in what C is made of. A run is the columns of a segment up to the next multiple of
 * 256. Its sum t starts from zero, and each pair of columns adds p = a w + a' w' to it. p and t + p are rounded to odd:
 * toward zero, then the last bit is set unless the number was exact. (So BFDOT and BFMMLA are defined.) Pairs keep the
 * bound: a run of L columns has L/2 + 1 such roundings, each below twice the error of one to nearest.
 *
 * SCALE_IN_WEIGHT differs from FMA_STEPS in the scales: those that leave every code exact in bf16 (E8M0; E4M3 of
 * f4_e2m1 in groups of 16) are multiplied into the codes first, and end no segment. Products with E4M3 are kept at
 * 2^-16 of their value, and the sum ends times 2^16.
 *
 * BYTE_ACTIVATIONS, of class TOL, differs from FMA_STEPS in that a step's activations a[k] are rounded to bytes. Let m
 * be the greatest |a[k]| of the step, and d[k] the integer nearest to a[k] * (127 / m). Then t = (sum of d[k] w[k],
 * which is exact) * (m * (1/127)). The t of a step of zeros is +0. Steps with m below 2^-60 or above 2^60, and steps
 * that hold NaN, are as in FMA_STEPS.
 *
 * BYTE_RUNS, of class TOL, is for block types (pack/panel/block_panel.h), whose weight is S (level - offset) - M with S
 * and M of a run of 16 columns or more. d[k], m and the exceptions are those of BYTE_ACTIVATIONS. In each run of the
 * step I = sum of d[k] (level - offset) and D = sum of d[k] are exact. From t = S I of the first run, each adds:
 * t = fma(I, S, t), then t = fma(-D, M, t) where there are minimums. Then t is multiplied by m * (1/127). Activations
 * that are int8 codes already are d[k], and t is not multiplied. An infinite S or M counts as NaN. INT32_RUNS is that,
 * without minimums.
 *
 * LEVEL_RUNS is for block types without minimums. In each run of the step I is the sum of a[k] (level - offset) as t of
 * FMA_STEPS is: an even chain and an odd one. t = S I of the first run, and the second adds t = fma(I, S, t). An
 * infinite S counts as NaN.
 *
 * In the flow: [activations] x [panel] -> c -> global scales, bias -> glu or y, by the caller (panel_run.c, fused.c).
 */
#ifndef MOX_CPU_PANEL_KERNEL_H
#define MOX_CPU_PANEL_KERNEL_H

#include "base/sizes.h"
#include "cpu/expert_gemm/expert_gemm.h"
#include "pack/panel/panel.h"

/* Kernels are written once, as inline functions; an instance passes its constants. */
#define MOX_KERNEL_INLINE static inline __attribute__((always_inline))

/* Before loops over arrays of registers, which must be unrolled completely. (Emulated registers are memory, and the
 * tests that emulate them define it as nothing.) */
#if !defined(MOX_KERNEL_UNROLL) && defined(__clang__)
#define MOX_KERNEL_UNROLL _Pragma("clang loop unroll(full)")
#elif !defined(MOX_KERNEL_UNROLL)
#define MOX_KERNEL_UNROLL _Pragma("GCC unroll 16")
#endif

/* MXCSR: flush to zero, and denormals are zero. */
#define MOX_FLUSH_SUBNORMALS 0x8040u

#define MOX_PANEL_BLOCK 128 /* max rows of activations in a call */

/* Max rows of a call for this problem. */
static inline int64_t mox_panel_max_rows(const mox_expert_gemm_problem *problem)
{
    return problem->max_rows > 0 ? mox_min_i64(problem->max_rows, MOX_PANEL_BLOCK) : MOX_PANEL_BLOCK;
}

/* Bytes of one row of activations with `cols` columns: f32 and bf16 in whole steps of 32 columns, i8 of 64. */
uint64_t mox_act_order_row_bytes(mox_act_order order, int64_t cols);

/* Bytes that may be read behind the last row: tile units load 16 rows at a time, also when fewer are left. */
#define MOX_PANEL_OVERREAD_BYTES 960

typedef struct mox_panel_rows {
    int64_t rows;        /* 1 .. MOX_PANEL_BLOCK; starts at a tile */
    const void *data;    /* 64-byte aligned, and PANEL_OVERREAD_BYTES more bytes of any contents */
    const float *scales; /* [rows, scale_stride], one a group of group_cols columns; NULL: none */
    int64_t scale_stride;
    int64_t group_cols; /* a multiple of 32 */
    bool again; /* same rows and matrix as in the last call with this scratch, which still holds what was derived */
} mox_panel_rows;

/* A mox_panel_multiply_fn multiplies panels [panel, panel + panels) of `matrix` (panels: 1 or 2) by the rows of `a`,
 * and stores the sums to c [rows, 32] f32. c and `scratch` are 64-byte aligned; `scratch` has the bytes that the
 * kernel's scratch_bytes() said, and belongs to the calling thread. MXCSR is left as it was, and no tile is left
 * configured. */

/* A plan may be made on a processor that lacks a kernel's instructions. So a kernel's bind() and scratch_bytes() lie in
 * files that are compiled for any processor (<isa>_plan.c), and files with an instruction set's flags export only what
 * runs: a function, or a list of variants. Where the build lacks the instructions, that is NULL or an empty list. */
typedef struct mox_panel_variant {
    moxie_dtype element;                   /* and all formats that decode alike (mox_element_decodes_as) */
    bool zeros;                            /* the weights have zero points */
    mox_panel_multiply_fn multiply, by_16; /* by_16: for weight groups of 16 columns; NULL: there is none */
} mox_panel_variant;
typedef struct mox_panel_variants {
    const mox_panel_variant *of;
    size_t count;
} mox_panel_variants;
/* The variant for weights of `cols` columns; NULL: there is none. */
mox_panel_multiply_fn mox_panel_variant_of(const mox_panel_variants *variants, const moxie_quant *weight, int64_t cols);

/* Rejects for a kernel whose instructions this build lacks, and returns NULL. `target`: what to compile for. */
mox_panel_multiply_fn mox_panel_absent(mox_rejection *why, const char *target);

/* True when segments are whole steps, as every panel kernel needs it. Weight groups: 16 columns (without activation
 * scales), multiples of 32, or whole rows. Activation groups: multiples of 32, or whole rows. One of the two sizes is a
 * multiple of the other. */
bool mox_panel_admit_groups(const mox_expert_gemm_problem *problem, mox_rejection *why);

/* True when products may be summed in fp32. Those of 8-bit integers may not: the contract sums them in int32. */
bool mox_panel_admit_floats(const mox_expert_gemm_problem *problem, mox_rejection *why);
/* True when, besides, the activations are exact in bf16. */
bool mox_panel_admit_bf16(const mox_expert_gemm_problem *problem, mox_rejection *why);

/* Columns in a step: 16 or 32. */
int64_t mox_panel_step_cols(const moxie_quant *weight, int64_t cols);

/* A 4-bit format in integers (element_traits.def): value = (counts[code] - offset) * h. Every count is below 25, and
 * max is the largest |count - offset|. With zero points value = counts[code] - zero, where a zero is at most 16. */
typedef struct mox_panel_counts {
    uint8_t counts[16];
    int32_t offset; /* 0 with zero points */
    float h, max;
} mox_panel_counts;
/* False for formats whose values are not such multiples. */
bool mox_panel_count(moxie_dtype element, bool zeros, mox_panel_counts *out);

/* True when activations may be rounded to bytes: those of 16 bits and FP8. */
bool mox_panel_admit_rounding(const moxie_quant *act, mox_rejection *why);

/* For order BYTE_ACTIVATIONS: true when the weights are such a format, or 8-bit integers whose groups do not have 16
 * columns, and the activations are of 16 bits or FP8. */
bool mox_panel_admit_bytes(const mox_expert_gemm_problem *problem, mox_rejection *why);

/* True when the weights are a block type that panels hold; and when, besides, activations are dynamic int8 codes and
 * the weights have no minimums, as sum INT32_RUNS needs it. */
bool mox_panel_admit_blocks(const mox_expert_gemm_problem *problem, mox_rejection *why);
bool mox_panel_admit_block_int8(const mox_expert_gemm_problem *problem, mox_rejection *why);

/* Where the scales of quantized activations are applied. IN_VALUE: E8M0 scales, and E4M3 scales of f4_e2m1, as code
 * times scale is exact in bf16: the kernel reads the product. BY_ROW: one scale a row multiplies the finished sum.
 * GROUPED: f32 scales of groups of columns; the kernel applies them (mox_panel_rows.scales). */
typedef enum mox_act_scaling {
    MOX_ACT_UNSCALED = 0,
    MOX_ACT_IN_VALUE,
    MOX_ACT_BY_ROW,
    MOX_ACT_GROUPED
} mox_act_scaling;
mox_act_scaling mox_panel_act_scaling(const moxie_quant *act, int64_t cols);

/* Factors of a finished sum, besides the matrix's own globals and biases. NULL: there is none. */
typedef struct mox_panel_end {
    const float *scale, *act_global; /* of the row of activations */
    int32_t act_global_kind, weight_global_kind;
} mox_panel_end;

/* Finishes the sums c [16] of a panel and one row of activations: factors, then biases, to out [16]. */
void mox_panel_finish(const mox_panel_end *end, const mox_panel_matrix *matrix, int64_t panel, const float *c,
                      float *out);

/* The columns of the product that panel `panel` computes: the first one, and how many (1 to 16). For gated W13 the
 * product's columns are [gate I | up I]. */
void mox_panel_place(const mox_panel_matrix *matrix, int64_t panel, int64_t *column, int64_t *count);

#endif
