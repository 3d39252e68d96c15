/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_job_amx.c - what kernel amx_bf16 does before a product begins: it lays out scratch, reads scales, cuts segments,
 * chooses a strategy, and prescales activations (amx_job.h).
 *
 * Scales are read before subnormals are switched off, so that 2^-127 and the subnormals of f16 count. Panels with
 * scales in the weight that the fast way of decoding cannot apply are marked here (wide_scales).
 */
#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__)

#include <math.h>

#include "cpu/expert_gemm/amx/amx_job.h"
#include "cpu/expert_gemm/panel_scales.h"

/* Steps in a group of `cols` columns. */
static int64_t steps_of(int64_t cols, int64_t steps)
{
    return mox_min_i64(mox_ceil_div(cols, MOX_PANEL_STEP), steps);
}

/* Sets min_code and max_code: the smallest of the bytes `least`, the greatest of the bytes `greatest`. */
static void byte_range(__m512i least, __m512i greatest, mox_amx_stream *out)
{
    const __m256i low = _mm256_min_epu8(_mm512_castsi512_si256(least), _mm512_extracti64x4_epi64(least, 1));
    const __m256i high = _mm256_max_epu8(_mm512_castsi512_si256(greatest), _mm512_extracti64x4_epi64(greatest, 1));
    uint8_t lows[32], highs[32];
    _mm256_storeu_si256((__m256i *)(void *)lows, low);
    _mm256_storeu_si256((__m256i *)(void *)highs, high);
    out->min_code = UINT8_MAX;
    out->max_code = 0;
    for (int i = 0; i < 32; i++) {
        out->min_code = lows[i] < out->min_code ? lows[i] : out->min_code;
        out->max_code = highs[i] > out->max_code ? highs[i] : out->max_code;
    }
}

/* The smallest and the greatest code of a scale, signs left out. A run reads all scales for this, so two chains of
 * minima and maxima hide their latency. */
static void find_range(mox_amx_scaling scaling, int64_t count, mox_amx_stream *out)
{
    const __m512i magnitude = _mm512_set1_epi8(scaling == MOX_AMX_E4M3_IN_WEIGHT ? 0x7f : -1);
    __m512i low[2] = { _mm512_set1_epi8(-1), _mm512_set1_epi8(-1) };
    __m512i high[2] = { _mm512_setzero_si512(), _mm512_setzero_si512() };
    int64_t at = 0;
    for (; at + 128 <= count; at += 128)
        for (int i = 0; i < 2; i++) {
            const __m512i code = _mm512_and_si512(_mm512_loadu_si512(out->scale_codes + at + 64 * i), magnitude);
            low[i] = _mm512_min_epu8(low[i], code);
            high[i] = _mm512_max_epu8(high[i], code);
        }
    for (; at < count; at += MOX_PANEL_ROWS) {
        const __m512i code = _mm512_and_si512(
            _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)(out->scale_codes + at))), magnitude);
        low[0] = _mm512_min_epu8(low[0], code);
        high[0] = _mm512_max_epu8(high[0], code);
    }
    byte_range(_mm512_min_epu8(low[0], low[1]), _mm512_max_epu8(high[0], high[1]), out);
}

/* True when some scale is NaN, or its product with a code may not be a normal number. For E8M0: codes that are not zero
 * are at least 2^-16 and below 2^16. */
static bool has_wide_scales(mox_amx_scaling scaling, const mox_amx_stream *of)
{
    return scaling == MOX_AMX_E4M3_IN_WEIGHT ? of->max_code == 0x7f : of->min_code < 20 || of->max_code > 236;
}

/* Rows of weights whose largest weight is too large for bf16 are decoded at a fraction of their value, and end_factor
 * makes up for it in the sum. Weights that become too small so are nothing beside the row's largest. */
static void scale_rows_down(mox_amx_stream *out, int64_t groups)
{
    for (int n = 0; n < MOX_PANEL_ROWS; n++) {
        int high = 0;
        for (int64_t g = 0; g < groups; g++) {
            const int code = out->scale_codes[g * MOX_PANEL_ROWS + n];
            high = code != 255 && code > high ? code : high;
        }
        out->end_factor[n] = high > 230 ? ldexpf(1.0f, high - 230) : 1.0f;
    }
}

/* Codes of scales, one for each row of the panel. */
static const uint8_t *spread(const mox_panel_matrix *m, const uint8_t *codes, uint8_t *out)
{
    if (m->scale_lanes == MOX_PANEL_ROWS)
        return codes;
    for (int64_t g = 0; g < m->groups; g++)
        memset(out + g * MOX_PANEL_ROWS, codes[g], MOX_PANEL_ROWS);
    return out;
}

