/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_quantize.c - `moxie quantize DIR --format NAME -o OUT`: a checkpoint with its routed experts in another format,
 * and how far that is from the source.
 */
#include "quantize_report.h"
#include "quantize_states.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    OPT_FORMAT = 256,
    OPT_SCALES,
    OPT_INPUT_AMAX,
    OPT_THREADS,
    OPT_ALLOW_UNREAD,
    OPT_ALLOW_MIXED,
    OPT_IMATRIX,
    OPT_HIDDEN_STATES,
    OPT_SAVE_IMATRIX
};

static const struct argp_option options[] = {
    { "format", OPT_FORMAT, "NAME", 0,
      "format of the routed experts in OUT: a name that `moxie info --support` lists; gguf-... make a GGUF file, from "
      "a "
      "directory or from another file, and all others a directory",
      1 },
    { "output", 'o', "OUT", 0, "directory to make, absent or empty; with a gguf format, the file to make", 1 },
    { "scales", OPT_SCALES, "HOW", 0,
      "plain (default): by a group's largest magnitude; mse (default of gguf formats, and with importances): of "
      "several "
      "scales the one with the least squared error; four-over-six: NVFP4 whose largest code is 6 or 4, whichever is "
      "better",
      1 },
    { "input-amax", OPT_INPUT_AMAX, "A13,A2", 0,
      "largest magnitudes of hidden states and of W2's activations, for formats with static scales of activations "
      "(default: what the source says)",
      1 },
    { "imatrix", OPT_IMATRIX, "FILE", 0,
      "importance matrix of llama.cpp, old or GGUF: weights the errors of each column of each expert", 1 },
    { "hidden-states", OPT_HIDDEN_STATES, "FILE", 0,
      "calibration data instead of an importance matrix: safetensors with hidden_states.L [T,H], what MoE layer L "
      "reads; "
      "its experts are run on them",
      1 },
    { "save-imatrix", OPT_SAVE_IMATRIX, "FILE", 0,
      "write the importance matrix that --hidden-states gives, as llama.cpp's old format", 1 },
    { "threads", OPT_THREADS, "N", 0, "worker threads (default: all processors)", 2 },
    { "allow-unread", OPT_ALLOW_UNREAD, NULL, 0, "go on when the layer has tensors that moxie does not know", 2 },
    { "allow-mixed", OPT_ALLOW_MIXED, NULL, 0,
      "go on when modules that are no experts are quantized in a way that the new configuration does not describe", 2 },
    { "json", 'j', NULL, 0, "print JSON", 3 },
    { 0 },
};

/* In the order of moxie_quantize_scales. */
static const char *const scale_names[] = { "plain", "mse", "four-over-six", NULL };
static const cli_names scale_list = { .kind = "choice of --scales", .fixed = scale_names };

typedef struct arguments {
    const char *dir, *out, *hidden_states, *save_imatrix;
    moxie_quantize_options quantize;
    int32_t threads;
    bool json, has_scales;
} arguments;

/* "A13,A2" */
static void parse_amax(struct argp_state *state, const char *text, moxie_quantize_options *o)
{
    char first[64];
    const char *comma = strchr(text, ',');
    const size_t length = comma ? (size_t)(comma - text) : 0;
    if (!comma || length >= sizeof first)
        argp_error(state, "--input-amax is \"%s\"; give two numbers, of hidden states and of W2's activations: 12.5,40",
                   cli_printable(text));
    snprintf(first, sizeof first, "%.*s", (int)length, text);
    o->input_amax13 = (float)cli_parse_real(state, "--input-amax", first, false);
    o->input_amax2 = (float)cli_parse_real(state, "--input-amax", comma ? comma + 1 : "", false);
}

/* Formats of directories are called after the type, too: mxfp4-ct. */
static bool has_other_kinds(const char *type)
{
    const size_t length = strlen(type);
    for (int32_t i = 0; moxie_checkpoint_format_at(i); i++) {
        const char *name = moxie_checkpoint_format_at(i);
        if (strncmp(name, type, length) == 0 && name[length] == '-')
            return true;
    }
    return false;
}

/* GGUF's types are also known without "gguf-", where no other format has the name, or begins with it. */
static const char *format_name(struct argp_state *state, char *arg)
{
    for (int32_t i = 0; moxie_checkpoint_format_at(i); i++)
        if (strcmp(moxie_checkpoint_format_at(i), arg) == 0)
            return arg;
    for (int32_t i = 0; moxie_checkpoint_format_at(i); i++) {
        const char *name = moxie_checkpoint_format_at(i);
        if (!cli_is_gguf_format(name) || strcmp(name + strlen("gguf-"), arg) != 0)
            continue;
        if (has_other_kinds(arg))
            argp_error(state,
                       "--format %s can be a GGUF file or a directory: give %s for the file, or one of the formats of "
                       "directories that begin with %s- (moxie info --support)",
                       arg, name, arg);
        return name;
    }
    cli_parse_name(state, &cli_formats, arg);
    return arg;
}

/* llama.cpp's own tool searches scales of its types; so does this, unless it is told not to. Importances are about
 * searched scales. */
