/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_gguf_file.h - the finished layers of a run as one GGUF file.
 */
#ifndef MOX_CKPT_QUANTIZE_GGUF_FILE_H
#define MOX_CKPT_QUANTIZE_GGUF_FILE_H

#include "ckpt/gguf/gguf_target.h"
#include "ckpt/quantize/quantize_blocks.h"
#include "ckpt/quantize/quantize_dir.h"

typedef struct mox_gguf_job {
    const char *source;
    const mox_gguf_recipe *recipe;
    const moxie_quantize_options *options;
    const moxie_executor *executor;
    moxie_model *model;
    mox_imatrix *imatrix;   /* or NULL */
    mox_gguf_target target; /* of a directory */
    moxie_dtype shared;     /* of its shared expert */
    mox_tensor_spec *specs; /* [n_specs] tensors that are made: of layer i from first[i] to first[i + 1] */
    int64_t *first;
    int64_t n_specs, room;
    uint8_t *owned; /* [tensors of a directory's set] 1: some MoE layer is read from it */
    bool changes;   /* some matrix gets another type */
    mox_quantize_dir dir;
    uint64_t done_bytes;
    moxie_quantize_summary summary;
} mox_gguf_job;

/* The sealed file of layer i, and the file that becomes the result; valid until the next path. */
const char *mox_gguf_job_layer_path(mox_gguf_job *job, int64_t i);
const char *mox_gguf_job_result_path(mox_gguf_job *job);
/* Writes and checks the result: the tensors of a GGUF source in its order, else layer after layer. */
moxie_status mox_gguf_job_assemble(mox_gguf_job *job, moxie_error *error);

#endif
