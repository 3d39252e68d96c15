/* SPDX-License-Identifier: Apache-2.0
 *
 * weight_tries.h - squared errors of a group of weights under several scales at once, for the loops of weight_codes.h:
 *
 *     w [count], p [count] or 1     try t: scale, zero     sum p ((v - zero) scale - w)^2
 *
 * v is the element's number nearest to w / scale + zero, ties to even. Tries are the lanes of vectors; products with
 * 1 / scale stand for quotients, so now and then v is not the code that a weight gets. Sums are made weight after
 * weight, 64 at a time in f32, so all instruction sets give the same bits.
 */
#ifndef MOX_QUANT_WEIGHT_TRIES_H
#define MOX_QUANT_WEIGHT_TRIES_H

#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "format/f32.h"
#include "format/number_format.h"
#include "quant/block_fit_vector.h"

enum { MOX_WEIGHT_SUM = 64 };

/* Floats: with `mantissa` bits, steps of 2^(exponent - mantissa), `least` 2^mantissa times the smallest of them, up to
 * `high`. Integers: from `low` to `high`. */
typedef struct mox_weight_tries {
    float scale[MOX_FIT_TRIES], inverse[MOX_FIT_TRIES], zero[MOX_FIT_TRIES];
    bool integer;
    int32_t count, mantissa; /* count: of tries */
    float least, low, high;
} mox_weight_tries;

/* For an element of 8 bits or fewer; `largest`: of its integers, that are stored. */
static inline mox_weight_tries mox_weight_tries_begin(const mox_format *element, float largest)
{
    mox_weight_tries tries = { .integer = element->kind == MOX_KIND_INTEGER };
    tries.low = -largest - 1;
    tries.high = tries.integer ? largest : element->max;
    if (tries.integer)
        return tries;
    for (float step = element->decode(element->encode(1) + 1) - 1; step < 1; step *= 2)
        tries.mantissa++;
    tries.least = ldexpf(element->decode(1), 23);
    return tries;
}

/* Takes tries 0 .. count - 1 of scale and zero as they are; lanes without a try repeat the first. */
static inline void mox_weight_tries_set(mox_weight_tries *tries, int32_t count)
{
    tries->count = count;
    for (int32_t i = count; i < MOX_FIT_TRIES; i++) {
        tries->scale[i] = tries->scale[0];
        tries->zero[i] = tries->zero[0];
    }
    for (int32_t i = 0; i < MOX_FIT_TRIES; i++)
        tries->inverse[i] = 1 / (tries->scale[i] > FLT_MIN ? tries->scale[i] : FLT_MIN);
}

/* |units| to a float of few bits: adding 2^(23 - mantissa) times its power of two leaves only the bits that count. */
MOX_FIT_INLINE float mox_weight_float(const mox_weight_tries *t, float units)
{
    const uint32_t up = (uint32_t)(23 - t->mantissa) << 23;
    const float power = mox_f32_decode((mox_f32_encode(units) & 0x7f800000u) + up), least = t->least;
    const float by = power > least ? power : least, rounded = (units + by) - by;
    return rounded < t->high ? rounded : t->high;
}

/* `lanes`, `integer` and `weighted` are constants after inlining. Adds to squares. */
MOX_FIT_INLINE void mox_weight_try_lanes(const mox_weight_tries *from, int lanes, bool integer, bool weighted,
                                         const float *w, const float *p, int64_t count, double *squares)
{
    const mox_weight_tries tries = *from;
    for (int64_t first = 0; first < count; first += MOX_WEIGHT_SUM) {
        const int64_t end = first + MOX_WEIGHT_SUM < count ? first + MOX_WEIGHT_SUM : count;
        float sum[MOX_FIT_TRIES] = { 0 };
        for (int64_t i = first; i < end; i++) {
            const float x = integer ? w[i] : mox_f32_decode(mox_f32_encode(w[i]) & 0x7fffffffu);
            const float weight = weighted ? p[i] : 1;
            for (int t = 0; t < lanes; t++) {
                float v = x * tries.inverse[t];
                if (integer)
                    v = mox_fit_clamp(mox_fit_nearest(v + tries.zero[t]), tries.low, tries.high) - tries.zero[t];
                else
                    v = mox_weight_float(&tries, v);
                const float off = v * tries.scale[t] - x;
                sum[t] += (weighted ? weight * off : off) * off;
            }
        }
        for (int t = 0; t < lanes; t++)
            squares[t] += (double)sum[t];
    }
}

MOX_FIT_INLINE void mox_weight_try_kind(const mox_weight_tries *tries, bool integer, bool weighted, const float *w,
                                        const float *p, int64_t count, double *squares)
{
    if (tries->count <= MOX_FIT_LANES)
        mox_weight_try_lanes(tries, MOX_FIT_LANES, integer, weighted, w, p, count, squares);
    else
        mox_weight_try_lanes(tries, MOX_FIT_TRIES, integer, weighted, w, p, count, squares);
}

static inline void mox_weight_tries_of(const mox_weight_tries *tries, const float *w, const float *p, int64_t count,
                                       double *squares)
{
    if (tries->integer && p)
        mox_weight_try_kind(tries, true, true, w, p, count, squares);
    else if (tries->integer)
        mox_weight_try_kind(tries, true, false, w, p, count, squares);
    else if (p)
        mox_weight_try_kind(tries, false, true, w, p, count, squares);
    else
        mox_weight_try_kind(tries, false, false, w, p, count, squares);
}

#endif
