/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_record.c - `moxie trace record`: the routers of a checkpoint's layers on hidden states.
 *
 *     each layer: its router and routing, with experts of intermediate size 1, which never run -> plan
 *     each batch of tokens: moxie_plan_route -> ids, weights -> tokens in memory -> trace
 *
 * Only routers are read from the checkpoint, so it takes seconds. The choices are those of `moxie run`: the same
 * kernels compute them. With hidden states from a real model they are the model's; with random ones they only show its
 * routing.
 */
#include "trace_tool.h"

#include <stdlib.h>
#include <string.h>

#include "made_weights.h"

enum { BATCH = 1024 };

typedef struct recorder {
    const trace_arguments *args;
    moxie_model *model;
    trace_table table;
    int64_t *numbers; /* [layers] of the checkpoint */
    int64_t tokens;
} recorder;

/* A layer that routes. */
typedef struct router {
    moxie_model_layer *loaded;
    moxie_layer_config config;
    made_weights made;
    moxie_weights weights;
    moxie_layer *layer;
    moxie_plan *plan;
    void *workspace;
} router;

static void close_router(router *r)
{
    free(r->workspace);
    moxie_plan_destroy(r->plan);
    moxie_layer_destroy(r->layer);
    made_weights_free(&r->made);
    moxie_model_layer_free(r->loaded);
}

/* The layer's router and routing beside the smallest experts. */
static void narrow(router *r)
{
    moxie_layer_config *c = &r->config;
    *c = *moxie_model_layer_config(r->loaded);
    const moxie_quant plain = { .element = c->dtype };
    c->intermediate = 1;
    c->w13 = c->w2 = plain;
    c->a13 = c->a2 = (moxie_quant) { 0 };
    c->bias13 = c->bias2 = 0;
    c->shared = (moxie_shared_config) { 0 };
    c->has_shared_activation = 0;
    c->expert_norm = (moxie_row_norm) { 0 };
    c->round_results = 0;
}

static moxie_status open_router(const recorder *rec, int64_t layer, moxie_dtype dtype, const moxie_executor *executor,
                                router *r, moxie_error *error)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.backend = MOXIE_BACKEND_CPU;
    options.max_tokens = BATCH;
    options.executor = executor;
    moxie_status status = moxie_model_load_layer(rec->model, layer, &r->loaded, error);
    if (status != MOXIE_OK)
        return status;
    narrow(r);
    if (dtype)
        r->config.dtype = r->config.w13.element = r->config.w2.element = dtype;
    if (r->config.router_width == 0)
        return cli_error(MOXIE_ERR_UNSUPPORTED, error, rec->args->inputs[0], "layer %lld has no router",
                         (long long)layer);
    status = made_weights_make(&r->config, 1, &r->made, error);
    if (status != MOXIE_OK)
        return status;
    r->weights = r->made.views;
    r->weights.router = moxie_model_layer_weights(r->loaded)->router;
    r->weights.router_norm = moxie_model_layer_weights(r->loaded)->router_norm;
    status = moxie_layer_create(&r->config, &options, &r->layer, error);
    if (status == MOXIE_OK)
        status = moxie_layer_prepare(r->layer, &r->weights, &options, error);
    if (status == MOXIE_OK)
        status = moxie_plan_create(r->layer, &options, &r->plan, error);
    if (status == MOXIE_OK) {
        r->workspace = aligned_alloc(64, ((size_t)moxie_plan_workspace_bytes(r->plan) + 127) / 64 * 64);
        if (!r->workspace)
            status = cli_error(MOXIE_ERR_MEMORY, error, "", "no memory to route %d tokens", BATCH);
    }
    return status;
}

/* ---- hidden states -------------------------------------------------------------------------------------- */

