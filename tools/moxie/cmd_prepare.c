/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_prepare.c - `moxie prepare DIR --layout NAME -o OUT`: a checkpoint's experts in the layout of another
 * engine's kernels. `--undo` restores the checkpoint, `--verify` checks a result, `--list` prints the layouts.
 */
#include "prepare.h"

#include <stdlib.h>
#include <string.h>

typedef enum prepare_mode { PREPARE, UNDO, VERIFY, LIST } prepare_mode;

typedef struct arguments {
    prepare_options prepare;
    prepare_mode mode;
    const char *for_preparing; /* an option that was given and only matters when something is prepared */
    bool has_layers;           /* --layers was given */
} arguments;

enum {
    OPT_LAYOUT = 256,
    OPT_FOR,
    OPT_LAYERS,
    OPT_TP,
    OPT_EP,
    OPT_EP_MAP,
    OPT_PAD,
    OPT_THREADS,
    OPT_UNDO,
    OPT_VERIFY,
    OPT_LIST,
    OPT_ALLOW_UNREAD
};

static const struct argp_option options[] = {
    { "layout", OPT_LAYOUT, "NAME", 0, "what to prepare for (--list lists the layouts)", 0 },
    { "for", OPT_FOR, "RELEASE", 0, "the layout's version, as --list shows them: vllm-0.18 (default: the newest)", 0 },
    { "output", 'o', "OUT", 0, "directory to make; must be absent or empty", 0 },
    { "layers", OPT_LAYERS, "A-B", 0, "only these layers of the checkpoint (or one, A)", 0 },
    { "tp", OPT_TP, "R/N", 0, "tensor parallel: the share of rank R of N, ranks from 0", 0 },
    { "ep", OPT_EP, "R/N", 0, "expert parallel: the experts of rank R of N", 0 },
    { "ep-map", OPT_EP_MAP, "NAME", 0, "linear (default) or round-robin", 0 },
    { "pad", OPT_PAD, NULL, 0, "pad with zeros, or halve groups, where the target's own loader does", 0 },
    { "threads", OPT_THREADS, "N", 0, "default: one per processor", 0 },
    { "allow-unread", OPT_ALLOW_UNREAD, NULL, 0, "prepare even if experts have tensors that moxie does not know", 0 },
    { "undo", OPT_UNDO, NULL, 0,
      "DIR is a prepared directory (or all ranks' directories): restore the checkpoint's tensors", 1 },
    { "verify", OPT_VERIFY, NULL, 0, "DIR is a prepared directory: read it again, exit code 1 if it is not whole", 1 },
    { "list", OPT_LIST, NULL, 0,
      "every layout, what it accepts, its limits; with DIR, which of them accept its weights", 1 },
    { "json", 'j', NULL, 0, "print one JSON object", 2 },
    { 0 },
};

/* ---- arguments --------------------------------------------------------------------------------------- */

static void parse_rank(struct argp_state *state, const char *option, const char *text, int32_t *rank, int32_t *size)
{
    char *end;
    const long r = strtol(text, &end, 10);
    const long n = *end == '/' && end > text ? strtol(end + 1, &end, 10) : 0;
    if (*end != '\0' || n < 1 || n > MOXIE_MAX_EXPERTS || r < 0 || r >= n)
        argp_error(state, "%s takes R/N with 0 <= R < N, not \"%s\"", option, cli_printable(text));
    *rank = (int32_t)r;
    *size = (int32_t)n;
}

static void add_directory(struct argp_state *state, arguments *args, char *text)
{
    prepare_options *p = &args->prepare;
    if (!p->dir) {
        p->dir = text;
        return;
    }
    const char **more = realloc(p->more, (size_t)(p->n_more + 1) * sizeof *more);
    if (!more)
        argp_failure(state, CLI_RESOURCES, 0, "no memory");
    p->more = more;
    p->more[p->n_more++] = text;
}

