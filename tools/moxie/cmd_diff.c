/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_diff.c - `moxie diff DIR --layer L --a BACKEND --b BACKEND`: is a back end right?
 *
 * Every stage of a back end's run is compared with the oracle, element by element, from the same rounded inputs. The
 * report has the worst element (its expert, token and block, and the error relative to its bound), and the errors of
 * all elements next to their bounds. With `ref` on one side the other back end is checked; with two back ends, both.
 * Then the outputs of the two whole runs are compared. --against DIR2 compares the weights of two checkpoints instead.
 * --ranks N compares N ranks with one instead (diff_ranks.c), --budget-ram a store with all experts in memory
 * (diff_store.c).
 * Exit code 1 when an error exceeds its bound or weights differ.
 */
#include "cli_disk.h"
#include "cli_store.h"
#include "diff_ranks.h"
#include "diff_store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    cli_layer_options layer;
    const char *against;
    int32_t a, b;
    uint64_t seed;
    cli_states states;
    const char *for_running; /* an option that was given and only matters when the layer runs */
    cli_ranks_options ranks;
    bool has_b; /* --b was given */
} arguments;

enum { OPT_A = 256, OPT_B, OPT_SEED, OPT_STATES, OPT_AGAINST };

static const struct argp_option options[] = {
    { "a", OPT_A, "BACKEND", 0, "ref, cpu or cuda (default cpu)", 0 },
    { "b", OPT_B, "BACKEND", 0, "ref, cpu or cuda (default ref)", 0 },
    { "seed", OPT_SEED, "S", 0, "of the random hidden states (default 0; 16 tokens unless --tokens)", 0 },
    { "states", OPT_STATES, "NAME", 0, CLI_STATES_HELP, 0 },
    { "against", OPT_AGAINST, "DIR2", 0, "compare the weights of this layer in two checkpoints", 0 },
    { 0 },
};

static int32_t parse_side(struct argp_state *state, const char *text)
{
    static const char *const fixed[] = { "ref", "cpu", "cuda", NULL };
    static const cli_names names = { .kind = "back end to compare", .fixed = fixed };
    static const int32_t sides[] = { MOXIE_BACKEND_REF, MOXIE_BACKEND_CPU, MOXIE_BACKEND_CUDA };
    const int32_t place = cli_parse_name(state, &names, text);
    return sides[place < 0 ? 0 : place];
}

