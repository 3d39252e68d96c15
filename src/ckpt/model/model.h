/* SPDX-License-Identifier: Apache-2.0
 *
 * model.h - a checkpoint directory as a model: which layers are mixtures of experts, in which format, and one layer's
 * configuration and weights as views of the mapped files.
 *
 *     config.json -> family, sizes (family_read.c)      *.safetensors -> names -> MoE layers (model_scan.c)
 *     layer L: format of each matrix from its tensors (match.c) -> views (model_expert.c)
 *              -> moxie_layer_config, moxie_weights and arrays of the routing (model_layer.c)
 *
 * These are the bodies of moxie_model_* (moxie_ckpt.h), whose thread rules hold here too.
 */
#ifndef MOX_CKPT_MODEL_H
#define MOX_CKPT_MODEL_H

#include <moxie/moxie_ckpt.h>

#include "ckpt/families/tables.h"

/* `options` is not NULL. */
moxie_status mox_model_open(const char *dir, const moxie_model_options *options, moxie_model **out, moxie_error *error);
void mox_model_close(moxie_model *model);
void mox_model_get_info(const moxie_model *model, moxie_model_info *info);
const char *mox_model_warning(const moxie_model *model, int64_t i);
const char *mox_model_unread_key(const moxie_model *model, int64_t i);
moxie_status mox_model_describe_layer(const moxie_model *model, int64_t i, moxie_model_layer_info *info,
                                      moxie_error *error);
moxie_status mox_model_load_layer(const moxie_model *model, int64_t layer, moxie_model_layer **out, moxie_error *error);
void mox_model_layer_free(moxie_model_layer *layer);
const moxie_layer_config *mox_model_layer_config(const moxie_model_layer *layer);
const moxie_weights *mox_model_layer_weights(const moxie_model_layer *layer);
const char *mox_model_layer_unread(const moxie_model_layer *layer, int64_t i);

moxie_status mox_model_visit_experts(const moxie_model *model, int64_t layer, moxie_tensor_fn visit, void *user,
                                     moxie_error *error);
moxie_status mox_model_expert_prefix(const moxie_model *model, int64_t layer, char *buffer, size_t size,
                                     moxie_error *error);

/* Reads everything that is read from a config.json, or from a hf_quant_config.json or quantize_config.json, without
 * tensors. For fuzzing and linting. */
moxie_status mox_model_config_check_text(const char *text, uint64_t size, moxie_error *error);
moxie_status mox_quant_config_check_text(const char *text, uint64_t size, moxie_error *error);

#endif
