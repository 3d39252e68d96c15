/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_rest.c - the tensors that are copied (quantize_rest.h): all but the matrices of routed experts. Their biases
 * are copied, too.
 */
#include "ckpt/quantize/quantize_rest.h"

#include <string.h>

#include "ckpt/formats/hf_quant_config.h"
#include "ckpt/model/model.h"
#include "ckpt/safetensors/seal.h"

static bool ends(const char *name, const char *tail)
{
    const size_t length = strlen(name), end = strlen(tail);
    return length >= end && strcmp(name + length - end, tail) == 0;
}

static int mark(void *user, const char *name, const moxie_tensor *tensor)
{
    (void)tensor;
    mox_quantize_rest *rest = user;
    const mox_file_tensor *found = mox_tensor_set_find(rest->model->set, name);
    if (found && !ends(name, "bias"))
        rest->replaced[found - mox_tensor_set_at(rest->model->set, 0)] = true;
    return 0;
}

/* The codes of a matrix that is copied. */
static bool is_quantized(const mox_file_tensor *t)
{
    return ends(t->name, ".qweight") || ends(t->name, ".weight_packed") ||
           (ends(t->name, ".weight") && t->view.rank == 2 && mox_dtype_bits(t->view.dtype) < 16);
}

/* Whether the source's and the format's configuration say the same of modules that are no experts. Of method w4afp8
 * they are FP8 in blocks of 128x128. */
static bool says_the_same(const json_t *before, const json_t *after)
{
    static const char *const keys[] = { "quant_method", "weight_block_size", "scale_fmt", "activation_scheme" };
    static const char *const blocks = "[128,128]";
    if (strcmp(mox_quant_config_method(before), "fp8") != 0)
        return false;
    if (strcmp(mox_quant_config_method(after), "w4afp8") == 0) {
        json_t *size = json_loads(blocks, 0, NULL);
        const bool same = size && json_equal(json_object_get(before, "weight_block_size"), size);
        json_decref(size);
        return same;
    }
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        json_t *a = json_object_get(before, keys[i]), *b = json_object_get(after, keys[i]);
        if (a != b && !json_equal(a, b))
            return false;
    }
    return true;
}

static moxie_status forget_described(const moxie_model *model, const mox_hf_quant *format, mox_quantize_rest *rest,
                                     moxie_error *error)
{
    if (rest->quantized == 0 || !format->write_config)
        return MOXIE_OK;
    json_t *after = format->write_config(format, NULL, 0);
    MOX_FAIL_IF(!after, MOXIE_ERR_MEMORY, error, "no memory for a quantization_config");
    if (says_the_same(model->quant_config, after)) {
        rest->quantized = 0;
        rest->first_quantized = NULL;
    }
    json_decref(after);
    return MOXIE_OK;
}

moxie_status mox_quantize_rest_open(const moxie_model *model, const mox_quantize_target *target,
                                    const mox_hf_quant *format, mox_quantize_rest *out, moxie_error *error)
{
    if (model->gguf)
        return mox_quantize_rest_open_gguf(model, target, out, error);
    const int64_t count = mox_tensor_set_count(model->set), files = mox_tensor_set_files(model->set);
    *out = (mox_quantize_rest) { .model = model, .target = target };
    out->replaced = mox_arena_calloc(&out->arena, (uint64_t)count + 1, sizeof *out->replaced);
    out->shards = mox_arena_calloc(&out->arena, (uint64_t)files + 1, sizeof *out->shards);
    out->shard_bytes = mox_arena_calloc(&out->arena, (uint64_t)files + 1, sizeof *out->shard_bytes);
    MOX_FAIL_IF(!out->replaced || !out->shards || !out->shard_bytes, MOXIE_ERR_MEMORY, error,
                "no memory for a list of %lld tensors", (long long)count);
    for (int64_t i = 0; i < model->n_places; i++)
        MOX_TRY(mox_model_visit_experts(model, model->places[i].layer, mark, out, error));
    for (int64_t i = 0; i < count; i++) {
        const mox_file_tensor *t = mox_tensor_set_at(model->set, i);
        if (out->replaced[i])
            continue;
        MOX_TRY(mox_file_tensor_check(model->set, t, error));
        if (out->n_shards == 0 || out->shards[out->n_shards - 1] != t->file)
            out->shards[out->n_shards++] = t->file;
        out->shard_bytes[out->n_shards - 1] += t->bytes;
        out->bytes += t->bytes;
        if (is_quantized(t) && out->quantized++ == 0)
            out->first_quantized = t->name;
    }
    return forget_described(model, format, out, error);
}

void mox_quantize_rest_close(mox_quantize_rest *rest)
{
    mox_arena_free(&rest->arena);
    mox_free(rest->specs);
    mox_free(rest->layers);
    mox_free(rest->copied);
    *rest = (mox_quantize_rest) { 0 };
}

/* ---- tensors ----------------------------------------------------------------------------------------- */

static moxie_status put_tensors(const mox_quantize_rest *rest, int64_t file, mox_sealed_writer *writer,
                                moxie_error *error)
{
    int64_t at = 0;
    for (int64_t i = 0; i < mox_tensor_set_count(rest->model->set); i++) {
        const mox_file_tensor *t = mox_tensor_set_at(rest->model->set, i);
        if (t->file != file || rest->replaced[i])
            continue;
        MOX_TRY(mox_sealed_writer_put(writer, at++, 0, t->view.data, error));
        mox_tensor_set_drop(rest->model->set, t->view.data, t->bytes);
    }
    return MOXIE_OK;
}

