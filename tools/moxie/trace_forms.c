/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_forms.c - `moxie trace import` and `export`: other programs' files, and the two forms that need no file of
 * their own here.
 *
 *     FILES --a row of the list, by --format or by the ending--> tokens in memory -> trace
 *     trace -> tokens in memory --a row--> FILE
 */
#include "trace_tool.h"

#include <stdlib.h>
#include <string.h>

moxie_status trace_set_sizes(trace_table *t, int64_t layers, int64_t top_k, const char *path, moxie_error *error)
{
    if (layers < 1 || layers > MOXIE_TRACE_MAX_LAYERS || top_k < 1 || top_k > MOXIE_MAX_TOP_K)
        return cli_error(MOXIE_ERR_FORMAT, error, path, "it has %lld layers and %lld choices; the limits are %d and %d",
                         (long long)layers, (long long)top_k, MOXIE_TRACE_MAX_LAYERS, MOXIE_MAX_TOP_K);
    if (t->layers && (t->layers != layers || t->top_k != top_k))
        return cli_error(MOXIE_ERR_MISMATCH, error, path,
                         "it has %lld layers and %lld choices, and the files before have %d and %d", (long long)layers,
                         (long long)top_k, t->layers, t->top_k);
    t->layers = (int32_t)layers;
    t->top_k = (int32_t)top_k;
    return MOXIE_OK;
}

/* ---- files of `moxie run -o` ---------------------------------------------------------------------------- */

static moxie_status take_tensors(const char *path, const moxie_tensor *ids, const moxie_tensor *weights, trace_table *t,
                                 moxie_error *error)
{
    const int64_t first = t->tokens;
    if (ids->dtype != MOXIE_I32 || ids->rank != 2 ||
        (weights && (weights->dtype != MOXIE_F32 || weights->rank != 2 || weights->shape[0] != ids->shape[0] ||
                     weights->shape[1] != ids->shape[1])))
        return cli_error(MOXIE_ERR_FORMAT, error, path,
                         "topk_ids must be [T,K] of i32, and topk_weights [T,K] of f32, if it is there");
    moxie_status status = trace_set_sizes(t, 1, ids->shape[1], path, error);
    if (status == MOXIE_OK)
        status = trace_table_grow(t, ids->shape[0], path, error);
    if (status != MOXIE_OK)
        return status;
    const size_t count = (size_t)(ids->shape[0] * ids->shape[1]);
    memcpy(t->ids + first * t->top_k, ids->data, count * sizeof *t->ids);
    if (weights)
        memcpy(t->weights + first * t->top_k, weights->data, count * sizeof *t->weights);
    t->has_weights = weights != NULL && (first == 0 || t->has_weights);
    return MOXIE_OK;
}

static moxie_status read_run(const char *path, const trace_arguments *args, trace_table *t, moxie_error *error)
{
    moxie_tensor_file *file = NULL;
    moxie_tensor ids, weights, logits;
    moxie_error absent;
    const int64_t first = t->tokens;
    moxie_status status = moxie_tensor_file_open(path, 0, &file, error);
    if (status == MOXIE_OK)
        status = moxie_tensor_file_find(file, "topk_ids", &ids, error);
    if (status == MOXIE_OK) {
        const bool weighted = moxie_tensor_file_find(file, "topk_weights", &weights, &absent) == MOXIE_OK;
        status = take_tensors(path, &ids, weighted ? &weights : NULL, t, error);
    }
    if (status == MOXIE_OK)
        trace_table_number(t, first, args);
    if (status == MOXIE_OK && moxie_tensor_file_find(file, "router_logits", &logits, &absent) == MOXIE_OK &&
        logits.rank == 2 && logits.shape[1] <= MOXIE_MAX_EXPERTS)
        t->experts = (int32_t)(logits.shape[1] - args->zero_experts);
    moxie_tensor_file_close(file);
    return status;
}

/* ---- counts --------------------------------------------------------------------------------------------- */

static moxie_status write_counts(const char *path, const trace_table *t, moxie_error *error)
{
    json_t *rows = cli_pack("[]");
    for (int32_t l = 0; l < t->layers; l++) {
        int64_t counts[MOXIE_MAX_EXPERTS] = { 0 };
        for (int64_t i = 0; i < t->tokens; i++)
            for (int32_t j = 0; j < t->top_k; j++) {
                const int32_t id = t->ids[(i * t->layers + l) * t->top_k + j];
                if (id >= 0 && id < t->experts)
                    counts[id]++;
            }
        json_t *row = cli_pack("[]");
        for (int32_t e = 0; e < t->experts; e++)
            cli_json_append(row, cli_pack("I", (json_int_t)counts[e]));
        cli_json_append(rows, row);
    }
    return cli_json_write(path, cli_pack("{s:o}", "logical_count", rows), JSON_COMPACT, error);
}

/* ---- the list ------------------------------------------------------------------------------------------- */

static const trace_form forms[] = {
    { "vllm", ".npy", "routed_experts of vLLM: int16 [tokens, layers, top_k]", trace_npy_read, trace_npy_write },
    { "sglang", ".json", "routed_experts of SGLang: base64 of int32", trace_base64_read, trace_base64_write },
    { "csv", ".csv", "a line for each choice", trace_csv_read, trace_csv_write },
    { "run", ".safetensors", "topk_ids of `moxie run -o`: one layer", read_run, NULL },
    { "counts", ".counts.json", "logical_count [layers, experts], as JSON", NULL, write_counts },
};
enum { N_FORMS = sizeof forms / sizeof forms[0] };

static const char *form_at(int32_t i)
{
    return i < N_FORMS ? forms[i].name : NULL;
}
const cli_names trace_form_names = { .kind = "--format", .at = form_at };

