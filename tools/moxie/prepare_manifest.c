/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_manifest.c - the first file of a directory that this program makes. It says what the directory is, and how it
 * was made.
 *
 *     { "schema_version": 1, "kind": "moxie prepared weights", "version": ..., "layout": ..., "for": the release that
 *       chooses the layout's version, "pad": 0, "symmetric": 0, "tp": [rank, ranks], "ep": [rank,
 *       ranks, map], "layers": [3, 4, ...], "source": the checkpoint's path }
 *
 * The file also proves that OUT.partial is this program's. It is untrusted: numbers out of range are an error.
 */
#include "prepare.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A layer's number takes at most ten digits; models have some hundred layers. */
enum { MAX_BYTES = 1 << 20, MAX_LAYERS = 100000, LARGEST_LAYER = 1000000000 };

static const struct {
    const char *file, *kind;
} manifests[] = {
    [PREPARE_PREPARED] = { "moxie_prepare.json", "moxie prepared weights" },
    [PREPARE_RESTORED] = { "moxie_restore.json", "moxie restored weights" },
};

const char *prepare_manifest_file(prepare_kind kind)
{
    return manifests[kind].file;
}

moxie_status prepare_check_name(const char *dir, moxie_error *error)
{
    if (strlen(dir) + PREPARE_LONGEST_NAME < PATH_MAX)
        return MOXIE_OK;
    return cli_error(MOXIE_ERR_ARGUMENT, error, "", "the name of a directory has %zu bytes, of at most %d", strlen(dir),
                     PATH_MAX - PREPARE_LONGEST_NAME - 1);
}

const char *prepare_path(const char *dir, const char *name, char *buffer)
{
    snprintf(buffer, PATH_MAX, "%s/%s", dir, name);
    return buffer;
}

json_t *prepare_json_string(const char *text)
{
    json_t *string = json_string(text);
    char *copy = string ? NULL : strdup(text);
    for (char *c = copy; c && *c; c++)
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    return string ? string : copy ? json_string_nocheck(copy) : NULL;
}

/* ---- writing ----------------------------------------------------------------------------------------- */

moxie_status prepare_manifest_write(const char *dir, prepare_kind kind, const prepare_how *how, const char *source,
                                    moxie_error *error)
{
    char path[PATH_MAX], real[PATH_MAX];
    json_t *layers = json_array();
    bool fine = layers != NULL;
    for (int64_t i = 0; fine && i < how->n_layers; i++)
        fine = json_array_append_new(layers, json_integer((json_int_t)how->layers[i])) == 0;
    if (!fine) {
        json_decref(layers);
        layers = NULL; /* json_pack() fails with it */
    }
    json_t *object = json_pack("{s:i, s:s, s:s, s:s, s:s, s:i, s:i, s:[i,i], s:[i,i,i], s:o, s:o}", "schema_version",
                               CLI_SCHEMA_VERSION, "kind", manifests[kind].kind, "version", MOXIE_VERSION_STRING,
                               "layout", how->layout, "for", how->release, "pad", how->pad, "symmetric", how->symmetric,
                               "tp", how->tp_rank, how->tp_size, "ep", how->ep_rank, how->ep_size, how->ep_map,
                               "layers", layers, "source", prepare_json_string(realpath(source, real) ? real : source));
    return cli_json_write(prepare_path(dir, manifests[kind].file, path), object, JSON_INDENT(1), error);
}

/* ---- reading ----------------------------------------------------------------------------------------- */

static moxie_status take_layers(const json_t *list, prepare_how *out)
{
    const size_t count = json_array_size(list);
    if (count == 0 || count > MAX_LAYERS)
        return MOXIE_ERR_FORMAT;
    out->layers = calloc(count, sizeof *out->layers);
    if (!out->layers)
        return MOXIE_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(list, i);
        const json_int_t layer = json_integer_value(entry), before = i > 0 ? out->layers[i - 1] : -1;
        if (!json_is_integer(entry) || layer <= before || layer > LARGEST_LAYER)
            return MOXIE_ERR_FORMAT;
        out->layers[out->n_layers++] = layer;
    }
    return MOXIE_OK;
}

/* [rank, size] */
static bool take_rank(json_int_t rank, json_int_t size, int32_t *out_rank, int32_t *out_size)
{
    *out_rank = (int32_t)rank;
    *out_size = (int32_t)size;
    return size >= 1 && size <= MOXIE_MAX_EXPERTS && rank >= 0 && rank < size;
}

