/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_act_quant.c - the oracle's activation quantizers: their definition (docs/quantizers.md), by search.
 *
 *     scale   float rules are one or two fp32 operations, written as in the definition; powers of two are found by
 *             trying one exponent after the other
 *     code    the nearest of all codes of the same sign, by exact distance in double; a tie goes to the even code
 *
 * Distances are exact: both numbers have at most 24 significant bits, and are within a factor of 2 when it matters. No
 * table and no rounding code is shared with the quantizers under test.
 */
#include "ref/ref.h"

#include <float.h>
#include <stdlib.h>

#include "base/sizes.h"

/* ---- codes --------------------------------------------------------------------------------------- */

/* The nearest finite code with v's sign, which saturates; NaN as in moxie_encode(). */
static uint8_t nearest_float(const mox_format *format, double v)
{
    const uint32_t sign = 1u << (format->bits - 1);
    if (isnan(v))
        return format->has_nan ? 0x7f : (uint8_t)format->encode(format->max);
    const double magnitude = fmin(fabs(v), format->max);
    uint32_t best = 0;
    for (uint32_t code = 1; code < sign && format->decode(code) <= format->max; code++) {
        const double old_distance = fabs(magnitude - format->decode(best));
        const double distance = fabs(magnitude - format->decode(code));
        if (distance < old_distance || (distance == old_distance && code % 2 == 0))
            best = code;
    }
    return (uint8_t)(signbit(v) ? best | sign : best);
}

/* The integer of [-128, 127] that `rounding` makes of v. */
static uint8_t nearest_int8(int32_t rounding, double v)
{
    if (isnan(v))
        return 0;
    int best = 0;
    v = fmax(-128, fmin(127, v));
    for (int code = -128; code <= 127; code++) {
        const double distance = fabs(v - code), old_distance = fabs(v - best);
        const bool inside = abs(code) <= fabs(v), tie = distance == old_distance;
        const bool wins_tie = rounding == MOXIE_ROUND_AWAY ? abs(code) > abs(best) : code % 2 == 0;
        if (rounding == MOXIE_ROUND_TRUNCATE ? inside && distance < old_distance
                                             : distance < old_distance || (tie && wins_tie))
            best = code;
    }
    return (uint8_t)best;
}

/* ---- scales -------------------------------------------------------------------------------------- */

static float largest_magnitude(const float *x, int64_t count)
{
    float amax = 0;
    for (int64_t i = 0; i < count; i++)
        if (!isnan(x[i]))
            amax = fmaxf(amax, fminf(fabsf(x[i]), FLT_MAX));
    return amax;
}

/* The largest k with 2^k <= v, v > 0. */
static int floor_log2(double v)
{
    int k = -150;
    while (ldexp(1, k + 1) <= v)
        k++;
    return k;
}

static int mx_exponent(int32_t rule, float amax, float largest)
{
    int e = -127;
    if (amax == 0)
        return e;
    switch (rule) {
    case MOXIE_RULE_OCP_FLOOR: e = floor_log2(amax) - floor_log2(largest); break;
    case MOXIE_RULE_VLLM_FLOOR: e = floor_log2(amax); break;
    case MOXIE_RULE_QUARK_EVEN:
        e = floor_log2(amax) - floor_log2(largest) + (amax >= ldexp(1.75, floor_log2(amax)) ? 1 : 0);
        break;
    default:
        while (e < 127 && amax > ldexp(largest, e))
            e++;
    }
    return e < -127 ? -127 : e > 127 ? 127 : e;
}

static float power_of_two_from(float v)
{
    double power = FLT_MIN;
    while (power < v)
        power *= 2;
    return (float)power;
}

/* ---- one group ----------------------------------------------------------------------------------- */

/* How a number is scaled before it is rounded to a code: x * factor or x / scale, in fp32. */
typedef struct step {
    float scale, factor;
    bool multiplies;
} step;

static bool is_per_tensor(const moxie_quant *quant)
{
    return quant->group_cols <= 0 && quant->group_rows == -1;
}

