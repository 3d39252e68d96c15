/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_decode_avx2.h - decodes codes of layout panel16 (pack/panel/panel.h) to floats in AVX2 registers.
 *
 * The unit is a quarter of a step for half a panel: 8 columns of 8 rows. mox_half_load() reads the codes and does the
 * work that the columns share. mox_half_column() then gives column pair i (0 .. 3) in two vectors, in one of two lane
 * orders:
 *
 *     by row    vector 0 = column 2i of rows 0..7         vector 1 = column 2i + 1 of rows 0..7
 *     by pair   vector 0 = rows 0, 1, 4, 5, each row (column 2i, column 2i + 1)      vector 1 = rows 2, 3, 6, 7
 *
 * By pair costs one horizontal add per sum. It saves shuffling the codes, and half of the loads that broadcast
 * activations, which are what limits by row with many rows. So mox_half_pair() gives it for all classes; columns that
 * are used once (narrow) are in the order that their decoder has.
 *
 * Codes become bf16 like this, where a table has 16 bytes:
 *
 *     NIBBLES  one look-up for each byte of the bf16; unpacking joins them (by pair)
 *     PLANES   two look-ups for each byte; the fifth bit makes the index of one of them invalid, which gives 0
 *     e4m3     sign and upper exponent bits look up the upper byte, the other bits are the lower byte; codes below 16
 *              and NaN, where that is wrong, are corrected
 *     e5m2     likewise, with the sign apart
 *     QUADS    a byte in the low bits of 2^23 is a float; subtracting 2^23 + zero point leaves the number
 *     PAIRS    are bf16 already
 *     HALVES   f16, converted by VCVTPH2PS
 *
 * A shift or a mask then makes the bf16 a float. Everything is exact, whatever MXCSR says. Zero points count from the
 * element's least value; so codes are decoded to counts from there, and the zero point is subtracted as a float.
 *
 * Cost in instructions on the three vector ports, for 8 rows x 8 columns: PAIRS 8, NIBBLES 19, with zero points 27,
 * QUADS 26, e5m2 28, e4m3 38, PLANES 46 (rates: uops.info). Multiplying them takes 8 multiply-adds per row of
 * activations.
 */
#ifndef MOX_CPU_PANEL_DECODE_AVX2_H
#define MOX_CPU_PANEL_DECODE_AVX2_H

#include <immintrin.h>

#include "cpu/expert_gemm/panel_kernel.h"
#include "pack/panel/element_traits.h"

/* sum + x of 32-bit or 16-bit integers, in the register of `sum`. gcc otherwise moves the additions of a whole step to
 * its end, and spills what they add. */
MOX_KERNEL_INLINE __m256i mox_ymm_add_32(__m256i sum, __m256i x)
{
    __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(x));
    return sum;
}
MOX_KERNEL_INLINE __m256i mox_ymm_add_16(__m256i sum, __m256i x)
{
    __asm__("vpaddw %1, %0, %0" : "+x"(sum) : "x"(x));
    return sum;
}

/* Classes of formats that are decoded by the same code: within a class only the tables differ. */
typedef enum mox_decode_class {
    MOX_DECODE_PAIRS = 0,
    MOX_DECODE_HALVES,
    MOX_DECODE_QUADS, /* with zero points or without */
    MOX_DECODE_E4M3,
    MOX_DECODE_E5M2,
    MOX_DECODE_NIBBLES,
    MOX_DECODE_NIBBLES_ZEROS,
    MOX_DECODE_PLANES
} mox_decode_class;

/* NIBBLES: lower and upper bytes by code. PLANES: lower, upper of magnitudes 0..15, lower, upper of 16..31. E4M3: upper
 * bytes by the code's upper nibble; lower, upper corrections of magnitudes 0..15. QUADS: what makes codes counts. */
typedef struct mox_half_tables {
    __m256i t[4];
    __m256i nibble, upper; /* 0x0f in each byte, 0xffff in each upper word */
} mox_half_tables;

