/* SPDX-License-Identifier: Apache-2.0
 *
 * hf_quant.c - hf_quant.def as a table, and the shorthands that its entries are written in. A packing is
 * { bytes of a word, elements in it, along rows?, order }; in a stream, { 4, bits of a code, along rows?, order }.
 */
#include <string.h>

#include "ckpt/formats/hf_quant_config.h"
#include "ckpt/families/tables.h"
#include "ckpt/gguf/gguf_formats.h"

#define ONE                                                                                                            \
    {                                                                                                                  \
        0, 0, 0, 0                                                                                                     \
    }
#define NIBBLES                                                                                                        \
    {                                                                                                                  \
        1, 2, 0, MOXIE_ORDER_LINEAR                                                                                    \
    }
#define NIBBLES_ROWS                                                                                                   \
    {                                                                                                                  \
        1, 2, 1, MOXIE_ORDER_LINEAR                                                                                    \
    }
#define NIBBLES_32                                                                                                     \
    {                                                                                                                  \
        4, 8, 0, MOXIE_ORDER_LINEAR                                                                                    \
    }
#define NIBBLES_32_ROWS                                                                                                \
    {                                                                                                                  \
        4, 8, 1, MOXIE_ORDER_LINEAR                                                                                    \
    }
#define NIBBLES_AWQ                                                                                                    \
    {                                                                                                                  \
        4, 8, 1, MOXIE_ORDER_AWQ                                                                                       \
    }
#define BYTES_32                                                                                                       \
    {                                                                                                                  \
        4, 4, 0, MOXIE_ORDER_LINEAR                                                                                    \
    }
#define BYTES_32_ROWS                                                                                                  \
    {                                                                                                                  \
        4, 4, 1, MOXIE_ORDER_LINEAR                                                                                    \
    }
#define SEXTETS                                                                                                        \
    {                                                                                                                  \
        3, 4, 0, MOXIE_ORDER_LINEAR                                                                                    \
    }

#define STREAM_2                                                                                                       \
    {                                                                                                                  \
        4, 2, 0, MOX_ORDER_STREAM                                                                                      \
    }
#define STREAM_2_ROWS                                                                                                  \
    {                                                                                                                  \
        4, 2, 1, MOX_ORDER_STREAM                                                                                      \
    }
#define STREAM_3                                                                                                       \
    {                                                                                                                  \
        4, 3, 0, MOX_ORDER_STREAM                                                                                      \
    }
#define STREAM_3_ROWS                                                                                                  \
    {                                                                                                                  \
        4, 3, 1, MOX_ORDER_STREAM                                                                                      \
    }
#define STREAM_5                                                                                                       \
    {                                                                                                                  \
        4, 5, 0, MOX_ORDER_STREAM                                                                                      \
    }
#define STREAM_5_ROWS                                                                                                  \
    {                                                                                                                  \
        4, 5, 1, MOX_ORDER_STREAM                                                                                      \
    }
#define STREAM_6                                                                                                       \
    {                                                                                                                  \
        4, 6, 0, MOX_ORDER_STREAM                                                                                      \
    }
#define STREAM_6_ROWS                                                                                                  \
    {                                                                                                                  \
        4, 6, 1, MOX_ORDER_STREAM                                                                                      \
    }
#define STREAM_7                                                                                                       \
    {                                                                                                                  \
        4, 7, 0, MOX_ORDER_STREAM                                                                                      \
    }
#define STREAM_7_ROWS                                                                                                  \
    {                                                                                                                  \
        4, 7, 1, MOX_ORDER_STREAM                                                                                      \
    }

#define FLOATS                                                                                                         \
    {                                                                                                                  \
        MOXIE_F32, MOXIE_BF16, MOXIE_F16                                                                               \
    }
#define HALVES                                                                                                         \
    {                                                                                                                  \
        MOXIE_BF16, MOXIE_F16                                                                                          \
    }
#define HALVES_FIRST                                                                                                   \
    {                                                                                                                  \
        MOXIE_BF16, MOXIE_F16, MOXIE_F32                                                                               \
    }
#define HALF_FLOATS                                                                                                    \
    {                                                                                                                  \
        MOXIE_F16, MOXIE_BF16, MOXIE_F32                                                                               \
    }
#define E8M0_FILES                                                                                                     \
    {                                                                                                                  \
        MOXIE_F8_E8M0, MOXIE_U8                                                                                        \
    }
#define E8M0_BYTES                                                                                                     \
    {                                                                                                                  \
        MOXIE_U8, MOXIE_F8_E8M0                                                                                        \
    }

#define WEIGHT(element_, scale_, rows_, cols_)                                                                         \
    {                                                                                                                  \
        .element = element_, .scale = scale_, .group_rows = rows_, .group_cols = cols_                                 \
    }
#define WEIGHT_GLOBAL(element_, scale_, cols_, global_)                                                                \
    {                                                                                                                  \
        .element = element_, .scale = scale_, .group_rows = 1, .group_cols = cols_, .global = global_                  \
    }
