/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_layer.c - from a checkpoint directory to a plan that can run: open, load one layer's views, prepare its
 * records, plan.
 */
#include "cli_disk.h"
#include "cli_store.h"

#include <string.h>

#include <moxie/moxie_topology.h>

static moxie_status first_layer(const moxie_model *model, const char *dir, int64_t *layer, moxie_error *error)
{
    moxie_model_info info = MOXIE_MODEL_INFO_INIT;
    moxie_model_get_info(model, &info, NULL);
    if (info.n_layers == 0)
        return cli_error(
            MOXIE_ERR_FORMAT, error, dir,
            "no mixture-of-experts layer was found among %lld %s of a %s model: `moxie inspect` lists what is there",
            CLI_COUNT(info.n_tensors, "tensor"), cli_printable(info.model_type));
    moxie_model_layer_info first = MOXIE_MODEL_LAYER_INFO_INIT;
    const moxie_status status = moxie_model_describe_layer(model, 0, &first, error);
    if (status == MOXIE_OK)
        *layer = first.layer;
    return status;
}

moxie_status cli_layer_open(const cli_layer_options *options, cli_layer *out, moxie_error *error)
{
    memset(out, 0, sizeof *out);
    if (cli_has_experts(options->dir))
        return cli_experts_open(options, out, error);
    if (options->access != MOXIE_EXPERT_MAP)
        return cli_disk_refuse(options, error);
    moxie_model_options model_options = MOXIE_MODEL_OPTIONS_INIT;
    model_options.activations = options->activations;
    model_options.allow_unread = options->allow_unread;
    moxie_status status = moxie_model_open(options->dir, &model_options, &out->model, error);
    if (status != MOXIE_OK)
        return status;
    out->index = options->layer;
    if (options->layer < 0)
        status = first_layer(out->model, options->dir, &out->index, error);
    if (status == MOXIE_OK)
        status = moxie_model_load_layer(out->model, out->index, &out->loaded, error);
    if (status != MOXIE_OK)
        return status;
    out->config = *moxie_model_layer_config(out->loaded);
    out->weights = moxie_model_layer_weights(out->loaded);
    if (options->dtype)
        out->config.dtype = options->dtype;
    out->config.round_results = options->round_results;
    return MOXIE_OK;
}

bool cli_is_gguf(const moxie_model *model)
{
    moxie_model_info info = MOXIE_MODEL_INFO_INIT;
    return moxie_model_get_info(model, &info, NULL) == MOXIE_OK && strcmp(info.quant_method, "gguf") == 0;
}

moxie_status cli_refuse_gguf(const moxie_model *model, const char *path, const char *what, moxie_error *error)
{
    if (!cli_is_gguf(model))
        return MOXIE_OK;
    return cli_error(MOXIE_ERR_UNSUPPORTED, error, path, "%s the model's release in safetensors", what);
}

const char *cli_numa(const cli_layer_options *options)
{
    return options->numa ? options->numa : "auto";
}

moxie_status cli_executor_create(const char *command, int32_t threads, moxie_executor **out, moxie_error *error)
{
    return cli_executor_create_on(command, threads, "off", out, error);
}

moxie_status cli_executor_create_on(const char *command, int32_t threads, const char *numa, moxie_executor **out,
                                    moxie_error *error)
{
    static int warned; /* one plan serves two runs */
    moxie_machine machine = MOXIE_MACHINE_INIT;
    moxie_status status = moxie_machine_info(&machine, error);
    if (status == MOXIE_OK)
        status = moxie_executor_create_on(threads, numa, out, error);
    if (status == MOXIE_OK && threads > machine.processors && !warned++)
        fprintf(stderr,
                "moxie %s: warning: %d threads were asked for, and this process may use %d %s: threads that take turns "
                "are slower than fewer ones\n",
                command, threads, machine.processors, machine.processors == 1 ? "processor" : "processors");
    return status;
}

static moxie_status make_layer(cli_layer *layer, const moxie_options *options, moxie_error *error)
{
    const moxie_status status = moxie_layer_create(&layer->config, options, &layer->layer, error);
    return status == MOXIE_OK ? moxie_layer_prepare(layer->layer, layer->weights, options, error) : status;
}

static moxie_status prepare_store(const cli_layer_options *options, cli_layer *layer, const moxie_options *plan_options,
                                  moxie_error *error)
{
    const moxie_status status = cli_store_open(options, layer->index, &layer->store, error);
    return status == MOXIE_OK
               ? moxie_store_layer(layer->store, layer->index, &layer->config, plan_options, &layer->layer, error)
               : status;
}

moxie_status cli_layer_prepare(const cli_layer_options *options, cli_layer *layer, moxie_error *error)
{
    cli_progress progress;
    cli_progress_begin(&progress, "prepare");
    progress.terminal = progress.terminal && !options->json;
    moxie_status status =
        cli_executor_create_on(options->command, options->threads, cli_numa(options), &layer->executor, error);
    if (status != MOXIE_OK)
        return status;
    moxie_options plan_options = MOXIE_OPTIONS_INIT;
    plan_options.backend = options->backend;
    plan_options.mode = options->mode;
    plan_options.isa = options->isa;
    plan_options.device = options->backend == MOXIE_BACKEND_CUDA ? options->device : NULL;
    plan_options.max_tokens = options->tokens > 0 ? options->tokens : 1;
    plan_options.max_adapter_rank = options->max_adapter_rank;
    plan_options.executor = layer->executor;
    plan_options.progress = cli_progress_experts;
    plan_options.progress_user = &progress;
    const double start = cli_seconds();
    status = options->budget_ram ? prepare_store(options, layer, &plan_options, error)
             : layer->file       ? cli_experts_prepare(options, layer, &plan_options, error)
                                 : make_layer(layer, &plan_options, error);
    cli_progress_end(&progress);
    layer->prepare_seconds = cli_seconds() - start;
    if (status == MOXIE_OK)
        status = moxie_plan_create(layer->layer, &plan_options, &layer->plan, error);
    return status;
}

json_t *cli_steps_json(const moxie_plan *plan)
{
    json_t *steps = json_array();
    for (int32_t i = 0; i < moxie_plan_step_count(plan); i++) {
        const moxie_plan_step *step = moxie_plan_step_at(plan, i);
        if (step->chosen)
            cli_json_append(steps, cli_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "family", step->family, "role",
                                            step->role, "kernel", step->kernel, "isa", step->isa, "layout",
                                            step->layout, "class", step->exactness));
    }
    return steps;
}

void cli_layer_close(cli_layer *layer)
{
    moxie_plan_destroy(layer->plan);
    moxie_layer_destroy(layer->layer);
    moxie_store_close(layer->store);
    moxie_executor_destroy(layer->executor);
    moxie_expert_file_close(layer->file);
    moxie_model_layer_free(layer->loaded);
    moxie_model_close(layer->model);
    memset(layer, 0, sizeof *layer);
}
