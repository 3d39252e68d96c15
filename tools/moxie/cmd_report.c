/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_report.c - `moxie report DIR -o report.html`: one page about one layer, for people. It runs bench, explain, run
 * and diff, each in a child, and shows what they print; or it shows files that they printed before (report.h).
 */
#include "report.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct arguments {
    cli_layer_options layer;
    const char *files[REPORT_PARTS], *output, *tokens, *backend;
} arguments;

enum { OPT_TOKENS = 256, OPT_BACKEND, OPT_FILE }; /* OPT_FILE + part */

/* JSON of a run of a million tokens has some 30 MB. */
enum { MAX_FILE_BYTES = 1 << 28 };

static const struct argp_option options[] = {
    { "output", 'o', "FILE", 0, "the page to write", 0 },
    { NULL, 0, NULL, 0, "The layer is measured here:", 1 },
    { "tokens", OPT_TOKENS, "LIST", 0, "batch sizes to time (default 1,8,64,512)", 1 },
    { "backend", OPT_BACKEND, "NAME", 0, "cpu (default), ref or cuda", 1 },
    { NULL, 0, NULL, 0, "Or these were printed with --json before:", 3 },
    { "bench", OPT_FILE + REPORT_BENCH, "FILE", 0, "times and roofline, by moxie bench", 3 },
    { "explain", OPT_FILE + REPORT_EXPLAIN, "FILE", 0, "kernels, by moxie explain", 3 },
    { "run", OPT_FILE + REPORT_RUN, "FILE", 0, "routing, by moxie run", 3 },
    { "diff", OPT_FILE + REPORT_DIFF, "FILE", 0, "errors by stage, by moxie diff", 3 },
    { 0 },
};

static void check_arguments(struct argp_state *state, const arguments *args)
{
    bool given = false;
    for (int p = 0; p < REPORT_PARTS; p++)
        given = given || args->files[p];
    if (!args->output)
        argp_error(state, "-o FILE is needed: where does the page go?");
    if (!args->layer.dir && !given)
        argp_error(state,
                   "nothing to show: give a checkpoint's directory, or files by --bench, --explain, --run, --diff");
    if (args->layer.dir && given)
        argp_error(state, "a directory is measured now, and files were printed before: leave one of the two out");
    const char *how = args->tokens               ? "--tokens"
                      : args->backend            ? "--backend"
                      : args->layer.layer >= 0   ? "--layer"
                      : args->layer.allow_unread ? "--allow-unread"
                                                 : cli_layer_how(&args->layer);
    if (given && how)
        argp_error(state, "%s is for measuring, and files are shown as they are: leave it out", how);
}

static const char *parse_backend(struct argp_state *state, const char *text)
{
    static const char *const fixed[] = { "cpu", "ref", "cuda", NULL };
    static const cli_names names = { .kind = "back end of a report", .fixed = fixed };
    cli_parse_name(state, &names, text);
    return text;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *args = state->input;
    cli_sizes sizes;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &args->layer; return 0;
    case 'o': args->output = arg; return 0;
    case OPT_TOKENS:
        cli_parse_sizes(state, "--tokens", arg, &sizes);
        args->tokens = arg;
        return 0;
    case OPT_BACKEND: args->backend = parse_backend(state, arg); return 0;
    case ARGP_KEY_END: check_arguments(state, args); return 0;
    default:
        if (key < OPT_FILE || key >= OPT_FILE + REPORT_PARTS)
            return ARGP_ERR_UNKNOWN;
        args->files[key - OPT_FILE] = arg;
        return 0;
    }
}

/* ---- measuring -------------------------------------------------------------------------------------- */

static void add_value(report_command *command, const char *option, const char *value)
{
    if (!value)
        return;
    report_command_add(command, option);
    report_command_add(command, value);
}

static const char *const command_names[] = { "moxie bench", "moxie explain", "moxie run", "moxie diff" };

/* The command line of a part. `text` holds its numbers. */
static report_command command_of(const arguments *args, report_part part, char text[3][32])
{
    const cli_layer_options *layer = &args->layer;
    const bool many = part == REPORT_BENCH || part == REPORT_EXPLAIN;
    report_command c = { .part = part };
    report_command_add(&c, command_names[part]);
    report_command_add(&c, layer->dir);
    report_command_add(&c, "--json");
    add_value(&c, "--tokens", many ? args->tokens ? args->tokens : "1,8,64,512" : part == REPORT_RUN ? "512" : "4");
    add_value(&c, part == REPORT_DIFF ? "--a" : "--backend", args->backend ? args->backend : "cpu");
    snprintf(text[0], sizeof text[0], "%lld", (long long)layer->layer);
    add_value(&c, "--layer", layer->layer >= 0 ? text[0] : NULL);
    snprintf(text[1], sizeof text[1], "%d", (int)layer->threads);
    add_value(&c, "--isa", layer->isa);
    add_value(&c, "--device", layer->device);
    add_value(&c, "--mode", layer->mode == MOXIE_MODE_FAST ? "fast" : NULL);
    add_value(&c, "--activations",
              layer->activations != MOXIE_ACTIVATIONS_CHECKPOINT ? cli_activations.fixed[layer->activations] : NULL);
    if (part != REPORT_EXPLAIN) { /* which runs nothing */
        add_value(&c, "--threads", layer->threads ? text[1] : NULL);
        add_value(&c, "--numa", layer->numa);
    }
    if (layer->round_results)
        report_command_add(&c, "--round-results");
    if (layer->allow_unread)
        report_command_add(&c, "--allow-unread");
    return c;
}

