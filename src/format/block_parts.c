/* SPDX-License-Identifier: Apache-2.0
 *
 * block_parts.c - takes blocks apart and puts them together (block_parts.h).
 */
#include "format/block_parts.h"

#include "format/block_rows.h"

#define MOX_BLOCK_FIELDS(id, ...) &mox_fields_##id,
static const mox_block_fields *const rows[] = {
#include "format/block_fields.def"
};
#undef MOX_BLOCK_FIELDS

enum { ROWS = sizeof rows / sizeof rows[0] };

const mox_block_fields *mox_block_fields_at(int32_t i)
{
    return i >= 0 && i < ROWS ? rows[i] : NULL;
}

const mox_block_fields *mox_block_fields_of(moxie_dtype dtype)
{
    for (int32_t i = 0; i < ROWS; i++)
        if (rows[i]->dtype == dtype)
            return rows[i];
    return NULL;
}

/* ---- codes ------------------------------------------------------------------------------------------------ */

/* Adds a field to the codes of a block of `weights`, `up` bits higher. */
static void get_codes(mox_block_field field, const uint8_t *block, int32_t weights, int32_t up, uint8_t *code)
{
    const int32_t stride = field.stride, per_byte = 8 / field.bits, mask = (1 << field.bits) - 1;
    const uint8_t *from = block + field.at;
    for (int32_t first = 0; first < weights; first += stride * per_byte, from += stride)
        for (int32_t f = 0; f < per_byte; f++)
            for (int32_t l = 0; l < stride; l++)
                code[first + f * stride + l] |= (uint8_t)((from[l] >> f * field.bits & mask) << up);
}

static void put_codes(mox_block_field field, const uint8_t *code, int32_t weights, int32_t up, uint8_t *block)
{
    const int32_t stride = field.stride, per_byte = 8 / field.bits, mask = (1 << field.bits) - 1;
    uint8_t *to = block + field.at;
    for (int32_t first = 0; first < weights; first += stride * per_byte, to += stride)
        for (int32_t f = 0; f < per_byte; f++)
            for (int32_t l = 0; l < stride; l++)
                to[l] |= (uint8_t)((code[first + f * stride + l] >> up & mask) << f * field.bits);
}

/* ---- integers of 6 bits ----------------------------------------------------------------------------------- */

static void put_six(uint8_t *bytes, mox_block_six at, uint8_t value)
{
    bytes[at.low] |= (uint8_t)((value & 15) << at.low_shift);
    bytes[at.high] |= (uint8_t)((value >> 4 & 3) << at.high_shift);
}

/* At most as many as the parts have room for: GCC does not know the rows. */
static int32_t runs_of(const mox_block_fields *f, int32_t weights)
{
    const int32_t runs = f->integers == MOX_BLOCK_NONE ? 0 : weights / f->run;
    return runs < MOX_BLOCK_RUNS ? runs : MOX_BLOCK_RUNS;
}

static void get_integers(const mox_block_fields *f, const uint8_t *bytes, int32_t runs, mox_block_parts *out)
{
    const uint8_t bias = f->integers == MOX_BLOCK_SIX_AND_SIX ? 0 : 32;
    if (f->integers == MOX_BLOCK_BYTES || f->integers == MOX_BLOCK_NIBBLES) {
        memcpy(out->s, bytes, (size_t)runs);
        return;
    }
    for (int32_t i = 0; i < runs; i++)
        out->s[i] = (uint8_t)(mox_block_get_six(bytes, mox_block_six_at(f->integers, i, false)) - bias);
    for (int32_t i = 0; i < runs && mox_block_has_minimum_integers(f->integers); i++)
        out->t[i] = (uint8_t)mox_block_get_six(bytes, mox_block_six_at(f->integers, i, true));
}

static void put_integers(const mox_block_fields *f, const mox_block_parts *parts, int32_t runs, uint8_t *bytes)
{
    const uint8_t bias = f->integers == MOX_BLOCK_SIX_AND_SIX ? 0 : 32;
    if (f->integers == MOX_BLOCK_BYTES || f->integers == MOX_BLOCK_NIBBLES) {
        memcpy(bytes, parts->s, (size_t)runs);
        return;
    }
    for (int32_t i = 0; i < runs; i++)
        put_six(bytes, mox_block_six_at(f->integers, i, false), (uint8_t)(parts->s[i] + bias));
    for (int32_t i = 0; i < runs && mox_block_has_minimum_integers(f->integers); i++)
        put_six(bytes, mox_block_six_at(f->integers, i, true), parts->t[i]);
}

/* ---- blocks ------------------------------------------------------------------------------------------------ */

void mox_block_split(const mox_block_fields *fields, const uint8_t *block, mox_block_parts *out)
{
    const int32_t weights = mox_block_of(fields->dtype)->weights;
    *out = (mox_block_parts) { .d = { block[fields->d_at], block[fields->d_at + 1] } };
    get_codes(fields->low, block, weights, 0, out->code);
    if (fields->high.bits > 0)
        get_codes(fields->high, block, weights, fields->low.bits, out->code);
    get_integers(fields, block + fields->at, runs_of(fields, weights), out);
    if (fields->m_at >= 0)
        memcpy(out->m, block + fields->m_at, sizeof out->m);
}

void mox_block_join(const mox_block_fields *fields, const mox_block_parts *parts, uint8_t *block)
{
    const mox_block *type = mox_block_of(fields->dtype);
    memset(block, 0, (size_t)type->bytes);
    memcpy(block + fields->d_at, parts->d, sizeof parts->d);
    put_codes(fields->low, parts->code, type->weights, 0, block);
    if (fields->high.bits > 0)
        put_codes(fields->high, parts->code, type->weights, fields->low.bits, block);
    put_integers(fields, parts, runs_of(fields, type->weights), block + fields->at);
    if (fields->m_at >= 0)
        memcpy(block + fields->m_at, parts->m, sizeof parts->m);
}