#define WEIGHT_ZERO(element_, scale_)                                                                                  \
    {                                                                                                                  \
        .element = element_, .scale = scale_, .group_rows = 1, .group_cols = -2, .has_zero = 1                         \
    }

#define ACT_FP8_32_UE8M0                                                                                               \
    {                                                                                                                  \
        .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = 1, .group_cols = 32, .rule = MOXIE_RULE_UE8M0      \
    }
#define ACT_FP8_128    WEIGHT(MOXIE_F8_E4M3, MOXIE_F32, 1, 128)
#define ACT_FP8_TOKEN  WEIGHT(MOXIE_F8_E4M3, MOXIE_F32, 1, -1)
#define ACT_INT8_TOKEN WEIGHT(MOXIE_I8, MOXIE_F32, 1, -1)
#define ACT_MXFP8      WEIGHT(MOXIE_F8_E4M3, MOXIE_F8_E8M0, 1, 32)
#define ACT_MXFP6_E3M2 WEIGHT(MOXIE_F6_E3M2, MOXIE_F8_E8M0, 1, 32)
#define ACT_MXFP6_E2M3 WEIGHT(MOXIE_F6_E2M3, MOXIE_F8_E8M0, 1, 32)
#define ACT_FP8_STATIC                                                                                                 \
    {                                                                                                                  \
        .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = -1, .group_cols = -1, .is_static = 1               \
    }
#define ACT_FP8_128_UE8M0                                                                                              \
    {                                                                                                                  \
        .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = 1, .group_cols = 128, .rule = MOXIE_RULE_UE8M0     \
    }
#define ACT_MXFP4_QUARK                                                                                                \
    {                                                                                                                  \
        .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_rows = 1, .group_cols = 32,                           \
        .rule = MOXIE_RULE_QUARK_EVEN                                                                                  \
    }
#define ACT_NVFP4(global_)                                                                                             \
    {                                                                                                                  \
        .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E4M3, .group_rows = 1, .group_cols = 16, .global = global_,        \
        .is_static = 1                                                                                                 \
    }

#define PART_CODES(suffix_, fused_, file_, value_, packing_)                                                           \
    {                                                                                                                  \
        .role = MOX_PART_CODES, .suffix = suffix_, .fused_suffix = fused_, .file = { file_ }, .value = value_,         \
        .form = MOX_FORM_MATRIX, .packing = packing_                                                                   \
    }
#define PART_CODES_T(suffix_, value_, packing_)                                                                        \
    {                                                                                                                  \
        .role = MOX_PART_CODES, .suffix = suffix_, .file = { MOXIE_I32 }, .value = value_, .form = MOX_FORM_MATRIX,    \
        .packing = packing_, .transposed = true                                                                        \
    }
#define PART_BLOCKS(suffix_, fused_)                                                                                   \
    {                                                                                                                  \
        .role = MOX_PART_CODES, .suffix = suffix_, .fused_suffix = fused_, .file = { MOXIE_U8 },                       \
        .value = MOXIE_F4_E2M1, .form = MOX_FORM_BLOCKS, .packing = NIBBLES                                            \
    }
#define PART_SCALE(suffix_, fused_, file_, value_)                                                                     \
    {                                                                                                                  \
        .role = MOX_PART_SCALE, .suffix = suffix_, .fused_suffix = fused_, .file = file_, .value = value_,             \
        .form = MOX_FORM_GROUPS                                                                                        \
    }
#define PART_SCALE_T(suffix_, file_)                                                                                   \
    {                                                                                                                  \
        .role = MOX_PART_SCALE, .suffix = suffix_, .file = file_, .form = MOX_FORM_GROUPS, .transposed = true          \
    }
#define PART_ZERO(suffix_, transposed_, value_, packing_)                                                              \
    {                                                                                                                  \
        .role = MOX_PART_ZERO, .suffix = suffix_, .file = { MOXIE_I32 }, .value = value_, .form = MOX_FORM_GROUPS,     \
        .packing = packing_, .transposed = transposed_                                                                 \
    }
#define PART_ZERO_I8(suffix_)                                                                                          \
    {                                                                                                                  \
        .role = MOX_PART_ZERO, .suffix = suffix_, .file = { MOXIE_I8 }, .form = MOX_FORM_GROUPS                        \
    }
#define PART_SCALE_4D(suffix_)                                                                                         \
    {                                                                                                                  \
        .role = MOX_PART_SCALE, .suffix = suffix_, .file = FLOATS, .form = MOX_FORM_GROUPS_4D                          \
    }
#define PART_SCALE_TENSOR(suffix_)                                                                                     \
    {                                                                                                                  \
        .role = MOX_PART_SCALE, .suffix = suffix_, .file = HALVES_FIRST, .form = MOX_FORM_SCALAR, .trailing_one = true \
    }
#define PART_ROWS(role_, suffix_, fused_, file_, trailing_)                                                            \
    {                                                                                                                  \
        .role = role_, .suffix = suffix_, .fused_suffix = fused_, .file = file_, .form = MOX_FORM_ROWS,                \
        .trailing_one = trailing_                                                                                      \
    }
