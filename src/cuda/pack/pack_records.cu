/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_records.cu - packers: one thread makes 16 bytes of a record (pack_unit.h), then a block sums each part.
 *
 * XXH3-64 of a part (https://github.com/Cyan4973/xxHash, "Long input"), eight accumulators of 64 bits:
 *
 *     stripe   64 bytes; adds to every accumulator
 *     block    16 stripes; then every accumulator is scrambled
 *     warp w: the sums of blocks w, w + 8, ... of 64, side by side     thread i < 8: accumulator i, block by block
 *
 * Adding is all that stripes do, so the stripes of a block, and of many blocks, are summed side by side. What is left
 * to do in order is one addition and one scramble a block.
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_launch.cuh"
#include "cuda/pack/pack_unit.h"
#include "cuda/ptx/ptx_sync.cuh"

namespace
{

constexpr int THREADS = 256, LANES = 32, WARPS = THREADS / LANES;

template <mox_pack_order ORDER>
__global__ void __launch_bounds__(THREADS) pack_units(const __grid_constant__ mox_cuda_pack_args args)
{
    mox_grid_release();
    mox_grid_wait();
    const uint64_t at = (static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x) * MOX_PACK_UNIT;
    if (at >= args.form.w2.end)
        return;
    const mox_pack_unit unit = mox_pack_unit_at(&args, ORDER, at);
    *reinterpret_cast<mox_pack_unit *>(args.record + at) = unit;
}

/* ---- checksums -------------------------------------------------------------------------------------------------- */

constexpr int STRIPE = 64, STRIPES = 16, ACCUMULATORS = 8, AT_ONCE = 64; /* AT_ONCE: blocks between two barriers */
constexpr uint64_t BLOCK = STRIPE * STRIPES;
constexpr uint64_t PRIME32_1 = 0x9E3779B1, PRIME32_2 = 0x85EBCA77, PRIME32_3 = 0xC2B2AE3D,
                   PRIME64_1 = 0x9E3779B185EBCA87, PRIME64_2 = 0xC2B2AE3D27D4EB4F, PRIME64_3 = 0x165667B19E3779F9,
                   PRIME64_4 = 0x85EBCA77C2B2AE63, PRIME64_5 = 0x27D4EB2F165667C5, PRIME_MX1 = 0x165667919E3779F9;
constexpr int SCRAMBLE_AT = 128, LAST_STRIPE_AT = 121, MERGE_AT = 11; /* bytes of the secret */

/* 8 bytes of the secret from byte `at` on. */
__device__ uint64_t secret_at(const mox_cuda_pack_args &args, int at)
{
    const int shift = at % 8 * 8;
    const uint64_t low = args.secret[at / 8] >> shift;
    return shift == 0 ? low : low | args.secret[at / 8 + 1] << (64 - shift);
}

/* What `count` stripes from `from` on add to accumulator lane % 8. Stripe i uses the secret from byte at + 8 i on. All
 * lanes of the warp call it and get the sum. */
__device__ uint64_t sum_stripes(const mox_cuda_pack_args &args, const uint8_t *from, int count, int at)
{
    const int lane = static_cast<int>(threadIdx.x) % LANES, which = lane % ACCUMULATORS;
    uint64_t own = 0, neighbour = 0;
    for (int i = lane / ACCUMULATORS; i < count; i += LANES / ACCUMULATORS) {
        const uint64_t value = *reinterpret_cast<const uint64_t *>(from + i * STRIPE + which * 8);
        const uint64_t key = value ^ secret_at(args, at + 8 * (i + which));
        own += (key & 0xffffffff) * (key >> 32);
        neighbour += value;
    }
    own += __shfl_xor_sync(0xffffffff, neighbour, 1);
    own += __shfl_xor_sync(0xffffffff, own, 8);
    return own + __shfl_xor_sync(0xffffffff, own, 16);
}

__device__ uint64_t first_of(int accumulator)
{
    switch (accumulator) {
    case 0: return PRIME32_3;
    case 1: return PRIME64_1;
    case 2: return PRIME64_2;
    case 3: return PRIME64_3;
    case 4: return PRIME64_4;
    case 5: return PRIME32_2;
    case 6: return PRIME64_5;
    default: return PRIME32_1;
    }
}

/* The two halves of a product of 128 bits, combined. */
__device__ uint64_t folded(uint64_t a, uint64_t b)
{
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

__device__ uint64_t finish(const mox_cuda_pack_args &args, const uint64_t *sums, uint64_t bytes)
{
    uint64_t hash = bytes * PRIME64_1;
    for (int i = 0; i < ACCUMULATORS; i += 2)
        hash +=
            folded(sums[i] ^ secret_at(args, MERGE_AT + 8 * i), sums[i + 1] ^ secret_at(args, MERGE_AT + 8 * i + 8));
    hash ^= hash >> 37;
    hash *= PRIME_MX1;
    return hash ^ hash >> 32;
}

/* Block i of the grid sums part i. */
__global__ void __launch_bounds__(THREADS) sum_parts(const __grid_constant__ mox_cuda_pack_args args)
{
    __shared__ uint64_t sums[AT_ONCE][ACCUMULATORS];
    mox_grid_release();
    mox_grid_wait();
    const uint8_t *from = args.record + args.part_at[blockIdx.x];
    const uint64_t bytes = args.part_at[blockIdx.x + 1] - args.part_at[blockIdx.x], blocks = (bytes - 1) / BLOCK;
    const int warp = static_cast<int>(threadIdx.x) / LANES, lane = static_cast<int>(threadIdx.x) % LANES;
    const bool owner = threadIdx.x < ACCUMULATORS;
    uint64_t sum = first_of(lane % ACCUMULATORS);
    for (uint64_t first = 0; first < blocks; first += AT_ONCE) {
        const int here = static_cast<int>(blocks - first < AT_ONCE ? blocks - first : AT_ONCE);
        for (int i = warp; i < here; i += WARPS) {
            const uint64_t added = sum_stripes(args, from + (first + i) * BLOCK, STRIPES, 0);
            if (lane < ACCUMULATORS)
                sums[i][lane] = added;
        }
        __syncthreads();
        for (int i = 0; owner && i < here; i++) {
            sum += sums[i][lane];
            sum = ((sum ^ sum >> 47) ^ secret_at(args, SCRAMBLE_AT + 8 * lane)) * PRIME32_1;
        }
        __syncthreads();
    }
    if (warp != 0)
        return;
    const int stripes = static_cast<int>((bytes - 1 - blocks * BLOCK) / STRIPE);
    sum += sum_stripes(args, from + blocks * BLOCK, stripes, 0);
    sum += sum_stripes(args, from + bytes - STRIPE, 1, LAST_STRIPE_AT);
    if (owner)
        sums[0][lane] = sum;
    __syncwarp();
    if (threadIdx.x == 0)
        args.sums[blockIdx.x] = finish(args, sums[0], bytes);
}

/* ---- launch ----------------------------------------------------------------------------------------------------- */

template <mox_pack_order ORDER>
moxie_status launch(const mox_cuda_pack_args *args, mox_cuda_stream stream, moxie_error *error)
{
    const uint64_t each = static_cast<uint64_t>(THREADS) * MOX_PACK_UNIT;
    const dim3 grid(static_cast<unsigned>((args->form.w2.end + each - 1) / each));
    MOX_TRY(
        mox_cuda_status(mox_device_launch(pack_units<ORDER>, grid, THREADS, 0, stream, false, *args), "pack", error));
    const dim3 parts(static_cast<unsigned>(args->parts));
    return mox_cuda_status(mox_device_launch_dependent(sum_parts, parts, THREADS, 0, stream, *args), "pack: sums",
                           error);
}

} // namespace

moxie_status mox_cuda_pack_hopper_launch(const mox_cuda_pack_args *args, mox_cuda_stream stream, moxie_error *error)
{
    return launch<MOX_PACK_SWIZZLED>(args, stream, error);
}

moxie_status mox_cuda_pack_hopper_codes_launch(const mox_cuda_pack_args *args, mox_cuda_stream stream,
                                               moxie_error *error)
{
    return launch<MOX_PACK_FRAGMENTS>(args, stream, error);
}

moxie_status mox_cuda_pack_hopper_fp8_launch(const mox_cuda_pack_args *args, mox_cuda_stream stream, moxie_error *error)
{
    return launch<MOX_PACK_FRAGMENTS_FP8>(args, stream, error);
}
