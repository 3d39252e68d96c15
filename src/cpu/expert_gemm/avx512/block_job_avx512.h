/* SPDX-License-Identifier: Apache-2.0
 *
 * block_job_avx512.h - one call of an AVX-512 kernel on block types: avx512_fma (expert_gemm_blocks_avx512.c), and its
 * way through the slab, which avx512_block_bytes takes for steps that it cannot round (block_bytes_avx512.h).
 */
#ifndef MOX_CPU_BLOCK_JOB_AVX512_H
#define MOX_CPU_BLOCK_JOB_AVX512_H

#include "cpu/expert_gemm/avx512/panel_blocks_avx512.h"
#include "cpu/expert_gemm/avx512/panel_fma_avx512.h"

typedef struct mox_block_job mox_block_job;

/* One block type: all steps by one row and by two (NULL: by the slab), and the decoder of a step of panel p to its
 * place in the slab. */
typedef struct mox_block_type {
    const mox_block_fields *fields; /* NULL: of block_levels.def */
    void (*narrow[2])(const mox_block_job *j);
    void (*expand)(const mox_block_job *j, int p, int64_t step, float *slab);
} mox_block_type;

#define MOX_BLOCK_FIELDS(id, type, ...) extern const mox_block_type mox_block_type_##id;
#define MOX_BLOCK_LEVELS(id, type, ...) extern const mox_block_type mox_block_type_##id;
#include "format/block_fields.def"
#include "format/block_levels.def"
#undef MOX_BLOCK_FIELDS
#undef MOX_BLOCK_LEVELS

struct mox_block_job {
    mox_fma_job fma;
    const mox_block_type *type;
    int step_bytes; /* of a panel, on average: for prefetching */
    mox_zmm_tables tables;
};

/* A single panel is entered as both panels. */
static inline void mox_block_job_init(mox_block_job *j, const mox_block_type *type, const mox_panel_matrix *m,
                                      const moxie_quant *weight, int64_t panel, int panels, const mox_panel_rows *a,
                                      float *c, const mox_fma_scratch *sc)
{
    j->fma.values = a->data;
    j->fma.stride = m->steps * MOX_PANEL_STEP;
    j->fma.c = c;
    j->fma.part = sc->part;
    j->fma.slab = sc->slab;
    j->type = type;
    j->step_bytes =
        (int)(mox_block_panel_bytes(weight->element) * MOX_PANEL_STEP / mox_block_panel_cols(weight->element));
    mox_segment_iter_init(&j->fma.iter, m, weight, panel, panels, a, MOX_PANEL_STEP, sc->scale);
    j->fma.iter.codes_bytes = (int64_t)m->panel_bytes;
    if (type->fields != NULL)
        mox_zmm_tables_init(type->fields, &j->tables);
}

MOX_KERNEL_INLINE void mox_block_job_prefetch(const mox_block_job *j, int p, int64_t step)
{
    mox_segment_prefetch(j->fma.iter.prefetch_to_l2, &j->fma.iter, p, 2, step, j->step_bytes);
}

/* Prefetches `bytes` of codes of panel p, AHEAD bytes behind `at`; past the end of the panel, those of the panel that
 * the next call reads. For few rows, which multiply as they decode. */
MOX_KERNEL_INLINE void mox_block_job_prefetch_narrow(const mox_segment_iter *iter, int p, int64_t at, int bytes)
{
    enum { AHEAD = 2048 };
    const int64_t past = at + AHEAD < iter->panel_bytes ? 0 : (iter->panels - 1) * iter->panel_bytes;
    const uint8_t *from = iter->codes[p] + at + AHEAD + past;
    for (int b = 0; b < bytes; b += 64)
        _mm_prefetch((const char *)from + b, _MM_HINT_T0);
}

/* All steps by all rows, through the slab. */
static inline void mox_block_job_wide(mox_block_job *j)
{
    mox_fma_job *fma = &j->fma;
    mox_segment_pos at = mox_segment_begin(&fma->iter);
    memset(fma->c, 0, (size_t)fma->iter.a->rows * 2 * MOX_PANEL_ROWS * sizeof *fma->c);
    for (int64_t s = 0; s < fma->iter.steps; s += MOX_FMA_SLAB) {
        const int64_t steps = mox_min_i64(MOX_FMA_SLAB, fma->iter.steps - s);
        for (int64_t i = 0; i < steps; i++, mox_segment_next(&fma->iter, &at)) {
            fma->places[i] = at;
            for (int p = 0; p < fma->iter.panels; p++) {
                mox_block_job_prefetch(j, p, s + i);
                j->type->expand(j, p, s + i, fma->slab + i * MOX_PANEL_STEP * 2 * MOX_PANEL_ROWS);
            }
        }
        mox_fma_blocks(4, fma, s, steps);
    }
}

#endif
