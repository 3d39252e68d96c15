/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_args.c - option values that several sub-commands take.
 */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int64_t cli_parse_int(struct argp_state *state, const char *option, const char *text, int64_t low, int64_t high)
{
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 0);
    if (errno || end == text || *end || value < low || value > high)
        argp_error(state, "%s takes a whole number from %lld to %lld, not \"%s\"", option, (long long)low,
                   (long long)high, text);
    return value;
}

void cli_parse_sizes(struct argp_state *state, const char *option, const char *text, cli_sizes *out)
{
    char list[512];
    out->count = 0;
    if (strlen(text) >= sizeof list)
        argp_error(state, "%s takes a list of at most %zu characters", option, sizeof list - 1);
    snprintf(list, sizeof list, "%s", text);
    char *rest = list;
    for (char *one; (one = strsep(&rest, ",")) != NULL;) {
        if (out->count == CLI_MOST_SIZES)
            argp_error(state, "%s takes %d sizes at most", option, CLI_MOST_SIZES);
        out->at[out->count++] = cli_parse_int(state, option, one, 1, 1 << 20);
    }
}

int64_t cli_largest_size(const cli_sizes *sizes)
{
    int64_t most = 0;
    for (int i = 0; i < sizes->count; i++)
        most = sizes->at[i] > most ? sizes->at[i] : most;
    return most;
}

/* The index of `text` among `names` (ended by NULL), or argp_error. */
static int parse_name(struct argp_state *state, const char *option, const char *text, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (!strcmp(text, names[i]))
            return i;
    char known[256] = "";
    for (int i = 0; names[i]; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", names[i]);
    argp_error(state, "%s is one of %s, not \"%s\"", option, known, text);
    return 0;
}

moxie_backend cli_parse_backend(struct argp_state *state, const char *text)
{
    static const char *const names[] = { "auto", "ref", "cpu", "cuda", NULL };
    return (moxie_backend)parse_name(state, "a back end", text, names);
}

cli_states cli_parse_states(struct argp_state *state, const char *text)
{
    static const char *const names[] = { "normal", "outliers", NULL };
    return (cli_states)parse_name(state, "--states", text, names);
}

static moxie_mode parse_mode(struct argp_state *state, const char *text)
{
    static const char *const names[] = { "invariant", "throughput", NULL };
    return (moxie_mode)parse_name(state, "--mode", text, names);
}

static moxie_activations_choice parse_activations(struct argp_state *state, const char *text)
{
    static const char *const names[] = { "checkpoint", "16bit", NULL };
    return (moxie_activations_choice)parse_name(state, "--activations", text, names);
}

enum { OPT_LAYER = 1024, OPT_ISA, OPT_THREADS, OPT_MODE, OPT_ACTIVATIONS, OPT_DEVICE };

static const struct argp_option layer_options[] = {
    { "layer", OPT_LAYER, "L", 0, "layer number in the checkpoint's names (default: the first MoE layer)", 0 },
    { "isa", OPT_ISA, "NAME", 0, "cap the instruction set: scalar, avx2, avx512, amx, neon", 0 },
    { "threads", OPT_THREADS, "N", 0, "default: one per processor", 0 },
    { "mode", OPT_MODE, "NAME", 0, "invariant (default) or throughput", 0 },
    { "activations", OPT_ACTIVATIONS, "NAME", 0, "checkpoint (default): quantized as its scheme says; or 16bit", 0 },
    { "device", OPT_DEVICE, "N", 0, "GPU (default 0), for back end cuda; explain takes sm_80, sm_90, sm_100 too", 0 },
    { "json", 'j', NULL, 0, "print one JSON object", 0 },
    { 0 },
};

static error_t parse_layer(int key, char *arg, struct argp_state *state)
{
    cli_layer_options *options = state->input;
    switch (key) {
    case OPT_LAYER: options->layer = cli_parse_int(state, "--layer", arg, 0, 1000000); return 0;
    case OPT_ISA: options->isa = arg; return 0;
    case OPT_THREADS: options->threads = (int32_t)cli_parse_int(state, "--threads", arg, 1, 4096); return 0;
    case OPT_MODE: options->mode = parse_mode(state, arg); return 0;
    case OPT_ACTIVATIONS: options->activations = parse_activations(state, arg); return 0;
    case OPT_DEVICE: options->device = arg; return 0;
    case ARGP_KEY_END:
        if (options->device && options->backend == MOXIE_BACKEND_AUTO)
            options->backend = MOXIE_BACKEND_CUDA;
        return 0;
    case 'j': options->json = true; return 0;
    case ARGP_KEY_ARG:
        if (options->dir)
            argp_error(state, "one directory at a time; \"%s\" is a second one", arg);
        options->dir = arg;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

const struct argp cli_layer_argp = { layer_options, parse_layer, NULL, NULL, NULL, NULL, NULL };

enum { OPT_TOKENS = 1100 };

static const struct argp_option tokens_options[] = {
    { "tokens", OPT_TOKENS, "T", 0, "number of tokens", 0 },
    { 0 },
};

static error_t parse_tokens(int key, char *arg, struct argp_state *state)
{
    cli_layer_options *options = state->input;
    if (key != OPT_TOKENS)
        return ARGP_ERR_UNKNOWN;
    options->tokens = cli_parse_int(state, "--tokens", arg, 0, 1 << 24);
    return 0;
}

const struct argp cli_tokens_argp = { tokens_options, parse_tokens, NULL, NULL, NULL, NULL, NULL };

/* ---- instruction set classes --------------------------------------------------------------------- */

int cli_isa_rank(const char *isa)
{
    static const char *const names[] = { "scalar", "neon", "avx2", "avx512", "amx" };
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++)
        if (!strcmp(isa, names[i]))
            return i;
    return -1;
}

const char *cli_isa_under(const moxie_machine *machine, const char *cap)
{
    if (!cap || cli_isa_rank(cap) < 0 || cli_isa_rank(cap) >= cli_isa_rank(machine->isa_allowed))
        return machine->isa_allowed;
    /* "neon" is below avx2 in the order, but no class of an x86 processor. */
    return !strcmp(cap, "neon") ? "scalar" : cap;
}
