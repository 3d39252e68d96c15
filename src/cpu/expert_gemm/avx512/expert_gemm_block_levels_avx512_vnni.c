/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_block_levels_avx512_vnni.c - kernel avx512_block_levels (block_levels_avx512.h): its variants, one for
 * each row of block_fields.def without minimums, and the path of a call.
 */
#include "cpu/expert_gemm/avx512/avx512_plan.h"

#ifdef __AVX512VNNI__

#include "cpu/expert_gemm/avx512/block_levels_narrow_avx512.h"
#include "format/block_rows.h"

/* ---- blocks of rows ---------------------------------------------------------------------------------------- */

#define ROWS(R, runs)                                                                                                  \
    static void rows_##R##_##runs(const mox_block_levels_job *j, int64_t s, int64_t steps, int64_t row)                \
    {                                                                                                                  \
        mox_block_levels_rows(runs, R, j, s, steps, row);                                                              \
    }
#define ALL_ROWS(runs) ROWS(1, runs) ROWS(2, runs) ROWS(3, runs) ROWS(4, runs) ROWS(5, runs) ROWS(6, runs)
ALL_ROWS(1)
ALL_ROWS(2)
#undef ALL_ROWS
#undef ROWS

/* [runs - 1][rows - 1] */
static const mox_block_levels_rows_fn rows_of[2][MOX_FMA_BLOCK] = {
    { rows_1_1, rows_2_1, rows_3_1, rows_4_1, rows_5_1, rows_6_1 },
    { rows_1_2, rows_2_2, rows_3_2, rows_4_2, rows_5_2, rows_6_2 },
};

/* What differs by type: the decoder to the slab, and all steps by 1 .. NARROW rows. */
typedef struct mox_block_levels_fns {
    const mox_block_fields *fields;
    mox_block_levels_expand_fn expand;
    void (*narrow[MOX_BLOCK_LEVELS_NARROW])(const mox_block_levels_job *j);
} mox_block_levels_fns;

/* ---- the path of a call ------------------------------------------------------------------------------------ */

static void multiply(const mox_block_type *type, const mox_block_levels_fns *fns, const mox_panel_matrix *m,
                     const moxie_quant *weight, int64_t panel, int panels, const mox_panel_rows *a, float *c,
                     void *scratch)
{
    const mox_block_fields *f = fns->fields;
    const bool few = a->rows <= MOX_BLOCK_LEVELS_NARROW && a->scales == NULL;
    mox_carver carver = mox_carver_of(scratch);
    mox_block_levels_scratch sc;
    mox_block_levels_lay_out(&carver, m->cols, m->groups, &sc);
    mox_block_levels_job j = { .scales = sc.scales, .lines = sc.lines, .kinds = sc.kinds };
    mox_block_job_init(&j.block, type, m, weight, panel, panels, a, c, &sc.fma);
    const unsigned mxcsr = mox_segment_flush_subnormals();
    if (!a->again && few)
        mox_levels_put_lines(f, &j.block.fma, sc.lines, sc.kinds);
    if (few)
        fns->narrow[a->rows - 1](&j);
    else
        mox_block_levels_wide(&j, fns->expand, rows_of[mox_zmm_runs(f) - 1]);
    _mm_setcsr(mxcsr);
}

/* ---- variants ---------------------------------------------------------------------------------------------- */

/* Rows of block_fields.def. */
#define TYPES(OF) OF(q4_0) OF(q5_0) OF(q3_k) OF(q6_k) OF(iq4_nl) OF(iq4_xs) OF(tq2_0) OF(q2_0)

#define NARROW(name, R, id)                                                                                            \
    static void name##_##id(const mox_block_levels_job *j)                                                             \
    {                                                                                                                  \
        mox_block_levels_narrow(&mox_fields_##id, MOX_WEIGHTS_##id, R, j);                                             \
    }

#define VARIANT(id)                                                                                                    \
    static void expand_##id(const mox_block_levels_job *j, int p, int64_t step, float *slab, float *scales)            \
    {                                                                                                                  \
        mox_block_levels_expand(&mox_fields_##id, MOX_WEIGHTS_##id, j, p, step, slab, scales);                         \
    }                                                                                                                  \
    NARROW(one, 1, id)                                                                                                 \
    NARROW(two, 2, id)                                                                                                 \
    NARROW(three, 3, id)                                                                                               \
    static const mox_block_levels_fns fns_##id = { &mox_fields_##id,                                                   \
                                                   expand_##id,                                                        \
                                                   { one_##id, two_##id, three_##id } };                               \
    static void times_##id(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,            \
                           const mox_panel_rows *a, float *c, void *scratch)                                           \
    {                                                                                                                  \
        multiply(&mox_block_type_##id, &fns_##id, m, weight, panel, panels, a, c, scratch);                            \
    }
TYPES(VARIANT)
#undef VARIANT

#define VARIANT(id) { MOX_BLOCK_DTYPE + MOX_TYPE_##id, false, times_##id, NULL },
static const mox_panel_variant variants[] = { TYPES(VARIANT) };
#undef VARIANT

const mox_panel_variants mox_avx512_block_levels_variants = { variants, sizeof variants / sizeof variants[0] };

#else

const mox_panel_variants mox_avx512_block_levels_variants = { NULL, 0 };

#endif
