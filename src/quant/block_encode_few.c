/* SPDX-License-Identifier: Apache-2.0
 *
 * block_encode_few.c - block types with one scale and three or four levels (block_encode.h):
 *
 *     tq1_0, tq2_0   w ~ d l   l in -1, 0, 1         256 weights
 *     q2_0           w ~ d l   l in -1, 0, 1, 2      64 weights; d may be negative
 *
 * PLAIN takes d = amax, as ggml does, which suits weights that have such levels and few others. MSE tries that and
 * multiples of the mean magnitude: of normal weights amax is more than twice the best d.
 */
#include <math.h>

#include "format/block_parts.h"
#include "quant/block_encoders.h"

typedef struct few {
    moxie_dtype dtype;
    float highest; /* level; the lowest is -1 */
    void (*put)(const mox_block *block, const uint8_t *d, const uint8_t *code, uint8_t *out);
} few;

/* ---- bytes of a block -------------------------------------------------------------------------------- */

static void put_fields(const mox_block *block, const uint8_t *d, const uint8_t *code, uint8_t *out)
{
    mox_block_parts parts = { .m = { 0 } };
    memcpy(parts.d, d, sizeof parts.d);
    memcpy(parts.code, code, (size_t)block->weights);
    mox_block_join(mox_block_fields_of(block->format.dtype), &parts, out);
}

/* `digits` digits to base 3 of each byte, the first the highest: code[stride n + i] is digit n of byte i. */
static void put_digits(const uint8_t *code, int32_t stride, int32_t digits, uint8_t *out)
{
    for (int32_t i = 0; i < stride; i++) {
        uint32_t value = 0;
        for (int32_t n = 0; n < 5; n++)
            value = 3 * value + (n < digits ? code[stride * n + i] : 0);
        out[i] = (uint8_t)((value * 256 + 242) / 243); /* the least byte whose fraction begins with these digits */
    }
}

static void put_tq1_0(const mox_block *block, const uint8_t *d, const uint8_t *code, uint8_t *out)
{
    (void)block;
    put_digits(code, 32, 5, out);
    put_digits(code + 160, 16, 5, out + 32);
    put_digits(code + 240, 4, 4, out + 48);
    memcpy(out + 52, d, 2);
}

static const few types[] = {
    { MOX_BLOCK_DTYPE + 34, 1, put_tq1_0 },
    { MOX_BLOCK_DTYPE + 35, 1, put_fields },
    { MOX_BLOCK_DTYPE + 42, 2, put_fields },
};

/* ---- the scale --------------------------------------------------------------------------------------- */

static float mean_magnitude(const mox_fit_run *run)
{
    float sum[MOX_FIT_LANES] = { 0 };
    for (int32_t i = 0; i < run->count; i += MOX_FIT_LANES)
        for (int32_t j = 0; j < MOX_FIT_LANES; j++)
            sum[j] += fabsf(run->x[i + j]);
    return mox_fit_sum(sum) / (float)run->count;
}

/* Inverses of the scales to try; amax > 0. */
static void set_tries(const mox_fit_run *run, float amax, float *inverse)
{
    const float mean = mean_magnitude(run);
    if (run->highest == 1) {
        inverse[0] = 1 / amax;
        for (int32_t t = 1; t < MOX_FIT_TRIES; t++)
            inverse[t] = 1 / (mean * (0.8f + 0.1f * (float)t));
        return;
    }
    inverse[0] = 1 / amax;
    inverse[1] = 2 / amax;
    for (int32_t t = 2; t < MOX_FIT_TRIES / 2; t++)
        inverse[t] = 1 / (mean * (0.35f + 0.25f * (float)t));
    for (int32_t t = 0; t < MOX_FIT_TRIES / 2; t++)
        inverse[MOX_FIT_TRIES / 2 + t] = -inverse[t];
}

static void encode_few(const few *type, const mox_encode_row *row, const mox_fit_loops *loops, int64_t i, uint8_t *out)
{
    const mox_fit_run run = { row->w + i, row->importance ? row->importance + i : NULL, row->block->weights, -1,
                              type->highest };
    const float amax = fabsf(mox_encode_extreme(loops, run.x, run.count));
    float inverse[MOX_FIT_TRIES];
    uint8_t code[MOX_BLOCK_MAX], d[2];
    if (row->search && amax > 0) {
        set_tries(&run, amax, inverse);
        const float rounded = mox_encode_f16(loops->symmetric(&run, inverse).d, d);
        loops->codes(&run, rounded != 0 ? 1 / rounded : 0, 0, code);
    } else {
        mox_encode_f16(amax, d);
        loops->bytes(run.x, amax > 0 ? 1 / amax : 0, run.count, code);
        for (int32_t j = 0; j < run.count; j++)
            code[j]++;
    }
    type->put(row->block, d, code, out);
}

void mox_encode_few(const mox_encode_row *row)
{
    const mox_fit_loops *loops = mox_fit_loops_best();
    const few *type = types;
    while (type->dtype != row->block->format.dtype)
        type++;
    uint8_t *out = row->out;
    for (int64_t i = 0; i < row->count; i += row->block->weights, out += row->block->bytes)
        encode_few(type, row, loops, i, out);
}
