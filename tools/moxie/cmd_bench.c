/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_bench.c - `moxie bench`: times one layer, of a checkpoint or of a preset made up in memory, for several batch
 * sizes. Each time is compared with the floor that this machine sets, from limits measured in the same minute.
 *
 *     layer -> limits -> copies prepared -> for each T: runs, limits again -> table or JSON, picture
 *
 * Other work on a machine moves its limits. So they are measured before and after every line, and the better of the
 * two makes the floor; with --limits FILE they are read from the file (bench_limits.c).
 */
#include "bench_ranks.h"
#include "bench_store.h"
#include "cli_disk.h"
#include "cli_store.h"

#include <moxie/moxie_comm.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OPT_TOKENS = 256,
    OPT_BACKEND,
    OPT_ROUTING,
    OPT_REPEATS,
    OPT_SEED,
    OPT_LIMITS,
    OPT_PLOT,
    OPT_RANKS,
    OPT_LINK_GB_S,
    OPT_LINK_US,
    OPT_TRACE,
    OPT_ADAPTERS,
    OPT_ADAPTER_RANK,
    OPT_LOOKAHEAD,
    OPT_PHASES
};

static const struct argp_option options[] = {
    { NULL, 0, NULL, 0, "What is timed:", 2 },
    { "tokens", OPT_TOKENS, "LIST", 0, "batch sizes (default 1,8,64,512)", 2 },
    { "routing", OPT_ROUTING, "NAME", 0,
      "uniform (default), zipf, one-hot, skewed (an expert has six times the mean), or a file: a trace, topk_ids of a "
      "safetensors, or numbers as text",
      2 },
    { "trace", OPT_TRACE, "FILE", 0, "the routing of real tokens: a file as for --routing; of a trace, layer L", 2 },
    { "repeats", OPT_REPEATS, "N", 0,
      "runs of each size, on a GPU launches of a graph of them (default: at least 5, and a second or so)", 2 },
    { "seed", OPT_SEED, "S", 0, "of weights, hidden states and routing (default 0)", 2 },
    { "backend", OPT_BACKEND, "NAME", 0, "cpu (default), ref, auto or cuda", 2 },
    { "adapters", OPT_ADAPTERS, "N", 0, "tokens have LoRA adapters, each one of N in turn (default 0: none)", 2 },
    { "adapter-rank", OPT_ADAPTER_RANK, "R", 0, "the rank of these adapters (default 16)", 2 },
    { NULL, 0, NULL, 0, "What it is compared with, and how it is drawn:", 4 },
    { "limits", OPT_LIMITS, "FILE", 0, "the machine's limits from FILE; measured and written when they are not there",
      4 },
    { "plot", OPT_PLOT, "FILE", 0, "draw the lines under the machine's roof: FILE.svg or FILE.png (needs gnuplot)", 4 },
    { "phases", OPT_PHASES, NULL, 0, "where the time went: gather, w13, w2, combine, idle, ... over the workers", 4 },
    { NULL, 0, NULL, 0, "Many ranks on paper, from products measured here (docs/bench.md):", 5 },
    { "simulate-ranks", OPT_RANKS, "LIST", 0,
      "a step on so many expert parallel ranks: 8,64 or 8..512, doubled; --tokens are each rank's (default 64)", 5 },
    { "link-gb-s", OPT_LINK_GB_S, "B", 0, "GB/s of a rank's link, in each direction", 5 },
    { "link-us", OPT_LINK_US, "L", 0, "microseconds that a message costs besides its bytes", 5 },
    { 0 },
};

static const struct argp_option store_options[] = {
    { "lookahead", OPT_LOOKAHEAD, NULL, 0,
      "with --budget-ram: prefetch the experts that the trace has for the next layer", 0 },
    { 0 },
};

/* ---- arguments --------------------------------------------------------------------------------------- */

