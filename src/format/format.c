/* SPDX-License-Identifier: Apache-2.0
 *
 * format.c - what is made from formats.def: lookup by number and by name, value tables, and conversion of arrays
 * of floats to and from f32.
 *
 * Lookups by number are switches made from the list. Two rows, or a row and a container, with the same
 * number do not compile.
 */
#include "format/format.h"

#include <math.h>

#include <pthread.h>

#include "format/block.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements in memory are read as little-endian codes");

/* Dtypes of tensors in files that are no number formats: CONTAINER(dtype, name, bits). */
#define MOX_CONTAINERS(CONTAINER)                                                                                      \
    CONTAINER(MOXIE_U8, "u8", 8)                                                                                       \
    CONTAINER(MOXIE_I16, "i16", 16)                                                                                    \
    CONTAINER(MOXIE_U16, "u16", 16)                                                                                    \
    CONTAINER(MOXIE_I32, "i32", 32)                                                                                    \
    CONTAINER(MOXIE_U32, "u32", 32)                                                                                    \
    CONTAINER(MOXIE_I64, "i64", 64)                                                                                    \
    CONTAINER(MOXIE_U64, "u64", 64)                                                                                    \
    CONTAINER(MOXIE_F64, "f64", 64)                                                                                    \
    CONTAINER(MOXIE_BOOL, "bool", 8)

enum {
#define MOX_FORMAT(id, ...) ROW_##id,
#include "format/formats.def"
#undef MOX_FORMAT
    ROW_COUNT
};

static const mox_format rows[ROW_COUNT] = {
#define MOX_FORMAT(id, dtype, name, bits, kind, max, min_normal, emax, has_nan, has_inf)                               \
    { dtype, name, bits, kind, max, min_normal, emax, has_nan, has_inf, mox_##id##_decode, mox_##id##_encode },
#include "format/formats.def"
#undef MOX_FORMAT
};

static float tables[ROW_COUNT][256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void fill_tables(void)
{
    for (int32_t row = 0; row < ROW_COUNT; row++) {
        for (uint32_t code = 0; rows[row].bits <= 8 && code < 256; code++)
            tables[row][code] = rows[row].decode(code);
    }
}

const mox_format *mox_format_of(moxie_dtype dtype)
{
    switch (dtype) {
#define MOX_FORMAT(id, number, ...)                                                                                    \
    case number:                                                                                                       \
        return &rows[ROW_##id];
#include "format/formats.def"
#undef MOX_FORMAT
    default: return mox_is_block(dtype) ? &mox_block_of(dtype)->format : NULL;
    }
}

const mox_format *mox_format_at(int32_t i)
{
    return i >= 0 && i < ROW_COUNT ? &rows[i] : NULL;
}

const mox_format *mox_format_by_name(const char *name)
{
    for (int32_t i = 0; name && i < ROW_COUNT; i++) {
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    }
    return NULL;
}

const float *mox_format_table(moxie_dtype dtype)
{
    const mox_format *format = mox_format_of(dtype);
    if (!format || format->bits > 8)
        return NULL;
    pthread_once(&tables_once, fill_tables);
    return tables[format - rows];
}

float mox_format_decode(moxie_dtype dtype, uint32_t code)
{
    const mox_format *format = mox_format_of(dtype);
    return format ? format->decode(code) : mox_f32_decode(MOX_F32_NAN);
}

uint32_t mox_format_encode(moxie_dtype dtype, float value)
{
    const mox_format *format = mox_format_of(dtype);
    return format ? format->encode(value) : 0;
}

const char *mox_dtype_name(moxie_dtype dtype)
{
    switch (dtype) {
#define MOX_FORMAT(id, number, name, ...)                                                                              \
    case number:                                                                                                       \
        return name;
#include "format/formats.def"
#undef MOX_FORMAT
#define NAME_CASE(number, name, bits)                                                                                  \
    case number: return name;
        MOX_CONTAINERS(NAME_CASE)
#undef NAME_CASE
    default: return mox_is_block(dtype) ? mox_block_of(dtype)->format.name : "?";
    }
}

moxie_dtype mox_dtype_from_name(const char *name)
{
#define NAME_ROW(number, text, bits) { number, text },
    static const struct {
        moxie_dtype dtype;
        const char *name;
    } containers[] = { MOX_CONTAINERS(NAME_ROW) };
#undef NAME_ROW
    const mox_format *format = mox_format_by_name(name);
    if (format)
        return format->dtype;
    for (size_t i = 0; name && i < sizeof containers / sizeof *containers; i++) {
        if (strcmp(containers[i].name, name) == 0)
            return containers[i].dtype;
    }
    for (int32_t i = 0; name && mox_block_at(i); i++)
        if (strcmp(mox_block_at(i)->format.name, name) == 0)
            return mox_block_at(i)->format.dtype;
    return MOXIE_DTYPE_NONE;
}

int32_t mox_dtype_bits(moxie_dtype dtype)
{
    switch (dtype) {
#define MOX_FORMAT(id, number, name, bits, ...)                                                                        \
    case number:                                                                                                       \
        return bits;
#include "format/formats.def"
#undef MOX_FORMAT
#define BITS_CASE(number, name, bits)                                                                                  \
    case number: return bits;
        MOX_CONTAINERS(BITS_CASE)
#undef BITS_CASE
    default: return mox_is_block(dtype) ? 32 : 0; /* of a code: a block's bytes belong to no single weight */
    }
}

int32_t mox_dtype_bytes(moxie_dtype dtype)
{
    const int32_t bits = mox_dtype_bits(dtype);
    return bits % 8 == 0 ? bits / 8 : 0;
}

float mox_load(moxie_dtype dtype, const void *address)
{
    const mox_format *format = mox_format_of(dtype);
    uint32_t code = 0;
    if (!format || format->bits % 8 != 0)
        return mox_f32_decode(MOX_F32_NAN);
    memcpy(&code, address, (size_t)format->bits / 8);
    return format->decode(code);
}

float mox_round_to(moxie_dtype dtype, float value)
{
    switch (dtype) {
    case MOXIE_F16: return mox_f16_decode(mox_f16_narrow(value));
    case MOXIE_BF16: return mox_bf16_decode(mox_bf16_narrow(value));
    default: return isnan(value) ? mox_f32_decode(MOX_F32_NAN) : value;
    }
}

/* memcpy, since 16-bit elements may be unaligned. The bf16 loops vectorise nevertheless. */
static void widen_bf16(const unsigned char *restrict from, float *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint16_t code;
        memcpy(&code, from + 2 * i, sizeof code);
        to[i] = mox_bf16_decode(code);
    }
}

static void widen_f16(const unsigned char *restrict from, float *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint16_t code;
        memcpy(&code, from + 2 * i, sizeof code);
        to[i] = mox_f16_decode(code);
    }
}

void mox_widen(moxie_dtype dtype, const void *restrict from, float *restrict to, int64_t count)
{
    if (count <= 0)
        return;
    switch (dtype) {
    case MOXIE_F16: widen_f16(from, to, count); break;
    case MOXIE_BF16: widen_bf16(from, to, count); break;
    default: memcpy(to, from, (size_t)count * sizeof *to); break;
    }
}

static void narrow_bf16(const float *restrict from, unsigned char *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const uint16_t code = (uint16_t)mox_bf16_narrow(from[i]);
        memcpy(to + 2 * i, &code, sizeof code);
    }
}

