/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_trace.c - `moxie trace ACTION ...`: routing traces (docs/traces.md). One parser for all actions; each action
 * lists the options that it takes, and what it needs.
 */
#include "trace_tool.h"

#include <stdlib.h>
#include <string.h>

enum {
    OPT_LAYERS = 256,
    OPT_LAYER,
    OPT_TOKENS,
    OPT_SEED,
    OPT_STATES,
    OPT_HIDDEN,
    OPT_PREFILL,
    OPT_STEP_TOKENS,
    OPT_THREADS,
    OPT_FORMAT,
    OPT_EXPERTS,
    OPT_ZERO_EXPERTS,
    OPT_TOP_K,
    OPT_NAME,
    OPT_REQUEST,
    OPT_POLICY,
    OPT_SLOTS,
    OPT_BUDGET,
    OPT_EXPERT_BYTES,
    OPT_MAX_INSERTS,
    OPT_WARM,
    OPT_HALF_LIFE,
    OPT_CENSUS,
    OPT_BEST,
    OPT_READ_GB_S,
    OPT_LAST
};

typedef struct action {
    const char *name, *operand;
    int (*run)(const trace_arguments *args);
    bool needs_output, many;     /* many: operands */
    int options[OPT_LAST - 255]; /* ended by 0; --json is everybody's */
} action;

static const action actions[] = {
    { "record",
      "DIR",
      trace_record,
      true,
      false,
      { OPT_LAYERS, OPT_TOKENS, OPT_SEED, OPT_STATES, OPT_HIDDEN, OPT_PREFILL, OPT_STEP_TOKENS, OPT_THREADS,
        OPT_NAME } },
    { "show", "TRACE", trace_show, false, false, { OPT_LAYER } },
    { "import",
      "FILE",
      trace_import,
      true,
      true,
      { OPT_FORMAT, OPT_EXPERTS, OPT_ZERO_EXPERTS, OPT_TOP_K, OPT_LAYERS, OPT_PREFILL, OPT_STEP_TOKENS, OPT_NAME } },
    { "export", "TRACE", trace_export, true, false, { OPT_FORMAT, OPT_REQUEST } },
    { "simulate",
      "TRACE",
      trace_policies,
      false,
      false,
      { OPT_POLICY, OPT_SLOTS, OPT_BUDGET, OPT_EXPERT_BYTES, OPT_MAX_INSERTS, OPT_WARM, OPT_HALF_LIFE, OPT_CENSUS,
        OPT_BEST, OPT_READ_GB_S } },
};
enum { N_ACTIONS = sizeof actions / sizeof actions[0] };

static const char *action_at(int32_t i)
{
    return i < N_ACTIONS ? actions[i].name : NULL;
}

static const struct argp_option options[] = {
    { 0, 0, 0, 0, "record:", 1 },
    { "layers", OPT_LAYERS, "A-B", 0,
      "these layers of the checkpoint (default: all with experts); of import: the numbers of "
      "the layers in the array",
      1 },
    { "tokens", OPT_TOKENS, "T", 0, "random hidden states of T tokens, the same for all layers", 1 },
    { "seed", OPT_SEED, "S", 0, "of random hidden states (default 0)", 1 },
    { "states", OPT_STATES, "NAME", 0, CLI_STATES_HELP, 1 },
    { "hidden-states", OPT_HIDDEN, "FILE", 0,
      "a safetensors file with hidden_states [T,H], or with layers.N.hidden_states for each layer N: what the routers "
      "read",
      1 },
    { "threads", OPT_THREADS, "N", 0, "worker threads (default: one per processor)", 1 },
    { 0, 0, 0, 0, "record and import:", 2 },
    { "prefill", OPT_PREFILL, "N", 0, "the first N tokens of each request are one prefill step (default 0)", 2 },
    { "step-tokens", OPT_STEP_TOKENS, "N", 0, "tokens of each decode step behind them (default 1)", 2 },
    { "name", OPT_NAME, "TEXT", 0, "the model's name (default of record: its directory's)", 2 },
    { 0, 0, 0, 0, "import and export:", 3 },
    { "format", OPT_FORMAT, "NAME", 0,
      "vllm (.npy), sglang (.json), csv (.csv), run (.safetensors, import) or counts "
      "(.counts.json, export); default: by the ending",
      3 },
    { "experts", OPT_EXPERTS, "N", 0, "number of experts, which arrays of ids do not tell", 3 },
    { "zero-experts", OPT_ZERO_EXPERTS, "Z", 0,
      "of import: experts without weights, whose ids follow those (default 0)", 3 },
    { "top-k", OPT_TOP_K, "K", 0, "choices of a token, which sglang's arrays do not tell", 3 },
    { "request", OPT_REQUEST, "N", 0, "export only the tokens of request N", 3 },
    { 0, 0, 0, 0, "show:", 4 },
    { "layer", OPT_LAYER, "L", 0, "the histogram of this layer, too", 4 },
    { 0, 0, 0, 0, "simulate:", 5 },
    { "policy", OPT_POLICY, "NAME", 0,
      "lfru, lru, lfu, pinned or frozen (default: each; pinned needs --warm or --census, frozen --warm)", 5 },
    { "slots", OPT_SLOTS, "LIST", 0, "experts of each layer that are kept (default: E/8, E/4, E/2)", 5 },
    { "budget", OPT_BUDGET, "BYTES", 0,
      "as many slots as so many bytes of all layers hold: 24000000000 or 24G; needs --bytes-per-expert", 5 },
    { "bytes-per-expert", OPT_EXPERT_BYTES, "N", 0, "print what is read for each token", 5 },
    { "read-gb-s", OPT_READ_GB_S, "X", 0, "read rate: print how many tokens a second it allows", 5 },
    { "max-inserts", OPT_MAX_INSERTS, "N", 0,
      "experts that get a slot in one step of a layer, once all are filled (default: any number)", 5 },
    { "warm", OPT_WARM, "N", 0, "the first N steps fill the cache and are not counted", 5 },
    { "half-life", OPT_HALF_LIFE, "X", 0, "steps in which a use of lfru and frozen loses half its weight (default 16)",
      5 },
    { "census", OPT_CENSUS, "FILE", 0,
      "what pinned keeps: loads as for moxie balance, or a trace (default: the warm steps')", 5 },
    { "best", OPT_BEST, NULL, 0, "also a cache that knows the future, which no policy beats", 5 },
    { "output", 'o', "FILE", 0, "record, import: the trace; export: the file", 6 },
    { "json", 'j', NULL, 0, "print one JSON object", 6 },
    { 0 },
};

