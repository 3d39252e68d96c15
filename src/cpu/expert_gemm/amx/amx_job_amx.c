/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_job_amx.c - what row amx_bf16 does before a product begins: scratch, scales, segments (amx_job.h).
 *
 * Scales become what their fold adds or multiplies, before subnormals are switched off: a scale of 2^-127 and the
 * subnormals of f16 are read as they are. Panels whose folded scales leave the range of the fast way are marked.
 */
#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__)

#include <math.h>

#include "base/sizes.h"
#include "cpu/expert_gemm/amx/amx_job.h"
#include "cpu/expert_gemm/panel_scales.h"

static void *carve(uint8_t *base, uint64_t *at, uint64_t bytes)
{
    void *here = base != NULL ? base + *at : NULL;
    *at = (*at + bytes + 63) & ~UINT64_C(63);
    return here;
}

/* What open_stream() fills. */
typedef struct scale_space {
    float *scale;   /* [groups][16] */
    uint8_t *codes; /* [groups][16], for panels whose rows share a scale */
} scale_space;

static uint64_t lay_out(mox_amx_folding fold, int64_t steps, int64_t groups, uint8_t *base, mox_amx_job *j,
                        scale_space space[2])
{
    uint64_t at = 0;
    j->buffer = carve(base, &at, MOX_PANEL_BLOCK / 32 * 4 * MOX_AMX_TILE * sizeof(float));
    j->owed = carve(base, &at, 4 * MOX_AMX_TILE * sizeof(float));
    for (int p = 0; p < 2; p++) {
        space[p].scale = carve(base, &at, (uint64_t)groups * MOX_PANEL_ROWS * sizeof(float));
        space[p].codes = carve(base, &at, (uint64_t)groups * MOX_PANEL_ROWS);
        j->panel[p].lines = carve(base, &at, (uint64_t)mox_max_i64(steps, MOX_AMX_SPAN + 1) * MOX_AMX_LINES);
    }
    j->digits.digits = carve(base, &at, (uint64_t)steps * MOX_AMX_DIGITS * MOX_AMX_DIGITS_BYTES);
    j->digits.kinds = carve(base, &at, (uint64_t)steps);
    j->digits.found = carve(base, &at, sizeof *j->digits.found);
    if (mox_amx_raise_of(fold) > 0) {
        j->raised.state = carve(base, &at, sizeof *j->raised.state);
        j->raised.rows = carve(base, &at, (uint64_t)steps * MOX_PANEL_BLOCK * MOX_AMX_LINE);
    }
    return at;
}

/* Steps of groups of `cols` columns. */
static int64_t steps_of(int64_t cols, int64_t steps)
{
    return mox_min_i64(mox_ceil_div(cols, MOX_PANEL_STEP), steps);
}

/* The least and the greatest of bytes. */
static void byte_range(__m512i least, __m512i greatest, mox_amx_stream *out)
{
    const __m256i low = _mm256_min_epu8(_mm512_castsi512_si256(least), _mm512_extracti64x4_epi64(least, 1));
    const __m256i high = _mm256_max_epu8(_mm512_castsi512_si256(greatest), _mm512_extracti64x4_epi64(greatest, 1));
    uint8_t lows[32], highs[32];
    _mm256_storeu_si256((__m256i *)(void *)lows, low);
    _mm256_storeu_si256((__m256i *)(void *)highs, high);
    out->least = UINT8_MAX;
    out->most = 0;
    for (int i = 0; i < 32; i++) {
        out->least = lows[i] < out->least ? lows[i] : out->least;
        out->most = highs[i] > out->most ? highs[i] : out->most;
    }
}