static step fp8_step(const moxie_quant *quant, float static_scale, float amax, float largest)
{
    float s;
    if (is_per_tensor(quant)) {
        s = quant->is_static ? static_scale : amax == 0 ? 1.0f : fmaxf(amax / largest, FLT_MIN);
        return (step) { s, 1.0f / s, true };
    }
    if (quant->group_cols <= 0) {
        s = fmaxf(amax / largest, 1.0f / (largest * 512.0f));
    } else {
        s = fmaxf(amax, 1e-10f) / largest;
        if (quant->rule == MOXIE_RULE_UE8M0)
            s = power_of_two_from(fmaxf(s, 1e-10f));
    }
    return (step) { s, 0, false };
}

/* The nearest f16 to v >= 0, at most the largest: v in units of f16's last place. */
static float nearest_half(float v)
{
    const int exponent = v < 0x1p-14f ? -14 : floor_log2(v);
    const float unit = ldexpf(1, exponent - 10);
    return fminf(rintf(v / unit) * unit, 65504.0f);
}

/* llama.cpp's Q8_0 and Q8_K. */
static step ggml_step(const moxie_quant *quant, float amax)
{
    const float by = amax == 0 ? 0 : fminf(127.0f / amax, FLT_MAX);
    const float scale = quant->scale == MOXIE_F16 ? nearest_half(amax / 127.0f) : by == 0 ? 0 : 1.0f / by;
    return (step) { scale, by, true };
}

static step int8_step(const moxie_quant *quant, float static_scale, float amax)
{
    const float floored = fmaxf(amax, 1e-10f);
    if (is_per_tensor(quant) && quant->is_static)
        return (step) { static_scale, 0, false };
    const bool per_token = quant->group_cols <= 0 && !is_per_tensor(quant);
    return (step) { floored / 127.0f, 127.0f / floored, per_token };
}

static step nvfp4_step(const moxie_quant *quant, float static_scale, float amax)
{
    float gs = 1, inverse = 1;
    if (quant->global == MOXIE_GLOBAL_DIVIDE)
        gs = static_scale, inverse = 1.0f / static_scale;
    if (quant->global == MOXIE_GLOBAL_MULTIPLY)
        gs = 1.0f / static_scale, inverse = static_scale;
    const mox_format *e4m3 = mox_format_of(MOXIE_F8_E4M3);
    const float sixth = 1.0f / 6.0f, steps = gs * sixth;
    const float s = e4m3->decode(nearest_float(e4m3, amax * steps));
    const float back = s * inverse;
    return (step) { s, amax == 0 ? 0 : fminf(1.0f / back, FLT_MAX), true };
}

static step step_of(const moxie_quant *quant, float static_scale, float amax)
{
    const float largest = mox_format_of(quant->element)->max;
    if (quant->element == MOXIE_I8 && (quant->scale == MOXIE_F16 || quant->rule == MOXIE_RULE_INVERSE))
        return ggml_step(quant, amax);
    if (quant->element == MOXIE_I8)
        return int8_step(quant, static_scale, amax);
    if (quant->scale == MOXIE_F8_E8M0)
        return (step) { ldexpf(1, mx_exponent(quant->rule, amax, largest)), 0, false };
    if (quant->scale == MOXIE_F8_E4M3)
        return nvfp4_step(quant, static_scale, amax);
    return fp8_step(quant, static_scale, amax, largest);
}

void mox_ref_act_quant_row(const moxie_quant *quant, float static_scale, float amax, const float *x, int64_t cols,
                           uint8_t *codes, double *scales)
{
    const mox_format *format = mox_format_of(quant->element);
    const int64_t size = quant->group_cols > 0 ? quant->group_cols : cols;
    for (int64_t k = 0; k < cols; k += size) {
        const int64_t end = mox_min_i64(k + size, cols);
        const step how = step_of(quant, static_scale, is_per_tensor(quant) ? amax : largest_magnitude(x + k, end - k));
        scales[k / size] = how.scale;
        for (int64_t i = k; i < end; i++) {
            const float v = how.multiplies ? x[i] * how.factor : x[i] / how.scale;
            codes[i] = quant->element == MOXIE_I8 ? nearest_int8(quant->rounding, v) : nearest_float(format, v);
        }
    }
}
