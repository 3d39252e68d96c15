/* SPDX-License-Identifier: Apache-2.0
 *
 * act_row.h - a quantized row of activations as it travels between ranks.
 *
 *     | codes [cols], element.bits each, lowest bits first | scales [ceil(cols / group_cols)] |
 *
 * Scales have the scale's dtype; the quantizer decoded them from it, so encoding them again is exact. Static scales
 * and globals do not travel: the receiver has them with its experts.
 *
 * In the flow: sender's quantizer -> [act_row] -> exchange -> [act_row] -> activations of W13.
 */
#ifndef MOX_QUANT_ACT_ROW_H
#define MOX_QUANT_ACT_ROW_H

#include "quant/quant.h"

int64_t mox_act_row_bytes(const moxie_quant *quant, int64_t cols);
/* codes [cols], one a byte, and scales as mox_act_quant_row() makes them. Rows have no alignment. Thread-safe. */
void mox_act_row_store(const moxie_quant *quant, const uint8_t *codes, const float *scales, int64_t cols, void *row);
void mox_act_row_load(const moxie_quant *quant, const void *row, int64_t cols, uint8_t *codes, float *scales);

#endif
