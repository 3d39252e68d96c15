/* SPDX-License-Identifier: Apache-2.0
 *
 * model_scan.h - which layers of a model are mixtures of experts, and where their tensors are.
 */
#ifndef MOX_CKPT_MODEL_SCAN_H
#define MOX_CKPT_MODEL_SCAN_H

#include "ckpt/model/model_state.h"

/* Finds the MoE layers among the tensor names. */
moxie_status mox_model_scan(moxie_model *model, moxie_error *error);

/* The rest of `name` behind a prefix template, and the number of the layer; NULL when the name does not start so. */
const char *mox_model_after_prefix(const char *prefix, const char *name, int64_t *layer);
/* True when a tensor, named by what follows the prefix, belongs to the routed experts: a part of one of their matrices,
 * or anything else in the module "experts" that holds them. */
bool mox_model_is_expert_tensor(const mox_names *names, const char *rest);
/* The place of a layer. MOXIE_ERR_ARGUMENT names the layers that exist. */
moxie_status mox_model_find_place(const moxie_model *model, int64_t layer, const mox_layer_place **out,
                                  moxie_error *error);

#endif