static void check_list(struct argp_state *state, const arguments *args)
{
    const prepare_options *p = &args->prepare;
    if (p->threads || args->has_layers)
        argp_error(state, "%s is for preparing, and --list prepares nothing: leave one of the two out",
                   p->threads ? "--threads" : "--layers");
    if (!p->dir && (args->for_preparing || p->release))
        argp_error(state,
                   "%s is about a checkpoint, and --list without DIR shows all layouts: give DIR, or leave it out",
                   args->for_preparing ? args->for_preparing : "--for");
}

static void check_arguments(struct argp_state *state, const arguments *args)
{
    const prepare_options *p = &args->prepare;
    if (args->mode != UNDO && p->n_more > 0)
        argp_error(state, "one directory at a time; \"%s\" is a second one: leave one of them out",
                   cli_printable(p->more[0]));
    if (args->mode != PREPARE && p->layout)
        argp_error(state, "--layout chooses what to prepare for, and %s prepares nothing: leave one of the two out",
                   args->mode == UNDO     ? "--undo"
                   : args->mode == VERIFY ? "--verify"
                                          : "--list");
    if (p->release && (args->mode == UNDO || args->mode == VERIFY))
        argp_error(state, "--for chooses a version to prepare, and %s finds it in DIR: leave one of the two out",
                   args->mode == UNDO ? "--undo" : "--verify");
    if (args->for_preparing && (args->mode == UNDO || args->mode == VERIFY))
        argp_error(state, "%s is for preparing, and %s is about all of DIR: leave one of the two out",
                   args->for_preparing, args->mode == UNDO ? "--undo" : "--verify");
    if ((args->mode == VERIFY || args->mode == LIST) && p->out)
        argp_error(state, "-o OUT is a directory to make, and %s makes none: leave one of the two out",
                   args->mode == VERIFY ? "--verify" : "--list");
    if (args->mode == LIST) {
        check_list(state, args);
        return;
    }
    if (!p->dir)
        argp_error(state, "a directory is needed, and none is given; `moxie prepare --list` lists the layouts");
    if (args->mode != VERIFY && !p->out)
        argp_error(state, "-o OUT is needed, and none is given: name a directory to make");
    if (args->mode == PREPARE && p->layout && prepare_expert_target(p->layout) && (p->how.pad || p->release))
        argp_error(state, "--pad and --for are for other engines' layouts, and expert files hold experts as they are: "
                          "leave them out");
    if (args->mode == PREPARE && p->how.ep_map && p->how.ep_size == 1)
        argp_error(state,
                   "--ep-map chooses the experts of a rank, and without --ep R/N there is one rank: leave it out");
    if (args->mode == PREPARE && !p->layout)
        argp_error(state,
                   "--layout NAME is needed, and none is given; `moxie prepare --list %s` lists those that accept it",
                   cli_printable(p->dir));
}

static void choose_mode(struct argp_state *state, arguments *args, prepare_mode mode)
{
    if (args->mode != PREPARE && args->mode != mode)
        argp_error(state, "--undo, --verify and --list exclude each other: leave all but one out");
    args->mode = mode;
}

/* In the order of moxie_expert_map_kind. */
static const char *const ep_map_names[] = { "linear", "round-robin", NULL };
static const cli_names ep_maps = { .kind = "kind of --ep-map", .fixed = ep_map_names };

