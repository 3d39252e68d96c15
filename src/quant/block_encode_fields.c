/* SPDX-License-Identifier: Apache-2.0
 *
 * block_encode_fields.c - makes blocks of the types of format/block_fields.def (block_encode.h); all follow from their
 * rows.
 */
#include <math.h>

#include "format/block_parts.h"
#include "quant/block_encoders.h"

/* What is known of a type with fields. */
typedef struct encoder {
    const mox_block_fields *fields;
    const mox_fit_loops *loops;
    int32_t weights, runs, run; /* of a block; weights of a run */
    float lowest, highest;      /* integers that a weight is a multiple of */
    float s_lowest, s_highest;  /* integers of runs; 0: there are none */
    bool has_minimum, free_sign, levels, search;
} encoder;

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

/* The extreme becomes the lowest integer, since there is one more below 0 than above, or nearly. */
static mox_fit fit_scaled(const encoder *e, const mox_fit_run *run)
{
    const float extreme = mox_encode_extreme(e->loops, run->x, run->count);
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

/* A fit comes of small differences between sums in f32, of which nothing is left where one importance is ten million
 * times the others. So it is compared, weight by weight, with the scales that were tried; far from all of them it is
 * none. */
static mox_fit no_worse_than_tries(const encoder *e, const mox_fit_run *run, const float *inverse, float low,
                                   mox_fit fit)
{
    float d[MOX_FIT_TRIES], m[MOX_FIT_TRIES];
    for (int32_t t = 0; t < MOX_FIT_TRIES; t++) {
        d[t] = 1.0f / inverse[t];
        m[t] = low;
    }
    if (fit.d <= 2 * d[0] && fit.m >= low - 2 * e->highest * d[0]) {
        d[0] = fit.d;
        m[0] = fit.m;
    }
    const int best = e->loops->choose(run, d, m);
    return (mox_fit) { d[best], m[best] };
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
    const mox_fit fit = e->loops->minimum(run, inverse, low, e->free_sign);
    return run->p ? no_worse_than_tries(e, run, inverse, low, fit) : fit;
}

/* ---- integers of runs -------------------------------------------------------------------------------- */

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
    const float d = mox_encode_f16(extreme / end, parts->d);
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
    const float m = mox_encode_f16(-lowest / e->s_highest, parts->m);
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
    mox_encode_f16(fit.d, parts->d);
    if (e->has_minimum)
        mox_encode_f16(fit.m, parts->m);
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
        fit[0].d = mox_encode_f16(fit[0].d, parts.d);
        fit[0].m = e->has_minimum ? mox_encode_f16(fit[0].m, parts.m) : 0;
        put_codes(e, x, fit, &parts);
    }
    mox_block_join(e->fields, &parts, out);
}

void mox_encode_fields(const mox_encode_row *row)
{
    const encoder e = encoder_of(mox_block_fields_of(row->block->format.dtype), row->search);
    uint8_t *out = row->out;
    for (int64_t i = 0; i < row->count; i += e.weights, out += row->block->bytes)
        encode_block(&e, row->w + i, row->importance ? row->importance + i : NULL, out);
}
