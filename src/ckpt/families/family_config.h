/* SPDX-License-Identifier: Apache-2.0
 *
 * family_config.h - config.json in both directions: the numbers of one layer out of any family's spelling of it.
 *
 * A key is looked up in text_config first and then at the top level; dots descend ("ffn_config.moe_top_k"). A value may
 * be a list with one entry a layer. Every number is checked against what a layer can be before it is used; nothing is
 * ever allocated from a number of config.json alone.
 */
#ifndef MOX_CKPT_FAMILY_CONFIG_H
#define MOX_CKPT_FAMILY_CONFIG_H

#include "ckpt/families/tables.h"

/* The value of a key, or NULL when it is absent or null. Borrowed. */
const json_t *mox_config_find(const json_t *config, const char *key);
/* Numbers, or entry `layer` of a list (its last entry for layers behind its end); `fallback` when absent. */
moxie_status mox_config_int(const json_t *config, const char *key, int64_t layer, int64_t fallback, const char *file,
                            int64_t *out, moxie_error *error);
moxie_status mox_config_real(const json_t *config, const char *key, int64_t layer, double fallback, const char *file,
                             double *out, moxie_error *error);
moxie_status mox_config_text(const json_t *config, const char *key, const char *fallback, const char *file,
                             const char **out, moxie_error *error);

/* The family that model_type (top level or text_config) names. MOXIE_ERR_UNSUPPORTED lists the known ones. */
moxie_status mox_config_family(const json_t *config, const char *file, const mox_family **out, const char **model_type,
                               moxie_error *error);

/* What config.json says about MoE layer `layer`: sizes, and a layer configuration with activation, routing recipe and
 * hidden dtype set but no quantization, arrays or shared formats. */
moxie_status mox_config_layer(const mox_family *family, const json_t *config, const char *file, int64_t layer,
                              mox_dims *dims, moxie_layer_config *out, moxie_error *error);

/* Groups, scale and norm of `dims` put into a family's recipe; TABLE selection in the first n_hash_layers. */
moxie_routing mox_family_routing(const mox_family *family, const mox_dims *dims, int64_t layer);
/* The family's activation with the swiglu limit of `dims`. */
moxie_activation mox_family_activation(const mox_family *family, const mox_dims *dims);
/* Quantization, biases and widths of a layer of these formats into `out`, whose routing and activation are set. */
void mox_layer_config_formats(const mox_family *family, const mox_dims *dims, const mox_hf_quant *routed,
                              const mox_hf_quant *shared, moxie_layer_config *out);

#endif
