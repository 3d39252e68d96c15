/* SPDX-License-Identifier: Apache-2.0
 *
 * format.h - what bits mean: every number format as a row of formats.def.
 *
 * A row gives the format's name, width and limits; its header (named in the line above the row) gives
 *     MOX_SHARED float    mox_<id>_decode(uint32_t code);
 *     MOX_SHARED uint32_t mox_<id>_encode(float value);
 * Encoding rounds to the nearest code, ties to even, and saturates at the largest finite value; what
 * NaN and infinities become is stated in each header and in moxie_encode().
 *
 * This file includes all format headers, by including formats.def with an empty row macro.
 */
#ifndef MOX_FORMAT_FORMAT_H
#define MOX_FORMAT_FORMAT_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "format/number_format.h"

#define MOX_FORMAT(...)
#include "format/formats.def"
#undef MOX_FORMAT

/* The row, or NULL for a dtype that is no number format (containers too). Immutable. */
const mox_format *mox_format_of(moxie_dtype dtype);
const mox_format *mox_format_by_name(const char *name);
/* Row i in list order; NULL past the last. */
const mox_format *mox_format_at(int32_t i);

/* The values of all codes of a format of 8 bits or fewer: 256 entries, which repeat for narrower formats. NULL for
 * wider formats. Immutable. */
const float *mox_format_table(moxie_dtype dtype);

/* Bodies of moxie_decode and moxie_encode; a dtype that is no number format gives NaN, or code 0. */
float mox_format_decode(moxie_dtype dtype, uint32_t code);
uint32_t mox_format_encode(moxie_dtype dtype, float value);

/* Any dtype, containers included: its name ("?" for none), the dtype with a name (MOXIE_DTYPE_NONE for
 * none, and for NULL), bits of one element (0 for none). Immutable. */
const char *mox_dtype_name(moxie_dtype dtype);
moxie_dtype mox_dtype_from_name(const char *name);
int32_t mox_dtype_bits(moxie_dtype dtype);
/* Bytes of one element; 0 when it has no whole number of bytes. */
int32_t mox_dtype_bytes(moxie_dtype dtype);

/* The value of a number format's 1-, 2- or 4-byte element at an unaligned address; NaN for other dtypes. */
float mox_load(moxie_dtype dtype, const void *address);

/* Rounding of results, not of codes: to F32, F16 or BF16. It is IEEE 754's, to nearest, ties to even: finite values
 * past the largest become infinity, while encoding saturates. NaN becomes the format's canonical NaN, also in f32,
 * since which of two NaNs a sum keeps depends on the instructions. */

/* Rounds to `dtype` and widens again. */
float mox_round_to(moxie_dtype dtype, float value);
/* Contiguous arrays to and from f32, not overlapping. The `void *` side may be unaligned. */
void mox_widen(moxie_dtype dtype, const void *restrict from, float *restrict to, int64_t count);
void mox_narrow(moxie_dtype dtype, const float *restrict from, void *restrict to, int64_t count);

#endif
