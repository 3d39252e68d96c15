/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_diff.c - `moxie diff DIR --layer L --a BACKEND --b BACKEND`: is a back end right?
 *
 * Every stage of a back end's run is compared with the oracle, element by element, from the same rounded inputs:
 * the worst element, its expert, token and block, and how much of its bound it used. Naming `ref` as one side
 * checks the other; naming two back ends checks both. --against DIR2 compares the weights of two checkpoints
 * instead. Exit code 1 when a bound is passed or weights differ.
 */
#include "cli.h"

#include <stdlib.h>

typedef struct arguments {
    cli_layer_options layer;
    const char *against;
    int32_t a, b;
    uint64_t seed;
} arguments;

enum { OPT_A = 256, OPT_B, OPT_SEED, OPT_AGAINST };

static const struct argp_option options[] = {
    { "a", OPT_A, "BACKEND", 0, "ref, cpu or cuda (default cpu)", 0 },
    { "b", OPT_B, "BACKEND", 0, "ref, cpu or cuda (default ref)", 0 },
    { "seed", OPT_SEED, "S", 0, "of the random hidden states (default 0; 16 tokens unless --tokens)", 0 },
    { "against", OPT_AGAINST, "DIR2", 0, "compare the weights of this layer in two checkpoints", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = state->child_inputs[1] = &args->layer; return 0;
    case OPT_A: args->a = cli_parse_backend(state, arg); return 0;
    case OPT_B: args->b = cli_parse_backend(state, arg); return 0;
    case OPT_SEED: args->seed = (uint64_t)cli_parse_int(state, "--seed", arg, 0, INT64_MAX); return 0;
    case OPT_AGAINST: args->against = arg; return 0;
    case ARGP_KEY_END:
        if (!args->layer.dir)
            argp_error(state, "the checkpoint's directory is needed");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- two checkpoints ---------------------------------------------------------------------------- */

static int report_difference(const arguments *args, int64_t layer, const moxie_weights_difference *d)
{
    const bool equal = !d->count;
    if (args->layer.json) {
        json_t *object = cli_json_begin("diff");
        json_object_update_new(object, json_pack("{s:I, s:s, s:s, s:b, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}",
                                                 "layer", (json_int_t)layer, "a", args->layer.dir, "b", args->against,
                                                 "equal", equal, "expert", (json_int_t)d->expert, "projection",
                                                 equal ? "" : d->projection, "part", equal ? "" : d->part, "row",
                                                 (json_int_t)d->row, "column", (json_int_t)d->column, "row_block",
                                                 (json_int_t)d->row_block, "column_block", (json_int_t)d->column_block,
                                                 "elements", (json_int_t)d->count, "experts", (json_int_t)d->experts));
        cli_json_end(object);
    } else if (equal) {
        printf("layer %lld: the weights are equal\n", (long long)layer);
    } else {
        printf("layer %lld: %lld elements of %lld experts differ; first: ", (long long)layer, (long long)d->count,
               (long long)d->experts);
        if (d->expert >= 0)
            printf("expert %lld ", (long long)d->expert);
        printf("%s %s, row %lld, column %lld, block (%lld, %lld)\n", d->projection, d->part, (long long)d->row,
               (long long)d->column, (long long)d->row_block, (long long)d->column_block);
    }
    return equal ? CLI_OK : CLI_CHECK_FAILED;
}

static int diff_weights(const arguments *args)
{
    moxie_error error = { 0 };
    cli_layer a = { 0 }, b = { 0 };
    moxie_weights_difference difference = { 0 };
    cli_layer_options second = args->layer;
    second.dir = args->against;
    moxie_status status = cli_layer_open(&args->layer, &a, &error);
    if (status == MOXIE_OK)
        status = cli_layer_open(&second, &b, &error);
    if (status == MOXIE_OK)
        status = moxie_weights_compare(&a.config, a.weights, b.weights, &difference, &error);
    const int code = status == MOXIE_OK ? report_difference(args, a.index, &difference)
                                        : cli_fail("diff", args->layer.json, status, &error);
    cli_layer_close(&a);
    cli_layer_close(&b);
    return code;
}

/* ---- a back end against the oracle -------------------------------------------------------------- */

static moxie_status check_backend(const arguments *args, int32_t backend, moxie_check_report *report,
                                  int64_t *layer_index, moxie_error *error)
{
    cli_layer_options options_of_side = args->layer;
    options_of_side.backend = backend;
    cli_layer layer = { 0 };
    cli_input input = { 0 };
    void *workspace = NULL, *output = NULL;
    moxie_status status = cli_layer_open(&options_of_side, &layer, error);
    if (status == MOXIE_OK)
        status = cli_input_random(&layer.config, args->layer.tokens, args->seed, &input, error);
    if (status == MOXIE_OK)
        status = cli_layer_prepare(&options_of_side, &layer, error);
    if (status == MOXIE_OK) {
        moxie_run_args run = MOXIE_RUN_ARGS_INIT;
        run.workspace_bytes = moxie_plan_workspace_bytes(layer.plan);
        run.workspace = workspace = aligned_alloc(64, (run.workspace_bytes + 127) / 64 * 64);
        run.output = output = calloc((size_t)(input.tokens * layer.config.hidden) + 1, 4);
        cli_input_args(&input, &run);
        status = workspace && output ? moxie_plan_check(layer.plan, layer.weights, &run, report, error)
                                     : cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for a workspace of %llu bytes",
                                                 (unsigned long long)run.workspace_bytes);
        *layer_index = layer.index;
    }
    free(workspace);
    free(output);
    cli_input_free(&input);
    cli_layer_close(&layer);
    return status;
}

static const char *backend_name(int32_t backend)
{
    static const char *const names[] = { "auto", "ref", "cpu", "cuda" };
    return names[backend];
}

static void print_report(const char *backend, int64_t layer, const moxie_check_report *report)
{
    static const char *const headings[] = { "stage",  ">elements", ">beyond", ">worst/bound", ">got",    ">want",
                                            ">bound", ">token",    ">slot",   ">expert",      ">column", ">block" };
    printf("layer %lld, %s against the oracle:\n", (long long)layer, backend);
    cli_table table;
    cli_table_begin(&table, 12, headings);
    for (int i = 0; i < report->n_stages; i++) {
        const moxie_stage_report *s = &report->stages[i];
        cli_table_add(&table, "%s", s->stage);
        cli_table_add(&table, "%lld", (long long)s->elements);
        cli_table_add(&table, "%lld", (long long)s->beyond);
        cli_table_add(&table, "%.4f", s->worst_ratio);
        cli_table_add(&table, "%.6g", s->got);
        cli_table_add(&table, "%.6g", s->want);
        cli_table_add(&table, "%.2g", s->bound);
        const int64_t where[] = { s->token, s->slot, s->expert, s->column, s->column_block };
        for (int w = 0; w < 5; w++)
            where[w] < 0 ? cli_table_add(&table, "-") : cli_table_add(&table, "%lld", (long long)where[w]);
    }
    cli_table_print(&table);
    cli_table_free(&table);
    printf("%s: the worst error is %.4f of its bound\n", report->worst_ratio <= 1 ? "right" : "WRONG",
           report->worst_ratio);
}

static json_t *json_report(const char *backend, const moxie_check_report *report)
{
    json_t *stages = json_array();
    for (int i = 0; i < report->n_stages; i++) {
        const moxie_stage_report *s = &report->stages[i];
        json_array_append_new(stages, json_pack("{s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I}", "stage",
                                                s->stage, "elements", (json_int_t)s->elements, "beyond",
                                                (json_int_t)s->beyond, "worst_ratio", s->worst_ratio, "got", s->got,
                                                "want", s->want, "bound", s->bound, "token", (json_int_t)s->token,
                                                "slot", (json_int_t)s->slot, "expert", (json_int_t)s->expert, "column",
                                                (json_int_t)s->column, "column_block", (json_int_t)s->column_block));
    }
    return json_pack("{s:s, s:b, s:f, s:o}", "backend", backend, "right", report->worst_ratio <= 1, "worst_ratio",
                     report->worst_ratio, "stages", stages);
}

static int diff_backends(const arguments *args)
{
    const int32_t sides[2] = { args->a, args->b };
    const bool both_ref = args->a == MOXIE_BACKEND_REF && args->b == MOXIE_BACKEND_REF;
    json_t *reports = json_array();
    moxie_error error = { 0 };
    moxie_status status = MOXIE_OK;
    int64_t layer = -1;
    bool right = true;
    for (int i = 0; i < 2 && status == MOXIE_OK; i++) {
        /* The oracle is what the other side is held against; it needs a check of its own only when alone. */
        if ((sides[i] == MOXIE_BACKEND_REF && !both_ref) || (i == 1 && args->a == args->b))
            continue;
        moxie_check_report report = MOXIE_CHECK_REPORT_INIT;
        status = check_backend(args, sides[i], &report, &layer, &error);
        if (status != MOXIE_OK)
            break;
        right = right && report.worst_ratio <= 1;
        json_array_append_new(reports, json_report(backend_name(sides[i]), &report));
        if (!args->layer.json)
            print_report(backend_name(sides[i]), layer, &report);
    }
    if (status != MOXIE_OK) {
        json_decref(reports);
        return cli_fail("diff", args->layer.json, status, &error);
    }
    if (args->layer.json) {
        json_t *object = cli_json_begin("diff");
        json_object_update_new(object, json_pack("{s:I, s:s, s:s, s:b, s:o}", "layer", (json_int_t)layer, "a",
                                                 backend_name(args->a), "b", backend_name(args->b), "right", right,
                                                 "reports", reports));
        cli_json_end(object);
    } else {
        json_decref(reports);
    }
    return right ? CLI_OK : CLI_CHECK_FAILED;
}

int cmd_diff(int argc, char **argv)
{
    static const struct argp_child children[] = { { &cli_layer_argp, 0, NULL, 0 },
                                                  { &cli_tokens_argp, 0, NULL, 0 },
                                                  { 0 } };
    static const struct argp parser = {
        options, parse, "DIR", "Compare a back end with the oracle stage by stage, or two checkpoints.", children, 0, 0
    };
    arguments args = { .layer = { .layer = -1, .tokens = 16 }, .a = MOXIE_BACKEND_CPU, .b = MOXIE_BACKEND_REF };
    argp_parse(&parser, argc, argv, 0, NULL, &args);
    return args.against ? diff_weights(&args) : diff_backends(&args);
}