/* The name of a layer's states in the file of --hidden-states: layers.N.hidden_states, else hidden_states. */
static moxie_status find_states(const moxie_tensor_file *file, const char *path, int64_t layer, moxie_tensor *out,
                                moxie_error *error)
{
    char name[64];
    moxie_error absent;
    snprintf(name, sizeof name, "layers.%lld.hidden_states", (long long)layer);
    if (moxie_tensor_file_find(file, name, out, &absent) != MOXIE_OK &&
        moxie_tensor_file_find(file, "hidden_states", out, &absent) != MOXIE_OK)
        return cli_error(MOXIE_ERR_MISMATCH, error, path, "it has neither %s nor hidden_states", name);
    if (out->rank != 2 || (out->dtype != MOXIE_BF16 && out->dtype != MOXIE_F16 && out->dtype != MOXIE_F32))
        return cli_error(MOXIE_ERR_FORMAT, error, path, "hidden states of layer %lld must be [T,H] of bf16, f16 or f32",
                         (long long)layer);
    return MOXIE_OK;
}

/* Token ids of layers that route by a table. */
static bool find_token_ids(const moxie_tensor_file *file, int64_t tokens, moxie_tensor *out)
{
    moxie_error absent;
    return moxie_tensor_file_find(file, "token_ids", out, &absent) == MOXIE_OK && out->dtype == MOXIE_I32 &&
           out->rank == 1 && out->shape[0] == tokens;
}

/* ---- routing -------------------------------------------------------------------------------------------- */

/* Routes one batch and puts its choices into row l of each token. */
static moxie_status route(recorder *rec, router *r, int32_t l, int64_t first, int64_t count, const moxie_run_args *from,
                          moxie_error *error)
{
    trace_table *t = &rec->table;
    static int32_t ids[BATCH * MOXIE_MAX_TOP_K];
    static float weights[BATCH * MOXIE_MAX_TOP_K];
    moxie_run_args args = *from;
    args.tokens = count;
    args.ids_out = ids;
    args.weights_out = weights;
    args.workspace = r->workspace;
    args.workspace_bytes = moxie_plan_workspace_bytes(r->plan);
    const moxie_status status = moxie_plan_route(r->plan, &args, error);
    for (int64_t i = 0; status == MOXIE_OK && i < count; i++) {
        const int64_t at = ((first + i) * t->layers + l) * t->top_k;
        memcpy(t->ids + at, ids + i * t->top_k, (size_t)t->top_k * sizeof *ids);
        memcpy(t->weights + at, weights + i * t->top_k, (size_t)t->top_k * sizeof *weights);
    }
    return status;
}

static moxie_status route_random(recorder *rec, router *r, int32_t l, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    for (int64_t first = 0; status == MOXIE_OK && first < rec->tokens; first += BATCH) {
        const int64_t count = rec->tokens - first < BATCH ? rec->tokens - first : BATCH;
        moxie_run_args args = MOXIE_RUN_ARGS_INIT;
        cli_input input = { 0 };
        status = cli_input_random(&r->config, count, rec->args->seed + (uint64_t)(first / BATCH),
                                  (cli_states)rec->args->states, &input, error);
        if (status == MOXIE_OK) {
            cli_input_args(&input, &args);
            status = route(rec, r, l, first, count, &args, error);
        }
        cli_input_free(&input);
    }
    return status;
}

