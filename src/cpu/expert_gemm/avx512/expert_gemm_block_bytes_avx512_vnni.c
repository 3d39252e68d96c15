/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_block_bytes_avx512_vnni.c - kernels avx512_block_int8 and avx512_block_bytes (block_bytes_avx512.h):
 * their variants, one for each row of block_fields.def and of block_levels.def, and the path of a call.
 */
#include "cpu/expert_gemm/avx512/avx512_plan.h"

#ifdef __AVX512VNNI__

#include "cpu/expert_gemm/avx512/block_bytes_narrow_avx512.h"
#include "format/block_rows.h"

/* ---- blocks of rows ---------------------------------------------------------------------------------------- */

#define ROWS(R, runs, minimums, whole)                                                                                 \
    static void rows_##R##_##runs##_##minimums##_##whole(const mox_block_bytes_job *j, int64_t s, int64_t steps,       \
                                                         int64_t row)                                                  \
    {                                                                                                                  \
        mox_block_bytes_rows(runs, minimums, whole, R, j, s, steps, row);                                              \
    }
#define ALL_ROWS(...)                                                                                                  \
    ROWS(1, __VA_ARGS__)                                                                                               \
    ROWS(2, __VA_ARGS__) ROWS(3, __VA_ARGS__) ROWS(4, __VA_ARGS__) ROWS(5, __VA_ARGS__) ROWS(6, __VA_ARGS__)
ALL_ROWS(1, 0, 0)
ALL_ROWS(1, 0, 1)
ALL_ROWS(1, 1, 0)
ALL_ROWS(1, 1, 1)
ALL_ROWS(2, 0, 0)
ALL_ROWS(2, 0, 1)
ALL_ROWS(2, 1, 0)
ALL_ROWS(2, 1, 1)
#undef ALL_ROWS
#undef ROWS

#define ROWS(form)                                                                                                     \
    {                                                                                                                  \
        rows_1_##form, rows_2_##form, rows_3_##form, rows_4_##form, rows_5_##form, rows_6_##form                       \
    }
/* [runs - 1][minimums][whole][rows - 1] */
static const mox_block_bytes_rows_fn rows_of[2][2][2][MOX_BLOCK_BYTES_ROWS] = {
    { { ROWS(1_0_0), ROWS(1_0_1) }, { ROWS(1_1_0), ROWS(1_1_1) } },
    { { ROWS(2_0_0), ROWS(2_0_1) }, { ROWS(2_1_0), ROWS(2_1_1) } },
};
#undef ROWS

/* What differs by type: the decoder to the slab, and all steps by 1 .. NARROW rows (NULL: by the slab). */
typedef struct mox_block_bytes_fns {
    mox_block_bytes_expand_fn expand;
    void (*narrow[MOX_BLOCK_BYTES_NARROW])(const mox_block_bytes_job *j);
} mox_block_bytes_fns;

/* ---- the path of a call ------------------------------------------------------------------------------------ */

/* Infinite weights of the step in `slab` become NaN, as those of d and m do where the step is multiplied as bytes. */
static void mark_infinities(float *slab)
{
    for (int i = 0; i < MOX_PANEL_STEP * 2 * MOX_PANEL_ROWS; i += MOX_PANEL_ROWS)
        _mm512_store_ps(slab + i, mox_zmm_mark_infinities(_mm512_load_ps(slab + i)));
}

/* One row, some of whose steps are multiplied as floats. */
static void mixed_row(mox_block_bytes_job *j, mox_block_bytes_rows_fn times, int64_t s, int64_t steps, int64_t row)
{
    mox_block_bytes_job one = *j;
    mox_fma_job *fma = &one.block.fma;
    for (int64_t i = 0; i < steps; i++) {
        fma->places[0] = j->block.fma.places[i];
        if (j->lines[(s + i) * fma->iter.a->rows + row].floats) {
            for (int p = 0; p < fma->iter.panels; p++)
                j->block.type->expand(&one.block, p, s + i, fma->slab);
            mark_infinities(fma->slab);
            mox_fma_block_of(1, fma->iter.panels, 4)(fma, s + i, 1, row);
        } else {
            one.slab = j->slab + i * MOX_BLOCK_BYTES_STEP;
            one.scales = j->scales + i * MOX_BLOCK_BYTES_SCALES;
            times(&one, s + i, 1, row);
        }
    }
}

static void multiply_slab(mox_block_bytes_job *j, const mox_block_fields *f, bool floats, int64_t s, int64_t steps)
{
    const mox_panel_rows *a = j->block.fma.iter.a;
    const mox_block_bytes_rows_fn *times = rows_of[mox_bytes_runs(f) - 1][f->m_at >= 0][a->scales == NULL && !floats];
    const int64_t blocks = mox_ceil_div(a->rows, MOX_BLOCK_BYTES_ROWS);
    for (int64_t row = 0; floats && row < a->rows; row++)
        mixed_row(j, times[0], s, steps, row);
    for (int64_t b = 0; !floats && b < blocks; b++) { /* of nearly the same size */
        const int64_t row = b * a->rows / blocks;
        times[(b + 1) * a->rows / blocks - row - 1](j, s, steps, row);
    }
}

static void multiply_steps(mox_block_bytes_job *j, const mox_block_fields *f, bool floats)
{
    mox_fma_job *fma = &j->block.fma;
    mox_segment_pos at = mox_segment_begin(&fma->iter);
    memset(fma->c, 0, (size_t)fma->iter.a->rows * 2 * MOX_PANEL_ROWS * sizeof *fma->c);
    for (int64_t s = 0; s < fma->iter.steps; s += MOX_FMA_SLAB) {
        const int64_t steps = mox_min_i64(MOX_FMA_SLAB, fma->iter.steps - s);
        for (int64_t i = 0; i < steps; i++, mox_segment_next(&fma->iter, &at)) {
            fma->places[i] = at;
            for (int p = 0; p < 2; p++) {
                mox_block_job_prefetch(&j->block, p, s + i);
                j->expand(&j->block, p, s + i, j->slab + i * MOX_BLOCK_BYTES_STEP,
                          j->scales + i * MOX_BLOCK_BYTES_SCALES);
            }
        }
        multiply_slab(j, f, floats, s, steps);
    }
}

