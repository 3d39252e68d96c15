/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_int_dot_amx.c - kernel amx_bf16 for weights of 4 bits and few rows of activations, without tiles (amx_int_dot.h).
 *
 *     derive()       activations -> limbs, and the kind of each step
 *     add_step()     C += t,  t = sum over a step's columns of code x activation, exact or in the tile unit's order
 *     end_segment()  c = fma(C, weight scale, c), where a segment ends
 */
#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__) && defined(__AVX512VNNI__)

#include "base/sizes.h"
#include "cpu/expert_gemm/amx/amx_int_dot.h"
#include "cpu/expert_gemm/amx/amx_lines.h"
#include "cpu/expert_gemm/amx/amx_segments.h"
#include "cpu/expert_gemm/avx512/int_dot_avx512.h"

/* Range of E8M0 codes for which a step's sum times its unit and the scale stays normal: at least 2^(-63 - 61), and, as
 * the sum is below 2^25 units, at most 2^(61 + 55). */
enum { MIN_CODE = 64, MAX_CODE = 188 };

_Static_assert((int)MOX_AMX_LIMB_BYTES == (int)MOX_INT_DOT_LIMBS_STEP,
               "the limbs of a step are as amx_job.h lays them out");

/* Finds the kind of each step, the same for all rows, and stores its limbs, or floats where limbs are not exact. */
static void derive(const mox_amx_job *j, const mox_int_dot_format *rule)
{
    const mox_amx_limbs *d = &j->limbs;
    *d->stats = (mox_amx_limb_stats) { .in_range = true };
    for (int64_t s = 0; s < j->steps; s++) {
        int kind = MOX_INT_DOT_TWO_LIMBS;
        for (int64_t r = s * j->rows; r < (s + 1) * j->rows; r++) {
            __m512 even, odd;
            mox_int_dot_load_bf16(j->a + r * 64, &even, &odd);
            const int of_row = mox_int_dot_to_limbs(rule, even, odd, d->limbs + r * MOX_INT_DOT_LIMBS_STEP);
            kind = of_row > kind ? of_row : kind;
        }
        d->kinds[s] = (uint8_t)kind;
        d->stats->kinds[kind]++;
        if (kind != MOX_INT_DOT_FLOATS)
            continue;
        for (int64_t r = s * j->rows; r < (s + 1) * j->rows; r++) {
            __m512 even, odd;
            mox_int_dot_load_bf16(j->a + r * 64, &even, &odd);
            mox_int_dot_store_floats(even, odd, d->limbs + r * MOX_INT_DOT_LIMBS_STEP);
            d->stats->in_range &= mox_int_dot_in_range(j->a + r * 64);
        }
    }
}

/* ---- products ------------------------------------------------------------------------------------ */

typedef struct sums {
    __m512 of[MOX_AMX_INT_DOT_ROWS][2];
} sums;

/* 2^(code - 127) */
MOX_KERNEL_INLINE __m512 powers_of(const uint8_t *codes)
{
    const __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)codes));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 23));
}

/* Adds step s to the sums C of R rows; D limbs an activation, or D = 0: floats. */
MOX_KERNEL_INLINE void add_step(mox_amx_variant v, int R, int D, const mox_amx_job *j, const mox_int_dot_format *rule,
                                int64_t s, sums *c)
{
    const int64_t group =
        v.scaling != MOX_AMX_SCALE_PER_SEGMENT || v.zeros ? mox_amx_group_of(j, s) * MOX_PANEL_ROWS : 0;
    const uint8_t *limbs = j->limbs.limbs + s * R * MOX_INT_DOT_LIMBS_STEP;
    mox_int_dot_codes source = { .table = rule->counts };
    const __m512 one = _mm512_set1_ps(1.0f);
    __m512i zeros[2];
    __m512 points[2], scale[2] = { one, one }, t[MOX_AMX_INT_DOT_ROWS][2];
    for (int p = 0; p < 2; p++) {
        const mox_amx_stream *from = &j->panel[p];
        source.codes[p] = from->codes + s * 256;
        if (v.zeros && D > 0)
            zeros[p] = mox_int_dot_zero_points(from->zero + group);
        else if (v.zeros)
            points[p] = mox_int_dot_counts_to_floats(from->zero + group);
        if (v.scaling == MOX_AMX_E8M0_IN_WEIGHT)
            scale[p] = powers_of(from->scale_codes + group);
    }
    if (D > 0)
        mox_int_dot_multiply_step(v.zeros, 4, R, D, &source, NULL, zeros, limbs, t);
    else
        mox_int_dot_multiply_step_floats(v.zeros, R, rule->values, points, source.codes, limbs, t);
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        const __m512 unit = D > 0 ? mox_int_dot_unit(D, mox_int_dot_row(D, limbs, r)) : one;
        for (int p = 0; p < 2; p++)
            c->of[r][p] = _mm512_fmadd_ps(t[r][p],
                                          v.scaling == MOX_AMX_SCALE_PER_SEGMENT ? unit
                                          : D == 0                               ? scale[p]
                                                                                 : _mm512_mul_ps(unit, scale[p]),
                                          c->of[r][p]);
    }
}