moxie_status mox_quantize_rest_write(const mox_quantize_rest *rest, int64_t i, const char *path, moxie_error *error)
{
    static const char *const metadata[] = { "format", "pt" };
    if (rest->model->gguf)
        return mox_quantize_rest_write_gguf(rest, path, error);
    const int64_t file = rest->shards[i], count = mox_tensor_set_count(rest->model->set);
    mox_sealed_writer *writer = NULL;
    int64_t n = 0;
    moxie_sealed_tensor *tensors = mox_calloc((uint64_t)count, sizeof *tensors);
    MOX_FAIL_IF(!tensors, MOXIE_ERR_MEMORY, error, "no memory for a list of %lld tensors", (long long)count);
    for (int64_t t = 0; t < count; t++) {
        const mox_file_tensor *from = mox_tensor_set_at(rest->model->set, t);
        if (from->file != file || rest->replaced[t])
            continue;
        tensors[n] = (moxie_sealed_tensor) {
            .name = from->name, .dtype = from->view.dtype, .rank = from->view.rank, .pieces = 1
        };
        memcpy(tensors[n++].shape, from->view.shape, sizeof tensors[0].shape);
    }
    moxie_status status = mox_sealed_writer_open(path, tensors, n, metadata, 1, &writer, error);
    mox_free(tensors);
    if (status == MOXIE_OK)
        status = put_tensors(rest, file, writer, error);
    if (status == MOXIE_OK)
        return mox_sealed_writer_finish(writer, error);
    mox_sealed_writer_abandon(writer);
    return status;
}

/* ---- config.json ------------------------------------------------------------------------------------- */

/* A module with a matrix that is not quantized, "NAME.weight" of two axes, is listed. */
static moxie_status ignore(mox_arena *arena, const char *name, int32_t rank, moxie_dtype dtype, const char **names,
                           int64_t *count, moxie_error *error)
{
    if (rank != 2 || !ends(name, ".weight") || mox_dtype_bits(dtype) < 16)
        return MOXIE_OK;
    const char *copy = mox_arena_strndup(arena, name, strlen(name) - sizeof ".weight" + 1);
    MOX_FAIL_IF(!copy, MOXIE_ERR_MEMORY, error, "no memory for a list of modules");
    names[(*count)++] = copy;
    return MOXIE_OK;
}

static moxie_status list_ignored(const mox_quantize_rest *rest, mox_arena *arena, const char ***out, int64_t *count,
                                 moxie_error *error)
{
    const mox_tensor_set *set = rest->model->set;
    const int64_t tensors = rest->model->gguf ? 0 : mox_tensor_set_count(set);
    *count = 0;
    *out = mox_arena_calloc(arena, (uint64_t)(tensors + rest->n_specs) + 1, sizeof **out);
    MOX_FAIL_IF(!*out, MOXIE_ERR_MEMORY, error, "no memory for a list of modules");
    for (int64_t i = 0; i < rest->n_specs; i++) {
        const mox_tensor_spec *spec = &rest->specs[i];
        MOX_TRY(ignore(arena, spec->name, spec->rank, spec->dtype, *out, count, error));
    }
    for (int64_t i = 0; i < tensors; i++) {
        const mox_file_tensor *t = mox_tensor_set_at(set, i);
        if (!rest->replaced[i])
            MOX_TRY(ignore(arena, t->name, t->view.rank, t->view.dtype, *out, count, error));
    }
    return MOXIE_OK;
}

/* The object of `config` that holds quantization_config or compression_config, which it removes; else `config`. */
static json_t *take_old(json_t *config)
{
    json_t *text = json_object_get(config, "text_config"), *at = config;
    json_t *const places[] = { text, config };
    for (int i = 0; i < 2; i++) {
        if (!json_is_object(places[i]))
            continue;
        at = json_object_get(places[i], "quantization_config") ? places[i] : at;
        json_object_del(places[i], "quantization_config");
        json_object_del(places[i], "compression_config");
    }
    return at;
}

moxie_status mox_quantize_rest_config(const mox_quantize_rest *rest, const mox_hf_quant *format, json_t **out,
                                      moxie_error *error)
{
    mox_arena arena = { 0 };
    const char **ignored = NULL;
    int64_t count = 0;
    json_t *config = json_deep_copy(rest->target->config), *quantization = NULL;
    moxie_status status = config ? list_ignored(rest, &arena, &ignored, &count, error)
                                 : mox_fail(MOXIE_ERR_MEMORY, error, "no memory for config.json");
    if (status == MOXIE_OK) {
        json_t *at = take_old(config);
        if (format->write_config)
            quantization = format->write_config(format, ignored, count);
        if (format->write_config && json_object_set_new(at, "quantization_config", quantization) != 0)
            status = mox_fail(MOXIE_ERR_MEMORY, error, "no memory for config.json");
    }
    mox_arena_free(&arena);
    if (status == MOXIE_OK)
        *out = config;
    else
        json_decref(config);
    return status;
}
