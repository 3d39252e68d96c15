/* SPDX-License-Identifier: Apache-2.0
 *
 * model_parts.h - what the files of the model reader share: the open model, the layer being read.
 */
#ifndef MOX_CKPT_MODEL_PARTS_H
#define MOX_CKPT_MODEL_PARTS_H

#include "ckpt/families/family_config.h"
#include "ckpt/formats/match.h"
#include "ckpt/model/model.h"

/* A MoE layer that the tensor names show, and how they spell it. */
typedef struct mox_layer_place {
    int64_t layer;
    int32_t prefix; /* of family->prefixes */
    int32_t other;  /* 1: family->other_names */
} mox_layer_place;

struct moxie_model {
    mox_arena arena;
    mox_tensor_set *set;
    json_t *config, *quant_file; /* quant_file: hf_quant_config.json or quantize_config.json, or NULL */
    const json_t *quant_config;  /* inside one of the two, or NULL */
    const char *config_path, *model_type;
    const mox_family *family;
    moxie_activations_choice activations;
    bool experts_only;       /* layers are read without router, routing arrays and shared expert */
    mox_layer_place *places; /* by layer */
    int64_t n_places;
    const char **warnings;
    int64_t n_warnings;
};

struct moxie_model_layer {
    mox_arena arena; /* of everything below */
    moxie_layer_config config;
    moxie_weights weights;
    moxie_model_layer_info info;
};

/* One layer while it is read. */
typedef struct mox_layer_reader {
    const moxie_model *model;
    const mox_names *names;
    const char *prefix;
    int64_t layer;
    mox_dims dims;
    mox_matcher matcher;
    mox_arena *arena; /* of the result */
    moxie_model_layer *out;
    moxie_error *error;
} mox_layer_reader;

/* Finds the MoE layers among the tensor names (model_scan.c). */
moxie_status mox_model_scan(moxie_model *model, moxie_error *error);

/* What follows a prefix template in a name, and the layer's number; NULL when it does not begin so (model_scan.c). */
const char *mox_model_after_prefix(const char *prefix, const char *name, int64_t *layer);
/* The layer's place, or MOXIE_ERR_ARGUMENT with those that there are (model_layer.c). */
moxie_status mox_model_find_place(const moxie_model *model, int64_t layer, const mox_layer_place **out,
                                  moxie_error *error);

/* Experts of one kind (routed or shared) with what they have in common. */
typedef struct mox_expert_set {
    moxie_expert *experts;
    int64_t count;
    moxie_quant w13, w2, a13, a2;
    bool bias;
    const char *format; /* row of hf_quant.def */
    uint64_t bytes;
} mox_expert_set;

/* All routed experts, or the shared one: formats found, compared and checked, views made (model_expert.c). */
moxie_status mox_read_routed(mox_layer_reader *reader, mox_expert_set *out);
moxie_status mox_read_shared(mox_layer_reader *reader, mox_expert_set *out);

/* One stored matrix (a projection, or gate and up together) as a view; reads group indices and shape records, and
 * checks them (model_matrix.c). `rows` says which part of it the projection is, *weight becomes its quantization. */
moxie_status mox_read_matrix(mox_layer_reader *reader, const mox_match *match, const mox_part_place *place,
                             mox_part_rows rows, moxie_matrix *out, moxie_quant *weight);
/* The static activation scale of one expert's matrix; 0 when there is none that can be used. */
float mox_read_input_scale(const mox_match *match, const mox_part_place *place);
uint64_t mox_match_bytes(const mox_match *match);

/* Name of a tensor of this layer; MOXIE_ERR_FORMAT when it is too long. */
moxie_status mox_layer_name(const mox_layer_reader *reader, const char *name, int64_t expert, char *buffer,
                            size_t size);
/* A tensor of this layer, or NULL. */
const mox_file_tensor *mox_layer_find(const mox_layer_reader *reader, const char *name);
/* A float tensor of this layer with these axes as a grid [rows, cols]; MOXIE_ERR_MISMATCH for another shape. */
moxie_status mox_layer_floats(const mox_layer_reader *reader, const mox_file_tensor *tensor, int64_t rows, int64_t cols,
                              moxie_grid *out);

#endif
