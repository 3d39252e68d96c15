/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_decode_mxfp4_e4m3.cuh - e2m1 with e8m0 scales of 32 columns, from layout hopper_codes8 to e4m3. Placed where sign, exponent
 * and mantissa of an e4m3 are, a code is 2^-6 times its value; the 2^6 is in the scales, the exponents of floats, which a
 * finished sum of 32 columns is multiplied by.
 */
#ifndef MOX_CUDA_SM90_DECODE_MXFP4_E4M3_CUH
#define MOX_CUDA_SM90_DECODE_MXFP4_E4M3_CUH

#include <stdint.h>

struct mox_sm90_decode_mxfp4_e4m3 {
    using scales = uint2; /* of four groups: row r's bytes, row r + 8's */

    /* The sixteen codes of a group, of which this thread has two rows. */
    static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t first, uint32_t second)
    {
        a[0] = first & CODES;
        a[1] = place_other(first);
        a[2] = second & CODES;
        a[3] = place_other(second);
    }

    /* Of group g, for the two rows. */
    static __device__ __forceinline__ float2 factors(scales s, int g)
    {
        return make_float2(exponent(s.x, g), exponent(s.y, g));
    }

  private:
    static constexpr uint32_t CODES = 0x9c9c9c9c, HIGH = 0x10101010; /* where codes are, and their upper exponent bits */

    static __device__ __forceinline__ uint32_t place_other(uint32_t word)
    {
        return (word << 2 & (CODES & ~HIGH)) | (word >> 2 & HIGH);
    }

    static __device__ __forceinline__ float exponent(uint32_t bytes, int g)
    {
        return __uint_as_float(__byte_perm(bytes, 0, 0x4440 + g) << 23);
    }
};

#endif
