/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_bench.c - `moxie bench`: times one layer, of a checkpoint or of a preset made up in memory, for several batch
 * sizes; beside each time the floor that this machine sets, from limits measured in the same minute.
 *
 *     layer -> limits -> copies prepared -> for each T: runs, limits again -> table or JSON, picture
 *
 * Other work on a machine moves its limits. So they are measured before and after every line, and the better of the
 * two makes the floor; with --limits FILE they are taken as they are.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum {
    OPT_PRESET = 256,
    OPT_FORMAT,
    OPT_EXPERTS,
    OPT_ACTS_OF,
    OPT_NO_SHARED,
    OPT_TOKENS,
    OPT_BACKEND,
    OPT_ROUTING,
    OPT_REPEATS,
    OPT_SEED,
    OPT_LIMITS,
    OPT_PLOT
};

static const struct argp_option options[] = {
    { NULL, 0, NULL, 0, "The layer comes from a checkpoint directory, or is made up in memory:", 1 },
    { "preset", OPT_PRESET, "NAME", 0, "a model of `moxie synth --list`", 1 },
    { "format", OPT_FORMAT, "NAME", 0, "number format of the preset (default: its first)", 1 },
    { "experts", OPT_EXPERTS, "N", 0, "only N experts of the preset", 1 },
    { "acts-of", OPT_ACTS_OF, "NAME", 0,
      "the preset's activations quantized as one of vLLM's scheme constructors does it: mxfp4_mxfp8, fp8_w8a8, ...",
      1 },
    { "no-shared", OPT_NO_SHARED, NULL, 0, "the preset without its shared expert: the routed experts alone", 1 },
    { NULL, 0, NULL, 0, "What is timed:", 2 },
    { "tokens", OPT_TOKENS, "LIST", 0, "batch sizes (default 1,8,64,512)", 2 },
    { "routing", OPT_ROUTING, "NAME", 0,
      "uniform (default), zipf, one-hot, skewed (an expert has six times the mean), or a file: topk_ids of a "
      "safetensors, or numbers as text",
      2 },
    { "repeats", OPT_REPEATS, "N", 0,
      "runs of each size, on a GPU launches of a graph of them (default: at least 5, and a second or so)", 2 },
    { "seed", OPT_SEED, "S", 0, "of weights, hidden states and routing (default 0)", 2 },
    { "backend", OPT_BACKEND, "NAME", 0, "cpu (default), ref, auto or cuda", 2 },
    { NULL, 0, NULL, 0, "What it is compared with, and shown as:", 4 },
    { "limits", OPT_LIMITS, "FILE", 0, "the machine's limits from FILE; measured and written when they are not there",
      4 },
    { "plot", OPT_PLOT, "FILE", 0, "draw the lines under the machine's roof: FILE.svg or FILE.png (needs gnuplot)", 4 },
    { 0 },
};

/* ---- arguments --------------------------------------------------------------------------------------- */

