/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_explain.c - `moxie explain`: the plan a layer gets, and why every better kernel was rejected.
 *
 * The layer comes from a checkpoint (DIR), a preset (--preset NAME), or flags that describe it. Of a checkpoint's
 * weights only group indices are read, which decide whether columns are in act order. Of a plan for a Hopper GPU it
 * also shows how the products are launched for each batch size. With --ranks it shows which rank has what
 * (explain_ranks.c).
 */
#include "cli_disk.h"
#include "cli_store.h"
#include "explain_beside.h"
#include "explain_scheme.h"
#include "explain_store.h"
#include "explain_times.h"
#include "preset_layer.h"

#include <string.h>

#include <moxie/moxie_adapters.h>

typedef struct arguments {
    cli_layer_options layer;
    const char *preset, *format, *scheme, *routing;
    int64_t experts, top_k, hidden, intermediate, group;
    int32_t act;
    moxie_dtype dtype;
    bool bias, by_hand;
    cli_sizes tokens;
    cli_ranks_options ranks;
    explain_times_options times;
    explain_store_options store;
} arguments;

enum {
    OPT_PRESET = 256,
    OPT_FORMAT,
    OPT_EXPERTS,
    OPT_TOP_K,
    OPT_HIDDEN,
    OPT_INTERMEDIATE,
    OPT_SCHEME,
    OPT_GROUP,
    OPT_ACT,
    OPT_ROUTING,
    OPT_DTYPE,
    OPT_BIAS, /* options from OPT_EXPERTS on describe a layer by hand */
    OPT_BACKEND,
    OPT_ADAPTER_RANK,
    OPT_TOKENS
};

static const struct argp_option options[] = {
    { NULL, 0, NULL, 0, "The layer comes from a checkpoint directory, or from a preset:", 1 },
    { "preset", OPT_PRESET, "NAME", 0, "a model of `moxie synth --list`", 1 },
    { "format", OPT_FORMAT, "NAME", 0, "number format of the preset (default: its first)", 1 },
    { NULL, 0, NULL, 0, "Or it is described by hand:", 2 },
    { "experts", OPT_EXPERTS, "E", 0, "experts", 2 },
    { "top-k", OPT_TOP_K, "K", 0, "experts chosen per token", 2 },
    { "hidden", OPT_HIDDEN, "H", 0, "hidden size", 2 },
    { "intermediate", OPT_INTERMEDIATE, "I", 0, "intermediate size per expert", 2 },
    { "scheme", OPT_SCHEME, "NAME", 0, "quantization by its vLLM constructor: mxfp4_w4a16, nvfp4, fp8_w8a8, ...", 2 },
    { "group", OPT_GROUP, "G", 0, "group or block size, where the scheme takes one", 2 },
    { "activation", OPT_ACT, "NAME", 0, "silu (default), swigluoai, gelu, gelu_tanh, situ, relu2_no_mul, ...", 2 },
    { "routing", OPT_ROUTING, "NAME", 0, "default, renormalize, deepseek_v3, llama4, ... (default renormalize)", 2 },
    { "dtype", OPT_DTYPE, "NAME", 0, "of hidden states: bf16 (default), f16, f32", 2 },
    { "bias", OPT_BIAS, NULL, 0, "both products have a bias", 2 },
    { "backend", OPT_BACKEND, "NAME", 0, "auto (default), ref, cpu or cuda", 3 },
    { "adapter-rank", OPT_ADAPTER_RANK, "R", 0, "tokens may have LoRA adapters, up to rank R (default 0: none)", 3 },
    { "tokens", OPT_TOKENS, "LIST", 0,
      "batch sizes: the plan is for the largest (default 4096), launches on a GPU are printed for each", 3 },
    { 0 },
};

static const char *act_at(int32_t i)
{
    return moxie_activation_at(i, NULL);
}

static const cli_names activation_names = { .kind = "activation", .at = act_at };

static moxie_dtype parse_dtype(struct argp_state *state, const char *text)
{
    static const char *const fixed[] = { "bf16", "f16", "f32", NULL };
    static const cli_names names = { .kind = "dtype of hidden states", .fixed = fixed };
    cli_parse_name(state, &names, text);
    return moxie_dtype_from_name(text);
}