/* -1 when there is none. */
static inline int mox_decode_class_of(moxie_dtype element, bool zeros)
{
    switch (mox_panel_order_of(element)) {
    case MOX_PANEL_PAIRS: return MOX_DECODE_PAIRS;
    case MOX_PANEL_HALVES: return MOX_DECODE_HALVES;
    case MOX_PANEL_QUADS: return MOX_DECODE_QUADS;
    case MOX_PANEL_ZIPPED: return element == MOXIE_F8_E4M3 ? MOX_DECODE_E4M3 : MOX_DECODE_E5M2;
    case MOX_PANEL_NIBBLES: return zeros ? MOX_DECODE_NIBBLES_ZEROS : MOX_DECODE_NIBBLES;
    case MOX_PANEL_PLANES: return MOX_DECODE_PLANES;
    default: return -1;
    }
}

MOX_KERNEL_INLINE bool mox_half_by_pair(mox_decode_class decode)
{
    return decode == MOX_DECODE_NIBBLES || decode == MOX_DECODE_NIBBLES_ZEROS || decode == MOX_DECODE_PLANES;
}

/* ---- tables -------------------------------------------------------------------------------------- */

static inline __m256i mox_half_both(const uint8_t bytes[16])
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)bytes));
}

/* Byte `byte` (0 lower, 1 upper) of the bf16 that is the upper half of each of 16 floats, twice. */
static inline __m256i mox_half_bytes(const float values[16], int byte)
{
    const __m256i *floats = (const __m256i *)(const void *)values;
    const __m256i mask = _mm256_set1_epi32(0xff);
    __m256i bytes[2];
    for (int i = 0; i < 2; i++)
        bytes[i] =
            _mm256_and_si256(_mm256_srl_epi32(_mm256_loadu_si256(floats + i), _mm_cvtsi32_si128(16 + 8 * byte)), mask);
    /* Packing keeps to the lanes; the permutations put them in order. */
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(bytes[0], bytes[1]), 0xd8);
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(words, words), 0x88);
}

/* From magnitude 16 on the upper byte of a float8 follows from the upper bits of its exponent (e4m3: and its sign), and
 * the lower byte is the code moved up. Below, the upper byte is looked up as that of a zero, and the tables of
 * magnitudes hold what to combine with both. */
static inline void mox_half_tables_f8(moxie_dtype element, mox_half_tables *tables)
{
    const float *values = mox_format_table(element);
    const int up = element == MOXIE_F8_E4M3 ? 4 : 3;
    float coarse[16];
    uint8_t moved[16];
    for (int i = 0; i < 16; i++) {
        coarse[i] = i << up < 16 ? 0.0f : values[i << up];
        moved[i] = (uint8_t)(i << (8 - up));
    }
    tables->t[0] = mox_half_bytes(coarse, 1);
    tables->t[1] = _mm256_xor_si256(mox_half_bytes(values, 0), mox_half_both(moved));
    tables->t[2] = mox_half_bytes(values, 1);
}

static inline void mox_half_tables_init(moxie_dtype element, bool zeros, mox_half_tables *tables)
{
    const int decode = mox_decode_class_of(element, zeros);
    float values[32];
    tables->nibble = _mm256_set1_epi8(0x0f);
    tables->upper = _mm256_set1_epi32((int)0xffff0000u);
    if (decode == MOX_DECODE_QUADS)
        tables->t[0] = _mm256_set1_epi8((char)mox_element_sign_bits(element));
    if (decode == MOX_DECODE_E4M3 || decode == MOX_DECODE_E5M2)
        mox_half_tables_f8(element, tables);
    if (decode != MOX_DECODE_NIBBLES && decode != MOX_DECODE_NIBBLES_ZEROS && decode != MOX_DECODE_PLANES)
        return;
    for (int i = 0; i < 32; i++)
        values[i] = mox_format_table(element)[i] + (decode == MOX_DECODE_NIBBLES_ZEROS ? 8.0f : 0.0f);
    for (int i = 0; i < 4; i++)
        tables->t[i] = mox_half_bytes(values + 16 * (i / 2), i % 2);
}

/* What mox_half_column() subtracts from its vectors: out[v] from vector v. `zero`: the 8 zero points of a group as
 * floats; read only by classes that have zero points. */
MOX_KERNEL_INLINE void mox_half_zeros(mox_decode_class decode, bool zeros, const float *zero, __m256 out[2])
{
    if (decode == MOX_DECODE_QUADS)
        out[0] = out[1] = _mm256_add_ps(_mm256_set1_ps(0x1p23f), zeros ? _mm256_load_ps(zero) : _mm256_set1_ps(128.0f));
    if (decode == MOX_DECODE_NIBBLES_ZEROS) {
        out[0] = _mm256_unpacklo_ps(_mm256_load_ps(zero), _mm256_load_ps(zero));
        out[1] = _mm256_unpackhi_ps(_mm256_load_ps(zero), _mm256_load_ps(zero));
    }
}

