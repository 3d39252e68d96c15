/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_scales.h - scales of layouts "hopper_codes" and "hopper_fp8" (hopper.h): a multiplier per group, and a factor
 * per row.
 *
 *     scale = multiplier * factor of the row * what decoding leaves out (the unit)
 *
 * In the flow: checkpoint scales -> [multipliers, factors] -> record, and back.
 */
#ifndef MOX_PACK_HOPPER_SCALES_H
#define MOX_PACK_HOPPER_SCALES_H

#include "pack/hopper/hopper_tiles.h"

/* Multipliers that a row has in a block; bytes of one multiplier. */
int64_t mox_hopper_groups(const mox_hopper_product *p);
size_t mox_hopper_scale_bytes(const mox_hopper_product *p);

#define MOX_HOPPER_MAX_FACTOR 100 /* limit of the exponents of factors */

/* Zero points are counted from -8 or -128, like codes. */
uint8_t mox_hopper_zero_bias(const mox_hopper_product *p);
/* The row's p (hopper.h). *exact: every multiplier is exact with it, and for float elements every product, too. */
int mox_hopper_row_power(const mox_hopper_product *p, const moxie_matrix *from, int64_t row, bool *exact);
/* Whether the scales are 16-bit floats that multipliers can be made from. */
bool mox_hopper_has_float_scales(const mox_hopper_product *p);

/* reject, accepts and row_factor of mox_hopper_order. */
const char *mox_hopper_codes_reject(const mox_hopper_product *p, const char *name, char *buffer, size_t size);
bool mox_hopper_codes_accept(const mox_hopper_product *p, const moxie_matrix *from, const char *name, char *reason,
                             size_t size);
float mox_hopper_codes_factor(const mox_hopper_product *p, const moxie_matrix *from, int64_t row);

/* Writes the multipliers of a row into one block after another; block i starts at to + i * apart. */
void mox_hopper_put_scales(const mox_hopper_product *p, const moxie_matrix *from, int64_t row, uint8_t *to,
                           uint64_t apart);
/* The inverse for row r of the grids of scales and zero points. `from` and `factor` are those of any weight row in
 * it. */
void mox_hopper_get_scales(const mox_hopper_product *p, const uint8_t *from, uint64_t apart, float factor, int64_t r,
                           const moxie_matrix *to);
/* The global scale that gave this row factor. */
float mox_hopper_global_of(const mox_hopper_product *p, float factor);

#endif
