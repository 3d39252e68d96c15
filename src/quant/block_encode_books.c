/* SPDX-License-Identifier: Apache-2.0
 *
 * block_encode_books.c - makes blocks of code books (block_books.h):
 *
 *     weights -> magnitudes, signs -> the scale of each run -> d, s of each run -> entries under d unit (2 s + 1)
 *             -> d by least squares -> bytes
 *
 * PLAIN: a run's largest magnitude is the largest level. MSE: of several scales the one whose entries leave the least
 * squared error; then s and its neighbours. Where an even number of signs is stored, and the weights have an odd one,
 * the weight of least p w w counts as one of the other sign.
 */
#include <math.h>

#include "quant/block_books.h"
#include "quant/block_encoders.h"

enum { RUN = 32, GROUP = 8 };
/* Where a run's scale is no farther from d unit (2 s + 1) than this, in d unit, no other s is tried. */
static const float near_units = 0.4f;
/* The second scale of a run of 16 weights is not tried where it is nearer to the first than this, relative. Encoding is
 * 3 to 10 % faster; errors grow by 0.4 to 0.6 %. */
static const float same_scale = 0.125f;

typedef struct encoder {
    const mox_book_type *type;
    const mox_code_book *book;
    const mox_fit_loops *loops;
    bool search;
    float top; /* the largest level */
} encoder;

/* A block's weights, without signs where those are apart, and their importances. */
typedef struct values {
    const float *a, *p;
} values;

/* Scales and shifts of all runs, and the largest scale. */
typedef struct fits {
    float scale[16], largest;
    uint8_t down[16][RUN / GROUP];
} fits;

/* What was chosen for a run. */
typedef struct picked {
    uint32_t word[RUN / 4];
    uint8_t down[RUN / GROUP];
    mox_book_sums sums;
} picked;

/* ---- entries under a scale --------------------------------------------------------------------------- */

static mox_book_sums search(const encoder *e, const values *v, int32_t first, int32_t count, int32_t down, float scale,
                            uint32_t *words)
{
    const mox_book_run run = { e->book, e->type->levels + down, v->a + first, v->p + first, count };
    return e->loops->book(&run, scale, words);
}

/* A run of one shift: that which is known, or else the better one. */
static void pick_shift(const encoder *e, const values *v, int32_t r, float scale, const uint8_t *known, picked *out)
{
    const int32_t run = e->type->run;
    uint32_t other[RUN / 4];
    uint8_t down = known ? *known : 0;
    out->sums = search(e, v, r * run, run, down, scale, out->word);
    if (!known) {
        const mox_book_sums lower = search(e, v, r * run, run, 1, scale, other);
        if (lower.cost < out->sums.cost) {
            memcpy(out->word, other, sizeof other);
            out->sums = lower;
            down = 1;
        }
    }
    memset(out->down, down, sizeof out->down);
}

/* `known`: shifts, or NULL. */
static void pick(const encoder *e, const values *v, int32_t r, float scale, const uint8_t *known, picked *out)
{
    const int32_t run = e->type->run, shift = e->type->shift;
    const mox_book_run whole = { e->book, e->type->levels, v->a + r * run, v->p + r * run, run };
    *out = (picked) { .down = { 0 } };
    if (shift == 0)
        out->sums = e->loops->book(&whole, scale, out->word);
    else if (shift == GROUP)
        out->sums = e->loops->shifted(&whole, scale, known, out->word, out->down);
    else
        pick_shift(e, v, r, scale, known, out);
}

/* ---- the scale of a run ------------------------------------------------------------------------------ */

/* Root of the mean p a a. */
static float rms_of(const float *a, const float *p, int32_t count)
{
    float square[MOX_FIT_LANES] = { 0 }, weight[MOX_FIT_LANES] = { 0 };
    for (int32_t i = 0; i < count; i += MOX_FIT_LANES)
        for (int32_t j = 0; j < MOX_FIT_LANES; j++) {
            square[j] += p[i + j] * a[i + j] * a[i + j];
            weight[j] += p[i + j];
        }
    return sqrtf(mox_fit_sum(square) / mox_fit_sum(weight));
}

/* The scale of the least squared error, of several: largest weights that become the largest level. `down`: shifts under
 * it. */
static float fit_run(const encoder *e, const values *v, int32_t r, uint8_t *down)
{
    static const float by_largest[] = { 1 }, by_rms[] = { 1.95f };
    enum { LARGEST = sizeof by_largest / sizeof by_largest[0], TRIES = LARGEST + sizeof by_rms / sizeof by_rms[0] };
    const int32_t run = e->type->run;
    const float *a = v->a + r * run, amax = fabsf(mox_encode_extreme(e->loops, a, run));
    if (!e->search || amax == 0)
        return amax / e->top;
    const float rms = rms_of(a, v->p + r * run, run);
    const bool alike = run < RUN && fabsf(rms * by_rms[0] - amax) < same_scale * amax;
    float best = amax / e->top;
    double gain = 0;
    for (int32_t t = 0; t < (alike ? (int32_t)LARGEST : (int32_t)TRIES); t++) {
        const float scale = (t < (int32_t)LARGEST ? amax * by_largest[t] : rms * by_rms[t - (int32_t)LARGEST]) / e->top;
        picked found;
        pick(e, v, r, scale, NULL, &found);
        const double ga = (double)found.sums.ga, gg = (double)found.sums.gg;
        if (ga > 0 && ga * ga > gain * gg) {
            gain = ga * ga / gg;
            best = (float)(ga / gg);
            memcpy(down, found.down, sizeof found.down);
        }
    }
    return best;
}

