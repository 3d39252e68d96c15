/* SPDX-License-Identifier: Apache-2.0
 *
 * altered_checkpoint.h - a small synthetic checkpoint whose tensors and config.json a test changes: adds one, or leaves
 * one out.
 *
 *     synth -> DIR/model, its shards -> a list of tensors in memory (altered_add, altered_drop) -> moxie_model
 *              DIR/model/config.json   -> DIR/config/config.json (altered_config)
 */
#ifndef ALTERED_CHECKPOINT_H
#define ALTERED_CHECKPOINT_H

#include <sys/stat.h>

#include "test_support.h"

#include "ckpt/families/tables.h"
#include "ckpt/json.h"
#include "ckpt/model/model.h"
#include "ckpt/safetensors/tensors.h"
#include "ckpt/synth/synth.h"
#include "ckpt/synth/synth_model.h"

typedef struct altered {
    char *dir;
    char model[600], config_dir[600];
    mox_synth_model synth;
    int64_t layer;
    mox_tensor_set *set;
    moxie_named_tensor *tensors;
    int64_t count, dropped; /* dropped: -1, or a tensor that stays out */
    json_t *config;
} altered;

/* Writes one small layer of the preset. False when the preset cannot be written in this format. */
static inline bool altered_open(altered *a, const mox_preset *preset, const char *format)
{
    memset(a, 0, sizeof *a);
    moxie_synth_options options = MOXIE_SYNTH_OPTIONS_INIT;
    options.format = format;
    options.layers = 1;
    options.experts = preset->dims.n_group > 1 ? preset->dims.n_group * 4 : preset->dims.top_k;
    options.hidden = 256;
    options.intermediate = 128;
    moxie_error error = { 0 };
    a->dir = test_tmpdir();
    snprintf(a->model, sizeof a->model, "%s/model", a->dir);
    snprintf(a->config_dir, sizeof a->config_dir, "%s/config", a->dir);
    assert_ok(mox_synth_resolve(preset->name, &options, &a->synth, &error), &error);
    const moxie_status status = mox_synth_write(preset->name, a->model, &options, &mox_executor_serial, &error);
    if (status == MOXIE_ERR_UNSUPPORTED) {
        test_rmdir(a->dir);
        return false;
    }
    assert_ok(status, &error);
    a->layer = mox_preset_layer(preset, 0);
    a->dropped = -1;
    assert_ok(mox_tensor_set_open_dir(a->model, false, &a->set, &error), &error);
    a->tensors = calloc((size_t)mox_tensor_set_count(a->set) + 8, sizeof *a->tensors);
    for (int64_t i = 0; i < mox_tensor_set_count(a->set); i++) {
        const mox_file_tensor *t = mox_tensor_set_at(a->set, i);
        a->tensors[a->count++] = (moxie_named_tensor) { .name = t->name, .tensor = t->view };
    }
    char path[700];
    snprintf(path, sizeof path, "%s/config.json", a->model);
    assert_ok(mox_json_load(path, 1 << 20, true, &a->config, &error), &error);
    assert_int_equal(mkdir(a->config_dir, 0700), 0);
    return true;
}

static inline void altered_close(altered *a)
{
    mox_tensor_set_close(a->set);
    free(a->tensors);
    json_decref(a->config);
    test_rmdir(a->dir);
}

/* The object that holds the keys of the text model. */
static inline json_t *altered_section(json_t *config)
{
    json_t *text = json_object_get(config, "text_config");
    return text ? text : config;
}

static inline void altered_write_config(const altered *a, const json_t *config)
{
    char path[700];
    snprintf(path, sizeof path, "%s/config.json", a->config_dir);
    assert_int_equal(json_dump_file(config, path, 0), 0);
}

/* A tensor of one number; altered_remove_last() takes it away again. `name` must live as long. */
static inline void altered_add(altered *a, const char *name)
{
    static float one = 1;
    a->tensors[a->count++] =
        (moxie_named_tensor) { .name = name,
                               .tensor = { .data = &one, .dtype = MOXIE_F32, .rank = 1, .shape = { 1 } } };
}

static inline void altered_remove_last(altered *a)
{
    a->count--;
}

/* Opens the model with the config.json of `dir` and loads its layer. *loaded and *model are for altered_unload(). */
static inline moxie_status altered_load(const altered *a, const char *dir, bool allow_unread, moxie_model **model,
                                        moxie_model_layer **loaded, moxie_error *error)
{
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    moxie_named_tensor *left = calloc((size_t)a->count + 1, sizeof *left);
    int64_t count = 0;
    for (int64_t i = 0; i < a->count; i++)
        if (i != a->dropped)
            left[count++] = a->tensors[i];
    options.tensors = left;
    options.n_tensors = count;
    options.allow_unread = allow_unread;
    *model = NULL;
    *loaded = NULL;
    moxie_status status = mox_model_open(dir, &options, model, error);
    if (status == MOXIE_OK)
        status = mox_model_load_layer(*model, a->layer, loaded, error);
    free(left);
    return status;
}

static inline void altered_unload(moxie_model *model, moxie_model_layer *loaded)
{
    mox_model_layer_free(loaded);
    mox_model_close(model);
}

/* Calls `check` with presets such that it meets each family, and each format that a preset's model is released in. */
static inline void altered_each(void (*check)(const mox_preset *preset, const char *format))
{
    test_names met = { .count = 0 };
    for (int32_t p = 0; mox_preset_at(p); p++) {
        const mox_preset *preset = mox_preset_at(p);
        const bool new_family = test_name_is_new(&met, preset->family);
        for (int f = 0; f < preset->n_native; f++)
            if (test_name_is_new(&met, preset->formats[f]) || (new_family && f == 0))
                check(preset, preset->formats[f]);
    }
}

#endif
