/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_common.h - what the programs here share: a clock, medians, memory, an end with a reason.
 */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"

static inline _Noreturn void bench_die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

/* Huge pages where there are some; mox_free_pages() frees. */
static inline void *bench_pages(uint64_t bytes)
{
    void *block = mox_alloc_pages(bytes);
    if (block == NULL)
        bench_die("no memory", "close something");
    return block;
}

/* Seconds of `clock`. With one worker CLOCK_THREAD_CPUTIME_ID, the time that it ran, so that other programs on the
 * machine count less; else CLOCK_MONOTONIC. */
static inline double bench_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int bench_by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them. */
static inline double bench_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, bench_by_value);
    return values[count / 2];
}

#endif
