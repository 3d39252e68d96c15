/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_rest.h - what a quantized checkpoint takes over from its source: tensors, config.json, other files.
 */
#ifndef MOX_CKPT_QUANTIZE_REST_H
#define MOX_CKPT_QUANTIZE_REST_H

#include "ckpt/quantize/quantize_target.h"

typedef struct mox_quantize_rest {
    const moxie_model *model;
    const mox_quantize_target *target;
    mox_arena arena;
    bool *replaced;        /* [tensors of the set] stored routed experts, which the result stores otherwise */
    int64_t *shards;       /* [n_shards] files of the source with tensors that are copied */
    uint64_t *shard_bytes; /* [n_shards] of those tensors */
    int64_t n_shards;
    uint64_t bytes;    /* of the tensors that are copied */
    int64_t quantized; /* modules among them that are quantized, and not described by the format's configuration */
    const char *first_quantized; /* a tensor of the first of them, or NULL */
    /* Of a GGUF file: tensors that are written anew [n_specs], in one shard, and their layers. */
    mox_tensor_spec *specs;
    int64_t *layers; /* -1: a tensor of the file, copied[i] */
    const mox_file_tensor **copied;
    int64_t left_out; /* tensors of the file that have no place in the directory */
    int64_t n_specs, room;
} mox_quantize_rest;

/* For experts in `format`. Call mox_quantize_rest_close() in any case. */
moxie_status mox_quantize_rest_open(const moxie_model *model, const mox_quantize_target *target,
                                    const mox_hf_quant *format, mox_quantize_rest *out, moxie_error *error);
void mox_quantize_rest_close(mox_quantize_rest *rest);
/* Copies the tensors of shard `i` to a sealed file. */
moxie_status mox_quantize_rest_write(const mox_quantize_rest *rest, int64_t i, const char *path, moxie_error *error);
/* The target's config.json with the format's quantization_config, in which every copied matrix is left alone. The
 * caller owns it. */
moxie_status mox_quantize_rest_config(const mox_quantize_rest *rest, const mox_hf_quant *format, json_t **out,
                                      moxie_error *error);
/* Copies the other files of directory `from`: tokenizer, code, licence. Not those that hold weights or say how the
 * source is quantized. */
moxie_status mox_quantize_rest_files(const char *from, const char *to, moxie_error *error);

/* Opening and writing for a GGUF file (quantize_rest_gguf.c). */
moxie_status mox_quantize_rest_open_gguf(const moxie_model *model, const mox_quantize_target *target,
                                         mox_quantize_rest *out, moxie_error *error);
moxie_status mox_quantize_rest_write_gguf(const mox_quantize_rest *rest, const char *path, moxie_error *error);

#endif
