/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_bake.c - `moxie bake DIR --adapter NAME=DIR -o OUT`: a checkpoint with LoRA adapters merged into its routed
 * experts (bake.h), and how much of the change rounding takes away.
 */
#include "bake.h"
#include "quantize_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OPT_ADAPTER = 256, OPT_FORMAT };

static const struct argp_option options[] = {
    { "adapter", OPT_ADAPTER, "NAME=DIR", 0,
      "a LoRA adapter, as PEFT saves it; given more than once, their changes are added", 1 },
    { "output", 'o', "OUT", 0, "the directory to write: new, or empty", 1 },
    { "format", OPT_FORMAT, "NAME", 0,
      "quantize the merged experts to this format (`moxie info --support` lists them); until the end OUT.merged holds "
      "them unquantized",
      1 },
    { "json", 'j', NULL, 0, "print JSON", 2 },
    { 0 },
};

typedef struct arguments {
    const char *dir, *out, *format;
    cli_adapters adapters;
    bool json;
} arguments;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *args = state->input;
    switch (key) {
    case OPT_ADAPTER: cli_adapters_parse(state, arg, &args->adapters); return 0;
    case OPT_FORMAT:
        cli_parse_name(state, &cli_formats, arg);
        args->format = arg;
        return 0;
    case 'o': args->out = cli_parse_output(arg); return 0;
    case 'j': args->json = true; return 0;
    case ARGP_KEY_ARG: cli_parse_operand(state, "checkpoint", arg, &args->dir); return 0;
    case ARGP_KEY_END:
        if (!args->dir || !args->out || args->adapters.count == 0)
            argp_error(state, "%s: moxie bake DIR --adapter NAME=DIR -o OUT",
                       !args->dir                  ? "the checkpoint's directory is needed"
                       : args->adapters.count == 0 ? "an adapter is needed"
                                                   : "where to? give -o OUT");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* What rounding adds, relative to the adapters' change. */
static double relative_error(const bake *b)
{
    return b->sums.change > 0 ? sqrt(b->sums.error / b->sums.change) : 0;
}

static void print_text(const bake *b, const arguments *args, const quantize_errors *errors)
{
    printf("%lld %s of %lld %s merged into %s\n", CLI_COUNT(b->adapters->count, "adapter"),
           CLI_COUNT(b->sums.layers, "layer"), cli_printable(args->out));
    printf("%lld matrices changed; rounding them is off by %.2g of the change (root mean square)\n",
           (long long)b->sums.matrices, relative_error(b));
    if (args->format) {
        quantize_errors_print(errors);
        printf("quantized to %s: root mean square error, relative to the merged weights: %.5f\n", args->format,
               quantize_errors_rms(errors));
    }
    if (b->other_tensors > 0)
        printf("not merged: %lld %s of other modules than the model's routed experts\n",
               CLI_COUNT(b->other_tensors, "tensor"));
}

static void print_json(const bake *b, const arguments *args, const quantize_errors *errors)
{
    json_t *object = cli_json_begin("bake");
    cli_json_merge(object,
                   cli_pack("{s:s, s:s, s:i, s:I, s:I, s:f, s:I}", "dir", cli_utf8(b->dir), "output",
                            cli_utf8(args->out), "adapters", (int)b->adapters->count, "layers",
                            (json_int_t)b->sums.layers, "matrices", (json_int_t)b->sums.matrices, "relative_error",
                            relative_error(b), "tensors_not_merged", (json_int_t)b->other_tensors));
    if (args->format) {
        json_t *quantized = cli_pack("{s:s, s:f}", "format", args->format, "rms", quantize_errors_rms(errors));
        quantize_errors_json(errors, quantized);
        cli_json_set(object, "quantized", quantized);
    }
    cli_json_end(object);
}

/* The merged checkpoint in b->out becomes the quantized one in args->out. */
static moxie_status requantize(const bake *b, const arguments *args, quantize_errors *errors, moxie_error *error)
{
    moxie_quantize_options o = MOXIE_QUANTIZE_OPTIONS_INIT;
    o.format = args->format;
    o.error = quantize_errors_add;
    o.error_user = errors;
    char *partial = cli_format("%s.partial", args->out);
    const bool foreign = moxie_file_exists(partial);
    const moxie_status status = moxie_quantize(b->out, args->out, &o, NULL, error);
    /* No later run goes on with it: the merged checkpoint that it is made from goes, too. */
    if (status != MOXIE_OK && !foreign)
        bake_remove(partial);
    free(partial);
    return status;
}

/* Refuses before the work that the end would refuse. */
static moxie_status check_outputs(const arguments *args, const char *merged, moxie_error *error)
{
    const moxie_status status = moxie_file_exists(args->out) ? bake_check_empty(args->out, error) : MOXIE_OK;
    if (status != MOXIE_OK)
        return status;
    char *whole = cli_format("%s/config.json", merged); /* the last file of a merge */
    const bool left = moxie_file_exists(whole);
    free(whole);
    if (left)
        return cli_error(
            MOXIE_ERR_IO, error, merged,
            "an interrupted `moxie bake --format` left its merged checkpoint here: go on with `moxie quantize` "
            "of it, with the same --format and -o, or remove it");
    return MOXIE_OK;
}

/* Where the merged checkpoint goes: OUT, or OUT.merged until it is quantized. */
static moxie_status merge(bake *b, const arguments *args, quantize_errors *errors, moxie_error *error)
{
    char *merged = args->format ? cli_format("%s.merged", args->out) : NULL;
    moxie_status status = MOXIE_OK;
    if (merged)
        status = check_outputs(args, merged, error);
    b->out = merged ? merged : args->out;
    if (status == MOXIE_OK)
        status = bake_open(b, error);
    if (status == MOXIE_OK)
        status = bake_write(b, error);
    if (status == MOXIE_OK && merged) {
        status = requantize(b, args, errors, error);
        bake_remove(merged);
    }
    b->out = args->out;
    free(merged);
    return status;
}

int cmd_bake(int argc, char **argv)
{
    static const struct argp parser = {
        options, parse, "DIR", "Merge LoRA adapters into the routed experts of an unquantized checkpoint.", 0, 0, 0
    };
    static arguments args;
    moxie_error error = { 0 };
    quantize_errors errors = { 0 };
    cli_parse(&parser, argc, argv, &args);
    bake b = { .dir = args.dir, .adapters = &args.adapters };
    const moxie_status status = merge(&b, &args, &errors, &error);
    int code = cli_exit_code(status);
    if (status != MOXIE_OK)
        code = cli_fail("bake", args.json, status, &error);
    else
        (args.json ? print_json : print_text)(&b, &args, &errors);
    bake_close(&b);
    cli_adapters_free(&args.adapters);
    free(errors.at);
    return code;
}
