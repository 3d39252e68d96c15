/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_ranks.c - the options for ranks, and which experts and rows each rank has (cli_ranks.h).
 */
#include "cli_ranks.h"

#include <string.h>
#include <unistd.h>

enum { OPT_RANKS = 1300, OPT_TP, OPT_EP_MAP, OPT_TOKENS_AS, OPT_COMM, OPT_CAPACITY, OPT_CHUNK, OPT_STREAMS };

static const char *const kinds[] = { "linear", "round_robin", NULL }; /* in the order of moxie_expert_map_kind */
static const char *const layouts[] = { "sharded", "replicated", "scattered", NULL }; /* of moxie_token_layout */
static const char *const comms[] = { "local", "mpi", "nccl", NULL };
static const cli_names kind_names = { .kind = "placement", .fixed = kinds };
static const cli_names layout_names = { .kind = "layout of tokens", .fixed = layouts };
static const cli_names comm_names = { .kind = "comm", .fixed = comms };

static const struct argp_option ranks_options[] = {
    { "ranks", OPT_RANKS, "N", 0, "N ranks share the layer; they are threads, which share --threads", 0 },
    { "tp", OPT_TP, "N", 0, "N ranks each have the same experts, and every one a part of their rows (default 1)", 0 },
    { "ep-map", OPT_EP_MAP, "NAME", 0,
      "which experts a rank has: linear (default), round_robin, or a MAP.json of `moxie balance`", 0 },
    { "tokens-as", OPT_TOKENS_AS, "NAME", 0,
      "sharded (default): each rank has a part of the tokens; replicated: all have all; scattered: and each computes "
      "the "
      "outputs of a part",
      0 },
    { "exchange-capacity", OPT_CAPACITY, "N", 0,
      "messages with room for N tokens of each rank, and no counts before them: for few tokens", 0 },
    { "exchange-chunk", OPT_CHUNK, "N", 0,
      "exchange and compute at most N tokens of each rank at a time (default: as many as the plan has memory for)", 0 },
    { "exchange-streams", OPT_STREAMS, "N", 0,
      "with --comm nccl: exchanges on the stream of the products (1), or on one of their own (2: one chunk's beside "
      "another's products); default: the plan chooses",
      0 },
    { 0 },
};

static const struct argp_option comm_options[] = {
    { "comm", OPT_COMM, "NAME", 0,
      "local (default); mpi: each process of an mpirun is a rank, with --threads; nccl: rank r of --ranks, or of the "
      "processes that mpirun started on this host, is on CUDA device r",
      0 },
    { 0 },
};

bool cli_ranks_asked(const cli_ranks_options *options)
{
    return options->ranks > 0 || options->comm != CLI_COMM_LOCAL;
}

const char *cli_tokens_as(int32_t token_layout)
{
    return layouts[token_layout];
}

/* A name, or a file; otherwise probably a mistyped name. */
static const char *parse_map(struct argp_state *state, const char *text)
{
    const char *nearest = cli_nearest(&kind_names, text);
    if (cli_find_name(&kind_names, text) < 0 && access(text, F_OK) != 0)
        argp_error(state, "--ep-map is linear, round_robin or a file that `moxie balance -o` wrote, not \"%s\"%s%s%s",
                   cli_printable(text), nearest ? ": did you mean " : ", which is not there", nearest ? nearest : "",
                   nearest ? "?" : "");
    return text;
}

