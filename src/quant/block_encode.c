/* SPDX-License-Identifier: Apache-2.0
 *
 * block_encode.c - who encodes a type (block_encode.h): the list block_encoders.def.
 */
#include "quant/block_encode.h"

#include "format/format.h"
#include "quant/block_encoders.h"

typedef struct encoder {
    moxie_dtype dtype;
    void (*encode)(const mox_encode_row *row);
    float largest;
} encoder;

static const encoder encoders[] = {
#define MOX_BLOCK_ENCODER(type, family, largest) { MOX_BLOCK_DTYPE + type, mox_encode_##family, largest },
#include "quant/block_encoders.def"
#undef MOX_BLOCK_ENCODER
};

static const encoder *encoder_of(moxie_dtype dtype)
{
    for (size_t i = 0; i < sizeof encoders / sizeof encoders[0]; i++)
        if (encoders[i].dtype == dtype)
            return &encoders[i];
    return NULL;
}

bool mox_block_can_encode(moxie_dtype dtype)
{
    return encoder_of(dtype) != NULL;
}

float mox_block_largest(moxie_dtype dtype)
{
    const encoder *e = encoder_of(dtype);
    return e ? e->largest : mox_format_of(dtype)->max;
}

uint64_t mox_block_row_bytes(moxie_dtype dtype, int64_t count)
{
    const mox_block *block = mox_block_of(dtype);
    return block ? (uint64_t)(count / block->weights * block->bytes) : (uint64_t)(count * mox_dtype_bytes(dtype));
}

void mox_block_encode_row(moxie_dtype dtype, const float *w, const float *importance, int64_t count, bool search,
                          uint8_t *out)
{
    const encoder *e = encoder_of(dtype);
    if (e)
        e->encode(&(mox_encode_row) { mox_block_of(dtype), w, importance, count, search, out });
    else
        mox_narrow(dtype, w, out, count);
}
