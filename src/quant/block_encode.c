/* SPDX-License-Identifier: Apache-2.0
 *
 * block_encode.c - makes blocks (block_encode.h). Types of block_fields.def follow from their rows; q8_0 and mxfp4 are
 * written out.
 */
#include "quant/block_encode.h"

#include <math.h>

#include "format/block_parts.h"
#include "format/format.h"
#include "quant/block_fit.h"
#include "quant/scale_rule.h"

enum { Q8_0 = MOX_BLOCK_DTYPE + 8, MXFP4 = MOX_BLOCK_DTYPE + 39 };

/* What is known of a type with fields. */
typedef struct encoder {
    const mox_block_fields *fields;
    const mox_fit_loops *loops;
    int32_t weights, runs, run; /* of a block; weights of a run */
    float lowest, highest;      /* integers that a weight is a multiple of */
    float s_lowest, s_highest;  /* integers of runs; 0: there are none */
    bool has_minimum, free_sign, levels, search;
} encoder;

static bool is_ternary(moxie_dtype dtype)
{
    return dtype == MOX_BLOCK_DTYPE + 35 || dtype == MOX_BLOCK_DTYPE + 42; /* tq2_0, q2_0 */
}

bool mox_block_can_encode(moxie_dtype dtype)
{
    return dtype == Q8_0 || dtype == MXFP4 || (mox_block_fields_of(dtype) && !is_ternary(dtype));
}

static void set_integers(encoder *e)
{
    switch (e->fields->integers) {
    case MOX_BLOCK_NONE: e->s_lowest = e->s_highest = 0; break;
    case MOX_BLOCK_BYTES: e->s_lowest = -128, e->s_highest = 127; break;
    case MOX_BLOCK_NIBBLES: e->s_lowest = 0, e->s_highest = 15; break;
    case MOX_BLOCK_SIX_AND_SIX: e->s_lowest = 0, e->s_highest = 63; break;
    default: e->s_lowest = -32, e->s_highest = 31; break;
    }
}

static encoder encoder_of(const mox_block_fields *f, bool search)
{
    encoder e = { .fields = f,
                  .loops = mox_fit_loops_best(),
                  .weights = mox_block_of(f->dtype)->weights,
                  .run = f->run,
                  .has_minimum = f->m_at >= 0,
                  .free_sign = f->m_sign > 0,
                  .levels = f->levels != 0,
                  .search = search };
    e.runs = e.weights / e.run;
    e.lowest = e.levels ? -127 : (float)-f->offset;
    e.highest = e.levels ? 113 : (float)((1 << (f->low.bits + f->high.bits)) - 1 - f->offset);
    set_integers(&e);
    return e;
}

/* Run r of a block; importances NULL: there are none. */
static mox_fit_run run_of(const encoder *e, const float *x, const float *p, int32_t r)
{
    return (mox_fit_run) { x + r * e->run, p ? p + r * e->run : NULL, e->run, e->lowest, e->highest };
}

/* ---- scales of runs ---------------------------------------------------------------------------------- */

/* The weight of largest magnitude, the first of equals. */
static float extreme_of(const mox_fit_loops *loops, const float *x, int32_t count)
{
    float low, high;
    loops->extent(x, count, &low, &high);
    if (-low != high)
        return -low > high ? low : high;
    for (int32_t i = 0; i < count; i++)
        if (fabsf(x[i]) == high)
            return x[i];
    return 0;
}

/* The extreme becomes the lowest integer, since there is one more below 0 than above, or nearly. */
static mox_fit fit_scaled(const encoder *e, const mox_fit_run *run)
{
    const float extreme = extreme_of(e->loops, run->x, run->count);
    float inverse[MOX_FIT_TRIES];
    if (extreme == 0 || !e->search)
        return (mox_fit) { extreme / e->lowest, 0 };
    const int tries = e->levels ? MOX_FIT_LEVEL_TRIES : MOX_FIT_TRIES;
    const float step = e->levels ? 2.0f : 0.125f;
    for (int t = 0; t < tries - 1; t++)
        inverse[t] = (e->lowest + step * (float)(t - tries / 2 + 1)) / extreme;
    inverse[tries - 1] = e->highest / extreme;
    return e->levels ? e->loops->levels(run, inverse) : e->loops->symmetric(run, inverse);
}

static mox_fit fit_shifted(const encoder *e, const mox_fit_run *run)
{
    float low, high, inverse[MOX_FIT_TRIES];
    e->loops->extent(run->x, run->count, &low, &high);
    low = !e->free_sign && low > 0 ? 0 : low;
    if (high <= low || !e->search)
        return (mox_fit) { high <= low ? 0 : (high - low) / e->highest, low };
    for (int32_t t = 0; t < MOX_FIT_TRIES; t++)
        inverse[t] = (e->highest - 1 + 0.125f * (float)t) / (high - low);
    return e->loops->minimum(run, inverse, low, e->free_sign);
}