static void check(struct argp_state *state, const cli_ranks_options *options)
{
    if (options->lone && !cli_ranks_asked(options))
        argp_error(state, "%s goes with --ranks N, which is not given", options->lone);
    if (options->capacity > 0 && options->chunk > 0)
        argp_error(state,
                   "--exchange-chunk has no effect beside --exchange-capacity, whose messages have a size of their "
                   "own: leave one of the two out");
    if (options->ranks > 0 && options->tp > 0 && options->ranks % options->tp)
        argp_error(state, "--ranks %d is no multiple of --tp %d: each group of --tp ranks shares experts",
                   options->ranks, options->tp);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    cli_ranks_options *options = state->input;
    switch (key) {
    case OPT_RANKS: options->ranks = (int32_t)cli_parse_int(state, "--ranks", arg, 1, MOXIE_MAX_RANKS); return 0;
    case OPT_TP:
        options->tp = (int32_t)cli_parse_int(state, "--tp", arg, 1, MOXIE_MAX_RANKS);
        options->lone = "--tp";
        return 0;
    case OPT_EP_MAP:
        options->map = parse_map(state, arg);
        options->lone = "--ep-map";
        return 0;
    case OPT_TOKENS_AS:
        options->tokens_as = cli_parse_name(state, &layout_names, arg);
        options->lone = "--tokens-as";
        return 0;
    case OPT_CAPACITY:
        options->capacity = cli_parse_int(state, "--exchange-capacity", arg, 1, INT32_MAX);
        options->lone = "--exchange-capacity";
        return 0;
    case OPT_CHUNK:
        options->chunk = cli_parse_int(state, "--exchange-chunk", arg, 1, INT32_MAX);
        options->lone = "--exchange-chunk";
        return 0;
    case OPT_STREAMS:
        options->streams = cli_parse_int(state, "--exchange-streams", arg, 1, 2);
        options->lone = "--exchange-streams";
        return 0;
    case ARGP_KEY_END: check(state, options); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

const struct argp cli_ranks_argp = { ranks_options, parse, NULL, NULL, NULL, NULL, NULL };

static error_t parse_comm(int key, char *arg, struct argp_state *state)
{
    cli_ranks_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = options; return 0;
    case OPT_COMM: options->comm = cli_parse_name(state, &comm_names, arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child comm_children[] = { { &cli_ranks_argp, 0, NULL, 0 }, { 0 } };

const struct argp cli_comm_argp = { comm_options, parse_comm, NULL, NULL, comm_children, NULL, NULL };

/* ---- who has what ---------------------------------------------------------------------------------- */

/* The place of the layer among the model's MoE layers; 0 of a layer without a model. *count: how many there are. */
static int32_t place_of(const cli_layer *source, int64_t *count)
{
    moxie_model_info info = MOXIE_MODEL_INFO_INIT;
    moxie_model_layer_info layer = MOXIE_MODEL_LAYER_INFO_INIT;
    *count = 1;
    if (!source->model)
        return 0;
    moxie_model_get_info(source->model, &info, NULL);
    *count = info.n_layers;
    for (int64_t i = 0; i < info.n_layers; i++)
        if (moxie_model_describe_layer(source->model, i, &layer, NULL) == MOXIE_OK && layer.layer == source->index)
            return (int32_t)i;
    return 0;
}

static moxie_status read_map(const char *path, const cli_layer *source, cli_placement *out, moxie_error *error)
{
    int64_t layers;
    const int32_t place = place_of(source, &layers);
    const moxie_status status = balance_map_read(path, out->ep, (int32_t)source->config.experts, &out->maps, error);
    if (status != MOXIE_OK)
        return status;
    if (out->maps.layers != 1 && out->maps.layers != layers)
        return cli_error(MOXIE_ERR_MISMATCH, error, path,
                         "it has maps of %d layers, and the model has %lld MoE %s: give a map of this model, or one "
                         "with a single row",
                         out->maps.layers, CLI_COUNT(layers, "layer"));
    out->map = balance_map_at(&out->maps, out->maps.layers == 1 ? 0 : place);
    return MOXIE_OK;
}

moxie_status cli_placement_make(const cli_ranks_options *options, const cli_layer *source, cli_placement *out,
                                moxie_error *error)
{
    const int32_t kind = options->map ? cli_find_name(&kind_names, options->map) : MOXIE_MAP_LINEAR;
    *out = (cli_placement) { .ranks = options->ranks,
                             .tp = options->tp > 0 ? options->tp : 1,
                             .ep_map = kind < 0 ? 0 : kind,
                             .name = options->map ? options->map : kinds[MOXIE_MAP_LINEAR] };
    if (out->ranks % out->tp)
        return cli_error(MOXIE_ERR_ARGUMENT, error, "", "%d ranks are no multiple of --tp %d", out->ranks, out->tp);
    if (source->config.ep_size > 1)
        return cli_error(MOXIE_ERR_UNSUPPORTED, error, "",
                         "expert files of `moxie prepare --ep %d/%d` hold that rank's experts, and --ranks places all: "
                         "give the checkpoint, or files without --ep",
                         (int)source->config.ep_rank, (int)source->config.ep_size);
    out->ep = out->ranks / out->tp;
    return kind < 0 ? read_map(options->map, source, out, error) : MOXIE_OK;
}

void cli_placement_free(cli_placement *placement)
{
    balance_map_free(&placement->maps);
}

void cli_placement_apply(const cli_placement *placement, int32_t rank, moxie_layer_config *config)
{
    config->ep_size = placement->ep;
    config->ep_rank = rank / placement->tp;
    config->tp_size = placement->tp;
    config->tp_rank = rank % placement->tp;
    config->ep_map = placement->ep_map;
    config->slot_map = placement->maps.expert_of ? &placement->map : NULL;
}
