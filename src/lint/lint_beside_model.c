/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_beside_model.c - an adapter's layers beside those of its model: each is read as a run reads it, and its factors
 * are compared with the layer's sizes (lint_adapter.h).
 *
 *     A of gate and up [E, r, H], B [E, I, r]        A of down [E, r, I], B [E, H, r]
 */
#include "ckpt/model/model.h"
#include "lint/lint_adapter.h"

typedef struct layer_check {
    const mox_lint_adapter *adapter;
    const moxie_layer_config *config;
    int64_t layer;
} layer_check;

static void report(const layer_check *l, const char *text)
{
    mox_lint_report(l->adapter->lint->report, MOX_LINT_ADAPTER_MODEL,
                    (mox_lint_where) { l->layer, l->adapter->lint->dir, NULL }, "%s", text);
}

static void compare(const layer_check *l, const char *name, const moxie_tensor *a, const moxie_tensor *b, int64_t in,
                    int64_t out)
{
    char text[256];
    const int64_t experts = l->config->experts;
    if (a->data == NULL)
        return;
    if (a->shape[2] == in && b->shape[1] == out && a->shape[0] == experts && b->shape[0] == experts &&
        a->shape[1] == b->shape[2])
        return;
    snprintf(
        text, sizeof text,
        "%s: A is [%lld, %lld, %lld] and B [%lld, %lld, %lld]; the model has %lld experts of %lld columns and %lld "
        "rows",
        name, (long long)a->shape[0], (long long)a->shape[1], (long long)a->shape[2], (long long)b->shape[0],
        (long long)b->shape[1], (long long)b->shape[2], (long long)experts, (long long)in, (long long)out);
    report(l, text);
}

static void check_layer(const layer_check *l, moxie_adapter_files *files, bool alternate)
{
    const moxie_layer_config *c = l->config;
    moxie_lora lora = MOXIE_LORA_INIT;
    moxie_error error = { 0 };
    if (mox_adapter_files_load(files, c, alternate, l->layer, &lora, &error) != MOXIE_OK) {
        report(l, error.text);
        return;
    }
    compare(l, "gate", &lora.gate_a, &lora.gate_b, c->hidden, c->intermediate);
    compare(l, "up", &lora.up_a, &lora.up_b, c->hidden, c->intermediate);
    compare(l, "down", &lora.down_a, &lora.down_b, c->intermediate, c->hidden);
}

/* Layers of the adapter that the model's experts do not have. */
static void check_absent(const mox_lint_adapter *a, const moxie_model *model)
{
    for (int64_t i = 0; i < a->lint->n_tensors; i++) {
        const char *name = a->lint->tensors[i].name;
        const int64_t layer = mox_lint_layer_of(name);
        bool found = false;
        for (int64_t p = 0; p < model->n_places; p++)
            found = found || model->places[p].layer == layer;
        if (a->lint->read[i] && !found)
            mox_lint_report(a->lint->report, MOX_LINT_ADAPTER_MODEL,
                            (mox_lint_where) { layer, a->lint->shards[a->lint->files[i]].path, name },
                            "the model has no experts in layer %lld", (long long)layer);
    }
}

static bool has_factors(const mox_lint_adapter *a, int64_t layer)
{
    for (int64_t i = 0; i < a->lint->n_tensors; i++)
        if (a->lint->read[i] && mox_lint_layer_of(a->lint->tensors[i].name) == layer)
            return true;
    return false;
}

/* A layer with an error of its own would only be refused for the same reason. */
static moxie_status check_layers(const mox_lint_adapter *a, const moxie_model *model, moxie_adapter_files *files,
                                 moxie_error *error)
{
    for (int64_t p = 0; p < model->n_places; p++) {
        moxie_model_layer *loaded = NULL;
        layer_check l = { .adapter = a, .layer = model->places[p].layer };
        if (!has_factors(a, l.layer) || mox_lint_errors_in(a->lint->report, l.layer) > 0)
            continue;
        MOX_TRY(mox_model_load_layer(model, l.layer, &loaded, error));
        l.config = mox_model_layer_config(loaded);
        check_layer(&l, files, model->family->interleaved);
        mox_model_layer_free(loaded);
        a->lint->report->info.n_layers++;
    }
    return MOXIE_OK;
}

moxie_status mox_lint_beside_model(const mox_lint_adapter *a, moxie_error *error)
{
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    moxie_adapter_files *files = NULL;
    moxie_model *model = NULL;
    options.allow_unread = 1;
    MOX_TRY(mox_model_open(a->lint->options->model, &options, &model, error));
    check_absent(a, model);
    moxie_status status = MOXIE_OK;
    moxie_error broken = { 0 };
    if (a->readable && mox_adapter_files_open(a->lint->dir, &files, &broken) == MOXIE_OK)
        status = check_layers(a, model, files, error);
    mox_adapter_files_close(files);
    mox_model_close(model);
    return status;
}
