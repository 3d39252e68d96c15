/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_target.h - the family that a quantized directory is written for:
 *
 *     a directory   its own family and configuration
 *     a GGUF file   the first family of gguf_families.def with the file's architecture whose config.json, made from
 *                   the metadata and read again, computes what the file's layers compute
 */
#ifndef MOX_CKPT_QUANTIZE_TARGET_H
#define MOX_CKPT_QUANTIZE_TARGET_H

#include "ckpt/model/model_state.h"

typedef struct mox_quantize_target {
    const mox_family *family;
    const json_t *config;    /* borrowed: the source's, or `made` */
    const char *config_path; /* for messages */
    json_t *made;            /* config.json of a GGUF file's layers; NULL for directories */
} mox_quantize_target;

/* MOXIE_ERR_UNSUPPORTED when no family computes what a GGUF file's layers do. Call mox_quantize_target_close() in any
 * case. */
moxie_status mox_quantize_target_open(const moxie_model *model, mox_quantize_target *out, moxie_error *error);
void mox_quantize_target_close(mox_quantize_target *target);
/* Family and sizes of layer `layer`, as mox_enumerate_layer() takes them: family->prefixes[0] and names are those that
 * the layer is written under. */
moxie_status mox_quantize_target_layer(const mox_quantize_target *target, const moxie_model *model, int64_t layer,
                                       mox_family *family, mox_dims *dims, moxie_error *error);

#endif
