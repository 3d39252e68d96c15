/* SPDX-License-Identifier: Apache-2.0
 *
 * neon_blocks.h - block types (pack/panel/block_panel.h) to the slab of kernel neon_fma.
 *
 *     w = S (level - offset) + M          S = d s, M = -+ m t: exact in f32; one rounding, as ggml's decoder has it
 *
 * NEON shifts by counts in a register, so one function decodes all rows of block_fields.def. A register holds four
 * columns of four rows; widened to floats it makes a vector for each column.
 *
 * Types of block_levels.def lie as in the file; their own decoder gives 32 levels of a row at a time.
 */
#ifndef MOX_CPU_NEON_BLOCKS_H
#define MOX_CPU_NEON_BLOCKS_H

#include "cpu/expert_gemm/neon/panel_neon.h"
#include "format/block_levels.h"
#include "pack/panel/block_panel.h"

/* What a call knows of its block type. */
typedef struct mox_neon_blocks {
    const mox_block_fields *f;
    mox_block_panel form;
    int8x16_t levels; /* by code, less the offset; of types with up to 16 codes */
} mox_neon_blocks;

static inline mox_neon_blocks mox_neon_blocks_of(moxie_dtype element)
{
    const mox_block_fields *f = mox_block_fields_of(element);
    int8_t levels[16];
    for (int code = 0; code < 16; code++)
        levels[code] = (int8_t)((f->levels ? mox_block_level(code) : code) - f->offset);
    return (mox_neon_blocks) { f, mox_block_panel_of(f, (int32_t)mox_block_panel_cols(element)), vld1q_s8(levels) };
}

/* Field `g` of a plane of `bits` bits, moved to bit `up` of every byte: four rows, from the 16 bytes at `at` of a
 * vector on. */
static inline uint8x16_t mox_neon_field(const uint8_t *plane, int bits, int up, int at, int g)
{
    const int fields = 8 / bits;
    const uint8x16_t x = vld1q_u8(plane + g / fields * 64 + at);
    return vandq_u8(vshlq_u8(x, vdupq_n_s8((int8_t)(up - bits * (g % fields)))),
                    vdupq_n_u8((uint8_t)(((1 << bits) - 1) << up)));
}

/* Levels less the offset of columns 4g .. 4g+3 of four rows. */
static inline int8x16_t mox_neon_levels(const mox_neon_blocks *b, const uint8_t *step, int at, int g)
{
    const mox_block_fields *f = b->f;
    const uint8x16_t low = mox_neon_field(step, f->low.bits, 0, at, g);
    if (f->high.bits == 0)
        return f->low.bits <= 4 ? vqtbl1q_s8(b->levels, low)
                                : vsubq_s8(vreinterpretq_s8_u8(low), vdupq_n_s8((int8_t)f->offset));
    const uint8x16_t high = mox_neon_field(step + 64 * f->low.bits, f->high.bits, f->low.bits, at, g);
    return vsubq_s8(vreinterpretq_s8_u8(vorrq_u8(low, high)), vdupq_n_s8((int8_t)f->offset));
}

/* S and M of four rows. */
typedef struct mox_neon_scaling {
    float32x4_t s, m;
} mox_neon_scaling;

static inline float32x4_t mox_neon_halves(const uint8_t *from)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(from)));
}

/* Four signed bytes as floats. */
static inline float32x4_t mox_neon_integers(const uint8_t *from, int mask, int shift)
{
    int32_t bytes[4];
    for (int r = 0; r < 4; r++)
        bytes[r] = mask != 0 ? from[r] >> shift & mask : (int8_t)from[r];
    return vcvtq_f32_s32(vld1q_s32(bytes));
}