/* By its name, else by the longest ending that the path has. */
static moxie_status choose(const trace_arguments *args, const char *path, const trace_form **out, moxie_error *error)
{
    const size_t length = strlen(path);
    size_t longest = 0;
    *out = NULL;
    if (args->format) {
        *out = &forms[cli_find_name(&trace_form_names, args->format)];
        return MOXIE_OK;
    }
    for (int i = 0; i < N_FORMS; i++) {
        const size_t n = strlen(forms[i].ending);
        if (n > longest && n <= length && !strcmp(path + length - n, forms[i].ending)) {
            *out = &forms[i];
            longest = n;
        }
    }
    return *out ? MOXIE_OK
                : cli_error(MOXIE_ERR_ARGUMENT, error, path,
                            "its ending does not tell what it is: give --format vllm, sglang, csv, run or counts");
}

/* ---- import --------------------------------------------------------------------------------------------- */

static moxie_status read_all(const trace_arguments *args, trace_table *t, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    for (int i = 0; status == MOXIE_OK && i < args->n_inputs; i++) {
        const trace_form *form = NULL;
        status = choose(args, args->inputs[i], &form, error);
        if (status == MOXIE_OK && !form->read)
            status =
                cli_error(MOXIE_ERR_UNSUPPORTED, error, args->inputs[i],
                          "counts have no tokens, so no trace can be made of them; `moxie balance` and `moxie trace "
                          "simulate --census` read them as they are");
        if (status == MOXIE_OK)
            status = form->read(args->inputs[i], args, t, error);
    }
    return status;
}

/* The number of experts, and which layers of the model they are. */
static moxie_status complete(const trace_arguments *args, trace_table *t, moxie_error *error)
{
    const char *path = args->inputs[args->n_inputs - 1];
    if (args->experts)
        t->experts = (int32_t)args->experts;
    t->zero_experts = (int32_t)args->zero_experts;
    if (t->experts < 1)
        return cli_error(MOXIE_ERR_ARGUMENT, error, path,
                         "a trace has the number of experts, and the inputs do not give one above 0: give --experts N");
    if (args->top_k && args->top_k != t->top_k)
        return cli_error(MOXIE_ERR_MISMATCH, error, path, "its tokens choose %lld %s, and --top-k says %lld",
                         CLI_COUNT(t->top_k, "expert"), (long long)args->top_k);
    if (args->first_layer >= 0 && args->last_layer - args->first_layer + 1 != t->layers)
        return cli_error(MOXIE_ERR_MISMATCH, error, path, "it has %d layers, and --layers names %lld", t->layers,
                         (long long)(args->last_layer - args->first_layer + 1));
    if (!t->layer_numbers || args->first_layer >= 0) {
        free(t->layer_numbers);
        t->layer_numbers = cli_alloc((size_t)t->layers * sizeof *t->layer_numbers);
        for (int32_t l = 0; l < t->layers; l++)
            t->layer_numbers[l] = l + (args->first_layer >= 0 ? (int32_t)args->first_layer : 0);
    }
    if (args->name)
        snprintf(t->model, sizeof t->model, "%s", args->name);
    t->has_requests = t->has_requests || t->n_requests > 1;
    return trace_table_check(t, path, error);
}

/* What was made, in a line or an object. */
static void report(const char *what, const trace_arguments *args, const trace_table *t)
{
    if (args->json) {
        json_t *object = cli_json_begin("trace");
        cli_json_merge(object, cli_pack("{s:s, s:s, s:I, s:i, s:i, s:i, s:b, s:b}", "action", what, "output",
                                        cli_utf8(args->output), "tokens", (json_int_t)t->tokens, "layers",
                                        (int)t->layers, "experts", (int)t->experts, "top_k", (int)t->top_k, "weights",
                                        (int)t->has_weights, "requests", (int)t->has_requests));
        cli_json_end(object);
        return;
    }
    printf("%s: %lld %s, %lld %s, %lld %s, top-%d\n", cli_printable(args->output), CLI_COUNT(t->tokens, "token"),
           CLI_COUNT(t->layers, "layer"), CLI_COUNT(t->experts, "expert"), t->top_k);
}

int trace_end(const char *what, const trace_arguments *args, trace_table *t, moxie_status status,
              const moxie_error *error)
{
    if (status == MOXIE_OK)
        report(what, args, t);
    trace_table_free(t);
    return status == MOXIE_OK ? CLI_OK : cli_fail("trace", args->json, status, error);
}

int trace_import(const trace_arguments *args)
{
    trace_table t = { 0 };
    moxie_error error = { 0 };
    moxie_status status = cli_output_check(args->output, args->inputs, args->n_inputs, &error);
    if (status == MOXIE_OK)
        status = read_all(args, &t, &error);
    if (status == MOXIE_OK)
        status = complete(args, &t, &error);
    if (status == MOXIE_OK)
        status = trace_table_write(&t, args->output, &error);
    return trace_end("import", args, &t, status, &error);
}

int trace_export(const trace_arguments *args)
{
    trace_table t = { 0 };
    moxie_error error = { 0 };
    const trace_form *form = NULL;
    moxie_status status = choose(args, args->output, &form, &error);
    if (status == MOXIE_OK && !form->write)
        status = cli_error(MOXIE_ERR_UNSUPPORTED, &error, args->output,
                           "a file of `moxie run` holds more than choices and is not written here: give --format vllm, "
                           "sglang, csv or counts");
    if (status == MOXIE_OK)
        status = cli_output_check(args->output, args->inputs, args->n_inputs, &error);
    if (status == MOXIE_OK)
        status = trace_table_read(args->inputs[0], args->request, &t, &error);
    if (status == MOXIE_OK)
        status = form->write(args->output, &t, &error);
    return trace_end("export", args, &t, status, &error);
}
