/* SPDX-License-Identifier: Apache-2.0
 *
 * model_state.h - an open model and a loaded layer: the structs behind moxie_model and moxie_model_layer.
 */
#ifndef MOX_CKPT_MODEL_STATE_H
#define MOX_CKPT_MODEL_STATE_H

#include "ckpt/families/family_config.h"

/* A MoE layer that exists by its tensor names, and which spelling they have. */
typedef struct mox_layer_place {
    int64_t layer;
    int32_t prefix; /* index into family->prefixes */
    int32_t other;  /* 1: family->other_names */
} mox_layer_place;

struct moxie_model {
    mox_arena arena;
    mox_tensor_set *set;
    json_t *config, *quant_file; /* quant_file: hf_quant_config.json or quantize_config.json, or NULL */
    const json_t *quant_config;  /* in one of these two files, or NULL */
    const char *config_path, *model_type;
    const mox_family *family;
    bool gguf; /* read from a GGUF file: `config` is made from its metadata */
    moxie_activations_choice activations;
    bool allow_unread;       /* go on when tensors of a MoE block have no reader */
    bool experts_only;       /* read layers without router, routing arrays and shared expert */
    mox_layer_place *places; /* sorted by layer */
    int64_t n_places;
    const char **warnings;
    int64_t n_warnings;
    const char **unread_keys; /* keys of config.json that nothing looks up (config_keys.h) */
    int64_t n_unread_keys;
};

struct moxie_model_layer {
    mox_arena arena; /* memory of everything below */
    moxie_layer_config config;
    moxie_weights weights;
    moxie_model_layer_info info;
    const char **unread; /* [info.n_unread] names of tensors */
    uint8_t *read;       /* [tensors of the set] 1: it is part of the layer */
};

#endif
