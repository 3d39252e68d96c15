/* SPDX-License-Identifier: Apache-2.0
 *
 * number_format.h - what is known of a number format: a line of formats.def, or the numbers of a block type.
 */
#ifndef MOX_FORMAT_NUMBER_FORMAT_H
#define MOX_FORMAT_NUMBER_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include <moxie/moxie.h>

typedef enum mox_format_kind {
    MOX_KIND_FLOAT,    /* sign, exponent, mantissa */
    MOX_KIND_EXPONENT, /* exponent only, no sign, no zero: E8M0 */
    MOX_KIND_INTEGER
} mox_format_kind;

typedef struct mox_format {
    moxie_dtype dtype; /* number in the ABI, moxie.h */
    const char *name;
    int32_t bits;
    mox_format_kind kind;
    float max;        /* largest finite value */
    float min_normal; /* smallest normal magnitude (integers: 1) */
    int32_t emax;     /* floor(log2 max) */
    bool has_nan, has_inf;
    float (*decode)(uint32_t code);
    uint32_t (*encode)(float value);
} mox_format;

#endif
