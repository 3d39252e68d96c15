/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_synth.c - `moxie synth PRESET -o DIR`: a checkpoint with a real model's names, shapes, dtypes and
 * configs, filled from a seed; `moxie synth --list`: every preset.
 */
#include "cli.h"

#include <string.h>

typedef struct arguments {
    const char *preset, *dir;
    moxie_synth_options synth;
    bool list, json;
} arguments;

enum { OPT_LAYERS = 256, OPT_FORMAT, OPT_SEED, OPT_EXPERTS, OPT_HIDDEN, OPT_INTERMEDIATE, OPT_SHARD, OPT_LIST };

static const struct argp_option options[] = {
    { "output", 'o', "DIR", 0, "directory to create, absent or empty; with a gguf format, the file to create", 0 },
    { "format", OPT_FORMAT, "NAME", 0, "number format (default: the primary release's; --list lists them)", 0 },
    { "layers", OPT_LAYERS, "N", 0, "write only the first N MoE layers", 0 },
    { "experts", OPT_EXPERTS, "N", 0, "write only N experts per layer", 0 },
    { "seed", OPT_SEED, "S", 0, "the same seed gives the same bytes everywhere (default 0)", 0 },
    { "hidden", OPT_HIDDEN, "H", 0, "another hidden size, for small tests", 1 },
    { "intermediate", OPT_INTERMEDIATE, "I", 0, "another intermediate size, for small tests", 1 },
    { "shard-bytes", OPT_SHARD, "N", 0, "start a new file past N bytes (default 5000000000)", 1 },
    { "list", OPT_LIST, NULL, 0, "list the presets and their formats", 0 },
    { "json", 'j', NULL, 0, "print one JSON object", 0 },
    { 0 },
};

/* An option that was given and chooses what is written; NULL: none. */
static const char *for_writing(const moxie_synth_options *synth)
{
    return synth->format         ? "--format"
           : synth->layers       ? "--layers"
           : synth->experts      ? "--experts"
           : synth->hidden       ? "--hidden"
           : synth->intermediate ? "--intermediate"
           : synth->seed         ? "--seed"
           : synth->shard_bytes  ? "--shard-bytes"
                                 : NULL;
}

static void check_combination(struct argp_state *state, const arguments *args)
{
    const char *writes = args->dir ? "-o DIR" : args->preset ? args->preset : for_writing(&args->synth);
    if (args->list && writes)
        argp_error(state, "--list writes nothing, and %s is for writing: leave one of the two out", writes);
    if (args->list)
        return;
    if (!args->preset)
        argp_error(state, "a preset is needed, and none is named; `moxie synth --list` lists them");
    if (!args->dir)
        argp_error(state, "-o DIR is needed, and none is given: name a directory to create");
    cli_check_output(state, args->synth.format ? args->synth.format : "the preset's format", args->dir);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *args = state->input;
    switch (key) {
    case 'o': args->dir = arg; return 0;
    case 'j': args->json = true; return 0;
    case OPT_FORMAT:
        cli_parse_name(state, &cli_formats, arg);
        args->synth.format = arg;
        return 0;
    case OPT_LAYERS: args->synth.layers = cli_parse_int(state, "--layers", arg, 1, 100000); return 0;
    case OPT_EXPERTS: args->synth.experts = cli_parse_int(state, "--experts", arg, 1, MOXIE_MAX_EXPERTS); return 0;
    case OPT_SEED: args->synth.seed = (uint64_t)cli_parse_int(state, "--seed", arg, 0, INT64_MAX); return 0;
    case OPT_HIDDEN: args->synth.hidden = cli_parse_int(state, "--hidden", arg, 1, 1 << 20); return 0;
    case OPT_INTERMEDIATE: args->synth.intermediate = cli_parse_int(state, "--intermediate", arg, 1, 1 << 20); return 0;
    case OPT_SHARD:
        args->synth.shard_bytes = (uint64_t)cli_parse_int(state, "--shard-bytes", arg, 1, INT64_MAX);
        return 0;
    case OPT_LIST: args->list = true; return 0;
    case ARGP_KEY_ARG:
        cli_parse_operand(state, "preset", arg, &args->preset);
        cli_parse_name(state, &cli_presets, arg);
        return 0;
    case ARGP_KEY_END: check_combination(state, args); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void join_formats(const moxie_preset_info *info, char *buffer, size_t size)
{
    buffer[0] = '\0';
    for (int f = 0; f < info->n_formats; f++)
        snprintf(buffer + strlen(buffer), size - strlen(buffer), "%s%s", f ? " " : "", info->formats[f]);
}

static int list_text(void)
{
    static const char *const headings[] = { "preset", ">experts", ">top-k",           ">hidden",
                                            ">inter", ">layers",  ">bytes per layer", "formats" };
    cli_table table;
    cli_table_begin(&table, 8, headings);
    moxie_preset_info info = MOXIE_PRESET_INFO_INIT;
    for (int i = 0; moxie_preset_at(i, &info); i++) {
        char bytes[16], formats[512];
        join_formats(&info, formats, sizeof formats);
        cli_table_add(&table, "%s", info.name);
        cli_table_add(&table, "%lld", (long long)info.experts);
        cli_table_add(&table, "%lld", (long long)info.top_k);
        cli_table_add(&table, "%lld", (long long)info.hidden);
        cli_table_add(&table, "%lld", (long long)info.intermediate);
        cli_table_add(&table, "%lld", (long long)info.layers);
        cli_table_add(&table, "%s", cli_bytes(bytes, info.layer_bytes));
        cli_table_add(&table, "%s", formats);
    }
    cli_table_print(&table);
    cli_table_free(&table);
    fprintf(stderr,
            "\nother formats, of any preset: `moxie info --support`. One GGUF file, where llama.cpp has such a model "
            "(--json names its architecture):\n");
    for (int i = 0; moxie_checkpoint_format_at(i); i++)
        if (cli_is_gguf_format(moxie_checkpoint_format_at(i)))
            fprintf(stderr, " %s", moxie_checkpoint_format_at(i));
    fprintf(stderr, "\n");
    return CLI_OK;
}

static json_t *format_names(const moxie_preset_info *info, int count)
{
    json_t *formats = json_array();
    for (int f = 0; f < count; f++)
        cli_json_append(formats, cli_json_string(info->formats[f]));
    return formats;
}

static int list_json(void)
{
    json_t *object = cli_json_begin("synth"), *presets = json_array();
    moxie_preset_info info = MOXIE_PRESET_INFO_INIT;
    for (int i = 0; moxie_preset_at(i, &info); i++)
        cli_json_append(presets, cli_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:I, s:s?}",
                                          "name", info.name, "family", info.family, "experts", (json_int_t)info.experts,
                                          "top_k", (json_int_t)info.top_k, "hidden", (json_int_t)info.hidden,
                                          "intermediate", (json_int_t)info.intermediate, "shared_intermediate",
                                          (json_int_t)info.shared_intermediate, "router_width",
                                          (json_int_t)info.router_width, "layers", (json_int_t)info.layers,
                                          "activation", info.activation, "formats", format_names(&info, info.n_formats),
                                          "native_formats", format_names(&info, info.n_native), "layer_bytes",
                                          (json_int_t)info.layer_bytes, "gguf_architecture", info.gguf_architecture));
    json_t *gguf = json_array();
    for (int i = 0; moxie_checkpoint_format_at(i); i++)
        if (cli_is_gguf_format(moxie_checkpoint_format_at(i)))
            cli_json_append(gguf, cli_json_string(moxie_checkpoint_format_at(i)));
    cli_json_set(object, "presets", presets);
    cli_json_set(object, "gguf_formats", gguf);
    cli_json_end(object);
    return CLI_OK;
}