/* `codes`: activations are int8 codes. */
static void multiply(const mox_block_fields *f, const mox_block_type *type, const mox_block_bytes_fns *fns, bool codes,
                     const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                     const mox_panel_rows *a, float *c, void *scratch)
{
    mox_carver carver = mox_carver_of(scratch);
    mox_block_bytes_scratch sc;
    mox_block_bytes_lay_out(&carver, m->cols, m->groups, a->rows, &sc);
    mox_block_bytes_job j = { .lines = sc.lines, .slab = sc.slab, .scales = sc.scales, .expand = fns->expand };
    mox_block_job_init(&j.block, type, m, weight, panel, panels, a, c, &sc.fma);
    const unsigned mxcsr = mox_segment_flush_subnormals();
    if (!a->again)
        *sc.floats = mox_block_bytes_prepare(a, j.block.fma.iter.steps, f, codes, sc.lines);
    if (a->rows <= MOX_BLOCK_BYTES_NARROW && a->scales == NULL && *sc.floats == 0 && fns->narrow[a->rows - 1] != NULL)
        fns->narrow[a->rows - 1](&j);
    else
        multiply_steps(&j, f, *sc.floats > 0);
    _mm_setcsr(mxcsr);
}

/* ---- variants ---------------------------------------------------------------------------------------------- */

#define TIMES(name, id, codes)                                                                                         \
    static void name##_##id(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,           \
                            const mox_panel_rows *a, float *c, void *scratch)                                          \
    {                                                                                                                  \
        multiply(&mox_fields_##id, &mox_block_type_##id, &fns_##id, codes, m, weight, panel, panels, a, c, scratch);   \
    }

#define NARROW(name, R, id)                                                                                            \
    static void name##_##id(const mox_block_bytes_job *j)                                                              \
    {                                                                                                                  \
        mox_block_bytes_narrow(&mox_fields_##id, MOX_WEIGHTS_##id, R, j);                                              \
    }

#define MOX_BLOCK_FIELDS(id, ...)                                                                                      \
    static void expand_##id(const mox_block_job *j, int p, int64_t step, uint8_t *to, float *scales)                   \
    {                                                                                                                  \
        mox_block_bytes_expand(&mox_fields_##id, MOX_WEIGHTS_##id, j, p, step, to, scales);                            \
    }                                                                                                                  \
    NARROW(one, 1, id)                                                                                                 \
    NARROW(two, 2, id)                                                                                                 \
    NARROW(three, 3, id)                                                                                               \
    NARROW(four, 4, id)                                                                                                \
    static const mox_block_bytes_fns fns_##id = { expand_##id, { one_##id, two_##id, three_##id, four_##id } };        \
    TIMES(times_bytes, id, false)                                                                                      \
    TIMES(times_codes, id, true)
#include "format/block_fields.def"
#undef MOX_BLOCK_FIELDS

/* Fields that stand for a row: levels that count from -128. */
#define MOX_BLOCK_LEVELS(id, type, d_at, run_cols, bits)                                                               \
    static const mox_block_fields mox_fields_##id = { .m_at = -1, .run = run_cols, .offset = 128 };                    \
    static void expand_##id(const mox_block_job *j, int p, int64_t step, uint8_t *to, float *scales)                   \
    {                                                                                                                  \
        mox_block_bytes_expand_levels(mox_block_##id##_step, MOX_WEIGHTS_##id, MOX_BYTES_##id, d_at, 32 / run_cols, j, \
                                      p, step, to, scales);                                                            \
    }                                                                                                                  \
    static const mox_block_bytes_fns fns_##id = { expand_##id, { NULL } };                                             \
    TIMES(times_bytes, id, false)                                                                                      \
    TIMES(times_codes, id, true)
#include "format/block_levels.def"
#undef MOX_BLOCK_LEVELS

#define MOX_BLOCK_FIELDS(id, type, ...) { MOX_BLOCK_DTYPE + type, false, times_bytes_##id, NULL },
#define MOX_BLOCK_LEVELS(id, type, ...) { MOX_BLOCK_DTYPE + type, false, times_bytes_##id, NULL },
static const mox_panel_variant bytes[] = {
#include "format/block_fields.def"
#include "format/block_levels.def"
};
#undef MOX_BLOCK_FIELDS
#undef MOX_BLOCK_LEVELS

#define MOX_BLOCK_FIELDS(id, type, ...) { MOX_BLOCK_DTYPE + type, false, times_codes_##id, NULL },
#define MOX_BLOCK_LEVELS(id, type, ...) { MOX_BLOCK_DTYPE + type, false, times_codes_##id, NULL },
static const mox_panel_variant int8[] = {
#include "format/block_fields.def"
#include "format/block_levels.def"
};
#undef MOX_BLOCK_FIELDS
#undef MOX_BLOCK_LEVELS

const mox_panel_variants mox_avx512_block_bytes_variants = { bytes, sizeof bytes / sizeof bytes[0] };
const mox_panel_variants mox_avx512_block_int8_variants = { int8, sizeof int8 / sizeof int8[0] };

#else

const mox_panel_variants mox_avx512_block_bytes_variants = { NULL, 0 };
const mox_panel_variants mox_avx512_block_int8_variants = { NULL, 0 };

#endif