/* A name, or a file; otherwise probably a mistyped name. */
static const char *parse_routing(struct argp_state *state, const char *text)
{
    const char *nearest = cli_nearest(&bench_routing_names, text);
    if (cli_find_name(&bench_routing_names, text) < 0 && nearest && access(text, F_OK) != 0)
        argp_error(state, "\"%s\" is neither a routing nor a file: did you mean %s?", cli_printable(text), nearest);
    return text;
}

/* A list, or LOW..HIGH: LOW, 2 LOW, 4 LOW, ... up to HIGH. */
static void parse_ranks(struct argp_state *state, const char *text, cli_sizes *out)
{
    static const char option[] = "--simulate-ranks";
    const char *dots = strstr(text, "..");
    char low[16];
    if (!dots) {
        cli_parse_sizes(state, option, text, out);
    } else {
        snprintf(low, sizeof low, "%.*s", (int)(dots - text), text);
        const int64_t high = cli_parse_int(state, option, dots + 2, 1, MOXIE_MAX_RANKS);
        int64_t ranks = cli_parse_int(state, option, low, 1, MOXIE_MAX_RANKS);
        if (ranks > high)
            argp_error(state, "%s %s: the first number must not be above the second", option, cli_printable(text));
        for (out->count = 0; ranks <= high; ranks *= 2)
            out->at[out->count++] = ranks;
    }
    if (cli_largest_size(out) > MOXIE_MAX_RANKS)
        argp_error(state, "%s: at most %d ranks can be simulated", option, MOXIE_MAX_RANKS);
}

static void check_simulation(struct argp_state *state, const bench_arguments *args)
{
    const bool link = args->link_gb_s >= 0 || args->link_us >= 0;
    if (args->ranks.count == 0) {
        if (link)
            argp_error(state, "--link-gb-s and --link-us go with --simulate-ranks");
        return;
    }
    if (args->link_gb_s < 0 || args->link_us < 0)
        argp_error(state, "--simulate-ranks needs --link-gb-s and --link-us: what is the link between the ranks?");
    if (args->plot)
        argp_error(state, "--plot draws lines that were timed; it does not go with --simulate-ranks");
}

static void choose_routing(struct argp_state *state, bench_arguments *args)
{
    if (args->trace && args->routing)
        argp_error(state, "--trace FILE is the routing, and --routing names another: leave one of the two out");
    args->routing = args->trace ? args->trace : args->routing ? args->routing : "uniform";
}

static void check_adapters(struct argp_state *state, bench_arguments *args)
{
    if (args->adapter_rank && !args->adapters)
        argp_error(state, "--adapter-rank goes with --adapters: how many adapters?");
    if (args->adapters && (args->ranks.count > 0 || cli_ranks_asked(&args->local)))
        argp_error(state, "--adapters are timed on one rank: leave %s out",
                   args->ranks.count > 0 ? "--simulate-ranks" : "--ranks");
    if (args->adapters && !args->adapter_rank)
        args->adapter_rank = 16;
}

static void check_store(struct argp_state *state, bench_arguments *args)
{
    cli_store_check(state, &args->layer,
                    args->preset.name               ? "--preset"
                    : args->ranks.count > 0         ? "--simulate-ranks"
                    : cli_ranks_asked(&args->local) ? "--ranks"
                    : args->adapters                ? "--adapters"
                    : args->tokens.count            ? "--tokens, since the trace has the steps"
                    : args->plot                    ? "--plot"
                    : args->phases                  ? "--phases"
                    : args->repeats                 ? "--repeats, since the trace is replayed once"
                    : args->limits_file             ? "--limits"
                    : args->layer.numa              ? "--numa, since its threads are not pinned"
                                                    : NULL);
    if (args->layer.budget_ram && !args->trace)
        argp_error(state, "--budget-ram replays a trace: give --trace FILE (`moxie trace record` makes one)");
    if (args->lookahead && !args->layer.budget_ram)
        argp_error(state, "--lookahead goes with --budget-ram");
    if (args->lookahead && args->layer.budget_gpu)
        argp_error(state, "--lookahead does not go with --budget-gpu yet: leave one of the two out");
}

