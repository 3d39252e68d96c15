/* SPDX-License-Identifier: Apache-2.0
 *
 * family_config.h - config.json in both directions: one layer's numbers, from any family's spelling of them.
 *
 *     config.json -> mox_config_family -> mox_config_layer -> sizes (mox_dims), moxie_layer_config
 *
 * A key is looked up in text_config first (before that, in thinker_config.text_config: models that talk), then at the
 * top level; dots descend ("ffn_config.moe_top_k"). A value may be a list with one entry per layer. Every number is
 * checked against what a layer can be before it is used. Nothing is allocated from a number in config.json alone.
 */
#ifndef MOX_CKPT_FAMILY_CONFIG_H
#define MOX_CKPT_FAMILY_CONFIG_H

#include "ckpt/families/tables.h"

/* The value of a key, or NULL when it is absent or null. Borrowed. */
const json_t *mox_config_find(const json_t *config, const char *key);
/* True when the key exists, in text_config or at the top level, and is null everywhere. */
bool mox_config_is_null(const json_t *config, const char *key);
/* From now on, mox_config_find() on this thread adds every key that it is asked for to this object; NULL ends that. The
 * readers have no other way to say what they look up (config_keys.c). */
void mox_config_record(json_t *keys);
/* A number, or entry `layer` of a list (for layers past its end the last entry); `fallback` when absent. */
moxie_status mox_config_int(const json_t *config, const char *key, int64_t layer, int64_t fallback, const char *file,
                            int64_t *out, moxie_error *error);
moxie_status mox_config_real(const json_t *config, const char *key, int64_t layer, double fallback, const char *file,
                             double *out, moxie_error *error);
/* A limit of one layer: a number, or entry `layer` of a list; 0 (none) when absent, null or past the end of the list.
 * MOXIE_ERR_FORMAT when it is negative or no number. */
moxie_status mox_config_limit(const json_t *config, const char *key, int64_t layer, const char *file, float *out,
                              moxie_error *error);
moxie_status mox_config_text(const json_t *config, const char *key, const char *fallback, const char *file,
                             const char **out, moxie_error *error);

/* The family that model_type (top level or text_config) names. MOXIE_ERR_UNSUPPORTED lists the known ones. */
moxie_status mox_config_family(const json_t *config, const char *file, const mox_family **out, const char **model_type,
                               moxie_error *error);

/* Reads MoE layer `layer` from config.json: sizes, and a layer configuration with activation, routing and hidden dtype.
 * It has no quantization, arrays or shared expert formats yet. */
moxie_status mox_config_layer(const mox_family *family, const json_t *config, const char *file, int64_t layer,
                              mox_dims *dims, moxie_layer_config *out, moxie_error *error);

/* The routing of the family with groups, scale and normalisation of `dims`; selection by TABLE in the first
 * n_hash_layers layers. */
moxie_routing mox_family_routing(const mox_family *family, const mox_dims *dims, int64_t layer);
/* The activation of the family with the swiglu limit of `dims`. */
moxie_activation mox_family_activation(const mox_family *family, const mox_dims *dims);
/* Gives the shared expert the activation without limits, where only the family's routed experts have them. */
void mox_family_shared_activation(const mox_family *family, moxie_layer_config *out);
/* The norms of the family for a router that reads `hidden` numbers. */
void mox_family_norms(const mox_family *family, int64_t hidden, moxie_layer_config *out);
/* Sets quantization, biases and widths of a layer in these formats. Routing and activation in `out` are set already. */
void mox_layer_config_formats(const mox_family *family, const mox_dims *dims, const mox_hf_quant *routed,
                              const mox_hf_quant *shared, moxie_layer_config *out);

#endif
