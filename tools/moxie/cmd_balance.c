/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_balance.c - `moxie balance LOADS --ranks N -o MAP.json`: a map of experts to slots that gives ranks equal loads
 * (EPLB), and the balance before and after.
 *
 *     loads ---------------------> moxie_eplb_balance -> target -> [--max-moves: one step from the old map] -> MAP.json
 *     --map OLD.json, or linear -> balance before                                                           -> after
 *
 * Balance is the mean of the ranks' loads divided by the largest; over several layers, the sum of the means divided by
 * the sum of the largest, as the layers run one after the other.
 */
#include "balance.h"

#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    const char *loads, *map, *output;
    int64_t ranks, nodes, groups, slots, experts, zero_experts, max_moves, max_bytes, expert_bytes;
    int32_t style;
    bool distinct, json;
} arguments;

enum {
    OPT_RANKS = 256,
    OPT_NODES,
    OPT_GROUPS,
    OPT_SLOTS,
    OPT_EXPERTS,
    OPT_ZERO_EXPERTS,
    OPT_MAP,
    OPT_MAX_MOVES,
    OPT_MAX_BYTES,
    OPT_EXPERT_BYTES,
    OPT_DISTINCT,
    OPT_FORMAT
};

static void check_arguments(struct argp_state *state, const arguments *args)
{
    if (!args->loads)
        argp_error(state, "a file with the loads of experts is needed, and none is given: name one");
    if (!args->ranks)
        argp_error(state, "--ranks is needed: over how many ranks are the experts shared out?");
    if ((args->max_moves || args->max_bytes) && !args->map)
        argp_error(state, "--max-moves and --max-bytes bound the way from today's map: give it with --map OLD.json");
    if (args->style && !args->output)
        argp_error(state, "--format is of the written map, and none is written: give -o MAP.json, or leave it out");
    if (args->max_bytes && !args->expert_bytes)
        argp_error(state, "--max-bytes needs the bytes of an expert: give --bytes-per-expert N");
    if (args->max_bytes && args->max_bytes / 2 < args->expert_bytes)
        argp_error(state,
                   "--max-bytes %lld is less than two experts, and two slots that exchange theirs move two: give "
                   "%lld or more",
                   (long long)args->max_bytes, (long long)(2 * args->expert_bytes));
}

