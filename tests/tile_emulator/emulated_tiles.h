/* SPDX-License-Identifier: Apache-2.0
 *
 * emulated_tiles.h - emulates AMX tiles in memory, and the other instructions of kernel amx_bf16 that Zen 4 lacks. The
 * sources of the AMX kernels and of a test include it first. The program then runs on any processor with AVX-512, VBMI,
 * VNNI and BF16, and tests every path through these kernels bit by bit, but not their speed.
 *
 *     LDTILECFG       palette 1, as amx_tiles.h fills it      TILELOADD, TILESTORED, TILEZERO, TILERELEASE
 *     TDPBF16PS       even and odd columns are two chains of multiply-adds from zero, subnormals zero;
 *                     then C + (even + odd)
 *     TDPBSSD         int32
 *     VMULPH          AVX-512 FP16: the product rounded once
 *     VCVTW2PH        AVX-512 FP16: the integer rounded once
 *
 * A shape on which the instruction would fault ends the program with a message. Each thread has its own tiles.
 *
 * Source: Intel SDM vol. 2, the instructions' operations.
 */
#ifndef EMULATED_TILES_H
#define EMULATED_TILES_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

void emulated_tile_configure(const void *config);
void emulated_tile_release(void);
void emulated_tile_zero(int tile);
void emulated_tile_load(int tile, const void *from, int64_t stride);
void emulated_tile_store(int tile, void *to, int64_t stride);
void emulated_tile_bf16(int c, int a, int b);
void emulated_tile_i8(int c, int a, int b);
/* XINUSE of this thread: 1 configured, 2 holds data. */
uint32_t emulated_tiles_in_use(void);

#define MOX_TILE_CONFIGURE(config) emulated_tile_configure(&(config))
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#define _tile_loadd(tile, from, stride)        emulated_tile_load(tile, from, stride)
#define _tile_stream_loadd(tile, from, stride) emulated_tile_load(tile, from, stride)
#define _tile_stored(tile, to, stride)         emulated_tile_store(tile, to, stride)
#define _tile_zero(tile)                       emulated_tile_zero(tile)
#define _tile_release()                        emulated_tile_release()
#define _tile_dpbf16ps(c, a, b)                emulated_tile_bf16(c, a, b)
#define _tile_dpbssd(c, a, b)                  emulated_tile_i8(c, a, b)

#ifdef __AVX512FP16__
static inline __m256i emulated_half(__m256i a, __m256i b)
{
    return _mm512_cvtps_ph(_mm512_mul_ps(_mm512_cvtph_ps(a), _mm512_cvtph_ps(b)), _MM_FROUND_TO_NEAREST_INT);
}

/* Products of two f16 are exact in f32, and not subnormal there. */
static inline __m512h emulated_mul_ph(__m512h x, __m512h y)
{
    const __m512i a = _mm512_castph_si512(x), b = _mm512_castph_si512(y);
    const __m256i low = emulated_half(_mm512_castsi512_si256(a), _mm512_castsi512_si256(b));
    const __m256i high = emulated_half(_mm512_extracti64x4_epi64(a, 1), _mm512_extracti64x4_epi64(b, 1));
    return _mm512_castsi512_ph(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
}

/* Integers of 16 bits are exact in f32. */
static inline __m256i emulated_half_of(__m256i words)
{
    return _mm512_cvtps_ph(_mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(words)), _MM_FROUND_TO_NEAREST_INT);
}

static inline __m512h emulated_cvtepi16_ph(__m512i words)
{
    const __m256i low = emulated_half_of(_mm512_castsi512_si256(words));
    const __m256i high = emulated_half_of(_mm512_extracti64x4_epi64(words, 1));
    return _mm512_castsi512_ph(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
}
#define _mm512_mul_ph(a, b)   emulated_mul_ph(a, b)
#define _mm512_cvtepi16_ph(a) emulated_cvtepi16_ph(a)
#endif

#endif
