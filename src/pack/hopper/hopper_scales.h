/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_scales.h - what layouts "hopper_codes" and "hopper_fp8" (hopper.h) make of scales: multipliers in blocks, and
 * factors of rows.
 *
 * In the flow: checkpoint scales -> [multipliers, factors] -> record, and back.
 */
#ifndef MOX_PACK_HOPPER_SCALES_H
#define MOX_PACK_HOPPER_SCALES_H

#include "pack/hopper/hopper_tiles.h"

/* Multipliers of a row in a block, and bytes of one. */
int64_t mox_hopper_groups(const mox_hopper_product *p);
size_t mox_hopper_scale_bytes(const mox_hopper_product *p);

/* mox_hopper_order's. */
const char *mox_hopper_codes_reject(const mox_hopper_product *p, const char *name, char *buffer, size_t size);
bool mox_hopper_codes_accept(const mox_hopper_product *p, const moxie_matrix *from, const char *name, char *reason,
                             size_t size);
float mox_hopper_codes_factor(const mox_hopper_product *p, const moxie_matrix *from, int64_t row);

/* Multipliers of a row, where they begin in one block after another, `apart` bytes from each other. */
void mox_hopper_put_scales(const mox_hopper_product *p, const moxie_matrix *from, int64_t row, uint8_t *to,
                           uint64_t apart);
/* The inverse for row r of the grid of scales (and zero points), from what a row of it has: its factor too. */
void mox_hopper_get_scales(const mox_hopper_product *p, const uint8_t *from, uint64_t apart, float factor, int64_t r,
                           const moxie_matrix *to);
/* A global, from the factor. */
float mox_hopper_global_of(const mox_hopper_product *p, float factor);

#endif