/* ---- loading a quarter --------------------------------------------------------------------------- */

MOX_KERNEL_INLINE __m256i mox_half_line(const uint8_t *line)
{
    return _mm256_load_si256((const __m256i *)(const void *)line);
}

/* Words of lower and upper bytes: the first two vectors for column pairs 0 and 2 (rows 0, 1, 4, 5 and 2, 3, 6, 7; pair
 * 0 in the lower half of each float's bits, 2 in the upper), the others for 1 and 3. */
MOX_KERNEL_INLINE void mox_half_join(__m256i low[2], __m256i high[2], __m256i out[4])
{
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 2; i++) {
        out[2 * i] = _mm256_unpacklo_epi8(low[i], high[i]);
        out[2 * i + 1] = _mm256_unpackhi_epi8(low[i], high[i]);
    }
}

/* Nibbles 0 and 2 of each word in its bytes, and nibbles 1 and 3. */
MOX_KERNEL_INLINE void mox_half_split(const mox_half_tables *tables, __m256i codes, __m256i nibbles[2])
{
    nibbles[0] = _mm256_and_si256(codes, tables->nibble);
    nibbles[1] = _mm256_and_si256(_mm256_srli_epi16(codes, 4), tables->nibble);
}

MOX_KERNEL_INLINE void mox_half_load_nibbles(const mox_half_tables *tables, __m256i codes, __m256i out[4])
{
    __m256i nibbles[2], low[2], high[2];
    mox_half_split(tables, codes, nibbles);
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 2; i++) {
        low[i] = _mm256_shuffle_epi8(tables->t[0], nibbles[i]);
        high[i] = _mm256_shuffle_epi8(tables->t[1], nibbles[i]);
    }
    mox_half_join(low, high, out);
}

/* Fields of two bits are at 0, 2, 4, 6 of the byte that both bytes of a word are given; nibble 0 goes with the first,
 * 2, in the word's upper byte, with the third. A shuffle gives zero for an index with its top bit set. */
MOX_KERNEL_INLINE void mox_half_load_planes(const mox_half_tables *tables, __m256i codes, __m256i fields, int q,
                                            __m256i out[4])
{
    const __m256i twice = _mm256_broadcastsi128_si256(_mm_add_epi8(
        _mm_setr_epi8(0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14), _mm_set1_epi8((char)(q % 2))));
    const __m256i byte = _mm256_shuffle_epi8(fields, twice), sign = _mm256_set1_epi8((char)0x80);
    __m256i nibbles[2], low[2], high[2];
    mox_half_split(tables, codes, nibbles);
    MOX_KERNEL_UNROLL
    for (int i = 0; i < 2; i++) {
        const __m256i fifth = _mm256_set1_epi16((short)(i == 0 ? 0x1001 : 0x4004));
        const __m256i top = _mm256_set1_epi16((short)(i == 0 ? 0x2002 : 0x8008));
        const __m256i bit = _mm256_and_si256(byte, fifth);
        const __m256i small = _mm256_or_si256(nibbles[i], _mm256_cmpeq_epi8(bit, fifth));
        const __m256i large = _mm256_or_si256(nibbles[i], _mm256_cmpeq_epi8(bit, _mm256_setzero_si256()));
        const __m256i minus = _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(byte, top), top), sign);
        low[i] = _mm256_or_si256(_mm256_shuffle_epi8(tables->t[0], small), _mm256_shuffle_epi8(tables->t[2], large));
        high[i] = _mm256_or_si256(_mm256_shuffle_epi8(tables->t[1], small), _mm256_shuffle_epi8(tables->t[3], large));
        high[i] = _mm256_or_si256(high[i], minus);
    }
    mox_half_join(low, high, out);
}

/* A magnitude of 16 or more, plus 0x70, is at least 0x80, an invalid index: no correction. NaN gets an exponent of
 * ones. */
