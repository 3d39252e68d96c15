/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_int8_avx2.c - kernel avx2_int8: int8 weights times int8 activations, summed in int32 over whole groups
 * (panel_int8_avx2.h; by VPDPBUSD where the processor has AVX-VNNI).
 *
 *     c[r, n] = sum over segments of  (sum over its columns k of a[r, k] (w[n, k] - zero[n])) [* sa[r]] * sw[n]
 *
 * Here are the sums of the activations over each segment, which zero points multiply; avx2_plan.c has the choice and
 * the scratch.
 */
#include "cpu/expert_gemm/avx2/panel_int8_avx2.h"

#if defined(__AVX2__) && defined(__FMA__)

#include "cpu/expert_gemm/panel_scales.h"
#include "pack/panel/element_traits.h"

void mox_int8_panels_avx2(const mox_int8_job *j)
{
    mox_int8_all(j);
}

/* ---- one call ------------------------------------------------------------------------------------ */

/* Adds 16 codes, counted from -128, to the halves of `total`. */
static __m128i add_16(const int8_t *a, __m128i total)
{
    const __m128i counts = _mm_xor_si128(_mm_load_si128((const __m128i *)(const void *)a), _mm_set1_epi8((char)0x80));
    return _mm_add_epi64(total, _mm_sad_epu8(counts, _mm_setzero_si128()));
}

static void sum_rows(const mox_int8_job *j, int32_t *sums)
{
    for (int64_t row = 0; row < j->a->rows; row++) {
        const int64_t tile = row / 16 * 16, held = mox_min_i64(16, j->a->rows - tile);
        const int8_t *a = (const int8_t *)j->a->data + tile * j->row_bytes + (row - tile) * 64;
        for (int64_t s = 0; s < j->segments; s++) {
            const int64_t first = s * j->segment_quads, last = mox_min_i64(first + j->segment_quads, j->quads);
            __m128i total = _mm_setzero_si128();
            for (int64_t quad = first; quad < last; quad += 4)
                total = add_16(a + quad / 16 * held * 64 + quad % 16 * 4, total);
            total = _mm_add_epi64(total, _mm_unpackhi_epi64(total, total));
            sums[row * j->segments + s] = _mm_cvtsi128_si32(total) - (int32_t)(last - first) * 4 * 128;
        }
    }
}

/* Quads of groups of `cols` columns. */
static int64_t quads_of(int64_t cols, int64_t quads)
{
    return mox_min_i64(mox_ceil_div(cols, 4), quads);
}

static void multiply(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                     const mox_panel_rows *a, float *c, void *base)
{
    mox_carver carver = mox_carver_of(base);
    mox_int8_scratch sc;
    mox_int8_job j = { .matrix = m, .a = a, .panels = panels, .c = c, .scaled = m->scale_lanes > 0 };
    j.codes = m->panels + (uint64_t)panel * m->panel_bytes;
    j.flip = mox_element_sign_bits(weight->element);
    j.panel_values = m->groups * MOX_PANEL_ROWS;
    j.quads = mox_ceil_div(m->cols, 16) * 4;
    j.row_bytes = mox_ceil_div(m->cols, 64) * 64;
    j.group_quads = m->groups > 1 ? quads_of(m->group_cols, j.quads) : j.quads;
    j.act_quads = a->scales != NULL ? quads_of(a->group_cols, j.quads) : j.quads;
    j.segment_quads = mox_min_i64(j.group_quads, j.act_quads);
    j.segments = mox_ceil_div(j.quads, j.segment_quads);
    mox_int8_lay_out(&carver, m->groups, j.segments, &sc);
    for (int p = 0; p < panels; p++) {
        const uint8_t *counts = j.codes + (uint64_t)p * m->panel_bytes + m->zero_at;
        mox_panel_scales(m, weight->scale, panel + p, sc.scale + p * j.panel_values);
        for (int64_t i = 0; m->zero_at != 0 && i < j.panel_values; i++)
            sc.zero[p * j.panel_values + i] = counts[i];
    }
    sum_rows(&j, sc.sums);
    j.scale = sc.scale;
    j.zero = sc.zero;
    j.sums = sc.sums;
    for (int64_t r = 0; r < a->rows; r++)
        memset(c + r * MOX_INT8_WIDTH, 0, (size_t)panels * MOX_PANEL_ROWS * sizeof *c);
    const unsigned mxcsr = _mm_getcsr();
    _mm_setcsr(mxcsr | MOX_FLUSH_SUBNORMALS);
    (mox_cpu()->avx_vnni && mox_int8_panels_avxvnni != NULL ? mox_int8_panels_avxvnni : mox_int8_panels_avx2)(&j);
    _mm_setcsr(mxcsr);
}

const mox_panel_multiply_fn mox_avx2_int8_multiply = multiply;

#else

const mox_panel_multiply_fn mox_avx2_int8_multiply = NULL;

#endif
