/* SPDX-License-Identifier: Apache-2.0
 *
 * block_encode_plain.c - block types whose scales are no f16 times integers, or that have one code alone
 * (block_encode.h): q8_0, mxfp4, nvfp4, q1_0.
 */
#include <math.h>

#include "format/f8_e4m3.h"
#include "quant/block_encoders.h"
#include "quant/scale_rule.h"
#include "quant/weight_codes.h"

enum { Q8_0 = 32, MXFP4 = 32, NVFP4_RUN = 16, NVFP4 = 64, Q1_0 = 128 };

/* Importances from weight i of the row on, or NULL. */
static const float *importance_at(const mox_encode_row *row, int64_t i)
{
    return row->importance ? row->importance + i : NULL;
}

/* ---- q8_0 -------------------------------------------------------------------------------------------- */

void mox_encode_q8_0(const mox_encode_row *row)
{
    const mox_fit_loops *loops = mox_fit_loops_best();
    uint8_t *out = row->out;
    for (int64_t i = 0; i < row->count; i += Q8_0, out += row->block->bytes) {
        const float *x = row->w + i;
        const float d = fabsf(mox_encode_extreme(loops, x, Q8_0)) / 127, inverse = d != 0 ? 1.0f / d : 0;
        mox_encode_f16(d, out);
        loops->bytes(x, inverse, Q8_0, out + 2);
    }
}

/* ---- e2m1 -------------------------------------------------------------------------------------------- */

/* Codes of weight i in the low nibble of byte i, and of weight i + count / 2 in the high one. */
static void put_nibbles(const uint8_t *code, int32_t count, uint8_t *out)
{
    for (int32_t i = 0; i < count / 2; i++)
        out[i] = (uint8_t)(code[i] | code[count / 2 + i] << 4);
}

/* 2^(exponent - 128), as ggml's mxfp4 has it: subnormal for the exponents 0 and 1. */
static float half_power(int32_t exponent)
{
    return ldexpf(1.0f, exponent - 128);
}

static void encode_mxfp4(const mox_fit_loops *loops, const mox_fit_run *run, bool search, uint8_t *out)
{
    const float amax = fabsf(mox_encode_extreme(loops, run->x, run->count));
    const int32_t first = mox_scale_exponent(MOXIE_RULE_OCP_FLOOR, 6, amax) + 127;
    float best = INFINITY;
    for (int32_t t = 0; t < (search ? 3 : 1); t++) {
        uint8_t code[MXFP4];
        const int32_t exponent = first + (t < 2 ? t : -1);
        if (exponent < 0 || exponent > 254)
            continue;
        const float d = half_power(exponent), error = loops->f4(run, d, 1.0f / d, code);
        if (t > 0 && !(error < best))
            continue;
        best = error;
        out[0] = (uint8_t)exponent;
        put_nibbles(code, MXFP4, out + 1);
    }
}

void mox_encode_mxfp4(const mox_encode_row *row)
{
    const mox_fit_loops *loops = mox_fit_loops_best();
    uint8_t *out = row->out;
    for (int64_t i = 0; i < row->count; i += MXFP4, out += row->block->bytes) {
        const mox_fit_run run = { row->w + i, importance_at(row, i), MXFP4, 0, 0 };
        encode_mxfp4(loops, &run, row->search, out);
    }
}

/* The nearest e4m3, of equals the larger; below the least normal number at most the largest subnormal: as in ggml. */
static int32_t scale_code(float scale)
{
    const int32_t code = (int32_t)mox_f8_e4m3_encode(scale);
    const float middle = mox_block_half_ue4m3((uint32_t)code) + mox_block_half_ue4m3((uint32_t)code + 1);
    if (code == 8 && scale < 0x1p-6f)
        return 7;
    return code < 0x7e && scale == middle ? code + 1 : code;
}

/* Of the scale `first`, two below it and five above, the first with the least squared error. */
static int32_t best_scale(const mox_weight_loops *loops, const mox_weight_tries *element, const mox_fit_run *run,
                          int32_t first)
{
    const float *value = mox_format_table(MOXIE_F8_E4M3);
    mox_weight_tries tries = *element;
    double squares[MOX_FIT_TRIES] = { 0 };
    int32_t code[8], count = 0, best = 0;
    for (int32_t scale = first - 2; scale <= first + 5; scale++)
        if (scale > 0 && scale <= 0x7e) {
            tries.scale[count] = value[scale];
            tries.zero[count] = 0;
            code[count++] = scale;
        }
    mox_weight_tries_set(&tries, count);
    loops->tries(&tries, run->x, run->p, run->count, squares);
    for (int32_t t = 1; t < count; t++)
        best = squares[t] < squares[best] ? t : best;
    return code[best];
}

void mox_encode_nvfp4(const mox_encode_row *row)
{
    const mox_fit_loops *loops = mox_fit_loops_best();
    const mox_weight_loops *weights = mox_weight_loops_best();
    const mox_weight_tries element = mox_weight_tries_begin(mox_format_of(MOXIE_F4_E2M1), 0);
    uint8_t *out = row->out;
    for (int64_t i = 0; i < row->count; i += NVFP4, out += row->block->bytes)
        for (int32_t r = 0; r < NVFP4 / NVFP4_RUN; r++) {
            const int64_t from = i + r * NVFP4_RUN;
            const mox_fit_run run = { row->w + from, importance_at(row, from), NVFP4_RUN, 0, 0 };
            const float amax = fabsf(mox_encode_extreme(loops, run.x, NVFP4_RUN));
            int32_t scale = scale_code(amax / 6);
            uint8_t code[NVFP4_RUN] = { 0 };
            if (row->search && amax > 0)
                scale = best_scale(weights, &element, &run, scale);
            const float d = mox_format_table(MOXIE_F8_E4M3)[scale] / 2;
            if (d > 0)
                loops->f4(&run, d, 1.0f / d, code);
            out[r] = (uint8_t)scale;
            put_nibbles(code, NVFP4_RUN, out + 4 + 8 * r);
        }
}

/* ---- q1_0 -------------------------------------------------------------------------------------------- */

/* sum p |x| / sum p, which is the d of the least squared error. */
static float mean_magnitude(const float *x, const float *p, int32_t count)
{
    float sum[MOX_FIT_LANES] = { 0 }, weight[MOX_FIT_LANES] = { 0 };
    for (int32_t i = 0; i < count; i += MOX_FIT_LANES)
        for (int32_t j = 0; j < MOX_FIT_LANES; j++) {
            sum[j] += (p ? p[i + j] : 1) * fabsf(x[i + j]);
            weight[j] += p ? p[i + j] : 1;
        }
    return mox_fit_sum(sum) / mox_fit_sum(weight);
}

void mox_encode_q1_0(const mox_encode_row *row)
{
    uint8_t *out = row->out;
    for (int64_t i = 0; i < row->count; i += Q1_0, out += row->block->bytes) {
        const float *x = row->w + i;
        mox_encode_f16(mean_magnitude(x, row->search ? importance_at(row, i) : NULL, Q1_0), out);
        for (int32_t byte = 0; byte < Q1_0 / 8; byte++) {
            uint32_t bits = 0;
            for (int32_t j = 0; j < 8; j++)
                bits |= (uint32_t)(x[8 * byte + j] >= 0) << j;
            out[2 + byte] = (uint8_t)bits;
        }
    }
}
