/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_mma.cuh - src/cuda/ptx/ptx_mma.cuh, emulated.
 */
#ifndef MOX_CUDA_PTX_MMA_CUH
#define MOX_CUDA_PTX_MMA_CUH

#include "cuda/device/device_format.cuh"
#include "cuda_runtime.h"

/* Reads half a row of an operand, 8 elements: each of the four lanes of a quad has a word of two elements. */
static inline void emulated_half_row(moxie_dtype dtype, const emulated_words &words, int row, int shift, double *x)
{
    for (int lane = 0; lane < 4; lane++)
        for (int c = 0; c < 2; c++)
            x[2 * lane + c] =
                mox_device_decode(dtype, static_cast<uint32_t>(words.of[4 * row + lane] >> (shift + 16 * c)) & 0xffff);
}

static inline void emulated_warp_mma(moxie_dtype dtype, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    const int lane = static_cast<int>(threadIdx.x % 32);
    double rows[2][16], columns[2][16];
    for (int i = 0; i < 2; i++) {
        const emulated_words &words = emulated_exchange(static_cast<uint64_t>(a[2 * i + 1]) << 32 | a[2 * i]);
        for (int h = 0; h < 2; h++)
            emulated_half_row(dtype, words, lane / 4, 32 * h, rows[h] + 8 * i);
    }
    const emulated_words &words = emulated_exchange(static_cast<uint64_t>(b[1]) << 32 | b[0]);
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < 2; i++)
            emulated_half_row(dtype, words, lane % 4 * 2 + c, 32 * i, columns[c] + 8 * i);
    for (int h = 0; h < 2; h++)
        for (int c = 0; c < 2; c++) {
            double sum = static_cast<double>(d[2 * h + c]);
            for (int k = 0; k < 16; k++)
                sum += rows[h][k] * columns[c][k];
            d[2 * h + c] = static_cast<float>(sum);
        }
}

static inline void mox_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    emulated_warp_mma(MOXIE_BF16, d, a, b);
}

static inline void mox_mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    emulated_warp_mma(MOXIE_F16, d, a, b);
}

/* Integers: each of the four lanes of a quad has a word of four. */
static inline void mox_mma_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    const int lane = static_cast<int>(threadIdx.x % 32);
    int32_t rows[2][32], columns[2][32];
    const auto read = [](const emulated_words &words, int row, int shift, int32_t *x) {
        for (int i = 0; i < 16; i++)
            x[i] = static_cast<int8_t>(words.of[4 * row + i / 4] >> (shift + i % 4 * 8) & 0xff);
    };
    for (int i = 0; i < 2; i++) {
        const emulated_words &words = emulated_exchange(static_cast<uint64_t>(a[2 * i + 1]) << 32 | a[2 * i]);
        for (int h = 0; h < 2; h++)
            read(words, lane / 4, 32 * h, rows[h] + 16 * i);
    }
    const emulated_words &words = emulated_exchange(static_cast<uint64_t>(b[1]) << 32 | b[0]);
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < 2; i++)
            read(words, lane % 4 * 2 + c, 32 * i, columns[c] + 16 * i);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 32; k++)
            d[i] += rows[i / 2][k] * columns[i % 2][k];
}

static inline void mox_ldmatrix_x4(uint32_t (&m)[4], uint32_t row)
{
    const emulated_words &words = emulated_exchange(row);
    const unsigned lane = threadIdx.x % 32;
    for (unsigned i = 0; i < 4; i++)
        memcpy(&m[i],
               static_cast<const uint8_t *>(emulated_at(static_cast<uint32_t>(words.of[8 * i + lane / 4]))) +
                   lane % 4 * 4,
               4);
}

#endif