static void check_phases(struct argp_state *state, const bench_arguments *args)
{
    if (args->phases && (args->ranks.count > 0 || cli_ranks_asked(&args->local)))
        argp_error(state, "--phases are of one rank: leave %s out%s",
                   args->ranks.count > 0 ? "--simulate-ranks" : "--ranks",
                   args->ranks.count > 0 ? "" : " (its --json has the phases of the ranks)");
    if (args->phases && args->layer.backend == MOXIE_BACKEND_CUDA)
        argp_error(state,
                   "--phases are read from the clocks of the workers, and a GPU has none: leave --backend cuda out");
}

static void check_threads(struct argp_state *state, const bench_arguments *args)
{
    if (args->layer.thread_counts.count > 0 && args->layer.budget_ram)
        argp_error(state, "--threads takes one number with --budget-ram: a trace is replayed once");
    if (args->layer.thread_counts.count > 0 && (args->ranks.count > 0 || cli_ranks_asked(&args->local)))
        argp_error(state, "--threads takes one number with %s: a list is for one rank",
                   args->ranks.count > 0 ? "--simulate-ranks" : "--ranks");
    if (args->layer.thread_counts.count > 0 && args->layer.backend == MOXIE_BACKEND_CUDA)
        argp_error(state, "--threads takes one number with --backend cuda: a GPU's speed does not depend on it");
}

