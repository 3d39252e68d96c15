/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_run.c - `moxie run DIR --layer L`, `moxie run --preset NAME`: one layer, of a checkpoint or of a preset with
 * weights made up in memory, on random or given hidden states; prints what the router did and the time, writes the
 * result as safetensors.
 *
 * With --ranks the same on many ranks (cli_ranks.h): the results are those of the whole batch, and the same bytes.
 *
 *   output tensors: output [T,H] in the input's dtype, topk_ids [T,K] i32, topk_weights [T,K] f32,
 *                   router_logits [T,E] f32 (when there were logits)
 */
#include "cli_disk.h"
#include "cli_store.h"
#include "made_weights.h"
#include "cmd_run.h"

#include <stdlib.h>
#include <string.h>

enum { OPT_SEED = 256, OPT_STATES, OPT_INPUT, OPT_BACKEND, OPT_ADAPTER, OPT_ADAPTER_IDS };

static const struct argp_option options[] = {
    { NULL, 0, NULL, 0, "What runs through it:", 2 },
    { "seed", OPT_SEED, "S", 0,
      "of the random hidden states, and of a preset's weights (default 0; 16 tokens unless --tokens)", 2 },
    { "states", OPT_STATES, "NAME", 0, CLI_STATES_HELP, 2 },
    { "input", OPT_INPUT, "FILE", 0, "hidden_states and what goes with it, as safetensors", 2 },
    { "output", 'o', "FILE", 0, "write output, topk_ids, topk_weights, router_logits as safetensors", 2 },
    { "adapter", OPT_ADAPTER, "NAME=DIR", 0,
      "a LoRA adapter for the layer's experts, as PEFT saves it; may be given more than once (docs/lora.md)", 2 },
    { "adapter-ids", OPT_ADAPTER_IDS, "FILE", 0,
      "the adapter of each token: a name or - for each, between blanks (without it every token has the one adapter)",
      2 },
    { "backend", OPT_BACKEND, "NAME", 0, "auto (default), ref, cpu or cuda", 3 },
    { 0 },
};

static void check_input(struct argp_state *state, run_arguments *args)
{
    const bool tokens = args->layer.tokens >= 0, seed = args->has_seed && !args->preset.name;
    if (args->input && (tokens || args->random || seed))
        argp_error(state, "--input FILE brings hidden states, and %s is for random ones: leave one of the two out",
                   tokens         ? "--tokens"
                   : args->random ? "--states"
                                  : "--seed");
    if (!tokens)
        args->layer.tokens = 16;
}