/* Of codes of scales, without signs where there are any. Two chains, because a run reads all scales once for this. */
static void find_range(mox_amx_folding fold, int64_t count, mox_amx_stream *out)
{
    const __m512i magnitude = _mm512_set1_epi8(fold == MOX_AMX_FOLD_E4M3 ? 0x7f : -1);
    __m512i low[2] = { _mm512_set1_epi8(-1), _mm512_set1_epi8(-1) };
    __m512i high[2] = { _mm512_setzero_si512(), _mm512_setzero_si512() };
    int64_t at = 0;
    for (; at + 128 <= count; at += 128)
        for (int i = 0; i < 2; i++) {
            const __m512i code = _mm512_and_si512(_mm512_loadu_si512(out->folded + at + 64 * i), magnitude);
            low[i] = _mm512_min_epu8(low[i], code);
            high[i] = _mm512_max_epu8(high[i], code);
        }
    for (; at < count; at += MOX_PANEL_ROWS) {
        const __m512i code = _mm512_and_si512(
            _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)(out->folded + at))), magnitude);
        low[0] = _mm512_min_epu8(low[0], code);
        high[0] = _mm512_max_epu8(high[0], code);
    }
    byte_range(_mm512_min_epu8(low[0], low[1]), _mm512_max_epu8(high[0], high[1]), out);
}

/* True when a folded scale is NaN, or brings a code below or above normal numbers. Powers of two: the smallest code
 * that is not zero is 2^-16 or more, the largest below 2^16. */
static bool is_wide(mox_amx_folding fold, const mox_amx_stream *of)
{
    return fold == MOX_AMX_FOLD_E4M3 ? of->most == 0x7f : of->least < 20 || of->most > 236;
}

/* Rows whose largest weights are too large for bf16 are folded at a fraction of their value, however far their
 * exponents reach: what gets lost at the lower end is nothing beside the row's largest weight. */
static void lower_rows(mox_amx_stream *out, int64_t groups)
{
    for (int n = 0; n < MOX_PANEL_ROWS; n++) {
        int high = 0;
        for (int64_t g = 0; g < groups; g++) {
            const int code = out->folded[g * MOX_PANEL_ROWS + n];
            high = code != 255 && code > high ? code : high;
        }
        out->end[n] = high > 230 ? ldexpf(1.0f, high - 230) : 1.0f;
    }
}

/* Scales [groups][16] to f16 in their place, each row's times a power of two that makes its largest 2^10 to 2^11, and
 * what ends its sums. `wide`: something is not finite, or too small beside the largest to be normal then. */
