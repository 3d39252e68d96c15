/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_blocks_repack.c - codes and scales that a block type can hold as they are (quantize_blocks.h):
 *
 *     gpt-oss' MXFP4 -> mxfp4     INT4 with f16 scales for 32 weights -> q4_0     ...
 *
 * Types that are read as codes and scales (gguf_formats.c) are written through the same two grids.
 */
#include "ckpt/quantize/quantize_blocks.h"

#include "ckpt/gguf/gguf_formats.h"
#include "format/block.h"

/* Whether both have the same numbers, if under other codes. */
static bool same_numbers(const mox_format *a, const mox_format *b)
{
    return a == b || (a->kind == MOX_KIND_INTEGER && b->kind == MOX_KIND_INTEGER && a->max == b->max);
}

static bool same_groups(const moxie_matrix *source, const moxie_quant *quant, const moxie_quant *to)
{
    return !mox_quant_is_plain(quant) && !mox_quant_is_block(quant) && !mox_quant_is_block(to) && !quant->has_zero &&
           !quant->global && !source->group_index && mox_group_rows(quant, source->codes.rows) == 1 &&
           mox_group_cols(quant, source->codes.cols) == to->group_cols &&
           same_numbers(mox_format_of(quant->element), mox_format_of(to->element));
}

static bool put_scales(const moxie_matrix *source, const moxie_quant *to, const moxie_grid *out)
{
    const mox_format *format = mox_format_of(to->scale);
    for (int64_t r = 0; r < out->rows; r++)
        for (int64_t c = 0; c < out->cols; c++) {
            const float scale = (float)mox_grid_value(&source->scale, r, c);
            const uint32_t code = format->encode(scale);
            if (!(format->decode(code) == scale))
                return false;
            mox_grid_store(out, r, c, code);
        }
    return true;
}

static void put_codes(const moxie_matrix *source, const moxie_quant *quant, const moxie_quant *to,
                      const moxie_grid *out)
{
    const mox_format *from = mox_format_of(quant->element), *format = mox_format_of(to->element);
    for (int64_t r = 0; r < out->rows; r++)
        for (int64_t c = 0; c < out->cols; c++) {
            const uint32_t code = mox_grid_code(&source->codes, r, c);
            mox_grid_store(out, r, c, from == format ? code : format->encode(from->decode(code)));
        }
}

bool mox_quantize_blocks_repack(const mox_tensor_spec *spec, const moxie_matrix *source, const moxie_quant *quant,
                                uint8_t *piece)
{
    const mox_hf_quant *format = mox_block_of(spec->dtype) ? mox_gguf_format(spec->dtype, false) : NULL;
    moxie_grid grids[2];
    moxie_error ignored = { 0 };
    if (!format || !same_groups(source, quant, &format->weight))
        return false;
    for (int i = 0; i < 2; i++) {
        const mox_tensor_spec part = { .dtype = spec->dtype,
                                       .rank = 2,
                                       .shape = { spec->rows, spec->cols },
                                       .part = &format->parts[i],
                                       .format = format,
                                       .rows = spec->rows,
                                       .cols = spec->cols };
        if (mox_spec_grid(&part, piece, 0, &grids[i], &ignored) != MOXIE_OK)
            return false;
    }
    if (!put_scales(source, &format->weight, &grids[1]))
        return false;
    put_codes(source, quant, &format->weight, &grids[0]);
    return true;
}
