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

#include "pack/panel.h"

/* Bytes of a step of 16 rows x 32 columns; 0 for MOX_PANEL_NONE. A multiple of 64. */
uint64_t mox_panel_step_bytes(mox_panel_order order);

/* `rows` are `stride` bytes apart and hold steps * 32 codes each; nothing behind them is read. */
void mox_panel_codes_pack(mox_panel_order order, const uint8_t *rows, int64_t stride, int64_t steps, uint8_t *to);
void mox_panel_codes_unpack(mox_panel_order order, const uint8_t *from, int64_t steps, uint8_t *rows, int64_t stride);

/* The same bytes by wider vectors; for the functions above and their test alone. */
void mox_panel_codes_pack_avx2(mox_panel_order order, const uint8_t *rows, int64_t stride, int64_t steps, uint8_t *to);
void mox_panel_codes_unpack_avx2(mox_panel_order order, const uint8_t *from, int64_t steps, uint8_t *rows,
                                 int64_t stride);

#endif