/* What only matters when something is prepared. */
static error_t parse_share(int key, char *arg, struct argp_state *state)
{
    arguments *args = state->input;
    prepare_options *p = &args->prepare;
    switch (key) {
    case OPT_LAYERS:
        cli_parse_layers(state, arg, &p->first_layer, &p->last_layer);
        args->for_preparing = "--layers";
        args->has_layers = true;
        return 0;
    case OPT_TP:
        parse_rank(state, "--tp", arg, &p->how.tp_rank, &p->how.tp_size);
        args->for_preparing = "--tp";
        return 0;
    case OPT_EP:
        parse_rank(state, "--ep", arg, &p->how.ep_rank, &p->how.ep_size);
        args->for_preparing = "--ep";
        return 0;
    case OPT_EP_MAP:
        p->how.ep_map = cli_parse_name(state, &ep_maps, arg);
        args->for_preparing = "--ep-map";
        return 0;
    case OPT_PAD:
        p->how.pad = 1;
        args->for_preparing = "--pad";
        return 0;
    case OPT_ALLOW_UNREAD:
        p->allow_unread = true;
        args->for_preparing = "--allow-unread";
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *args = state->input;
    prepare_options *p = &args->prepare;
    switch (key) {
    case 'o': p->out = cli_parse_output(arg); return 0;
    case 'j': p->json = true; return 0;
    case OPT_LAYOUT:
        cli_parse_name(state, &cli_layouts, arg);
        p->layout = arg;
        return 0;
    case OPT_FOR: p->release = arg; return 0;
    case OPT_THREADS: p->threads = (int32_t)cli_parse_int(state, "--threads", arg, 1, 4096); return 0;
    case OPT_UNDO: choose_mode(state, args, UNDO); return 0;
    case OPT_VERIFY: choose_mode(state, args, VERIFY); return 0;
    case OPT_LIST: choose_mode(state, args, LIST); return 0;
    case ARGP_KEY_ARG: add_directory(state, args, arg); return 0;
    case ARGP_KEY_END: check_arguments(state, args); return 0;
    default: return parse_share(key, arg, state);
    }
}

/* ---- what was done ----------------------------------------------------------------------------------- */

static void print_text(const arguments *args, const prepare_report *r)
{
    static const char *const did[] = { "prepared", "restored", "whole" };
    const moxie_preparation_info *info = &r->info;
    char bytes[16], in[16], out[16], peak[16];
    printf("%s: %lld layer%s %s", cli_printable(args->mode == VERIFY ? args->prepare.dir : args->prepare.out),
           (long long)(r->made + r->kept), r->made + r->kept == 1 ? "" : "s", did[args->mode]);
    if (args->mode != UNDO)
        printf(" as %s", info->layout);
    if (r->kept > 0)
        printf(" (%lld of them before)", (long long)r->kept);
    printf(", %s, %.1f s\n", cli_bytes(bytes, r->bytes), r->seconds);
    if (args->mode == UNDO)
        printf("experts only: what else the checkpoint had, its router for one, was never taken out of it\n");
    if (args->mode != UNDO && info->intermediate != info->whole_intermediate)
        printf("share: %lld to %lld of the intermediate size of %lld\n", (long long)info->first_intermediate,
               (long long)(info->first_intermediate + info->intermediate - 1), (long long)info->whole_intermediate);
    if (args->mode != UNDO && info->padded_hidden != info->hidden)
        printf("padded: hidden size %lld to %lld\n", (long long)info->hidden, (long long)info->padded_hidden);
    if (args->mode != UNDO && info->padded_intermediate != info->intermediate)
        printf("padded: intermediate size %lld to %lld, gate and up each\n", (long long)info->intermediate,
               (long long)info->padded_intermediate);
    if (args->mode != UNDO && info->repeat > 1)
        printf("groups: made %d times smaller, each scale and zero point repeated\n", info->repeat);
    if (args->mode == PREPARE)
        printf("source: xxh3 %016llx; an expert is %s, prepared %s\n", (unsigned long long)r->source_hash,
               cli_bytes(in, r->expert_bytes_in), cli_bytes(out, r->expert_bytes_out));
    printf("peak memory: %s\n", cli_bytes(peak, cli_peak_memory()));
}

static void print_json(const arguments *args, const prepare_report *r)
{
    static const char *const modes[] = { "prepare", "undo", "verify" };
    const moxie_preparation_info *info = &r->info;
    char hash[24];
    json_t *object = cli_json_begin("prepare");
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)r->source_hash);
    cli_json_merge(object,
                   cli_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:I}", "mode", modes[args->mode], "directory",
                            cli_utf8(args->mode == VERIFY ? args->prepare.dir : args->prepare.out), "layers_made",
                            (json_int_t)r->made, "layers_kept", (json_int_t)r->kept, "bytes", (json_int_t)r->bytes,
                            "seconds", r->seconds, "peak_memory_bytes", (json_int_t)cli_peak_memory()));
    if (args->mode != UNDO)
        cli_json_merge(object, cli_pack("{s:s, s:s, s:i, s:[I,I], s:[I,I], s:[I,I,I], s:i}", "layout", info->layout,
                                        "for", info->release, "experts", info->n_experts, "hidden",
                                        (json_int_t)info->hidden, (json_int_t)info->padded_hidden, "intermediate",
                                        (json_int_t)info->intermediate, (json_int_t)info->padded_intermediate, "share",
                                        (json_int_t)info->first_intermediate, (json_int_t)info->intermediate,
                                        (json_int_t)info->whole_intermediate, "scales_repeated", info->repeat));
    if (args->mode == PREPARE)
        cli_json_merge(object,
                       cli_pack("{s:s, s:I, s:I}", "source_xxh3", hash, "expert_bytes_in",
                                (json_int_t)r->expert_bytes_in, "expert_bytes_out", (json_int_t)r->expert_bytes_out));
    cli_json_end(object);
}