static void choose_scales(arguments *args)
{
    const bool importances = args->quantize.imatrix || args->hidden_states;
    if (!args->has_scales && (importances || cli_is_gguf_format(args->quantize.format)))
        args->quantize.scales = MOXIE_SCALES_MSE;
}

static void check_arguments(struct argp_state *state, const arguments *args)
{
    if (!args->dir || !args->out || !args->quantize.format)
        argp_error(state, "%s: moxie quantize DIR --format NAME -o OUT",
                   !args->dir   ? "the checkpoint's directory is needed"
                   : !args->out ? "where to? give -o OUT"
                                : "to which format? give --format NAME");
    cli_check_output(state, args->quantize.format, args->out);
}

static void check_importances(struct argp_state *state, const arguments *args)
{
    if (args->hidden_states && args->quantize.imatrix)
        argp_error(state, "--hidden-states and --imatrix both give importances: leave one of the two out");
    if (args->save_imatrix && !args->hidden_states)
        argp_error(state, "--save-imatrix writes what --hidden-states FILE gives: add that");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *args = state->input;
    switch (key) {
    case OPT_FORMAT: args->quantize.format = format_name(state, arg); return 0;
    case OPT_SCALES:
        args->quantize.scales = cli_parse_name(state, &scale_list, arg);
        args->has_scales = true;
        return 0;
    case OPT_IMATRIX: args->quantize.imatrix = arg; return 0;
    case OPT_HIDDEN_STATES: args->hidden_states = arg; return 0;
    case OPT_SAVE_IMATRIX: args->save_imatrix = arg; return 0;
    case OPT_INPUT_AMAX: parse_amax(state, arg, &args->quantize); return 0;
    case OPT_THREADS: args->threads = (int32_t)cli_parse_int(state, "--threads", arg, 1, 4096); return 0;
    case OPT_ALLOW_UNREAD: args->quantize.allow_unread = 1; return 0;
    case OPT_ALLOW_MIXED: args->quantize.allow_mixed = 1; return 0;
    case 'o': args->out = cli_parse_output(arg); return 0;
    case 'j': args->json = true; return 0;
    case ARGP_KEY_ARG: cli_parse_operand(state, "checkpoint", arg, &args->dir); return 0;
    case ARGP_KEY_END:
        check_arguments(state, args);
        check_importances(state, args);
        choose_scales(args);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void print_text(const arguments *args, const moxie_quantize_summary *s, const quantize_errors *errors,
                       double seconds)
{
    char from[16], to[16], copied[16], peak[16];
    quantize_errors_print(errors);
    printf("\n%s: %lld %s as %s", cli_printable(args->out), CLI_COUNT(s->layers, "layer"), args->quantize.format);
    if (s->resumed_layers > 0)
        printf(" (%lld of them before)", (long long)s->resumed_layers);
    printf(", experts %s to %s, other tensors %s, %.1f s (%.0f MB/s)\n", cli_bytes(from, s->source_bytes),
           cli_bytes(to, s->expert_bytes), cli_bytes(copied, s->copied_bytes), seconds,
           (double)s->source_bytes / seconds / 1e6);
    if (quantize_errors_exact(errors))
        printf("lossless: every weight has the value that it had\n");
    else
        printf("root mean square error, relative to the weights: %.5f\n", quantize_errors_rms(errors));
    if (s->other_quantized > 0)
        printf("note: %lld other quantized %s copied as well, which config.json's quantization_config no longer "
               "describes\n",
               CLI_COUNT_OF(s->other_quantized, "matrix was", "matrices were"));
    if (s->left_out > 0)
        printf("note: %lld other %s not written: what llama.cpp's conversion would make of them is not known\n",
               CLI_COUNT_OF(s->left_out, "tensor was", "tensors were"));
    if (s->tokens > 0)
        printf("tokenizer: %lld tokens\n", (long long)s->tokens);
    else if (s->no_tokenizer)
        printf("note: no tokenizer was written, and llama.cpp needs one: %s\n", s->no_tokenizer);
    printf("peak memory: %s\n", cli_bytes(peak, cli_peak_memory()));
}

static void print_json(const arguments *args, const moxie_quantize_summary *s, const quantize_errors *errors,
                       double seconds)
{
    json_t *object = cli_json_begin("quantize");
    cli_json_merge(object, cli_pack("{s:s, s:s, s:s, s:s}", "dir", cli_utf8(args->dir), "output", cli_utf8(args->out),
                                    "format", args->quantize.format, "scales", scale_names[args->quantize.scales]));
    cli_json_merge(object,
                   cli_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I}", "resumed_layers", (json_int_t)s->resumed_layers,
                            "source_bytes", (json_int_t)s->source_bytes, "expert_bytes", (json_int_t)s->expert_bytes,
                            "copied_bytes", (json_int_t)s->copied_bytes, "other_quantized",
                            (json_int_t)s->other_quantized, "left_out", (json_int_t)s->left_out, "seconds", seconds,
                            "peak_memory_bytes", (json_int_t)cli_peak_memory()));
    cli_json_merge(object, cli_pack("{s:I, s:s?}", "tokens", (json_int_t)s->tokens, "no_tokenizer", s->no_tokenizer));
    cli_json_merge(object, cli_pack("{s:f, s:b}", "rms", quantize_errors_rms(errors), "exact",
                                    (int)quantize_errors_exact(errors)));
    quantize_errors_json(errors, object);
    cli_json_end(object);
}

