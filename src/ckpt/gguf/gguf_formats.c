/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_formats.c - formats made from blocks.def, and the types that are also read as codes and scales.
 *
 *     block     | scale | codes | scale | codes | ...     the same bytes, seen as two grids with a block's stride
 *
 * Such a type is the usual quantization by groups, so panels and GPU kernels take it. It means what the block
 * type means, but for two codes of scales that ggml reads against the standard: 255 of mxfp4, and 0x7f and above of
 * nvfp4.
 */
#include "ckpt/gguf/gguf_formats.h"

#include <string.h>

/* Without and with a scale for each expert. */
typedef struct block_formats {
    mox_hf_quant format[2];
} block_formats;

#define EXPERT_SCALE                                                                                                   \
    {                                                                                                                  \
        .role = MOX_PART_GLOBAL, .suffix = ".scale", .file = { MOXIE_F32 }, .form = MOX_FORM_SCALAR                    \
    }
#define CODES(number, dtype, ...)                                                                                      \
    {                                                                                                                  \
        .role = MOX_PART_CODES, .suffix = ".weight", .file = { number }, .value = dtype, .form = MOX_FORM_MATRIX,      \
        __VA_ARGS__                                                                                                    \
    }
#define SCALES(number, dtype, ...)                                                                                     \
    {                                                                                                                  \
        .role = MOX_PART_SCALE, .suffix = ".weight", .file = { number }, .value = dtype, .form = MOX_FORM_GROUPS,      \
        __VA_ARGS__                                                                                                    \
    }

#define BLOCK_PACKING                                                                                                  \
    {                                                                                                                  \
        .order = MOX_ORDER_BLOCK                                                                                       \
    }
#define MOX_BLOCK(id_, type, name, weights, bytes)                                                                     \
    { { { .id = name,                                                                                                  \
          .method = "gguf",                                                                                            \
          .weight = { .element = MOX_BLOCK_DTYPE + type },                                                             \
          .parts = { CODES(MOX_BLOCK_DTYPE + type, MOX_BLOCK_DTYPE + type, .packing = BLOCK_PACKING) } },              \
        { .id = name "-scaled",                                                                                        \
          .method = "gguf",                                                                                            \
          .weight = { .element = MOX_BLOCK_DTYPE + type, .global = MOXIE_GLOBAL_MULTIPLY },                            \
          .parts = { CODES(MOX_BLOCK_DTYPE + type, MOX_BLOCK_DTYPE + type, .packing = BLOCK_PACKING),                  \
                     EXPERT_SCALE } } } },
static const block_formats formats[] = {
#include "format/blocks.def"
};
#undef MOX_BLOCK

#define WORD(bytes, count, order_)                                                                                     \
    {                                                                                                                  \
        .word_bytes = bytes, .per_word = count, .order = order_                                                        \
    }
/* GROUPS(name, type, element, scale, columns of a group, byte of codes, their word, word of scales); scales lie at byte
 * 0. */
#define GROUPS(name, type, element_, scale_, group, codes_at, codes, scales)                                           \
    { { { .id = name,                                                                                                  \
          .method = "gguf",                                                                                            \
          .weight = { .element = element_, .scale = scale_, .group_rows = 1, .group_cols = group },                    \
          .parts = { CODES(MOX_BLOCK_DTYPE + type, element_, .packing = codes, .at = codes_at),                        \
                     SCALES(MOX_BLOCK_DTYPE + type, scale_, .packing = scales) } },                                    \
        { .id = name "-scaled",                                                                                        \
          .method = "gguf",                                                                                            \
          .weight = { .element = element_,                                                                             \
                      .scale = scale_,                                                                                 \
                      .group_rows = 1,                                                                                 \
                      .group_cols = group,                                                                             \
                      .global = MOXIE_GLOBAL_MULTIPLY },                                                               \
          .parts = { CODES(MOX_BLOCK_DTYPE + type, element_, .packing = codes, .at = codes_at),                        \
                     SCALES(MOX_BLOCK_DTYPE + type, scale_, .packing = scales), EXPERT_SCALE } } } },
static const block_formats grouped[] = {
    GROUPS("q8_0", 8, MOXIE_I8, MOXIE_F16, 32, 2, WORD(32, 32, MOX_ORDER_HALVES), WORD(2, 1, 0))
        GROUPS("q4_0", 2, MOXIE_U4B8, MOXIE_F16, 32, 2, WORD(16, 32, MOX_ORDER_HALVES), WORD(2, 1, 0))
            GROUPS("mxfp4_ggml", 39, MOXIE_F4_E2M1, MOXIE_F8_E8M0, 32, 1, WORD(16, 32, MOX_ORDER_HALVES), WORD(1, 1, 0))
                GROUPS("nvfp4_ggml", 40, MOXIE_F4_E2M1, MOXIE_F8_E4M3, 16, 4, WORD(32, 64, MOX_ORDER_HALVES_16),
                       WORD(4, 4, 0))
};

enum { GROUPED = sizeof grouped / sizeof grouped[0], FORMATS = sizeof formats / sizeof formats[0] };

const mox_hf_quant *mox_gguf_format(moxie_dtype dtype, bool has_scale)
{
    for (size_t i = 0; i < GROUPED; i++)
        if (grouped[i].format[0].parts[0].file[0] == dtype)
            return &grouped[i].format[has_scale];
    for (size_t i = 0; i < FORMATS; i++)
        if (formats[i].format[0].parts[0].file[0] == dtype)
            return &formats[i].format[has_scale];
    return NULL;
}

const mox_hf_quant *mox_gguf_block_format(moxie_dtype dtype)
{
    for (size_t i = 0; i < FORMATS; i++)
        if (formats[i].format[0].parts[0].file[0] == dtype)
            return &formats[i].format[0];
    return NULL;
}

const mox_hf_quant *mox_gguf_format_by_id(const char *id)
{
    for (size_t i = 0; i < FORMATS; i++)
        for (int scaled = 0; scaled < 2; scaled++)
            if (strcmp(formats[i].format[scaled].id, id) == 0)
                return mox_gguf_format(formats[i].format[0].parts[0].file[0], scaled);
    return NULL;
}