static error_t parse_store(int key, char *arg, struct argp_state *state)
{
    bench_arguments *args = state->input;
    (void)arg;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &args->layer; return 0;
    case OPT_LOOKAHEAD: args->lookahead = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child store_children[] = { { &cli_store_argp, 0, NULL, 0 }, { 0 } };
static const struct argp store_argp = { store_options, parse_store, NULL, NULL, store_children, NULL, NULL };

static error_t parse(int key, char *arg, struct argp_state *state)
{
    bench_arguments *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->preset;
        state->child_inputs[1] = &args->layer;
        state->child_inputs[2] = &args->local;
        state->child_inputs[3] = &args->layer;
        state->child_inputs[4] = args;
        return 0;
    case OPT_TOKENS: cli_parse_sizes(state, "--tokens", arg, &args->tokens); return 0;
    case OPT_BACKEND: args->layer.backend = cli_parse_backend(state, arg); return 0;
    case OPT_ROUTING: args->routing = parse_routing(state, arg); return 0;
    case OPT_REPEATS: args->repeats = (int32_t)cli_parse_int(state, "--repeats", arg, 1, 100000); return 0;
    case OPT_SEED: args->seed = (uint64_t)cli_parse_int(state, "--seed", arg, 0, INT64_MAX); return 0;
    case OPT_LIMITS: args->limits_file = arg; return 0;
    case OPT_PLOT:
        args->plot = arg;
        if (!bench_plot_is_name(arg))
            argp_error(state, "--plot draws FILE.svg or FILE.png, not \"%s\"", cli_printable(arg));
        return 0;
    case OPT_RANKS: parse_ranks(state, arg, &args->ranks); return 0;
    case OPT_LINK_GB_S: args->link_gb_s = cli_parse_real(state, "--link-gb-s", arg, false); return 0;
    case OPT_LINK_US: args->link_us = cli_parse_real(state, "--link-us", arg, true); return 0;
    case OPT_TRACE: args->trace = arg; return 0;
    case OPT_PHASES: args->phases = true; return 0;
    case OPT_ADAPTERS:
        args->adapters = (int32_t)cli_parse_int(state, "--adapters", arg, 0, MOXIE_MAX_ADAPTERS);
        return 0;
    case OPT_ADAPTER_RANK:
        args->adapter_rank = (int32_t)cli_parse_int(state, "--adapter-rank", arg, 1, MOXIE_MAX_ADAPTER_RANK);
        return 0;
    case ARGP_KEY_END:
        preset_check(state, &args->preset, &args->layer);
        check_simulation(state, args);
        choose_routing(state, args);
        bench_ranks_check(state, args);
        check_adapters(state, args);
        check_store(state, args);
        cli_check_gpu(state, &args->layer);
        check_phases(state, args);
        check_threads(state, args);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- a benchmark -------------------------------------------------------------------------------------- */

/* Leaves out the routing of a preset: ids are given, and its tables and biases do not exist. */
static moxie_status open_preset(bench *b, moxie_error *error)
{
    const bench_arguments *args = b->args;
    moxie_layer_config *config = &b->model.config;
    moxie_status status = preset_config(&args->preset, &args->layer, config, error);
    if (status != MOXIE_OK)
        return status;
    const int32_t on_input = config->routing.on_input;
    status = moxie_routing_by_name("renormalize", &config->routing, error);
    config->routing.on_input = on_input;
    config->router_width = config->router_has_bias = 0;
    snprintf(b->format, sizeof b->format, "%s", preset_format(&args->preset));
    if (status == MOXIE_OK)
        status = moxie_layer_config_check(config, error);
    if (status == MOXIE_OK)
        status = made_weights_make(config, args->seed, &b->made_up, error);
    b->weights = &b->made_up.views;
    return status;
}

/* Copies on a GPU are copies of an expert file's records. On the host all would be views of one mapping. */
static bool reads_records(const bench *b)
{
    return b->source.file && !b->backend->on_host;
}

static moxie_status open_directory(bench *b, moxie_error *error)
{
    moxie_status status = cli_layer_open(&b->args->layer, &b->source, error);
    if (status == MOXIE_OK)
        status = reads_records(b) ? cli_layer_need_all_weights(&b->source, error)
                                  : cli_layer_unpack("bench", &b->source, error);
    if (status != MOXIE_OK)
        return status;
    b->model.config = b->source.config;
    b->weights = b->source.weights;
    moxie_model_info model = MOXIE_MODEL_INFO_INIT;
    moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
    if (b->source.file) {
        moxie_expert_file_info file = MOXIE_EXPERT_FILE_INFO_INIT;
        moxie_expert_file_get_info(b->source.file, &file, NULL);
        snprintf(b->format, sizeof b->format, "%s", file.target);
        return MOXIE_OK;
    }
    moxie_model_get_info(b->source.model, &model, NULL);
    for (int64_t i = 0; i < model.n_layers; i++)
        if (moxie_model_describe_layer(b->source.model, i, &info, error) == MOXIE_OK && info.layer == b->source.index)
            snprintf(b->format, sizeof b->format, "%s", info.format);
    return MOXIE_OK;
}

static moxie_status open_layer(bench *b, moxie_error *error)
{
    const moxie_status status = b->args->preset.name ? open_preset(b, error) : open_directory(b, error);
    if (status != MOXIE_OK)
        return status;
    b->model.expert_bytes = made_expert_bytes(&b->weights->experts[0]);
    b->model.shared_bytes = b->weights->shared ? made_expert_bytes(b->weights->shared) : 0;
    return MOXIE_OK;
}

static moxie_status open_routing(bench *b, moxie_error *error)
{
    static const int64_t usual[] = { 1, 8, 64, 512 };
    const bench_arguments *args = b->args;
    int64_t max = 0;
    moxie_status status =
        bench_routing_open(args->routing, &b->model.config, bench_layer(b), args->seed, &b->routing, error);
    if (status != MOXIE_OK)
        return status;
    b->n_lines = args->tokens.count ? args->tokens.count : b->routing.file_tokens ? 1 : 4;
    for (int i = 0; i < b->n_lines; i++) {
        b->tokens[i] = args->tokens.count       ? args->tokens.at[i]
                       : b->routing.file_tokens ? b->routing.file_tokens
                                                : usual[i];
        max = b->tokens[i] > max ? b->tokens[i] : max;
    }
    return bench_routing_reserve(&b->routing, max, error);
}

moxie_options bench_options(const bench *b)
{
    const bench_arguments *args = b->args;
    moxie_options o = MOXIE_OPTIONS_INIT;
    o.backend = args->layer.backend;
    o.mode = args->layer.mode;
    o.isa = args->layer.isa;
    o.device = o.backend == MOXIE_BACKEND_CUDA ? args->layer.device : NULL;
    o.executor = b->executor;
    o.max_adapter_rank = args->adapter_rank;
    for (int i = 0; i < b->n_lines; i++)
        o.max_tokens = b->tokens[i] > o.max_tokens ? b->tokens[i] : o.max_tokens;
    return o;
}

/* A layer that no kernel can run is rejected before anything is measured or prepared. */
static moxie_status check_plan(const bench *b, uint64_t *workspace_bytes, moxie_error *error)
{
    const moxie_options o = bench_options(b);
    moxie_plan *plan = NULL;
    const moxie_status status = moxie_plan_explain(&b->model.config, &o, &plan, error);
    if (status == MOXIE_OK)
        *workspace_bytes = moxie_plan_workspace_bytes(plan);
    moxie_plan_destroy(plan);
    return status;
}

static moxie_status prepare(bench *b, uint64_t workspace_bytes, moxie_error *error)
{
    const moxie_options o = bench_options(b);
    const uint64_t available = b->backend->available(&b->args->layer, workspace_bytes);
    int32_t copies;
    b->model.file = reads_records(b) ? b->source.file : NULL;
    moxie_status status = bench_model_copies(&b->model, &b->routing, b->tokens, b->n_lines, b->limits.found.cache_bytes,
                                             available, &copies, error);
    if (status == MOXIE_OK)
        status =
            bench_model_prepare(&b->model, copies, b->weights, &o, b->backend->on_host, b->args->layer.json, error);
    made_weights_free(&b->made_up);
    if (status == MOXIE_OK)
        status = bench_fill_measure(&b->model, &o, &b->fill, error);
    if (status == MOXIE_OK)
        status = bench_model_adapt(&b->model, b->args->adapters, b->args->adapter_rank, o.max_tokens, error);
    if (status == MOXIE_OK)
        bench_plan_name(b->model.copy[0].plan, b->plan, sizeof b->plan);
    return status;
}

/* Large batches first, so that a small one finds experts that were read long enough ago. */
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
        status = bench_time_line(b, largest, &before, error);
    }
    cli_progress_end(&progress);
    return status == MOXIE_OK ? bench_keep_limits(b, error) : status;
}

