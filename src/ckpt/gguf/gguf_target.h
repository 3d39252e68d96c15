/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_target.h - layers of a family as a GGUF file has them: the architecture, its metadata, names and types of
 * tensors.
 *
 *     family, sizes, a layer's configuration -> architecture (gguf_families.def), metadata
 *         -> read back as a reader of the file will (gguf_family.c) -> does that compute the same? else refused
 *         -> tensors of layer L: router, biases, experts in the recipe's types, shared expert
 */
#ifndef MOX_CKPT_GGUF_TARGET_H
#define MOX_CKPT_GGUF_TARGET_H

#include "ckpt/gguf/gguf_recipe.h"

typedef struct mox_gguf_target {
    const char *architecture;
    const mox_gguf_recipe *recipe;
    json_t *metadata, *config; /* as gguf_header.h and gguf_family.h have them */
    const mox_family *family;  /* of GGUF files */
    mox_dims dims;
    bool has_correction, has_router_bias, has_expert_bias, has_shared_gate;
    mox_arena arena;
} mox_gguf_target;

/* The architecture of a family's models; NULL: there is none. */
const char *mox_gguf_architecture_of(const mox_family *family, const char *model_type);
/* Row i of gguf_families.def; false past the last. *model_type and *architecture can be NULL. */
bool mox_gguf_family_row(int32_t i, const char **family, const char **model_type, const char **architecture);
/* `source`: the configuration of some layer of the model, `has_correction`: its router has a correction bias.
 * MOXIE_ERR_UNSUPPORTED when llama.cpp has no such model, or computes its layers otherwise. Call
 * mox_gguf_target_close() in any case. */
moxie_status mox_gguf_target_open(const mox_family *family, const char *model_type, const mox_dims *dims,
                                  const moxie_layer_config *source, bool has_correction, const mox_gguf_recipe *recipe,
                                  mox_gguf_target *out, moxie_error *error);
void mox_gguf_target_close(mox_gguf_target *target);
/* Adds what attention needs from a config.json to the metadata (gguf_names.def). */
moxie_status mox_gguf_target_add_keys(mox_gguf_target *target, const json_t *config, moxie_error *error);
/* Layer `layer` of the file computes what `source` does, up to the eps of normalisation; else MOXIE_ERR_UNSUPPORTED. */
moxie_status mox_gguf_target_check(const mox_gguf_target *target, int64_t layer, const moxie_layer_config *source,
                                   moxie_error *error);
/* The layer's configuration as a reader of the file gets it. */
moxie_status mox_gguf_target_config(const mox_gguf_target *target, int64_t layer, moxie_layer_config *out,
                                    moxie_error *error);
/* Every tensor of a layer, in the order of the file. `shared`: the dtype of the shared expert's matrices. */
moxie_status mox_gguf_target_list(const mox_gguf_target *target, int64_t layer, moxie_dtype shared,
                                  moxie_status (*visit)(void *user, const mox_tensor_spec *spec, moxie_error *error),
                                  void *user, moxie_error *error);

#endif
