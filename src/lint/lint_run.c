/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_run.c - one run: files, configuration, then layer by layer.
 */
#include "lint/lint.h"

#include <string.h>

#include "ckpt/no_model.h"
#include "lint/lint_adapter.h"
#include "lint/lint_layer.h"

/* A GGUF file is opened twice. */
static bool is_same(const mox_lint *lint, moxie_error *error)
{
    const mox_tensor_set *set = lint->model->set;
    bool same = mox_tensor_set_count(set) == lint->n_tensors;
    for (int64_t i = 0; same && i < lint->n_tensors; i++)
        same = strcmp(mox_tensor_set_at(set, i)->name, lint->tensors[i].name) == 0;
    if (!same)
        mox_fail_file(MOXIE_ERR_IO, error, lint->dir, -1, "its tensors changed while it was read: try again");
    return same;
}

/* Opens the model on the tensors of the files that could be opened. */
static bool open_model(mox_lint *lint)
{
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    moxie_error error = { 0 };
    if (!lint->gguf) { /* a GGUF file's tensors are numbered alike when it is opened again */
        options.tensors = lint->tensors;
        options.n_tensors = lint->n_tensors;
    }
    options.allow_unread = 1; /* they are listed, not refused */
    const bool lone = !lint->gguf && lint->n_shards == 0 && mox_lint_has_file(lint->dir, "config.json");
    const moxie_status status =
        lone ? mox_no_tensors(lint->dir, &error) : mox_model_open(lint->dir, &options, &lint->model, &error);
    if (status == MOXIE_OK && is_same(lint, &error))
        return true;
    mox_model_close(lint->model);
    lint->model = NULL;
    mox_lint_unreadable(lint->report, MOX_LINT_MODEL_REFUSED, &error);
    return false;
}

static moxie_status check_layer(mox_lint *lint, const mox_layer_place *place, moxie_error *error)
{
    mox_lint_layer layer;
    moxie_status status = MOXIE_OK;
    if (!mox_lint_layer_open(lint, place, &layer)) {
        mox_lint_layer_close(&layer);
        return MOXIE_OK;
    }
    mox_lint_tensors(&layer);
    mox_lint_groups(&layer);
    mox_lint_inputs_present(&layer);
    mox_lint_quantized(&layer);
    if (mox_lint_still_there(lint)) {
        if (lint->options->deep)
            status = mox_lint_numbers(&layer, error);
        if (status == MOXIE_OK)
            mox_lint_load(&layer);
    }
    mox_lint_layer_close(&layer);
    lint->report->info.n_layers++;
    return status;
}

/* Layers that were asked for and do not exist are no clean bill. */
static moxie_status check_wanted(const mox_lint *lint, moxie_error *error)
{
    const moxie_model *model = lint->model;
    for (int64_t i = 0; i < model->n_places; i++)
        if (mox_lint_wants(lint, model->places[i].layer))
            return MOXIE_OK;
    return mox_fail_file(MOXIE_ERR_ARGUMENT, error, lint->dir, -1,
                         "layers %lld to %lld were asked for, and its mixture-of-experts layers are %lld to %lld",
                         (long long)lint->options->first_layer, (long long)lint->options->last_layer,
                         (long long)model->places[0].layer, (long long)model->places[model->n_places - 1].layer);
}

static moxie_status check_layers(mox_lint *lint, moxie_error *error)
{
    const moxie_model *model = lint->model;
    const moxie_lint_options *o = lint->options;
    if (model->n_places > 0)
        MOX_TRY(check_wanted(lint, error));
    for (int64_t i = 0; i < model->n_places; i++) {
        if (mox_lint_wants(lint, model->places[i].layer))
            MOX_TRY(check_layer(lint, &model->places[i], error));
        MOX_FAIL_IF(!o->deep && o->progress && o->progress(o->progress_user, i + 1, model->n_places) != 0,
                    MOXIE_ERR_TIMEOUT, error, "the caller stopped after layer %lld", (long long)model->places[i].layer);
    }
    return MOXIE_OK;
}

static moxie_status check_all(mox_lint *lint, moxie_error *error)
{
    if (mox_lint_is_adapter(lint->dir))
        return mox_lint_check_adapter(lint, error);
    MOX_FAIL_IF(
        lint->options->model != NULL, MOXIE_ERR_ARGUMENT, error,
        "a model (options.model, --model) is for checking an adapter, but %s is none: it has a config.json, or no "
        "adapter_config.json; leave the model out",
        lint->dir);
    MOX_TRY(mox_lint_files(lint, error));
    if (!lint->gguf)
        mox_lint_json(lint);
    if (lint->report->no_memory || !open_model(lint))
        return MOXIE_OK;
    lint->report->info.family = lint->model->family->id;
    mox_lint_config(lint);
    return check_layers(lint, error);
}

/* The rule's number; -1 for NULL. */
static moxie_status find_rule(const char *name, int32_t *out, moxie_error *error)
{
    char escaped[80];
    *out = -1;
    if (!name)
        return MOXIE_OK;
    for (int32_t i = 0; mox_lint_rule_at(i); i++)
        if (strcmp(mox_lint_rule_at(i)->name, name) == 0) {
            *out = i;
            return MOXIE_OK;
        }
    return mox_fail(MOXIE_ERR_ARGUMENT, error, "there is no rule \"%s\": moxie_lint_rule_at() lists them",
                    mox_escape(escaped, sizeof escaped, name));
}

moxie_status mox_lint_run(const char *dir, const moxie_lint_options *options, moxie_lint **out, moxie_error *error)
{
    int32_t only;
    MOX_TRY(find_rule(options->only, &only, error));
    moxie_lint *report = mox_alloc(sizeof *report);
    MOX_FAIL_IF(!report, MOXIE_ERR_MEMORY, error, "no memory for a report");
    report->only = only;
    report->info = (moxie_lint_info) { .family = "", .input_text = "", .deep = options->deep != 0 };
    mox_lint lint = { .dir = dir, .options = options, .report = report };
    moxie_status status = check_all(&lint, error);
    mox_lint_close(&lint);
    if (status == MOXIE_OK && report->no_memory)
        status = mox_fail(MOXIE_ERR_MEMORY, error, "no memory to check %s", dir);
    if (status != MOXIE_OK) {
        mox_lint_free(report);
        return status;
    }
    mox_lint_report_finish(report);
    *out = report;
    return MOXIE_OK;
}
