/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_scales.h - converts the scales of one panel to floats, before its product begins. The functions are inline, so
 * that each ISA's files compile the loops with their own flags. The loops have no branches, and become vector code.
 *
 *     group g of the panel, row n  ->  out[16 g + n]
 *
 * Call it before subnormals are switched off, so that a scale of 2^-127 and the subnormals of f16 count.
 *
 * In the flow: record of layout panel16 -> [scales] -> panel kernels.
 */
#ifndef MOX_CPU_PANEL_SCALES_H
#define MOX_CPU_PANEL_SCALES_H

#include <string.h>

#include "pack/panel/panel.h"

static inline float mox_scale_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The code is the exponent field of the value, except for 2^-127, which is subnormal, and for NaN. */
static inline float mox_scale_e8m0(uint32_t code)
{
    const uint32_t bits = code << 23, min = 0x00400000u; /* 2^-127 */
    const uint32_t quiet = code == 255 ? min : 0;
    return mox_scale_of((bits > min ? bits : min) | quiet);
}

/* Four exponent bits, bias 7, three mantissa bits; 0x7f is NaN. Subnormals come out of the subtraction. */
static inline float mox_scale_e4m3(uint32_t code)
{
    const uint32_t magnitude = code & 0x7f, subnormal = magnitude < 8 ? UINT32_MAX : 0;
    const uint32_t special = magnitude == 0x7f ? 0x7fc00000u : 0;
    const float value =
        mox_scale_of((magnitude << 20) + (120u << 23) + (subnormal & 1u << 23)) - mox_scale_of(subnormal & 0x3c800000u);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return mox_scale_of(bits | special | (code & 0x80) << 24);
}

static inline float mox_scale_bf16(uint32_t code)
{
    return mox_scale_of(code << 16);
}

/* The fields of f16, moved to those of f32, give value * 2^-112. Exponent 31 (infinity, NaN) becomes 255. */
static inline float mox_scale_f16(uint32_t code)
{
    const uint32_t special = (code & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
    const float value = mox_scale_of((code & 0x7fff) << 13) * 0x1p112f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return mox_scale_of(bits | special | (code & 0x8000) << 16);
}

static inline void mox_scales_read(moxie_dtype dtype, const uint8_t *restrict code, int64_t count, float *restrict out)
{
    uint16_t half;
    switch (dtype) {
    case MOXIE_F8_E8M0:
        for (int64_t i = 0; i < count; i++)
            out[i] = mox_scale_e8m0(code[i]);
        break;
    case MOXIE_F8_E4M3:
        for (int64_t i = 0; i < count; i++)
            out[i] = mox_scale_e4m3(code[i]);
        break;
    case MOXIE_BF16:
        for (int64_t i = 0; i < count; i++) {
            memcpy(&half, code + 2 * i, sizeof half);
            out[i] = mox_scale_bf16(half);
        }
        break;
    case MOXIE_F16:
        for (int64_t i = 0; i < count; i++) {
            memcpy(&half, code + 2 * i, sizeof half);
            out[i] = mox_scale_f16(half);
        }
        break;
    default: memcpy(out, code, (size_t)count * sizeof *out); break;
    }
}

static inline void mox_scales_fill(float *out, int64_t count, float value)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = value;
}

/* The scales of all groups of panel `panel`, to out [groups][16]; 1 where there is no scale. */
static inline void mox_panel_scales(const mox_panel_matrix *matrix, moxie_dtype dtype, int64_t panel, float *out)
{
    const uint8_t *codes = matrix->panels + (uint64_t)panel * matrix->panel_bytes + matrix->scale_at;
    if (matrix->scale_lanes == 0) {
        mox_scales_fill(out, matrix->groups * MOX_PANEL_ROWS, 1.0f);
    } else if (matrix->scale_lanes == MOX_PANEL_ROWS) {
        mox_scales_read(dtype, codes, matrix->groups * MOX_PANEL_ROWS, out);
    } else {
        const int64_t bytes = mox_dtype_bytes(dtype);
        for (int64_t g = 0; g < matrix->groups; g++) {
            float one;
            mox_scales_read(dtype, codes + g * bytes, 1, &one);
            mox_scales_fill(out + g * MOX_PANEL_ROWS, MOX_PANEL_ROWS, one);
        }
    }
}

#endif