static void halve_scales(float *scale, int64_t groups, mox_amx_stream *out)
{
    __m512 most = _mm512_setzero_ps(), least = _mm512_set1_ps(INFINITY);
    for (int64_t g = 0; g < groups; g++) {
        const __m512 x = _mm512_abs_ps(_mm512_load_ps(scale + g * MOX_PANEL_ROWS));
        /* NaN counts as infinite. */
        most = _mm512_max_ps(most, x);
        most = _mm512_mask_mov_ps(most, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_ps(INFINITY));
        least = _mm512_mask_min_ps(least, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ), least, x);
    }
    const __mmask16 any = _mm512_cmp_ps_mask(most, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    const __m512 power = _mm512_maskz_getexp_ps(any, most);
    const __m512 down = _mm512_scalef_ps(_mm512_set1_ps(0x1p10f), _mm512_sub_ps(_mm512_setzero_ps(), power));
    out->wide = (any & (_mm512_cmp_ps_mask(most, _mm512_set1_ps(0x1p-100f), _CMP_NGE_UQ) |
                        _mm512_cmp_ps_mask(most, _mm512_set1_ps(0x1p100f), _CMP_NLE_UQ) |
                        _mm512_cmp_ps_mask(_mm512_mul_ps(least, down), _mm512_set1_ps(0x1p-14f), _CMP_NGE_UQ))) != 0;
    _mm512_storeu_ps(out->end, _mm512_scalef_ps(_mm512_set1_ps(MOX_AMX_HALF_END * 0x1p-10f), power));
    out->folded = (const uint8_t *)scale;
    for (int64_t g = 0; g < groups && !out->wide; g++) {
        const __m512 x = _mm512_mul_ps(_mm512_load_ps(scale + g * MOX_PANEL_ROWS), down);
        _mm256_store_si256((__m256i *)(void *)((uint8_t *)scale + g * 2 * MOX_PANEL_ROWS),
                           _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    }
}

/* Codes of folded scales, one for every row. */
static const uint8_t *spread(const mox_panel_matrix *m, const uint8_t *codes, uint8_t *out)
{
    if (m->scale_lanes == MOX_PANEL_ROWS)
        return codes;
    for (int64_t g = 0; g < m->groups; g++)
        memset(out + g * MOX_PANEL_ROWS, codes[g], MOX_PANEL_ROWS);
    return out;
}

static void open_stream(mox_amx_stream *out, mox_amx_folding fold, const mox_panel_matrix *m, const moxie_quant *weight,
                        int64_t panel, int panels, const scale_space *space)
{
    const uint8_t *codes = m->panels + (uint64_t)panel * m->panel_bytes;
    out->codes = codes;
    const uint8_t *next = codes + (uint64_t)panels * m->panel_bytes;
    out->next = next - (uint64_t)m->steps * m->step_bytes;
    out->next_scales = next + m->scale_at;
    out->zero = m->zero_at != 0 ? codes + m->zero_at : NULL;
    out->scale = space->scale;
    mox_scales_fill(out->end, MOX_PANEL_ROWS, fold == MOX_AMX_FOLD_E4M3 ? MOX_AMX_HALF_END : 1.0f);
    if (mox_amx_is_drained(fold) || fold == MOX_AMX_FOLD_INTS) {
        mox_panel_scales(m, weight->scale, panel, space->scale);
        if (fold == MOX_AMX_FOLD_INTS)
            halve_scales(space->scale, m->groups, out);
        return;
    }
    out->folded = spread(m, codes + m->scale_at, space->codes);
    find_range(fold, m->groups * MOX_PANEL_ROWS, out);
    out->wide = is_wide(fold, out);
    if (fold == MOX_AMX_FOLD_E8M0 && out->wide)
        lower_rows(out, m->groups);
}

/* E4M3 in the fields of f16 is 2^-8 of its value, which the codes make up for. */
static __m512i halves_of(moxie_dtype element, mox_amx_folding fold)
{
    const __m512 values = _mm512_mul_ps(_mm512_loadu_ps(mox_format_table(element)),
                                        _mm512_set1_ps(fold == MOX_AMX_FOLD_E4M3 ? 256.0f : 1.0f));
    const __m256i half = _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
    return _mm512_broadcast_i32x4(_mm256_cvtepi16_epi8(_mm256_srli_epi16(half, 8)));
}

/* Folded formats have one segment, or those of the activations' groups. */
static mox_amx_way way_of(mox_amx_folding fold, const mox_amx_job *j)
{
    const bool one = j->segments == 1, large = j->segment_steps >= MOX_AMX_SQUARE_STEPS;
    const bool folded = !mox_amx_is_drained(fold) && j->a_scales == NULL;
    if (folded || one || (large && j->rows > MOX_AMX_NARROW))
        return MOX_AMX_WAY_SQUARE;
    return j->rows <= MOX_AMX_NARROW ? MOX_AMX_WAY_NARROW : MOX_AMX_WAY_TALL;
}

/* Several pairs of row tiles share the lines of a block, and those of the next one are made meanwhile; a single pair
 * goes through one block, with a ring of its own. `direct`: the lines are the record's. */
static void place_lines(mox_amx_job *j, bool direct)
{
    const bool several = j->rows > 32, all = j->kept || direct;
    j->block = several ? MOX_AMX_SPAN : j->steps;
    j->slots = all ? INT64_MAX : several ? MOX_AMX_SPAN + 1 : MOX_AMX_RING;
    j->lines_mask = all ? -1 : j->way == MOX_AMX_WAY_TALL ? 2 * MOX_AMX_CHUNK - 1 : MOX_AMX_RING - 1;
}

/* Codes of 4 bits as mox_amx_fold_e8m0() takes them: 2^TOP times their value, and no zero with a sign. */
static __m512i raised_table(__m512i table)
{
    const __mmask32 numbers = _mm512_test_epi16_mask(table, _mm512_set1_epi16(0x7fff));
    return _mm512_maskz_add_epi16(numbers, table, _mm512_set1_epi16(MOX_AMX_TOP << 7));
}

void mox_amx_prepare(mox_amx_job *j, mox_amx_folding fold, const mox_panel_matrix *m, const moxie_quant *weight,
                     int64_t panel, int panels, const mox_panel_rows *a, float *c, void *scratch)
{
    scale_space space[2];
    *j = (mox_amx_job) { .a = a->data,
                         .a_scales = a->scales,
                         .rows = a->rows,
                         .a_scale_stride = a->scale_stride,
                         .panels = panels,
                         .steps = m->steps,
                         .groups = m->groups,
                         .step_bytes = (int64_t)m->step_bytes,
                         .scale_lines = (int64_t)(m->panel_bytes - m->scale_at) / 64,
                         .scaled = mox_amx_is_drained(fold) && m->scale_lanes > 0 };
    lay_out(fold, m->steps, m->groups, scratch, j, space);
    j->c = c;
    j->group_steps = steps_of(m->group_cols, m->steps);
    j->group_inverse = ((UINT64_C(1) << 40) + (uint64_t)j->group_steps - 1) / (uint64_t)j->group_steps;
    j->act_steps = a->scales != NULL ? steps_of(a->group_cols, m->steps) : m->steps;
    j->segment_steps = mox_amx_is_drained(fold) ? mox_min_i64(j->group_steps, j->act_steps) : j->act_steps;
    j->segments = mox_ceil_div(m->steps, j->segment_steps);
    mox_pairs_tables(weight->element, weight->has_zero != 0, &j->tables);
    for (int p = 0; p < panels; p++)
        open_stream(&j->panel[p], fold, m, weight, panel + p, panels, &space[p]);
    const bool direct = weight->element == MOXIE_BF16;
    j->way = way_of(fold, j);
    j->kept = !mox_amx_is_drained(fold) && (j->panel[0].wide || (panels == 2 && j->panel[1].wide));
    if (mox_amx_is_half(fold))
        j->halves = halves_of(weight->element, fold);
    if (fold == MOX_AMX_FOLD_E8M0 && !j->kept && mox_pairs_order(weight->element) == MOX_PANEL_NIBBLES)
        j->tables.t[0] = raised_table(j->tables.t[0]);
    if (mox_amx_raise_of(fold) > 0 && !a->again)
        *j->raised.state = MOX_AMX_NOT_RAISED;
    place_lines(j, direct);
    for (int p = 0; direct && p < panels; p++)
        j->panel[p].lines = (uint8_t *)(uintptr_t)j->panel[p].codes;
    if (panels == 1)
        j->panel[1] = j->panel[0];
}

/* Numbers times 2^raise; subnormal ones as zero, as tiles take them. False when one of them does not stay finite. */
static bool raise_line(int raise, const uint8_t *from, uint8_t *to)
{
    const __m512i exponent = _mm512_set1_epi16(0x7f80), lost = _mm512_set1_epi16((short)((255 - raise) << 7));
    const __m512i x = _mm512_load_si512(from), of_x = _mm512_and_si512(x, exponent);
    const __mmask32 normal = _mm512_test_epi16_mask(x, exponent), special = _mm512_cmpeq_epi16_mask(of_x, exponent);
    const __m512i raised = _mm512_add_epi16(x, _mm512_set1_epi16((short)(raise << 7)));
    const __m512i kept = _mm512_mask_mov_epi16(raised, special, x);
    /* Zeros keep their sign. */
    _mm512_store_si512(to,
                       _mm512_mask_blend_epi16(normal, _mm512_and_si512(x, _mm512_set1_epi16((short)0x8000)), kept));
    return (_mm512_cmpge_epu16_mask(of_x, lost) & ~special) == 0;
}

void mox_amx_raise(mox_amx_job *j, mox_amx_folding fold)
{
    if (*j->raised.state == MOX_AMX_NOT_RAISED) {
        bool fit = true;
        for (int64_t i = 0; i < j->rows * j->steps; i++)
            fit &= raise_line(mox_amx_raise_of(fold), j->a + i * MOX_AMX_LINE, j->raised.rows + i * MOX_AMX_LINE);
        *j->raised.state = fit ? MOX_AMX_RAISED : MOX_AMX_TOO_LARGE;
    }
    j->kept = *j->raised.state == MOX_AMX_TOO_LARGE;
    if (j->kept)
        place_lines(j, false);
    else
        j->a = j->raised.rows;
}

uint64_t mox_amx_scratch_bytes(mox_amx_folding fold, int64_t steps, int64_t groups)
{
    scale_space space[2];
    mox_amx_job unused;
    return lay_out(fold, steps, groups, NULL, &unused, space);
}

#endif
