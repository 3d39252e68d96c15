/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_avx512.c - kernel avx512_fma: panels times fp32 activations with AVX-512 F, BW, DQ and VL.
 *
 *     c[r, n] = sum over segments of  (sum over the segment's columns k of a[r, k] w[n, k]) [* sa[r]] * sw[n]
 *
 * panel_fma_avx512.h has the code. Here are its scratch, the blocks for many rows, one variant per decode class, and
 * the choice of a variant. Two files add variants for processors that have more: expert_gemm_avx512_vbmi.c (f8) and
 * expert_gemm_int_dot_avx512_vnni.c (4 bits, few rows).
 */
#include "cpu/expert_gemm/panel_kernel.h"

#include "base/carver.h"
#include "base/sizes.h"

#if defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include "cpu/expert_gemm/avx512/panel_fma_avx512.h"

/* ---- scratch ------------------------------------------------------------------------------------- */

void mox_fma_lay_out(mox_carver *carver, int64_t groups, mox_fma_job *job, float **scale)
{
    *scale = mox_carve(carver, mox_segment_scale_count(groups), sizeof **scale);
    job->slab = mox_carve(carver, MOX_FMA_SLAB * MOX_PANEL_STEP * 2 * MOX_PANEL_ROWS, sizeof *job->slab);
    job->part = mox_carve(carver, MOX_PANEL_BLOCK * 2 * MOX_PANEL_ROWS, sizeof *job->part);
}

/* ---- blocks of the slab -------------------------------------------------------------------------- */

MOX_KERNEL_INLINE void block(int R, int P, int Q, const mox_fma_job *j, int64_t s, int64_t steps, int64_t row)
{
    const float *a = j->values + row * j->stride + s * 8 * Q, *slab = j->slab;
    float *part = j->part + row * 2 * MOX_PANEL_ROWS, *c = j->c + row * 2 * MOX_PANEL_ROWS;
    for (int64_t i = 0; i < steps; i++) {
        __m512 even[MOX_FMA_BLOCK][2], odd[MOX_FMA_BLOCK][2];
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++)
            even[r][0] = even[r][1] = odd[r][0] = odd[r][1] = _mm512_setzero_ps();
        for (int k = 0; k < 8 * Q; k += 2, a += 2, slab += 4 * MOX_PANEL_ROWS) {
            __m512 w[2][2];
            MOX_KERNEL_UNROLL
            for (int p = 0; p < P; p++) {
                w[0][p] = _mm512_load_ps(slab + p * MOX_PANEL_ROWS);
                w[1][p] = _mm512_load_ps(slab + (2 + p) * MOX_PANEL_ROWS);
            }
            MOX_KERNEL_UNROLL
            for (int r = 0; r < R; r++) {
                const __m512 x = _mm512_set1_ps(a[r * j->stride]), y = _mm512_set1_ps(a[r * j->stride + 1]);
                MOX_KERNEL_UNROLL
                for (int p = 0; p < P; p++) {
                    even[r][p] = _mm512_fmadd_ps(w[0][p], x, even[r][p]);
                    odd[r][p] = _mm512_fmadd_ps(w[1][p], y, odd[r][p]);
                }
            }
        }
        MOX_KERNEL_UNROLL
        for (int r = 0; r < R; r++) {
            MOX_KERNEL_UNROLL
            for (int p = 0; p < P; p++)
                even[r][p] = _mm512_add_ps(even[r][p], odd[r][p]);
        }
        mox_segment_add_step(R, P, &j->iter, &j->places[i], row, 0, c, part, even);
    }
}

#define BLOCK(name, R, P, Q)                                                                                           \
    static void name(const mox_fma_job *j, int64_t s, int64_t steps, int64_t row)                                      \
    {                                                                                                                  \
        block(R, P, Q, j, s, steps, row);                                                                              \
    }
