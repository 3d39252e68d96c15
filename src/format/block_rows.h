/* SPDX-License-Identifier: Apache-2.0
 *
 * block_rows.h - block types as constants, for kernels that are compiled once for each of them:
 *
 *     mox_fields_<id>                     the row of block_fields.def
 *     MOX_TYPE_<id>                       its number (blocks.def)
 *     MOX_WEIGHTS_<id>, MOX_BYTES_<id>    weights and bytes of a block
 */
#ifndef MOX_FORMAT_BLOCK_ROWS_H
#define MOX_FORMAT_BLOCK_ROWS_H

#include "format/block_at.h"

enum {
#define MOX_BLOCK(id, type, name, weights, bytes)                                                                      \
    MOX_TYPE_##id = type, MOX_WEIGHTS_##id = weights, MOX_BYTES_##id = bytes,
#include "format/blocks.def"
#undef MOX_BLOCK
};

#define MOX_FIELD(at, bits, stride)                                                                                    \
    {                                                                                                                  \
        at, bits, stride                                                                                               \
    }
#define MOX_BLOCK_FIELDS(id, type, low, high, d_at, m_at, m_sign, integers, at, run, offset, levels)                   \
    static const mox_block_fields mox_fields_##id = { MOX_BLOCK_DTYPE + type, low, high, d_at,   m_at,  m_sign,        \
                                                      MOX_BLOCK_##integers,   at,  run,  offset, levels };
#include "format/block_fields.def"
#undef MOX_BLOCK_FIELDS
#undef MOX_FIELD

#endif
