/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_blocks_avx512.c - the variants of kernel avx512_fma for block types: one for each row of
 * block_fields.def and of block_levels.def (panel_blocks_avx512.h).
 *
 *     narrow    one or two rows without scales, both panels at once: columns are multiplied as they are decoded
 *     wide      other calls: the slab of panel_fma_avx512.h
 *
 * A weight is a float that no scale follows, so segments only end where the activations' groups do.
 */
#include "cpu/expert_gemm/avx512/avx512_plan.h"

#if defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include "cpu/expert_gemm/avx512/block_job_avx512.h"
#include "format/block_rows.h"

/* ---- narrow ------------------------------------------------------------------------------------------------ */

/* What a step of one panel is decoded from. */
typedef struct step_state {
    const uint8_t *blocks;
    mox_zmm_run d, run;
    mox_zmm_codes codes;
} step_state;

/* True when columns 4 g and on begin a run. */
MOX_KERNEL_INLINE bool begins_run(const mox_block_fields *f, int g)
{
    return 4 * g % (MOX_PANEL_STEP / mox_zmm_runs(f)) == 0;
}

/* Adds to sum[r][p] the products of step s of both panels by R rows. `a`: the step's activations of the first row. */
MOX_KERNEL_INLINE void narrow_step(const mox_block_fields *f, int weights, int R, const mox_zmm_tables *tables,
                                   step_state state[2], int64_t s, const float *a, int64_t stride, __m512 sum[][2])
{
    const mox_block_panel form = mox_block_panel_of(f, weights);
    __m512 chain[2][2][2];
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 2 * R; i++)
        chain[i / 2][i % 2][0] = chain[i / 2][i % 2][1] = _mm512_setzero_ps();
    MOX_KERNEL_UNROLL
    for (int p = 0; p < 2; p++)
        state[p].codes = mox_zmm_step_codes(f, state[p].blocks + form.codes_at + s * form.step_bytes);
    MOX_KERNEL_UNROLL
    for (int g = 0; g < MOX_PANEL_STEP / 4; g++) {
        MOX_KERNEL_UNROLL
        for (int p = 0; p < 2; p++) {
            if (begins_run(f, g))
                state[p].run = mox_zmm_block_run(f, &form, state[p].blocks, state[p].d,
                                                 mox_zmm_first_run(f, s) + 4 * g * mox_zmm_runs(f) / MOX_PANEL_STEP);
            MOX_KERNEL_UNROLL
            for (int odd = 0; odd < 2; odd++) {
                const __m512i index = mox_zmm_index(f, &state[p].codes, g, odd);
                MOX_KERNEL_UNROLL
                for (int upper = 0; upper < 2; upper++) {
                    const __m512 w = mox_zmm_column(f, tables, index, upper, state[p].run);
                    MOX_KERNEL_UNROLL
                    for (int r = 0; r < R; r++)
                        chain[r][p][odd] = _mm512_fmadd_ps(w, _mm512_set1_ps(a[r * stride + 4 * g + odd + 2 * upper]),
                                                           chain[r][p][odd]);
                }
            }
        }
    }
    MOX_KERNEL_UNROLL
    for (int r = 0; r < R; r++) {
        sum[r][0] = _mm512_add_ps(sum[r][0], _mm512_add_ps(chain[r][0][0], chain[r][0][1]));
        sum[r][1] = _mm512_add_ps(sum[r][1], _mm512_add_ps(chain[r][1][0], chain[r][1][1]));
    }
}

/* Both panels by R rows without scales: 1 or 2. There is one segment. */
MOX_KERNEL_INLINE void narrow(const mox_block_fields *f, int weights, int R, const mox_block_job *j)
{
    const mox_block_panel form = mox_block_panel_of(f, weights);
    const mox_segment_iter *iter = &j->fma.iter;
    const int64_t blocks = iter->steps / form.steps, stride = j->fma.stride;
    const float *a = j->fma.values;
    step_state state[2] = { { .blocks = iter->codes[0] }, { .blocks = iter->codes[1] } };
    __m512 sum[2][2];
    for (int r = 0; r < R; r++)
        sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    for (int64_t b = 0; b < blocks; b++) {
        state[0].d = mox_zmm_block_d(f, &form, state[0].blocks);
        state[1].d = mox_zmm_block_d(f, &form, state[1].blocks);
        for (int64_t s = 0; s < form.steps; s++, a += MOX_PANEL_STEP) {
            for (int p = 0; p < 2; p++)
                mox_block_job_prefetch_narrow(iter, p, b * form.bytes + s * form.bytes / form.steps,
                                              form.bytes / form.steps);
            narrow_step(f, weights, R, &j->tables, state, s, a, stride, sum);
        }
        state[0].blocks += form.bytes;
        state[1].blocks += form.bytes;
    }
    for (int r = 0; r < R; r++)
        for (int p = 0; p < iter->panels; p++)
            _mm512_store_ps(j->fma.c + (2 * r + p) * MOX_PANEL_ROWS, sum[r][p]);
}

/* ---- wide -------------------------------------------------------------------------------------------------- */

