/* SPDX-License-Identifier: Apache-2.0
 *
 * check_support.h - what the kernel checks share: guarded buffers that are freed together, executors, and the
 * comparison of floats with a bound.
 */
#ifndef CHECK_SUPPORT_H
#define CHECK_SUPPORT_H

#include <float.h>
#include <math.h>

#include "base/executor.h"
#include "cpu/kernel.h"
#include "test_problem.h"

/* Buffers with an inaccessible page behind each, filled with 0xff: as floats NaN, as indices -1. */
typedef struct check_buffers {
    struct {
        void *data;
        size_t bytes;
    } blocks[32];
    int count;
} check_buffers;

static inline void *check_buffer(check_buffers *buffers, size_t bytes)
{
    assert_true(buffers->count < 32);
    void *data = test_guarded(bytes);
    memset(data, 0xff, bytes);
    buffers->blocks[buffers->count].data = data;
    buffers->blocks[buffers->count++].bytes = bytes;
    return data;
}

static inline void check_buffers_free(check_buffers *buffers)
{
    for (int i = 0; i < buffers->count; i++)
        test_guarded_free(buffers->blocks[i].data, buffers->blocks[i].bytes);
    buffers->count = 0;
}

/* The part of admission that every family shares; fast mode, so that rough rows are checked too. */
static inline bool check_admit(const mox_kernel *kernel, mox_rejection *why)
{
    return mox_kernel_admit(kernel, mox_cpu()->allowed, MOXIE_MODE_FAST, why);
}

static inline bool check_machine_has(const mox_kernel *kernel)
{
    mox_rejection why;
    return check_admit(kernel, &why);
}

/* A pool of at least two workers, so that a mix-up of per-worker scratch shows. */
static inline moxie_executor *check_pool(void)
{
    moxie_executor *pool = NULL;
    moxie_error error;
    assert_ok(mox_executor_create(2, &pool, &error), &error);
    return pool;
}

/* Compares with a bound; NaN must be NaN. Where `peak`, the largest sum of magnitudes on the way, exceeds f32, any
 * result is right. */
static inline bool check_within(float got, double want, double peak, double bound)
{
    if (isnan(want))
        return isnan(got);
    if (peak > (double)FLT_MAX / 4)
        return true;
    return fabs((double)got - want) <= bound;
}

/* Sizes next to those of every tile, and primes. */
static inline int64_t check_size(test_rng *rng, int64_t max)
{
    static const int64_t sizes[] = { 1,  2,  3,  7,  8,  9,   13,  15,  16,  17,  23,  31,  32,
                                     33, 47, 63, 64, 65, 127, 128, 129, 257, 511, 512, 513, 521 };
    int64_t size;
    do
        size = sizes[test_below(rng, sizeof sizes / sizeof sizes[0])];
    while (size > max);
    return size;
}

#endif
