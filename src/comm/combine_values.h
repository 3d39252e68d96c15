/* SPDX-License-Identifier: Apache-2.0
 *
 * combine_values.h - how values of two ranks become one (moxie_comm.h, allreduce). A sum wraps around; NaN is below
 * every number. Applied in rank order: `b` is of the higher rank.
 */
#ifndef MOX_COMM_COMBINE_VALUES_H
#define MOX_COMM_COMBINE_VALUES_H

#include <math.h>

#include <moxie/moxie_comm.h>

static inline int64_t mox_comm_combine_i64(int64_t a, int64_t b, moxie_comm_sum how)
{
    if (how == MOXIE_COMM_SUM_I64)
        return (int64_t)((uint64_t)a + (uint64_t)b);
    return a > b ? a : b;
}

static inline float mox_comm_larger_f32(float a, float b)
{
    return b > a || isnan(a) ? b : a;
}

#endif
