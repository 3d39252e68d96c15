/* SPDX-License-Identifier: Apache-2.0
 *
 * sums.c - what is known of each order of summation (sums.h), as a table made from sums.def.
 */
#include "cpu/expert_gemm/sums.h"

#define MOX_SUM(id, flushes_, bytes_, chunks_, mma_bits_, words_)                                                      \
    [MOX_SUM_##                                                                                                        \
        id] = { .words = words_, .flushes = flushes_, .bytes = bytes_, .chunks = chunks_, .mma_bits = mma_bits_ },
static const mox_sum_traits traits[MOX_SUMS] = {
#include "cpu/expert_gemm/sums.def"
};
#undef MOX_SUM

const mox_sum_traits *mox_sum_traits_of(mox_sum sum)
{
    return &traits[sum];
}