static void open_stream(mox_amx_stream *out, mox_amx_scaling scaling, const mox_panel_matrix *m,
                        const moxie_quant *weight, int64_t panel, int panels, const mox_amx_scale_space *space)
{
    const uint8_t *codes = m->panels + (uint64_t)panel * m->panel_bytes;
    out->codes = codes;
    const uint8_t *next = codes + (uint64_t)panels * m->panel_bytes;
    out->next = next - (uint64_t)m->steps * m->step_bytes;
    out->next_scales = next + m->scale_at;
    out->zero = m->zero_at != 0 ? codes + m->zero_at : NULL;
    out->scale = space->scale;
    mox_scales_fill(out->end_factor, MOX_PANEL_ROWS, scaling == MOX_AMX_E4M3_IN_WEIGHT ? MOX_AMX_E4M3_END : 1.0f);
    if (mox_amx_is_per_segment(scaling)) {
        mox_panel_scales(m, weight->scale, panel, space->scale);
        return;
    }
    out->scale_codes = spread(m, codes + m->scale_at, space->codes);
    find_range(scaling, m->groups * MOX_PANEL_ROWS, out);
    out->wide_scales = has_wide_scales(scaling, out);
    if (scaling == MOX_AMX_E8M0_IN_WEIGHT && out->wide_scales)
        scale_rows_down(out, m->groups);
}

/* The 16 codes as f16, times 2^8: bits of E4M3 read as f16 are 2^-8 of the value. */
static __m512i f16_codes_of(moxie_dtype element)
{
    const __m512 values = _mm512_mul_ps(_mm512_loadu_ps(mox_format_table(element)), _mm512_set1_ps(256.0f));
    const __m256i half = _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
    return _mm512_broadcast_i32x4(_mm256_cvtepi16_epi8(_mm256_srli_epi16(half, 8)));
}

/* With scales in the weight only the activations' groups end segments. */
static mox_amx_strategy strategy_of(mox_amx_scaling scaling, const mox_amx_job *j)
{
    const bool one = j->segments == 1, large = j->segment_steps >= MOX_AMX_SQUARE_MIN_STEPS;
    const bool in_weight = !mox_amx_is_per_segment(scaling) && j->a_scales == NULL;
    if (in_weight || one || (large && j->rows > MOX_AMX_NARROW_ROWS))
        return MOX_AMX_STRATEGY_SQUARE;
    return j->rows <= MOX_AMX_NARROW_ROWS ? MOX_AMX_STRATEGY_NARROW : MOX_AMX_STRATEGY_TALL;
}

/* Several pairs of row tiles share the decoded lines of a block of steps; one more slot lets the next block be decoded
 * meanwhile. A single pair decodes just ahead of its products, into a ring. `direct`: the record holds lines. */
static void place_lines(mox_amx_job *j, bool direct)
{
    const bool several = j->rows > 32, all = j->predecoded || direct;
    j->block = several ? MOX_AMX_BLOCK_STEPS : j->steps;
    j->slots = all ? INT64_MAX : several ? MOX_AMX_BLOCK_STEPS + 1 : MOX_AMX_RING_STEPS;
    j->lines_mask = all                                    ? -1
                    : j->strategy == MOX_AMX_STRATEGY_TALL ? 2 * MOX_AMX_CHUNK_STEPS - 1
                                                           : MOX_AMX_RING_STEPS - 1;
}

/* A table of 4-bit codes for mox_amx_times_powers(): 2^TABLE_EXPONENT times their value, and no zero with a sign. */
static __m512i prescaled_table(__m512i table)
{
    const __mmask32 numbers = _mm512_test_epi16_mask(table, _mm512_set1_epi16(0x7fff));
    return _mm512_maskz_add_epi16(numbers, table, _mm512_set1_epi16(MOX_AMX_TABLE_EXPONENT << 7));
}

