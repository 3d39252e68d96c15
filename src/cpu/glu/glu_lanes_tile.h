/* SPDX-License-Identifier: Apache-2.0
 *
 * glu_lanes_tile.h - one tile of family glu (glu_tile.h). glu_scalar.c, glu_avx2.c and glu_avx512.c each compile it for
 * one instruction set:
 *
 *     gate, up -> * scale of the row, + bias -> act -> out in fp32, narrow rounded once to bf16
 *
 * Packs of MOX_GLU_PACK registers go through the tile in row-major order.
 */
#ifndef MOX_CPU_GLU_LANES_TILE_H
#define MOX_CPU_GLU_LANES_TILE_H

#include "cpu/glu/glu_lanes.h"

typedef uint16_t mox_lane_halves __attribute__((vector_size(2 * MOX_GLU_LANES)));
typedef uint16_t mox_lane_halves_unaligned __attribute__((vector_size(2 * MOX_GLU_LANES), aligned(2), may_alias));
typedef uint32_t mox_lane_bits __attribute__((vector_size(4 * MOX_GLU_LANES)));

/* mox_bf16_narrow() of every lane. */
MOX_GLU_INLINE mox_lane_halves mox_lane_bf16(mox_lanes x)
{
    const mox_lane_bits bits = (mox_lane_bits)x;
    const mox_lane_bits rounded = bits + 0x7fffu + (bits >> 16 & 1), nan = (mox_lane_bits)(x != x);
    return __builtin_convertvector((nan & 0x7fc0u) | (~nan & rounded >> 16), mox_lane_halves);
}

/* A register of numbers of one row, times the row's scale, plus the biases of their columns. */
MOX_GLU_INLINE mox_lanes mox_lane_read(const mox_glu_tile *t, const float *from, const float *bias, int64_t row,
                                       int64_t column)
{
    mox_lanes x = *(const mox_lanes_unaligned *)(from + row * t->stride + column);
    if (t->row_scale != NULL)
        x = x * t->row_scale[row];
    return bias != NULL ? x + *(const mox_lanes_unaligned *)(bias + column) : x;
}

MOX_GLU_INLINE void mox_lane_write(const mox_glu_tile *t, int64_t row, int64_t column, mox_lanes x)
{
    if (t->out != NULL)
        *(mox_lanes_unaligned *)(t->out + row * t->out_stride + column) = x;
    if (t->narrow != NULL)
        *(mox_lane_halves_unaligned *)(t->narrow + row * t->narrow_stride + column) = mox_lane_bf16(x);
}

MOX_GLU_INLINE void mox_glu_lanes_of(int32_t kind, const mox_glu_tile *tile)
{
    const mox_glu_tile t = *tile;
    const bool gated = mox_activation_is_gated(kind);
    for (int64_t at = 0; at < t.rows * MOX_GLU_TILE; at += MOX_GLU_PACK * MOX_GLU_LANES) {
        mox_lane_pack g, u = { 0 };
        int64_t row[MOX_GLU_PACK], column[MOX_GLU_PACK];
        for (int i = 0; i < MOX_GLU_PACK; i++) {
            /* The last row fills the pack: it may be computed more than once. */
            const int64_t place = at + i * MOX_GLU_LANES;
            column[i] = place % MOX_GLU_TILE;
            row[i] = place / MOX_GLU_TILE < t.rows ? place / MOX_GLU_TILE : t.rows - 1;
            g.v[i] = mox_lane_read(&t, t.gate, t.gate_bias, row[i], column[i]);
            if (gated)
                u.v[i] = mox_lane_read(&t, t.up, t.up_bias, row[i], column[i]);
        }
        g = mox_formula_of_kind(kind, &t.parameters, g, u);
        for (int i = 0; i < MOX_GLU_PACK; i++)
            mox_lane_write(&t, row[i], column[i], g.v[i]);
    }
}

/* A tile of any kind. Each kind gets its own loop, with the formula chosen outside of it. */
MOX_GLU_INLINE void mox_glu_lanes(const mox_glu_tile *tile)
{
    switch (tile->kind) {
#define MOX_ACTIVATION(id, kind, formula, gating, honours, alpha, beta, limit, name, config_names)                     \
    case kind:                                                                                                         \
        mox_glu_lanes_of(kind, tile);                                                                                  \
        break;
#include "activation/activations.def"
    }
}

#endif
