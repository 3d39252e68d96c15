/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_args.c - option values that several sub-commands take.
 */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <moxie/moxie_comm.h>

enum { MAX_LAYER = 1000000 }; /* the largest number of a layer */

double cli_parse_real(struct argp_state *state, const char *option, const char *text, bool zero)
{
    static const double low = 1e-12, high = 1e12; /* their products and quotients are finite, as doubles and floats */
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !((value >= low && value <= high) || (value == 0 && zero)))
        argp_error(state, "%s needs a number %s, not \"%s\"; the least above 0 is %g, the largest %g", option,
                   zero ? "of 0 or more" : "above 0", cli_printable(text), low, high);
    return value;
}

int64_t cli_parse_int(struct argp_state *state, const char *option, const char *text, int64_t low, int64_t high)
{
    char *end;
    const bool hexadecimal = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    errno = 0;
    const long long value = strtoll(text, &end, hexadecimal ? 16 : 10);
    if (errno || end == text || *end || value < low || value > high)
        argp_error(state, "%s takes a whole number from %lld to %lld, not \"%.80s\"", option, (long long)low,
                   (long long)high, cli_printable(text));
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
        if (out->count == CLI_MAX_SIZES)
            argp_error(state, "%s takes %d sizes at most", option, CLI_MAX_SIZES);
        out->at[out->count++] = cli_parse_int(state, option, one, 1, 1 << 20);
    }
}

int64_t cli_largest_size(const cli_sizes *sizes)
{
    int64_t max = 0;
    for (int i = 0; i < sizes->count; i++)
        max = sizes->at[i] > max ? sizes->at[i] : max;
    return max;
}

void cli_parse_layers(struct argp_state *state, const char *text, int64_t *first, int64_t *last)
{
    char *end;
    *first = *last = strtoll(text, &end, 10);
    if (end > text && *end == '-' && end[1] != '\0')
        *last = strtoll(end + 1, &end, 10);
    if (end == text || *end != '\0' || *first < 0 || *last < *first || *last > MAX_LAYER)
        argp_error(state, "--layers takes A-B with A <= B, or one layer, from 0 to %d, not \"%s\"", MAX_LAYER,
                   cli_printable(text));
}

const char *cli_parse_output(char *text)
{
    for (size_t length = strlen(text); length > 1 && text[length - 1] == '/';)
        text[--length] = '\0';
    return text;
}

int64_t cli_parse_bytes(struct argp_state *state, const char *option, const char *text)
{
    static const char units[] = "KMGT";
    char *last;
    const double value = strtod(text, &last);
    double unit = 1;
    const char *at = *last ? strchr(units, *last) : NULL;
    for (int i = 0; at && i <= at - units; i++)
        unit *= 1000;
    if (last == text || (*last && (!at || last[1])) ||
        !(value * unit >= 1 && value * unit <= 1e15)) /* times the layers it fits into 64 bits */
        argp_error(state, "%s takes bytes, as 24000000000 or 24G, not \"%.40s\"", option, cli_printable(text));
    return (int64_t)(value * unit);
}

moxie_backend cli_parse_backend(struct argp_state *state, const char *text)
{
    return (moxie_backend)cli_parse_name(state, &cli_backends, text);
}

cli_states cli_parse_states(struct argp_state *state, const char *text)
{
    static const char *const fixed[] = { "normal", "outliers", NULL };
    static const cli_names names = { .kind = "kind of --states", .fixed = fixed };
    return (cli_states)cli_parse_name(state, &names, text);
}

static const char *parse_isa(struct argp_state *state, const char *text)
{
    char reason[300];
    if (!cli_isa_fits(text, reason, sizeof reason))
        argp_error(state, "--isa: %s", reason);
    return text;
}

/* A GPU's number. Commands that run nothing also accept the name of an architecture. */
static const char *check_device(struct argp_state *state, const cli_layer_options *options, const char *text)
{
    static const char *const gpus[] = { "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", NULL };
    static const cli_names names = { .kind = "GPU architecture", .fixed = gpus };
    if (options->plans_only && cli_find_name(&cli_isas, text) >= 0)
        return text;
    if (strspn(text, "0123456789") == strlen(text))
        cli_parse_int(state, "--device", text, 0, 1023);
    else if (options->plans_only)
        cli_parse_name(state, &names, text);
    else if (cli_find_name(&names, text) >= 0)
        argp_error(state,
                   "--device %s is an architecture, and a GPU that is here is needed: give its number, from 0 on; "
                   "`moxie explain --device %s` shows the plan without one",
                   text, text);
    else
        argp_error(state, "--device takes the number of a GPU, from 0 on, not \"%s\"; `moxie info` lists them",
                   cli_printable(text));
    return text;
}

