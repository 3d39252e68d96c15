/* SPDX-License-Identifier: Apache-2.0
 *
 * checksum.h - XXH3-64 of a block of memory: the same number on every machine, computed with AVX2 where possible.
 *
 * Records are summed right after they were packed, while they are in cache. There SSE2, the baseline of x86-64, has
 * half the speed of AVX2. Source: https://github.com/Cyan4973/xxHash.
 */
#ifndef MOX_BASE_CHECKSUM_H
#define MOX_BASE_CHECKSUM_H

#include <stdint.h>

/* XXH3-64 with seed 0. Thread-safe. */
uint64_t mox_checksum(const void *data, uint64_t bytes);

/* The same, compiled for AVX2 where the compiler can (checksum_avx2.c); for mox_checksum() and its test alone. */
uint64_t mox_checksum_avx2(const void *data, uint64_t bytes);

#endif
