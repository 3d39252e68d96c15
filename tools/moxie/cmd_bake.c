/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_bake.c - `moxie bake DIR --adapter NAME=DIR -o OUT`: a checkpoint with LoRA adapters merged into its routed
 * experts (bake.h), and how much of the change rounding takes away.
 */
#include "bake.h"

#include <math.h>
#include <string.h>

enum { OPT_ADAPTER = 256 };

static const struct argp_option options[] = {
    { "adapter", OPT_ADAPTER, "NAME=DIR", 0,
      "a LoRA adapter, as PEFT saves it; given more than once, their changes are added", 1 },
    { "output", 'o', "OUT", 0, "the directory to write: new, or empty", 1 },
    { "json", 'j', NULL, 0, "print JSON", 2 },
    { 0 },
};

typedef struct arguments {
    const char *dir, *out;
    cli_adapters adapters;
    bool json;
} arguments;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *args = state->input;
    switch (key) {
    case OPT_ADAPTER: cli_adapters_parse(state, arg, &args->adapters); return 0;
    case 'o': args->out = arg; return 0;
    case 'j': args->json = true; return 0;
    case ARGP_KEY_ARG:
        if (args->dir)
            argp_error(state, "one checkpoint at a time; \"%s\" is a second one", cli_printable(arg));
        args->dir = arg;
        return 0;
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

static void print_text(const bake *b)
{
    printf("%lld %s of %lld %s merged into %s\n", CLI_COUNT(b->adapters->count, "adapter"),
           CLI_COUNT(b->sums.layers, "layer"), cli_printable(b->out));
    printf("%lld matrices changed; rounding them is off by %.2g of the change (root mean square)\n",
           (long long)b->sums.matrices, relative_error(b));
    if (b->other_tensors > 0)
        printf("not merged: %lld %s of other modules than the model's routed experts\n",
               CLI_COUNT(b->other_tensors, "tensor"));
}

static void print_json(const bake *b)
{
    json_t *object = cli_json_begin("bake");
    cli_json_merge(object,
                   cli_pack("{s:s, s:s, s:i, s:I, s:I, s:f, s:I}", "dir", cli_utf8(b->dir), "output", cli_utf8(b->out),
                            "adapters", (int)b->adapters->count, "layers", (json_int_t)b->sums.layers, "matrices",
                            (json_int_t)b->sums.matrices, "relative_error", relative_error(b), "tensors_not_merged",
                            (json_int_t)b->other_tensors));
    cli_json_end(object);
}

int cmd_bake(int argc, char **argv)
{
    static const struct argp parser = {
        options, parse, "DIR", "Merge LoRA adapters into the routed experts of an unquantized checkpoint.", 0, 0, 0
    };
    static arguments args;
    moxie_error error = { 0 };
    cli_parse(&parser, argc, argv, &args);
    bake b = { .dir = args.dir, .out = args.out, .adapters = &args.adapters };
    moxie_status status = bake_open(&b, &error);
    if (status == MOXIE_OK)
        status = bake_write(&b, &error);
    int code = cli_exit_code(status);
    if (status != MOXIE_OK)
        code = cli_fail("bake", args.json, status, &error);
    else
        (args.json ? print_json : print_text)(&b);
    bake_close(&b);
    cli_adapters_free(&args.adapters);
    return code;
}