static void narrow_f16_each(const float *restrict from, unsigned char *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const uint16_t code = (uint16_t)mox_f16_narrow(from[i]);
        memcpy(to + 2 * i, &code, sizeof code);
    }
}

/* Narrows `count` elements by one common shift, which works when each is zero or becomes a normal, finite f16. (Before
 * AVX2 there is no vector shift by a different amount per element.) False, and `to` is undefined, otherwise. */
static inline bool narrow_f16_normals(const float *restrict from, unsigned char *restrict to, int64_t count)
{
    enum { SHIFT = 23 - 10 };
    const uint32_t smallest = (uint32_t)(127 - 14) << 23, past = 0x477ff000u; /* 65520, which rounds to infinity */
    uint32_t other = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = mox_f32_encode(from[i]), a = bits & 0x7fffffffu;
        const uint32_t rounded = (a + (1u << (SHIFT - 1)) - 1 + (a >> SHIFT & 1)) >> SHIFT;
        const uint32_t magnitude = a == 0 ? 0 : rounded - ((127u - 15) << 10);
        const uint16_t code = (uint16_t)(bits >> 31 << 15 | magnitude);
        other |= a - 1 < smallest - 1 || a >= past;
        memcpy(to + 2 * i, &code, sizeof code);
    }
    return other == 0;
}

static void narrow_f16(const float *restrict from, unsigned char *restrict to, int64_t count)
{
    enum { MANY = 64, SOME = 8 };
    int64_t i = 0;
    for (; i + MANY <= count && narrow_f16_normals(from + i, to + 2 * i, MANY); i += MANY)
        ;
    for (; i + SOME <= count; i += SOME)
        if (!narrow_f16_normals(from + i, to + 2 * i, SOME))
            narrow_f16_each(from + i, to + 2 * i, SOME);
    narrow_f16_each(from + i, to + 2 * i, count - i);
}

static void copy_f32(const float *restrict from, unsigned char *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const float value = mox_round_to(MOXIE_F32, from[i]);
        memcpy(to + 4 * i, &value, sizeof value);
    }
}

void mox_narrow(moxie_dtype dtype, const float *restrict from, void *restrict to, int64_t count)
{
    if (count <= 0)
        return;
    switch (dtype) {
    case MOXIE_F16: narrow_f16(from, to, count); break;
    case MOXIE_BF16: narrow_bf16(from, to, count); break;
    default: copy_f32(from, to, count); break;
    }
}