static moxie_status route_states(recorder *rec, router *r, int32_t l, const moxie_tensor_file *file,
                                 const moxie_tensor *states, moxie_error *error)
{
    const char *path = rec->args->states_file;
    const int64_t width = states->shape[1];
    if (states->shape[0] != rec->tokens || width != r->config.router_width)
        return cli_error(MOXIE_ERR_MISMATCH, error, path,
                         "the states of layer %lld are [%lld,%lld]; its router reads [%lld,%lld]",
                         (long long)rec->numbers[l], (long long)states->shape[0], (long long)width,
                         (long long)rec->tokens, (long long)r->config.router_width);
    /* What experts would read; they do not run. */
    void *unread = calloc((size_t)BATCH * (size_t)r->config.hidden, 4);
    void *rows = calloc((size_t)BATCH * (size_t)width, 4);
    moxie_tensor token_ids;
    int32_t ids[BATCH];
    const bool has_token_ids = find_token_ids(file, rec->tokens, &token_ids);
    moxie_status status =
        unread && rows ? MOXIE_OK : cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for a batch of tokens");
    for (int64_t first = 0; status == MOXIE_OK && first < rec->tokens; first += BATCH) {
        const int64_t count = rec->tokens - first < BATCH ? rec->tokens - first : BATCH;
        moxie_run_args args = MOXIE_RUN_ARGS_INIT;
        args.router_hidden = cli_copy_rows(states, first, count, rows);
        args.hidden = width == r->config.hidden ? args.router_hidden : unread;
        args.token_ids = has_token_ids ? cli_copy_rows(&token_ids, first, count, ids) : NULL;
        status = route(rec, r, l, first, count, &args, error);
    }
    free(unread);
    free(rows);
    return status;
}

static moxie_status record_layer(recorder *rec, int32_t l, const moxie_tensor_file *file,
                                 const moxie_executor *executor, moxie_error *error)
{
    router r = { .loaded = NULL };
    moxie_tensor states = { .dtype = MOXIE_DTYPE_NONE };
    moxie_status status = file ? find_states(file, rec->args->states_file, rec->numbers[l], &states, error) : MOXIE_OK;
    if (status == MOXIE_OK)
        status = open_router(rec, rec->numbers[l], states.dtype, executor, &r, error);
    if (status == MOXIE_OK && (r.config.experts != rec->table.experts || r.config.top_k != rec->table.top_k ||
                               r.config.routing.zero_experts != rec->table.zero_experts))
        status =
            cli_error(MOXIE_ERR_UNSUPPORTED, error, rec->args->inputs[0],
                      "layer %lld has other numbers of experts or choices than layer %lld: record them apart, with "
                      "--layers",
                      (long long)rec->numbers[l], (long long)rec->numbers[0]);
    if (status == MOXIE_OK)
        status = file ? route_states(rec, &r, l, file, &states, error) : route_random(rec, &r, l, error);
    close_router(&r);
    return status;
}

/* ---- the model ------------------------------------------------------------------------------------------ */

/* XXH3-64 of config.json; 0 where there is none. */
static uint64_t fingerprint(const char *dir)
{
    char *path = cli_format("%s/config.json", dir), *text = NULL;
    uint64_t bytes = 0, sum = 0;
    moxie_error error;
    if (moxie_file_read(path, 1 << 26, &text, &bytes, &error) == MOXIE_OK)
        sum = moxie_trace_fingerprint(text, bytes);
    moxie_file_free(text);
    free(path);
    return sum;
}

static const char *base_name(const char *path, char *buffer, size_t size)
{
    size_t end = strlen(path), begin;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/';)
        begin--;
    snprintf(buffer, size, "%.*s", (int)(end - begin), path + begin);
    return buffer;
}

/* Which layers, and their sizes. */
static moxie_status choose_layers(recorder *rec, moxie_error *error)
{
    const trace_arguments *args = rec->args;
    trace_table *t = &rec->table;
    moxie_model_info info = MOXIE_MODEL_INFO_INIT;
    int64_t first = 0, last = 0;
    moxie_status status = moxie_model_get_info(rec->model, &info, error);
    rec->numbers = cli_alloc((size_t)(info.n_layers + 1) * sizeof *rec->numbers);
    t->layer_numbers = cli_alloc((size_t)(info.n_layers + 1) * sizeof *t->layer_numbers);
    for (int64_t i = 0; status == MOXIE_OK && i < info.n_layers; i++) {
        moxie_model_layer_info layer = MOXIE_MODEL_LAYER_INFO_INIT;
        status = moxie_model_describe_layer(rec->model, i, &layer, error);
        first = i == 0 ? layer.layer : first;
        last = layer.layer;
        if (status != MOXIE_OK ||
            (args->first_layer >= 0 && (layer.layer < args->first_layer || layer.layer > args->last_layer)))
            continue;
        rec->numbers[t->layers] = layer.layer;
        t->layer_numbers[t->layers++] = (int32_t)layer.layer;
        if (t->layers > 1)
            continue;
        t->experts = (int32_t)layer.experts;
        t->top_k = (int32_t)layer.top_k;
    }
    if (status == MOXIE_OK && (t->layers == 0 || args->last_layer > last))
        status = cli_error(MOXIE_ERR_ARGUMENT, error, args->inputs[0],
                           "--layers %lld-%lld: its layers with experts are %lld to %lld", (long long)args->first_layer,
                           (long long)args->last_layer, (long long)first, (long long)last);
    return status;
}