static error_t parse_size(int key, char *arg, struct argp_state *state)
{
    arguments *args = state->input;
    const int64_t most_bytes = (int64_t)1 << 62, most_of_one = (int64_t)1 << 34; /* times 2^28 slots: 2^62 */
    switch (key) {
    case OPT_RANKS: args->ranks = cli_parse_int(state, "--ranks", arg, 1, MOXIE_MAX_RANKS); return 0;
    case OPT_NODES: args->nodes = cli_parse_int(state, "--nodes", arg, 1, MOXIE_MAX_RANKS); return 0;
    case OPT_GROUPS: args->groups = cli_parse_int(state, "--groups", arg, 1, MOXIE_MAX_EXPERTS); return 0;
    case OPT_SLOTS: args->slots = cli_parse_int(state, "--slots", arg, 1, MOXIE_MAX_SLOTS); return 0;
    case OPT_EXPERTS: args->experts = cli_parse_int(state, "--experts", arg, 1, MOXIE_MAX_EXPERTS); return 0;
    case OPT_ZERO_EXPERTS:
        args->zero_experts = cli_parse_int(state, "--zero-experts", arg, 0, MOXIE_MAX_EXPERTS);
        return 0;
    case OPT_MAX_MOVES: args->max_moves = cli_parse_int(state, "--max-moves", arg, 2, INT32_MAX); return 0;
    case OPT_MAX_BYTES: args->max_bytes = cli_parse_int(state, "--max-bytes", arg, 1, most_bytes); return 0;
    case OPT_EXPERT_BYTES:
        args->expert_bytes = cli_parse_int(state, "--bytes-per-expert", arg, 1, most_of_one);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *args = state->input;
    switch (key) {
    case OPT_MAP: args->map = arg; return 0;
    case OPT_DISTINCT: args->distinct = true; return 0;
    case OPT_FORMAT: args->style = cli_parse_name(state, &balance_styles, arg); return 0;
    case 'o': args->output = arg; return 0;
    case 'j': args->json = true; return 0;
    case ARGP_KEY_ARG: cli_parse_operand(state, "file of loads", arg, &args->loads); return 0;
    case ARGP_KEY_END: check_arguments(state, args); return 0;
    default: return parse_size(key, arg, state);
    }
}

/* ---- from loads to maps ------------------------------------------------------------------------------ */

typedef struct work {
    balance_counts loads;
    balance_map old, now;
    int32_t *hierarchical;  /* [layers] */
    double *before, *after; /* [layers, 2]: mean and largest load of a rank */
    moxie_eplb_config config;
    moxie_eplb_moves moves;
} work;

static void work_free(work *w)
{
    free(w->loads.at);
    balance_map_free(&w->old);
    balance_map_free(&w->now);
    free(w->hierarchical);
    free(w->before);
    free(w->after);
}

/* Slots of --slots, of the old map, or one for each expert. */
static moxie_status choose_slots(const arguments *args, const work *w, int32_t *slots, moxie_error *error)
{
    *slots = args->slots ? (int32_t)args->slots : args->map ? w->old.slots : w->loads.experts;
    if (*slots < w->loads.experts)
        return cli_error(MOXIE_ERR_ARGUMENT, error, args->loads,
                         "there are %d experts, and --slots %d: every expert needs a slot", w->loads.experts, *slots);
    if (args->map && w->old.slots != *slots)
        return cli_error(MOXIE_ERR_ARGUMENT, error, args->map,
                         "the map has %d slots, and --slots says %d: leave out --slots, or --map", w->old.slots,
                         *slots);
    return MOXIE_OK;
}

static moxie_status check_old(const arguments *args, const work *w, moxie_error *error)
{
    if (w->old.layers != w->loads.layers)
        return cli_error(MOXIE_ERR_MISMATCH, error, args->map, "the map has %d layers, and %s has loads of %d",
                         w->old.layers, args->loads, w->loads.layers);
    for (int32_t r = 0; r <= w->old.ranks; r++)
        if (w->old.first_slot[r] != w->now.first_slot[r])
            return cli_error(MOXIE_ERR_UNSUPPORTED, error, args->map,
                             "rank %d begins at slot %d; maps are balanced with slots shared out evenly, and there it "
                             "begins at %d",
                             r, w->old.first_slot[r], w->now.first_slot[r]);
    return MOXIE_OK;
}

/* The map to compare with: the old one, or the one that engines begin with. */
static moxie_status read_old(const arguments *args, work *w, moxie_error *error)
{
    int32_t slots = 0;
    moxie_status status = MOXIE_OK;
    if (args->map)
        status = balance_map_read(args->map, (int32_t)args->ranks, w->loads.experts, &w->old, error);
    if (status == MOXIE_OK)
        status = choose_slots(args, w, &slots, error);
    if (status == MOXIE_OK)
        status = balance_map_create(w->loads.layers, w->loads.experts, slots, (int32_t)args->ranks, args->loads,
                                    &w->now, error);
    if (status != MOXIE_OK || args->map)
        return status == MOXIE_OK ? check_old(args, w, error) : status;
    status =
        balance_map_create(w->loads.layers, w->loads.experts, slots, (int32_t)args->ranks, args->loads, &w->old, error);
    for (int32_t l = 0; status == MOXIE_OK && l < w->old.layers; l++)
        status = moxie_slot_map_default(MOXIE_MAP_LINEAR, w->old.experts, slots, w->old.ranks,
                                        w->old.expert_of + (int64_t)l * slots, w->old.first_slot, error);
    return status;
}

/* Mean and largest load of the ranks, layer by layer. */
static moxie_status measure(const work *w, const balance_map *maps, double *out, moxie_error *error)
{
    double *ranks = cli_alloc((size_t)maps->ranks * sizeof *ranks);
    moxie_status status = MOXIE_OK;
    for (int32_t l = 0; status == MOXIE_OK && l < maps->layers; l++) {
        const moxie_slot_map map = balance_map_at(maps, l);
        status = moxie_slot_map_loads(&map, w->loads.at + (int64_t)l * w->loads.experts, ranks, error);
        out[2 * l] = out[2 * l + 1] = 0;
        for (int32_t r = 0; status == MOXIE_OK && r < maps->ranks; r++) {
            out[2 * l] += ranks[r] / maps->ranks;
            out[2 * l + 1] = ranks[r] > out[2 * l + 1] ? ranks[r] : out[2 * l + 1];
        }
    }
    free(ranks);
    return status;
}

/* The most moves of this step; 0: all. */
static int64_t most_moves(const arguments *args)
{
    const int64_t by_bytes = args->max_bytes ? args->max_bytes / args->expert_bytes : 0;
    if (!args->max_moves || !by_bytes)
        return args->max_moves + by_bytes;
    return args->max_moves < by_bytes ? args->max_moves : by_bytes;
}

/* From the old maps towards the target in w->now, which becomes where the step ends. */
static moxie_status step(const arguments *args, work *w, moxie_error *error)
{
    const balance_map *old = &w->old;
    const size_t n = (size_t)old->layers * (size_t)old->slots;
    int32_t *maps = cli_alloc(n * sizeof *maps);
    memcpy(maps, old->expert_of, n * sizeof *maps);
    moxie_status status = MOXIE_OK;
    if (args->map)
        status = moxie_eplb_keep_slots(old->layers, old->slots, old->ranks, old->first_slot, old->expert_of,
                                       w->now.expert_of, error);
    if (status == MOXIE_OK)
        status = moxie_eplb_step(&w->config, w->loads.at, w->now.expert_of, most_moves(args), maps, &w->moves, error);
    if (status == MOXIE_OK) {
        w->now.generation = old->generation + (memcmp(maps, old->expert_of, n * sizeof *maps) != 0);
        memcpy(w->now.expert_of, maps, n * sizeof *maps);
    }
    free(maps);
    return status;
}

static moxie_status balance(const arguments *args, work *w, moxie_error *error)
{
    moxie_status status = balance_counts_read(args->loads, args->experts, args->zero_experts, &w->loads, error);
    if (status == MOXIE_OK)
        status = read_old(args, w, error);
    if (status != MOXIE_OK)
        return status;
    const size_t layers = (size_t)w->loads.layers;
    w->hierarchical = cli_alloc(layers * sizeof *w->hierarchical);
    w->before = cli_alloc(2 * layers * sizeof *w->before);
    w->after = cli_alloc(2 * layers * sizeof *w->after);
    w->config.layers = w->loads.layers;
    w->config.experts = w->loads.experts;
    w->config.slots = w->now.slots;
    w->config.ranks = w->now.ranks;
    w->config.nodes = (int32_t)args->nodes;
    w->config.groups = (int32_t)args->groups;
    w->config.distinct = args->distinct;
    status = moxie_eplb_balance(&w->config, w->loads.at, w->now.expert_of, w->now.first_slot, w->hierarchical, error);
    if (status == MOXIE_OK)
        status = measure(w, &w->old, w->before, error);
    if (status == MOXIE_OK)
        status = step(args, w, error);
    if (status == MOXIE_OK)
        status = measure(w, &w->now, w->after, error);
    if (status == MOXIE_OK && args->output)
        status = cli_output_spares(args->output, args->loads, error); /* --map may be replaced by the next map */
    if (status == MOXIE_OK && args->output)
        status = balance_map_write(args->output, &w->now, (balance_style)args->style, error);
    return status;
}

/* ---- what is printed --------------------------------------------------------------------------------- */

/* Mean by largest of one layer, or of all. */
static double ratio(const double *loads, int32_t layers)
{
    double mean = 0, largest = 0;
    for (int32_t l = 0; l < layers; l++) {
        mean += loads[2 * l];
        largest += loads[2 * l + 1];
    }
    return largest > 0 ? mean / largest : 1;
}

static int32_t changed(const work *w, int32_t layer)
{
    int32_t n = 0;
    for (int64_t p = (int64_t)layer * w->now.slots; p < (int64_t)(layer + 1) * w->now.slots; p++)
        n += w->now.expert_of[p] >= 0 && w->now.expert_of[p] != w->old.expert_of[p];
    return n;
}

static void print_json(const arguments *args, const work *w)
{
    json_t *object = cli_json_begin("balance"), *layers = cli_pack("[]");
    const int32_t n = w->loads.layers;
    for (int32_t l = 0; l < n; l++)
        cli_json_append(layers, cli_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:i, s:b}", "layer", (int)l, "mean",
                                         w->before[2 * l], "largest_before", w->before[2 * l + 1], "largest_after",
                                         w->after[2 * l + 1], "balance_before", ratio(w->before + 2 * l, 1),
                                         "balance_after", ratio(w->after + 2 * l, 1), "moves", (int)changed(w, l),
                                         "hierarchical", (int)w->hierarchical[l]));
    cli_json_set(object, "map", args->map ? cli_json_string(args->map) : json_null());
    cli_json_set(object, "output", args->output ? cli_json_string(args->output) : json_null());
    cli_json_merge(object,
                   cli_pack("{s:s, s:i, s:i, s:i, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:o}", "loads",
                            cli_utf8(args->loads), "experts", (int)w->loads.experts, "slots", (int)w->now.slots,
                            "ranks", (int)w->now.ranks, "nodes", (json_int_t)(args->nodes ? args->nodes : 1), "groups",
                            (json_int_t)(args->groups ? args->groups : 1), "balance_before", ratio(w->before, n),
                            "balance_after", ratio(w->after, n), "moves", (json_int_t)w->moves.moves, "remote_moves",
                            (json_int_t)w->moves.remote, "moves_left", (json_int_t)w->moves.left, "generation",
                            (json_int_t)w->now.generation, "layers", layers));
    if (args->expert_bytes)
        cli_json_set(object, "remote_bytes", cli_pack("I", (json_int_t)(w->moves.remote * args->expert_bytes)));
    cli_json_end(object);
}