/* ---- blocks ------------------------------------------------------------------------------------------ */

/* Integer s nearest to a scale, in units of d unit. */
static int32_t integer_of(const encoder *e, float units)
{
    return (int32_t)mox_fit_clamp(mox_fit_nearest((units - 1) * 0.5f), 0, (float)e->type->highest);
}

static void put_entries(const encoder *e, int32_t r, int32_t s, const picked *best, mox_book_parts *parts)
{
    const int32_t words = e->type->run / (e->book->bits == 2 ? 8 : 4), groups = e->type->run / GROUP;
    parts->s[r] = (uint8_t)s;
    for (int32_t i = 0; i < words; i++)
        parts->entry[words * r + i] = (uint16_t)(best->word[i] >> 16);
    for (int32_t g = 0; g < groups; g++)
        parts->down[groups * r + g] = best->down[g];
}

/* Entries of a run, and its s: that nearest to `scale`, or the one on its other side. */
static mox_book_sums put_run(const encoder *e, const values *v, int32_t r, float scale, const uint8_t *down, float step,
                             mox_book_parts *parts)
{
    const float units = scale / step;
    const int32_t s = integer_of(e, units), other = units > (float)(2 * s + 1) ? s + 1 : s - 1;
    picked best, found;
    pick(e, v, r, step * (float)(2 * s + 1), e->search ? down : NULL, &best);
    put_entries(e, r, s, &best, parts);
    if (!e->search || other < 0 || other > e->type->highest || fabsf(units - (float)(2 * s + 1)) < near_units)
        return best.sums;
    pick(e, v, r, step * (float)(2 * other + 1), down, &found);
    if (!(found.sums.cost < best.sums.cost))
        return best.sums;
    put_entries(e, r, other, &found, parts);
    return found.sums;
}

static void put_runs(const encoder *e, const values *v, const fits *fit, mox_book_parts *parts)
{
    const float top = (float)(2 * e->type->highest + 1);
    const float step = mox_encode_f16(fit->largest / (e->type->unit * top), parts->d) * e->type->unit;
    double ga = 0, gg = 0;
    if (!(step > 0))
        return;
    for (int32_t r = 0; r < MOX_BLOCK_MAX / e->type->run; r++) {
        const mox_book_sums sums = put_run(e, v, r, fit->scale[r], fit->down[r], step, parts);
        const double k = 2.0 * parts->s[r] + 1;
        ga += k * (double)sums.ga;
        gg += k * k * (double)sums.gg;
    }
    if (e->search && ga > 0 && (float)(ga / gg) > 0)
        mox_encode_f16((float)(ga / gg) / e->type->unit, parts->d);
}

static void encode_block(const encoder *e, const float *x, const float *p, uint8_t *out)
{
    mox_book_parts parts = { .d = { 0 } };
    float magnitude[MOX_BLOCK_MAX];
    fits fit = { .largest = 0 };
    values v = { x, p };
    if (e->type->signs != MOX_BOOK_NO_SIGNS) {
        e->loops->signs(x, p, MOX_BLOCK_MAX, e->type->signs == MOX_BOOK_EVEN_SIGNS, magnitude, parts.sign);
        v.a = magnitude;
    }
    for (int32_t r = 0; r < MOX_BLOCK_MAX / e->type->run; r++) {
        fit.scale[r] = fit_run(e, &v, r, fit.down[r]);
        fit.largest = fit.scale[r] > fit.largest ? fit.scale[r] : fit.largest;
    }
    put_runs(e, &v, &fit, &parts);
    e->type->put(&parts, out);
}

void mox_encode_books(const mox_encode_row *row)
{
    encoder e = { mox_book_type_of(row->block->format.dtype), NULL, mox_fit_loops_best(), row->search, 0 };
    e.book = mox_code_book_of(e.type->book);
    e.top = e.type->levels->level[e.book->bits == 2 ? 2 : 7];
    float ones[MOX_BLOCK_MAX];
    for (int32_t i = 0; i < MOX_BLOCK_MAX; i++)
        ones[i] = 1;
    uint8_t *out = row->out;
    for (int64_t i = 0; i < row->count; i += MOX_BLOCK_MAX, out += row->block->bytes)
        encode_block(&e, row->w + i, row->importance ? row->importance + i : ones, out);
}
