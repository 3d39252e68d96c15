/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_blocks.h - one layer as tensors of a GGUF file: routed experts in block types, other tensors in f32 or bf16.
 * Their bytes wait in a sealed file, "U8 [experts, bytes]", until all layers are done.
 */
#ifndef MOX_CKPT_QUANTIZE_BLOCKS_H
#define MOX_CKPT_QUANTIZE_BLOCKS_H

#include <moxie/moxie_quantize.h>

#include "base/executor.h"
#include "ckpt/gguf/imatrix.h"
#include "ckpt/model/model_state.h"

typedef struct mox_quantize_blocks {
    moxie_model_layer *loaded;
    int64_t layer, n_experts;
    const mox_tensor_spec *specs; /* [n_specs] */
    int64_t n_specs;
    bool search;                  /* scales by mean square error */
    const mox_imatrix *imatrix;   /* or NULL */
    moxie_quantize_error *errors; /* [n_experts][3], zero */
} mox_quantize_blocks;

/* Bytes of a tensor of a GGUF file. */
uint64_t mox_quantize_blocks_bytes(const mox_tensor_spec *spec);
/* Makes the blocks of one matrix from codes and scales of the source as they are; false, and nothing is made, when the
 * type cannot hold them. `piece`: its rows, one after the other. */
bool mox_quantize_blocks_repack(const mox_tensor_spec *spec, const moxie_matrix *source, const moxie_quant *quant,
                                uint8_t *piece);
/* Writes the sealed file, and sets the errors. `progress` gets the bytes of the source as they are done. */
moxie_status mox_quantize_blocks_write(const mox_quantize_blocks *layer, const char *path,
                                       const moxie_executor *executor,
                                       moxie_status (*progress)(void *user, uint64_t bytes, moxie_error *error),
                                       void *user, moxie_error *error);

#endif
