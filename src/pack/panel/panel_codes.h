/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_codes.h - the six orders of codes in a panel (panel.h): dense rows to steps, and back.
 *
 *     rows [16][steps * 32] codes of `bits` bits, low bits first   <->   steps [steps][step bytes]
 *
 * In the flow: grid -> tile of dense rows (grid_tile.h) -> [steps] -> record.
 */
#ifndef MOX_PACK_PANEL_CODES_H
#define MOX_PACK_PANEL_CODES_H

#include "pack/panel/panel.h"

/* Bytes of a step of 16 rows x 32 columns; 0 for MOX_PANEL_NONE. A multiple of 64. */
uint64_t mox_panel_step_bytes(mox_panel_order order);

/* Rows are `stride` bytes apart and hold steps * 32 codes each. Nothing behind them is read. */
void mox_panel_codes_pack(mox_panel_order order, const uint8_t *rows, int64_t stride, int64_t steps, uint8_t *to);
void mox_panel_codes_unpack(mox_panel_order order, const uint8_t *from, int64_t steps, uint8_t *rows, int64_t stride);

/* Packs from 32-bit words that hold 8 nibbles or 4 bytes along K, the words of a row below each other (GPTQ): word w of
 * row n is at words + w * col_stride + 4 * n. For orders of 4 and 8 bits. */
void mox_panel_codes_pack_columns(mox_panel_order order, const uint8_t *words, int64_t col_stride, int64_t steps,
                                  uint8_t *to);
/* Packs to NIBBLES from 32-bit words that hold 8 nibbles along N: rows 0 .. 7 of column k are at words + k *
 * col_stride, rows 8 .. 15 word_stride behind them. awq: the rows are in nibbles 0 4 1 5 2 6 3 7 of a word. */
void mox_panel_codes_pack_rows(bool awq, const uint8_t *words, int64_t word_stride, int64_t col_stride, int64_t steps,
                               uint8_t *to);

/* The same bytes with 32-byte vectors. Only the functions above and their test call these. */
void mox_panel_codes_pack_avx2(mox_panel_order order, const uint8_t *rows, int64_t stride, int64_t steps, uint8_t *to);
void mox_panel_codes_unpack_avx2(mox_panel_order order, const uint8_t *from, int64_t steps, uint8_t *rows,
                                 int64_t stride);
void mox_panel_codes_pack_columns_avx2(mox_panel_order order, const uint8_t *words, int64_t col_stride, int64_t steps,
                                       uint8_t *to);
void mox_panel_codes_pack_rows_avx2(bool awq, const uint8_t *words, int64_t word_stride, int64_t col_stride,
                                    int64_t steps, uint8_t *to);

#endif
