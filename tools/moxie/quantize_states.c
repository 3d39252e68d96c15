/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_states.c - runs layers on hidden states and writes an importance matrix (quantize_states.h), in llama.cpp's
 * old format, which has one number of calls, here 1, for a stack of experts:
 *
 *     entries i32 | name length i32, name, calls i32, values i32, f32 [experts * columns] | ...
 */
#include "quantize_states.h"

#include <stdlib.h>
#include <string.h>

#include <moxie/moxie_quantize.h>

enum { TOKENS_AT_ONCE = 512 };

typedef struct states {
    const char *path;
    moxie_tensor_file *file;
    bool alone; /* the model has one layer: its tensor needs no number */
} states;

typedef struct layer_sums {
    double *squares13, *squares2; /* [E,H], [E,I] */
    int64_t *tokens;
} layer_sums;

/* ---- hidden states ----------------------------------------------------------------------------------- */

/* "NAME.L", or NAME of a model with one layer. *found false: it is not there. */
static moxie_status find(const states *s, const char *stem, int64_t layer, int64_t cols, moxie_tensor *out, bool *found,
                         moxie_error *error)
{
    char name[64];
    moxie_error none = { 0 };
    snprintf(name, sizeof name, "%s.%lld", stem, (long long)layer);
    *found = moxie_tensor_file_find(s->file, name, out, &none) == MOXIE_OK ||
             (s->alone && moxie_tensor_file_find(s->file, stem, out, &none) == MOXIE_OK);
    if (!*found)
        return MOXIE_OK;
    const bool is_float = out->dtype == MOXIE_F32 || out->dtype == MOXIE_F16 || out->dtype == MOXIE_BF16;
    if (out->rank != 2 || out->shape[1] != cols || !is_float)
        return cli_error(MOXIE_ERR_MISMATCH, error, s->path, "%s must be [T,%lld] of bf16, f16 or f32", name,
                         (long long)cols);
    return MOXIE_OK;
}

static moxie_status find_inputs(const states *s, int64_t layer, const moxie_layer_config *config, moxie_tensor *hidden,
                                moxie_tensor *router, bool *has_router, moxie_error *error)
{
    bool found = false;
    const int64_t width = config->router_width ? config->router_width : config->hidden;
    moxie_status status = find(s, "hidden_states", layer, config->hidden, hidden, &found, error);
    if (status == MOXIE_OK && !found)
        return cli_error(MOXIE_ERR_FORMAT, error, s->path,
                         "there is no tensor hidden_states.%lld: each MoE layer needs the hidden states that it reads, "
                         "[T,%lld]",
                         (long long)layer, (long long)config->hidden);
    if (status == MOXIE_OK)
        status = find(s, "router_hidden_states", layer, width, router, has_router, error);
    if (status == MOXIE_OK && *has_router && (router->shape[0] != hidden->shape[0] || router->dtype != hidden->dtype))
        return cli_error(MOXIE_ERR_MISMATCH, error, s->path,
                         "router_hidden_states.%lld must have the tokens and the dtype of hidden_states.%lld",
                         (long long)layer, (long long)layer);
    return status;
}

/* ---- one layer --------------------------------------------------------------------------------------- */

static moxie_status run_batches(moxie_plan *plan, const moxie_tensor *hidden, const moxie_tensor *router,
                                layer_sums *sums, moxie_error *error)
{
    const int64_t tokens = hidden->shape[0], width = router ? router->shape[1] : 1;
    moxie_run_args args = MOXIE_RUN_ARGS_INIT;
    moxie_status status = MOXIE_OK;
    args.workspace_bytes = (moxie_plan_workspace_bytes(plan) + 63) / 64 * 64;
    args.workspace = aligned_alloc(64, args.workspace_bytes);
    args.output = calloc((size_t)hidden->shape[1] * TOKENS_AT_ONCE, sizeof(float));
    float *rows[2] = { calloc((size_t)hidden->shape[1] * TOKENS_AT_ONCE, sizeof(float)),
                       calloc((size_t)width * TOKENS_AT_ONCE, sizeof(float)) };
    if (!args.workspace || !args.output || !rows[0] || !rows[1])
        status = cli_error(MOXIE_ERR_MEMORY, error, "", "no memory to run a layer");
    for (int64_t first = 0; first < tokens && status == MOXIE_OK; first += TOKENS_AT_ONCE) {
        args.tokens = tokens - first < TOKENS_AT_ONCE ? tokens - first : TOKENS_AT_ONCE;
        args.hidden = cli_copy_rows(hidden, first, args.tokens, rows[0]);
        args.router_hidden = router ? cli_copy_rows(router, first, args.tokens, rows[1]) : NULL;
        status = moxie_plan_squares(plan, &args, sums->squares13, sums->squares2, sums->tokens, error);
    }
    free(args.workspace);
    free(args.output);
    free(rows[0]);
    free(rows[1]);
    return status;
}

