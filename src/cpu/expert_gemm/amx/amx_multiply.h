/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_multiply.h - row amx_bf16: the product of one format, and which of the ways through a panel pair it takes.
 *
 *     square    tiles of rows by two, panels by two, sums in c: long segments, hence all folded formats
 *     narrow    short segments, up to 8 rows: both panels at once, 2 x rows sums in registers
 *     tall      short segments, more rows: tiles of 16 rows, a panel at a time, 16 sums in registers
 *     digits    weights of 4 bits, up to 3 rows: no tiles at all (amx_digits.h)
 *
 * Panels whose folded scales are out of the fast way's range go square or tall, all lines decoded beforehand.
 */
#ifndef MOX_CPU_AMX_MULTIPLY_H
#define MOX_CPU_AMX_MULTIPLY_H

#include "cpu/expert_gemm/amx/amx_digits.h"
#include "cpu/expert_gemm/amx/amx_forms.h"
#include "cpu/expert_gemm/amx/amx_square.h"

/* The last panel of an odd number is alone: one form is enough for it. */
MOX_KERNEL_INLINE void mox_amx_all_narrow(mox_amx_form f, const mox_amx_job *j)
{
    mox_amx_configure((int)j->rows, (int)j->rows);
    if (j->a_scales != NULL && j->panels == 1)
        mox_amx_narrow(f, true, MOX_AMX_NARROW, 1, j);
    else if (j->a_scales != NULL)
        mox_amx_narrow(f, true, MOX_AMX_NARROW, 2, j);
    else if (j->panels == 1)
        mox_amx_narrow(f, false, MOX_AMX_NARROW, 1, j);
    else if (j->rows == 1)
        mox_amx_narrow(f, false, 1, 2, j);
    else if (j->rows <= 4)
        mox_amx_narrow(f, false, 4, 2, j);
    else
        mox_amx_narrow(f, false, MOX_AMX_NARROW, 2, j);
}

/* The first tile of rows decodes the chunk that follows. */
MOX_KERNEL_INLINE void mox_amx_all_tall(mox_amx_form f, const mox_amx_job *j)
{
    const int64_t chunk = mox_amx_chunk(j);
    const int rows = (int)mox_min_i64(16, j->rows);
    mox_amx_configure(rows, rows);
    for (int p = 0; p < j->panels && !j->kept; p++)
        for (int64_t s = 0; s < chunk * j->segment_steps; s++)
            mox_amx_decode_step(f, j, p, s);
    for (int64_t first = 0; first < j->segments; first += chunk) {
        const int64_t last = mox_min_i64(first + chunk, j->segments);
        for (int p = 0; p < j->panels && !j->kept; p++)
            mox_amx_tall(f, true, j, p, 0, first, last);
        mox_amx_tall_again(j, j->kept ? 0 : 16, first, last);
    }
}

/* Lines of all steps, for where they cannot be made as the product goes, or for rows that could not be raised. */
MOX_KERNEL_INLINE void mox_amx_decode_all(mox_amx_form f, const mox_amx_job *j)
{
    if (f.fold == MOX_AMX_DRAINED_HALF)
        f.fold = MOX_AMX_DRAINED;
    for (int p = 0; p < j->panels; p++)
        for (int64_t s = 0; s < j->steps; s++) {
            if (f.fold != MOX_AMX_DRAINED)
                mox_amx_decode_any_wide(j, p, f.like, f.fold, s, j->panel[p].lines + s * MOX_AMX_LINES);
            else
                mox_amx_decode_step(f, j, p, s);
        }
}

MOX_KERNEL_INLINE void mox_amx_compute(mox_amx_form f, const mox_amx_job *from)
{
    const mox_amx_job j = *from;
    if (j.kept)
        mox_amx_decode_all(f, from);
    if (j.way == MOX_AMX_WAY_SQUARE && j.kept)
        mox_amx_square_kept(from);
    else if (j.way == MOX_AMX_WAY_SQUARE)
        mox_amx_all_square(f, true, from);
    else if (j.way == MOX_AMX_WAY_NARROW && !j.kept)
        mox_amx_all_narrow(f, &j);
    else
        mox_amx_all_tall(f, &j);
}

/* False, and nothing is done, when scales or activations are out of the range of what folds. */
MOX_KERNEL_INLINE bool mox_amx_multiply_folded(mox_amx_form f, const mox_panel_matrix *m, const moxie_quant *weight,
                                               int64_t panel, int panels, const mox_panel_rows *a, float *c,
                                               void *scratch)
{
    mox_amx_job j;
    mox_amx_prepare(&j, f.fold, m, weight, panel, panels, a, c, scratch);
    if (!j.kept)
        mox_amx_raise(&j, f.fold);
    if (j.kept)
        return false;
    const unsigned mxcsr = _mm_getcsr();
    _mm_setcsr(mxcsr | MOX_FLUSH_SUBNORMALS);
    mox_amx_all_square(f, true, &j);
    _tile_release();
    _mm_setcsr(mxcsr);
    return true;
}

/* `digits`: few rows in integers. */
MOX_KERNEL_INLINE void mox_amx_multiply(mox_amx_form f, bool digits, const mox_panel_matrix *m,
                                        const moxie_quant *weight, int64_t panel, int panels, const mox_panel_rows *a,
                                        float *c, void *scratch)
{
    mox_amx_job j;
    mox_amx_prepare(&j, f.fold, m, weight, panel, panels, a, c, scratch);
    const unsigned mxcsr = _mm_getcsr();
    _mm_setcsr(mxcsr | MOX_FLUSH_SUBNORMALS);
    if (!digits || !mox_amx_times_digits(f, &j, a, weight)) {
        if (mox_amx_raise_of(f.fold) > 0 && !j.kept)
            mox_amx_raise(&j, f.fold);
        mox_amx_compute(f, &j);
    }
    _tile_release();
    _mm_setcsr(mxcsr);
}

/* The product of one format. */
#define MOX_AMX_FORM(name, like, zeros, fold)                                                                          \
    void name(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,                         \
              const mox_panel_rows *a, float *c, void *scratch)                                                        \
    {                                                                                                                  \
        mox_amx_multiply((mox_amx_form) { like, zeros, fold }, false, m, weight, panel, panels, a, c, scratch);        \
    }

/* The same, with few rows in integers. */
#define MOX_AMX_DIGITS_FORM(name, like, zeros, fold)                                                                   \
    void name(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,                         \
              const mox_panel_rows *a, float *c, void *scratch)                                                        \
    {                                                                                                                  \
        mox_amx_multiply((mox_amx_form) { like, zeros, fold }, true, m, weight, panel, panels, a, c, scratch);         \
    }

#endif
