/* SPDX-License-Identifier: Apache-2.0
 *
 * block_levels.c - the list of block types made of levels and scales, and their decoders (block_levels.h).
 */
#include "format/block_levels.h"

#define MOX_BLOCK_LEVELS(id, type, d_at, run, bits) { MOX_BLOCK_DTYPE + type, d_at, run, bits, mox_block_##id##_step },
static const mox_block_levels rows[] = {
#include "format/block_levels.def"
};
#undef MOX_BLOCK_LEVELS

enum { ROWS = sizeof rows / sizeof rows[0], STEP = 32 };

const mox_block_levels *mox_block_levels_at(int32_t i)
{
    return i >= 0 && i < ROWS ? &rows[i] : NULL;
}

const mox_block_levels *mox_block_levels_of(moxie_dtype dtype)
{
    for (int32_t i = 0; i < ROWS; i++)
        if (rows[i].dtype == dtype)
            return &rows[i];
    return NULL;
}

static void decode(moxie_dtype dtype, const uint8_t *block, float *out)
{
    const mox_block_levels *row = mox_block_levels_of(dtype);
    const float d = mox_f16_decode(mox_block_levels_d(block, row->d_at));
    const int32_t weights = mox_block_of(dtype)->weights;
    for (int32_t s = 0; s < weights / STEP; s++) {
        int8_t level[STEP];
        float scale[2];
        row->step(block, d, s, level, scale);
        for (int32_t i = 0; i < STEP; i++)
            out[STEP * s + i] = scale[i / 16] * (float)level[i];
    }
}

#define MOX_BLOCK_LEVELS(id, type, ...)                                                                                \
    void mox_block_##id##_decode(const uint8_t *block, float *out)                                                     \
    {                                                                                                                  \
        decode(MOX_BLOCK_DTYPE + type, block, out);                                                                    \
    }
#include "format/block_levels.def"
