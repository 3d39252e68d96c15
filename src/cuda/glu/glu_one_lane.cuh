/* SPDX-License-Identifier: Apache-2.0
 *
 * glu_one_lane.cuh - cpu/glu/glu_lanes.h for CUDA. Its vector types are classes of one lane here, with the operators of
 * the compiler's vector types. So the host's functions, coefficients and formulas (src/activation) compile for a GPU
 * and give the same bits.
 *
 *     mox_lanes       one float; comparisons give -1 or 0
 *     mox_lane_ints   one int32_t; conversions between the two copy the bits
 */
#ifndef MOX_CUDA_GLU_GLU_ONE_LANE_CUH
#define MOX_CUDA_GLU_GLU_ONE_LANE_CUH

#include <stdint.h>

struct mox_lanes;

struct mox_lane_ints {
    int32_t v;
    mox_lane_ints() = default;
    __device__ mox_lane_ints(int32_t x) : v(x)
    {
    }
    __device__ explicit mox_lane_ints(mox_lanes x);
};

struct mox_lanes {
    float v;
    mox_lanes() = default;
    __device__ mox_lanes(float x) : v(x)
    {
    }
    __device__ explicit mox_lanes(mox_lane_ints x) : v(__builtin_bit_cast(float, x.v))
    {
    }
};

__device__ inline mox_lane_ints::mox_lane_ints(mox_lanes x) : v(__builtin_bit_cast(int32_t, x.v))
{
}

static __device__ inline mox_lanes operator-(mox_lanes a)
{
    return -a.v;
}
static __device__ inline mox_lanes operator+(mox_lanes a, mox_lanes b)
{
    return a.v + b.v;
}
static __device__ inline mox_lanes operator-(mox_lanes a, mox_lanes b)
{
    return a.v - b.v;
}
static __device__ inline mox_lanes operator*(mox_lanes a, mox_lanes b)
{
    return a.v * b.v;
}
static __device__ inline mox_lanes operator/(mox_lanes a, mox_lanes b)
{
    return a.v / b.v;
}
static __device__ inline mox_lane_ints operator>(mox_lanes a, mox_lanes b)
{
    return a.v > b.v ? -1 : 0;
}
static __device__ inline mox_lane_ints operator<(mox_lanes a, mox_lanes b)
{
    return a.v < b.v ? -1 : 0;
}

static __device__ inline mox_lane_ints operator~(mox_lane_ints a)
{
    return ~a.v;
}
static __device__ inline mox_lane_ints operator&(mox_lane_ints a, mox_lane_ints b)
{
    return a.v & b.v;
}
static __device__ inline mox_lane_ints operator|(mox_lane_ints a, mox_lane_ints b)
{
    return a.v | b.v;
}
static __device__ inline mox_lane_ints operator^(mox_lane_ints a, mox_lane_ints b)
{
    return a.v ^ b.v;
}
static __device__ inline mox_lane_ints operator+(mox_lane_ints a, mox_lane_ints b)
{
    return a.v + b.v;
}
static __device__ inline mox_lane_ints operator-(mox_lane_ints a, mox_lane_ints b)
{
    return a.v - b.v;
}
static __device__ inline mox_lane_ints operator>>(mox_lane_ints a, int n)
{
    return a.v >> n;
}
static __device__ inline mox_lane_ints operator<<(mox_lane_ints a, int n)
{
    return static_cast<int32_t>(static_cast<uint32_t>(a.v) << n);
}

typedef mox_lanes mox_lanes_unaligned;

#define MOX_GLU_INLINE static __device__ inline
#define MOX_GLU_LANES  1
#define MOX_GLU_PACK   1
#include "cpu/glu/glu_lanes.h"

/* One number. `up` is not read when the kind is ungated. */
static __device__ inline float mox_device_activate(int32_t kind, const mox_glu_parameters &parameters, float gate,
                                                   float up)
{
    mox_lane_pack g, u;
    g.v[0] = gate;
    u.v[0] = up;
    return mox_formula_of_kind(kind, &parameters, g, u).v[0].v;
}

#endif