/* *code: that of the command that failed. */
static moxie_status measure(const arguments *args, report *r, int *code, moxie_error *error)
{
    char text[3][32];
    moxie_status status = MOXIE_OK;
    for (int p = 0; status == MOXIE_OK && *code <= CLI_CHECK_FAILED && p < REPORT_PARTS; p++) {
        report_command command = command_of(args, (report_part)p, text);
        r->file[p] = command_names[p];
        if (isatty(STDERR_FILENO))
            fprintf(stderr, "moxie report: %s ...\n", command_names[p]);
        int ended = CLI_OK;
        status = report_collect(&command, &r->json[p], &ended, error);
        report_command_free(&command);
        *code = ended > *code ? ended : *code;
    }
    return status;
}

static moxie_status read_files(const arguments *args, report *r, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    for (int p = 0; status == MOXIE_OK && p < REPORT_PARTS; p++) {
        r->file[p] = args->files[p];
        if (args->files[p])
            status = cli_json_read(args->files[p], MAX_FILE_BYTES, &r->json[p], error);
    }
    return status;
}

/* ---- the page --------------------------------------------------------------------------------------- */

/* A preset's name, or the last part of a directory's. The caller frees it. */
static char *title_of(const report *r)
{
    if (!r->json[REPORT_BENCH])
        return cli_format("One mixture-of-experts layer");
    if (r->bench.preset)
        return cli_format("%s", r->bench.preset);
    char *title = cli_format("%s", r->bench.dir);
    size_t n = strlen(title);
    while (n > 1 && title[n - 1] == '/')
        title[--n] = '\0';
    const char *last = strrchr(title, '/');
    if (last && last[1])
        memmove(title, last + 1, strlen(last));
    return title;
}

static moxie_status write_page(const arguments *args, report *r, size_t *bytes, moxie_error *error)
{
    moxie_status status = report_read(r, error);
    if (status != MOXIE_OK)
        return status;
    char *title = title_of(r);
    r->title = title;
    char *page = report_page(r, bytes);
    status = page ? moxie_file_write(args->output, page, *bytes, error)
                  : cli_error(MOXIE_ERR_MEMORY, error, args->output, "no memory for the page");
    free(page);
    free(title);
    return status;
}

static void print_result(const arguments *args, const report *r, size_t bytes)
{
    char size[16];
    if (!args->layer.json) {
        printf("%s: %s;", cli_printable(args->output), cli_bytes(size, bytes));
        for (int p = 0; p < REPORT_PARTS; p++)
            if (r->json[p])
                printf(" %s", report_part_names[p]);
        putchar('\n');
        return;
    }
    json_t *object = cli_json_begin("report"), *parts = cli_pack("[]");
    for (int p = 0; p < REPORT_PARTS; p++)
        if (r->json[p])
            cli_json_append(parts, cli_json_string(report_part_names[p]));
    cli_json_merge(object,
                   cli_pack("{s:s, s:I, s:o, s:o}", "output", cli_utf8(args->output), "bytes", (json_int_t)bytes,
                            "parts", parts, "right", r->json[REPORT_DIFF] ? json_boolean(r->diff.right) : json_null()));
    cli_json_end(object);
}

/* The exit code. */
static int make_report(const arguments *args, report *r)
{
    moxie_error error = { 0 };
    size_t bytes = 0;
    int code = CLI_OK;
    moxie_status status = cli_output_spares(args->output, args->layer.dir, &error);
    if (status == MOXIE_OK)
        status = cli_output_check(args->output, args->files, REPORT_PARTS, &error);
    if (status == MOXIE_OK)
        status = args->layer.dir ? measure(args, r, &code, &error) : read_files(args, r, &error);
    if (status == MOXIE_OK && code > CLI_CHECK_FAILED) { /* the child has printed why */
        for (int p = REPORT_PARTS - 1; args->layer.json && p >= 0; p--)
            if (r->json[p]) {
                cli_json_end(json_incref(r->json[p]));
                break;
            }
        return code;
    }
    if (status == MOXIE_OK)
        status = write_page(args, r, &bytes, &error);
    if (status != MOXIE_OK)
        return cli_fail("report", args->layer.json, status, &error);
    print_result(args, r, bytes);
    return r->json[REPORT_DIFF] && !r->diff.right ? CLI_CHECK_FAILED : CLI_OK;
}

int cmd_report(int argc, char **argv)
{
    static const struct argp_child children[] = { { &cli_layer_argp, 0, NULL, 2 }, { 0 } };
    static const struct argp parser = { options,
                                        parse,
                                        "[DIR]",
                                        "One HTML page about a layer: times against the floor, roofline, routing, "
                                        "errors beside the oracle, kernels. The "
                                        "page stands alone: it loads nothing.",
                                        children,
                                        0,
                                        0 };
    arguments args = { .layer = { .command = "report", .layer = -1, .backend = CLI_BACKEND_NOT_GIVEN } };
    report r = { .title = "" };
    cli_parse(&parser, argc, argv, &args);
    if (args.layer.device && !args.backend)
        args.backend = "cuda";
    const int code = make_report(&args, &r);
    report_free(&r);
    return code;
}
