/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.h - stores that go past the caches to memory, for numbers that are read again only after the caches would have
 * lost them. They do not read a line before they write it, and take no place from what the caches hold.
 *
 * They are not ordered with other stores: mox_stream_end() comes before the flag that tells another thread.
 */
#ifndef MOX_BASE_STREAM_H
#define MOX_BASE_STREAM_H

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Copies `bytes` from `from` to `to`. Past the caches if these are whole lines of 64 bytes and the processor has such
 * stores; else as memcpy() does. */
static inline void mox_stream(void *to, const void *from, int64_t bytes)
{
#ifdef __SSE2__
    if ((uintptr_t)to % 64 == 0 && bytes % 64 == 0) {
        for (int64_t i = 0; i < bytes / 16; i++)
            _mm_stream_si128((__m128i *)to + i, _mm_loadu_si128((const __m128i *)from + i));
        return;
    }
#endif
    memcpy(to, from, (size_t)bytes);
}

static inline void mox_stream_end(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

#endif