typedef struct parsing {
    trace_arguments args;
    const action *action;
    bool given[OPT_LAST - 256];
} parsing;

static const char *option_name(int key)
{
    for (const struct argp_option *o = options; o->name || o->doc; o++)
        if (o->key == key && o->name)
            return o->name;
    return "";
}

static bool takes(const action *a, int key)
{
    for (const int *o = a->options; *o; o++)
        if (*o == key)
            return true;
    return false;
}

static void check_action(struct argp_state *state, const parsing *p)
{
    const action *a = p->action;
    if (!a)
        argp_error(state, "what is to be done? record, show, import, export or simulate");
    if (p->args.n_inputs == 0)
        argp_error(state, "%s needs a %s: name one", a->name, a->operand);
    for (int key = OPT_LAYERS; key < OPT_LAST; key++)
        if (p->given[key - 256] && !takes(a, key))
            argp_error(state, "--%s does not go with %s", option_name(key), a->name);
    if (a->needs_output != (p->args.output != NULL))
        argp_error(state,
                   a->needs_output ? "%s writes a file: name it with -o FILE" : "%s writes no file: leave out -o",
                   a->name);
}

static void check_arguments(struct argp_state *state, const parsing *p)
{
    const trace_arguments *args = &p->args;
    check_action(state, p);
    if (args->budget && !args->expert_bytes)
        argp_error(state, "--budget needs the bytes of an expert: give --bytes-per-expert N");
    if (args->census && args->policy && strcmp(args->policy, "pinned") != 0)
        argp_error(state, "--census is what pinned keeps, and --policy %s does not read it: leave it out",
                   args->policy);
    if (args->half_life > 0 && args->policy && strcmp(args->policy, "lfru") != 0 && strcmp(args->policy, "frozen") != 0)
        argp_error(state, "--half-life is for lfru and frozen, and --policy %s has none: leave it out", args->policy);
    if (args->read_gb_s > 0 && !args->expert_bytes)
        argp_error(state, "--read-gb-s needs the bytes of an expert: give --bytes-per-expert N");
    if (p->action->run == trace_record && !args->tokens == !args->states_file)
        argp_error(state,
                   "record needs hidden states: give either --tokens T, for random ones, or --hidden-states FILE");
}

static error_t take_operand(struct argp_state *state, parsing *p, const char *text)
{
    static const cli_names names = { .kind = "action of moxie trace", .at = action_at };
    if (!p->action) {
        p->action = &actions[cli_parse_name(state, &names, text)];
        return 0;
    }
    if (p->args.n_inputs == (p->action->many ? TRACE_MAX_INPUTS : 1))
        argp_error(state, "%s takes %s%s; \"%s\" is one too many", p->action->name,
                   p->action->many ? "at most 256 of " : "one ", p->action->operand, cli_printable(text));
    p->args.inputs[p->args.n_inputs++] = text;
    return 0;
}

