/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_avx512.c - kernel avx512_fma: panels times fp32 activations with AVX-512 F, BW, DQ and VL.
 *
 *     c[r, n] = sum over segments of  (sum over the segment's columns k of a[r, k] w[n, k]) [* sa[r]] * sw[n]
 *
 * panel_fma_avx512.h has the code. Here are the blocks for many rows, and one variant per decode class; avx512_plan.c
 * chooses one. Two files add variants for processors that have more: expert_gemm_avx512_vbmi.c (f8) and
 * expert_gemm_int_dot_avx512_vnni.c (4 bits, few rows).
 */
#include "cpu/expert_gemm/avx512/avx512_plan.h"

#if defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include "cpu/expert_gemm/avx512/panel_fma_avx512.h"

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

static const mox_panel_variant variants[] = {
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

const mox_panel_variants mox_avx512_fma_variants = { variants, sizeof variants / sizeof variants[0] };

#else

const mox_panel_variants mox_avx512_fma_variants = { NULL, 0 };

#endif
