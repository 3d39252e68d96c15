/* SPDX-License-Identifier: Apache-2.0
 *
 * block.c - what is made from blocks.def: lookup by number, and decoding of parts of a row.
 */
#include "format/block.h"

static const mox_block blocks[] = {
#define MOX_BLOCK(id, type_number, text, n, size)                                                                      \
    { { MOX_BLOCK_DTYPE + type_number, text, 32, MOX_KIND_FLOAT, 0x1.fffffep127f, 0x1p-126f, 127, true, true,          \
        mox_f32_decode, mox_f32_encode },                                                                              \
      type_number,                                                                                                     \
      n,                                                                                                               \
      size,                                                                                                            \
      mox_block_##id##_decode },
#include "format/blocks.def"
#undef MOX_BLOCK
};

enum { COUNT = sizeof blocks / sizeof blocks[0] };

const mox_block *mox_block_at(int32_t i)
{
    return i >= 0 && i < COUNT ? &blocks[i] : NULL;
}

const mox_block *mox_block_of(moxie_dtype dtype)
{
    for (int32_t i = 0; i < COUNT; i++)
        if (blocks[i].format.dtype == dtype)
            return &blocks[i];
    return NULL;
}

void mox_block_decode_run(const mox_block *block, const uint8_t *row, int64_t first, int64_t count, float *out)
{
    const int64_t n = block->weights, end = first + count;
    float values[MOX_BLOCK_MAX];
    for (int64_t b = first / n; b * n < end; b++) {
        const int64_t from = b * n < first ? first : b * n, to = (b + 1) * n < end ? (b + 1) * n : end;
        const uint8_t *bytes = row + b * block->bytes;
        if (to - from == n) {
            block->decode(bytes, out + (from - first));
            continue;
        }
        block->decode(bytes, values);
        memcpy(out + (from - first), values + (from - b * n), (size_t)(to - from) * sizeof *out);
    }
}