static void check_adapters(struct argp_state *state, const run_arguments *args)
{
    cli_adapters_check(state, &args->adapters);
    if (args->adapters.count > 0 && args->preset.name)
        argp_error(state, "an adapter is for a checkpoint, and --preset makes its weights up: give a directory");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    run_arguments *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->preset;
        state->child_inputs[1] = state->child_inputs[2] = &args->layer;
        state->child_inputs[3] = &args->ranks;
        state->child_inputs[4] = state->child_inputs[5] = &args->layer;
        return 0;
    case OPT_SEED:
        args->seed = (uint64_t)cli_parse_int(state, "--seed", arg, 0, INT64_MAX);
        args->has_seed = true;
        return 0;
    case OPT_STATES:
        args->states = cli_parse_states(state, arg);
        args->random = true;
        return 0;
    case OPT_INPUT: args->input = arg; return 0;
    case 'o': args->output = arg; return 0;
    case OPT_ADAPTER: cli_adapters_parse(state, arg, &args->adapters); return 0;
    case OPT_ADAPTER_IDS: args->adapters.ids_path = arg; return 0;
    case OPT_BACKEND: args->layer.backend = cli_parse_backend(state, arg); return 0;
    case ARGP_KEY_END:
        preset_check(state, &args->preset, &args->layer);
        check_input(state, args);
        check_adapters(state, args);
        if (args->layer.n_shares > 0 && !cli_ranks_asked(&args->ranks))
            argp_error(
                state,
                "one directory at a time; \"%s\" is a second one: leave one of them out, or, of %d directories that "
                "are each a rank's, give --ranks %d, and --tp as they were prepared",
                cli_printable(args->layer.shares[1]), args->layer.n_shares, args->layer.n_shares);
        cli_store_check(state, &args->layer,
                        args->preset.name               ? "--preset"
                        : cli_ranks_asked(&args->ranks) ? "--ranks"
                        : args->adapters.count > 0      ? "--adapter"
                                                        : NULL);
        cli_check_gpu(state, &args->layer);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void free_results(run_results *r)
{
    free(r->output);
    free(r->ids);
    free(r->weights);
    free(r->logits);
}

/* Reserves the arrays of a batch. */
static moxie_status reserve(const moxie_layer_config *config, const cli_input *input, run_results *out,
                            cli_batch *batch, moxie_error *error)
{
    const size_t tokens = (size_t)input->tokens;
    out->output = calloc(tokens * (size_t)config->hidden + 1, config->dtype == MOXIE_F32 ? 4 : 2);
    out->ids = calloc(tokens * (size_t)config->top_k + 1, sizeof *out->ids);
    out->weights = calloc(tokens * (size_t)config->top_k + 1, sizeof *out->weights);
    if (!input->ids)
        out->logits = calloc(tokens * (size_t)cli_candidates(config) + 1, sizeof *out->logits);
    if (!out->output || !out->ids || !out->weights || (!input->ids && !out->logits))
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for %lld %s", CLI_COUNT(input->tokens, "token"));
    *batch = (cli_batch) { .input = input,
                           .output = out->output,
                           .ids = out->ids,
                           .weights = out->weights,
                           .logits = out->logits,
                           .runs = 1,
                           .seconds = &out->seconds };
    return MOXIE_OK;
}

static moxie_status run_layer(run_arguments *args, cli_layer *layer, const cli_input *input, run_results *out,
                              moxie_error *error)
{
    cli_batch batch;
    args->layer.max_adapter_rank = cli_adapters_rank(&args->adapters);
    moxie_status status = cli_layer_prepare(&args->layer, layer, error);
    if (status == MOXIE_OK)
        status = cli_adapters_create(&args->adapters, layer->layer, &args->adapters.adapters, error);
    if (status == MOXIE_OK)
        status = cli_adapters_name(&args->adapters, input->tokens, error);
    if (status == MOXIE_OK)
        status = reserve(&layer->config, input, out, &batch, error);
    if (status != MOXIE_OK)
        return status;
    batch.adapters = args->adapters.adapters;
    batch.adapter_ids = args->adapters.ids;
    out->plan = layer->plan;
    out->prepare_seconds = layer->prepare_seconds;
    out->record_bytes = moxie_layer_bytes(layer->layer);
    return cli_layer_run(layer, &batch, error);
}

static moxie_status run_ranks(run_arguments *args, cli_ranks *ranks, const cli_layer *layer, const cli_input *input,
                              run_results *out, moxie_error *error)
{
    cli_batch batch;
    args->layer.max_adapter_rank = cli_adapters_rank(&args->adapters);
    moxie_status status = cli_ranks_prepare(ranks, &args->layer, layer, input->tokens, error);
    if (status == MOXIE_OK)
        status = cli_ranks_agree(ranks, cli_adapters_name(&args->adapters, input->tokens, error), error);
    if (status == MOXIE_OK)
        status = cli_ranks_agree(ranks, reserve(&layer->config, input, out, &batch, error), error);
    if (status != MOXIE_OK)
        return status;
    batch.given = args->adapters.count > 0 ? &args->adapters : NULL;
    batch.adapter_ids = args->adapters.ids;
    out->plan = cli_ranks_plan(ranks);
    out->prepare_seconds = ranks->prepare_seconds;
    out->record_bytes = cli_ranks_bytes(ranks);
    return cli_ranks_run(ranks, &batch, error);
}

/* The input of --input FILE has no states for the router, and the router norms what it reads. */
static void note_router_input(const cli_layer *layer, const cli_input *input)
{
    if (layer->config.router_norm.kind != MOXIE_ROW_NORM_NONE && !input->router_hidden && !input->logits && !input->ids)
        fprintf(stderr, "moxie run: note: the router reads hidden_states; if the model gives it other states than the "
                        "experts (moxie inspect says so), add router_hidden_states\n");
}

static moxie_status write_results(const char *path, const cli_layer *layer, const cli_input *input,
                                  const run_results *r, moxie_error *error)
{
    const moxie_layer_config *config = &layer->config;
    const int64_t t = input->tokens;
    moxie_named_tensor tensors[4] = {
        { "output", { .data = r->output, .dtype = config->dtype, .rank = 2, .shape = { t, config->hidden } } },
        { "topk_ids", { .data = r->ids, .dtype = MOXIE_I32, .rank = 2, .shape = { t, config->top_k } } },
        { "topk_weights", { .data = r->weights, .dtype = MOXIE_F32, .rank = 2, .shape = { t, config->top_k } } },
        { "router_logits",
          { .data = r->logits, .dtype = MOXIE_F32, .rank = 2, .shape = { t, cli_candidates(config) } } },
    };
    return moxie_tensor_file_write(path, tensors, r->logits ? 4 : 3, NULL, 0, error);
}

/* A preset's layer with made-up weights. */
static moxie_status open_preset(const run_arguments *args, cli_layer *layer, made_weights *weights, moxie_error *error)
{
    moxie_status status = preset_config(&args->preset, &args->layer, &layer->config, error);
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
        if (input->ids[i] >= cli_candidates(config)) {
            first = beyond++ ? first : i;
        }
    if (beyond > 0)
        fprintf(stderr,
                "moxie run: warning: %s: %lld %s beyond the layer's experts, 0 to %lld, and skipped; the "
                "first is %d, of token %lld\n",
                cli_printable(path), CLI_COUNT_OF(beyond, "of topk_ids is", "of topk_ids are"),
                (long long)cli_candidates(config) - 1, input->ids[first], (long long)(first / config->top_k));
}

/* The layer and its input. */
static moxie_status open_all(run_arguments *args, cli_layer *layer, made_weights *weights, cli_input *input,
                             moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    if (args->input)
        status = cli_input_peek(args->input, &args->layer.tokens, &args->layer.dtype, error);
    if (status == MOXIE_OK)
        status =
            args->preset.name ? open_preset(args, layer, weights, error) : cli_layer_open(&args->layer, layer, error);
    if (status == MOXIE_OK && args->layer.n_shares > 0)
        status = cli_shares_begin(&args->layer, layer, error);
    else if (status == MOXIE_OK && cli_ranks_asked(&args->ranks))
        status = cli_layer_unpack("run", layer, error); /* each rank packs its share */
    if (status == MOXIE_OK)
        status = cli_adapters_open(&args->adapters, layer, error);
    if (status == MOXIE_OK)
        status = args->input
                     ? cli_input_load(args->input, &layer->config, input, error)
                     : cli_input_random(&layer->config, args->layer.tokens, args->seed, args->states, input, error);
    return status;
}

/* The output is none of the files that the run reads. */
static moxie_status check_output(const run_arguments *args, moxie_error *error)
{
    const char *const inputs[] = { args->layer.dir, args->input, args->adapters.ids_path };
    moxie_status status = cli_output_check(args->output, inputs, sizeof inputs / sizeof inputs[0], error);
    for (int32_t i = 0; status == MOXIE_OK && i < args->layer.n_shares; i++)
        status = cli_output_spares(args->output, args->layer.shares[i], error);
    for (int32_t i = 0; status == MOXIE_OK && i < args->adapters.count; i++)
        status = cli_output_spares(args->output, args->adapters.item[i].dir, error);
    return status;
}

static moxie_status execute(run_arguments *args, cli_ranks *ranks, cli_layer *layer, made_weights *weights,
                            cli_input *input, run_results *r, moxie_error *error)
{
    const bool many = cli_ranks_asked(&args->ranks);
    moxie_status status = many ? cli_ranks_begin(&args->ranks, ranks, error) : MOXIE_OK;
    const bool leader = !many || ranks->leader;
    if (status == MOXIE_OK && args->output && leader)
        status = check_output(args, error);
    if (status == MOXIE_OK)
        status = open_all(args, layer, weights, input, error);
    if (status == MOXIE_OK && leader)
        warn_of_ids(args->input, &layer->config, input);
    if (status == MOXIE_OK && args->input && leader)
        note_router_input(layer, input);
    if (many)
        status = cli_ranks_agree(ranks, status, error);
    if (status == MOXIE_OK)
        status = many ? run_ranks(args, ranks, layer, input, r, error) : run_layer(args, layer, input, r, error);
    if (status == MOXIE_OK && args->output && leader)
        status = write_results(args->output, layer, input, r, error);
    return status;
}

int cmd_run(int argc, char **argv)
{
    static const struct argp_child children[] = {
        { &preset_argp, 0, "The layer comes from a checkpoint directory, or is made up in memory:", 1 },
        { &cli_layer_argp, 0, "How it runs:", 3 },
        { &cli_tokens_argp, 0, NULL, 2 },
        { &cli_comm_argp, 0, "On many ranks, with the same result (docs/ranks.md):", 4 },
        { &cli_load_argp, 0, "Expert files (docs/expert-file.md):", 5 },
        { &cli_store_argp, 0, "With less memory than the experts need (docs/store.md):", 6 },
        { 0 }
    };
    static const struct argp parser = { options,
                                        parse,
                                        "DIR\nDIR... --ranks N\n--preset NAME",
                                        "Run one layer of a checkpoint on random or given hidden states.",
                                        children,
                                        0,
                                        0 };
    run_arguments args = { .layer = { .command = "run", .layer = -1, .tokens = -1, .takes_shares = true } };
    cli_parse(&parser, argc, argv, &args);

    moxie_error error = { 0 };
    cli_ranks ranks = { .ranks = 0 };
    cli_layer layer = { 0 };
    cli_input input = { 0 };
    made_weights weights = { .n_blocks = 0 };
    run_results r = { 0 };
    const moxie_status status = execute(&args, &ranks, &layer, &weights, &input, &r, &error);
    int code = cli_exit_code(status);
    if (status != MOXIE_OK && !ranks.echo)
        code = cli_fail("run", args.layer.json, status, &error);
    else if (status == MOXIE_OK && (ranks.ranks == 0 || ranks.leader))
        (args.layer.json ? run_print_json : run_print_text)(&args, &layer, &input, &r, &ranks);
    cli_ranks_end(&ranks);
    free_results(&r);
    cli_input_free(&input);
    cli_adapters_free(&args.adapters);
    cli_layer_close(&layer);
    made_weights_free(&weights);
    free(args.layer.shares);
    return code;
}