MOX_KERNEL_INLINE void mox_half_load_e4m3(const mox_half_tables *tables, __m256i codes, __m256i out[2])
{
    const __m256i nibble = _mm256_set1_epi8(0x0f), nan = _mm256_set1_epi8(0x7f);
    const __m256i magnitude = _mm256_and_si256(codes, nan);
    const __m256i small = _mm256_adds_epu8(magnitude, _mm256_set1_epi8(0x70));
    const __m256i coarse = _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble);
    __m256i high = _mm256_shuffle_epi8(tables->t[0], coarse);
    high = _mm256_or_si256(high, _mm256_shuffle_epi8(tables->t[2], small));
    high = _mm256_or_si256(high, _mm256_cmpeq_epi8(magnitude, nan));
    const __m256i low = _mm256_xor_si256(_mm256_andnot_si256(nibble, _mm256_slli_epi16(codes, 4)),
                                         _mm256_shuffle_epi8(tables->t[1], small));
    out[0] = _mm256_unpacklo_epi8(low, high);
    out[1] = _mm256_unpackhi_epi8(low, high);
}

/* The same for e5m2, whose exponent has one more bit, so the sign is handled apart. From 0x7c the exponent is all ones.
 */
MOX_KERNEL_INLINE void mox_half_load_e5m2(const mox_half_tables *tables, __m256i codes, __m256i out[2])
{
    const __m256i mask = _mm256_set1_epi8(0x7f);
    const __m256i magnitude = _mm256_and_si256(codes, mask);
    const __m256i small = _mm256_adds_epu8(magnitude, _mm256_set1_epi8(0x70));
    const __m256i coarse = _mm256_and_si256(_mm256_srli_epi16(magnitude, 3), _mm256_set1_epi8(0x0f));
    const __m256i special = _mm256_and_si256(_mm256_cmpgt_epi8(magnitude, _mm256_set1_epi8(0x7b)), mask);
    __m256i high = _mm256_or_si256(_mm256_andnot_si256(mask, codes), special);
    high = _mm256_or_si256(high, _mm256_shuffle_epi8(tables->t[0], coarse));
    high = _mm256_or_si256(high, _mm256_shuffle_epi8(tables->t[2], small));
    const __m256i moved = _mm256_and_si256(_mm256_slli_epi16(codes, 5), _mm256_set1_epi8((char)0xe0));
    const __m256i low = _mm256_xor_si256(moved, _mm256_shuffle_epi8(tables->t[1], small));
    out[0] = _mm256_unpacklo_epi8(low, high);
    out[1] = _mm256_unpackhi_epi8(low, high);
}

/* Cache lines of a quarter, both halves; of PLANES without the upper plane. */
MOX_KERNEL_INLINE int mox_half_lines(mox_decode_class decode)
{
    switch (decode) {
    case MOX_DECODE_PAIRS:
    case MOX_DECODE_HALVES: return 4;
    case MOX_DECODE_NIBBLES:
    case MOX_DECODE_NIBBLES_ZEROS:
    case MOX_DECODE_PLANES: return 1;
    default: return 2;
    }
}

/* Rows 8 half .. 8 half + 7, columns 8 quarter .. 8 quarter + 7 of the panel whose codes begin at `codes`. */
MOX_KERNEL_INLINE void mox_half_load(mox_decode_class decode, const mox_half_tables *tables, const uint8_t *codes,
                                     int half, int64_t quarter, __m256i out[4])
{
    const uint8_t *line = codes + quarter * 64 * mox_half_lines(decode), *at = line + 32 * half;
    switch (decode) {
    case MOX_DECODE_NIBBLES:
    case MOX_DECODE_NIBBLES_ZEROS: mox_half_load_nibbles(tables, mox_half_line(at), out); break;
    case MOX_DECODE_PLANES: {
        /* 4 lines of the lower plane, 2 of the upper, each for two quarters */
        at += quarter / 4 * 128;
        mox_half_load_planes(tables, mox_half_line(at),
                             mox_half_line(at + 256 - quarter % 4 * 64 + quarter % 4 / 2 * 64), (int)(quarter % 2),
                             out);
        break;
    }
    case MOX_DECODE_E4M3:
        MOX_KERNEL_UNROLL
        for (int l = 0; l < 2; l++)
            mox_half_load_e4m3(tables, mox_half_line(at + 64 * l), out + 2 * l);
        break;
    case MOX_DECODE_E5M2:
        MOX_KERNEL_UNROLL
        for (int l = 0; l < 2; l++)
            mox_half_load_e5m2(tables, mox_half_line(at + 64 * l), out + 2 * l);
        break;
    case MOX_DECODE_QUADS:
        MOX_KERNEL_UNROLL
        for (int l = 0; l < 2; l++)
            out[l] = _mm256_xor_si256(mox_half_line(at + 64 * l), tables->t[0]);
        break;
    case MOX_DECODE_PAIRS:
        MOX_KERNEL_UNROLL
        for (int i = 0; i < 4; i++)
            out[i] = mox_half_line(at + 64 * i);
        break;
    case MOX_DECODE_HALVES:
        MOX_KERNEL_UNROLL
        for (int i = 0; i < 4; i++) {
            const __m128i *rows = (const __m128i *)(const void *)(line + 64 * i + 16 * half);
            out[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_load_si128(rows)), _mm_load_si128(rows + 2), 1);
        }
        break;
    }
}

