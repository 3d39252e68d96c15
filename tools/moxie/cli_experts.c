/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_experts.c - a directory of expert files where a command takes a checkpoint:
 *
 *     DIR/moxie_prepare.json -> layers -> DIR/layer-00003.moxie, mapped -> a layer whose slots are views of it
 *
 * What reads weights itself (diff's oracle, ranks, bench) gets them unpacked; ranks and bench say so.
 */
#include "cli_disk.h"
#include "prepare.h"

#include <string.h>

/* The manifest, if one is there and names a layout of our own kernels. */
static bool read_how(const char *dir, prepare_how *how)
{
    char path[PATH_MAX];
    moxie_error ignored;
    if (strlen(dir) + PREPARE_LONGEST_NAME >= PATH_MAX ||
        !moxie_file_exists(prepare_path(dir, prepare_manifest_file(PREPARE_PREPARED), path)) ||
        prepare_manifest_read(dir, PREPARE_PREPARED, how, &ignored) != MOXIE_OK)
        return false;
    if (prepare_expert_target(how->layout))
        return true;
    prepare_how_free(how);
    return false;
}

bool cli_has_experts(const char *dir)
{
    prepare_how how;
    const bool has = read_how(dir, &how);
    if (has)
        prepare_how_free(&how);
    return has;
}

/* The layer that was asked for, or the first. */
static moxie_status choose_layer(const prepare_how *how, const char *dir, int64_t asked, int64_t *layer,
                                 moxie_error *error)
{
    *layer = asked >= 0 ? asked : how->layers[0];
    for (int64_t i = 0; i < how->n_layers; i++)
        if (how->layers[i] == *layer)
            return MOXIE_OK;
    return cli_error(MOXIE_ERR_ARGUMENT, error, dir, "it has no layer %lld, but %lld %s from %lld to %lld",
                     (long long)asked, CLI_COUNT(how->n_layers, "layer"), (long long)how->layers[0],
                     (long long)how->layers[how->n_layers - 1]);
}

moxie_status cli_experts_config(const cli_layer_options *options, const moxie_expert_file *file,
                                moxie_layer_config *out, moxie_error *error)
{
    static const moxie_quant none;
    if (options->activations == MOXIE_ACTIVATIONS_GGML)
        return cli_error(MOXIE_ERR_UNSUPPORTED, error, options->dir,
                         "activations as ggml quantizes them are for GGUF files");
    if (options->allow_unread)
        return cli_error(MOXIE_ERR_ARGUMENT, error, options->dir,
                         "--allow-unread is for tensors of a checkpoint that moxie does not know, and expert files "
                         "have none: leave it out");
    *out = *moxie_expert_file_config(file);
    if (options->dtype)
        out->dtype = options->dtype;
    out->round_results = options->round_results;
    if (options->activations == MOXIE_ACTIVATIONS_16BIT)
        out->a13 = out->a2 = out->shared.a13 = out->shared.a2 = none;
    return MOXIE_OK;
}

/* Says that a run adds up a rank's experts only. */
static void note_share(const cli_layer_options *options, const moxie_expert_file *file)
{
    moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
    if (moxie_expert_file_get_info(file, &info, NULL) == MOXIE_OK && info.held < info.experts)
        fprintf(stderr, "moxie %s: note: %s has %lld of %lld experts (--ep); choices of the others add nothing\n",
                options->command, cli_printable(options->dir), (long long)info.held, (long long)info.experts);
}

/* Says when the page cache could not be passed. */
static void note_reading(const cli_layer_options *options, const moxie_expert_file *file)
{
    moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
    if (options->access == MOXIE_EXPERT_DIRECT && moxie_expert_file_get_info(file, &info, NULL) == MOXIE_OK &&
        !info.direct)
        fprintf(stderr, "moxie %s: note: %s by %s: %s\n", options->command, cli_printable(options->dir),
                info.read_engine, cli_printable(info.read_why));
}

/* A file under another layer's name would be run in its place. */
static moxie_status check_number(const moxie_expert_file *file, const char *path, int64_t layer, moxie_error *error)
{
    moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
    const moxie_status status = moxie_expert_file_get_info(file, &info, error);
    if (status != MOXIE_OK || info.layer == layer)
        return status;
    return cli_error(MOXIE_ERR_MISMATCH, error, path,
                     "it holds layer %lld, and its name is that of layer %lld: prepare "
                     "layer %lld anew",
                     (long long)info.layer, (long long)layer, (long long)layer);
}

moxie_status cli_experts_open(const cli_layer_options *options, cli_layer *out, moxie_error *error)
{
    char path[PATH_MAX], mirror[PATH_MAX];
    moxie_expert_file_options how_to_open = MOXIE_EXPERT_FILE_OPTIONS_INIT;
    prepare_how how;
    if (!read_how(options->dir, &how))
        return cli_error(MOXIE_ERR_IO, error, options->dir, "it is no directory of expert files any more");
    moxie_status status = choose_layer(&how, options->dir, options->layer, &out->index, error);
    prepare_how_free(&how);
    if (status == MOXIE_OK) {
        cli_disk_file_options(options, out->index, mirror, &how_to_open);
        status = moxie_expert_file_open(prepare_experts_path(options->dir, out->index, path), &how_to_open, &out->file,
                                        error);
    }
    if (status == MOXIE_OK)
        status = check_number(out->file, path, out->index, error);
    if (status == MOXIE_OK)
        status = cli_experts_config(options, out->file, &out->config, error);
    if (status == MOXIE_OK) {
        note_reading(options, out->file);
        if (options->n_shares == 0)
            note_share(options, out->file);
    }
    return status;
}

moxie_status cli_layer_need_weights(cli_layer *layer, moxie_error *error)
{
    return layer->file && !layer->weights ? moxie_expert_file_weights(layer->file, NULL, &layer->weights, error)
                                          : MOXIE_OK;
}

moxie_status cli_layer_need_all_weights(cli_layer *layer, moxie_error *error)
{
    moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
    if (layer->file && moxie_expert_file_get_info(layer->file, &info, error) == MOXIE_OK && info.held < info.experts)
        return cli_error(MOXIE_ERR_UNSUPPORTED, error, "",
                         "the expert file has %lld of %lld experts, those of rank %d of %d, and all are needed here: "
                         "prepare files without --ep",
                         (long long)info.held, (long long)info.experts, layer->config.ep_rank, layer->config.ep_size);
    return cli_layer_need_weights(layer, error);
}

moxie_status cli_layer_unpack(const char *command, cli_layer *layer, moxie_error *error)
{
    const moxie_status status = cli_layer_need_all_weights(layer, error);
    if (status == MOXIE_OK && layer->file)
        fprintf(stderr,
                "moxie %s: note: the records of the expert file are not used as they lie: its experts are unpacked and "
                "packed anew\n",
                command);
    return status;
}

moxie_status cli_experts_prepare(const cli_layer_options *options, cli_layer *layer, const moxie_options *plan_options,
                                 moxie_error *error)
{
    moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
    moxie_status status = moxie_layer_open_file(layer->file, &layer->config, plan_options, &layer->layer, error);
    if (status != MOXIE_ERR_UNSUPPORTED || !layer->weights)
        return status;
    moxie_expert_file_get_info(layer->file, &info, NULL);
    fprintf(stderr,
            "moxie %s: note: the kernels of this back end do not read the file's layout %s: its experts are packed "
            "anew for them\n",
            options->command, info.layout);
    status = moxie_layer_create(&layer->config, plan_options, &layer->layer, error);
    return status == MOXIE_OK ? moxie_layer_prepare(layer->layer, layer->weights, plan_options, error) : status;
}

/* ---- inspect --------------------------------------------------------------------------------------------- */

typedef struct listing {
    cli_table table;
    json_t *rows;
    uint64_t bytes;
} listing;

static moxie_status add_layer(listing *l, const char *dir, int64_t layer, moxie_error *error)
{
    char path[PATH_MAX], record[16], all[16], source[24];
    moxie_expert_file *file = NULL;
    moxie_expert_file_info i = MOXIE_EXPERT_FILE_INFO_INIT;
    const moxie_status status = moxie_expert_file_open(prepare_experts_path(dir, layer, path), NULL, &file, error);
    if (status != MOXIE_OK)
        return status;
    const moxie_layer_config *c = moxie_expert_file_config(file);
    moxie_expert_file_get_info(file, &i, NULL);
    snprintf(source, sizeof source, "%016llx", (unsigned long long)i.source_xxh3);
    cli_table_add(&l->table, "%lld", (long long)i.layer);
    cli_table_add(&l->table, "%s", i.target);
    cli_table_add(&l->table, "%s", cli_printable(i.layout));
    cli_table_add(&l->table, "%lld/%lld", (long long)i.held, (long long)i.experts);
    cli_table_add(&l->table, "%lld", (long long)c->top_k);
    cli_table_add(&l->table, "%lld", (long long)c->hidden);
    cli_table_add(&l->table, "%lld", (long long)c->intermediate);
    cli_table_add(&l->table, "%s", i.shared_layout[0] ? cli_printable(i.shared_layout) : "-");
    cli_table_add(&l->table, "%s", cli_bytes(record, i.record_bytes));
    cli_table_add(&l->table, "%s", cli_bytes(all, i.file_bytes));
    cli_table_add(&l->table, "%llu", (unsigned long long)i.generation);
    cli_json_append(l->rows,
                    cli_pack("{s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:i, s:I}",
                             "layer", (json_int_t)i.layer, "target", i.target, "layout", cli_utf8(i.layout),
                             "shared_layout", cli_utf8(i.shared_layout), "experts", (json_int_t)i.experts, "held",
                             (json_int_t)i.held, "top_k", (json_int_t)c->top_k, "hidden", (json_int_t)c->hidden,
                             "intermediate", (json_int_t)c->intermediate, "record_bytes", (json_int_t)i.record_bytes,
                             "shared_bytes", (json_int_t)i.shared_bytes, "file_bytes", (json_int_t)i.file_bytes,
                             "generation", (json_int_t)i.generation, "source_xxh3", source, "version", (int)i.version,
                             "unused_bytes", (json_int_t)i.unused_bytes));
    l->bytes += i.file_bytes;
    moxie_expert_file_close(file);
    return MOXIE_OK;
}

int cli_experts_inspect(const char *dir, bool json)
{
    static const char *const headings[] = { ">layer", "target", "layout",  ">experts", ">top-k",     ">hidden",
                                            ">inter", "shared", ">record", ">file",    ">generation" };
    prepare_how how;
    moxie_error error = { 0 };
    listing l = { .rows = json_array() };
    char bytes[16];
    if (!read_how(dir, &how))
        return cli_fail("inspect", json,
                        cli_error(MOXIE_ERR_IO, &error, dir, "it is no directory of expert files any more"), &error);
    cli_table_begin(&l.table, 11, headings);
    moxie_status status = MOXIE_OK;
    for (int64_t i = 0; status == MOXIE_OK && i < how.n_layers; i++)
        status = add_layer(&l, dir, how.layers[i], &error);
    int code = CLI_OK;
    if (status != MOXIE_OK) {
        code = cli_fail("inspect", json, status, &error);
        json_decref(l.rows);
    } else if (json) {
        json_t *object = cli_json_begin("inspect");
        cli_json_merge(object, cli_pack("{s:s, s:I, s:o}", "kind", "expert files", "bytes", (json_int_t)l.bytes,
                                        "layers", l.rows));
        cli_json_end(object);
    } else {
        printf("%s: expert files of %lld %s, %s\n", cli_printable(dir), CLI_COUNT(how.n_layers, "layer"),
               cli_bytes(bytes, l.bytes));
        cli_table_print(&l.table);
        json_decref(l.rows);
    }
    cli_table_free(&l.table);
    prepare_how_free(&how);
    return code;
}
