/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_move.h - the contents of panels (panel.h): codes, scales and zero points of 16 rows from the grids of a
 * checkpoint and back; also globals and biases in panel order.
 *
 * In the flow: checkpoint views -> [panels] -> record, in the parts that layout_panel.c cuts.
 */
#ifndef MOX_PACK_PANEL_MOVE_H
#define MOX_PACK_PANEL_MOVE_H

#include "pack/panel/panel.h"

/* A stored zero point is the zero point + BIAS, from 0 to MAX: for 4-bit integers, and for 8-bit ones (_8). */
#define MOX_PANEL_ZERO_BIAS   8
#define MOX_PANEL_ZERO_MAX    16
#define MOX_PANEL_ZERO_BIAS_8 128
#define MOX_PANEL_ZERO_MAX_8  255

/* The zero point at (r, g) as a panel stores it. False when unpacking would not give the same code. */
bool mox_panel_zero_byte(const moxie_matrix *from, int64_t r, int64_t g, uint8_t *out);

/* True when every zero point is representable, so that none has to be checked: 4 bits and zero_add 0 or 1. */
bool mox_panel_has_safe_zeros(const moxie_matrix *from);

/* Packs `count` panels of rows row, row + 16, ... (row is a multiple of 16) to `panel`, one every `distance` bytes.
 * Every byte of them is written. The layout accepted the expert. */
void mox_panel_pack(const mox_panel_matrix *m, const moxie_quant *quant, const moxie_matrix *from, int64_t row,
                    int64_t count, uint8_t *panel, uint64_t distance);
/* The inverse for one panel, through writable grids. */
void mox_panel_unpack(const mox_panel_matrix *m, const moxie_quant *quant, const uint8_t *panel, const moxie_matrix *to,
                      int64_t row);

/* Globals or biases of one matrix, [rows, 1] or one for all rows, to or from their places in [m->count * 16]. half 0:
 * gate or the only matrix; half 1: up. */
void mox_panel_pack_rows(const mox_panel_matrix *m, const moxie_grid *from, int half, float *to);
void mox_panel_unpack_rows(const mox_panel_matrix *m, const float *from, int half, const moxie_grid *to);

#endif
