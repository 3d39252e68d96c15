/* SPDX-License-Identifier: Apache-2.0
 *
 * checksum.c - XXH3, by AVX2 where it may be used, else by the instructions of the compiler's target.
 */
#include "base/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/cpu_features.h"

uint64_t mox_checksum(const void *data, uint64_t bytes)
{
    return mox_cpu()->allowed >= MOX_ISA_AVX2 ? mox_checksum_avx2(data, bytes) : XXH3_64bits(data, bytes);
}
