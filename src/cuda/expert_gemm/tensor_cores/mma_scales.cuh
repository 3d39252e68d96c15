/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_scales.cuh - what decoders have in common (mma_decode_<format>.cuh). A decoder is a struct with
 *
 *     F16                               it dequantizes to f16, not to bf16
 *     BY_CHUNK                          each chunk has its own block of scales
 *     codes                             a thread's codes of a chunk, two rows of 64 columns: mox_sm90_codes_of_4, ...
 *     scales                            of its pair of rows, r and r + 8, in one block; load(at, args, k) reads those
 *                                       of chunk k
 *     pair_bytes(args)                  bytes of those scales in shared memory
 *     multipliers                       what prepare(scales, args) makes of them once a chunk
 *     decode(a, word, multipliers, j)   eight codes from column 16 j of the chunk on, to registers of operand A; of
 *                                       layout hopper_fp8 sixteen from column 32 j on
 *     GROUPS, sum_scales(scales, g, args)
 *                                       where scales multiply sums: groups of a chunk; what multiplies those of group g
 *     MINIMUMS                          sums of minimums may be added (mma_decode_gguf.cuh)
 */
#ifndef MOX_CUDA_SM90_SCALES_CUH
#define MOX_CUDA_SM90_SCALES_CUH

#include "cuda/expert_gemm/tensor_cores/mma_args.h"

/* One plane of words, [32 lanes][4 words] for each warp. */
struct mox_sm90_codes_of_4 {
    static constexpr int WARP_BYTES = 512;
    uint4 plane;

    static __device__ __forceinline__ mox_sm90_codes_of_4 load(const uint8_t *warp, int lane)
    {
        return { ((const uint4 *)warp)[lane] };
    }
    /* The codes from column 16 j on. */
    __device__ __forceinline__ uint32_t part(int j) const
    {
        return j == 0 ? plane.x : j == 1 ? plane.y : j == 2 ? plane.z : plane.w;
    }
};

/* One and a quarter: four bits of each code, then one. */
struct mox_sm90_codes_of_5 {
    static constexpr int WARP_BYTES = 640;
    uint4 fours;
    uint32_t ones;

    static __device__ __forceinline__ mox_sm90_codes_of_5 load(const uint8_t *warp, int lane)
    {
        return { ((const uint4 *)warp)[lane], ((const uint32_t *)(warp + 512))[lane] };
    }
    __device__ __forceinline__ uint2 part(int j) const
    {
        return make_uint2(j == 0 ? fours.x : j == 1 ? fours.y : j == 2 ? fours.z : fours.w, ones);
    }
};

/* One and a half planes: four bits of each code, then two. */
struct mox_sm90_codes_of_6 {
    static constexpr int WARP_BYTES = 768;
    uint4 fours;
    uint2 twos;

    static __device__ __forceinline__ mox_sm90_codes_of_6 load(const uint8_t *warp, int lane)
    {
        return { ((const uint4 *)warp)[lane], ((const uint2 *)(warp + 512))[lane] };
    }
    __device__ __forceinline__ uint2 part(int j) const
    {
        return make_uint2(j == 0 ? fours.x : j == 1 ? fours.y : j == 2 ? fours.z : fours.w, j < 2 ? twos.x : twos.y);
    }
};

/* Two planes: columns 0-31, then 32-63. */
struct mox_sm90_codes_of_8 {
    static constexpr int WARP_BYTES = 1024;
    uint4 plane[2];

    static __device__ __forceinline__ mox_sm90_codes_of_8 load(const uint8_t *warp, int lane)
    {
        return { { ((const uint4 *)warp)[lane], ((const uint4 *)warp)[32 + lane] } };
    }
    __device__ __forceinline__ uint2 part(int j) const
    {
        const uint4 &p = plane[j / 2];
        return j % 2 == 0 ? make_uint2(p.x, p.y) : make_uint2(p.z, p.w);
    }
};

/* Scales of a plain type. */
template <class SCALES, bool EACH = true> struct mox_sm90_typed_scales {
    static constexpr bool BY_CHUNK = EACH, MINIMUMS = false;
    using scales = SCALES;

    static __device__ __forceinline__ int pair_bytes(const mox_sm90_args &)
    {
        return sizeof(scales);
    }
    static __device__ __forceinline__ scales load(const uint8_t *at, const mox_sm90_args &, int)
    {
        return *(const scales *)at;
    }
};

/* For decoders that use scales as they are stored. */
template <class SCALES, bool EACH = true> struct mox_sm90_plain_scales : mox_sm90_typed_scales<SCALES, EACH> {
    using codes = mox_sm90_codes_of_4;
    using multipliers = SCALES;

    static __device__ __forceinline__ multipliers prepare(SCALES s, const mox_sm90_args &)
    {
        return s;
    }
};

#endif
