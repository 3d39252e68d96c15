/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_formats.h - block types as checkpoint formats: one for each line of format/blocks.def, and one more for matrices
 * with a scale for each expert beside them.
 *
 *     NAME.weight   [N, K] or [E, N, K] in blocks          NAME.scale   f32 [E], multiplies; optional
 */
#ifndef MOX_CKPT_GGUF_FORMATS_H
#define MOX_CKPT_GGUF_FORMATS_H

#include "ckpt/families/tables.h"

/* The format of a tensor of a block type; NULL for other dtypes. Immutable. */
const mox_hf_quant *mox_gguf_format(moxie_dtype dtype, bool has_scale);
/* A matrix of whole blocks, in one part: how it is written. NULL for other dtypes. */
const mox_hf_quant *mox_gguf_block_format(moxie_dtype dtype);
/* By the format's id, which is the block type's name; NULL: there is none. */
const mox_hf_quant *mox_gguf_format_by_id(const char *id);

#endif
