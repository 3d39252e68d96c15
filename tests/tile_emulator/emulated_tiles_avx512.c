/* SPDX-License-Identifier: Apache-2.0
 *
 * emulated_tiles_avx512.c - AMX tiles in memory (emulated_tiles.h).
 */
#include "emulated_tiles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TILES = 8, ROWS = 16, LINE = 64 };

/* As LDTILECFG reads it. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_config;

static _Thread_local struct {
    tile_config config; /* palette 0: not configured */
    bool holds[TILES];
    uint8_t data[TILES][ROWS][LINE];
} unit;

static void fault(const char *what, int tile)
{
    fprintf(stderr, "emulated tiles: %s, tile %d\n", what, tile);
    abort();
}

/* ---- configuration ----------------------------------------------------------------------------------------- */

void emulated_tile_configure(const void *config)
{
    memset(&unit, 0, sizeof unit);
    memcpy(&unit.config, config, sizeof unit.config);
    if (unit.config.palette != 1 || unit.config.start_row != 0)
        fault("palette 1 and row 0 are what there is", -1);
    for (int tile = 0; tile < 16; tile++)
        if (unit.config.rows[tile] > (tile < TILES ? ROWS : 0) || unit.config.bytes[tile] > (tile < TILES ? LINE : 0) ||
            (unit.config.rows[tile] == 0) != (unit.config.bytes[tile] == 0))
            fault("configured beyond 8 tiles of 16 rows of 64 bytes", tile);
}

void emulated_tile_release(void)
{
    memset(&unit, 0, sizeof unit);
}

uint32_t emulated_tiles_in_use(void)
{
    uint32_t holds = 0;
    for (int tile = 0; tile < TILES; tile++)
        holds |= unit.holds[tile];
    return (unit.config.palette != 0) | holds << 1;
}

static int rows_of(int tile)
{
    if (unit.config.palette == 0 || tile < 0 || tile >= TILES || unit.config.rows[tile] == 0)
        fault("used but not configured", tile);
    return unit.config.rows[tile];
}

/* ---- data -------------------------------------------------------------------------------------------------- */

void emulated_tile_zero(int tile)
{
    (void)rows_of(tile);
    memset(unit.data[tile], 0, sizeof unit.data[tile]);
    unit.holds[tile] = false;
}

void emulated_tile_load(int tile, const void *from, int64_t stride)
{
    const int rows = rows_of(tile);
    memset(unit.data[tile], 0, sizeof unit.data[tile]);
    for (int r = 0; r < rows; r++)
        memcpy(unit.data[tile][r], (const uint8_t *)from + r * stride, unit.config.bytes[tile]);
    unit.holds[tile] = true;
}

void emulated_tile_store(int tile, void *to, int64_t stride)
{
    const int rows = rows_of(tile);
    for (int r = 0; r < rows; r++)
        memcpy((uint8_t *)to + r * stride, unit.data[tile][r], unit.config.bytes[tile]);
}

/* ---- products ---------------------------------------------------------------------------------------------- */

/* Lines of B that a product reads: one for every 4 bytes of a row of A. */
static int lines_of(int c, int a, int b)
{
    if (c == a || c == b || a == b)
        fault("a product of a tile with itself", c);
    if (rows_of(c) != rows_of(a) || unit.config.bytes[c] != unit.config.bytes[b] ||
        unit.config.bytes[a] / 4 != rows_of(b))
        fault("a product of shapes that do not fit", c);
    unit.holds[c] = true;
    return rows_of(b);
}

static __m512 bf16_row(const uint8_t *a, int b, int lines)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
    for (int k = 0; k < lines; k++) {
        int32_t pair;
        memcpy(&pair, a + 4 * k, sizeof pair);
        const __m512i x = _mm512_set1_epi32(pair), w = _mm512_loadu_si512(unit.data[b][k]);
        even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                               _mm512_castsi512_ps(_mm512_slli_epi32(w, 16)), even);
        odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, upper)),
                              _mm512_castsi512_ps(_mm512_and_si512(w, upper)), odd);
    }
    return _mm512_add_ps(even, odd);
}

void emulated_tile_bf16(int c, int a, int b)
{
    const int lines = lines_of(c, a, b), rows = rows_of(c);
    const unsigned mxcsr = _mm_getcsr();
    _mm_setcsr(0x9fc0); /* masked, to nearest, subnormals are zero and become zero: whatever MXCSR said */
    for (int r = 0; r < rows; r++) {
        const __m512 before = _mm512_loadu_ps(unit.data[c][r]);
        _mm512_storeu_ps(unit.data[c][r], _mm512_add_ps(before, bf16_row(unit.data[a][r], b, lines)));
    }
    _mm_setcsr(mxcsr);
}

void emulated_tile_i8(int c, int a, int b)
{
    const int lines = lines_of(c, a, b), rows = rows_of(c);
    for (int r = 0; r < rows; r++) {
        int32_t sums[ROWS];
        memcpy(sums, unit.data[c][r], sizeof sums);
        for (int k = 0; k < lines; k++)
            for (int n = 0; n < ROWS; n++)
                for (int i = 0; i < 4; i++)
                    sums[n] += (int8_t)unit.data[a][r][4 * k + i] * (int8_t)unit.data[b][k][4 * n + i];
        memcpy(unit.data[c][r], sums, sizeof sums);
    }
}
