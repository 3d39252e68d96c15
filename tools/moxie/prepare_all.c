/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_all.c - every layer of the options, and the directory around them.
 *
 *     plan all layers -> OUT.partial: manifest, configurations -> a sealed file for each layer -> index -> OUT
 *
 * A layer that cannot be prepared is rejected before anything is written. The next run of an interrupted command keeps
 * layers whose files are whole, made in the same way and of the same tensors.
 */
#include "prepare.h"

#include <stdlib.h>

/* Lists the model's MoE layers within the range and plans each once, so that a rejection comes before any work. */
static moxie_status plan_layers(const prepare_options *options, const moxie_model *model, prepare_how *how,
                                moxie_error *error)
{
    moxie_model_info info = MOXIE_MODEL_INFO_INIT;
    moxie_model_get_info(model, &info, NULL);
    int64_t first = -1, last = -1;
    how->layers = calloc((size_t)info.n_layers + 1, sizeof *how->layers);
    moxie_status status = how->layers ? MOXIE_OK : cli_error(MOXIE_ERR_MEMORY, error, "", "no memory");
    for (int64_t i = 0; status == MOXIE_OK && i < info.n_layers; i++) {
        moxie_model_layer_info layer = MOXIE_MODEL_LAYER_INFO_INIT;
        status = moxie_model_describe_layer(model, i, &layer, error);
        if (status != MOXIE_OK)
            break;
        first = first < 0 ? layer.layer : first;
        last = layer.layer;
        if (options->first_layer < 0 || (layer.layer >= options->first_layer && layer.layer <= options->last_layer))
            how->layers[how->n_layers++] = layer.layer;
    }
    if (status == MOXIE_OK && (how->n_layers == 0 || (options->last_layer >= 0 && options->last_layer > last)))
        status = cli_error(MOXIE_ERR_ARGUMENT, error, options->dir,
                           "--layers %lld-%lld: its mixture-of-experts layers are %lld to %lld",
                           (long long)options->first_layer, (long long)options->last_layer, (long long)first,
                           (long long)last);
    for (int64_t i = 0; status == MOXIE_OK && i < how->n_layers; i++) {
        moxie_model_layer *loaded = NULL;
        moxie_preparation *preparation = NULL;
        status = moxie_model_load_layer(model, how->layers[i], &loaded, error);
        if (status == MOXIE_OK && !prepare_expert_target(how->layout))
            status = prepare_plan(how, loaded, &preparation, error);
        moxie_preparation_destroy(preparation);
        moxie_model_layer_free(loaded);
    }
    return status;
}

static moxie_status make_layers(const prepare_options *options, const prepare_how *how, const moxie_model *model,
                                prepare_partial *partial, const moxie_executor *executor, cli_progress *progress,
                                prepare_report *report, moxie_error *error)
{
    prepare_options with = *options;
    with.how = *how;
    moxie_status status = MOXIE_OK;
    const bool experts = prepare_expert_target(how->layout) != NULL;
    for (int64_t i = 0; status == MOXIE_OK && i < how->n_layers; i++) {
        char what[32];
        snprintf(what, sizeof what, "layer %lld", (long long)how->layers[i]);
        progress->what = what;
        status = (experts ? prepare_experts : prepare_layer)(&with, model, how->layers[i], partial->path, executor,
                                                             progress, report, error);
        if (status == MOXIE_OK)
            prepare_partial_keep(partial);
    }
    progress->what = "prepare";
    return status;
}

moxie_status prepare_all(const prepare_options *options, const moxie_executor *executor, cli_progress *progress,
                         prepare_report *report, moxie_error *error)
{
    prepare_partial partial = { .fd = -1 };
    moxie_model *model = NULL;
    moxie_model_options model_options = MOXIE_MODEL_OPTIONS_INIT;
    prepare_how how = options->how;
    const bool experts = prepare_expert_target(options->how.layout) != NULL;
    model_options.experts_only = !experts; /* an expert file has router and shared expert, too */
    model_options.allow_unread = options->allow_unread;
    moxie_status status = prepare_check_name(options->dir, error);
    if (status == MOXIE_OK)
        status = prepare_check_name(options->out, error);
    if (status == MOXIE_OK)
        status = prepare_check_out(options->out, error);
    if (status == MOXIE_OK)
        status = moxie_model_open(options->dir, &model_options, &model, error);
    if (status == MOXIE_OK && !experts)
        status =
            cli_refuse_gguf(model, options->dir, "GGUF files are run, not prepared for other engines: prepare", error);
    if (status == MOXIE_OK)
        status = prepare_configs_symmetric(options->dir, &how, error);
    if (status == MOXIE_OK)
        status = plan_layers(options, model, &how, error);
    if (status == MOXIE_OK)
        status = prepare_partial_open(options->out, PREPARE_PREPARED, &how, options->dir, &partial, error);
    if (status == MOXIE_OK)
        status = make_layers(options, &how, model, &partial, executor, progress, report, error);
    if (status == MOXIE_OK && !experts)
        status = prepare_index_write(partial.path, &how, &report->source_hash, error);
    if (status == MOXIE_OK)
        status = prepare_partial_commit(&partial, options->out, error);
    prepare_partial_leave(&partial, report->made + report->kept);
    prepare_how_free(&how);
    moxie_model_close(model);
    return status;
}
