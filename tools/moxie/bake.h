/* SPDX-License-Identifier: Apache-2.0
 *
 * bake.h - merges LoRA adapters into a checkpoint's routed experts: W + s B A, rounded to the tensor's type.
 *
 *     bake_layer.c   one layer at a time: views of its matrices, factors -> the bytes of a tensor's piece
 *     bake_files.c   the output directory: files copied, shards written piece by piece
 *     cmd_bake.c     options, report
 *
 * A piece is one expert of a 3-D tensor, or a whole tensor of another shape. So memory is that of a piece.
 */
#ifndef MOXIE_BAKE_H
#define MOXIE_BAKE_H

#include "cli_adapters.h"

/* What was merged: sums of squares over all elements of changed matrices. */
typedef struct bake_sums {
    int64_t matrices, layers;
    double change, error; /* of s B A, and of what rounding W + s B A adds */
} bake_sums;

/* A tensor of the layer at hand. */
typedef struct bake_tensor {
    const char *name;
    const char *data; /* in the model's files */
} bake_tensor;

typedef struct bake {
    const char *dir, *out;
    cli_adapters *adapters;
    moxie_model *model;
    int64_t *layers; /* [n_layers] the checkpoint's numbers */
    char (*prefixes)[256];
    int64_t n_layers;
    bool *changed;                 /* [n_layers] an adapter has factors for it */
    bool (*has)[CLI_MAX_ADAPTERS]; /* [n_layers] which */
    int64_t *matrices, *due;       /* [n_layers] that were changed so far, and that must be; due 0: not loaded yet */
    int64_t other_tensors;         /* of adapters, of other modules than the model's routed experts */
    /* the layer at hand; -1: none */
    int64_t at;
    moxie_model_layer *loaded;
    bake_tensor *tensors;
    int64_t n_tensors;
    bake_sums sums;
} bake;

/* Opens the model and its adapters; b->dir and b->adapters are set. bake_close() in any case. */
moxie_status bake_open(bake *b, moxie_error *error);
void bake_close(bake *b);
/* The number in b->layers of the layer whose experts the tensor belongs to and that an adapter changes; -1: none. */
int64_t bake_layer_of(const bake *b, const char *tensor);
/* Changes `piece`, which holds `bytes` of tensor `name` from byte `first` on. */
moxie_status bake_piece(bake *b, int64_t layer, const char *name, uint64_t first, uint64_t bytes, char *piece,
                        moxie_error *error);
/* Whether all layers were changed as a whole, once nothing more is written: a layer may be in several shards. */
moxie_status bake_end(bake *b, moxie_error *error);
/* Writes all files of b->out, which must not exist or be empty; on failure it removes them. */
moxie_status bake_write(bake *b, moxie_error *error);

/* MOXIE_ERR_IO unless `dir` is a directory without files. */
moxie_status bake_check_empty(const char *dir, moxie_error *error);
/* Removes a directory with the files in it. */
void bake_remove(const char *dir);

#endif
