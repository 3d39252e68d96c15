/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_kernel.h - the inner product of every row that reads layout panel16: one or two panels of an expert's
 * matrix times up to MOX_PANEL_BLOCK rows of activations.
 *
 *     c[r, 16 j + n] = sum over segments s in order of  (C_s [* sa[r, s]]) * sw[n, s]      j < panels, n < 16
 *
 * Arithmetic "fma32", the same bits on every ISA that claims it. A step is 32 columns (16 when the weights' groups
 * are 16 columns). Of a step, the even columns form a chain of fused multiply-adds from zero in ascending order, the
 * odd columns another; t = even + odd. A segment is the run of steps inside one weight group and one activation
 * group: C = 0 + t_0 + t_1 + ... in order. Then sum = fma(C * sa, sw, sum), from sum = 0, where a missing sa or sw is
 * left out; with neither, sum = C of the only segment. Everything in fp32, round to nearest even, subnormal operands
 * and results taken as zero. (That is how TDPBF16PS is defined; other units imitate it.) With int8 activations and
 * int8 weights C is an exact int32, rounded once to fp32.
 *
 * Arithmetic "dot32" differs in one thing: the chains are of a step's first 16 columns and of its last 16, of each pair
 * of columns first the odd one, then the even one; a step of 16 columns is one chain. (That is how VDPBF16PS is
 * defined.)
 *
 * Arithmetic "fold32" differs from "fma32" in one thing: scales that leave every code exact in bf16 (E8M0; E4M3 of
 * f4_e2m1 in groups of 16) are multiplied into the codes first, and end no segment. Products of E4M3 are held at 2^-16
 * of their value, and the sum ends times 2^16.
 *
 * Arithmetic "folded", of class TOL, is "fold32" for up to 8 rows. For more, scales of 4-bit integers are folded, too,
 * and the product is rounded to bf16's 8 significant bits, half up (amx_job.h). So a row's bits depend on how many
 * there are.
 *
 * Arithmetic "bytes32", of class TOL, differs from "fma32" in one thing: a step's activations a[k] are rounded to
 * bytes. With m the greatest |a[k]| they are d[k] = the integer nearest to a[k] * (127 / m), and the step is t = (sum
 * of d[k] w[k], which is exact) * (m * (1/127)). Steps of zeros end at +0; those whose m is below 2^-60 or above 2^60,
 * or that hold NaN, are as they are in "fma32".
 *
 * Codes are used as they are (integers minus their zero point), which is exact in bf16 and fp32.
 *
 * In the flow: [operand] x [panel] -> c -> global, bias -> activation or y, by whoever calls (panel_run.c, fused.c).
 */
#ifndef MOX_CPU_PANEL_KERNEL_H
#define MOX_CPU_PANEL_KERNEL_H

#include "cpu/expert_gemm/expert_gemm.h"
#include "pack/panel/panel.h"

/* Kernels are written once, with constants for what their instances differ in. */
#define MOX_KERNEL_INLINE static inline __attribute__((always_inline))

/* Before loops over registers, which must be unrolled completely. */
#ifdef __clang__
#define MOX_KERNEL_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MOX_KERNEL_UNROLL _Pragma("GCC unroll 16")
#endif

/* MXCSR: flush to zero, and denormals are zero. */
#define MOX_FLUSH_SUBNORMALS 0x8040u

#define MOX_PANEL_BLOCK 128 /* rows of activations a call takes at most */

/* Bytes of one row of an operand with `cols` columns: f32 and bf16 in whole steps of 32, i8 of 64. */
uint64_t mox_act_order_row_bytes(mox_act_order kind, int64_t cols);

/* What may be read behind the last row: tile units take 16 rows at a time, whatever the last of them hold. */
#define MOX_PANEL_OVERREAD_BYTES 960

typedef struct mox_panel_rows {
    int64_t rows;        /* 1 .. MOX_PANEL_BLOCK; starts at a tile */
    const void *data;    /* 64-byte aligned, and PANEL_OVERREAD_BYTES more bytes of any contents */
    const float *scales; /* [rows, scale_stride], one a group of group_cols columns; NULL: none */
    int64_t scale_stride;
    int64_t group_cols; /* a multiple of 32 */
    bool again; /* as in the last call with this scratch, of the same matrix: what was derived from them is still there
                 */
} mox_panel_rows;

/* What mox_panel_multiply_fn computes: panels [panel, panel + panels) of `matrix`, panels 1 or 2, times the rows of
 * `a`, to c [rows, 32] f32, 64-byte aligned. `scratch` is 64-byte aligned, as many bytes as the row's scratch_bytes()
 * said, one thread's own. MXCSR is left as it was found, and no tile is left configured. */

/* True when the problem's groups fit segments of whole steps, so that every panel kernel can take it: weight groups
 * of 16 (without activation scales), multiples of 32, or whole rows; activation groups multiples of 32 or whole
 * rows; one of the two a multiple of the other. */
bool mox_panel_admit_groups(const mox_expert_gemm_problem *problem, mox_rejection *why);

/* True when sums in fp32 are what the contract wants: products of 8-bit integers are summed in int32. */
bool mox_panel_admit_floats(const mox_expert_gemm_problem *problem, mox_rejection *why);
/* The same, and the activations are exact in bf16. */
bool mox_panel_admit_bf16(const mox_expert_gemm_problem *problem, mox_rejection *why);

/* Columns of a step: 16 or 32. */
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

/* For sum "bytes32": weights are such a format, activations are not quantized, or to 8-bit floats. */
bool mox_panel_admit_bytes(const mox_expert_gemm_problem *problem, mox_rejection *why);

/* Where the scales of quantized activations go. E8M0 scales, and E4M3 scales of f4_e2m1, are folded: code times scale
 * is exact in bf16, so the operand holds the product. One scale a row multiplies the finished sum. The rest, f32 scales
 * of groups of columns, are the kernel's (mox_panel_rows.scales). */
typedef enum mox_act_scaling { MOX_ACT_UNSCALED = 0, MOX_ACT_FOLDED, MOX_ACT_BY_ROW, MOX_ACT_GROUPED } mox_act_scaling;
mox_act_scaling mox_panel_act_scaling(const moxie_quant *act, int64_t cols);

/* What ends a sum, besides the matrix's own globals and biases; NULL: left out. */
typedef struct mox_panel_end {
    const float *scale, *act_global; /* of the row */
    int32_t act_global_kind, weight_global_kind;
} mox_panel_end;

/* One row of a panel's sums c [16] to finished numbers out [16]. */
void mox_panel_finish(const mox_panel_end *end, const mox_panel_matrix *matrix, int64_t panel, const float *c,
                      float *out);

/* First column of the product that panel `panel` computes, and how many of its rows there are (1 to 16). For gated
 * W13 columns are [gate I | up I]. */
void mox_panel_place(const mox_panel_matrix *matrix, int64_t panel, int64_t *column, int64_t *count);

/* A row that the compiler has no instructions for: it refuses, and says what to compile for. */
#define MOX_PANEL_GEMM_ABSENT(id, target)                                                                              \
    mox_panel_multiply_fn mox_expert_gemm_##id##_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)      \
    {                                                                                                                  \
        (void)problem;                                                                                                 \
        mox_reject(why, "compile for " target, "is not in this build");                                                \
        return NULL;                                                                                                   \
    }                                                                                                                  \
    uint64_t mox_expert_gemm_##id##_scratch_bytes(const mox_expert_gemm_problem *problem)                              \
    {                                                                                                                  \
        (void)problem;                                                                                                 \
        return 0;                                                                                                      \
    }

#endif
