/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_run.c - `moxie run DIR --layer L`, `moxie run --preset NAME`: one layer, of a checkpoint or of a preset with
 * weights made up in memory, on random or given hidden states; prints what the router did and the time, writes the
 * result as safetensors.
 *
 *   output tensors: output [T,H] in the input's dtype, topk_ids [T,K] i32, topk_weights [T,K] f32,
 *                   router_logits [T,E] f32 (when there were logits)
 */
#include "made_weights.h"
#include "preset_layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    cli_layer_options layer;
    preset_choice preset; /* without a name: a directory's layer */
    const char *input, *output;
    uint64_t seed;
    cli_states states;
    bool random; /* an option for random hidden states was given */
} arguments;

/* The arrays that a run fills, and its workspace. */
typedef struct results {
    void *output, *workspace;
    int32_t *ids;
    float *weights, *logits;
    double seconds;
} results;

enum { OPT_SEED = 256, OPT_STATES, OPT_INPUT, OPT_BACKEND };

static const struct argp_option options[] = {
    { NULL, 0, NULL, 0, "What runs through it:", 2 },
    { "seed", OPT_SEED, "S", 0,
      "of the random hidden states, and of a preset's weights (default 0; 16 tokens unless --tokens)", 2 },
    { "states", OPT_STATES, "NAME", 0, CLI_STATES_HELP, 2 },
    { "input", OPT_INPUT, "FILE", 0, "hidden_states and what goes with it, as safetensors", 2 },
    { "output", 'o', "FILE", 0, "write output, topk_ids, topk_weights, router_logits as safetensors", 2 },
    { "backend", OPT_BACKEND, "NAME", 0, "auto (default), ref, cpu or cuda", 3 },
    { 0 },
};

static void check_input(struct argp_state *state, arguments *args)
{
    const bool tokens = args->layer.tokens >= 0;
    if (args->input && (tokens || args->random))
        argp_error(state, "--input FILE brings hidden states, and %s is for random ones: leave one of the two out",
                   tokens ? "--tokens" : "--states");
    if (!tokens)
        args->layer.tokens = 16;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->preset;
        state->child_inputs[1] = state->child_inputs[2] = &args->layer;
        return 0;
    case OPT_SEED: args->seed = (uint64_t)cli_parse_int(state, "--seed", arg, 0, INT64_MAX); return 0;
    case OPT_STATES:
        args->states = cli_parse_states(state, arg);
        args->random = true;
        return 0;
    case OPT_INPUT: args->input = arg; return 0;
    case 'o': args->output = arg; return 0;
    case OPT_BACKEND: args->layer.backend = cli_parse_backend(state, arg); return 0;
    case ARGP_KEY_END:
        preset_check(state, &args->preset, &args->layer);
        check_input(state, args);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void free_results(results *r)
{
    free(r->output);
    free(r->workspace);
    free(r->ids);
    free(r->weights);
    free(r->logits);
}

static moxie_status run_layer(const cli_layer *layer, const cli_input *input, results *out, moxie_error *error)
{
    const moxie_layer_config *config = &layer->config;
    const size_t tokens = (size_t)input->tokens;
    moxie_run_args args = MOXIE_RUN_ARGS_INIT;
    args.workspace_bytes = moxie_plan_workspace_bytes(layer->plan);
    out->workspace = aligned_alloc(64, (args.workspace_bytes + 127) / 64 * 64);
    out->output = calloc(tokens * (size_t)config->hidden + 1, config->dtype == MOXIE_F32 ? 4 : 2);
    out->ids = calloc(tokens * (size_t)config->top_k + 1, sizeof *out->ids);
    out->weights = calloc(tokens * (size_t)config->top_k + 1, sizeof *out->weights);
    if (!input->ids)
        out->logits = calloc(tokens * (size_t)config->experts + 1, sizeof *out->logits);
    if (!out->workspace || !out->output || !out->ids || !out->weights || (!input->ids && !out->logits))
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for %lld %s and a workspace of %llu bytes",
                         CLI_COUNT(input->tokens, "token"), (unsigned long long)args.workspace_bytes);
    cli_input_args(input, &args);
    args.output = out->output;
    args.ids_out = out->ids;
    args.weights_out = out->weights;
    args.logits_out = out->logits;
    args.workspace = out->workspace;
    const double start = cli_seconds();
    const moxie_status status = moxie_plan_run(layer->plan, &args, error);
    out->seconds = cli_seconds() - start;
    return status;
}