void mox_amx_prepare(mox_amx_job *j, mox_amx_scaling scaling, const mox_panel_matrix *m, const moxie_quant *weight,
                     int64_t panel, int panels, const mox_panel_rows *a, float *c, void *scratch)
{
    mox_carver carver = mox_carver_of(scratch);
    mox_amx_scratch sc;
    mox_amx_lay_out(&carver, scaling, (uint64_t)m->steps, (uint64_t)m->groups, &sc);
    *j = (mox_amx_job) { .a = a->data,
                         .a_scales = a->scales,
                         .rows = a->rows,
                         .a_scale_stride = a->scale_stride,
                         .panels = panels,
                         .steps = m->steps,
                         .groups = m->groups,
                         .step_bytes = (int64_t)m->step_bytes,
                         .scale_lines = (int64_t)(m->panel_bytes - m->scale_at) / 64,
                         .scaled = mox_amx_is_per_segment(scaling) && m->scale_lanes > 0,
                         .buffer = sc.buffer,
                         .pending = sc.pending,
                         .c = c,
                         .limbs = sc.limbs };
    if (mox_amx_prescale_of(scaling) > 0)
        j->prescaled = sc.prescaled;
    j->group_steps = steps_of(m->group_cols, m->steps);
    j->group_inverse = ((UINT64_C(1) << 40) + (uint64_t)j->group_steps - 1) / (uint64_t)j->group_steps;
    j->act_steps = a->scales != NULL ? steps_of(a->group_cols, m->steps) : m->steps;
    j->segment_steps = mox_amx_is_per_segment(scaling) ? mox_min_i64(j->group_steps, j->act_steps) : j->act_steps;
    j->segments = mox_ceil_div(m->steps, j->segment_steps);
    mox_pairs_tables(weight->element, weight->has_zero != 0, &j->tables);
    for (int p = 0; p < panels; p++) {
        j->panel[p].lines = sc.lines[p];
        open_stream(&j->panel[p], scaling, m, weight, panel + p, panels, &sc.space[p]);
    }
    const bool direct = weight->element == MOXIE_BF16;
    j->strategy = strategy_of(scaling, j);
    j->predecoded =
        !mox_amx_is_per_segment(scaling) && (j->panel[0].wide_scales || (panels == 2 && j->panel[1].wide_scales));
    if (scaling == MOX_AMX_E4M3_IN_WEIGHT)
        j->f16_codes = f16_codes_of(weight->element);
    if (scaling == MOX_AMX_E8M0_IN_WEIGHT && !j->predecoded && mox_pairs_order(weight->element) == MOX_PANEL_NIBBLES)
        j->tables.t[0] = prescaled_table(j->tables.t[0]);
    if (mox_amx_prescale_of(scaling) > 0 && !a->again)
        *j->prescaled.state = MOX_AMX_NOT_PRESCALED;
    place_lines(j, direct);
    for (int p = 0; direct && p < panels; p++)
        j->panel[p].lines = (uint8_t *)(uintptr_t)j->panel[p].codes;
    if (panels == 1)
        j->panel[1] = j->panel[0];
}

/* Numbers times 2^exponent_up. Subnormal ones become zero, as tiles read them. False when one does not stay finite. */
static bool prescale_line(int exponent_up, const uint8_t *from, uint8_t *to)
{
    const __m512i exponent = _mm512_set1_epi16(0x7f80), lost = _mm512_set1_epi16((short)((255 - exponent_up) << 7));
    const __m512i x = _mm512_load_si512(from), of_x = _mm512_and_si512(x, exponent);
    const __mmask32 normal = _mm512_test_epi16_mask(x, exponent), special = _mm512_cmpeq_epi16_mask(of_x, exponent);
    const __m512i scaled = _mm512_add_epi16(x, _mm512_set1_epi16((short)(exponent_up << 7)));
    const __m512i out = _mm512_mask_mov_epi16(scaled, special, x);
    /* Zeros keep their sign. */
    _mm512_store_si512(to, _mm512_mask_blend_epi16(normal, _mm512_and_si512(x, _mm512_set1_epi16((short)0x8000)), out));
    return (_mm512_cmpge_epu16_mask(of_x, lost) & ~special) == 0;
}

void mox_amx_prescale(mox_amx_job *j, mox_amx_scaling scaling)
{
    if (*j->prescaled.state == MOX_AMX_NOT_PRESCALED) {
        bool fit = true;
        for (int64_t i = 0; i < j->rows * j->steps; i++)
            fit &= prescale_line(mox_amx_prescale_of(scaling), j->a + i * MOX_AMX_LINE_BYTES,
                                 j->prescaled.rows + i * MOX_AMX_LINE_BYTES);
        *j->prescaled.state = fit ? MOX_AMX_PRESCALED : MOX_AMX_TOO_LARGE;
    }
    j->predecoded = *j->prescaled.state == MOX_AMX_TOO_LARGE;
    if (j->predecoded)
        place_lines(j, false);
    else
        j->a = j->prescaled.rows;
}

#endif
