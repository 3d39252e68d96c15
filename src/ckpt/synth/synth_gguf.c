/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_gguf.c - writes a synthetic checkpoint as one GGUF file (synth_gguf.h):
 *
 *     resolve -> target: architecture, metadata -> tensors of all layers -> file, tensor after tensor
 */
#include "ckpt/synth/synth_gguf.h"

#include <string.h>
#include <sys/stat.h>

#include "ckpt/families/family_config.h"
#include "ckpt/gguf/gguf_writer.h"
#include "ckpt/synth/synth_config.h"
#include "ckpt/synth/synth_tensor.h"

typedef struct writing {
    const mox_synth_model *model;
    const moxie_synth_options *options;
    mox_gguf_target target;
    mox_gguf_pairs pairs;
    mox_gguf_writer *writer;
    mox_tensor_spec *specs;
    int64_t *layers;
    int64_t count, room, layer, at; /* at: the tensor that is written */
    uint64_t offset, done_bytes, total_bytes;
} writing;

/* ---- the target -------------------------------------------------------------------------------------- */

static bool has_correction(const mox_synth_model *m)
{
    return m->family->names.correction_bias && !m->family->correction_unwritten;
}

/* What the layer of a directory of this preset computes; `json`: its config.json, which can have limits for layers. */
static moxie_status layer_config(const mox_synth_model *m, const json_t *json, int64_t layer, moxie_layer_config *out,
                                 moxie_error *error)
{
    moxie_layer_config read = MOXIE_LAYER_CONFIG_INIT;
    mox_dims ignored;
    MOX_TRY(mox_family_layer_config(m->family, &m->dims, m->routed, m->shared, layer, out, error));
    MOX_TRY(mox_config_layer(m->family, json, "config.json", layer, &ignored, &read, error));
    out->activation = read.activation;
    out->has_shared_activation = read.has_shared_activation;
    out->shared_activation = read.shared_activation;
    return MOXIE_OK;
}

static moxie_status check_layers(const mox_synth_model *m, const json_t *json, mox_gguf_target *out, moxie_error *error)
{
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    MOX_TRY(layer_config(m, json, mox_preset_layer(m->preset, 0), &config, error));
    MOX_TRY(mox_gguf_target_open(m->family, m->preset->model_type, &m->dims, &config, has_correction(m), m->recipe, out,
                                 error));
    for (int64_t i = 0; i < m->layers; i++) {
        const int64_t layer = mox_preset_layer(m->preset, i);
        MOX_TRY(layer_config(m, json, layer, &config, error));
        MOX_TRY(mox_gguf_target_check(out, layer, &config, error));
    }
    return MOXIE_OK;
}

moxie_status mox_synth_gguf_target(const mox_synth_model *m, mox_gguf_target *out, moxie_error *error)
{
    json_t *json = NULL;
    *out = (mox_gguf_target) { .recipe = NULL };
    MOX_TRY(mox_synth_config(m, &json, error));
    const moxie_status status = check_layers(m, json, out, error);
    json_decref(json);
    return status;
}

/* ---- tensors ----------------------------------------------------------------------------------------- */

static moxie_status add_tensor(void *user, const mox_tensor_spec *spec, moxie_error *error)
{
    writing *w = user;
    if (w->count == w->room) {
        const int64_t room = w->room > 0 ? 2 * w->room : 64;
        mox_tensor_spec *specs = mox_realloc(w->specs, (uint64_t)room * sizeof *specs);
        w->specs = specs ? specs : w->specs;
        int64_t *layers = mox_realloc(w->layers, (uint64_t)room * sizeof *layers);
        w->layers = layers ? layers : w->layers;
        MOX_FAIL_IF(!specs || !layers, MOXIE_ERR_MEMORY, error, "no memory for %lld tensors", (long long)room);
        w->room = room;
    }
    w->specs[w->count] = *spec;
    w->layers[w->count++] = w->layer;
    return MOXIE_OK;
}

static moxie_status list_tensors(writing *w, moxie_error *error)
{
    for (int64_t i = 0; i < w->model->layers; i++) {
        w->layer = mox_preset_layer(w->model->preset, i);
        MOX_TRY(mox_gguf_target_list(&w->target, w->layer, MOXIE_BF16, add_tensor, w, error));
    }
    return MOXIE_OK;
}

static moxie_status open_file(writing *w, const char *path, moxie_error *error)
{
    mox_gguf_pairs_add_all(&w->pairs, w->target.metadata);
    mox_tensor_decl *decls = mox_calloc((uint64_t)w->count, sizeof *decls);
    MOX_FAIL_IF(!decls, MOXIE_ERR_MEMORY, error, "no memory for %lld tensors", (long long)w->count);
    for (int64_t i = 0; i < w->count; i++) {
        const mox_tensor_spec *spec = &w->specs[i];
        decls[i] = (mox_tensor_decl) { .name = spec->name, .dtype = spec->dtype, .rank = spec->rank };
        memcpy(decls[i].shape, spec->shape, sizeof decls[i].shape);
        w->total_bytes += mox_gguf_tensor_bytes(&decls[i]);
    }
    const moxie_status status = mox_gguf_writer_open(path, &w->pairs, decls, w->count, &w->writer, error);
    mox_free(decls);
    return status;
}

static moxie_status put_bytes(void *user, const void *data, uint64_t bytes, moxie_error *error)
{
    writing *w = user;
    MOX_TRY(mox_gguf_writer_put(w->writer, w->at, w->offset, data, bytes, error));
    w->offset += bytes;
    w->done_bytes += bytes;
    if (w->options->progress && w->options->progress(w->options->progress_user, w->done_bytes, w->total_bytes) != 0)
        return mox_fail(MOXIE_ERR_TIMEOUT, error, "cancelled after %llu of %llu bytes; nothing was left behind",
                        (unsigned long long)w->done_bytes, (unsigned long long)w->total_bytes);
    return MOXIE_OK;
}

static moxie_status fill_file(writing *w, mox_synth_filler *filler, moxie_error *error)
{
    for (w->at = 0; w->at < w->count; w->at++) {
        w->offset = 0;
        MOX_TRY(mox_synth_fill(filler, w->layers[w->at], &w->specs[w->at], put_bytes, w, error));
    }
    mox_gguf_writer *writer = w->writer;
    w->writer = NULL;
    return mox_gguf_writer_finish(writer, error);
}

moxie_status mox_synth_gguf_write(const mox_synth_model *model, const char *path, const moxie_synth_options *options,
                                  const moxie_executor *executor, moxie_error *error)
{
    writing w = { .model = model, .options = options };
    mox_synth_filler *filler = NULL;
    struct stat info;
    if (stat(path, &info) == 0)
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1, "it exists already; name a new file, or remove this one");
    moxie_status status = mox_synth_gguf_target(model, &w.target, error);
    if (status == MOXIE_OK)
        status = list_tensors(&w, error);
    if (status == MOXIE_OK)
        status = mox_synth_filler_create(model, executor, &filler, error);
    if (status == MOXIE_OK)
        status = open_file(&w, path, error);
    if (status == MOXIE_OK)
        status = fill_file(&w, filler, error);
    mox_gguf_writer_abandon(w.writer);
    mox_synth_filler_destroy(filler);
    mox_gguf_pairs_free(&w.pairs);
    mox_gguf_target_close(&w.target);
    mox_free(w.specs);
    mox_free(w.layers);
    return status;
}
