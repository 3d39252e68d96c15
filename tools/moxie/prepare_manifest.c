/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_manifest.c - what lies beside the layers of a prepared directory: how it was made, the checkpoint's
 * configurations, the index.
 *
 *     { "schema_version": 1, "kind": "moxie prepared weights", "version": ..., "layout": ..., "pad": 0, "tp": [rank,
 *       ranks], "ep": [rank, ranks, map], "layers": [3, 4, ...], "source": the checkpoint's path }
 */
#include "prepare.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const config_names[] = { "config.json", "hf_quant_config.json", "quantize_config.json" };
enum { N_CONFIGS = sizeof config_names / sizeof config_names[0] };

static const char *path_in(const char *dir, const char *name, char *buffer)
{
    snprintf(buffer, PATH_MAX, "%s/%s", dir, name);
    return buffer;
}

moxie_status prepare_json_write(const char *path, json_t *object, moxie_error *error)
{
    cli_beside beside;
    moxie_status status = cli_beside_open(path, &beside, error);
    if (status != MOXIE_OK) {
        json_decref(object);
        return status;
    }
    const bool written = object && json_dumpfd(object, beside.fd, JSON_INDENT(1)) == 0 && fsync(beside.fd) == 0;
    json_decref(object);
    if (written)
        return cli_beside_commit(&beside, error);
    cli_beside_discard(&beside);
    return cli_error(MOXIE_ERR_IO, error, path, "cannot be written: is the disk full?");
}

/* ---- how it was made --------------------------------------------------------------------------------- */

moxie_status prepare_manifest_write(const char *dir, const prepare_how *how, const char *source, moxie_error *error)
{
    char path[PATH_MAX], real[PATH_MAX];
    json_t *layers = json_array();
    for (int64_t i = 0; i < how->n_layers; i++)
        json_array_append_new(layers, json_integer((json_int_t)how->layers[i]));
    json_t *object =
        json_pack("{s:i, s:s, s:s, s:s, s:i, s:[i,i], s:[i,i,i], s:o, s:s}", "schema_version", CLI_SCHEMA_VERSION,
                  "kind", "moxie prepared weights", "version", MOXIE_VERSION_STRING, "layout", how->layout, "pad",
                  how->pad, "tp", how->tp_rank, how->tp_size, "ep", how->ep_rank, how->ep_size, how->ep_map, "layers",
                  layers, "source", realpath(source, real) ? real : source);
    return prepare_json_write(path_in(dir, PREPARE_MANIFEST, path), object, error);
}

static bool take_layers(const json_t *list, prepare_how *out)
{
    const size_t count = json_array_size(list);
    out->layers = calloc(count + 1, sizeof *out->layers);
    for (size_t i = 0; out->layers && i < count; i++) {
        const json_t *layer = json_array_get(list, i);
        if (!json_is_integer(layer) || (i > 0 && json_integer_value(layer) <= out->layers[i - 1]))
            return false;
        out->layers[out->n_layers++] = json_integer_value(layer);
    }
    return out->layers && count > 0;
}

/* Whoever names OUT after an interruption has OUT.partial only. */
static moxie_status no_manifest(const char *dir, const char *path, int why, moxie_error *error)
{
    char partial[PATH_MAX];
    int length = (int)strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    snprintf(partial, sizeof partial, "%.*s%s", length, dir, PREPARE_PARTIAL);
    if (access(dir, F_OK) != 0 && access(partial, F_OK) == 0)
        return cli_error(MOXIE_ERR_IO, error, partial,
                         "is what an interrupted run left, and %s is not there yet: run the same command again", dir);
    return cli_error(MOXIE_ERR_IO, error, path, "%s; a directory that `moxie prepare` made is expected", strerror(why));
}

moxie_status prepare_manifest_read(const char *dir, prepare_how *out, moxie_error *error)
{
    char path[PATH_MAX];
    json_error_t where;
    *out = (prepare_how) { 0 };
    path_in(dir, PREPARE_MANIFEST, path);
    if (access(path, R_OK) != 0)
        return no_manifest(dir, path, errno, error);
    json_t *file = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
    const char *kind = "", *layout = "";
    json_t *layers = NULL;
    int version = 0;
    const int unpacked =
        file ? json_unpack(file, "{s:i, s:s, s:s, s:i, s:[i,i], s:[i,i,i], s:o}", "schema_version", &version, "kind",
                           &kind, "layout", &layout, "pad", &out->pad, "tp", &out->tp_rank, &out->tp_size, "ep",
                           &out->ep_rank, &out->ep_size, &out->ep_map, "layers", &layers)
             : -1;
    const bool good = unpacked == 0 && version == CLI_SCHEMA_VERSION && !strcmp(kind, "moxie prepared weights") &&
                      strlen(layout) < sizeof out->layout && take_layers(layers, out);
    if (good)
        snprintf(out->layout, sizeof out->layout, "%s", layout);
    json_decref(file);
    if (good)
        return MOXIE_OK;
    prepare_how_free(out);
    return cli_error(MOXIE_ERR_FORMAT, error, path,
                     "it does not say how weights were prepared, as `moxie prepare` "
                     "would have written it");
}

bool prepare_how_equal(const prepare_how *a, const prepare_how *b)
{
    return !strcmp(a->layout, b->layout) && a->pad == b->pad && a->tp_rank == b->tp_rank && a->tp_size == b->tp_size &&
           a->ep_rank == b->ep_rank && a->ep_size == b->ep_size && a->ep_map == b->ep_map &&
           a->n_layers == b->n_layers && !memcmp(a->layers, b->layers, (size_t)a->n_layers * sizeof *a->layers);
}

void prepare_how_free(prepare_how *how)
{
    free(how->layers);
    how->layers = NULL;
    how->n_layers = 0;
}

/* ---- configurations ---------------------------------------------------------------------------------- */

/* All of a small file, terminated; NULL when there is none. free() it. */
static char *read_small(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t room = 0;
    *size = 0;
    while (file && !ferror(file) && !feof(file)) {
        if (*size + 1 >= room) {
            room = room > 0 ? 2 * room : 65536;
            char *grown = realloc(text, room);
            if (!grown)
                break;
            text = grown;
        }
        *size += fread(text + *size, 1, room - 1 - *size, file);
    }
    if (file)
        fclose(file);
    return text;
}

moxie_status prepare_configs_copy(const char *from, const char *to, moxie_error *error)
{
    char path[PATH_MAX];
    for (int i = 0; i < N_CONFIGS; i++) {
        size_t size;
        char *text = read_small(path_in(from, config_names[i], path), &size);
        cli_beside beside;
        if (!text)
            continue;
        moxie_status status = cli_beside_open(path_in(to, config_names[i], path), &beside, error);
        if (status == MOXIE_OK) {
            const bool written = write(beside.fd, text, size) == (ssize_t)size && fsync(beside.fd) == 0;
            if (written)
                status = cli_beside_commit(&beside, error);
            else
                cli_beside_discard(&beside);
            if (!written)
                status = cli_error(MOXIE_ERR_IO, error, path, "cannot be written: is the disk full?");
        }
        free(text);
        if (status != MOXIE_OK)
            return status;
    }
    return MOXIE_OK;
}

bool prepare_configs_equal(const char *from, const char *to)
{
    char path[PATH_MAX];
    bool equal = true;
    for (int i = 0; equal && i < N_CONFIGS; i++) {
        size_t a_size, b_size;
        char *a = read_small(path_in(from, config_names[i], path), &a_size);
        char *b = read_small(path_in(to, config_names[i], path), &b_size);
        equal = !a == !b && (!a || (a_size == b_size && !memcmp(a, b, a_size)));
        free(a);
        free(b);
    }
    return equal;
}

/* ---- the index --------------------------------------------------------------------------------------- */

/* Adds the tensors of one layer's file to a weight map. */
static moxie_status map_layer(const char *dir, int64_t layer, json_t *map, uint64_t *bytes, moxie_error *error)
{
    char path[PATH_MAX];
    moxie_tensor_file *file = NULL;
    moxie_status status = moxie_tensor_file_open(prepare_layer_path(dir, layer, path), 0, &file, error);
    for (int64_t i = 0; status == MOXIE_OK && i < moxie_tensor_file_count(file); i++) {
        const char *name = NULL;
        moxie_tensor tensor;
        moxie_tensor_file_at(file, i, &name, &tensor);
        uint64_t bits = (uint64_t)moxie_dtype_bits(tensor.dtype);
        for (int32_t axis = 0; axis < tensor.rank; axis++)
            bits *= (uint64_t)tensor.shape[axis];
        *bytes += bits / 8;
        json_object_set_new(map, name, json_string(strrchr(path, '/') + 1));
    }
    moxie_tensor_file_close(file);
    return status;
}

static moxie_status make_map(const char *dir, const prepare_how *how, json_t **map, uint64_t *bytes, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    *map = json_object();
    *bytes = 0;
    for (int64_t i = 0; status == MOXIE_OK && i < how->n_layers; i++)
        status = map_layer(dir, how->layers[i], *map, bytes, error);
    if (status != MOXIE_OK)
        json_decref(*map);
    return status;
}

moxie_status prepare_index_write(const char *dir, const prepare_how *how, const uint64_t *source_hash,
                                 moxie_error *error)
{
    char path[PATH_MAX], hash[24];
    json_t *map = NULL;
    uint64_t bytes = 0;
    const moxie_status status = make_map(dir, how, &map, &bytes, error);
    if (status != MOXIE_OK)
        return status;
    json_t *metadata = json_pack("{s:I}", "total_size", (json_int_t)bytes);
    if (source_hash) {
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)*source_hash);
        json_object_set_new(metadata, "moxie.version", json_string(MOXIE_VERSION_STRING));
        json_object_set_new(metadata, "moxie.layout", json_string(how->layout));
        json_object_set_new(metadata, "moxie.source_xxh3", json_string(hash));
    }
    json_t *index = json_pack("{s:o, s:o}", "metadata", metadata, "weight_map", map);
    return prepare_json_write(path_in(dir, PREPARE_INDEX, path), index, error);
}

