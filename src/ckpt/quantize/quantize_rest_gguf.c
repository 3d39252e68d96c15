/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_rest_gguf.c - what a quantized directory takes over from a GGUF file (quantize_rest.h), under the names of
 * the family that it is written for:
 *
 *     layer: router, biases, shared expert -> floats (quantize_plain.c)
 *
 * All of it is one shard.
 */
#include "ckpt/quantize/quantize_rest.h"

#include <string.h>

#include "ckpt/model/model.h"
#include "ckpt/quantize/quantize_layer.h"
#include "ckpt/quantize/quantize_plain.h"

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
    MOX_FAIL_IF(!specs || !layers, MOXIE_ERR_MEMORY, error, "no memory for a list of %lld tensors", (long long)room);
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

moxie_status mox_quantize_rest_open_gguf(const moxie_model *model, const mox_quantize_target *target,
                                         mox_quantize_rest *out, moxie_error *error)
{
    *out = (mox_quantize_rest) { .model = model, .target = target, .n_shards = 1 };
    out->shard_bytes = mox_arena_calloc(&out->arena, 1, sizeof *out->shard_bytes);
    MOX_FAIL_IF(!out->shard_bytes, MOXIE_ERR_MEMORY, error, "no memory for a list of files");
    for (int64_t i = 0; i < model->n_places; i++) {
        moxie_model_layer *layer = NULL;
        MOX_TRY(mox_model_load_layer(model, model->places[i].layer, &layer, error));
        const moxie_status status = list_layer(out, layer, error);
        mox_model_layer_free(layer);
        MOX_TRY(status);
    }
    out->shard_bytes[0] = out->bytes;
    return MOXIE_OK;
}

/* ---- bytes ------------------------------------------------------------------------------------------- */

static moxie_status put_tensors(const mox_quantize_rest *rest, mox_sealed_writer *writer, moxie_error *error)
{
    moxie_model_layer *layer = NULL;
    moxie_status status = MOXIE_OK;
    for (int64_t i = 0; i < rest->n_specs && status == MOXIE_OK; i++) {
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
        tensors[i] =
            (moxie_sealed_tensor) { .name = spec->name, .dtype = spec->dtype, .rank = spec->rank, .pieces = 1 };
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
