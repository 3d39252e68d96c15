/* SPDX-License-Identifier: Apache-2.0
 *
 * layer.h - one layer's prepared weights: slots that hold records, the slot map, and what belongs to no expert.
 *
 *     slot_of[e]:   0  1 -1 -1  2 ...        global expert -> slot, or -1 when another rank owns it
 *     expert_of[s]: 0  1  4 ...              slot -> global expert
 *     slab:     | record of slot 0 | record of slot 1 | ... | the shared expert's record |      records[s] point in
 *
 * Of a layer of the cuda back end the slab lies in device memory, and so do copies of all that kernels read (`arrays`).
 *
 * In the flow: config -> select -> [layer] -> plan -> run. A layer is immutable while plans run on it;
 * prepare and update_expert have the layer to themselves.
 */
#ifndef MOX_LAYER_LAYER_H
#define MOX_LAYER_LAYER_H

#include "layer/plan/select.h"
#include "layer/weights/layer_arrays.h"

/* The float that static activation quantization takes from the weights, of every expert. */
typedef struct mox_static_scale {
    bool needed;
    float *raw;      /* [E] as the checkpoint gave it; 0: it has none */
    float *resolved; /* [slots] raw, or for an expert without one the most cautious of the others' */
    bool uniform;    /* all slots have the same */
} mox_static_scale;

/* A plain matrix of the layer itself, widened to f32. */
typedef struct mox_dense_matrix {
    int64_t rows, cols;
    float *weight; /* [rows, cols] */
    float *bias;   /* [rows] or NULL */
} mox_dense_matrix;

struct moxie_layer {
    moxie_layer_config config; /* its arrays are the layer's own */
    mox_arena config_arrays;
    mox_record_shape routed_shape, shared_shape;
    const mox_layout *layouts[MOX_EXPERT_KINDS]; /* shared: NULL when this rank has no shared expert */
    int32_t slots;
    int32_t *slot_of;   /* [E] */
    int64_t *expert_of; /* [slots] */
    uint64_t record_bytes, shared_bytes;
    void *slab;          /* all records, in one block of pages that the packers are first to touch; NULL after a failed
                          * allocation, until the next preparation */
    void **records;      /* [slots] */
    void *shared_record; /* or NULL */
    mox_static_scale static_scale[2]; /* routed, by mox_projection */
    float shared_static_scale[2];
    mox_dense_matrix router, shared_gate; /* weight NULL when absent */
    bool prepared;
    mox_device device;       /* where the records are */
    mox_layer_arrays arrays; /* there too */
};

/* Bodies of the moxie_layer_ functions. */
moxie_status mox_layer_create(const moxie_layer_config *config, const moxie_options *options, moxie_layer **out,
                              moxie_error *error);
void mox_layer_destroy(moxie_layer *layer);
moxie_status mox_layer_prepare(moxie_layer *layer, const moxie_weights *weights, const moxie_options *options,
                               moxie_error *error);
moxie_status mox_layer_update_expert(moxie_layer *layer, int64_t expert, const moxie_expert *weights,
                                     moxie_error *error);
moxie_status mox_layer_verify(const moxie_layer *layer, moxie_error *error);
moxie_status mox_layer_record(const moxie_layer *layer, int64_t expert, const void **data, uint64_t *bytes,
                              moxie_error *error);
uint64_t mox_layer_bytes(const moxie_layer *layer);

/* Where the chosen layouts cannot hold these weights (mox_layout.accepts), goes over to rowmajor, which holds all.
 * Plans made before then read another layout and refuse to run. The layer holds no expert. On failure it keeps its
 * layouts, perhaps without memory for them, and the next call begins there. */
moxie_status mox_layer_choose_layout(moxie_layer *layer, const moxie_weights *weights, moxie_error *error);

/* ---- static scales (static_scale.c) ---------------------------------------------------------------------- */

/* Takes one expert's scale; 0 means that there is none. `what` names it: "expert 3 a13_scale". */
moxie_status mox_static_scale_set(mox_static_scale *scale, const moxie_quant *quant, int64_t expert, float value,
                                  const char *what, moxie_error *error);
/* Resolves every slot after experts changed; fails when no expert has a scale. `what`: "a13_scale". */
moxie_status mox_static_scale_resolve(mox_static_scale *scale, const moxie_quant *quant, const moxie_layer *layer,
                                      const char *what, moxie_error *error);

/* ---- plain matrices (dense_matrix.c) ------------------------------------------------------------- */

/* Reads a float matrix of the allocated size. `what` names it: "router". */
moxie_status mox_dense_matrix_read(mox_dense_matrix *dense, const moxie_matrix *matrix, const char *what,
                                   moxie_error *error);
/* The views are a plain float matrix of this size with or without a bias. */
moxie_status mox_dense_matrix_check(const moxie_matrix *matrix, int64_t rows, int64_t cols, bool has_bias,
                                    const char *what, moxie_error *error);

#endif