/* The same with the kernels that it may run, "0:sm80": --device-kernels appends them. The library checks their name. */
static const char *parse_device(struct argp_state *state, const cli_layer_options *options, const char *text)
{
    static char number[32];
    if (!strchr(text, ':'))
        return check_device(state, options, text);
    snprintf(number, sizeof number, "%.*s", (int)strcspn(text, ":"), text);
    check_device(state, options, number);
    return text;
}

static const char *parse_device_kernels(struct argp_state *state, const char *text)
{
    static const char *const sets[] = { "sm80", "sm86", "sm89", "sm90", "sm100", "sm120", NULL };
    static const cli_names names = { .kind = "set of kernels", .fixed = sets };
    cli_parse_name(state, &names, text);
    return text;
}

enum {
    OPT_LAYER = 1024,
    OPT_ISA,
    OPT_THREADS,
    OPT_MODE,
    OPT_ACTIVATIONS,
    OPT_DEVICE,
    OPT_DEVICE_KERNELS,
    OPT_ALLOW_UNREAD,
    OPT_ROUND_RESULTS,
    OPT_NUMA
};

static const struct argp_option layer_options[] = {
    { "layer", OPT_LAYER, "L", 0, "layer number in the checkpoint's names (default: the first MoE layer)", 0 },
    { "isa", OPT_ISA, "NAME", 0, "cap the instruction set: scalar, avx2, avx512, amx, neon", 0 },
    { "threads", OPT_THREADS, "N", 0, "default: one per processor; bench: a list, 1,2,4, shows how it scales", 0 },
    { "numa", OPT_NUMA, "NAME", 0,
      "auto (default): with several nodes of memory, threads are pinned and experts spread over them; off; interleave: "
      "by page; or node=N: one node",
      0 },
    { "mode", OPT_MODE, "NAME", 0, "exact (default) or fast", 0 },
    { "activations", OPT_ACTIVATIONS, "NAME", 0,
      "checkpoint (default): quantized as its scheme says; 16bit; or ggml: GGUF's as llama.cpp does on CPUs", 0 },
    { "device", OPT_DEVICE, "N", 0,
      "GPU (default 0), for back end cuda; explain: or sm_90, sm_80, sm_100, amx, avx512, ...", 0 },
    { "device-kernels", OPT_DEVICE_KERNELS, "NAME", 0,
      "cap the kernels of a GPU: sm80 takes those for every card from sm_80 on, by mma.sync", 0 },
    { "round-results", OPT_ROUND_RESULTS, NULL, 0,
      "round each expert's result to the 16-bit type of the hidden states; ranks return half the bytes", 0 },
    { "allow-unread", OPT_ALLOW_UNREAD, NULL, 0, "load a layer even if it has tensors that moxie does not know", 0 },
    { "json", 'j', NULL, 0, "print one JSON object", 0 },
    { 0 },
};

/* Appends --device-kernels to --device, for moxie_options. */
static void add_device_kernels(cli_layer_options *options)
{
    static char both[64];
    if (!options->device_kernels)
        return;
    options->any_device = !options->device;
    snprintf(both, sizeof both, "%.31s:%.31s", options->device ? options->device : "0", options->device_kernels);
    options->device = both;
}

const char *cli_layer_how(const cli_layer_options *options)
{
    return options->isa                                           ? "--isa"
           : options->threads                                     ? "--threads"
           : options->numa                                        ? "--numa"
           : options->mode != MOXIE_MODE_EXACT                    ? "--mode"
           : options->activations != MOXIE_ACTIVATIONS_CHECKPOINT ? "--activations"
           : options->device_kernels                              ? "--device-kernels"
           : options->device                                      ? "--device"
           : options->round_results                               ? "--round-results"
                                                                  : NULL;
}

void cli_check_oracle(struct argp_state *state, const cli_layer_options *options)
{
    if (options->isa)
        argp_error(state, "--isa caps the CPU's kernels, and the oracle (ref) has none: leave one of the two out");
    if (options->mode != MOXIE_MODE_EXACT)
        argp_error(state, "--mode fast chooses kernels, and the oracle (ref) has none: leave one of the two out");
}

void cli_check_gpu(struct argp_state *state, const cli_layer_options *options)
{
    if (options->isa && options->backend == MOXIE_BACKEND_CUDA && !options->where)
        argp_error(state, "--isa caps the CPU's kernels, and the layer is for a GPU: leave one of the two out");
}

void cli_check_checkpoint(struct argp_state *state, const cli_layer_options *options)
{
    if (options->allow_unread && !options->dir)
        argp_error(state,
                   "--allow-unread goes with a directory, which is not given: only a checkpoint has such tensors");
}