static void check_combination(struct argp_state *state, arguments *args)
{
    const bool many = cli_ranks_asked(&args->ranks);
    const char *how = cli_layer_how(&args->layer);
    const char *running = args->layer.tokens >= 0 ? "--tokens" : many ? "--ranks" : how ? how : args->for_running;
    if (!args->layer.dir)
        argp_error(
            state,
            "the checkpoint's directory is needed, and none is given; a preset has one when `moxie synth` wrote it");
    if (args->against && running)
        argp_error(state,
                   "--against compares weights and runs nothing, and %s is for running: leave one of the two out",
                   running);
    if (args->ranks.comm == CLI_COMM_MPI)
        argp_error(state, "--comm mpi is for `moxie run`, whose processes are the ranks: give --ranks N alone");
    if (many && args->has_b)
        argp_error(state, "--ranks compares ranks with one rank of the same back end, --a: leave --b out");
    if (args->layer.where)
        argp_error(state, "--cpu-experts gives bits that depend on which experts lie on the GPU, so no bytes "
                          "can be compared: check each processor with --a cuda on DIR and --a cpu on DIR2");
    if (args->layer.budget_gpu && args->a == MOXIE_BACKEND_CPU) /* the default */
        args->a = MOXIE_BACKEND_CUDA;
    if (args->layer.device && args->a != MOXIE_BACKEND_CUDA && args->b != MOXIE_BACKEND_CUDA)
        argp_error(state, "--device chooses a GPU, and neither side is cuda: give --a cuda");
    args->layer.backend = args->a;
    if (args->a == MOXIE_BACKEND_REF && (many || args->layer.budget_ram || args->b == MOXIE_BACKEND_REF))
        cli_check_oracle(state, &args->layer);
    cli_store_check(state, &args->layer, args->against ? "--against" : many ? "--ranks" : args->has_b ? "--b" : NULL);
    if (args->b != MOXIE_BACKEND_CPU)
        cli_check_gpu(state, &args->layer);
    if (args->layer.tokens < 0)
        args->layer.tokens = 16;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = state->child_inputs[1] = &args->layer;
        state->child_inputs[2] = &args->ranks;
        state->child_inputs[3] = state->child_inputs[4] = &args->layer;
        return 0;
    case OPT_A:
        args->a = parse_side(state, arg);
        args->for_running = "--a";
        return 0;
    case OPT_B:
        args->b = parse_side(state, arg);
        args->for_running = "--b";
        args->has_b = true;
        return 0;
    case OPT_SEED:
        args->seed = (uint64_t)cli_parse_int(state, "--seed", arg, 0, INT64_MAX);
        args->for_running = "--seed";
        return 0;
    case OPT_STATES:
        args->states = cli_parse_states(state, arg);
        args->for_running = "--states";
        return 0;
    case OPT_AGAINST: args->against = arg; return 0;
    case ARGP_KEY_END: check_combination(state, args); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- two checkpoints ---------------------------------------------------------------------------- */

static int report_difference(const arguments *args, int64_t layer, const moxie_weights_difference *d)
{
    const bool equal = !d->count;
    if (args->layer.json) {
        json_t *object = cli_json_begin("diff");
        cli_json_merge(object, cli_pack("{s:I, s:s, s:s, s:b, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "layer",
                                        (json_int_t)layer, "a", cli_utf8(args->layer.dir), "b", cli_utf8(args->against),
                                        "equal", equal, "expert", (json_int_t)d->expert, "projection",
                                        equal ? "" : d->projection, "part", equal ? "" : d->part, "row",
                                        (json_int_t)d->row, "column", (json_int_t)d->column, "row_block",
                                        (json_int_t)d->row_block, "column_block", (json_int_t)d->column_block,
                                        "elements", (json_int_t)d->count, "experts", (json_int_t)d->experts));
        cli_json_end(object);
    } else if (equal) {
        printf("layer %lld: the weights are equal\n", (long long)layer);
    } else {
        printf("layer %lld: %lld %s of %lld %s; first: ", (long long)layer, CLI_COUNT(d->count, "element"),
               CLI_COUNT_OF(d->experts, "expert differs", "experts differ"));
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
    moxie_weights_difference difference = MOXIE_WEIGHTS_DIFFERENCE_INIT;
    cli_layer_options second = args->layer;
    second.dir = args->against;
    moxie_status status = cli_layer_open(&args->layer, &a, &error);
    if (status == MOXIE_OK)
        status = cli_layer_open(&second, &b, &error);
    if (status == MOXIE_OK)
        status = cli_layer_need_weights(&a, &error);
    if (status == MOXIE_OK)
        status = cli_layer_need_weights(&b, &error);
    if (status == MOXIE_OK)
        status = moxie_weights_compare(&a.config, a.weights, b.weights, &difference, &error);
    if (status == MOXIE_ERR_MISMATCH && !error.file[0]) {
        const moxie_error why = error;
        cli_error(status, &error, args->against, "%.600s; give the checkpoint of a layer of the same sizes and format",
                  why.text);
    }
    const int code = status == MOXIE_OK ? report_difference(args, a.index, &difference)
                                        : cli_fail("diff", args->layer.json, status, &error);
    cli_layer_close(&a);
    cli_layer_close(&b);
    return code;
}

/* ---- a back end against the oracle -------------------------------------------------------------- */

/* One back end's run. */
typedef struct side {
    int32_t backend;
    bool checked;
    moxie_check_report *report; /* when checked */
    moxie_layer_config config;
    int64_t layer;
    void *output;   /* [T,H], config.dtype */
    int32_t *ids;   /* [T,K] */
    float *weights; /* [T,K] */
    json_t *steps;  /* of its plan */
} side;

static void free_side(side *s)
{
    moxie_check_report_destroy(s->report);
    free(s->output);
    free(s->ids);
    free(s->weights);
    json_decref(s->steps);
}

static moxie_status run_prepared(cli_layer *layer, const cli_input *input, side *out, moxie_error *error)
{
    const size_t tokens = (size_t)input->tokens, choices = tokens * (size_t)layer->config.top_k;
    moxie_run_args run = MOXIE_RUN_ARGS_INIT;
    run.workspace_bytes = moxie_plan_workspace_bytes(layer->plan);
    void *workspace = run.workspace = aligned_alloc(64, (run.workspace_bytes + 127) / 64 * 64);
    run.output = out->output = calloc(tokens * (size_t)layer->config.hidden + 1, 4);
    run.ids_out = out->ids = calloc(choices + 1, sizeof *out->ids);
    run.weights_out = out->weights = calloc(choices + 1, sizeof *out->weights);
    out->steps = cli_steps_json(layer->plan);
    cli_input_args(input, &run);
    moxie_status status;
    if (!workspace || !out->output || !out->ids || !out->weights)
        status = cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for %lld %s and a workspace of %llu bytes",
                           CLI_COUNT(input->tokens, "token"), (unsigned long long)run.workspace_bytes);
    else if (out->checked)
        status = moxie_plan_check(layer->plan, layer->weights, &run, &out->report, error);
    else
        status = moxie_plan_run(layer->plan, &run, error);
    free(workspace);
    return status;
}

/* Set `backend` and `checked` of `out` before; call free_side() in any case. */
static moxie_status run_side(const arguments *args, side *out, moxie_error *error)
{
    cli_layer_options options_of_side = args->layer;
    options_of_side.backend = out->backend;
    cli_layer layer = { 0 };
    cli_input input = { 0 };
    moxie_status status = cli_layer_open(&options_of_side, &layer, error);
    if (status == MOXIE_OK)
        status = cli_layer_need_weights(&layer, error);
    if (status == MOXIE_OK)
        status = cli_input_random(&layer.config, args->layer.tokens, args->seed, args->states, &input, error);
    if (status == MOXIE_OK)
        status = cli_layer_prepare(&options_of_side, &layer, error);
    if (status == MOXIE_OK)
        status = run_prepared(&layer, &input, out, error);
    out->config = layer.config;
    out->layer = layer.index;
    cli_input_free(&input);
    cli_layer_close(&layer);
    return status;
}

static const char *backend_name(int32_t backend)
{
    static const char *const names[] = { "auto", "ref", "cpu", "cuda" };
    return names[backend];
}

/* ---- outputs of both ----------------------------------------------------------------------------- */

/* Leaves out tokens whose two routings differ, which near ties allow. */
typedef struct outputs_report {
    double difference; /* ||a - b|| / ||b|| */
    int64_t tokens, chose_otherwise;
} outputs_report;

static double element_of(const side *s, int64_t i)
{
    const size_t width = s->config.dtype == MOXIE_F32 ? 4 : 2;
    uint32_t code = 0;
    memcpy(&code, (const char *)s->output + (size_t)i * width, width);
    return moxie_decode(s->config.dtype, code);
}

static outputs_report compare_outputs(const side *a, const side *b, int64_t tokens)
{
    const int64_t hidden = a->config.hidden, top_k = a->config.top_k;
    outputs_report report = { .tokens = tokens };
    double error = 0, size = 0;
    for (int64_t t = 0; t < tokens; t++) {
        if (memcmp(a->ids + t * top_k, b->ids + t * top_k, (size_t)top_k * sizeof *a->ids)) {
            report.chose_otherwise++;
            continue;
        }
        for (int64_t i = t * hidden; i < (t + 1) * hidden; i++) {
            const double got = element_of(a, i), want = element_of(b, i);
            if (!isfinite(want) && (got == want || isnan(got)))
                continue;
            error += (got - want) * (got - want);
            size += want * want;
        }
    }
    report.difference = error == 0 ? 0 : sqrt(error / size);
    return report;
}

/* ---- reports ------------------------------------------------------------------------------------- */

static double share(double of, double all)
{
    return all > 0 ? of / all : 0;
}

static void print_report(const char *backend, int64_t layer, const moxie_check_report *report)
{
    static const char *const headings[] = { "stage",        ">elements", ">beyond", ">rms error", ">rms bound",
                                            ">worst/bound", ">got",      ">want",   ">bound",     ">token",
                                            ">slot",        ">expert",   ">column", ">block" };
    printf("layer %lld, %s against the oracle:\n", (long long)layer, backend);
    cli_table table;
    cli_table_begin(&table, 14, headings);
    const moxie_stage_report *s;
    for (int32_t i = 0; (s = moxie_check_report_stage_at(report, i)) != NULL; i++) {
        cli_table_add(&table, "%s", s->stage);
        cli_table_add(&table, "%lld", (long long)s->elements);
        cli_table_add(&table, "%lld", (long long)s->beyond);
        cli_table_add(&table, "%.1e", share(s->rms_error, s->rms_want));
        cli_table_add(&table, "%.1e", share(s->rms_bound, s->rms_want));
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
    const double worst = moxie_check_report_worst(report);
    printf("%s: the worst error is %.4f of its bound\n", worst <= 1 ? "right" : "WRONG", worst);
}

/* JSON has no infinity. */
static json_t *json_finite(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *json_report(const side *checked)
{
    const double worst = moxie_check_report_worst(checked->report);
    const moxie_stage_report *s;
    json_t *stages = json_array();
    for (int32_t i = 0; (s = moxie_check_report_stage_at(checked->report, i)) != NULL; i++) {
        cli_json_append(stages,
                        cli_pack("{s:s, s:I, s:I, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "stage",
                                 s->stage, "elements", (json_int_t)s->elements, "beyond", (json_int_t)s->beyond,
                                 "rms_error", s->rms_error, "rms_want", s->rms_want, "rms_bound", s->rms_bound,
                                 "worst_ratio", json_finite(s->worst_ratio), "got", json_finite(s->got), "want",
                                 json_finite(s->want), "bound", json_finite(s->bound), "token", (json_int_t)s->token,
                                 "slot", (json_int_t)s->slot, "expert", (json_int_t)s->expert, "column",
                                 (json_int_t)s->column, "column_block", (json_int_t)s->column_block));
    }
    return cli_pack("{s:s, s:b, s:o, s:O, s:o}", "backend", backend_name(checked->backend), "right", worst <= 1,
                    "worst_ratio", json_finite(worst), "steps", checked->steps, "stages", stages);
}

static void print_text(const side sides[2], const outputs_report *outputs)
{
    for (int i = 0; i < 2; i++)
        if (sides[i].checked)
            print_report(backend_name(sides[i].backend), sides[i].layer, sides[i].report);
    if (outputs)
        printf("outputs of %s and %s differ by %.1e (root mean square over that of %s); %lld of %lld %s chose other "
               "experts and are left out\n",
               backend_name(sides[0].backend), backend_name(sides[1].backend), outputs->difference,
               backend_name(sides[1].backend), (long long)outputs->chose_otherwise,
               CLI_COUNT(outputs->tokens, "token"));
}

static void print_json(const side sides[2], const outputs_report *outputs, bool right)
{
    json_t *reports = json_array(), *object = cli_json_begin("diff");
    for (int i = 0; i < 2; i++)
        if (sides[i].checked)
            cli_json_append(reports, json_report(&sides[i]));
    cli_json_merge(object,
                   cli_pack("{s:I, s:s, s:s, s:b, s:o, s:o}", "layer", (json_int_t)sides[0].layer, "a",
                            backend_name(sides[0].backend), "b", backend_name(sides[1].backend), "right", right,
                            "reports", reports, "outputs",
                            outputs ? cli_pack("{s:o, s:I, s:I}", "difference", json_finite(outputs->difference),
                                               "tokens", (json_int_t)outputs->tokens, "chose_otherwise",
                                               (json_int_t)outputs->chose_otherwise)
                                    : json_null()));
    cli_json_end(object);
}

/* A side `ref` is the oracle and need not be checked, unless both sides are. */
static int diff_backends(const arguments *args)
{
    const bool alone = args->a == args->b;
    side sides[2] = { { .backend = args->a }, { .backend = args->b } };
    moxie_error error = { 0 };
    moxie_status status = MOXIE_OK;
    bool right = true;
    for (int i = 0; i < (alone ? 1 : 2) && status == MOXIE_OK; i++) {
        sides[i].checked = alone || sides[i].backend != MOXIE_BACKEND_REF;
        status = run_side(args, &sides[i], &error);
        right = right && (!sides[i].report || moxie_check_report_worst(sides[i].report) <= 1);
    }
    if (status == MOXIE_OK) {
        const outputs_report outputs =
            alone ? (outputs_report) { 0 } : compare_outputs(&sides[0], &sides[1], args->layer.tokens);
        if (args->layer.json)
            print_json(sides, alone ? NULL : &outputs, right);
        else
            print_text(sides, alone ? NULL : &outputs);
    }
    free_side(&sides[0]);
    free_side(&sides[1]);
    if (status != MOXIE_OK)
        return cli_fail("diff", args->layer.json, status, &error);
    return right ? CLI_OK : CLI_CHECK_FAILED;
}

int cmd_diff(int argc, char **argv)
{
    static const struct argp_child children[] = { { &cli_layer_argp, 0, NULL, 0 },
                                                  { &cli_tokens_argp, 0, NULL, 0 },
                                                  { &cli_comm_argp, 0, "N ranks against one, byte by byte:", 1 },
                                                  { &cli_load_argp, 0, "Expert files (docs/expert-file.md):", 2 },
                                                  { &cli_store_argp, 0,
                                                    "A store against all experts in memory, byte by byte:", 3 },
                                                  { 0 } };
    static const struct argp parser = {
        options,  parse,
        "DIR",    "Compare a back end with the oracle stage by stage, many ranks with one, or two checkpoints.",
        children, 0,
        0
    };
    arguments args = { .layer = { .command = "diff", .layer = -1, .tokens = -1 },
                       .a = MOXIE_BACKEND_CPU,
                       .b = MOXIE_BACKEND_REF };
    cli_parse(&parser, argc, argv, &args);
    if (cli_ranks_asked(&args.ranks)) {
        diff_ranks_arguments many = { args.layer, args.ranks, args.seed, args.states };
        many.layer.backend = args.a;
        return diff_ranks(&many);
    }
    if (args.layer.budget_ram) {
        args.layer.backend = args.a;
        return diff_store(&args.layer, args.seed, args.states);
    }
    return args.against ? diff_weights(&args) : diff_backends(&args);
}