/* The roof of the best of all measurements, for the operations that count. */
static moxie_status draw_plot(const bench *b, moxie_error *error)
{
    const moxie_limits *limits = &b->limits.found;
    const bench_by operations = b->lines[0].operations;
    char title[256], subtitle[256], warning[200];
    bench_titles(b, title, subtitle, sizeof title);
    const bench_picture picture = { .title = title,
                                    .subtitle = subtitle,
                                    .warning = bench_warning(b, warning, sizeof warning),
                                    .lines = b->lines,
                                    .n_lines = b->n_lines,
                                    .roof = { bench_limit_of[operations].name, limits->read_gb_s,
                                              bench_limit_value(limits, operations) } };
    return bench_plot_write(b->args->plot, &picture, error);
}

static moxie_status open_machine(bench *b, moxie_error *error)
{
    moxie_status status = moxie_machine_info(&b->machine, error);
    if (status == MOXIE_OK)
        status = open_layer(b, error);
    if (status == MOXIE_OK)
        status =
            cli_executor_create_on("bench", b->args->layer.threads, cli_numa(&b->args->layer), &b->executor, error);
    return status;
}

/* Ranks begin first, since with MPI a process that fails must tell the others. */
static moxie_status run_ranks(bench *b, moxie_error *error)
{
    const bool simulates = b->args->ranks.count > 0;
    moxie_status status = MOXIE_OK;
    if (cli_ranks_asked(&b->args->local))
        status = cli_ranks_begin(&b->args->local, &b->ranks, error);
    if (status == MOXIE_OK)
        status = open_machine(b, error);
    if (status == MOXIE_OK)
        status = simulates ? bench_ranks_check_processors(b, error) : open_routing(b, error);
    status = cli_ranks_agree(&b->ranks, status, error);
    if (status != MOXIE_OK)
        return status;
    if (simulates)
        return bench_simulate(b, error);
    return b->args->layer.backend == MOXIE_BACKEND_CUDA ? bench_ranks_on_cuda(b, error) : bench_ranks(b, error);
}

