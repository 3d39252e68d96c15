/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_layer.h - the routed experts of one layer in another format: which tensors that makes, and their bytes.
 */
#ifndef MOX_CKPT_QUANTIZE_LAYER_H
#define MOX_CKPT_QUANTIZE_LAYER_H

#include "ckpt/model/model_state.h"
#include "ckpt/quantize/quantize_matrix.h"
#include "ckpt/gguf/imatrix.h"
#include "ckpt/quantize/quantize_target.h"

/* Parts [first, first + count) of the specs store one matrix. */
typedef struct mox_quantize_stored {
    mox_tensor_kind kind;
    int64_t expert; /* -1: all experts, stacked */
    int64_t rows, cols, first, count;
    bool interleaved;
} mox_quantize_stored;

typedef struct mox_quantize_layer {
    mox_arena arena;
    mox_quantize_how how;
    int64_t layer, n_experts;
    moxie_model_layer *loaded;
    mox_tensor_spec *specs; /* [n_specs] tensors of the result */
    mox_quantize_stored *stored;
    int64_t n_specs, n_stored, room;
    const mox_imatrix *imatrix;   /* or NULL; set by the caller after opening */
    double input_amax[2];         /* of W13's and W2's activations; 0: not known */
    moxie_quantize_error *errors; /* [n_experts][3] */
} mox_quantize_layer;

/* Loads checkpoint layer `layer` and lists the tensors of the result. `input_amax`: 0 for what the source says. Call
 * mox_quantize_layer_close() in any case. */
moxie_status mox_quantize_layer_open(const moxie_model *model, const mox_quantize_target *target, int64_t layer,
                                     const mox_quantize_how *how, const double input_amax[2], mox_quantize_layer *out,
                                     moxie_error *error);
void mox_quantize_layer_close(mox_quantize_layer *layer);
/* Whether the format stores static scales of activations. */
bool mox_quantize_has_static_scales(const mox_hf_quant *format);
/* The entry with the importances of a projection's columns, as llama.cpp names it: blk.L.ffn_gate_exps and so on, or
 * ffn_gate_up_exps of both. False: there is none, and `name` is the first of these. */
enum { MOX_IMPORTANCE_NAME = 64 };
bool mox_quantize_importance_name(const mox_imatrix *imatrix, int64_t layer, int32_t projection,
                                  char name[MOX_IMPORTANCE_NAME]);
/* Importances for the columns of an expert's matrix. *found as mox_imatrix_columns() has it. MOXIE_ERR_MISMATCH when
 * the file has no such entry. */
moxie_status mox_quantize_importance(const mox_quantize_layer *layer, int32_t projection, int64_t expert, int64_t cols,
                                     float *out, bool *found, moxie_error *error);
/* Bytes of tensor i of the result, and of the piece of it that is one expert's. */
uint64_t mox_quantize_tensor_bytes(const mox_tensor_spec *spec);
uint64_t mox_quantize_piece_bytes(const mox_tensor_spec *spec);

/* Writes the layer's file. `progress` gets the bytes of the source as they are done. */
typedef moxie_status (*mox_quantize_progress)(void *user, uint64_t bytes, moxie_error *error);
moxie_status mox_quantize_layer_write(mox_quantize_layer *layer, const char *path, const moxie_executor *executor,
                                      mox_quantize_progress progress, void *user, moxie_error *error);

#endif
