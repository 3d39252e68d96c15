/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_digits_amx.c - row amx_bf16 for weights of 4 bits and few rows of activations (amx_digits.h).
 */
#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__) && defined(__AVX512VNNI__)

#include "base/sizes.h"
#include "cpu/expert_gemm/amx/amx_digits.h"
#include "cpu/expert_gemm/amx/amx_lines.h"
#include "cpu/expert_gemm/amx/amx_segments.h"
#include "cpu/expert_gemm/avx512/int_dot_avx512.h"

/* E8M0 codes that leave products with units in range: 2^(-63 - 61) and, 25 bits above the unit, 2^(61 + 55). */
enum { LEAST_CODE = 64, MOST_CODE = 188 };

_Static_assert((int)MOX_AMX_DIGITS_BYTES == (int)MOX_INT_DOT_LIMBS_STEP, "as amx_job.h lays them out");

/* Digits of all rows. */
static void derive(const mox_amx_job *j, const mox_int_dot_format *rule)
{
    const mox_amx_digits *d = &j->digits;
    *d->found = (mox_amx_found) { .in_range = true };
    for (int64_t s = 0; s < j->steps; s++) {
        int kind = MOX_INT_DOT_TWO_LIMBS;
        for (int64_t r = s * j->rows; r < (s + 1) * j->rows; r++) {
            __m512 even, odd;
            mox_int_dot_load_bf16(j->a + r * 64, &even, &odd);
            const int of_row = mox_int_dot_to_limbs(rule, even, odd, d->digits + r * MOX_INT_DOT_LIMBS_STEP);
            kind = of_row > kind ? of_row : kind;
        }
        d->kinds[s] = (uint8_t)kind;
        d->found->kinds[kind]++;
        if (kind != MOX_INT_DOT_FLOATS)
            continue;
        for (int64_t r = s * j->rows; r < (s + 1) * j->rows; r++) {
            __m512 even, odd;
            mox_int_dot_load_bf16(j->a + r * 64, &even, &odd);
            mox_int_dot_store_floats(even, odd, d->digits + r * MOX_INT_DOT_LIMBS_STEP);
            d->found->in_range &= mox_int_dot_in_range(j->a + r * 64);
        }
    }
}

/* ---- products ------------------------------------------------------------------------------------ */

typedef struct sums {
    __m512 of[MOX_AMX_DIGITS][2];
} sums;

/* 2^(code - 127) */
MOX_KERNEL_INLINE __m512 powers_of(const uint8_t *codes)
{
    const __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)codes));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 23));
}

/* C += t of step s, of D digits, or with D = 0 in floats. */
MOX_KERNEL_INLINE void add_step(mox_amx_form f, int R, int D, const mox_amx_job *j, const mox_int_dot_format *rule,
                                int64_t s, sums *c)
{
    const int64_t group = f.fold != MOX_AMX_DRAINED || f.zeros ? mox_amx_group_of(j, s) * MOX_PANEL_ROWS : 0;
    const uint8_t *digits = j->digits.digits + s * R * MOX_INT_DOT_LIMBS_STEP;
    mox_int_dot_codes source = { .table = rule->counts };
    const __m512 one = _mm512_set1_ps(1.0f);
    __m512i zeros[2];
    __m512 points[2], scale[2] = { one, one }, t[MOX_AMX_DIGITS][2];
    for (int p = 0; p < 2; p++) {
        const mox_amx_stream *from = &j->panel[p];
        source.codes[p] = from->codes + s * 256;
        if (f.zeros && D > 0)
            zeros[p] = mox_int_dot_zero_points(from->zero + group);
        else if (f.zeros)
            points[p] = mox_int_dot_counts_to_floats(from->zero + group);
        if (f.fold == MOX_AMX_FOLD_E8M0)
            scale[p] = powers_of(from->folded + group);
    }
    if (D > 0)
        mox_int_dot_multiply_step(f.zeros, 4, R, D, &source, NULL, zeros, digits, t);
    else
        mox_int_dot_multiply_step_floats(f.zeros, R, rule->values, points, source.codes, digits, t);
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        const __m512 unit = D > 0 ? mox_int_dot_unit(D, mox_int_dot_row(D, digits, r)) : one;
        for (int p = 0; p < 2; p++)
            c->of[r][p] = _mm512_fmadd_ps(t[r][p],
                                          f.fold == MOX_AMX_DRAINED ? unit
                                          : D == 0                  ? scale[p]
                                                                    : _mm512_mul_ps(unit, scale[p]),
                                          c->of[r][p]);
    }
}

