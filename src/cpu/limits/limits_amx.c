/* SPDX-License-Identifier: Apache-2.0
 *
 * limits_amx.c - tile products on registers only, four accumulators, tiles of 16 rows of 64 bytes:
 *
 *     tmm0..3 += tmm4,5 (A) x tmm6,7 (B)      bf16: 16 x 16 x 32 products each, int8: 16 x 16 x 64
 *
 * Tiles are zero after LDTILECFG. mox_cpu() requests permission for tiles from the system, and decides whether these
 * probes may run. The configuration is loaded by assembly with the whole struct as operand: gcc 12 declares that
 * _tile_loadconfig() reads 8 of the 64 bytes, and then drops the stores to the others. A probe ends with TILERELEASE:
 * configured tiles would cost 8 KB in every later context switch of the thread.
 */
#include "cpu/limits/limits.h"

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AMX_INT8__)

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "LDTILECFG reads 64 bytes");

static void configure_tiles(void)
{
    tile_config config = { .palette = 1 };
    for (int t = 0; t < 8; t++) {
        config.row_bytes[t] = 64;
        config.rows[t] = 16;
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
}

#define TILE_LOOP(op, rounds)                                                                                          \
    __asm__ volatile("1:\n\t" op " %%tmm6, %%tmm4, %%tmm0\n\t" op " %%tmm7, %%tmm4, %%tmm1\n\t" op                     \
                     " %%tmm6, %%tmm5, %%tmm2\n\t" op " %%tmm7, %%tmm5, %%tmm3\n\t"                                    \
                     "dec %0\n\t"                                                                                      \
                     "jnz 1b\n\t"                                                                                      \
                     "tilerelease"                                                                                     \
                     : "+r"(rounds)::"cc")

static void probe_bf16(const mox_limit_probe *probe, mox_limit_part *part)
{
    uint64_t rounds = part->rounds;
    (void)probe;
    configure_tiles();
    TILE_LOOP("tdpbf16ps", rounds);
    part->sink = rounds;
}

static void probe_int8(const mox_limit_probe *probe, mox_limit_part *part)
{
    uint64_t rounds = part->rounds;
    (void)probe;
    configure_tiles();
    TILE_LOOP("tdpbssd", rounds);
    part->sink = rounds;
}

static const mox_limit_probe probes[] = {
    { .limit = MOX_LIMIT_BF16,
      .name = "tdpbf16ps",
      .isa = MOX_ISA_AMX,
      .run = probe_bf16,
      .ops = 2.0 * 4 * 16 * 16 * 32 },
    { .limit = MOX_LIMIT_INT8,
      .name = "tdpbssd",
      .isa = MOX_ISA_AMX,
      .run = probe_int8,
      .ops = 2.0 * 4 * 16 * 16 * 64 },
};

const mox_limit_list mox_limit_probes_amx = { probes, sizeof probes / sizeof probes[0] };

#else
const mox_limit_list mox_limit_probes_amx = { NULL, 0 };
#endif