/* Of run `run` of the 16 blocks at `blocks`, rows row .. row + 3. */
static inline mox_neon_scaling mox_neon_scaling_of(const mox_neon_blocks *b, const uint8_t *blocks, int64_t run,
                                                   int row)
{
    const mox_block_fields *f = b->f;
    const uint8_t *s = blocks + b->form.s_at + run * MOX_PANEL_ROWS + row;
    const uint8_t *t = blocks + b->form.t_at + run * MOX_PANEL_ROWS + row;
    const int mask = f->integers == MOX_BLOCK_NIBBLES ? 0x0f : 0;
    mox_neon_scaling out = { mox_neon_halves(blocks + 2 * row), vdupq_n_f32(0.0f) };
    if (f->m_at >= 0)
        out.m = mox_neon_halves(blocks + b->form.m_at + 2 * row);
    if (f->m_sign < 0)
        out.m = vnegq_f32(out.m);
    if (f->integers == MOX_BLOCK_NONE)
        return out;
    out.s = vmulq_f32(out.s, mox_neon_integers(s, mask, 0));
    out.m = vmulq_f32(out.m, mox_neon_integers(mask != 0 ? s : t, mask, 4));
    return out;
}

/* Columns 4g .. 4g+3 of four rows to `to`, columns 16 floats apart. */
static inline void mox_neon_block_columns(bool minimum, int8x16_t levels, mox_neon_scaling scaling, float *to)
{
    const int16x8_t half[2] = { vmovl_s8(vget_low_s8(levels)), vmovl_high_s8(levels) };
    for (int v = 0; v < 4; v++) {
        const int32x4_t wide = v % 2 == 0 ? vmovl_s16(vget_low_s16(half[v / 2])) : vmovl_high_s16(half[v / 2]);
        const float32x4_t level = vcvtq_f32_s32(wide);
        vst1q_f32(to + 16 * v, minimum ? vfmaq_f32(scaling.m, level, scaling.s) : vmulq_f32(level, scaling.s));
    }
}

/* Decodes steps [s, s + count) of a type of block_levels.def to columns of 16 f32. */
static inline void mox_neon_fill_levels(const mox_neon_job *j, int64_t s, int64_t count)
{
    const mox_block *type = mox_block_of(j->element);
    const mox_block_levels *levels = mox_block_levels_of(j->element);
    const int64_t steps = type->weights / MOX_PANEL_STEP;
    float *to = (float *)(void *)j->sc.slab;
    for (const int64_t end = s + count; s < end; s++, to += MOX_PANEL_STEP * MOX_PANEL_ROWS) {
        const uint8_t *block = j->codes + s / steps * MOX_PANEL_ROWS * type->bytes;
        for (int row = 0; row < MOX_PANEL_ROWS; row++, block += type->bytes) {
            int8_t level[MOX_PANEL_STEP];
            float scale[2];
            levels->step(block, mox_f16_decode(mox_block_levels_d(block, levels->d_at)), (int32_t)(s % steps), level,
                         scale);
            for (int k = 0; k < MOX_PANEL_STEP; k++)
                to[k * MOX_PANEL_ROWS + row] = scale[k / 16] * (float)level[k];
        }
    }
}

/* Decodes steps [s, s + count) to columns of 16 f32. */
static inline void mox_neon_fill_blocks(const mox_neon_job *j, int64_t s, int64_t count)
{
    if (mox_block_fields_of(j->element) == NULL) {
        mox_neon_fill_levels(j, s, count);
        return;
    }
    const mox_neon_blocks b = mox_neon_blocks_of(j->element);
    float *to = (float *)(void *)j->sc.slab;
    for (const int64_t end = s + count; s < end; s++, to += MOX_PANEL_STEP * MOX_PANEL_ROWS) {
        const int64_t in = s % b.form.steps;
        const uint8_t *blocks = j->codes + s / b.form.steps * b.form.bytes;
        const uint8_t *step = blocks + b.form.codes_at + in * b.form.step_bytes;
        for (int row = 0; row < MOX_PANEL_ROWS; row += 4) {
            mox_neon_scaling scaling = { vdupq_n_f32(0.0f), vdupq_n_f32(0.0f) };
            for (int g = 0; g < 8; g++) {
                const int64_t col = in * MOX_PANEL_STEP + 4 * g;
                if (g == 0 || col % b.f->run == 0)
                    scaling = mox_neon_scaling_of(&b, blocks, col / b.f->run, row);
                mox_neon_block_columns(b.f->m_at >= 0, mox_neon_levels(&b, step, 4 * row, g), scaling,
                                       to + 4 * g * MOX_PANEL_ROWS + row);
            }
        }
    }
}

#endif
