/* SPDX-License-Identifier: Apache-2.0
 *
 * block_books.c - the types of code books and the bytes of their blocks (block_books.h), the inverse of the decoders of
 * format/block_levels.h.
 */
#include "quant/block_books.h"

static void put_u16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static void put_u32(uint8_t *at, uint32_t value)
{
    put_u16(at, value);
    put_u16(at + 2, value >> 16);
}

static void put_nibbles(const uint8_t *value, int32_t count, uint8_t *out)
{
    for (int32_t i = 0; i < count; i += 2)
        out[i / 2] = (uint8_t)(value[i] | value[i + 1] << 4);
}

/* Four times seven signs, and s. */
static uint32_t signs_and_scale(const mox_book_parts *parts, int32_t run)
{
    uint32_t word = (uint32_t)parts->s[run] << 28;
    for (int32_t l = 0; l < 4; l++)
        word |= (uint32_t)(parts->sign[4 * run + l] & 127) << 7 * l;
    return word;
}

static void put_iq2_xxs(const mox_book_parts *parts, uint8_t *out)
{
    memcpy(out, parts->d, 2);
    for (int32_t run = 0; run < 8; run++) {
        for (int32_t l = 0; l < 4; l++)
            out[2 + 8 * run + l] = (uint8_t)parts->entry[4 * run + l];
        put_u32(out + 2 + 8 * run + 4, signs_and_scale(parts, run));
    }
}

static void put_iq2_xs(const mox_book_parts *parts, uint8_t *out)
{
    memcpy(out, parts->d, 2);
    for (int32_t g = 0; g < 32; g++)
        put_u16(out + 2 + 2 * g, parts->entry[g] | (uint32_t)(parts->sign[g] & 127) << 9);
    put_nibbles(parts->s, 16, out + 66);
}

static void put_iq2_s(const mox_book_parts *parts, uint8_t *out)
{
    memset(out, 0, 82);
    memcpy(out, parts->d, 2);
    for (int32_t g = 0; g < 32; g++) {
        out[2 + g] = (uint8_t)parts->entry[g];
        out[34 + g] = parts->sign[g];
        out[66 + g / 4] |= (uint8_t)(parts->entry[g] >> 8 << 2 * (g % 4));
    }
    put_nibbles(parts->s, 16, out + 74);
}

static void put_iq3_xxs(const mox_book_parts *parts, uint8_t *out)
{
    memcpy(out, parts->d, 2);
    for (int32_t i = 0; i < 64; i++)
        out[2 + i] = (uint8_t)parts->entry[i];
    for (int32_t run = 0; run < 8; run++)
        put_u32(out + 66 + 4 * run, signs_and_scale(parts, run));
}

static void put_iq3_s(const mox_book_parts *parts, uint8_t *out)
{
    memset(out, 0, 110);
    memcpy(out, parts->d, 2);
    for (int32_t i = 0; i < 64; i++) {
        out[2 + i] = (uint8_t)parts->entry[i];
        out[66 + i / 8] |= (uint8_t)(parts->entry[i] >> 8 << i % 8);
    }
    memcpy(out + 74, parts->sign, 32);
    put_nibbles(parts->s, 8, out + 106);
}

static void put_iq1_s(const mox_book_parts *parts, uint8_t *out)
{
    memcpy(out, parts->d, 2);
    for (int32_t run = 0; run < 8; run++) {
        uint32_t word = (uint32_t)parts->s[run] << 12 | (uint32_t)parts->down[4 * run] << 15;
        for (int32_t l = 0; l < 4; l++) {
            out[2 + 4 * run + l] = (uint8_t)parts->entry[4 * run + l];
            word |= (uint32_t)(parts->entry[4 * run + l] >> 8) << 3 * l;
        }
        put_u16(out + 34 + 2 * run, word);
    }
}

static void put_iq1_m(const mox_book_parts *parts, uint8_t *out)
{
    uint8_t high[32];
    for (int32_t g = 0; g < 32; g++) {
        out[g] = (uint8_t)parts->entry[g];
        high[g] = (uint8_t)(parts->entry[g] >> 8 | parts->down[g] << 3);
    }
    put_nibbles(high, 32, out + 32);
    for (int32_t w = 0; w < 4; w++) {
        uint32_t word = (mox_block_u16(parts->d) >> 4 * w & 15) << 12;
        for (int32_t i = 0; i < 4; i++)
            word |= (uint32_t)parts->s[4 * w + i] << 3 * i;
        put_u16(out + 48 + 2 * w, word);
    }
}

/* `unit` and `offset` cut near the middles between levels. */
static const mox_book_levels iq2[] = { { { 8, 25, 43 }, 1.0f / 17, 0 } };
static const mox_book_levels iq3_xxs[] = { { { 4, 12, 20, 28, 36, 44, 52, 62 }, 0.125f, 0 } };
static const mox_book_levels iq3_s[] = { { { 1, 3, 5, 7, 9, 11, 13, 15 }, 0.5f, 0 } };
static const mox_book_levels iq1[] = { { { -7, 1, 9 }, 0.125f, 1.375f }, { { -9, -1, 7 }, 0.125f, 1.625f } };

static const mox_book_type types[] = {
    { MOX_BLOCK_DTYPE + 16, MOX_BOOK_IQ2_XXS, MOX_BOOK_EVEN_SIGNS, 32, 15, 0.125f, iq2, 0, put_iq2_xxs },
    { MOX_BLOCK_DTYPE + 17, MOX_BOOK_IQ2_XS, MOX_BOOK_EVEN_SIGNS, 16, 15, 0.125f, iq2, 0, put_iq2_xs },
    { MOX_BLOCK_DTYPE + 22, MOX_BOOK_IQ2_S, MOX_BOOK_ALL_SIGNS, 16, 15, 0.125f, iq2, 0, put_iq2_s },
    { MOX_BLOCK_DTYPE + 18, MOX_BOOK_IQ3_XXS, MOX_BOOK_EVEN_SIGNS, 32, 15, 0.25f, iq3_xxs, 0, put_iq3_xxs },
    { MOX_BLOCK_DTYPE + 21, MOX_BOOK_IQ3_S, MOX_BOOK_ALL_SIGNS, 32, 15, 1, iq3_s, 0, put_iq3_s },
    { MOX_BLOCK_DTYPE + 19, MOX_BOOK_IQ1, MOX_BOOK_NO_SIGNS, 32, 7, 0.125f, iq1, 32, put_iq1_s },
    { MOX_BLOCK_DTYPE + 29, MOX_BOOK_IQ1, MOX_BOOK_NO_SIGNS, 16, 7, 0.125f, iq1, 8, put_iq1_m },
};

const mox_book_type *mox_book_type_of(moxie_dtype dtype)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].dtype == dtype)
            return &types[i];
    return NULL;
}
