/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_scales.cuh - what decoders have in common (sm90_decode_<format>.cuh). A decoder is a struct with
 *
 *     F16            it decodes to f16, not to bf16
 *     scales         those of a pair of rows, r and r + 8, in one block: a type that one load brings from shared memory
 *     multipliers    what prepare(scales) makes of them once a chunk
 *     decode(a, word, multipliers, j)    eight codes of columns 16 j .. of the chunk, to registers of operand A
 */
#ifndef MOX_CUDA_SM90_SCALES_CUH
#define MOX_CUDA_SM90_SCALES_CUH

/* Of decoders that leave scales as they are until each word. */
template <class SCALES> struct mox_sm90_plain_scales {
    using scales = SCALES;
    using multipliers = SCALES;

    static __device__ __forceinline__ multipliers prepare(scales s)
    {
        return s;
    }
};

#endif
