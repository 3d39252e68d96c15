/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_rest_gguf.c - what a quantized directory takes over from a GGUF file (quantize_rest.h), under the names of
 * the family that it is written for:
 *
 *     layer: router, biases, shared expert -> floats (quantize_plain.c)
 *     attention and others                 -> the same floats; from blocks: bf16 (gguf_names.def)
 *
 * All of it is one shard.
 */
#include "ckpt/quantize/quantize_rest.h"

#include <string.h>

#include "ckpt/gguf/gguf_names.h"
#include "ckpt/model/model.h"
#include "ckpt/quantize/quantize_layer.h"
#include "ckpt/quantize/quantize_plain.h"
#include "quant/block_encode.h"

typedef struct listing {
    mox_quantize_rest *rest;
    const moxie_model_layer *layer;
} listing;

static moxie_status grow(mox_quantize_rest *rest, moxie_error *error)
{
    if (rest->n_specs < rest->room)
        return MOXIE_OK;
    const int64_t room = rest->room > 0 ? 2 * rest->room : 64;
    mox_tensor_spec *specs = mox_realloc(rest->specs, (uint64_t)room * sizeof *specs);
    rest->specs = specs ? specs : rest->specs;
    int64_t *layers = mox_realloc(rest->layers, (uint64_t)room * sizeof *layers);
    rest->layers = layers ? layers : rest->layers;
    const mox_file_tensor **copied = mox_realloc(rest->copied, (uint64_t)room * sizeof *copied);
    rest->copied = copied ? copied : rest->copied;
    MOX_FAIL_IF(!specs || !layers || !copied, MOXIE_ERR_MEMORY, error, "no memory for a list of %lld tensors",
                (long long)room);
    rest->room = room;
    return MOXIE_OK;
}

static moxie_status add_spec(void *user, const mox_tensor_spec *spec, moxie_error *error)
{
    listing *l = user;
    mox_quantize_rest *rest = l->rest;
    if (mox_quantize_is_routed(spec))
        return MOXIE_OK;
    MOX_FAIL_IF(!mox_quantize_can_write(spec), MOXIE_ERR_UNSUPPORTED, error,
                "checkpoint directories of family %s have %s, which GGUF files have not: choose a gguf format",
                rest->target->family->id, spec->name);
    MOX_TRY(grow(rest, error));
    mox_tensor_spec *own = &rest->specs[rest->n_specs];
    *own = *spec;
    if (!spec->part)
        MOX_TRY(mox_quantize_plain_dtype(l->layer, spec, &own->dtype, error));
    rest->copied[rest->n_specs] = NULL;
    rest->layers[rest->n_specs++] = l->layer->info.layer;
    rest->bytes += mox_quantize_tensor_bytes(own);
    return MOXIE_OK;
}

static moxie_status list_layer(mox_quantize_rest *rest, const moxie_model_layer *layer, moxie_error *error)
{
    const moxie_layer_config *config = &layer->config;
    const mox_hf_quant *bf16 = mox_hf_quant_by_id("bf16");
    const mox_hf_quant *shared = mox_hf_quant_by_id(mox_dtype_name(mox_quantize_shared_dtype(config)));
    listing l = { .rest = rest, .layer = layer };
    mox_family family;
    mox_dims dims;
    MOX_TRY(mox_quantize_target_layer(rest->target, rest->model, layer->info.layer, &family, &dims, error));
    dims.experts = layer->weights.n_experts;
    dims.shared_intermediate = config->shared.intermediate;
    family.router_bias_always = config->router_has_bias != 0;
    family.correction_unwritten = false;
    if (!config->routing.bias)
        family.names.correction_bias = NULL;
    return mox_enumerate_layer(&family, &dims, bf16, shared, layer->info.layer, add_spec, &l, error);
}

/* ---- tensors outside the MoE layers ------------------------------------------------------------------ */

static int64_t rows_of(const mox_file_tensor *t)
{
    return t->view.rank > 1 ? t->view.shape[0] : 1;
}

static void read_row(const mox_file_tensor *t, int64_t r, float *out)
{
    const int64_t cols = t->view.shape[t->view.rank - 1];
    const mox_block *block = mox_block_of(t->view.dtype);
    const uint8_t *from = (const uint8_t *)t->view.data + (uint64_t)r * mox_block_row_bytes(t->view.dtype, cols);
    if (block)
        mox_block_decode_run(block, from, 0, cols, out);
    else
        mox_widen(t->view.dtype, from, out, cols);
}

/* llama.cpp's conversion makes vectors f32: bf16 where that holds them, as in the model's own release. */
static moxie_dtype dtype_of(const mox_file_tensor *t)
{
    const mox_format *bf16 = mox_format_of(MOXIE_BF16);
    if (t->view.rank > 1 || t->view.dtype != MOXIE_F32)
        return mox_is_block(t->view.dtype) ? MOXIE_BF16 : t->view.dtype;
    for (int64_t i = 0; i < t->view.shape[0]; i++) {
        const float value = mox_load(MOXIE_F32, (const char *)t->view.data + 4 * i);
        if (!(bf16->decode(bf16->encode(value)) == value))
            return MOXIE_F32;
    }
    return MOXIE_BF16;
}