/* After a failure. One of the unfinished directory itself comes again, whenever the same is run. */
static void print_resume(const char *out, const moxie_error *error)
{
    char *partial = cli_format("%s.partial", out), *manifest = cli_format("%s/moxie_quantize.json", partial);
    const bool comes_again = strcmp(error->file, partial) == 0 || strcmp(error->file, manifest) == 0;
    if (!comes_again && moxie_file_exists(manifest))
        fprintf(stderr, "moxie quantize: finished layers stay in %s; run the same again to go on\n",
                cli_printable(partial));
    free(manifest);
    free(partial);
}

static int show_bytes(void *user, uint64_t done, uint64_t total)
{
    cli_progress_show(user, done, total);
    return 0;
}

/* Saves the importance matrix in file `path`: the whole file or none. */
static moxie_status save_imatrix(const arguments *args, const char *path, moxie_error *error)
{
    char *data = NULL;
    uint64_t bytes = 0;
    moxie_status status = moxie_file_read(path, (uint64_t)1 << 40, &data, &bytes, error);
    if (status == MOXIE_OK)
        status = moxie_file_write(args->save_imatrix, data, bytes, error);
    moxie_file_free(data);
    return status;
}

static moxie_status check_saved(const arguments *args, moxie_error *error)
{
    if (!args->save_imatrix)
        return MOXIE_OK;
    const char *const inputs[] = { args->dir, args->hidden_states };
    return cli_output_check(args->save_imatrix, inputs, sizeof inputs / sizeof inputs[0], error);
}

/* The importance matrix of --hidden-states, in memory, and in the file that --save-imatrix names. `*out` is its path,
 * which lives as long as the stream. */
static moxie_status make_imatrix(const arguments *args, const moxie_executor *executor, FILE **stream, char **out,
                                 moxie_error *error)
{
    moxie_status status = check_saved(args, error);
    if (status != MOXIE_OK)
        return status;
    const int fd = memfd_create("importance matrix", MFD_CLOEXEC);
    *stream = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (!*stream)
        return cli_error(MOXIE_ERR_IO, error, "", "no memory for the importance matrix: %m");
    *out = cli_format("/proc/self/fd/%d", fd);
    status = quantize_states_write(args->dir, args->hidden_states, args->quantize.allow_unread != 0, executor, *stream,
                                   error);
    return status == MOXIE_OK && args->save_imatrix ? save_imatrix(args, *out, error) : status;
}

static moxie_status quantize(arguments *args, const moxie_executor *executor, moxie_quantize_summary *summary,
                             moxie_error *error)
{
    FILE *stream = NULL;
    char *imatrix = NULL;
    moxie_status status = MOXIE_OK;
    if (args->hidden_states) {
        args->quantize.imatrix = args->hidden_states; /* which stands for the one that they give */
        status = moxie_quantize_check(args->dir, args->out, &args->quantize, error);
        if (status == MOXIE_OK)
            status = make_imatrix(args, executor, &stream, &imatrix, error);
        args->quantize.imatrix = imatrix;
    }
    if (status == MOXIE_OK)
        status = moxie_quantize(args->dir, args->out, &args->quantize, summary, error);
    if (stream)
        fclose(stream);
    free(imatrix);
    return status;
}

int cmd_quantize(int argc, char **argv)
{
    static const struct argp parser = {
        options, parse, "DIR|FILE.gguf", "Write a checkpoint with its routed experts in another number format.", 0, 0, 0
    };
    arguments args = { .quantize = MOXIE_QUANTIZE_OPTIONS_INIT };
    moxie_quantize_summary summary = MOXIE_QUANTIZE_SUMMARY_INIT;
    moxie_executor *executor = NULL;
    quantize_errors errors = { 0 };
    moxie_error error = { 0 };
    cli_progress progress;
    cli_parse(&parser, argc, argv, &args);
    cli_progress_begin(&progress, "quantize");
    progress.terminal = progress.terminal && !args.json;
    const double start = cli_seconds();
    moxie_status status = cli_executor_create("quantize", args.threads, &executor, &error);
    args.quantize.executor = executor;
    args.quantize.progress = show_bytes;
    args.quantize.progress_user = &progress;
    args.quantize.error = quantize_errors_add;
    args.quantize.error_user = &errors;
    if (status == MOXIE_OK)
        status = quantize(&args, executor, &summary, &error);
    cli_progress_end(&progress);
    moxie_executor_destroy(executor);
    int code = cli_exit_code(status);
    if (status != MOXIE_OK) {
        code = cli_fail("quantize", args.json, status, &error);
        print_resume(args.out, &error);
    } else {
        (args.json ? print_json : print_text)(&args, &summary, &errors, cli_seconds() - start);
    }
    free(errors.at);
    return code;
}