/* Nodes that were asked for and did nothing. */
static void print_nodes(const arguments *args, const work *w)
{
    int32_t ignored = 0;
    for (int32_t l = 0; l < w->loads.layers; l++)
        ignored += !w->hierarchical[l];
    if (args->nodes > 1 && ignored > 0)
        printf("%d of %lld %s packed globally, as if --nodes were 1: --nodes %lld must divide --groups %lld, and each "
               "node needs slots for its groups\n",
               ignored, CLI_COUNT(w->loads.layers, "layer"), (long long)args->nodes,
               (long long)(args->groups ? args->groups : 1));
}

static void print_summary(const arguments *args, const work *w)
{
    char bytes[16];
    printf("balance %.4f before (%s), %.4f after: mean / largest load of %lld %s\n", ratio(w->before, w->loads.layers),
           args->map ? "the given map" : "linear", ratio(w->after, w->loads.layers), CLI_COUNT(w->now.ranks, "rank"));
    printf("%lld %s, %lld of them from another rank", CLI_COUNT(w->moves.moves, "move"), (long long)w->moves.remote);
    if (args->expert_bytes)
        printf(" (%s)", cli_bytes(bytes, (uint64_t)(w->moves.remote * args->expert_bytes)));
    if (w->moves.left)
        printf("; %lld %s not yet as wanted: run it again with this map",
               CLI_COUNT_OF(w->moves.left, "slot is", "slots are"));
    printf("\n");
}