static int show_bytes(void *user, uint64_t done, uint64_t total)
{
    cli_progress_show(user, done, total);
    return 0;
}

int cmd_synth(int argc, char **argv)
{
    static const struct argp parser = { options,
                                        parse,
                                        "PRESET -o DIR\n--list",
                                        "Write a synthetic checkpoint with a real model's names, shapes and formats.",
                                        0,
                                        0,
                                        0 };
    arguments args = { .synth = MOXIE_SYNTH_OPTIONS_INIT };
    cli_parse(&parser, argc, argv, &args);
    if (args.list)
        return args.json ? list_json() : list_text();

    moxie_error error = { 0 };
    cli_progress progress;
    cli_progress_begin(&progress, "synth");
    args.synth.progress = show_bytes;
    args.synth.progress_user = &progress;
    const double start = cli_seconds();
    const moxie_status status = moxie_synth_write(args.preset, args.dir, &args.synth, &error);
    cli_progress_end(&progress);
    if (status != MOXIE_OK)
        return cli_fail("synth", args.json, status, &error);

    moxie_model *model = NULL;
    const moxie_status reread = moxie_model_open(args.dir, NULL, &model, &error);
    if (reread != MOXIE_OK)
        return cli_fail("synth", args.json, reread, &error);
    moxie_model_info info = MOXIE_MODEL_INFO_INIT;
    moxie_model_get_info(model, &info, NULL);
    if (args.json) {
        json_t *object = cli_json_begin("synth");
        cli_json_merge(object,
                       cli_pack("{s:s, s:s, s:I, s:I, s:I, s:f}", "preset", args.preset, "dir", cli_utf8(args.dir),
                                "tensors", (json_int_t)info.n_tensors, "files", (json_int_t)info.n_files, "bytes",
                                (json_int_t)info.tensor_bytes, "seconds", cli_seconds() - start));
        cli_json_end(object);
    } else {
        char bytes[16];
        printf("%s: %lld MoE %s of %s, %lld %s, %s in %lld %s, %.1f s\n", cli_printable(args.dir),
               CLI_COUNT(info.n_layers, "layer"), args.preset, CLI_COUNT(info.n_tensors, "tensor"),
               cli_bytes(bytes, info.tensor_bytes), CLI_COUNT(info.n_files, "file"), cli_seconds() - start);
    }
    moxie_model_close(model);
    return CLI_OK;
}