/* Returns MOXIE_ERR_FORMAT or MOXIE_ERR_MEMORY; fills no error. */
static moxie_status take_how(json_t *file, prepare_kind kind, prepare_how *out)
{
    const char *what = NULL, *layout = NULL, *release = ""; /* "for" is younger than the others */
    json_t *layers = NULL;
    json_int_t version, pad, symmetric = 0, tp[2], ep[2], map;
    if (json_unpack(file, "{s:I, s:s, s:s, s?s, s:I, s?I, s:[I,I], s:[I,I,I], s:o}", "schema_version", &version, "kind",
                    &what, "layout", &layout, "for", &release, "pad", &pad, "symmetric", &symmetric, "tp", &tp[0],
                    &tp[1], "ep", &ep[0], &ep[1], &map, "layers", &layers) != 0)
        return MOXIE_ERR_FORMAT;
    if (version != CLI_SCHEMA_VERSION || strcmp(what, manifests[kind].kind) != 0 ||
        strlen(layout) >= sizeof out->layout || strlen(release) >= sizeof out->release || pad < 0 || pad > 1 ||
        symmetric < 0 || symmetric > 1 || (map != MOXIE_MAP_LINEAR && map != MOXIE_MAP_ROUND_ROBIN))
        return MOXIE_ERR_FORMAT;
    snprintf(out->layout, sizeof out->layout, "%s", layout);
    snprintf(out->release, sizeof out->release, "%s", release);
    out->pad = (int32_t)pad;
    out->symmetric = (int32_t)symmetric;
    out->ep_map = (int32_t)map;
    const bool ranked =
        take_rank(tp[0], tp[1], &out->tp_rank, &out->tp_size) && take_rank(ep[0], ep[1], &out->ep_rank, &out->ep_size);
    return ranked ? take_layers(layers, out) : MOXIE_ERR_FORMAT;
}

moxie_status prepare_manifest_parse(const char *text, size_t size, const char *path, prepare_kind kind,
                                    prepare_how *out, moxie_error *error)
{
    json_t *file = NULL;
    *out = (prepare_how) { 0 };
    moxie_status status = cli_json_parse(text, size, path, &file, error);
    if (status != MOXIE_OK)
        return status;
    status = take_how(file, kind, out);
    json_decref(file);
    if (status == MOXIE_OK)
        return MOXIE_OK;
    prepare_how_free(out);
    if (status == MOXIE_ERR_MEMORY)
        return cli_error(status, error, path, "no memory for its list of layers");
    return cli_error(MOXIE_ERR_FORMAT, error, path,
                     "it does not say how weights were prepared, as `moxie prepare` would have written it");
}

/* After an interruption there is only OUT.partial: says so to a user who names OUT. */
static moxie_status no_manifest(const char *dir, const char *path, moxie_error *error)
{
    char partial[PATH_MAX + sizeof PREPARE_PARTIAL];
    int length = (int)strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    snprintf(partial, sizeof partial, "%.*s%s", length, dir, PREPARE_PARTIAL);
    if (!moxie_file_exists(dir) && moxie_file_exists(partial))
        return cli_error(MOXIE_ERR_IO, error, partial,
                         "is what an interrupted run left, and %s is not there yet: run the same command again", dir);
    return cli_error(MOXIE_ERR_IO, error, path, "%s; a directory that `moxie prepare` made is expected",
                     strerror(ENOENT));
}

moxie_status prepare_manifest_read(const char *dir, prepare_kind kind, prepare_how *out, moxie_error *error)
{
    char path[PATH_MAX], *text = NULL;
    uint64_t size = 0;
    *out = (prepare_how) { 0 };
    prepare_path(dir, manifests[kind].file, path);
    if (!moxie_file_exists(path))
        return no_manifest(dir, path, error);
    moxie_status status = moxie_file_read(path, MAX_BYTES, &text, &size, error);
    if (status == MOXIE_OK)
        status = prepare_manifest_parse(text, (size_t)size, path, kind, out, error);
    moxie_file_free(text);
    return status;
}

/* ---- one way and another ----------------------------------------------------------------------------- */

bool prepare_how_equal(const prepare_how *a, const prepare_how *b)
{
    return !strcmp(a->layout, b->layout) && !strcmp(a->release, b->release) && a->pad == b->pad &&
           a->symmetric == b->symmetric && a->tp_rank == b->tp_rank && a->tp_size == b->tp_size &&
           a->ep_rank == b->ep_rank && a->ep_size == b->ep_size && a->ep_map == b->ep_map &&
           a->n_layers == b->n_layers && !memcmp(a->layers, b->layers, (size_t)a->n_layers * sizeof *a->layers);
}

void prepare_how_free(prepare_how *how)
{
    free(how->layers);
    how->layers = NULL;
    how->n_layers = 0;
}
