/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_inspect.c - `moxie inspect DIR`: what a checkpoint holds, layer by layer, from its headers alone.
 */
#include "cli.h"

#include <string.h>

enum { OPT_ALLOW_UNREAD = 1024 };

typedef struct arguments {
    const char *dir;
    bool json, allow_unread;
} arguments;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *args = state->input;
    switch (key) {
    case 'j': args->json = true; return 0;
    case OPT_ALLOW_UNREAD: args->allow_unread = true; return 0;
    case ARGP_KEY_ARG: cli_parse_operand(state, "directory", arg, &args->dir); return 0;
    case ARGP_KEY_END:
        if (!args->dir)
            argp_error(
                state,
                "the checkpoint's directory is needed, and none is given: name one with config.json and *.safetensors");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void add_text_row(cli_table *table, const moxie_model_layer_info *layer)
{
    char expert_bytes[16], total_bytes[16];
    cli_table_add(table, "%lld", (long long)layer->layer);
    cli_table_add(table, "%s", layer->format);
    cli_table_add(table, "%lld", (long long)layer->experts);
    cli_table_add(table, "%lld", (long long)layer->top_k);
    cli_table_add(table, "%lld", (long long)layer->hidden);
    cli_table_add(table, "%lld", (long long)layer->intermediate);
    cli_table_add(table, "%s", layer->routing);
    cli_table_add(table, "%s", layer->shared_intermediate ? layer->shared_format : "-");
    cli_table_add(table, "%s", cli_bytes(expert_bytes, layer->expert_bytes));
    cli_table_add(table, "%s", cli_bytes(total_bytes, layer->total_bytes));
}

static json_t *json_row(const moxie_model_layer_info *layer)
{
    return cli_pack("{s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:s}", "layer",
                    (json_int_t)layer->layer, "format", layer->format, "shared_format", layer->shared_format, "routing",
                    layer->routing, "experts", (json_int_t)layer->experts, "top_k", (json_int_t)layer->top_k, "hidden",
                    (json_int_t)layer->hidden, "intermediate", (json_int_t)layer->intermediate, "shared_intermediate",
                    (json_int_t)layer->shared_intermediate, "router_width", (json_int_t)layer->router_width,
                    "expert_bytes", (json_int_t)layer->expert_bytes, "total_bytes", (json_int_t)layer->total_bytes,
                    "format_note", layer->format_note, "merged_input_scales", (json_int_t)layer->merged_input_scales,
                    "outside", layer->outside);
}

/* What the table has no column for. */
static void print_notes(const moxie_model_layer_info *layer)
{
    if (layer->format_note[0])
        printf("layer %lld: %s\n", (long long)layer->layer, layer->format_note);
    if (layer->merged_input_scales)
        printf("layer %lld: gate and up of %lld %s have different input scales; both get that of the larger range\n",
               (long long)layer->layer, CLI_COUNT(layer->merged_input_scales, "expert"));
}

/* Names of the layer's tensors that were not read, as a JSON list; each is a warning, too, when the output is text. */
static json_t *unread_tensors(const moxie_model *model, const moxie_model_layer_info *info, bool json)
{
    json_t *names = json_array();
    moxie_model_layer *layer = NULL;
    if (info->n_unread > 0 && moxie_model_load_layer(model, info->layer, &layer, NULL) == MOXIE_OK)
        for (int64_t i = 0; i < info->n_unread; i++) {
            const char *name = moxie_model_layer_unread(layer, i);
            cli_json_append(names, cli_json_string(name));
            if (!json)
                fprintf(stderr, "moxie inspect: warning: %s is not read; results can be wrong without it\n",
                        cli_printable(name));
        }
    moxie_model_layer_free(layer);
    return names;
}

static void print_summary(const char *dir, const moxie_model *model, const moxie_model_info *info)
{
    char bytes[16];
    printf("%s: %s (family %s)%s%s, %lld MoE %s, %lld %s, %s in %lld %s\n", cli_printable(dir),
           cli_printable(info->model_type), info->family, info->quant_method[0] ? ", quantization " : "",
           cli_printable(info->quant_method), CLI_COUNT(info->n_layers, "layer"), CLI_COUNT(info->n_tensors, "tensor"),
           cli_bytes(bytes, info->tensor_bytes), CLI_COUNT(info->n_files, "file"));
    for (int64_t i = 0; i < info->n_warnings; i++)
        fprintf(stderr, "moxie inspect: warning: %s\n", cli_printable(moxie_model_warning(model, i)));
    const char *where = strcmp(info->quant_method, "gguf") == 0 ? "metadata" : "config.json";
    for (int64_t i = 0; i < info->n_unread_keys; i++)
        fprintf(stderr, "moxie inspect: warning: %s: %s is not read; results can be wrong if it changes the layer\n",
                where, cli_printable(moxie_model_unread_key(model, i)));
}

static void print_json(const moxie_model *model, const moxie_model_info *info, json_t *layers)
{
    json_t *object = cli_json_begin("inspect"), *warnings = json_array(), *keys = json_array();
    for (int64_t i = 0; i < info->n_unread_keys; i++)
        cli_json_append(keys, cli_json_string(moxie_model_unread_key(model, i)));
    for (int64_t i = 0; i < info->n_warnings; i++)
        cli_json_append(warnings, cli_json_string(moxie_model_warning(model, i)));
    cli_json_merge(object, cli_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "family", info->family,
                                    "model_type", cli_utf8(info->model_type), "quant_method",
                                    cli_utf8(info->quant_method), "tensors", (json_int_t)info->n_tensors, "files",
                                    (json_int_t)info->n_files, "bytes", (json_int_t)info->tensor_bytes, "layers",
                                    layers, "warnings", warnings, "unread_keys", keys));
    cli_json_end(object);
}