/* The input of --input FILE has no states for the router, and the router norms what it reads. */
static void note_router_input(const cli_layer *layer, const cli_input *input)
{
    if (layer->config.router_norm.kind != MOXIE_ROW_NORM_NONE && !input->router_hidden && !input->logits && !input->ids)
        fprintf(stderr, "moxie run: note: the router reads hidden_states; if the model gives it other states than the "
                        "experts (moxie inspect says so), add router_hidden_states\n");
}

static moxie_status write_results(const char *path, const cli_layer *layer, const cli_input *input, const results *r,
                                  moxie_error *error)
{
    const moxie_layer_config *config = &layer->config;
    const int64_t t = input->tokens;
    moxie_named_tensor tensors[4] = {
        { "output", { .data = r->output, .dtype = config->dtype, .rank = 2, .shape = { t, config->hidden } } },
        { "topk_ids", { .data = r->ids, .dtype = MOXIE_I32, .rank = 2, .shape = { t, config->top_k } } },
        { "topk_weights", { .data = r->weights, .dtype = MOXIE_F32, .rank = 2, .shape = { t, config->top_k } } },
        { "router_logits", { .data = r->logits, .dtype = MOXIE_F32, .rank = 2, .shape = { t, config->experts } } },
    };
    return moxie_tensor_file_write(path, tensors, r->logits ? 4 : 3, NULL, 0, error);
}

typedef struct output_stats {
    double rms, largest;
    int64_t not_finite;
} output_stats;

static output_stats measure_output(const cli_layer *layer, const cli_input *input, const results *r)
{
    output_stats stats = { 0 };
    const int64_t count = input->tokens * layer->config.hidden;
    const size_t width = layer->config.dtype == MOXIE_F32 ? 4 : 2;
    double squares = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t code = 0;
        memcpy(&code, (const char *)r->output + (size_t)i * width, width);
        const double value = moxie_decode(layer->config.dtype, code);
        if (!isfinite(value)) {
            stats.not_finite++;
            continue;
        }
        squares += value * value;
        stats.largest = fmax(stats.largest, fabs(value));
    }
    stats.rms = count ? sqrt(squares / (double)count) : 0;
    return stats;
}

/* Tokens per expert: how many experts have tokens, and the largest number. */
static void measure_load(const cli_layer *layer, const cli_input *input, const results *r, int64_t *visited,
                         int64_t *fullest)
{
    int64_t counts[MOXIE_MAX_EXPERTS] = { 0 };
    for (int64_t i = 0; i < input->tokens * layer->config.top_k; i++)
        if (r->ids[i] >= 0 && r->ids[i] < layer->config.experts)
            counts[r->ids[i]]++;
    *visited = *fullest = 0;
    for (int64_t e = 0; e < layer->config.experts; e++) {
        *visited += counts[e] > 0;
        *fullest = counts[e] > *fullest ? counts[e] : *fullest;
    }
}

