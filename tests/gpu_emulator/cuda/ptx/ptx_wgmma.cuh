/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_wgmma.cuh - src/cuda/ptx/ptx_wgmma.cuh, emulated: each thread computes its own results, in double, as soon as the
 * MMA is issued. The layouts follow the PTX ISA, not the formulas of the kernels.
 */
#ifndef MOX_CUDA_PTX_WGMMA_CUH
#define MOX_CUDA_PTX_WGMMA_CUH

#include "cuda/device/device_format.cuh"
#include "cuda/ptx/ptx_barrier.cuh"
#include "cuda_runtime.h"

static inline uint32_t mox_wgmma_descriptor_low(uint32_t at)
{
    return ((at & ((1 << EMULATED_RANK_SHIFT) - 1)) >> 4) + (1 << 16);
}

static inline uint64_t mox_wgmma_descriptor(uint32_t low)
{
    return low;
}

/* Its high half is not zero. */
static inline uint64_t mox_wgmma_descriptor_plain(uint32_t low, uint32_t group_distance)
{
    return static_cast<uint64_t>(group_distance) << 32 | low;
}

static inline void mox_wgmma_fence()
{
}
static inline void mox_wgmma_commit()
{
}
template <int PENDING> static inline void mox_wgmma_wait()
{
}

/* Byte `at` of row n of an operand in the 128-byte swizzle: address bits 4-6 are XORed with bits 7-9. Or of one that is
 * not swizzled: pieces of eight rows by 16 bytes. */
static inline const uint8_t *emulated_operand(uint64_t operand, int n, int at)
{
    const uint32_t first = static_cast<uint32_t>((operand & 0x3fff) << 4);
    const int distance = static_cast<int>(operand >> 32);
    const uint32_t linear = first + static_cast<uint32_t>(n * 128 + at);
    const uint32_t place = distance > 0
                               ? first + static_cast<uint32_t>(n / 8 * distance + at / 16 * 128 + n % 8 * 16 + at % 16)
                               : linear ^ (linear >> 7 & 7) << 4;
    return static_cast<const uint8_t *>(emulated_at(place | emulated_here().rank << EMULATED_RANK_SHIFT));
}

static inline void emulated_row(moxie_dtype dtype, uint64_t operand, int n, float *x)
{
    const int size = dtype == MOXIE_F8_E4M3 ? 1 : 2;
    for (int k = 0; k < 32 / size; k++)
        x[k] = mox_device_load(dtype, emulated_operand(operand, n, k * size), 0);
}

/* d = keep * d + two rows of A times N rows of B, `steps` columns deep. */
template <int N>
static inline void emulated_mma(float (&d)[N / 2], const float (&a)[2][32], moxie_dtype dtype, uint64_t b, int keep)
{
    const int lane = static_cast<int>(threadIdx.x % 32), depth = dtype == MOXIE_F8_E4M3 ? 32 : 16;
    for (int j = 0; j < N / 8; j++)
        for (int c = 0; c < 2; c++) {
            float x[32];
            emulated_row(dtype, b, 8 * j + 2 * (lane % 4) + c, x);
            for (int h = 0; h < 2; h++) {
                double sum = keep ? static_cast<double>(d[4 * j + 2 * h + c]) : 0.0;
                for (int k = 0; k < depth; k++)
                    sum += static_cast<double>(a[h][k]) * static_cast<double>(x[k]);
                d[4 * j + 2 * h + c] = static_cast<float>(sum);
            }
        }
}

template <int N>
static inline void emulated_mma_shared(float (&d)[N / 2], moxie_dtype dtype, uint64_t a, uint64_t b, int keep)
{
    const int thread = static_cast<int>(threadIdx.x % 128);
    float rows[2][32];
    for (int h = 0; h < 2; h++)
        emulated_row(dtype, a, thread / 32 * 16 + 8 * h + thread % 32 / 4, rows[h]);
    emulated_mma<N>(d, rows, dtype, b, keep);
}

template <int N> static inline void mox_wgmma_bf16(float (&d)[N / 2], uint64_t a, uint64_t b, int keep)
{
    emulated_mma_shared<N>(d, MOXIE_BF16, a, b, keep);
}

template <int N> static inline void mox_wgmma_f16(float (&d)[N / 2], uint64_t a, uint64_t b, int keep)
{
    emulated_mma_shared<N>(d, MOXIE_F16, a, b, keep);
}

template <int N> static inline void mox_wgmma_e4m3(float (&d)[N / 2], uint64_t a, uint64_t b, int keep)
{
    emulated_mma_shared<N>(d, MOXIE_F8_E4M3, a, b, keep);
}

/* The same of integers, 32 columns. */
template <int N> static inline void mox_wgmma_s8(int32_t (&d)[N / 2], uint64_t a, uint64_t b, int keep)
{
    const int thread = static_cast<int>(threadIdx.x % 128);
    const auto at = [](uint64_t operand, int n, int k) {
        return static_cast<int32_t>(static_cast<int8_t>(*emulated_operand(operand, n, k)));
    };
    for (int i = 0; i < N / 2; i++) {
        const int row = thread / 32 * 16 + i / 2 % 2 * 8 + thread % 32 / 4, column = i / 4 * 8 + thread % 4 * 2 + i % 2;
        int32_t sum = keep ? d[i] : 0;
        for (int k = 0; k < 32; k++)
            sum += at(a, row, k) * at(b, column, k);
        d[i] = sum;
    }
}

/* The four lanes of a row have its 16 columns: a[2i + h] columns 8 i + 2 (lane % 4) and the next; of 8 bits its 32,
 * columns 16 i + 4 (lane % 4) and the next three. */
template <int N>
static inline void emulated_mma_registers(float (&d)[N / 2], moxie_dtype dtype, const uint32_t *a, uint64_t b, int keep)
{
    const int first = static_cast<int>(threadIdx.x % 32) / 4 * 4, each = dtype == MOXIE_F8_E4M3 ? 4 : 2,
              bits = 32 / each;
    float rows[2][32];
    for (int i = 0; i < 2; i++) {
        const emulated_words &words = emulated_exchange(static_cast<uint64_t>(a[2 * i + 1]) << 32 | a[2 * i]);
        for (int lane = 0; lane < 4; lane++)
            for (int h = 0; h < 2; h++)
                for (int c = 0; c < each; c++)
                    rows[h][each * (4 * i + lane) + c] =
                        mox_device_decode(dtype, words.of[first + lane] >> (32 * h + bits * c) & ((1u << bits) - 1));
    }
    emulated_mma<N>(d, rows, dtype, b, keep);
}

template <int N> static inline void mox_wgmma_registers_e4m3(float (&d)[N / 2], const uint32_t *a, uint64_t b, int keep)
{
    emulated_mma_registers<N>(d, MOXIE_F8_E4M3, a, b, keep);
}

template <int N> static inline void mox_wgmma_registers_bf16(float (&d)[N / 2], const uint32_t *a, uint64_t b, int keep)
{
    emulated_mma_registers<N>(d, MOXIE_BF16, a, b, keep);
}

template <int N> static inline void mox_wgmma_registers_f16(float (&d)[N / 2], const uint32_t *a, uint64_t b, int keep)
{
    emulated_mma_registers<N>(d, MOXIE_F16, a, b, keep);
}

#endif