static moxie_status sum_layer(const states *s, const moxie_model_layer *loaded, int64_t layer,
                              const moxie_executor *executor, layer_sums *sums, moxie_error *error)
{
    moxie_layer_config config = *moxie_model_layer_config(loaded);
    moxie_tensor hidden, router;
    bool has_router = false;
    moxie_layer *prepared = NULL;
    moxie_plan *plan = NULL;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_status status = find_inputs(s, layer, &config, &hidden, &router, &has_router, error);
    if (status != MOXIE_OK)
        return status;
    config.dtype = hidden.dtype;
    options.backend = MOXIE_BACKEND_CPU;
    options.max_tokens = TOKENS_AT_ONCE;
    options.executor = executor;
    status = moxie_layer_create(&config, &options, &prepared, error);
    if (status == MOXIE_OK)
        status = moxie_layer_prepare(prepared, moxie_model_layer_weights(loaded), &options, error);
    if (status == MOXIE_OK)
        status = moxie_plan_create(prepared, &options, &plan, error);
    if (status == MOXIE_OK)
        status = run_batches(plan, &hidden, has_router ? &router : NULL, sums, error);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(prepared);
    return status;
}

/* ---- the file ---------------------------------------------------------------------------------------- */

static void put_integer(FILE *out, int64_t value)
{
    const int32_t number = (int32_t)value;
    fwrite(&number, sizeof number, 1, out); /* little-endian hosts only, like the whole library */
}

static void put_entry(FILE *out, int64_t layer, const char *matrix, const double *squares, const int64_t *tokens,
                      int64_t experts, int64_t cols)
{
    char name[64];
    const int length = snprintf(name, sizeof name, "blk.%lld.%s.weight", (long long)layer, matrix);
    put_integer(out, length);
    fwrite(name, 1, (size_t)length, out);
    put_integer(out, 1);
    put_integer(out, experts * cols);
    for (int64_t e = 0; e < experts; e++)
        for (int64_t c = 0; c < cols; c++) {
            const float mean = tokens[e] > 0 ? (float)(squares[e * cols + c] / (double)tokens[e]) : 0;
            fwrite(&mean, sizeof mean, 1, out);
        }
}

static void put_layer(FILE *out, int64_t layer, const moxie_layer_config *config, bool gated, const layer_sums *sums)
{
    if (gated)
        put_entry(out, layer, "ffn_gate_exps", sums->squares13, sums->tokens, config->experts, config->hidden);
    put_entry(out, layer, "ffn_up_exps", sums->squares13, sums->tokens, config->experts, config->hidden);
    put_entry(out, layer, "ffn_down_exps", sums->squares2, sums->tokens, config->experts, config->intermediate);
}

static moxie_status do_layer(const states *s, const moxie_model *model, int64_t layer, const moxie_executor *executor,
                             FILE *out, int64_t *entries, moxie_error *error)
{
    moxie_model_layer *loaded = NULL;
    layer_sums sums = { 0 };
    moxie_status status = moxie_model_load_layer(model, layer, &loaded, error);
    if (status != MOXIE_OK)
        return status;
    const moxie_layer_config *config = moxie_model_layer_config(loaded);
    const moxie_weights *weights = moxie_model_layer_weights(loaded);
    const bool gated = weights->experts[0].gate.codes.data != NULL;
    sums.squares13 = calloc((size_t)(config->experts * config->hidden), sizeof *sums.squares13);
    sums.squares2 = calloc((size_t)(config->experts * config->intermediate), sizeof *sums.squares2);
    sums.tokens = calloc((size_t)config->experts, sizeof *sums.tokens);
    if (!sums.squares13 || !sums.squares2 || !sums.tokens)
        status = cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for the sums of %lld %s",
                           CLI_COUNT(config->experts, "expert"));
    if (status == MOXIE_OK)
        status = sum_layer(s, loaded, layer, executor, &sums, error);
    if (status == MOXIE_OK)
        put_layer(out, layer, config, gated, &sums);
    *entries += gated ? 3 : 2;
    free(sums.squares13);
    free(sums.squares2);
    free(sums.tokens);
    moxie_model_layer_free(loaded);
    return status;
}

static moxie_status do_layers(states *s, const moxie_model *model, const moxie_executor *executor, FILE *out,
                              moxie_error *error)
{
    moxie_model_info info = MOXIE_MODEL_INFO_INIT;
    moxie_status status = MOXIE_OK;
    int64_t entries = 0;
    moxie_model_get_info(model, &info, NULL);
    s->alone = info.n_layers == 1;
    put_integer(out, 0);
    for (int64_t i = 0; i < info.n_layers && status == MOXIE_OK; i++) {
        moxie_model_layer_info layer = MOXIE_MODEL_LAYER_INFO_INIT;
        status = moxie_model_describe_layer(model, i, &layer, error);
        if (status == MOXIE_OK)
            status = do_layer(s, model, layer.layer, executor, out, &entries, error);
    }
    rewind(out);
    put_integer(out, entries);
    if (status == MOXIE_OK && (fflush(out) != 0 || ferror(out)))
        status = cli_error(MOXIE_ERR_IO, error, "", "the importance matrix cannot be written: %m");
    return status;
}

moxie_status quantize_states_write(const char *dir, const char *path, bool allow_unread, const moxie_executor *executor,
                                   FILE *out, moxie_error *error)
{
    states s = { .path = path };
    moxie_model *model = NULL;
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    options.activations = MOXIE_ACTIVATIONS_16BIT;
    options.allow_unread = allow_unread;
    moxie_status status = moxie_tensor_file_open(path, 0, &s.file, error);
    if (status == MOXIE_OK)
        status = moxie_model_open(dir, &options, &model, error);
    if (status == MOXIE_OK)
        status = do_layers(&s, model, executor, out, error);
    moxie_model_close(model);
    moxie_tensor_file_close(s.file);
    return status;
}