static void print_text(const arguments *args, const cli_layer *layer, const cli_input *input, const results *r)
{
    const moxie_layer_config *config = &layer->config;
    if (args->preset.name)
        printf("preset %s, %s: ", args->preset.name, preset_format(&args->preset));
    else
        printf("layer %lld: ", (long long)layer->index);
    printf("%lld %s, top-%lld, hidden %lld, intermediate %lld, %s hidden states, %lld %s\n",
           CLI_COUNT(config->experts, "expert"), (long long)config->top_k, (long long)config->hidden,
           (long long)config->intermediate, moxie_dtype_name(config->dtype), CLI_COUNT(input->tokens, "token"));
    for (int32_t i = 0; i < moxie_plan_step_count(layer->plan); i++) {
        const moxie_plan_step *step = moxie_plan_step_at(layer->plan, i);
        if (step->chosen)
            printf("  %-12s %-12s %s\n", step->family, step->role, step->kernel);
    }
    printf("routing (first tokens):\n");
    for (int64_t t = 0; t < input->tokens && t < 4; t++) {
        printf("  token %lld:", (long long)t);
        for (int64_t j = 0; j < config->top_k; j++)
            printf(" %d (%.4f)", r->ids[t * config->top_k + j], (double)r->weights[t * config->top_k + j]);
        putchar('\n');
    }
    int64_t visited, fullest;
    measure_load(layer, input, r, &visited, &fullest);
    const output_stats stats = measure_output(layer, input, r);
    char memory[16], peak[16];
    printf("experts visited %lld of %lld, at most %lld %s each\n", (long long)visited, (long long)config->experts,
           CLI_COUNT(fullest, "token"));
    printf("output rms %.6g, largest %.6g, not finite %lld\n", stats.rms, stats.largest, (long long)stats.not_finite);
    printf("prepare %.2f s, run %.2f ms (one run), records %s, peak memory %s\n", layer->prepare_seconds,
           1e3 * r->seconds, cli_bytes(memory, moxie_layer_bytes(layer->layer)), cli_bytes(peak, cli_peak_memory()));
}

static void print_json(const arguments *args, const cli_layer *layer, const cli_input *input, const results *r)
{
    const moxie_layer_config *config = &layer->config;
    json_t *object = cli_json_begin("run"), *kernels = json_array(), *ids = json_array(), *weights = json_array();
    for (int32_t i = 0; i < moxie_plan_step_count(layer->plan); i++) {
        const moxie_plan_step *step = moxie_plan_step_at(layer->plan, i);
        if (step->chosen)
            cli_json_append(kernels, cli_pack("{s:s, s:s, s:s}", "family", step->family, "role", step->role, "kernel",
                                              step->kernel));
    }
    for (int64_t i = 0; i < input->tokens * config->top_k; i++) {
        cli_json_append(ids, json_integer(r->ids[i]));
        cli_json_append(weights, json_real((double)r->weights[i]));
    }
    cli_json_set(object, "preset", args->preset.name ? cli_json_string(args->preset.name) : json_null());
    cli_json_set(object, "format", args->preset.name ? cli_json_string(preset_format(&args->preset)) : json_null());
    int64_t visited, fullest;
    measure_load(layer, input, r, &visited, &fullest);
    const output_stats stats = measure_output(layer, input, r);
    cli_json_merge(object,
                   cli_pack("{s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:I, s:I, s:f, s:f, s:I, s:f, s:f, s:I, s:I}",
                            "layer", (json_int_t)layer->index, "tokens", (json_int_t)input->tokens, "experts",
                            (json_int_t)config->experts, "top_k", (json_int_t)config->top_k, "dtype",
                            moxie_dtype_name(config->dtype), "plan", kernels, "topk_ids", ids, "topk_weights", weights,
                            "experts_visited", (json_int_t)visited, "rows_of_fullest_expert", (json_int_t)fullest,
                            "output_rms", stats.rms, "output_largest", stats.largest, "output_not_finite",
                            (json_int_t)stats.not_finite, "prepare_s", layer->prepare_seconds, "run_ms",
                            1e3 * r->seconds, "record_bytes", (json_int_t)moxie_layer_bytes(layer->layer),
                            "peak_memory_bytes", (json_int_t)cli_peak_memory()));
    cli_json_end(object);
}

