/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_codes_avx2.c - panel_codes_tmpl.h again, compiled for 32-byte vectors.
 */
#ifdef __AVX2__
#define MOX_LANES 2
#endif
#include "pack/panel/panel_codes.h"
#include "pack/panel/panel_codes_tmpl.h"

void mox_panel_codes_pack_avx2(mox_panel_order order, const uint8_t *rows, int64_t stride, int64_t steps, uint8_t *to)
{
    pack_order(order, rows, stride, steps, to);
}

void mox_panel_codes_unpack_avx2(mox_panel_order order, const uint8_t *from, int64_t steps, uint8_t *rows,
                                 int64_t stride)
{
    unpack_order(order, from, steps, rows, stride);
}

void mox_panel_codes_pack_columns_avx2(mox_panel_order order, const uint8_t *words, int64_t col_stride, int64_t steps,
                                       uint8_t *to)
{
    pack_columns_order(order, words, col_stride, steps, to);
}

void mox_panel_codes_pack_rows_avx2(bool awq, const uint8_t *words, int64_t word_stride, int64_t col_stride,
                                    int64_t steps, uint8_t *to)
{
    pack_rows_order(awq, words, word_stride, col_stride, steps, to);
}
