/* SPDX-License-Identifier: Apache-2.0
 *
 * file_tensor.h - one tensor of a safetensors file: as the reader found it, and as a writer declares it.
 */
#ifndef MOX_CKPT_FILE_TENSOR_H
#define MOX_CKPT_FILE_TENSOR_H

#include <moxie/moxie_ckpt.h>

#include "base/status.h"

/* One tensor of a file. Some tensors are valid in the format but have no moxie_tensor: dtype C64, the FNUZ variants,
 * more than MOXIE_MAX_RANK axes. They do not make the file invalid: `unusable` says why, the view has dtype NONE and at
 * most the first MOXIE_MAX_RANK axes. Call mox_file_tensor_check() before using the data of a tensor. */
typedef struct mox_file_tensor {
    const char *name;  /* as in the file, unescaped, terminated */
    moxie_tensor view; /* data possibly unaligned; strides zero (contiguous) */
    uint64_t bytes;
    uint64_t offset;        /* of the data in the file, for messages */
    int32_t file;           /* index of the shard */
    const char *file_dtype; /* the dtype as the file spells it: "F8_E4M3"; static */
    const char *unusable;   /* NULL, or the reason; static */
} mox_file_tensor;

/* A tensor to be written. */
typedef struct mox_tensor_decl {
    const char *name;
    moxie_dtype dtype;
    int32_t rank;
    int64_t shape[MOXIE_MAX_RANK];
} mox_tensor_decl;

#endif
