/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_move.h - the contents of panels (panel.h): codes, scales and zero points of 16 rows, from a checkpoint's grids
 * and back; and globals and biases in panel order.
 *
 * In the flow: checkpoint views -> [panels] -> record, in the parts that layout_panel.c cuts.
 */
#ifndef MOX_PACK_PANEL_MOVE_H
#define MOX_PACK_PANEL_MOVE_H

#include "pack/panel/panel.h"

/* What a zero point counts from, below 0, and the most that it may count: of 4-bit integers, and of 8-bit ones. */
#define MOX_PANEL_ZERO_BIAS   8
#define MOX_PANEL_ZERO_MOST   16
#define MOX_PANEL_ZERO_BIAS_8 128
#define MOX_PANEL_ZERO_MOST_8 255

/* The zero point at (r, g) as a panel keeps it; false when unpacking that would not give the same code. */
bool mox_panel_zero_byte(const moxie_matrix *from, int64_t r, int64_t g, uint8_t *out);

/* True when there is no need to ask that of each: 4 bits, and a checkpoint's usual 0 or 1 to add. */
bool mox_panel_has_safe_zeros(const moxie_matrix *from);

/* `count` panels of rows row, row + 16, ... (row a multiple of 16) to `panel`, one every `distance` bytes: each byte of
 * them is written, and all they hold must be such that the layout takes it. */
void mox_panel_pack(const mox_panel_matrix *m, const moxie_quant *quant, const moxie_matrix *from, int64_t row,
                    int64_t count, uint8_t *panel, uint64_t distance);
/* The inverse for one panel, through writable grids. */
void mox_panel_unpack(const mox_panel_matrix *m, const moxie_quant *quant, const uint8_t *panel, const moxie_matrix *to,
                      int64_t row);

/* Globals or biases of one matrix, [rows, 1] or one for all, to their places in [m->count * 16]; half 0 is gate, or
 * all there is; half 1 is up. */
void mox_panel_pack_rows(const mox_panel_matrix *m, const moxie_grid *from, int half, float *to);
void mox_panel_unpack_rows(const mox_panel_matrix *m, const float *from, int half, const moxie_grid *to);

#endif
