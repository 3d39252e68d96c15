/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_runtime.h - the part of CUDA C++ that the Hopper kernels of expert_gemm and their launchers use, for the
 * emulator (emulator.h). Every one of their files is compiled with this header included first.
 */
#ifndef MOX_TEST_EMULATED_CUDA_RUNTIME_H
#define MOX_TEST_EMULATED_CUDA_RUNTIME_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <type_traits>

#include "emulator.h"

/* ---- words ----------------------------------------------------------------------------------------------------- */

#define __device__
#define __host__
#define __global__
#define __grid_constant__
#ifdef MOX_EMULATED_ALONE /* blocks run one after the other, so they may share static variables */
#define __shared__ static
#else
#define __shared__
#endif
#define __launch_bounds__(...)
#define __align__(n)    __attribute__((aligned(n)))
#define __forceinline__ inline
#define __noinline__    __attribute__((noinline))

/* One coordinate of the running thread, such as threadIdx.x. */
template <emulated_dim emulated_place::*WHAT, unsigned emulated_dim::*WHICH> struct emulated_number {
    operator unsigned() const
    {
        return emulated_here().*WHAT.*WHICH;
    }
};
template <emulated_dim emulated_place::*WHAT> struct emulated_numbers {
    emulated_number<WHAT, &emulated_dim::x> x;
    emulated_number<WHAT, &emulated_dim::y> y;
};
static const emulated_numbers<&emulated_place::thread> threadIdx = {};
static const emulated_numbers<&emulated_place::block> blockIdx = {};
static const emulated_numbers<&emulated_place::grid> gridDim = {};

typedef emulated_dim dim3;
struct int2 {
    int x, y;
};
struct int3 {
    int x, y, z;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
static inline int2 make_int2(int x, int y)
{
    return { x, y };
}
static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
    return { x, y };
}
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return { x, y, z, w };
}
static inline float2 make_float2(float x, float y)
{
    return { x, y };
}

template <class A, class B> static inline typename std::common_type<A, B>::type max(A a, B b)
{
    return a > b ? a : b;
}
template <class A, class B> static inline typename std::common_type<A, B>::type min(A a, B b)
{
    return a < b ? a : b;
}

/* ---- between threads ------------------------------------------------------------------------------------------- */

static inline void __syncthreads()
{
    emulated_sync_block();
}
static inline void __syncwarp()
{
    (void)emulated_exchange(0);
}

template <class T> static inline T emulated_lane(const emulated_words &words, int lane)
{
    T value;
    memcpy(&value, &words.of[lane & 31], sizeof value);
    return value;
}
template <class T> static inline const emulated_words &emulated_publish(T value)
{
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    return emulated_exchange(word);
}
template <class T> static inline T __shfl_sync(unsigned, T value, int lane)
{
    return emulated_lane<T>(emulated_publish(value), lane);
}
template <class T> static inline T __shfl_xor_sync(unsigned, T value, int mask)
{
    return emulated_lane<T>(emulated_publish(value), static_cast<int>(threadIdx.x % 32) ^ mask);
}
template <class T> static inline T __shfl_up_sync(unsigned, T value, int by)
{
    const emulated_words &words = emulated_publish(value);
    const int lane = static_cast<int>(threadIdx.x % 32);
    return lane >= by ? emulated_lane<T>(words, lane - by) : value;
}
static inline unsigned __ballot_sync(unsigned, bool yes)
{
    const emulated_words &words = emulated_exchange(yes);
    unsigned all = 0;
    for (int i = 0; i < 32; i++)
        all |= static_cast<unsigned>(words.of[i]) << i;
    return all;
}
template <class T> static inline T atomicAdd(T *at, T value)
{
    const T before = *at;
    *at = before + value;
    return before;
}
template <class T> static inline T atomicOr(T *at, T value)
{
    const T before = *at;
    *at = before | value;
    return before;
}

/* ---- numbers and bits ------------------------------------------------------------------------------------------ */

static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __frcp_rn(float a)
{
    return 1.0f / a;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline int __popc(uint32_t x)
{
    return __builtin_popcount(x);
}
static inline uint32_t __float_as_uint(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline int32_t __float_as_int(float x)
{
    return static_cast<int32_t>(__float_as_uint(x));
}
static inline float __int2float_rn(int32_t n)
{
    return static_cast<float>(n);
}
static inline float __uint_as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline float __int_as_float(int32_t bits)
{
    return __uint_as_float(static_cast<uint32_t>(bits));
}
static inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t by)
{
    return static_cast<uint32_t>(((static_cast<uint64_t>(high) << 32 | low) << (by & 31)) >> 32);
}
static inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t which)
{
    const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
    uint32_t bytes = 0;
    for (int i = 0; i < 4; i++)
        bytes |= static_cast<uint32_t>(both >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
    return bytes;
}
template <class T> static inline T __ldcg(const T *at)
{
    return *at;
}
template <class T> static inline void __stcg(T *at, T value)
{
    *at = value;
}

template <class T> static inline void __stcs(T *at, T value)
{
    *at = value;
}

/* ---- launches -------------------------------------------------------------------------------------------------- */

typedef int cudaError_t;
typedef void *cudaStream_t;
enum { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaFuncAttributeMaxDynamicSharedMemorySize };
enum {
    cudaLaunchAttributeProgrammaticStreamSerialization = 1,
    cudaLaunchAttributeClusterDimension,
    cudaLaunchAttributePreferredSharedMemoryCarveout
};
enum { cudaSharedmemCarveoutMaxShared = 100 };
struct cudaLaunchAttribute {
    int id;
    struct {
        int programmaticStreamSerializationAllowed;
        unsigned sharedMemCarveout;
        dim3 clusterDim;
    } val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};
template <class KERNEL> static inline cudaError_t cudaFuncSetAttribute(KERNEL, int, int)
{
    return cudaSuccess;
}

template <class ARGS> struct emulated_call {
    void (*kernel)(ARGS);
    const ARGS *args;
    static void body(const void *self)
    {
        const emulated_call *c = static_cast<const emulated_call *>(self);
        c->kernel(*c->args);
    }
};

template <class ARGS>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(ARGS), const ARGS &args)
{
    unsigned cluster = 1;
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension)
            cluster = config->attrs[i].val.clusterDim.x;
    const emulated_call<ARGS> call = { kernel, &args };
    emulated_run(emulated_call<ARGS>::body, &call, config->gridDim, config->blockDim, cluster,
                 config->dynamicSmemBytes);
    return cudaSuccess;
}

#endif