MOX_KERNEL_INLINE void expand(const mox_block_fields *f, int weights, const mox_block_job *j, int p, int64_t step,
                              float *slab)
{
    const mox_block_panel form = mox_block_panel_of(f, weights);
    const int64_t block = step / form.steps, s = step % form.steps;
    const uint8_t *blocks = j->fma.iter.codes[p] + block * form.bytes;
    const mox_zmm_codes codes = mox_zmm_step_codes(f, blocks + form.codes_at + s * form.step_bytes);
    const mox_zmm_run d = mox_zmm_block_d(f, &form, blocks);
    mox_zmm_run run = d;
    MOX_KERNEL_UNROLL
    for (int g = 0; g < MOX_PANEL_STEP / 4; g++) {
        if (begins_run(f, g))
            run = mox_zmm_block_run(f, &form, blocks, d,
                                    mox_zmm_first_run(f, s) + 4 * g * mox_zmm_runs(f) / MOX_PANEL_STEP);
        MOX_KERNEL_UNROLL
        for (int odd = 0; odd < 2; odd++) {
            const __m512i index = mox_zmm_index(f, &codes, g, odd);
            MOX_KERNEL_UNROLL
            for (int upper = 0; upper < 2; upper++)
                _mm512_store_ps(slab + (2 * (4 * g + odd + 2 * upper) + p) * MOX_PANEL_ROWS,
                                mox_zmm_column(f, &j->tables, index, upper, run));
        }
    }
}

MOX_KERNEL_INLINE void expand_levels(mox_levels_step_fn decode, int weights, int bytes, int d_at,
                                     const mox_block_job *j, int p, int64_t step, float *slab)
{
    const int steps = weights / MOX_PANEL_STEP;
    __m512i w[8];
    __m512 scale[2];
    mox_zmm_levels(decode, false, bytes, d_at, j->fma.iter.codes[p] + step / steps * MOX_PANEL_ROWS * bytes,
                   (int32_t)(step % steps), w, scale);
    MOX_UNROLL_STEP
    for (int c = 0; c < MOX_PANEL_STEP; c++) {
        const __m512i level = _mm512_srai_epi32(mox_zmm_shift(w[c / 4], 8 * (c % 4) - 24), 24);
        _mm512_store_ps(slab + (2 * c + p) * MOX_PANEL_ROWS, _mm512_mul_ps(_mm512_cvtepi32_ps(level), scale[c / 16]));
    }
}

/* ---- variants ---------------------------------------------------------------------------------------------- */

static void multiply(const mox_block_type *type, const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel,
                     int panels, const mox_panel_rows *a, float *c, void *scratch)
{
    mox_carver carver = mox_carver_of(scratch);
    mox_fma_scratch sc;
    mox_block_job j;
    mox_fma_lay_out(&carver, m->groups, &sc);
    mox_block_job_init(&j, type, m, weight, panel, panels, a, c, &sc);
    const unsigned mxcsr = mox_segment_flush_subnormals();
    if (a->rows <= 2 && a->scales == NULL && type->narrow[a->rows - 1] != NULL)
        type->narrow[a->rows - 1](&j);
    else
        mox_block_job_wide(&j);
    _mm_setcsr(mxcsr);
}

#define MULTIPLY(id)                                                                                                   \
    static void times_##id(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,            \
                           const mox_panel_rows *a, float *c, void *scratch)                                           \
    {                                                                                                                  \
        multiply(&mox_block_type_##id, m, weight, panel, panels, a, c, scratch);                                       \
    }

#define MOX_BLOCK_FIELDS(id, ...)                                                                                      \
    static void one_##id(const mox_block_job *j)                                                                       \
    {                                                                                                                  \
        narrow(&mox_fields_##id, MOX_WEIGHTS_##id, 1, j);                                                              \
    }                                                                                                                  \
    static void two_##id(const mox_block_job *j)                                                                       \
    {                                                                                                                  \
        narrow(&mox_fields_##id, MOX_WEIGHTS_##id, 2, j);                                                              \
    }                                                                                                                  \
    static void expand_##id(const mox_block_job *j, int p, int64_t step, float *slab)                                  \
    {                                                                                                                  \
        expand(&mox_fields_##id, MOX_WEIGHTS_##id, j, p, step, slab);                                                  \
    }                                                                                                                  \
    const mox_block_type mox_block_type_##id = { &mox_fields_##id, { one_##id, two_##id }, expand_##id };              \
    MULTIPLY(id)
#include "format/block_fields.def"
#undef MOX_BLOCK_FIELDS

#define MOX_BLOCK_LEVELS(id, type, d_at, run, bits)                                                                    \
    static void expand_##id(const mox_block_job *j, int p, int64_t step, float *slab)                                  \
    {                                                                                                                  \
        expand_levels(mox_block_##id##_step, MOX_WEIGHTS_##id, MOX_BYTES_##id, d_at, j, p, step, slab);                \
    }                                                                                                                  \
    const mox_block_type mox_block_type_##id = { NULL, { NULL, NULL }, expand_##id };                                  \
    MULTIPLY(id)
#include "format/block_levels.def"
#undef MOX_BLOCK_LEVELS

static const mox_panel_variant variants[] = {
#define MOX_BLOCK_FIELDS(id, type, ...) { MOX_BLOCK_DTYPE + type, false, times_##id, NULL },
#define MOX_BLOCK_LEVELS(id, type, ...) { MOX_BLOCK_DTYPE + type, false, times_##id, NULL },
#include "format/block_fields.def"
#include "format/block_levels.def"
#undef MOX_BLOCK_FIELDS
#undef MOX_BLOCK_LEVELS
};
const mox_panel_variants mox_avx512_fma_blocks_variants = { variants, sizeof variants / sizeof variants[0] };

#else

const mox_panel_variants mox_avx512_fma_blocks_variants = { NULL, 0 };

#endif
