/* SPDX-License-Identifier: Apache-2.0
 *
 * sums.c - the table made from sums.def.
 */
#include "cpu/expert_gemm/sums.h"

#define MOX_SUM(id, flushes_, scale_in_weight_, by_batch_, bytes_, mma_bits_, words_)                                  \
    [MOX_SUM_##id] = { .words = words_,                                                                                \
                       .flushes = flushes_,                                                                            \
                       .by_batch = by_batch_,                                                                          \
                       .bytes = bytes_,                                                                                \
                       .scale_in_weight = scale_in_weight_,                                                            \
                       .mma_bits = mma_bits_ },
static const mox_sum_traits traits[MOX_SUMS] = {
#include "cpu/expert_gemm/sums.def"
};
#undef MOX_SUM

const mox_sum_traits *mox_sum_traits_of(mox_sum sum)
{
    return &traits[sum];
}
