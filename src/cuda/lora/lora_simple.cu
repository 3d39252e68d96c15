/* SPDX-License-Identifier: Apache-2.0
 *
 * lora_simple.cu - the change that adapters make to a product's result, on every GPU.
 *
 *     group    pairs of a chunk -> tiles of up to 8 pairs of one slot and one adapter (lora_tiles.cuh); for W13 only
 *     shrink   u of a tile, a matrix and 16 rows of A, on tensor cores (lora_shrink.cuh)
 *     expand   a tile and 256 rows of B, added to the result or stored for a product that adds it (lora_expand.cuh)
 *
 * A block has one of so many likely tiles of a chunk, and takes further ones if there are more.
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_launch.cuh"
#include "cuda/lora/lora_expand.cuh"
#include "cuda/lora/lora_shrink.cuh"

enum {
    FEW_PAIRS = 1024,                                              /* so many have a block for each likely tile */
    FEW_TILES = MOX_CUDA_LORA_CHUNK / 2,                           /* of a chunk */
    MANY_TILES = MOX_CUDA_LORA_CHUNK / MOX_CUDA_LORA_ROWS * 3 / 2, /* of a chunk of more pairs */
    GROUP_SHARED = MOX_CUDA_LORA_CHUNK * 4 + MOX_CUDA_LORA_CHUNK / 32 * 4 + MOX_LORA_CACHED_OFFSETS * 8
};

template <moxie_dtype X> static void (*shrink_of(const mox_lora_args *args))(mox_lora_args)
{
    const bool aligned = reinterpret_cast<uintptr_t>(args->x) % 16 == 0 && args->cols * mox_shrink_size<X> % 16 == 0;
    return aligned && args->row_weight == nullptr ? mox_lora_shrink<X, true> : mox_lora_shrink<X, false>;
}

/* The shrink that reads args->x. */
static void (*shrink_for(const mox_lora_args *args))(mox_lora_args)
{
    switch (args->x_dtype) {
    case MOXIE_BF16: return shrink_of<MOXIE_BF16>(args);
    case MOXIE_F16: return shrink_of<MOXIE_F16>(args);
    default: return shrink_of<MOXIE_F32>(args);
    }
}

static cudaError_t launch(void (*kernel)(mox_lora_args), dim3 grid, int threads, int bytes, const mox_lora_args *args,
                          mox_cuda_stream stream)
{
    const cudaError_t status = mox_device_allow_shared(reinterpret_cast<const void *>(kernel));
    if (status != cudaSuccess)
        return status;
    return mox_device_launch_dependent(kernel, grid, threads, static_cast<size_t>(bytes), stream, *args);
}

moxie_status mox_cuda_lora_simple_launch(const mox_lora_args *args, mox_cuda_stream stream, moxie_error *error)
{
    const unsigned chunks = static_cast<unsigned>(MOX_CUDA_LORA_CHUNKS(args->max_pairs));
    const unsigned tiles = chunks * (args->max_pairs <= FEW_PAIRS ? FEW_TILES : MANY_TILES);
    const unsigned matrices = !args->second && args->gated ? 2 : 1;
    const unsigned ranks = static_cast<unsigned>((args->max_rank + MOX_SHRINK_RANKS - 1) / MOX_SHRINK_RANKS);
    const int64_t rows = args->n_out / matrices;
    const unsigned blocks = static_cast<unsigned>((rows + MOX_EXPAND_ROWS - 1) / MOX_EXPAND_ROWS) * matrices;
    if (args->max_pairs == 0 || args->n_out == 0)
        return MOXIE_OK;
    cudaError_t status = cudaSuccess;
    if (!args->second)
        status = launch(mox_lora_group, chunks, MOX_CUDA_LORA_CHUNK, GROUP_SHARED, args, stream);
    if (status == cudaSuccess)
        status = launch(shrink_for(args), dim3(tiles, matrices * ranks), MOX_SHRINK_THREADS, MOX_SHRINK_SHARED, args,
                        stream);
    if (status == cudaSuccess)
        status = launch(mox_lora_expand, dim3(tiles, blocks), MOX_EXPAND_THREADS,
                        mox_expand_shared_bytes(args->max_rank), args, stream);
    return mox_cuda_status(status, "lora simple", error);
}
