/* SPDX-License-Identifier: Apache-2.0
 *
 * sizes.h - checked 64-bit sizes. Every size that depends on a caller or a file is computed by these functions,
 * so that an overflow is an error and never a small allocation.
 */
#ifndef MOX_BASE_SIZES_H
#define MOX_BASE_SIZES_H

#include <stdbool.h>
#include <stdint.h>

/* *out = a * b (or a + b); false, and *out untouched, when it does not fit. */
static inline bool mox_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool mox_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

/* `a` rounded up to a multiple of `align` (a power of two); false when it does not fit. */
static inline bool mox_align_u64(uint64_t a, uint64_t align, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, align - 1, &r))
        return false;
    *out = r & ~(align - 1);
    return true;
}

static inline int64_t mox_ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

static inline uint64_t mox_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline int64_t mox_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t mox_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The greatest common divisor of two numbers; the other one when one is zero. */
static inline int64_t mox_common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The least common multiple of two numbers above zero. The caller knows that it fits. */
static inline int64_t mox_common_multiple(int64_t a, int64_t b)
{
    return a / mox_common_divisor(a, b) * b;
}

#endif