/* A preset's layer with made-up weights. */
static moxie_status open_preset(const arguments *args, cli_layer *layer, made_weights *weights, moxie_error *error)
{
    moxie_status status = preset_config(&args->preset, args->layer.activations, &layer->config, error);
    if (status == MOXIE_OK && args->layer.dtype)
        layer->config.dtype = args->layer.dtype;
    if (status == MOXIE_OK)
        status = moxie_layer_config_check(&layer->config, error);
    if (status == MOXIE_OK)
        status = made_weights_make(&layer->config, args->seed, weights, error);
    if (status != MOXIE_OK)
        return status;
    layer->weights = &weights->views;
    const double bytes = (double)layer->config.experts * (double)made_expert_bytes(&weights->experts[0]);
    const double available = (double)cli_available_memory();
    if (available > 0 && bytes > available && args->layer.backend != MOXIE_BACKEND_CUDA)
        return cli_error(MOXIE_ERR_MEMORY, error, "",
                         "the layer's %lld experts take %.1f GB, and %.1f GB are to be had: give --experts N, fewer",
                         (long long)layer->config.experts, bytes * 1e-9, available * 1e-9);
    return MOXIE_OK;
}

/* Warns about an id that no expert has: by the rules that choice is skipped, which is rarely intended. */
static void warn_of_ids(const char *path, const moxie_layer_config *config, const cli_input *input)
{
    int64_t beyond = 0, first = -1;
    for (int64_t i = 0; input->ids && i < input->tokens * config->top_k; i++)
        if (input->ids[i] >= config->experts) {
            first = beyond++ ? first : i;
        }
    if (beyond > 0)
        fprintf(stderr,
                "moxie run: warning: %s: %lld %s beyond the layer's experts, 0 to %lld, and skipped; the "
                "first is %d, of token %lld\n",
                cli_printable(path), CLI_COUNT_OF(beyond, "of topk_ids is", "of topk_ids are"),
                (long long)config->experts - 1, input->ids[first], (long long)(first / config->top_k));
}

static moxie_status execute(arguments *args, cli_layer *layer, made_weights *weights, cli_input *input, results *r,
                            moxie_error *error)
{
    moxie_status status = args->output ? moxie_file_check_output(args->output, error) : MOXIE_OK;
    if (status == MOXIE_OK && args->input)
        status = cli_input_peek(args->input, &args->layer.tokens, &args->layer.dtype, error);
    if (status == MOXIE_OK)
        status =
            args->preset.name ? open_preset(args, layer, weights, error) : cli_layer_open(&args->layer, layer, error);
    if (status == MOXIE_OK)
        status = args->input
                     ? cli_input_load(args->input, &layer->config, input, error)
                     : cli_input_random(&layer->config, args->layer.tokens, args->seed, args->states, input, error);
    if (status == MOXIE_OK)
        warn_of_ids(args->input, &layer->config, input);
    if (status == MOXIE_OK && args->input)
        note_router_input(layer, input);
    if (status == MOXIE_OK)
        status = cli_layer_prepare(&args->layer, layer, error);
    if (status == MOXIE_OK)
        status = run_layer(layer, input, r, error);
    if (status == MOXIE_OK && args->output)
        status = write_results(args->output, layer, input, r, error);
    return status;
}

int cmd_run(int argc, char **argv)
{
    static const struct argp_child children[] = {
        { &preset_argp, 0, "The layer comes from a checkpoint directory, or is made up in memory:", 1 },
        { &cli_layer_argp, 0, "How it runs:", 3 },
        { &cli_tokens_argp, 0, NULL, 2 },
        { 0 }
    };
    static const struct argp parser = { options,
                                        parse,
                                        "DIR\n--preset NAME",
                                        "Run one layer of a checkpoint on random or given hidden states.",
                                        children,
                                        0,
                                        0 };
    arguments args = { .layer = { .command = "run", .layer = -1, .tokens = -1 } };
    cli_parse(&parser, argc, argv, &args);

    moxie_error error = { 0 };
    cli_layer layer = { 0 };
    cli_input input = { 0 };
    made_weights weights = { .n_blocks = 0 };
    results r = { 0 };
    const moxie_status status = execute(&args, &layer, &weights, &input, &r, &error);
    int code = CLI_OK;
    if (status != MOXIE_OK)
        code = cli_fail("run", args.layer.json, status, &error);
    else if (args.layer.json)
        print_json(&args, &layer, &input, &r);
    else
        print_text(&args, &layer, &input, &r);
    free_results(&r);
    cli_input_free(&input);
    cli_layer_close(&layer);
    made_weights_free(&weights);
    return code;
}