static error_t parse_cache(int key, char *arg, struct argp_state *state, trace_arguments *args)
{
    switch (key) {
    case OPT_POLICY: args->policy = cli_parse_policy(state, arg); return 0;
    case OPT_SLOTS: cli_parse_sizes(state, "--slots", arg, &args->slots); return 0;
    case OPT_BUDGET: args->budget = cli_parse_bytes(state, "--budget", arg); return 0;
    case OPT_EXPERT_BYTES: args->expert_bytes = cli_parse_bytes(state, "--bytes-per-expert", arg); return 0;
    case OPT_MAX_INSERTS:
        args->max_inserts = cli_parse_int(state, "--max-inserts", arg, 1, MOXIE_MAX_EXPERTS);
        return 0;
    case OPT_WARM: args->warm_steps = cli_parse_int(state, "--warm", arg, 0, INT32_MAX); return 0;
    case OPT_HALF_LIFE: args->half_life = cli_parse_real(state, "--half-life", arg, false); return 0;
    case OPT_READ_GB_S: args->read_gb_s = cli_parse_real(state, "--read-gb-s", arg, false); return 0;
    case OPT_CENSUS: args->census = arg; return 0;
    case OPT_BEST: args->best = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_tokens(int key, char *arg, struct argp_state *state, trace_arguments *args)
{
    const int64_t most = (int64_t)1 << 24;
    switch (key) {
    case OPT_LAYERS: cli_parse_layers(state, arg, &args->first_layer, &args->last_layer); return 0;
    case OPT_LAYER: args->layer = cli_parse_int(state, "--layer", arg, 0, INT32_MAX); return 0;
    case OPT_TOKENS: args->tokens = cli_parse_int(state, "--tokens", arg, 1, most); return 0;
    case OPT_SEED: args->seed = (uint64_t)cli_parse_int(state, "--seed", arg, 0, INT64_MAX); return 0;
    case OPT_STATES: args->states = (int32_t)cli_parse_states(state, arg); return 0;
    case OPT_HIDDEN: args->states_file = arg; return 0;
    case OPT_PREFILL: args->prefill = cli_parse_int(state, "--prefill", arg, 0, MOXIE_TRACE_MAX_TOKENS); return 0;
    case OPT_STEP_TOKENS:
        args->step_tokens = cli_parse_int(state, "--step-tokens", arg, 1, MOXIE_TRACE_MAX_TOKENS);
        return 0;
    case OPT_THREADS: args->threads = (int32_t)cli_parse_int(state, "--threads", arg, 1, 1024); return 0;
    case OPT_EXPERTS: args->experts = cli_parse_int(state, "--experts", arg, 1, MOXIE_MAX_EXPERTS); return 0;
    case OPT_ZERO_EXPERTS:
        args->zero_experts = cli_parse_int(state, "--zero-experts", arg, 0, MOXIE_MAX_EXPERTS);
        return 0;
    case OPT_TOP_K: args->top_k = cli_parse_int(state, "--top-k", arg, 1, MOXIE_MAX_TOP_K); return 0;
    case OPT_REQUEST: args->request = cli_parse_int(state, "--request", arg, 0, INT64_MAX); return 0;
    default: return parse_cache(key, arg, state, args);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    parsing *p = state->input;
    if (key >= OPT_LAYERS && key < OPT_LAST)
        p->given[key - 256] = true;
    switch (key) {
    case OPT_FORMAT:
        cli_parse_name(state, &trace_form_names, arg);
        p->args.format = arg;
        return 0;
    case OPT_NAME:
        if (strlen(arg) > 71)
            argp_error(state, "--name takes at most 71 bytes");
        p->args.name = arg;
        return 0;
    case 'o': p->args.output = arg; return 0;
    case 'j': p->args.json = true; return 0;
    case ARGP_KEY_ARG: return take_operand(state, p, arg);
    case ARGP_KEY_END: check_arguments(state, p); return 0;
    default: return parse_tokens(key, arg, state, &p->args);
    }
}

int cmd_trace(int argc, char **argv)
{
    static const struct argp parser = {
        options,
        parse,
        "record DIR -o TRACE\nshow TRACE\nimport FILE... -o TRACE\nexport TRACE -o FILE\nsimulate TRACE",
        "Routing traces: which experts tokens chose, in every layer and step. Record them from a checkpoint's routers, "
        "show what the experts do, exchange them with vLLM and SGLang, and simulate caches of experts.",
        0,
        0,
        0
    };
    parsing p = { .args = { .first_layer = TRACE_NOT_GIVEN,
                            .last_layer = TRACE_NOT_GIVEN,
                            .layer = TRACE_NOT_GIVEN,
                            .request = TRACE_NOT_GIVEN,
                            .step_tokens = 1 } };
    cli_parse(&parser, argc, argv, &p);
    return p.action->run(&p.args);
}