static moxie_status run_lines(bench *b, moxie_error *error)
{
    const bench_arguments *args = b->args;
    uint64_t workspace_bytes = 0;
    moxie_status status = args->plot ? bench_plot_find(error) : MOXIE_OK;
    if (status == MOXIE_OK && args->plot)
        status = moxie_file_check_output(args->plot, error);
    if (status == MOXIE_OK)
        status = open_machine(b, error);
    if (status == MOXIE_OK)
        status = open_routing(b, error);
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

static void close_bench(bench *b)
{
    cli_ranks_end(&b->ranks);
    bench_model_free(&b->model);
    made_weights_free(&b->made_up);
    bench_routing_free(&b->routing);
    moxie_executor_destroy(b->executor);
    cli_layer_close(&b->source);
}

static void open_bench(bench *b, const bench_arguments *args)
{
    *b = (bench) { .args = args,
                   .machine = MOXIE_MACHINE_INIT,
                   .backend = args->layer.backend == MOXIE_BACKEND_CUDA ? &bench_on_cuda : &bench_on_cpu };
}

/* --threads LIST: the whole benchmark with each number of threads in turn. The last one's stays. */
static moxie_status run_counts(bench *b, bench_arguments *args, moxie_error *error)
{
    const cli_sizes *counts = &args->layer.thread_counts;
    bench_scaling scaling = { 0 };
    moxie_status status = MOXIE_OK;
    for (int i = 0; i < counts->count && status == MOXIE_OK; i++) {
        if (i > 0)
            close_bench(b);
        args->layer.threads = (int32_t)counts->at[i];
        open_bench(b, args);
        status = run_lines(b, error);
        if (status == MOXIE_OK)
            bench_scaling_add(b, &scaling);
    }
    b->scaling = scaling;
    return status;
}

int cmd_bench(int argc, char **argv)
{
    static const struct argp_child children[] = {
        { &preset_argp, 0, "The layer comes from a checkpoint directory, or is made up in memory:", 1 },
        { &cli_layer_argp, 0, "The layer and the plan:", 3 },
        { &cli_comm_argp, 0, "Many ranks that run here, beside one with all --threads (docs/ranks.md):", 6 },
        { &cli_load_argp, 0, "Expert files (docs/expert-file.md):", 7 },
        { &store_argp, 0, "A trace on layers whose experts are read when they are needed (docs/store.md):", 8 },
        { 0 }
    };
    static const struct argp parser = {
        options, parse, "DIR\n--preset NAME", "Time one layer against the floor that this machine sets.", children, 0, 0
    };
    bench_arguments args = { .layer = { .command = "bench", .layer = -1, .backend = CLI_BACKEND_NOT_GIVEN },
                             .link_gb_s = -1,
                             .link_us = -1 };
    cli_parse(&parser, argc, argv, &args);
    if (args.layer.backend == CLI_BACKEND_NOT_GIVEN)
        args.layer.backend = MOXIE_BACKEND_CPU;

    if (args.layer.budget_ram)
        return bench_store(&args);
    moxie_error error = { 0 };
    static bench b; /* large */
    open_bench(&b, &args);
    const bool ranks = args.ranks.count > 0 || cli_ranks_asked(&args.local);
    const moxie_status status = ranks                                ? run_ranks(&b, &error)
                                : args.layer.thread_counts.count > 0 ? run_counts(&b, &args, &error)
                                                                     : run_lines(&b, &error);
    int code = cli_exit_code(status);
    if (status != MOXIE_OK && !b.ranks.echo)
        code = cli_fail("bench", args.layer.json, status, &error);
    else if (status == MOXIE_OK && !ranks)
        (args.layer.json ? bench_print_json : bench_print_text)(&b);
    bench_scaling_free(&b.scaling);
    close_bench(&b);
    return code;
}
