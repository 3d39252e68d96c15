/* SPDX-License-Identifier: Apache-2.0
 *
 * format_oracle.h - the value of every code in double precision, restated from the formats' definitions.
 *
 * It shares nothing with src/format, on purpose: sign, exponent and mantissa are combined by ldexp(), integers have a
 * table of offsets. A format that formats.def has and this file has not is decoded by src/format; then only encoding is
 * tested, against that decoding.
 */
#ifndef FORMAT_ORACLE_H
#define FORMAT_ORACLE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "format/format.h"

typedef enum oracle_special {
    ORACLE_PLAIN, /* every code is a number */
    ORACLE_FN,    /* exponent and mantissa all ones: NaN */
    ORACLE_IEEE   /* exponent all ones: infinity or NaN */
} oracle_special;

typedef struct oracle_float {
    moxie_dtype dtype;
    int exponent_bits, mantissa_bits, bias;
    oracle_special special;
} oracle_float;

static const oracle_float oracle_floats[] = {
    { MOXIE_F32, 8, 23, 127, ORACLE_IEEE },   { MOXIE_F16, 5, 10, 15, ORACLE_IEEE },
    { MOXIE_BF16, 8, 7, 127, ORACLE_IEEE },   { MOXIE_F8_E4M3, 4, 3, 7, ORACLE_FN },
    { MOXIE_F8_E5M2, 5, 2, 15, ORACLE_IEEE }, { MOXIE_F6_E3M2, 3, 2, 3, ORACLE_PLAIN },
    { MOXIE_F6_E2M3, 2, 3, 1, ORACLE_PLAIN }, { MOXIE_F4_E2M1, 2, 1, 1, ORACLE_PLAIN },
};

static inline double oracle_float_value(const oracle_float *f, uint32_t code)
{
    const int mantissa = (int)(code % (1u << f->mantissa_bits));
    const int exponent = (int)((code >> f->mantissa_bits) % (1u << f->exponent_bits));
    const bool negative = (code >> (f->mantissa_bits + f->exponent_bits)) % 2;
    const int last_exponent = (1 << f->exponent_bits) - 1, last_mantissa = (1 << f->mantissa_bits) - 1;
    double value;

    if (f->special == ORACLE_FN && exponent == last_exponent && mantissa == last_mantissa)
        return NAN;
    if (f->special == ORACLE_IEEE && exponent == last_exponent)
        value = mantissa == 0 ? (double)INFINITY : (double)NAN;
    else if (exponent == 0)
        value = ldexp(mantissa, 1 - f->bias - f->mantissa_bits);
    else
        value = ldexp(mantissa + (1 << f->mantissa_bits), exponent - f->bias - f->mantissa_bits);
    return negative ? -value : value;
}

/* The value of `code`, which has no bits above the format's width. */
static inline double oracle_value(moxie_dtype dtype, uint32_t code)
{
    switch (dtype) {
    case MOXIE_F8_E8M0: return code == 255 ? (double)NAN : ldexp(1, (int)code - 127);
    case MOXIE_I8: return code < 128 ? (double)code : (double)code - 256;
    case MOXIE_I4: return code < 8 ? (double)code : (double)code - 16;
    case MOXIE_U4B8: return (double)code - 8;
    case MOXIE_U8B128: return (double)code - 128;
    default: break;
    }
    for (size_t i = 0; i < sizeof oracle_floats / sizeof *oracle_floats; i++) {
        if (oracle_floats[i].dtype == dtype)
            return oracle_float_value(&oracle_floats[i], code);
    }
    return mox_format_decode(dtype, code);
}

#endif
