/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_formats.c - formats made from blocks.def (gguf_formats.h).
 */
#include "ckpt/gguf/gguf_formats.h"

#include <string.h>

#define CODES(number)                                                                                                  \
    {                                                                                                                  \
        .role = MOX_PART_CODES, .suffix = ".weight", .file = { number }, .value = number, .form = MOX_FORM_MATRIX      \
    }
#define SCALE                                                                                                          \
    {                                                                                                                  \
        .role = MOX_PART_GLOBAL, .suffix = ".scale", .file = { MOXIE_F32 }, .form = MOX_FORM_SCALAR                    \
    }
/* Without and with a scale. */
#define MOX_BLOCK(id_, type, name, weights, bytes)                                                                     \
    { { .id = name,                                                                                                    \
        .method = "gguf",                                                                                              \
        .summary = "a block type of GGUF",                                                                             \
        .weight = { .element = MOX_BLOCK_DTYPE + type },                                                               \
        .parts = { CODES(MOX_BLOCK_DTYPE + type) } },                                                                  \
      { .id = name "-scaled",                                                                                          \
        .method = "gguf",                                                                                              \
        .summary = "a block type of GGUF, with a scale for each expert",                                               \
        .weight = { .element = MOX_BLOCK_DTYPE + type, .global = MOXIE_GLOBAL_MULTIPLY },                              \
        .parts = { CODES(MOX_BLOCK_DTYPE + type), SCALE } } },
static const mox_hf_quant formats[][2] = {
#include "format/blocks.def"
};
#undef MOX_BLOCK

const mox_hf_quant *mox_gguf_format(moxie_dtype dtype, bool has_scale)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i][0].weight.element == dtype)
            return &formats[i][has_scale];
    return NULL;
}

const mox_hf_quant *mox_gguf_format_by_id(const char *id)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        for (int scaled = 0; scaled < 2; scaled++)
            if (strcmp(formats[i][scaled].id, id) == 0)
                return &formats[i][scaled];
    return NULL;
}