MOX_KERNEL_INLINE void drain(int R, const mox_amx_job *j, int64_t segment, const sums *c)
{
    for (int p = 0; p < 2; p++) {
        const __m512 scale = mox_amx_end_of(j, &j->panel[p], segment).scale;
        for (int r = 0; r < R; r++) {
            float *sum = j->c + r * 2 * MOX_PANEL_ROWS + p * MOX_PANEL_ROWS;
            _mm512_store_ps(
                sum, _mm512_fmadd_ps(c->of[r][p], scale, segment == 0 ? mox_amx_nothing(j) : _mm512_load_ps(sum)));
        }
    }
}

MOX_KERNEL_INLINE void all_steps(mox_amx_form f, int R, const mox_amx_job *from, const mox_int_dot_format *rule)
{
    const mox_amx_job j = *from;
    for (int64_t segment = 0; segment < j.segments; segment++) {
        const int64_t first = segment * j.segment_steps, last = mox_min_i64(first + j.segment_steps, j.steps);
        sums c;
        for (int r = 0; r < R; r++)
            c.of[r][0] = c.of[r][1] = _mm512_setzero_ps();
        for (int64_t s = first; s < last; s++) {
            mox_amx_prefetch(f, &j, 0, s);
            mox_amx_prefetch(f, &j, 1, s);
            if (j.digits.kinds[s] == MOX_INT_DOT_TWO_LIMBS)
                add_step(f, R, 2, &j, rule, s, &c);
            else if (j.digits.kinds[s] == MOX_INT_DOT_THREE_LIMBS)
                add_step(f, R, 3, &j, rule, s, &c);
            else
                add_step(f, R, 0, &j, rule, s, &c);
        }
        drain(R, &j, segment, &c);
    }
}

#define DIGITS_ROWS(name, like, zeros, fold)                                                                           \
    static void name(const mox_amx_job *j, const mox_int_dot_format *rule)                                             \
    {                                                                                                                  \
        const mox_amx_form f = { like, zeros, fold };                                                                  \
        switch (j->rows) {                                                                                             \
        case 1: all_steps(f, 1, j, rule); break;                                                                       \
        case 2: all_steps(f, 2, j, rule); break;                                                                       \
        default: all_steps(f, 3, j, rule); break;                                                                      \
        }                                                                                                              \
    }
DIGITS_ROWS(folded, MOXIE_F4_E2M1, false, MOX_AMX_FOLD_E8M0)
DIGITS_ROWS(drained, MOXIE_F4_E2M1, false, MOX_AMX_DRAINED)
DIGITS_ROWS(with_zeros, MOXIE_U4B8, true, MOX_AMX_DRAINED)
#undef DIGITS_ROWS

/* Cycles that 512 weights take here and, at the end, in tiles; measured on a Sapphire Rapids core. */
static bool is_faster(const mox_amx_found *found, int64_t rows, int64_t steps)
{
    return found->kinds[MOX_INT_DOT_TWO_LIMBS] * (12 + 10 * rows) +
               found->kinds[MOX_INT_DOT_THREE_LIMBS] * (12 + 15 * rows) +
               found->kinds[MOX_INT_DOT_FLOATS] * (31 + 22 * rows) <=
           60 * steps;
}

bool mox_amx_times_digits(mox_amx_form form, const mox_amx_job *j, const mox_panel_rows *a, const moxie_quant *weight)
{
    if (j->rows > MOX_AMX_DIGITS || j->panels != 2 || j->a_scales != NULL || form.fold == MOX_AMX_FOLD_E4M3)
        return false;
    mox_panel_counts format;
    if (!mox_panel_count(weight->element, form.zeros, &format))
        return false;
    const mox_int_dot_format rule = mox_int_dot_format_of(&format, form.zeros);
    if (!a->again)
        derive(j, &rule);
    if (!j->digits.found->in_range || !is_faster(j->digits.found, j->rows, j->steps))
        return false;
    for (int p = 0; p < 2 && form.fold == MOX_AMX_FOLD_E8M0; p++)
        if (j->panel[p].least < LEAST_CODE || j->panel[p].most > MOST_CODE)
            return false;
    (form.zeros ? with_zeros : form.fold == MOX_AMX_FOLD_E8M0 ? folded : drained)(j, &rule);
    return true;
}

#endif