/* Returns the option whose value is a name of the list. */
static const char *parse_listed(struct argp_state *state, const cli_names *names, const char *text)
{
    cli_parse_name(state, names, text);
    return text;
}

/* One of the options that describe a layer by hand. */
static error_t parse_layer_flag(int key, char *arg, struct argp_state *state)
{
    arguments *args = state->input;
    if (key >= OPT_EXPERTS && key <= OPT_BIAS)
        args->by_hand = true;
    switch (key) {
    case OPT_EXPERTS: args->experts = cli_parse_int(state, "--experts", arg, 1, INT32_MAX); return 0;
    case OPT_TOP_K: args->top_k = cli_parse_int(state, "--top-k", arg, 1, INT32_MAX); return 0;
    case OPT_HIDDEN: args->hidden = cli_parse_int(state, "--hidden", arg, 1, INT32_MAX); return 0;
    case OPT_INTERMEDIATE: args->intermediate = cli_parse_int(state, "--intermediate", arg, 1, INT32_MAX); return 0;
    case OPT_SCHEME: args->scheme = parse_listed(state, &cli_schemes, arg); return 0;
    case OPT_GROUP: args->group = cli_parse_int(state, "--group", arg, -1, INT32_MAX); return 0;
    case OPT_ACT: args->act = cli_parse_name(state, &activation_names, arg); return 0;
    case OPT_ROUTING: args->routing = parse_listed(state, &cli_routings, arg); return 0;
    case OPT_BIAS: args->bias = true; return 0;
    case OPT_DTYPE: args->dtype = parse_dtype(state, arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Exactly one of the three ways to name a layer. */
static void check_source(struct argp_state *state, const arguments *args)
{
    const bool whole = args->experts && args->top_k && args->hidden && args->intermediate;
    if (args->layer.dir && args->preset)
        argp_error(state,
                   "a directory and --preset exclude each other, for one layer is meant: leave \"%s\" or --preset "
                   "%s out",
                   cli_printable(args->layer.dir), args->preset);
    if (args->by_hand && (args->layer.dir || args->preset))
        argp_error(state,
                   "%s has sizes and formats of its own: leave --experts, --scheme and the others that describe a "
                   "layer by hand out, or %s",
                   args->preset ? "a preset" : "a checkpoint", args->preset ? "--preset" : "the directory");
    if (args->group && !args->scheme)
        argp_error(state, "--group goes with --scheme, which is not given: weights without one have no groups");
    if (args->format && !args->preset)
        argp_error(state, "--format goes with --preset NAME, which is not given");
    if (args->by_hand && args->layer.activations != MOXIE_ACTIVATIONS_CHECKPOINT)
        argp_error(state, "--activations changes those of a checkpoint or a preset, and a layer described by hand has "
                          "its --scheme's: leave it out");
    if (args->layer.layer >= 0 && !args->layer.dir)
        argp_error(state, "--layer goes with a directory, which is not given");
    if (args->by_hand && !whole)
        argp_error(state, "a layer described by hand needs all of --experts, --top-k, --hidden and --intermediate");
    if (!args->layer.dir && !args->preset && !whole)
        argp_error(state,
                   "one layer is needed, and none is named: give a checkpoint's directory, --preset NAME, or all of "
                   "--experts, --top-k, --hidden and --intermediate");
    cli_check_checkpoint(state, &args->layer);
}

/* --limits is for ranks and for stores. */
static void check_store(struct argp_state *state, arguments *args)
{
    const bool ranks = cli_ranks_asked(&args->ranks), store = args->layer.budget_ram > 0;
    const char *lone = explain_store_lone(&args->store), *times = args->times.lone;
    args->store.limits = args->times.limits;
    cli_store_check(state, &args->layer, ranks ? "--ranks" : NULL);
    cli_check_gpu(state, &args->layer);
    if (times && !ranks && !(store && !strcmp(times, "--limits")))
        argp_error(state, "%s goes with --ranks N, which is not given", times);
    if (!lone && cli_disk_asked(&args->layer.disk))
        lone = "--mirror, or another option of how files are read,";
    if (!args->store.trace)
        cli_store_check_warm(state, &args->layer);
    if (lone && !store)
        argp_error(state, "%s goes with --budget-ram, which is not given", lone);
    if (args->store.disk_gb_s > 0 && cli_disk_asked(&args->layer.disk))
        argp_error(state, "--disk-gb-s says how fast the disk is, and --mirror, --read-engine, --read-depth and "
                          "--read-chunk how to measure that: leave them out, or --disk-gb-s");
    if (args->store.copy_gb_s > 0 && args->layer.budget_gpu == 0)
        argp_error(state, "--copy-gb-s goes with --budget-gpu, which is not given: nothing is copied then");
    if (args->store.memory_gb_s > 0 && args->store.limits)
        argp_error(state, "--memory-gb-s and --limits both say how fast memory is: leave one of the two out");
    if (store && !args->layer.dir)
        argp_error(state, "--budget-ram goes with a directory of expert files, which is not given");
}

/* Nothing runs here. */
static void check_measuring(struct argp_state *state, const cli_layer_options *layer)
{
    if (layer->numa)
        argp_error(state, "--numa is for threads that run, and explain runs nothing: leave it out");
    if (layer->threads && !layer->budget_ram)
        argp_error(state, "--threads measure memory with --budget-ram, which is not given: leave them out");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->layer;
        state->child_inputs[1] = &args->ranks;
        state->child_inputs[2] = &args->times;
        state->child_inputs[3] = &args->store;
        args->store.layer = &args->layer;
        return 0;
    case OPT_PRESET: args->preset = parse_listed(state, &cli_presets, arg); return 0;
    case OPT_FORMAT: args->format = parse_listed(state, &cli_formats, arg); return 0;
    case OPT_BACKEND: args->layer.backend = cli_parse_backend(state, arg); return 0;
    case OPT_ADAPTER_RANK:
        args->layer.max_adapter_rank = (int32_t)cli_parse_int(state, "--adapter-rank", arg, 0, MOXIE_MAX_ADAPTER_RANK);
        return 0;
    case OPT_TOKENS: cli_parse_sizes(state, "--tokens", arg, &args->tokens); return 0;
    case ARGP_KEY_END:
        check_source(state, args);
        check_store(state, args);
        check_measuring(state, &args->layer);
        return 0;
    default: return parse_layer_flag(key, arg, state);
    }
}

static moxie_status config_from_flags(const arguments *args, moxie_layer_config *config, moxie_error *error)
{
    config->dtype = args->dtype;
    config->experts = args->experts;
    config->top_k = args->top_k;
    config->hidden = args->hidden;
    config->intermediate = args->intermediate;
    moxie_activation_at(args->act, &config->activation);
    config->bias13 = config->bias2 = args->bias;
    config->w13 = config->w2 = (moxie_quant) { .element = args->dtype };
    moxie_status status = moxie_routing_by_name(args->routing, &config->routing, error);
    if (status != MOXIE_OK || !args->scheme)
        return status;
    moxie_scheme scheme = MOXIE_SCHEME_INIT;
    status = explain_scheme_make(args->scheme, args->group, &scheme, error);
    if (status != MOXIE_OK)
        return status;
    config->a13 = scheme.a13;
    config->a2 = scheme.act2;
    if (scheme.w13.element)
        config->w13 = scheme.w13;
    if (scheme.weight2.element)
        config->w2 = scheme.weight2;
    return MOXIE_OK;
}

/* ---- output ---------------------------------------------------------------------------------------- */

/* `beside`: only the experts' products and activation. */
static void print_steps(const moxie_plan *plan, bool beside)
{
    static const char *const headings[] = { "step", "role", "kernel", "isa", "layout", "class", "" };
    cli_table table;
    cli_table_begin(&table, 7, headings);
    for (int32_t i = 0; i < moxie_plan_step_count(plan); i++) {
        const moxie_plan_step *step = moxie_plan_step_at(plan, i);
        if (beside && !explain_beside_has(step))
            continue;
        cli_table_add(&table, "%s", step->family);
        cli_table_add(&table, "%s", step->role);
        cli_table_add(&table, "%s%s", step->chosen ? "" : "- ", step->kernel);
        cli_table_add(&table, "%s", step->isa);
        cli_table_add(&table, "%s", step->layout);
        cli_table_add(&table, "%s", step->exactness);
        if (step->chosen)
            cli_table_add(&table, "%s", step->reason);
        else
            cli_table_add(&table, "rejected: %s%s%s", step->reason, step->remedy[0] ? "; to get it: " : "",
                          step->remedy);
    }
    cli_table_print(&table);
    cli_table_free(&table);
}

/* "8-16": the widths in (above, upto]; "" when there are none. Returns `buffer`. */
static const char *range(const moxie_cuda_launch *launch, int32_t above, int32_t upto, char *buffer, size_t size)
{
    int32_t first = 0, last = 0;
    for (int32_t i = 0; i < launch->n_widths; i++)
        if (launch->widths[i] > above && launch->widths[i] <= upto) {
            first = first ? first : launch->widths[i];
            last = launch->widths[i];
        }
    buffer[0] = '\0';
    if (first)
        snprintf(buffer, size, first < last ? "%d-%d" : "%d", (int)first, (int)last);
    return buffer;
}

static void add_launch(cli_table *table, const moxie_plan_step *step, int64_t tokens, const moxie_cuda_launch *l)
{
    char text[32];
    cli_table_add(table, "%s", step->role);
    cli_table_add(table, "%s", step->kernel);
    cli_table_add(table, "%lld", (long long)tokens);
    cli_table_add(table, "%d", (int)l->tile_tokens);
    cli_table_add(table, "%s", range(l, 0, l->warp_tokens, text, sizeof text));
    cli_table_add(table, "%s", range(l, l->warp_tokens, INT32_MAX, text, sizeof text));
    cli_table_add(table, "%d", (int)l->blocks);
    cli_table_add(table, "%d x %d", (int)l->stages, (int)l->chunks);
    cli_table_add(table, "%s", l->pairs ? "yes" : "no");
}

static void print_launches(const arguments *args, const moxie_plan *plan)
{
    static const char *const headings[] = { "product",        "kernel",  ">tokens", ">tile", ">by warps",
                                            ">by warpgroups", ">blocks", ">stages", "pairs" };
    moxie_cuda_launch launch = MOXIE_CUDA_LAUNCH_INIT;
    cli_table table;
    cli_table_begin(&table, 9, headings);
    for (int32_t i = 0; i < moxie_plan_step_count(plan); i++)
        for (int t = 0; t < args->tokens.count; t++)
            if (moxie_cuda_plan_launch(plan, i, args->tokens.at[t], &launch))
                add_launch(&table, moxie_plan_step_at(plan, i), args->tokens.at[t], &launch);
    if (table.rows > 0) {
        printf("\n%sone arithmetic for all batch sizes: only tiles change with them, and an expert's tokens decide "
               "which it has\n",
               args->layer.mode == MOXIE_MODE_EXACT ? "exact mode, " : "");
        cli_table_print(&table);
        printf(
            "tile: tokens of the largest tile; by warps, by warpgroups: tile widths with mma.sync and with wgmma (the "
            "narrowest that holds a tile runs);\nblocks: per multiprocessor; stages: of the ring, x chunks per stage; "
            "pairs: two blocks share tokens\n");
    }
    cli_table_free(&table);
}

/* Runs over ranks and of stores need the host in between. */
static bool calls_are_graphs(const arguments *args, const explain_times *times, const explain_store *store)
{
    return args->layer.backend == MOXIE_BACKEND_CUDA && !times->ranks && !store->options;
}

static void print_text(const arguments *args, const moxie_layer_config *config, const moxie_plan *plan,
                       const explain_beside *beside, const explain_times *times, const explain_store *store)
{
    char workspace[16];
    printf("%lld %s, top-%lld, hidden %lld, intermediate %lld, %s; workspace %s\n",
           CLI_COUNT(config->experts, "expert"), (long long)config->top_k, (long long)config->hidden,
           (long long)config->intermediate, moxie_dtype_name(config->dtype),
           cli_bytes(workspace, moxie_plan_workspace_bytes(plan)));
    print_steps(plan, false);
    if (beside->plan) {
        printf("\nexperts without a slot on the GPU, which the CPU computes where they lie; bits of results depend on "
               "which these are,\nwithin the kernels' bounds, and repeat while they stay:\n");
        print_steps(beside->plan, true);
    }
    print_launches(args, plan);
    if (calls_are_graphs(args, times, store))
        printf("\na call on device memory that equals the one before is launched as one graph\n");
    if (times->ranks) {
        explain_ranks_print(times->ranks);
        explain_times_print(times, &args->tokens);
    }
    if (store->options)
        explain_store_print(store);
}

static json_t *json_launch(int64_t tokens, const moxie_cuda_launch *l)
{
    json_t *widths = json_array();
    for (int32_t i = 0; i < l->n_widths; i++)
        cli_json_append(widths, json_integer(l->widths[i]));
    return cli_pack("{s:I, s:i, s:o, s:i, s:i, s:i, s:i, s:b}", "tokens", (json_int_t)tokens, "tile_tokens",
                    (int)l->tile_tokens, "widths", widths, "warp_tokens", (int)l->warp_tokens, "blocks", (int)l->blocks,
                    "stages", (int)l->stages, "chunks", (int)l->chunks, "pairs", (int)l->pairs);
}

/* Empty except for products on a Hopper GPU. */
static json_t *json_launches(const moxie_plan *plan, int32_t step, const cli_sizes *tokens)
{
    json_t *launches = json_array();
    moxie_cuda_launch launch = MOXIE_CUDA_LAUNCH_INIT;
    for (int t = 0; t < tokens->count; t++)
        if (moxie_cuda_plan_launch(plan, step, tokens->at[t], &launch))
            cli_json_append(launches, json_launch(tokens->at[t], &launch));
    return launches;
}

static json_t *json_steps(const arguments *args, const moxie_plan *plan, bool beside)
{
    json_t *steps = json_array();
    for (int32_t i = 0; i < moxie_plan_step_count(plan); i++) {
        const moxie_plan_step *step = moxie_plan_step_at(plan, i);
        if (beside && !explain_beside_has(step))
            continue;
        cli_json_append(steps,
                        cli_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:s, s:s, s:o}", "family", step->family, "role",
                                 step->role, "kernel", step->kernel, "isa", step->isa, "layout", step->layout, "class",
                                 step->exactness, "chosen", step->chosen, "reason", step->reason, "remedy",
                                 step->remedy, "launches", json_launches(plan, i, &args->tokens)));
    }
    return steps;
}

