/* SPDX-License-Identifier: Apache-2.0
 *
 * block_encoders.h - the families of block types that are encoded alike (block_encoders.def):
 *
 *     fields      types of format/block_fields.def: a scale, and a minimum, for each run   block_encode_fields.c
 *     few         one scale and three or four levels: tq1_0, tq2_0, q2_0   block_encode_few.c
 *     q8_0, mxfp4, nvfp4, q1_0   block_encode_plain.c
 *     books       entries of code books, with signs or shifts beside them: IQ1 to IQ3   block_encode_books.c
 */
#ifndef MOX_QUANT_BLOCK_ENCODERS_H
#define MOX_QUANT_BLOCK_ENCODERS_H

#include "format/block.h"
#include "quant/block_fit.h"

/* A row of weights and the blocks that are made of it, as mox_block_encode_row() has them. */
typedef struct mox_encode_row {
    const mox_block *block;
    const float *w, *importance;
    int64_t count;
    bool search;
    uint8_t *out;
} mox_encode_row;

void mox_encode_fields(const mox_encode_row *row);
void mox_encode_few(const mox_encode_row *row);
void mox_encode_q8_0(const mox_encode_row *row);
void mox_encode_mxfp4(const mox_encode_row *row);
void mox_encode_nvfp4(const mox_encode_row *row);
void mox_encode_q1_0(const mox_encode_row *row);
void mox_encode_books(const mox_encode_row *row);

/* Stores an f16, saturated, and returns it. */
static inline float mox_encode_f16(float value, uint8_t *out)
{
    const uint32_t code = mox_f16_encode(value);
    out[0] = (uint8_t)code;
    out[1] = (uint8_t)(code >> 8);
    return mox_f16_decode(code);
}

/* The weight of largest magnitude, the first of equals. */
static inline float mox_encode_extreme(const mox_fit_loops *loops, const float *x, int32_t count)
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

#endif
