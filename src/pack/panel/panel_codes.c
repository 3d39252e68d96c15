/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_codes.c - the six orders of panel.h: which order an element has, and packing with 16-byte vectors, or with
 * 32-byte ones where the processor has AVX2 (panel_codes.h, panel_codes_tmpl.h). The bytes are the same.
 */
#include "pack/panel/panel_codes.h"

#include "base/cpu_features.h"
#include "pack/panel/block_panel.h"
#include "pack/panel/element_traits.h"
#include "pack/panel/panel_codes_tmpl.h"

mox_panel_order mox_panel_order_of(moxie_dtype element)
{
    const mox_panel_order listed = mox_element_traits_of(element).order;
    const mox_format *format = mox_format_of(element);
    if (listed != MOX_PANEL_NONE)
        return listed;
    if (mox_is_block(element))
        return mox_block_panel_holds(element) ? MOX_PANEL_BLOCKS : MOX_PANEL_NONE;
    if (format == NULL || format->kind == MOX_KIND_EXPONENT)
        return MOX_PANEL_NONE;
    switch (format->bits) {
    case 4: return MOX_PANEL_NIBBLES;
    case 6: return MOX_PANEL_PLANES;
    case 8: return format->kind == MOX_KIND_INTEGER ? MOX_PANEL_QUADS : MOX_PANEL_ZIPPED;
    default: return MOX_PANEL_NONE;
    }
}

uint64_t mox_panel_step_bytes(mox_panel_order order)
{
    static const uint16_t bytes[] = {
        [MOX_PANEL_NONE] = 0,     [MOX_PANEL_PAIRS] = 1024,  [MOX_PANEL_HALVES] = 1024, [MOX_PANEL_QUADS] = 512,
        [MOX_PANEL_ZIPPED] = 512, [MOX_PANEL_NIBBLES] = 256, [MOX_PANEL_PLANES] = 384,  [MOX_PANEL_BLOCKS] = 0,
    };
    return bytes[order];
}

void mox_panel_codes_pack(mox_panel_order order, const uint8_t *rows, int64_t stride, int64_t steps, uint8_t *to)
{
    if (mox_cpu()->allowed >= MOX_ISA_AVX2)
        mox_panel_codes_pack_avx2(order, rows, stride, steps, to);
    else
        pack_order(order, rows, stride, steps, to);
}

void mox_panel_codes_unpack(mox_panel_order order, const uint8_t *from, int64_t steps, uint8_t *rows, int64_t stride)
{
    if (mox_cpu()->allowed >= MOX_ISA_AVX2)
        mox_panel_codes_unpack_avx2(order, from, steps, rows, stride);
    else
        unpack_order(order, from, steps, rows, stride);
}

void mox_panel_codes_pack_columns(mox_panel_order order, const uint8_t *words, int64_t col_stride, int64_t steps,
                                  uint8_t *to)
{
    if (mox_cpu()->allowed >= MOX_ISA_AVX2)
        mox_panel_codes_pack_columns_avx2(order, words, col_stride, steps, to);
    else
        pack_columns_order(order, words, col_stride, steps, to);
}

void mox_panel_codes_pack_rows(bool awq, const uint8_t *words, int64_t word_stride, int64_t col_stride, int64_t steps,
                               uint8_t *to)
{
    if (mox_cpu()->allowed >= MOX_ISA_AVX2)
        mox_panel_codes_pack_rows_avx2(awq, words, word_stride, col_stride, steps, to);
    else
        pack_rows_order(awq, words, word_stride, col_stride, steps, to);
}
