/* SPDX-License-Identifier: Apache-2.0
 *
 * device_block.cuh - block types (format/block_fields.def) in kernels: one weight of a row of blocks.
 *
 *     row   | block 0 | block 1 | ...       `bytes` each, of `weights` numbers
 */
#ifndef MOX_CUDA_DEVICE_DEVICE_BLOCK_CUH
#define MOX_CUDA_DEVICE_DEVICE_BLOCK_CUH

#include "format/block_at.h"

/* weights 0: `dtype` is no block type, or none that kernels decode. */
struct mox_device_block {
    mox_block_fields fields;
    int32_t weights, bytes;
};

static __device__ inline mox_device_block mox_device_block_of(moxie_dtype dtype)
{
    mox_device_block block = {};
    switch (dtype) {
#define MOX_BLOCK(id, type, name, weights_, bytes_)                                                                    \
    case MOX_BLOCK_DTYPE + type:                                                                                       \
        block.weights = weights_;                                                                                      \
        block.bytes = bytes_;                                                                                          \
        break;
#include "format/blocks.def"
#undef MOX_BLOCK
    default: return block;
    }
    switch (dtype) {
#define MOX_FIELD(at, bits, stride)                                                                                    \
    {                                                                                                                  \
        at, bits, stride                                                                                               \
    }
#define MOX_BLOCK_FIELDS(id, type, low, high, d_at, m_at, m_sign, integers, at, run, offset, levels)                   \
    case MOX_BLOCK_DTYPE + type:                                                                                       \
        block.fields = { MOX_BLOCK_DTYPE + type, low, high, d_at,   m_at,  m_sign,                                     \
                         MOX_BLOCK_##integers,   at,  run,  offset, levels };                                          \
        return block;
#include "format/block_fields.def"
#undef MOX_BLOCK_FIELDS
#undef MOX_FIELD
    default: block.weights = 0; return block;
    }
}

static __device__ inline float mox_device_block_weight(const mox_device_block &block, const uint8_t *row, int32_t i)
{
    return mox_block_weight(&block.fields, row + static_cast<int64_t>(i / block.weights) * block.bytes,
                            i % block.weights);
}

#endif
