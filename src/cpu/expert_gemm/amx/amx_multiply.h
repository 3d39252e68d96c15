/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_multiply.h - kernel amx_bf16: the product of one format, and the strategy that it follows.
 *
 *     square    long segments, and all scales in the weight: two tiles of rows by two panels, sums in c (amx_square.h)
 *     narrow    short segments, up to 8 rows: both panels at once, 2 x rows sums in registers (amx_segments.h)
 *     tall      short segments, more rows: tiles of 16 rows, one panel at a time, 16 sums in registers (amx_segments.h)
 *     int dot   weights of 4 bits, up to 3 rows: no tiles at all (amx_int_dot.h)
 *
 * All of them give the same bits. Panels with scales in the weight that the fast way of decoding cannot apply are
 * decoded as a whole beforehand (predecoded), and go square or tall.
 */
#ifndef MOX_CPU_AMX_MULTIPLY_H
#define MOX_CPU_AMX_MULTIPLY_H

#include "cpu/expert_gemm/amx/amx_int_dot.h"
#include "cpu/expert_gemm/amx/amx_variants.h"
#include "cpu/expert_gemm/amx/amx_square.h"

/* Code for fewer rows is quicker. The last of an odd number of panels is alone, which is rare: one size is enough. */
MOX_KERNEL_INLINE void mox_amx_all_narrow(mox_amx_variant v, const mox_amx_job *j)
{
    mox_amx_configure((int)j->rows, (int)j->rows);
    if (j->a_scales != NULL && j->panels == 1)
        mox_amx_narrow(v, true, MOX_AMX_NARROW_ROWS, 1, j);
    else if (j->a_scales != NULL)
        mox_amx_narrow(v, true, MOX_AMX_NARROW_ROWS, 2, j);
    else if (j->panels == 1)
        mox_amx_narrow(v, false, MOX_AMX_NARROW_ROWS, 1, j);
    else if (j->rows == 1)
        mox_amx_narrow(v, false, 1, 2, j);
    else if (j->rows <= 4)
        mox_amx_narrow(v, false, 4, 2, j);
    else
        mox_amx_narrow(v, false, MOX_AMX_NARROW_ROWS, 2, j);
}

/* The first tile of rows decodes the next chunk while it is multiplied; the other tiles find it decoded. */
MOX_KERNEL_INLINE void mox_amx_all_tall(mox_amx_variant v, const mox_amx_job *j)
{
    const int64_t chunk = mox_amx_chunk(j);
    const int rows = (int)mox_min_i64(16, j->rows);
    mox_amx_configure(rows, rows);
    for (int p = 0; p < j->panels && !j->predecoded; p++)
        for (int64_t s = 0; s < chunk * j->segment_steps; s++)
            mox_amx_decode_step(v, j, p, s);
    for (int64_t first = 0; first < j->segments; first += chunk) {
        const int64_t last = mox_min_i64(first + chunk, j->segments);
        for (int p = 0; p < j->panels && !j->predecoded; p++)
            mox_amx_tall(v, true, j, p, 0, first, last);
        mox_amx_tall_rest(j, j->predecoded ? 0 : 16, first, last);
    }
}

/* Decodes all steps: where the fast way cannot, or where activations are too large to be prescaled. */
MOX_KERNEL_INLINE void mox_amx_decode_all(mox_amx_variant v, const mox_amx_job *j)
{
    if (v.scaling == MOX_AMX_SCALE_PER_SEGMENT_F16)
        v.scaling = MOX_AMX_SCALE_PER_SEGMENT;
    for (int p = 0; p < j->panels; p++)
        for (int64_t s = 0; s < j->steps; s++) {
            if (v.scaling != MOX_AMX_SCALE_PER_SEGMENT)
                mox_amx_decode_any_scale(j, p, v.decode_class, v.scaling, s,
                                         j->panel[p].lines + s * MOX_AMX_STEP_LINES_BYTES);
            else
                mox_amx_decode_step(v, j, p, s);
        }
}

MOX_KERNEL_INLINE void mox_amx_compute(mox_amx_variant v, const mox_amx_job *from)
{
    const mox_amx_job j = *from;
    if (j.predecoded)
        mox_amx_decode_all(v, from);
    if (j.strategy == MOX_AMX_STRATEGY_SQUARE && j.predecoded)
        mox_amx_square_predecoded(from);
    else if (j.strategy == MOX_AMX_STRATEGY_SQUARE)
        mox_amx_all_square(v, true, from);
    else if (j.strategy == MOX_AMX_STRATEGY_NARROW && !j.predecoded)
        mox_amx_all_narrow(v, &j);
    else
        mox_amx_all_tall(v, &j);
}

/* `int_dot`: try few rows without tiles. */
MOX_KERNEL_INLINE void mox_amx_multiply(mox_amx_variant v, bool int_dot, const mox_panel_matrix *m,
                                        const moxie_quant *weight, int64_t panel, int panels, const mox_panel_rows *a,
                                        float *c, void *scratch)
{
    mox_amx_job j;
    mox_amx_prepare(&j, v.scaling, m, weight, panel, panels, a, c, scratch);
    const unsigned mxcsr = _mm_getcsr();
    _mm_setcsr(mxcsr | MOX_FLUSH_SUBNORMALS);
    if (!int_dot || !mox_amx_int_dot(v, &j, a, weight)) {
        if (mox_amx_prescale_of(v.scaling) > 0 && !j.predecoded)
            mox_amx_prescale(&j, v.scaling);
        mox_amx_compute(v, &j);
    }
    _tile_release();
    _mm_setcsr(mxcsr);
}

/* Defines the product of one format. */
#define MOX_AMX_VARIANT(name, decode_class, zeros, scaling)                                                            \
    void name(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,                         \
              const mox_panel_rows *a, float *c, void *scratch)                                                        \
    {                                                                                                                  \
        mox_amx_multiply((mox_amx_variant) { decode_class, zeros, scaling }, false, m, weight, panel, panels, a, c,    \
                         scratch);                                                                                     \
    }

/* The same, few rows without tiles. */
#define MOX_AMX_INT_DOT_VARIANT(name, decode_class, zeros, scaling)                                                    \
    void name(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,                         \
              const mox_panel_rows *a, float *c, void *scratch)                                                        \
    {                                                                                                                  \
        mox_amx_multiply((mox_amx_variant) { decode_class, zeros, scaling }, true, m, weight, panel, panels, a, c,     \
                         scratch);                                                                                     \
    }

#endif