static moxie_status list_others(mox_quantize_rest *rest, const uint8_t *owned, moxie_error *error)
{
    const mox_tensor_set *set = rest->model->set;
    for (int64_t i = 0; i < mox_tensor_set_count(set); i++) {
        const mox_file_tensor *t = mox_tensor_set_at(set, i);
        mox_tensor_spec spec = { .rank = t->view.rank, .kind = MOX_TENSOR_OTHER, .expert = -1 };
        if (owned[i])
            continue;
        if (t->view.rank < 1 || t->view.rank > 2 ||
            !mox_gguf_rename(rest->model->model_type, false, t->name, spec.name, sizeof spec.name)) {
            rest->left_out++;
            continue;
        }
        MOX_TRY(mox_file_tensor_check(set, t, error));
        MOX_TRY(grow(rest, error));
        memcpy(spec.shape, t->view.shape, sizeof spec.shape);
        spec.dtype = dtype_of(t);
        rest->copied[rest->n_specs] = t;
        rest->layers[rest->n_specs] = -1;
        rest->specs[rest->n_specs++] = spec;
        rest->bytes += mox_quantize_tensor_bytes(&spec);
    }
    return MOXIE_OK;
}

static moxie_status list_all(mox_quantize_rest *rest, uint8_t *owned, moxie_error *error)
{
    const moxie_model *model = rest->model;
    for (int64_t i = 0; i < model->n_places; i++) {
        moxie_model_layer *layer = NULL;
        MOX_TRY(mox_model_load_layer(model, model->places[i].layer, &layer, error));
        const moxie_status status = list_layer(rest, layer, error);
        for (int64_t t = 0; t < mox_tensor_set_count(model->set); t++)
            owned[t] |= layer->read[t];
        mox_model_layer_free(layer);
        MOX_TRY(status);
    }
    return list_others(rest, owned, error);
}

moxie_status mox_quantize_rest_open_gguf(const moxie_model *model, const mox_quantize_target *target,
                                         mox_quantize_rest *out, moxie_error *error)
{
    *out = (mox_quantize_rest) { .model = model, .target = target, .n_shards = 1 };
    out->shard_bytes = mox_arena_calloc(&out->arena, 1, sizeof *out->shard_bytes);
    uint8_t *owned = mox_arena_calloc(&out->arena, (uint64_t)mox_tensor_set_count(model->set), 1);
    MOX_FAIL_IF(!out->shard_bytes || !owned, MOXIE_ERR_MEMORY, error, "no memory for a list of files");
    MOX_TRY(list_all(out, owned, error));
    out->shard_bytes[0] = out->bytes;
    return MOXIE_OK;
}

/* ---- bytes ------------------------------------------------------------------------------------------- */

static moxie_status put_copied(const mox_quantize_rest *rest, int64_t i, mox_sealed_writer *writer, moxie_error *error)
{
    const mox_tensor_spec *spec = &rest->specs[i];
    const mox_file_tensor *t = rest->copied[i];
    const int64_t cols = spec->shape[spec->rank - 1];
    const uint64_t row_bytes = mox_block_row_bytes(spec->dtype, cols);
    if (spec->dtype == t->view.dtype)
        return mox_sealed_writer_put(writer, i, 0, t->view.data, error);
    float *row = mox_calloc((uint64_t)cols, sizeof *row);
    uint8_t *bytes = mox_calloc(1, row_bytes);
    moxie_status status =
        row && bytes ? MOXIE_OK : mox_fail(MOXIE_ERR_MEMORY, error, "no memory for a row of %s", spec->name);
    for (int64_t r = 0; status == MOXIE_OK && r < rows_of(t); r++) {
        read_row(t, r, row);
        mox_narrow(spec->dtype, row, bytes, cols);
        status = mox_sealed_writer_put(writer, i, r, bytes, error);
    }
    mox_free(row);
    mox_free(bytes);
    return status;
}

static moxie_status put_tensors(const mox_quantize_rest *rest, mox_sealed_writer *writer, moxie_error *error)
{
    moxie_model_layer *layer = NULL;
    moxie_status status = MOXIE_OK;
    for (int64_t i = 0; i < rest->n_specs && status == MOXIE_OK; i++) {
        if (rest->copied[i]) {
            status = put_copied(rest, i, writer, error);
            continue;
        }
        if (!layer || layer->info.layer != rest->layers[i]) {
            mox_model_layer_free(layer);
            layer = NULL;
            status = mox_model_load_layer(rest->model, rest->layers[i], &layer, error);
        }
        if (status == MOXIE_OK)
            status = mox_quantize_plain_write(layer, &rest->specs[i], i, writer, error);
    }
    mox_model_layer_free(layer);
    return status;
}

moxie_status mox_quantize_rest_write_gguf(const mox_quantize_rest *rest, const char *path, moxie_error *error)
{
    static const char *const metadata[] = { "format", "pt" };
    mox_sealed_writer *writer = NULL;
    moxie_sealed_tensor *tensors = mox_calloc((uint64_t)rest->n_specs, sizeof *tensors);
    MOX_FAIL_IF(!tensors, MOXIE_ERR_MEMORY, error, "no memory for a list of %lld tensors", (long long)rest->n_specs);
    for (int64_t i = 0; i < rest->n_specs; i++) {
        const mox_tensor_spec *spec = &rest->specs[i];
        const mox_file_tensor *t = rest->copied[i];
        const int64_t pieces = t && t->view.dtype != spec->dtype ? rows_of(t) : 1; /* a row at a time */
        tensors[i] =
            (moxie_sealed_tensor) { .name = spec->name, .dtype = spec->dtype, .rank = spec->rank, .pieces = pieces };
        memcpy(tensors[i].shape, spec->shape, sizeof tensors[i].shape);
    }
    moxie_status status = mox_sealed_writer_open(path, tensors, rest->n_specs, metadata, 1, &writer, error);
    mox_free(tensors);
    if (status == MOXIE_OK)
        status = put_tensors(rest, writer, error);
    if (status == MOXIE_OK)
        return mox_sealed_writer_finish(writer, error);
    mox_sealed_writer_abandon(writer);
    return status;
}