static void print_table(const arguments *args, const work *w)
{
    static const char *const headings[] = { ">layer",  ">mean load", ">largest before", ">largest after",
                                            ">before", ">after",     ">moves",          "packed" };
    cli_table table;
    cli_table_begin(&table, 8, headings);
    for (int32_t l = 0; l < w->loads.layers; l++) {
        cli_table_add(&table, "%d", l);
        cli_table_add(&table, "%.6g", w->before[2 * l]);
        cli_table_add(&table, "%.6g", w->before[2 * l + 1]);
        cli_table_add(&table, "%.6g", w->after[2 * l + 1]);
        cli_table_add(&table, "%.4f", ratio(w->before + 2 * l, 1));
        cli_table_add(&table, "%.4f", ratio(w->after + 2 * l, 1));
        cli_table_add(&table, "%d", changed(w, l));
        cli_table_add(&table, "%s", args->nodes > 1 && w->hierarchical[l] ? "groups onto nodes" : "globally");
    }
    cli_table_print(&table);
    cli_table_free(&table);
    printf("\n");
    print_summary(args, w);
    print_nodes(args, w);
    if (args->output)
        printf("%s: %lld %s, %lld %s, generation %llu\n", cli_printable(args->output),
               CLI_COUNT(w->now.layers, "layer"), CLI_COUNT(w->now.slots, "slot"),
               (unsigned long long)w->now.generation);
}