static void print_json(const arguments *args, const moxie_layer_config *config, const moxie_plan *plan,
                       const explain_beside *beside, const explain_times *times, const explain_store *store)
{
    json_t *object = cli_json_begin("explain");
    cli_json_merge(
        object, cli_pack("{s:I, s:I, s:I, s:I, s:s, s:I, s:o}", "experts", (json_int_t)config->experts, "top_k",
                         (json_int_t)config->top_k, "hidden", (json_int_t)config->hidden, "intermediate",
                         (json_int_t)config->intermediate, "dtype", moxie_dtype_name(config->dtype), "workspace_bytes",
                         (json_int_t)moxie_plan_workspace_bytes(plan), "steps", json_steps(args, plan, false)));
    if (beside->plan)
        cli_json_set(object, "host_steps", json_steps(args, beside->plan, true));
    cli_json_set(object, "call_graphs", json_boolean(calls_are_graphs(args, times, store)));
    if (times->ranks) {
        json_t *ranks = explain_ranks_json(times->ranks);
        cli_json_set(ranks, "times", explain_times_json(times, &args->tokens));
        cli_json_set(object, "ranks", ranks);
    }
    if (store->options)
        cli_json_set(object, "store", explain_store_json(store));
    cli_json_end(object);
}

/* ---- the command ------------------------------------------------------------------------------------ */