#define BLOCKS(P, Q)                                                                                                   \
    BLOCK(block_1_##P##_##Q, 1, P, Q)                                                                                  \
    BLOCK(block_2_##P##_##Q, 2, P, Q)                                                                                  \
    BLOCK(block_3_##P##_##Q, 3, P, Q)                                                                                  \
    BLOCK(block_4_##P##_##Q, 4, P, Q)                                                                                  \
    BLOCK(block_5_##P##_##Q, 5, P, Q)                                                                                  \
    BLOCK(block_6_##P##_##Q, 6, P, Q)
BLOCKS(1, 2)
BLOCKS(1, 4)
BLOCKS(2, 2)
BLOCKS(2, 4)
#undef BLOCK
#undef BLOCKS

#define BLOCKS(P, Q)                                                                                                   \
    {                                                                                                                  \
        block_1_##P##_##Q, block_2_##P##_##Q, block_3_##P##_##Q, block_4_##P##_##Q, block_5_##P##_##Q,                 \
            block_6_##P##_##Q                                                                                          \
    }
mox_fma_block_fn mox_fma_block_of(int64_t rows, int panels, int quarters)
{
    static const mox_fma_block_fn blocks[2][2][MOX_FMA_BLOCK] = { { BLOCKS(1, 2), BLOCKS(1, 4) },
                                                                  { BLOCKS(2, 2), BLOCKS(2, 4) } };
    return blocks[panels - 1][quarters / 2 - 1][rows - 1];
}
#undef BLOCKS

/* ---- variants ------------------------------------------------------------------------------------ */

#define VARIANT(name, decode_class, zeros, quarters)                                                                   \
    static void name(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,                  \
                     const mox_panel_rows *a, float *c, void *scratch)                                                 \
    {                                                                                                                  \
        mox_fma_multiply(decode_class, zeros, quarters, m, weight, panel, panels, a, c, scratch);                      \
    }
VARIANT(times_pairs, MOXIE_BF16, false, 4)
VARIANT(times_halves, MOXIE_F16, false, 4)
VARIANT(times_e4m3, MOXIE_F8_E4M3, false, 4)
VARIANT(times_e5m2, MOXIE_F8_E5M2, false, 4)
VARIANT(times_planes, MOXIE_F6_E3M2, false, 4)
VARIANT(times_nibbles, MOXIE_F4_E2M1, false, 4)
VARIANT(times_nibbles_by_16, MOXIE_F4_E2M1, false, 2)
VARIANT(times_nibbles_zeros, MOXIE_I4, true, 4)
VARIANT(times_nibbles_zeros_by_16, MOXIE_I4, true, 2)
VARIANT(times_i8, MOXIE_I8, false, 4)
VARIANT(times_i8_zeros, MOXIE_I8, true, 4)
VARIANT(times_u8b128, MOXIE_U8B128, false, 4)
VARIANT(times_u8b128_zeros, MOXIE_U8B128, true, 4)
#undef VARIANT

/* One row serves all formats that decode alike (mox_element_decodes_as). by_16: for groups of 16 columns, or NULL. */
static const struct {
    moxie_dtype element;
    bool zeros;
    mox_panel_multiply_fn multiply, by_16;
} variants[] = {
    { MOXIE_BF16, false, times_pairs, NULL },
    { MOXIE_F16, false, times_halves, NULL },
    { MOXIE_F8_E4M3, false, times_e4m3, NULL },
    { MOXIE_F8_E5M2, false, times_e5m2, NULL },
    { MOXIE_F6_E3M2, false, times_planes, NULL },
    { MOXIE_F4_E2M1, false, times_nibbles, times_nibbles_by_16 },
    { MOXIE_I4, true, times_nibbles_zeros, times_nibbles_zeros_by_16 },
    { MOXIE_U4B8, true, times_nibbles_zeros, times_nibbles_zeros_by_16 },
    { MOXIE_I8, false, times_i8, NULL },
    { MOXIE_I8, true, times_i8_zeros, NULL },
    { MOXIE_U8B128, false, times_u8b128, NULL },
    { MOXIE_U8B128, true, times_u8b128_zeros, NULL },
};

/* ---- choice ------------------------------------------------------------------------------------- */

static bool is_by_16(const mox_expert_gemm_problem *problem)
{
    return mox_panel_step_cols(problem->weight, mox_expert_gemm_cols(problem)) < MOX_PANEL_STEP;
}

/* A variant that uses more instructions than this file is compiled for, if the processor has them; or NULL. */
static mox_panel_multiply_fn better_variant(const moxie_quant *weight)
{
    const mox_panel_multiply_fn int_dot = mox_fma_int_dot_variant(weight->element, weight->has_zero != 0);
    return int_dot != NULL ? int_dot : mox_fma_vbmi_variant(weight->element);
}

mox_panel_multiply_fn mox_expert_gemm_avx512_fma_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *weight = problem->weight;
    const bool by_16 = is_by_16(problem);
    if (!mox_panel_admit_floats(problem, why))
        return NULL;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++)
        if (variants[i].zeros == (weight->has_zero != 0) &&
            mox_element_decodes_as(weight->element, variants[i].zeros, variants[i].element) &&
            (!by_16 || variants[i].by_16 != NULL)) {
            const mox_panel_multiply_fn better = by_16 ? NULL : better_variant(weight);
            return better != NULL ? better : by_16 ? variants[i].by_16 : variants[i].multiply;
        }
    mox_reject(why, "quantize the weights to a format of panels", "has no variant for %s%s in these groups",
               mox_quant_dtype_name(weight->element), weight->has_zero ? " with zero points" : "");
    return NULL;
}

uint64_t mox_expert_gemm_avx512_fma_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    const int64_t cols = mox_expert_gemm_cols(problem), groups = mox_scale_cols(problem->weight, cols);
    mox_carver carver = mox_carver_of(NULL);
    mox_fma_job unused;
    float *scale;
    if (!is_by_16(problem) && mox_fma_int_dot_variant(problem->weight->element, problem->weight->has_zero != 0) != NULL)
        return mox_fma_int_dot_scratch_bytes(cols, groups);
    mox_fma_lay_out(&carver, groups, &unused, &scale);
    return carver.used;
}

#else

MOX_PANEL_GEMM_ABSENT(avx512_fma, "x86-64 with AVX-512")

#endif