/* ---- integers of runs -------------------------------------------------------------------------------- */

static float put_f16(float value, uint8_t *out)
{
    const uint32_t code = mox_f16_encode(value);
    out[0] = (uint8_t)code;
    out[1] = (uint8_t)(code >> 8);
    return mox_f16_decode(code);
}

static float integer_of(float value, float inverse, float lowest, float highest)
{
    return mox_fit_clamp(mox_fit_nearest(value * inverse), lowest, highest);
}

/* d and the integers s of the runs; fit[].d becomes their rounded product. */
static void put_scales(const encoder *e, mox_fit *fit, mox_block_parts *parts)
{
    float extreme = 0;
    for (int32_t r = 0; r < e->runs; r++)
        if (fabsf(fit[r].d) > fabsf(extreme))
            extreme = fit[r].d;
    const float end = e->s_lowest < 0 ? e->s_lowest : e->s_highest;
    const float inverse = extreme != 0 ? end / extreme : 0;
    const float d = put_f16(extreme / end, parts->d);
    for (int32_t r = 0; r < e->runs; r++) {
        const float s = integer_of(fit[r].d, inverse, e->s_lowest, e->s_highest);
        parts->s[r] = (uint8_t)(int32_t)s;
        fit[r].d = d * s;
    }
}

/* m and the integers t; fit[].m becomes their rounded product, less than 0. */
static void put_minimums(const encoder *e, mox_fit *fit, mox_block_parts *parts)
{
    float lowest = 0;
    for (int32_t r = 0; r < e->runs; r++)
        lowest = fit[r].m < lowest ? fit[r].m : lowest;
    const float inverse = lowest < 0 ? e->s_highest / lowest : 0;
    const float m = put_f16(-lowest / e->s_highest, parts->m);
    for (int32_t r = 0; r < e->runs; r++) {
        const float t = integer_of(fit[r].m, inverse, 0, e->s_highest);
        if (e->fields->integers == MOX_BLOCK_NIBBLES)
            parts->s[r] |= (uint8_t)((int32_t)t << 4);
        else
            parts->t[r] = (uint8_t)(int32_t)t;
        fit[r].m = -(m * t);
    }
}

/* Integers beside those that put_scales() and put_minimums() chose: rounding s and t one by one ignores what the other
 * became. s-1 to s+1 and t-2 to t+2. */
static void improve_run(const encoder *e, const mox_fit_run *run, const float by[2], int32_t *s, int32_t *t,
                        mox_fit *fit)
{
    static const int8_t steps[MOX_FIT_TRIES][2] = { { 0, 0 },  { 0, 1 },   { 0, 2 },   { 0, -1 }, { 0, -2 }, { 1, 0 },
                                                    { 1, 1 },  { 1, 2 },   { 1, -1 },  { 1, -2 }, { -1, 0 }, { -1, 1 },
                                                    { -1, 2 }, { -1, -1 }, { -1, -2 }, { 0, 0 } };
    int32_t new_s[MOX_FIT_TRIES], new_t[MOX_FIT_TRIES];
    float d[MOX_FIT_TRIES], m[MOX_FIT_TRIES];
    const int32_t top = (int32_t)e->s_highest;
    for (int32_t i = 0; i < MOX_FIT_TRIES; i++) {
        const int32_t to_s = *s + steps[i][0], to_t = *t + steps[i][1];
        new_s[i] = ((to_s < 0) | (to_s > top)) ? *s : to_s;
        new_t[i] = ((to_t < 0) | (to_t > top)) ? *t : to_t;
        d[i] = by[0] * (float)new_s[i];
        m[i] = -(by[1] * (float)new_t[i]);
    }
    const int best = e->loops->choose(run, d, m);
    *s = new_s[best];
    *t = new_t[best];
    *fit = (mox_fit) { d[best], m[best] };
}