static moxie_status find_config(const arguments *args, cli_layer *layer, moxie_error *error)
{
    if (args->layer.dir)
        return cli_layer_open(&args->layer, layer, error);
    layer->config = (moxie_layer_config)MOXIE_LAYER_CONFIG_INIT;
    layer->config.round_results = args->layer.round_results;
    if (!args->preset)
        return config_from_flags(args, &layer->config, error);
    const preset_choice choice = { .name = args->preset, .format = args->format };
    return preset_config(&choice, &args->layer, &layer->config, error);
}

static moxie_status explain(const arguments *args, cli_layer *layer, explain_ranks *ranks, explain_times *times,
                            explain_beside *beside, explain_store *store, moxie_error *error)
{
    moxie_options plan_options = MOXIE_OPTIONS_INIT;
    plan_options.backend = args->layer.backend;
    plan_options.mode = args->layer.mode;
    plan_options.isa = args->layer.isa;
    plan_options.device = args->layer.device;
    plan_options.max_tokens = cli_largest_size(&args->tokens);
    plan_options.max_adapter_rank = args->layer.max_adapter_rank;
    moxie_status status = find_config(args, layer, error);
    moxie_layer_config config = layer->config;
    config.tp_size = args->ranks.tp;
    if (status == MOXIE_OK && layer->file && !cli_ranks_asked(&args->ranks))
        status = moxie_expert_file_explain(layer->file, &config, &plan_options, &layer->plan, error);
    else if (status == MOXIE_OK && layer->weights)
        status = moxie_plan_explain_weights(&config, layer->weights, &plan_options, &layer->plan, error);
    else if (status == MOXIE_OK)
        status = moxie_plan_explain(&config, &plan_options, &layer->plan, error);
    if (status == MOXIE_OK && cli_ranks_asked(&args->ranks))
        status = explain_ranks_find(&args->ranks, layer, &plan_options, ranks, error);
    if (status == MOXIE_OK && cli_ranks_asked(&args->ranks))
        status = explain_times_find(&args->times, ranks, times, error);
    if (status == MOXIE_OK && args->layer.where)
        status = explain_beside_find(&args->layer, layer->index, &config, &plan_options, beside, error);
    if (status == MOXIE_OK && args->layer.budget_ram)
        status = explain_store_check_share(&args->layer, layer, error);
    if (status == MOXIE_OK && args->layer.budget_ram)
        status = explain_store_find(&args->layer, &args->store, &config, store, error);
    return status;
}

