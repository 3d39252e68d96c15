/* SPDX-License-Identifier: Apache-2.0
 *
 * act_row.c - quantized rows to and from the form in which they travel (act_row.h).
 */
#include "quant/act_row.h"

#include <string.h>

#include "base/sizes.h"
#include "format/format.h"

static int64_t code_bytes(const moxie_quant *quant, int64_t cols)
{
    return mox_ceil_div(cols * mox_dtype_bits(quant->element), 8);
}

int64_t mox_act_row_bytes(const moxie_quant *quant, int64_t cols)
{
    return code_bytes(quant, cols) + mox_scale_cols(quant, cols) * mox_dtype_bytes(quant->scale);
}

/* Codes of fewer than 8 bits, one after the other. */
static void pack(const uint8_t *codes, int64_t count, int bits, uint8_t *out)
{
    uint32_t word = 0;
    int held = 0;
    for (int64_t i = 0; i < count; i++) {
        word |= (uint32_t)(codes[i] & ((1u << bits) - 1)) << held;
        for (held += bits; held >= 8; held -= 8, word >>= 8)
            *out++ = (uint8_t)word;
    }
    if (held > 0)
        *out = (uint8_t)word;
}

static void unpack(const uint8_t *in, int64_t count, int bits, uint8_t *codes)
{
    uint32_t word = 0;
    int held = 0;
    for (int64_t i = 0; i < count; i++) {
        if (held < bits) {
            word |= (uint32_t)*in++ << held;
            held += 8;
        }
        codes[i] = (uint8_t)(word & ((1u << bits) - 1));
        word >>= bits;
        held -= bits;
    }
}

/* Codes of scales, of one byte or two. */
static void put_scale(uint32_t code, int64_t bytes, uint8_t *to)
{
    to[0] = (uint8_t)code;
    if (bytes > 1)
        to[1] = (uint8_t)(code >> 8);
}

static uint32_t get_scale(int64_t bytes, const uint8_t *from)
{
    return bytes > 1 ? from[0] | (uint32_t)from[1] << 8 : from[0];
}

void mox_act_row_store(const moxie_quant *quant, const uint8_t *codes, const float *scales, int64_t cols, void *row)
{
    const int64_t groups = mox_scale_cols(quant, cols), bytes = code_bytes(quant, cols);
    uint8_t *to = (uint8_t *)row + bytes;
    if (mox_dtype_bits(quant->element) == 8)
        memcpy(row, codes, (size_t)cols);
    else
        pack(codes, cols, mox_dtype_bits(quant->element), row);
    if (quant->scale == MOXIE_F32)
        memcpy(to, scales, (size_t)groups * sizeof *scales);
    else
        for (int64_t g = 0; g < groups; g++, to += mox_dtype_bytes(quant->scale))
            put_scale(mox_format_encode(quant->scale, scales[g]), mox_dtype_bytes(quant->scale), to);
}

void mox_act_row_load(const moxie_quant *quant, const void *row, int64_t cols, uint8_t *codes, float *scales)
{
    const int64_t groups = mox_scale_cols(quant, cols), bytes = code_bytes(quant, cols);
    const uint8_t *from = (const uint8_t *)row + bytes;
    if (mox_dtype_bits(quant->element) == 8)
        memcpy(codes, row, (size_t)cols);
    else
        unpack(row, cols, mox_dtype_bits(quant->element), codes);
    if (quant->scale == MOXIE_F32)
        memcpy(scales, from, (size_t)groups * sizeof *scales);
    else
        for (int64_t g = 0; g < groups; g++, from += mox_dtype_bytes(quant->scale))
            scales[g] = mox_format_decode(quant->scale, get_scale(mox_dtype_bytes(quant->scale), from));
}
