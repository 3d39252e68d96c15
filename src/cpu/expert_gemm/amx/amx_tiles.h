/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_tiles.h - how the tile unit is configured, and what the compiler must be told about it.
 *
 *     tiles 0, 1: [rows, 64 bytes]     C of the first tile of rows       4: A of the first tile of rows
 *     tiles 2, 3: [low, 64 bytes]      C of the second                   7: A of the second
 *     tile 5:     [16, 64]             B, one line for every 4 bytes of a row of A
 *
 * The hardware renames tiles, and has few spare ones: loads and products wait for a free one. Where a core's other
 * thread is busy, a product takes 80 cycles when all eight names hold a value, 52 with seven, 33 with four. A zeroed
 * tile holds no value. So one name serves for all of B; A and B tiles are zeroed after their last use, C tiles once
 * stored.
 *
 * base/cpu_features.c asks the system for permission to use tiles. Every kernel ends with _tile_release(), because a
 * configured tile unit slows down each context switch of its thread.
 */
#ifndef MOX_CPU_AMX_TILES_H
#define MOX_CPU_AMX_TILES_H

#include <stdint.h>
#include <string.h>

/* Keeps memory accesses in order around tile loads and stores, whose memory operands the compiler does not see. */
#define MOX_FENCE() __asm__ volatile("" ::: "memory")

/* The tile emulator of the tests defines its own. */
#ifndef MOX_TILE_CONFIGURE
#define MOX_TILE_CONFIGURE(config) __asm__ volatile("ldtilecfg %0" ::"m"(config))
#endif

/* C += A B of tiles, whose numbers are constants: of pairs of bf16, or of fours of int8. `ints` is a constant. */
#define MOX_TILE_MULTIPLY(ints, c, a, b)                                                                               \
    do {                                                                                                               \
        if (ints)                                                                                                      \
            _tile_dpbssd(c, a, b);                                                                                     \
        else                                                                                                           \
            _tile_dpbf16ps(c, a, b);                                                                                   \
    } while (0)

/* Stores a C tile (its number is a constant), and zeroes it for the next sum. */
#define MOX_TILE_STORE(tile, to)                                                                                       \
    do {                                                                                                               \
        _tile_stored(tile, to, 64);                                                                                    \
        _tile_zero(tile);                                                                                              \
    } while (0)

static inline void mox_amx_configure(int rows, int low)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config;
    memset(&config, 0, sizeof config);
    config.palette = 1;
    for (int tile = 0; tile < 8; tile++) {
        config.bytes[tile] = 64;
        config.rows[tile] = (uint8_t)(tile == 5 ? 16 : tile == 2 || tile == 3 || tile == 7 ? low : rows);
    }
    MOX_TILE_CONFIGURE(config);
}

#endif