int cmd_explain(int argc, char **argv)
{
    static const struct argp_child children[] = { { &cli_layer_argp, 0, "The plan:", 3 },
                                                  { &cli_ranks_argp, 0, "Who has what, and what travels:", 4 },
                                                  { &explain_times_argp, 0, "How long it may take:", 5 },
                                                  { &explain_store_argp, 0,
                                                    "What a store would do with less memory (docs/store.md):", 6 },
                                                  { 0 } };
    static const struct argp parser = {
        options, parse, "[DIR]", "The plan a layer gets, and why every better kernel was rejected.", children, 0, 0
    };
    arguments args = { .layer = { .command = "explain", .layer = -1, .plans_only = true },
                       .routing = "renormalize",
                       .dtype = MOXIE_BF16,
                       .tokens = { .count = 5, .at = { 1, 8, 64, 512, 4096 } },
                       .times = explain_times_none() };
    cli_parse(&parser, argc, argv, &args);

    moxie_error error = { 0 };
    cli_layer layer = { 0 };
    explain_ranks ranks = { .options = NULL };
    explain_times times = { .ranks = NULL };
    explain_beside beside = { NULL, NULL };
    explain_store store = { .options = NULL };
    const moxie_status status = explain(&args, &layer, &ranks, &times, &beside, &store, &error);
    int code = CLI_OK;
    if (status != MOXIE_OK)
        code = cli_fail("explain", args.layer.json, status, &error);
    else if (args.layer.json)
        print_json(&args, &layer.config, layer.plan, &beside, &times, &store);
    else
        print_text(&args, &layer.config, layer.plan, &beside, &times, &store);
    explain_ranks_free(&ranks);
    explain_beside_free(&beside);
    cli_layer_close(&layer);
    return code;
}