int cmd_balance(int argc, char **argv)
{
    static const struct argp_option options[] = {
        { "ranks", OPT_RANKS, "N", 0, "ranks that share the experts", 0 },
        { "nodes", OPT_NODES, "N", 0, "nodes of near ranks (default 1)", 0 },
        { "groups", OPT_GROUPS, "N", 0, "groups of experts, each of which lies on one node (default 1)", 0 },
        { "slots", OPT_SLOTS, "N", 0, "places for experts of all ranks (default: one for each expert)", 0 },
        { "distinct", OPT_DISTINCT, NULL, 0, "avoid two replicas of an expert on one rank", 0 },
        { "experts", OPT_EXPERTS, "N", 0, "number of experts, when LOADS has topk_ids", 0 },
        { "zero-experts", OPT_ZERO_EXPERTS, "Z", 0,
          "experts without weights, when LOADS has topk_ids; their ids follow, and they are no load (default 0)", 0 },
        { "map", OPT_MAP, "OLD.json", 0, "today's map, of moxie, SGLang or vLLM (default: linear)", 1 },
        { "max-moves", OPT_MAX_MOVES, "N", 0, "go at most N moves from today's map to the best one", 1 },
        { "max-bytes", OPT_MAX_BYTES, "N", 0, "the same in bytes; needs --bytes-per-expert", 1 },
        { "bytes-per-expert", OPT_EXPERT_BYTES, "N", 0, "print what the moves weigh", 1 },
        { "output", 'o', "MAP.json", 0, "write the map", 2 },
        { "format", OPT_FORMAT, "NAME", 0, "of the written map: moxie (default), sglang or vllm", 2 },
        { "json", 'j', NULL, 0, "print one JSON object", 2 },
        { 0 },
    };
    static const struct argp parser = {
        options,
        parse,
        "LOADS",
        "Which expert lies on which rank, with replicas, so that ranks have equal loads (EPLB). LOADS is a file: a "
        "routing trace; JSON or lines of numbers, [layers, experts]; SGLang's logical_count; or topk_ids of a run, as "
        "*.safetensors or JSON.",
        0,
        0,
        0
    };
    arguments args = { .loads = NULL };
    work w = { .config = MOXIE_EPLB_CONFIG_INIT, .moves = MOXIE_EPLB_MOVES_INIT };
    moxie_error error = { 0 };
    cli_parse(&parser, argc, argv, &args);
    const moxie_status status = balance(&args, &w, &error);
    if (status == MOXIE_OK && args.json)
        print_json(&args, &w);
    else if (status == MOXIE_OK)
        print_table(&args, &w);
    work_free(&w);
    return status == MOXIE_OK ? CLI_OK : cli_fail("balance", args.json, status, &error);
}