/* A checkpoint. Returns an exit code. */
static int inspect(const arguments *args)
{
    static const char *const headings[] = { ">layer", "format",  ">experts", ">top-k",        ">hidden",
                                            ">inter", "routing", "shared",   ">expert bytes", ">all bytes" };
    moxie_error error = { 0 };
    moxie_model *model = NULL;
    moxie_model_options model_options = MOXIE_MODEL_OPTIONS_INIT;
    model_options.allow_unread = args->allow_unread;
    moxie_status status = moxie_model_open(args->dir, &model_options, &model, &error);
    if (status != MOXIE_OK)
        return cli_fail("inspect", args->json, status, &error);
    moxie_model_info info = MOXIE_MODEL_INFO_INIT;
    moxie_model_get_info(model, &info, NULL);

    json_t *rows = json_array();
    const char *outside = ""; /* lives as long as the model */
    cli_table table;
    cli_table_begin(&table, 10, headings);
    for (int64_t i = 0; status == MOXIE_OK && i < info.n_layers; i++) {
        moxie_model_layer_info layer = MOXIE_MODEL_LAYER_INFO_INIT;
        status = moxie_model_describe_layer(model, i, &layer, &error);
        if (status != MOXIE_OK)
            break;
        json_t *row = json_row(&layer);
        cli_json_merge(row, cli_pack("{s:o}", "unread", unread_tensors(model, &layer, args->json)));
        cli_json_append(rows, row);
        if (!args->json)
            print_notes(&layer);
        add_text_row(&table, &layer);
        outside = layer.outside[0] ? layer.outside : outside;
    }
    int code = CLI_OK;
    if (status != MOXIE_OK) {
        json_decref(rows);
        code = cli_fail("inspect", args->json, status, &error);
    } else if (args->json) {
        print_json(model, &info, rows);
    } else {
        json_decref(rows);
        print_summary(args->dir, model, &info);
        cli_table_print(&table);
        if (outside[0])
            printf("around these layers: %s\n", outside);
    }
    cli_table_free(&table);
    moxie_model_close(model);
    return code;
}

int cmd_inspect(int argc, char **argv)
{
    static const struct argp_option options[] = {
        { "allow-unread", OPT_ALLOW_UNREAD, NULL, 0, "list tensors that moxie does not know, instead of refusing", 0 },
        { "json", 'j', NULL, 0, "print one JSON object", 0 },
        { 0 },
    };
    static const struct argp parser = { options,
                                        parse,
                                        "DIR",
                                        "What a checkpoint, a directory, expert files or a .gguf file, holds: layers, "
                                        "experts, formats, bytes, routing.",
                                        0,
                                        0,
                                        0 };
    arguments args = { 0 };
    cli_parse(&parser, argc, argv, &args);

    return cli_has_experts(args.dir) ? cli_experts_inspect(args.dir, args.json) : inspect(&args);
}