moxie_status prepare_index_check(const char *dir, const prepare_how *how, moxie_error *error)
{
    char path[PATH_MAX];
    json_error_t where;
    json_t *map = NULL;
    uint64_t bytes = 0;
    path_in(dir, PREPARE_INDEX, path);
    if (access(path, F_OK) != 0)
        return cli_error(MOXIE_ERR_MISMATCH, error, path,
                         "there is no index, which is written last: the preparation was interrupted; run it again");
    json_t *index = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
    if (!index)
        return cli_error(MOXIE_ERR_FORMAT, error, path, "line %d: %s", where.line, where.text);
    moxie_status status = make_map(dir, how, &map, &bytes, error);
    if (status == MOXIE_OK) {
        if (!json_equal(map, json_object_get(index, "weight_map")))
            status = cli_error(MOXIE_ERR_MISMATCH, error, path, "the index does not name the tensors that are there");
        json_decref(map);
    }
    json_decref(index);
    return status;
}

/* ---- removing ---------------------------------------------------------------------------------------- */

/* Begins with the name of a file that this program writes there: also those under way beside them. */
static bool is_ours(const char *name)
{
    bool known = !strncmp(name, "layer-", 6) || !strncmp(name, PREPARE_MANIFEST, strlen(PREPARE_MANIFEST)) ||
                 !strncmp(name, PREPARE_INDEX, strlen(PREPARE_INDEX));
    for (int i = 0; i < N_CONFIGS; i++)
        known = known || !strncmp(name, config_names[i], strlen(config_names[i]));
    return known;
}

/* Ours, and not yet renamed: behind ".safetensors" or ".json" something follows. */
static bool is_under_way(const char *name)
{
    const size_t length = strlen(name);
    const bool layer = length > 12 && !strcmp(name + length - 12, ".safetensors");
    const bool json = length > 5 && !strcmp(name + length - 5, ".json");
    return is_ours(name) && !layer && !json;
}

static void remove_files(const char *dir, bool (*which)(const char *name))
{
    DIR *listing = opendir(dir);
    for (const struct dirent *entry; listing && (entry = readdir(listing));)
        if (which(entry->d_name))
            unlinkat(dirfd(listing), entry->d_name, 0);
    if (listing)
        closedir(listing);
}

moxie_status prepare_directory_hold(const char *dir, int *fd, moxie_error *error)
{
    *fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0 || flock(*fd, LOCK_EX | LOCK_NB) != 0)
        return cli_error(MOXIE_ERR_IO, error, dir, "%s: is another `moxie prepare` at work there?", strerror(errno));
    remove_files(dir, is_under_way);
    return MOXIE_OK;
}

void prepare_directory_remove(const char *dir)
{
    remove_files(dir, is_ours);
    rmdir(dir);
}