static void improve(const encoder *e, const float *x, const float *p, mox_fit *fit, mox_block_parts *parts)
{
    const float by[2] = { mox_block_f16(parts->d), mox_block_f16(parts->m) };
    const bool nibbles = e->fields->integers == MOX_BLOCK_NIBBLES;
    for (int32_t r = 0; r < e->runs; r++) {
        const mox_fit_run run = run_of(e, x, p, r);
        int32_t s = nibbles ? parts->s[r] & 15 : parts->s[r], t = nibbles ? parts->s[r] >> 4 : parts->t[r];
        improve_run(e, &run, by, &s, &t, &fit[r]);
        parts->s[r] = (uint8_t)(nibbles ? s | t << 4 : s);
        parts->t[r] = (uint8_t)(nibbles ? 0 : t);
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------ */

/* As ggml rounds where d is the block's only scale: codes under d before it is rounded, halves up. */
static void put_plain(const encoder *e, const float *x, mox_fit fit, mox_block_parts *parts)
{
    const float inverse = fit.d != 0 ? 1.0f / fit.d : 0, top = e->highest - e->lowest;
    put_f16(fit.d, parts->d);
    if (e->has_minimum)
        put_f16(fit.m, parts->m);
    for (int32_t i = 0; i < e->run; i++) {
        const float v = (x[i] - fit.m) * inverse + (0.5f - e->lowest);
        parts->code[i] = (uint8_t)(int32_t)mox_fit_clamp(v, 0, top);
    }
}

static void put_codes(const encoder *e, const float *x, const mox_fit *fit, mox_block_parts *parts)
{
    for (int32_t r = 0; r < e->runs; r++) {
        const mox_fit_run run = run_of(e, x, NULL, r);
        const float inverse = fit[r].d != 0 ? 1.0f / fit[r].d : 0;
        if (e->levels)
            e->loops->level_codes(&run, inverse, parts->code + r * e->run);
        else
            e->loops->codes(&run, inverse, fit[r].m, parts->code + r * e->run);
    }
}

static void encode_block(const encoder *e, const float *x, const float *p, uint8_t *out)
{
    mox_block_parts parts = { .m = { 0 } };
    mox_fit fit[MOX_BLOCK_RUNS];
    for (int32_t r = 0; r < e->runs && r < MOX_BLOCK_RUNS; r++) {
        const mox_fit_run run = run_of(e, x, p, r);
        fit[r] = e->has_minimum ? fit_shifted(e, &run) : fit_scaled(e, &run);
    }
    if (e->s_highest > 0) {
        put_scales(e, fit, &parts);
        if (e->has_minimum)
            put_minimums(e, fit, &parts);
        if (e->has_minimum && e->search)
            improve(e, x, p, fit, &parts);
        put_codes(e, x, fit, &parts);
    } else if (!e->search && !e->levels) {
        put_plain(e, x, fit[0], &parts);
    } else {
        fit[0].d = put_f16(fit[0].d, parts.d);
        fit[0].m = e->has_minimum ? put_f16(fit[0].m, parts.m) : 0;
        put_codes(e, x, fit, &parts);
    }
    mox_block_join(e->fields, &parts, out);
}

static void encode_q8_0(const float *x, uint8_t *out)
{
    const mox_fit_loops *loops = mox_fit_loops_best();
    const float d = fabsf(extreme_of(loops, x, 32)) / 127, inverse = d != 0 ? 1.0f / d : 0;
    put_f16(d, out);
    loops->bytes(x, inverse, 32, out + 2);
}

/* 2^(exponent - 128), as ggml's mxfp4 has it: subnormal for the exponents 0 and 1. */
static float half_power(int32_t exponent)
{
    return ldexpf(1.0f, exponent - 128);
}

static void encode_mxfp4(const float *x, const float *p, bool search, uint8_t *out)
{
    const mox_fit_loops *loops = mox_fit_loops_best();
    const mox_fit_run run = { x, p, 32, 0, 0 };
    const int32_t first = mox_scale_exponent(MOXIE_RULE_OCP_FLOOR, 6, fabsf(extreme_of(loops, x, 32))) + 127;
    float best = INFINITY;
    for (int32_t t = 0; t < (search ? 3 : 1); t++) {
        uint8_t code[32];
        const int32_t exponent = first + (t < 2 ? t : -1);
        if (exponent < 0 || exponent > 254)
            continue;
        const float d = half_power(exponent), error = loops->f4(&run, d, 1.0f / d, code);
        if (t > 0 && !(error < best))
            continue;
        best = error;
        out[0] = (uint8_t)exponent;
        for (int32_t i = 0; i < 16; i++)
            out[1 + i] = (uint8_t)(code[i] | code[16 + i] << 4);
    }
}

uint64_t mox_block_row_bytes(moxie_dtype dtype, int64_t count)
{
    const mox_block *block = mox_block_of(dtype);
    return block ? (uint64_t)(count / block->weights * block->bytes) : (uint64_t)(count * mox_dtype_bytes(dtype));
}

static void encode_blocks(moxie_dtype dtype, const float *w, const float *importance, int64_t count, bool search,
                          uint8_t *out)
{
    const mox_block *block = mox_block_of(dtype);
    const mox_block_fields *fields = mox_block_fields_of(dtype);
    const encoder e = fields ? encoder_of(fields, search) : (encoder) { 0 };
    for (int64_t i = 0; i < count; i += block->weights, out += block->bytes) {
        const float *p = importance ? importance + i : NULL;
        if (fields)
            encode_block(&e, w + i, p, out);
        else if (dtype == Q8_0)
            encode_q8_0(w + i, out);
        else
            encode_mxfp4(w + i, p, search, out);
    }
}

void mox_block_encode_row(moxie_dtype dtype, const float *w, const float *importance, int64_t count, bool search,
                          uint8_t *out)
{
    if (mox_is_block(dtype))
        encode_blocks(dtype, w, importance, count, search, out);
    else
        mox_narrow(dtype, w, out, count);
}