static void check_together(struct argp_state *state, const bench_arguments *args)
{
    if (!args->layer.dir == !args->preset)
        argp_error(state, "one layer is needed: a checkpoint's directory, or --preset NAME (`moxie synth --list`)");
    if (!args->preset && (args->format || args->experts || args->acts_of || args->no_shared))
        argp_error(state, "--format, --experts, --acts-of and --no-shared go with --preset; a checkpoint has its own");
    if (args->preset && args->layer.layer >= 0)
        argp_error(state, "--layer goes with a directory; the layers of a preset are alike");
    if (args->plot && !bench_plot_is_name(args->plot))
        argp_error(state, "--plot draws FILE.svg or FILE.png, not \"%s\"", args->plot);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    bench_arguments *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &args->layer; return 0;
    case OPT_PRESET: args->preset = arg; return 0;
    case OPT_FORMAT: args->format = arg; return 0;
    case OPT_EXPERTS: args->experts = cli_parse_int(state, "--experts", arg, 1, MOXIE_MAX_EXPERTS); return 0;
    case OPT_ACTS_OF: args->acts_of = arg; return 0;
    case OPT_NO_SHARED: args->no_shared = true; return 0;
    case OPT_TOKENS: cli_parse_sizes(state, "--tokens", arg, &args->tokens); return 0;
    case OPT_BACKEND: args->layer.backend = cli_parse_backend(state, arg); return 0;
    case OPT_ROUTING: args->routing = arg; return 0;
    case OPT_REPEATS: args->repeats = (int32_t)cli_parse_int(state, "--repeats", arg, 1, 100000); return 0;
    case OPT_SEED: args->seed = (uint64_t)cli_parse_int(state, "--seed", arg, 0, INT64_MAX); return 0;
    case OPT_LIMITS: args->limits_file = arg; return 0;
    case OPT_PLOT: args->plot = arg; return 0;
    case ARGP_KEY_END: check_together(state, args); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- a benchmark -------------------------------------------------------------------------------------- */

/* Activations of the routed experts as the options want them instead of as the format has them. */
static moxie_status choose_activations(const bench_arguments *args, moxie_layer_config *config, moxie_error *error)
{
    const moxie_scheme_args nothing = MOXIE_SCHEME_ARGS_INIT;
    moxie_scheme scheme;
    if (args->layer.activations == MOXIE_ACTIVATIONS_16BIT)
        config->a13 = config->a2 = config->shared.a13 = config->shared.a2 = (moxie_quant) { 0 };
    if (!args->acts_of)
        return MOXIE_OK;
    const moxie_status status = moxie_scheme_make(args->acts_of, &nothing, &scheme, error);
    if (status == MOXIE_OK) {
        config->a13 = scheme.a13;
        config->a2 = scheme.act2;
    }
    return status;
}

static moxie_status drop_shared(const bench_arguments *args, moxie_layer_config *config, moxie_error *error)
{
    if (!args->no_shared)
        return MOXIE_OK;
    if (config->shared.intermediate == 0)
        return cli_error(MOXIE_ERR_ARGUMENT, error, "", "preset %s has no shared expert: leave --no-shared out",
                         args->preset);
    config->shared = (moxie_shared_config) { 0 };
    return MOXIE_OK;
}

/* The routing of a preset is left out: ids are given, and its tables and biases are not there. */
static moxie_status open_preset(bench *b, moxie_error *error)
{
    const bench_arguments *args = b->args;
    moxie_layer_config *config = &b->model.config;
    *config = (moxie_layer_config)MOXIE_LAYER_CONFIG_INIT;
    moxie_status status = moxie_preset_config(args->preset, args->format, config, error);
    if (status != MOXIE_OK)
        return status;
    const int32_t on_input = config->routing.on_input;
    status = moxie_routing_by_name("renormalize", &config->routing, error);
    config->routing.on_input = on_input;
    config->router_width = config->router_has_bias = 0;
    if (args->experts)
        config->experts = args->experts;
    if (status == MOXIE_OK)
        status = choose_activations(args, config, error);
    if (status == MOXIE_OK)
        status = drop_shared(args, config, error);
    moxie_preset_info info;
    for (int32_t i = 0; moxie_preset_at(i, &info); i++)
        if (!strcmp(info.name, args->preset))
            snprintf(b->format, sizeof b->format, "%s", args->format ? args->format : info.formats[0]);
    if (status == MOXIE_OK)
        status = moxie_layer_config_check(config, error);
    if (status == MOXIE_OK)
        status = bench_weights_make(config, args->seed, &b->made_up, error);
    b->weights = &b->made_up.views;
    return status;
}

static moxie_status open_directory(bench *b, moxie_error *error)
{
    moxie_status status = cli_layer_open(&b->args->layer, &b->source, error);
    if (status != MOXIE_OK)
        return status;
    b->model.config = b->source.config;
    b->weights = b->source.weights;
    moxie_model_info model;
    moxie_model_layer_info info;
    moxie_model_get_info(b->source.model, &model);
    for (int64_t i = 0; i < model.n_layers; i++)
        if (moxie_model_describe_layer(b->source.model, i, &info, error) == MOXIE_OK && info.layer == b->source.index)
            snprintf(b->format, sizeof b->format, "%s", info.format);
    return MOXIE_OK;
}

static moxie_status open_layer(bench *b, moxie_error *error)
{
    const moxie_status status = b->args->preset ? open_preset(b, error) : open_directory(b, error);
    if (status != MOXIE_OK)
        return status;
    b->model.expert_bytes = bench_expert_bytes(&b->weights->experts[0]);
    b->model.shared_bytes = b->weights->shared ? bench_expert_bytes(b->weights->shared) : 0;
    return MOXIE_OK;
}

static moxie_status open_routing(bench *b, moxie_error *error)
{
    static const int64_t usual[] = { 1, 8, 64, 512 };
    const bench_arguments *args = b->args;
    int64_t most = 0;
    moxie_status status = bench_routing_open(args->routing, &b->model.config, args->seed, &b->routing, error);
    if (status != MOXIE_OK)
        return status;
    b->n_lines = args->tokens.count ? args->tokens.count : b->routing.file_tokens ? 1 : 4;
    for (int i = 0; i < b->n_lines; i++) {
        b->tokens[i] = args->tokens.count       ? args->tokens.at[i]
                       : b->routing.file_tokens ? b->routing.file_tokens
                                                : usual[i];
        most = b->tokens[i] > most ? b->tokens[i] : most;
    }
    return bench_routing_reserve(&b->routing, most, error);
}

static moxie_options options_of(const bench *b)
{
    const bench_arguments *args = b->args;
    moxie_options o = MOXIE_OPTIONS_INIT;
    o.backend = args->layer.backend;
    o.mode = args->layer.mode;
    o.isa = args->layer.isa;
    o.device = o.backend == MOXIE_BACKEND_CUDA ? args->layer.device : NULL;
    o.executor = b->executor;
    for (int i = 0; i < b->n_lines; i++)
        o.max_tokens = b->tokens[i] > o.max_tokens ? b->tokens[i] : o.max_tokens;
    return o;
}

/* What no kernel can run is refused before anything is measured or prepared. */
static moxie_status check_plan(const bench *b, uint64_t *workspace_bytes, moxie_error *error)
{
    const moxie_options o = options_of(b);
    moxie_plan *plan = NULL;
    const moxie_status status = moxie_plan_explain(&b->model.config, &o, &plan, error);
    if (status == MOXIE_OK)
        *workspace_bytes = moxie_plan_workspace_bytes(plan);
    moxie_plan_destroy(plan);
    return status;
}

static moxie_status prepare(bench *b, uint64_t workspace_bytes, moxie_error *error)
{
    const moxie_options o = options_of(b);
    const uint64_t available = b->backend->available(&b->args->layer, workspace_bytes);
    int32_t copies;
    moxie_status status = bench_model_copies(&b->model, &b->routing, b->tokens, b->n_lines, b->limits.found.cache_bytes,
                                             available, &copies, error);
    if (status == MOXIE_OK)
        status =
            bench_model_prepare(&b->model, copies, b->weights, &o, b->backend->on_host, b->args->layer.json, error);
    bench_weights_free(&b->made_up);
    if (status == MOXIE_OK)
        bench_plan_name(b->model.copy[0].plan, b->plan, sizeof b->plan);
    return status;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* `into` becomes the better of both, figure by figure. */
static void keep_better(moxie_limits *into, const moxie_limits *other)
{
    into->read_gb_s = larger(into->read_gb_s, other->read_gb_s);
    into->copy_gb_s = larger(into->copy_gb_s, other->copy_gb_s);
    into->l2_read_gb_s = larger(into->l2_read_gb_s, other->l2_read_gb_s);
    into->f32_tflop_s = larger(into->f32_tflop_s, other->f32_tflop_s);
    into->bf16_tflop_s = larger(into->bf16_tflop_s, other->bf16_tflop_s);
    into->int8_top_s = larger(into->int8_top_s, other->int8_top_s);
    into->fp8_tflop_s = larger(into->fp8_tflop_s, other->fp8_tflop_s);
    into->disturbed = into->disturbed < other->disturbed ? into->disturbed : other->disturbed;
}

/* Times one line and measures the limits again; *before are those measured last. */
static moxie_status time_line(bench *b, int i, moxie_limits *before, moxie_error *error)
{
    const bench_arguments *args = b->args;
    bench_line *line = &b->lines[i];
    moxie_limits after = MOXIE_LIMITS_INIT;
    moxie_status status = bench_line_time(b->backend, &b->model, &b->routing, b->tokens[i], args->repeats, args->seed,
                                          b->limits.found.cache_bytes, line, error);
    if (status == MOXIE_OK && !args->limits_file)
        status = cli_limits_measure(&b->device, &after, error);
    if (status != MOXIE_OK)
        return status;
    moxie_limits around = *before;
    if (!args->limits_file) {
        const double change = larger(after.read_gb_s, before->read_gb_s) / smaller(after.read_gb_s, before->read_gb_s);
        b->noise = larger(b->noise, change - 1);
        keep_better(&b->limits.found, &after);
        keep_better(&around, &after);
        *before = after;
    }
    bench_line_set_floor(line, &b->model.config, &around);
    return MOXIE_OK;
}

/* Large batches first: what a small one reads was then last read longer ago than the batch before is large. */
static moxie_status time_lines(bench *b, moxie_error *error)
{
    moxie_limits before = b->limits.found;
    moxie_status status = MOXIE_OK;
    cli_progress progress;
    cli_progress_begin(&progress, "run");
    progress.terminal = progress.terminal && !b->args->layer.json;
    for (int done = 0; done < b->n_lines && status == MOXIE_OK; done++) {
        int largest = -1;
        for (int i = 0; i < b->n_lines; i++)
            if (b->lines[i].repeats == 0 && (largest < 0 || b->tokens[i] > b->tokens[largest]))
                largest = i;
        cli_progress_show(&progress, (uint64_t)done, (uint64_t)b->n_lines);
        status = time_line(b, largest, &before, error);
    }
    cli_progress_end(&progress);
    return status;
}

/* Over the best of all measurements, as the lines' own floors are: FP8's where operations count as such. */
static moxie_status draw_plot(const bench *b, moxie_error *error)
{
    const moxie_limits *limits = &b->limits.found;
    const bool fp8 = b->lines[0].fp8_tflop_s > 0;
    const bench_roof roof = { fp8 ? "fp8" : "bf16", limits->read_gb_s,
                              fp8 ? limits->fp8_tflop_s : limits->bf16_tflop_s };
    char title[256], subtitle[256];
    bench_titles(b, title, subtitle, sizeof title);
    return bench_plot_write(b->args->plot, title, subtitle, b->lines, b->n_lines, &roof, error);
}

static moxie_status run_bench(bench *b, moxie_error *error)
{
    const bench_arguments *args = b->args;
    uint64_t workspace_bytes = 0;
    moxie_status status = args->plot ? bench_plot_find(error) : MOXIE_OK;
    if (status == MOXIE_OK && args->plot)
        status = moxie_file_check_output(args->plot, error);
    if (status == MOXIE_OK)
        status = moxie_machine_info(&b->machine, error);
    if (status == MOXIE_OK)
        status = open_layer(b, error);
    if (status == MOXIE_OK)
        status = open_routing(b, error);
    if (status == MOXIE_OK)
        status = moxie_executor_create(args->layer.threads, &b->executor, error);
    if (status == MOXIE_OK)
        status = check_plan(b, &workspace_bytes, error);
    if (status == MOXIE_OK)
        status = b->backend->limits_of(&args->layer, b->executor, &b->device, error);
    if (status == MOXIE_OK)
        status = cli_limits_get(args->limits_file, &b->device, &b->limits, error);
    if (status == MOXIE_OK)
        status = prepare(b, workspace_bytes, error);
    if (status == MOXIE_OK)
        status = time_lines(b, error);
    if (status == MOXIE_OK && args->plot)
        status = draw_plot(b, error);
    return status;
}

int cmd_bench(int argc, char **argv)
{
    static const struct argp_child children[] = { { &cli_layer_argp, 0, "The layer and the plan:", 3 }, { 0 } };
    static const struct argp parser = {
        options, parse, "DIR\n--preset NAME", "Time one layer beside the floor that this machine sets.", children, 0, 0
    };
    bench_arguments args = { .layer = { .layer = -1, .backend = MOXIE_BACKEND_CPU }, .routing = "uniform" };
    argp_parse(&parser, argc, argv, 0, NULL, &args);

    moxie_error error = { 0 };
    static bench b; /* large */
    b = (bench) { .args = &args,
                  .machine = MOXIE_MACHINE_INIT,
                  .backend = args.layer.backend == MOXIE_BACKEND_CUDA ? &bench_on_cuda : &bench_on_cpu };
    const moxie_status status = run_bench(&b, &error);
    int code = CLI_OK;
    if (status != MOXIE_OK)
        code = cli_fail("bench", args.layer.json, status, &error);
    else if (args.layer.json)
        bench_print_json(&b);
    else
        bench_print_text(&b);
    bench_model_free(&b.model);
    bench_weights_free(&b.made_up);
    bench_routing_free(&b.routing);
    moxie_executor_destroy(b.executor);
    cli_layer_close(&b.source);
    return code;
}