/* ---- columns ------------------------------------------------------------------------------ */

/* The bf16 in the lower or upper half of each lane. */
MOX_KERNEL_INLINE __m256 mox_half_widen(const mox_half_tables *tables, __m256i words, int upper)
{
    return _mm256_castsi256_ps(upper ? _mm256_and_si256(words, tables->upper) : _mm256_slli_epi32(words, 16));
}

/* Byte `byte` of each lane, as a float less `zero`. */
MOX_KERNEL_INLINE __m256 mox_half_count(__m256i codes, int byte, __m256 zero)
{
    const __m128i lane =
        _mm_setr_epi8(0, -128, -128, -128, 4, -128, -128, -128, 8, -128, -128, -128, 12, -128, -128, -128);
    const __m128i moved = _mm_add_epi8(lane, _mm_set1_epi32(byte));
    const __m256i count = _mm256_shuffle_epi8(codes, _mm256_broadcastsi128_si256(moved));
    return _mm256_sub_ps(_mm256_castsi256_ps(_mm256_or_si256(count, _mm256_set1_epi32(0x4b000000))), zero);
}

MOX_KERNEL_INLINE __m256 mox_half_f16(__m256i words, int upper)
{
    return _mm256_cvtph_ps(upper ? _mm256_extracti128_si256(words, 1) : _mm256_castsi256_si128(words));
}

/* Vector v of column pair i from what mox_half_load() left; `zero` from mox_half_zeros(). */
MOX_KERNEL_INLINE __m256 mox_half_column(mox_decode_class decode, const mox_half_tables *tables,
                                         const __m256i loaded[4], const __m256 zero[2], int i, int v)
{
    switch (decode) {
    case MOX_DECODE_NIBBLES:
    case MOX_DECODE_PLANES: return mox_half_widen(tables, loaded[2 * (i % 2) + v], i / 2);
    case MOX_DECODE_NIBBLES_ZEROS:
        return _mm256_sub_ps(mox_half_widen(tables, loaded[2 * (i % 2) + v], i / 2), zero[v]);
    case MOX_DECODE_QUADS: return mox_half_count(loaded[i / 2], 2 * (i % 2) + v, zero[v]);
    case MOX_DECODE_HALVES: return mox_half_f16(loaded[i], v);
    default: return mox_half_widen(tables, loaded[i], v);
    }
}

/* Both vectors of column pair i, by pair for every class. */
MOX_KERNEL_INLINE void mox_half_pair(mox_decode_class decode, const mox_half_tables *tables, const __m256i loaded[4],
                                     const __m256 zero[2], int i, __m256 out[2])
{
    if (decode == MOX_DECODE_PAIRS || decode == MOX_DECODE_E4M3 || decode == MOX_DECODE_E5M2) {
        out[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(_mm256_setzero_si256(), loaded[i]));
        out[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(_mm256_setzero_si256(), loaded[i]));
        return;
    }
    const __m256 first = mox_half_column(decode, tables, loaded, zero, i, 0);
    const __m256 second = mox_half_column(decode, tables, loaded, zero, i, 1);
    out[0] = mox_half_by_pair(decode) ? first : _mm256_unpacklo_ps(first, second);
    out[1] = mox_half_by_pair(decode) ? second : _mm256_unpackhi_ps(first, second);
}

#endif