MOX_KERNEL_INLINE void end_segment(int R, const mox_amx_job *j, int64_t segment, const sums *c)
{
    for (int p = 0; p < 2; p++) {
        const __m512 scale = mox_amx_end_of(j, &j->panel[p], segment).scale;
        for (int r = 0; r < R; r++) {
            float *sum = j->c + r * 2 * MOX_PANEL_ROWS + p * MOX_PANEL_ROWS;
            _mm512_store_ps(
                sum, _mm512_fmadd_ps(c->of[r][p], scale, segment == 0 ? mox_amx_initial_sum(j) : _mm512_load_ps(sum)));
        }
    }
}

MOX_KERNEL_INLINE void all_steps(mox_amx_variant v, int R, const mox_amx_job *from, const mox_int_dot_format *rule)
{
    const mox_amx_job j = *from;
    for (int64_t segment = 0; segment < j.segments; segment++) {
        const int64_t first = segment * j.segment_steps, last = mox_min_i64(first + j.segment_steps, j.steps);
        sums c;
        for (int r = 0; r < R; r++)
            c.of[r][0] = c.of[r][1] = _mm512_setzero_ps();
        for (int64_t s = first; s < last; s++) {
            mox_amx_prefetch(v, &j, 0, s);
            mox_amx_prefetch(v, &j, 1, s);
            if (j.limbs.kinds[s] == MOX_INT_DOT_TWO_LIMBS)
                add_step(v, R, 2, &j, rule, s, &c);
            else if (j.limbs.kinds[s] == MOX_INT_DOT_THREE_LIMBS)
                add_step(v, R, 3, &j, rule, s, &c);
            else
                add_step(v, R, 0, &j, rule, s, &c);
        }
        end_segment(R, &j, segment, &c);
    }
}

#define INT_DOT_ROWS(name, decode_class, zeros, scaling)                                                               \
    static void name(const mox_amx_job *j, const mox_int_dot_format *rule)                                             \
    {                                                                                                                  \
        const mox_amx_variant v = { decode_class, zeros, scaling };                                                    \
        switch (j->rows) {                                                                                             \
        case 1: all_steps(v, 1, j, rule); break;                                                                       \
        case 2: all_steps(v, 2, j, rule); break;                                                                       \
        default: all_steps(v, 3, j, rule); break;                                                                      \
        }                                                                                                              \
    }
INT_DOT_ROWS(e8m0, MOXIE_F4_E2M1, false, MOX_AMX_E8M0_IN_WEIGHT)
INT_DOT_ROWS(per_segment, MOXIE_F4_E2M1, false, MOX_AMX_SCALE_PER_SEGMENT)
INT_DOT_ROWS(with_zeros, MOXIE_U4B8, true, MOX_AMX_SCALE_PER_SEGMENT)
#undef INT_DOT_ROWS

/* Compares cycles for 512 weights, measured on a Sapphire Rapids core: this file's, by kind of step, with 60 of tiles.
 */
static bool is_faster(const mox_amx_limb_stats *stats, int64_t rows, int64_t steps)
{
    return stats->kinds[MOX_INT_DOT_TWO_LIMBS] * (12 + 10 * rows) +
               stats->kinds[MOX_INT_DOT_THREE_LIMBS] * (12 + 15 * rows) +
               stats->kinds[MOX_INT_DOT_FLOATS] * (31 + 22 * rows) <=
           60 * steps;
}

bool mox_amx_int_dot(mox_amx_variant variant, const mox_amx_job *j, const mox_panel_rows *a, const moxie_quant *weight)
{
    if (j->rows > MOX_AMX_INT_DOT_ROWS || j->panels != 2 || j->a_scales != NULL ||
        variant.scaling == MOX_AMX_E4M3_IN_WEIGHT)
        return false;
    mox_panel_counts format;
    if (!mox_panel_count(weight->element, variant.zeros, &format))
        return false;
    const mox_int_dot_format rule = mox_int_dot_format_of(&format, variant.zeros);
    if (!a->again)
        derive(j, &rule);
    if (!j->limbs.stats->in_range || !is_faster(j->limbs.stats, j->rows, j->steps))
        return false;
    for (int p = 0; p < 2 && variant.scaling == MOX_AMX_E8M0_IN_WEIGHT; p++)
        if (j->panel[p].min_code < MIN_CODE || j->panel[p].max_code > MAX_CODE)
            return false;
    (variant.zeros ? with_zeros : variant.scaling == MOX_AMX_E8M0_IN_WEIGHT ? e8m0 : per_segment)(j, &rule);
    return true;
}

#endif
