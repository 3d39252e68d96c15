/* SPDX-License-Identifier: Apache-2.0
 *
 * checksum_avx2.c - XXH3 compiled for AVX2: xxHash chooses its inner loop by this file's compiler flags.
 */
#include "base/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t mox_checksum_avx2(const void *data, uint64_t bytes)
{
    return XXH3_64bits(data, bytes);
}
