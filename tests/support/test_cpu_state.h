/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cpu_state.h - the state of a thread that a kernel must not change: the control bits of floating point
 * (MXCSR, without the sticky flags of exceptions), and tiles that are configured or hold data (XINUSE bits 17, 18 of
 * XGETBV(1): a system saves them at every context switch of the thread).
 *
 * Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 13.
 */
#ifndef TEST_CPU_STATE_H
#define TEST_CPU_STATE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct test_cpu_state {
    uint32_t control; /* of MXCSR */
    uint32_t tiles;   /* 1: configured, 2: data; 0 where the processor does not say */
} test_cpu_state;

#if defined(__x86_64__)
#include <cpuid.h>
#include <xmmintrin.h>

#ifdef EMULATED_TILES_H

static inline bool test_cpu_knows_tiles(void)
{
    return true;
}

static inline uint32_t test_cpu_tiles(void)
{
    return emulated_tiles_in_use();
}

#else

/* XGETBV(1) exists, and so do tiles. */
static inline bool test_cpu_knows_tiles(void)
{
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1))
        return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 24 & 1))
        return false;
    return __get_cpuid_count(0xd, 1, &a, &b, &c, &d) && (a >> 2 & 1);
}

static inline uint32_t test_cpu_tiles(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
    return low >> 17 & 3;
}

#endif

static inline test_cpu_state test_cpu_state_now(void)
{
    return (test_cpu_state) { .control = _mm_getcsr() & ~0x3fu,
                              .tiles = test_cpu_knows_tiles() ? test_cpu_tiles() : 0 };
}

#else

static inline bool test_cpu_knows_tiles(void)
{
    return false;
}

static inline test_cpu_state test_cpu_state_now(void)
{
    return (test_cpu_state) { 0, 0 };
}

#endif
#endif
