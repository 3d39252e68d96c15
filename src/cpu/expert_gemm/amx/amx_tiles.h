/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_tiles.h - the tile unit's configuration and what the compiler has to be told about it.
 *
 *     tiles 0, 1: [rows, 64 bytes]     C of the first tile of rows       4: its A
 *     tiles 2, 3: [low, 64 bytes]      C of the second                   7: its A
 *     tile 5:     [16, 64]             B, one line for every 4 bytes of a row of A
 *
 * A load or a product needs a free tile behind those that hold something, and there are few: on cores whose other
 * thread is busy a product takes 80 cycles when all eight hold something, 52 with seven, 33 with four. A tile that is
 * zeroed holds nothing. So one tile serves for all of B, an operand is zeroed as soon as it has served, and a C tile as
 * soon as it is stored.
 *
 * Permission for tile data is asked for when features are found (base/cpu_features.c). Every kernel ends with
 * _tile_release(): a configured tile unit makes each context switch of its thread dearer.
 */
#ifndef MOX_CPU_AMX_TILES_H
#define MOX_CPU_AMX_TILES_H

#include <stdint.h>
#include <string.h>

/* Tile loads and stores are no memory operands to the compiler. */
#define MOX_FENCE() __asm__ volatile("" ::: "memory")

/* Tests emulate tiles (tests/tile_emulator). */
#ifndef MOX_TILE_CONFIGURE
#define MOX_TILE_CONFIGURE(config) __asm__ volatile("ldtilecfg %0" ::"m"(config))
#endif

/* Stores a C tile, a constant, and zeroes it for the next sum, as the configuration left it. */
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