static int run(const arguments *args)
{
    const prepare_options *p = &args->prepare;
    moxie_error error = { 0 };
    prepare_report report = { .info = MOXIE_PREPARATION_INFO_INIT };
    moxie_executor *executor = NULL;
    cli_progress progress;
    cli_progress_begin(&progress, args->mode == UNDO ? "undo" : args->mode == VERIFY ? "verify" : "prepare");
    progress.terminal = progress.terminal && !p->json;
    const double start = cli_seconds();
    moxie_status status = cli_executor_create("prepare", p->threads, &executor, &error);
    if (status == MOXIE_OK && args->mode == PREPARE)
        status = prepare_all(p, executor, &progress, &report, &error);
    else if (status == MOXIE_OK && args->mode == UNDO)
        status = prepare_undo(p, executor, &progress, &report, &error);
    else if (status == MOXIE_OK)
        status = prepare_verify(p->dir, executor, &progress, &report, &error);
    cli_progress_end(&progress);
    moxie_executor_destroy(executor);
    report.seconds = cli_seconds() - start;
    if (status == MOXIE_ERR_UNSUPPORTED && args->mode == PREPARE && !error.file[0]) {
        const size_t used = strlen(error.text);
        snprintf(error.text + used, sizeof error.text - used,
                 "; `moxie prepare --list %.200s` lists layouts that accept them", p->dir);
    }
    if (status != MOXIE_OK) {
        const int code = cli_fail("prepare", p->json, status, &error);
        return args->mode == VERIFY && (status == MOXIE_ERR_MISMATCH || status == MOXIE_ERR_FORMAT) ? CLI_CHECK_FAILED
                                                                                                    : code;
    }
    (p->json ? print_json : print_text)(args, &report);
    return CLI_OK;
}

int cmd_prepare(int argc, char **argv)
{
    static const struct argp parser = { options,
                                        parse,
                                        "DIR --layout NAME -o OUT\n--undo DIR... -o OUT\n--verify DIR\n--list [DIR]",
                                        "A checkpoint's experts as another engine's kernels want them, or moxie's own "
                                        "(--layout moxie-auto), one expert in memory at a time, and back.",
                                        0,
                                        0,
                                        0 };
    arguments args = { .prepare = { .first_layer = -1, .last_layer = -1, .how = { .tp_size = 1, .ep_size = 1 } } };
    cli_parse(&parser, argc, argv, &args);
    if (args.mode == LIST)
        return prepare_list(&args.prepare);
    moxie_error unknown = { 0 };
    if (args.prepare.layout && prepare_choose(&args.prepare, &unknown) != MOXIE_OK)
        return cli_fail("prepare", args.prepare.json, MOXIE_ERR_ARGUMENT, &unknown);
    const int code = run(&args);
    free(args.prepare.more);
    return code;
}