/* Z, which a layer's description does not say. */
static moxie_status find_zero_experts(recorder *rec, moxie_error *error)
{
    moxie_model_layer *loaded = NULL;
    const moxie_status status = moxie_model_load_layer(rec->model, rec->numbers[0], &loaded, error);
    if (status == MOXIE_OK)
        rec->table.zero_experts = moxie_model_layer_config(loaded)->routing.zero_experts;
    moxie_model_layer_free(loaded);
    return status;
}

static moxie_status record_all(recorder *rec, const moxie_tensor_file *file, moxie_error *error)
{
    const trace_arguments *args = rec->args;
    moxie_executor *executor = NULL;
    moxie_tensor states;
    cli_progress progress;
    moxie_status status = MOXIE_OK;
    rec->tokens = args->tokens;
    if (file)
        status = find_states(file, args->states_file, rec->numbers[0], &states, error);
    if (status == MOXIE_OK && file)
        rec->tokens = states.shape[0];
    if (status == MOXIE_OK)
        status = trace_table_grow(&rec->table, rec->tokens, args->output, error);
    if (status == MOXIE_OK)
        status = cli_executor_create("trace", args->threads, &executor, error);
    cli_progress_begin(&progress, "layers");
    progress.terminal = progress.terminal && !args->json;
    for (int32_t l = 0; status == MOXIE_OK && l < rec->table.layers; l++) {
        cli_progress_show(&progress, (uint64_t)l, (uint64_t)rec->table.layers);
        status = record_layer(rec, l, file, executor, error);
    }
    cli_progress_end(&progress);
    moxie_executor_destroy(executor);
    return status;
}

int trace_record(const trace_arguments *args)
{
    recorder rec = { .args = args };
    moxie_tensor_file *file = NULL;
    moxie_error error = { 0 };
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    const char *const inputs[] = { args->inputs[0], args->states_file };
    moxie_status status = cli_output_check(args->output, inputs, sizeof inputs / sizeof inputs[0], &error);
    if (status == MOXIE_OK)
        status = moxie_model_open(args->inputs[0], &options, &rec.model, &error);
    if (status == MOXIE_OK && args->states_file)
        status = moxie_tensor_file_open(args->states_file, 0, &file, &error);
    if (status == MOXIE_OK)
        status = choose_layers(&rec, &error);
    if (status == MOXIE_OK)
        status = find_zero_experts(&rec, &error);
    if (status == MOXIE_OK)
        status = record_all(&rec, file, &error);
    if (status == MOXIE_OK) {
        rec.table.has_weights = true;
        rec.table.fingerprint = fingerprint(args->inputs[0]);
        if (args->name)
            snprintf(rec.table.model, sizeof rec.table.model, "%s", args->name);
        else
            base_name(args->inputs[0], rec.table.model, sizeof rec.table.model);
        trace_table_number(&rec.table, 0, args);
        status = trace_table_write(&rec.table, args->output, &error);
    }
    moxie_tensor_file_close(file);
    moxie_model_close(rec.model);
    free(rec.numbers);
    return trace_end("record", args, &rec.table, status, &error);
}