static void choose_backend(struct argp_state *state, cli_layer_options *options)
{
    if (options->backend == MOXIE_BACKEND_REF)
        cli_check_oracle(state, options);
    if (!options->device)
        return;
    if (cli_find_name(&cli_isas, options->device) >= 0) { /* a processor's class; parse_device() let it pass */
        if (options->backend == MOXIE_BACKEND_REF || options->backend == MOXIE_BACKEND_CUDA)
            argp_error(state, "--device %s is a processor's class, for --backend cpu", options->device);
        options->backend = MOXIE_BACKEND_CPU;
        return;
    }
    if (options->backend == MOXIE_BACKEND_REF || options->backend == MOXIE_BACKEND_CPU)
        argp_error(state, "--device chooses a GPU, and --backend %s has none: leave one of the two out",
                   options->backend == MOXIE_BACKEND_REF ? "ref" : "cpu");
    options->backend = MOXIE_BACKEND_CUDA;
}

static const char *parse_numa(struct argp_state *state, const char *text)
{
    static const char *const words[] = { "auto", "off", "interleave" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(text, words[i]) == 0)
            return text;
    if (strncmp(text, "node=", 5) != 0)
        argp_error(state, "--numa takes auto, off, interleave or node=NUMBER, not %s", cli_printable(text));
    cli_parse_int(state, "--numa node=", text + 5, 0, INT32_MAX);
    return text;
}

static void parse_threads(struct argp_state *state, const char *text, cli_layer_options *options)
{
    if (!strchr(text, ',')) {
        options->threads = (int32_t)cli_parse_int(state, "--threads", text, 1, 4096);
        return;
    }
    if (strcmp(options->command, "bench") != 0)
        argp_error(state, "--threads %s is a list, which only bench takes: give one number", cli_printable(text));
    cli_parse_sizes(state, "--threads", text, &options->thread_counts);
    for (int i = 0; i < options->thread_counts.count; i++)
        if (options->thread_counts.at[i] > 4096)
            argp_error(state, "--threads takes numbers from 1 to 4096");
    options->threads = (int32_t)options->thread_counts.at[0];
}

/* The first one, or those of further ranks. */
static void add_directory(struct argp_state *state, cli_layer_options *options, const char *dir)
{
    if (!options->takes_shares || !options->dir) {
        cli_parse_operand(state, "directory", dir, &options->dir);
        return;
    }
    if (options->n_shares == MOXIE_MAX_RANKS)
        argp_error(state, "more than %d directories, one for each rank", MOXIE_MAX_RANKS);
    if (!options->shares) {
        options->shares = cli_alloc(MOXIE_MAX_RANKS * sizeof *options->shares);
        options->shares[options->n_shares++] = options->dir;
    }
    options->shares[options->n_shares++] = dir;
}

static error_t parse_layer(int key, char *arg, struct argp_state *state)
{
    cli_layer_options *options = state->input;
    switch (key) {
    case OPT_LAYER: options->layer = cli_parse_int(state, "--layer", arg, 0, MAX_LAYER); return 0;
    case OPT_ISA: options->isa = parse_isa(state, arg); return 0;
    case OPT_THREADS: parse_threads(state, arg, options); return 0;
    case OPT_NUMA: options->numa = parse_numa(state, arg); return 0;
    case OPT_MODE: options->mode = cli_parse_name(state, &cli_modes, arg); return 0;
    case OPT_ACTIVATIONS: options->activations = cli_parse_name(state, &cli_activations, arg); return 0;
    case OPT_DEVICE: options->device = parse_device(state, options, arg); return 0;
    case OPT_ROUND_RESULTS: options->round_results = true; return 0;
    case OPT_ALLOW_UNREAD: options->allow_unread = true; return 0;
    case OPT_DEVICE_KERNELS: options->device_kernels = parse_device_kernels(state, arg); return 0;
    case ARGP_KEY_END:
        add_device_kernels(options);
        choose_backend(state, options);
        return 0;
    case 'j': options->json = true; return 0;
    case ARGP_KEY_ARG: add_directory(state, options, arg); return 0;
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

#if defined(__aarch64__)
static const char here[] = "64-bit ARM", elsewhere[] = "x86-64";
static const char *const usable[] = { "scalar", "neon", NULL };
#else
static const char here[] = "x86-64", elsewhere[] = "64-bit ARM";
static const char *const usable[] = { "scalar", "avx2", "avx512", "amx", NULL };
#endif

static const cli_names isas_here = { .kind = "instruction set", .fixed = usable };

bool cli_isa_fits(const char *isa, char *reason, size_t size)
{
    if (cli_isa_rank(isa) >= 0)
        return true;
    cli_no_such_name(&isas_here, isa, reason, size);
    if (cli_find_name(&cli_isas, isa) >= 0)
        snprintf(reason, size, "%s is an instruction set of %s, and this processor is of %s", isa, elsewhere, here);
    return false;
}

int32_t cli_isa_rank(const char *isa)
{
    return cli_find_name(&isas_here, isa);
}

const char *cli_isa_under(const moxie_machine *machine, const char *cap)
{
    const int32_t rank = cap ? cli_isa_rank(cap) : -1;
    return rank >= 0 && rank < cli_isa_rank(machine->isa_allowed) ? cap : machine->isa_allowed;
}