#define PART_SCALAR(role_, suffix_, fused_)                                                                            \
    {                                                                                                                  \
        .role = role_, .suffix = suffix_, .fused_suffix = fused_, .file = FLOATS, .form = MOX_FORM_SCALAR              \
    }
#define PART_SCALAR_1(role_, suffix_)                                                                                  \
    {                                                                                                                  \
        .role = role_, .suffix = suffix_, .file = FLOATS, .form = MOX_FORM_SCALAR, .trailing_one = true                \
    }
#define PART_INPUT(suffix_, fused_)                                                                                    \
    {                                                                                                                  \
        .role = MOX_PART_INPUT_SCALE, .suffix = suffix_, .fused_suffix = fused_, .file = FLOATS,                       \
        .form = MOX_FORM_SCALAR, .optional = true                                                                      \
    }
#define PART_INPUT_1(suffix_)                                                                                          \
    {                                                                                                                  \
        .role = MOX_PART_INPUT_SCALE, .suffix = suffix_, .file = FLOATS, .form = MOX_FORM_SCALAR,                      \
        .trailing_one = true, .optional = true                                                                         \
    }
#define PART_INPUT_UNWRITTEN(suffix_, fused_)                                                                          \
    {                                                                                                                  \
        .role = MOX_PART_INPUT_SCALE, .suffix = suffix_, .fused_suffix = fused_, .file = FLOATS,                       \
        .form = MOX_FORM_SCALAR, .optional = true, .unwritten = true                                                   \
    }
#define PART_SHAPE(suffix_, first_, second_)                                                                           \
    {                                                                                                                  \
        .role = MOX_PART_SHAPE, .suffix = suffix_, .file = { first_, second_ }, .form = MOX_FORM_PAIR,                 \
        .optional = true                                                                                               \
    }
#define PART_GROUP_INDEX(suffix_)                                                                                      \
    {                                                                                                                  \
        .role = MOX_PART_GROUP_INDEX, .suffix = suffix_, .file = { MOXIE_I32 }, .form = MOX_FORM_COLUMNS,              \
        .optional = true                                                                                               \
    }
#define PART_GROUP_INDEX_UNWRITTEN(suffix_)                                                                            \
    {                                                                                                                  \
        .role = MOX_PART_GROUP_INDEX, .suffix = suffix_, .file = { MOXIE_I32 }, .form = MOX_FORM_COLUMNS,              \
        .optional = true, .unwritten = true                                                                            \
    }

#define WIDENED(bits)         "codes of " #bits " bits, copied into 4 bits each when a layer is loaded"
#define WIDENED_TO_BYTE(bits) "codes of " #bits " bits, copied into 8 bits each when a layer is loaded"

#define MOX_HF_QUANT(...) { __VA_ARGS__ },
#define MOX_HF_COMPANION(suffix, meaning)
#define MOX_HF_UNSUPPORTED(suffix, format, remedy)
static const mox_hf_quant formats[] = {
#include "ckpt/formats/hf_quant.def"
};
#undef MOX_HF_QUANT
#undef MOX_HF_COMPANION
#undef MOX_HF_UNSUPPORTED

#define MOX_HF_QUANT(...)
#define MOX_HF_COMPANION(suffix, meaning) { suffix, meaning, NULL },
#define MOX_HF_UNSUPPORTED(suffix, format, remedy)
static const mox_hf_marker companions[] = {
#include "ckpt/formats/hf_quant.def"
};
#undef MOX_HF_COMPANION
#undef MOX_HF_UNSUPPORTED

#define MOX_HF_COMPANION(suffix, meaning)
#define MOX_HF_UNSUPPORTED(suffix, format, remedy) { suffix, format, remedy },
static const mox_hf_marker unsupported[] = {
#include "ckpt/formats/hf_quant.def"
};

const mox_hf_quant *mox_hf_quant_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof formats / sizeof formats[0] ? &formats[i] : NULL;
}

int32_t mox_hf_quant_stored_bits(const mox_hf_quant *format)
{
    const moxie_packing *packing = &format->parts[0].packing;
    return packing->order == MOX_ORDER_STREAM ? packing->per_word : mox_dtype_bits(format->weight.element);
}

const mox_hf_quant *mox_hf_quant_by_id(const char *id)
{
    for (int32_t i = 0; mox_hf_quant_at(i); i++)
        if (strcmp(formats[i].id, id) == 0)
            return &formats[i];
    return mox_gguf_format_by_id(id);
}

const mox_hf_marker *mox_hf_companion_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof companions / sizeof companions[0] ? &companions[i] : NULL;
}

const mox_hf_marker *mox_hf_unsupported_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof unsupported / sizeof unsupported[0] ? &unsupported[i] : NULL;
}

moxie_quant mox_hf_quant_weight(const mox_hf_quant *format, int64_t k)
{
    moxie_quant weight = format->weight;
    if (weight.group_cols == -2)
        weight.group_cols = (int32_t)(format->default_group < k ? format->default_group : k);
    return weight;
}
