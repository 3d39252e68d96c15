/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_codes.cuh - where a thread finds its codes of layout hopper_codes and their scales in a stage, and the decoders
 * of the elements. The kernels of sm90 and of sm80 read the same records and have the same stages (mma_ring.cuh), and
 * their operands A lie in the same registers.
 */
#ifndef MOX_CUDA_SM90_CODES_CUH
#define MOX_CUDA_SM90_CODES_CUH

#include "cuda/expert_gemm/tensor_cores/mma_decode_w8_blocks.cuh"
#include "cuda/expert_gemm/tensor_cores/mma_decode_mxfp4_fp8.cuh"
#include "cuda/expert_gemm/tensor_cores/mma_decode_gguf.cuh"
#include "cuda/expert_gemm/tensor_cores/mma_decode_int4.cuh"
#include "cuda/expert_gemm/tensor_cores/mma_decode_int4_fp8.cuh"
#include "cuda/expert_gemm/tensor_cores/mma_decode_ints.cuh"
#include "cuda/expert_gemm/tensor_cores/mma_decode_mxfp4.cuh"
#include "cuda/expert_gemm/tensor_cores/mma_decode_mxfp6.cuh"
#include "cuda/expert_gemm/tensor_cores/mma_decode_nvfp4.cuh"
#include "cuda/expert_gemm/tensor_cores/mma_ring.cuh"

template <int ELEMENT> struct mox_sm90_decoder_of;
#define MOX_SM90_CODES(name, file, ...)                                                                                \
    template <> struct mox_sm90_decoder_of<MOX_SM90_##name> {                                                          \
        using type = mox_sm90_decode_##file;                                                                           \
    };
#include "cuda/expert_gemm/tensor_cores/mma_elements.def"
#undef MOX_SM90_CODES

/* One thread's codes of a chunk, two rows of 64 columns, and the scales of these rows. */
template <class DECODER> struct mox_sm90_words {
    typename DECODER::codes codes;
    typename DECODER::scales scales;
};

/* Where a thread finds its codes and scales in a stage, which has room for several chunks. Its first is chunk `k`. */
template <class DECODER> struct mox_sm90_view {
    static constexpr int CODES_BYTES = 8 * DECODER::codes::WARP_BYTES; /* of 128 rows */
    const mox_sm90_args &args;
    const uint8_t *codes, *scales;
    int k, lane;

    __device__ __forceinline__ mox_sm90_view(const mox_sm90_args &a, const uint8_t *stage, int chunks, int first,
                                             const mox_sm90_place &me)
        : args(a), k(first), lane(me.lane)
    {
        const int warp = 4 * me.group + me.warp;
        codes = stage + warp * DECODER::codes::WARP_BYTES;
        scales = stage + chunks * CODES_BYTES + (warp * 8 + me.lane / 4) * DECODER::pair_bytes(args);
    }

    /* The scales of the lane's rows in the block that has chunk i of the stage. */
    __device__ __forceinline__ const uint8_t *scales_of(int i) const
    {
        const int block = DECODER::BY_CHUNK ? i : ((k + i) >> args.scale_shift) - (k >> args.scale_shift);
        return scales + block * 64 * DECODER::pair_bytes(args);
    }

    __device__ __forceinline__ mox_sm90_words<DECODER> words(int i) const
    {
        return { DECODER::codes::load(codes + i * CODES_BYTES, lane), DECODER::load(scales_of(i), args, k + i) };
    }
};

#endif
