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

/* `rows` are `stride` bytes apart and hold steps * 32 codes each; nothing behind them is read. */
void mox_panel_codes_pack(mox_panel_order order, const uint8_t *rows, int64_t stride, int64_t steps, uint8_t *to);
void mox_panel_codes_unpack(mox_panel_order order, const uint8_t *from, int64_t steps, uint8_t *rows, int64_t stride);

/* From 32-bit words of 8 nibbles or 4 bytes along K that lie by columns, as GPTQ's: word w of row n at words +
 * w * col_stride + 4 * n. Orders of 4 and 8 bits. */
void mox_panel_codes_pack_columns(mox_panel_order order, const uint8_t *words, int64_t col_stride, int64_t steps,
                                  uint8_t *to);
/* To NIBBLES, from 32-bit words of 8 nibbles along N: rows 0 .. 7 of column k at words + k * col_stride, rows 8 .. 15
 * word_stride after that. awq: row i of a word is nibble 0 4 1 5 2 6 3 7 of it. */
void mox_panel_codes_pack_rows(bool awq, const uint8_t *words, int64_t word_stride, int64_t col_stride, int64_t steps,
                               uint8_t *to);

/* The same bytes by wider vectors; for the functions above and their test alone. */
void mox_panel_codes_pack_avx2(mox_panel_order order, const uint8_t *rows, int64_t stride, int64_t steps, uint8_t *to);
void mox_panel_codes_unpack_avx2(mox_panel_order order, const uint8_t *from, int64_t steps, uint8_t *rows,
                                 int64_t stride);
void mox_panel_codes_pack_columns_avx2(mox_panel_order order, const uint8_t *words, int64_t col_stride, int64_t steps,
                                       uint8_t *to);
void mox_panel_codes_pack_rows_avx2(bool awq, const uint8_t *words, int64_t word_stride, int64_t col_stride,
                                    int64_t steps, uint8_t *to);

#endif
