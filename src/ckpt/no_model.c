/* SPDX-License-Identifier: Apache-2.0
 *
 * no_model.c - says what a path seems to be that is no checkpoint directory, and what to pass:
 *
 *     nothing                            a model name of a hub? a typing error?
 *     a file                             one shard, damaged GGUF, a pickle: pass its directory, or another release
 *     a directory with *.gguf            pass one of the files
 *     a directory with *.bin             a format that is not supported
 *     a directory with *.moxie           expert files: pass the checkpoint that they were made of
 *     models--org--name                  the Hugging Face cache: pass one of its snapshots
 *     model_index.json                   a diffusers pipeline: pass one of its parts
 *     a directory with a checkpoint in   pass that
 *
 * Only names of files are used, and the first bytes of a *.gguf. Names are untrusted and printed escaped.
 */
#include "ckpt/no_model.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/gguf/gguf_header.h"
#include "ckpt/safetensors/file.h"

enum { PATH = 4096, MAX_ESCAPED = 300 };
#define NEEDED "a directory with config.json and *.safetensors, as models are released on the Hugging Face Hub"

/* ---- names -------------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n > m && strcasecmp(name + n - m, end) == 0;
}

static bool is_pickle(const char *name)
{
    static const char *const endings[] = { ".bin", ".pt", ".pth", ".ckpt", ".pkl" };
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (ends_with(name, endings[i]))
            return true;
    return false;
}

/* True when `dir`/`name`/config.json exists; *path becomes `dir`/`name`. */
static bool has_config(const char *dir, const char *name, char path[PATH])
{
    static const char config[] = "/config.json";
    const size_t length = strlen(dir);
    const char *const slash = length > 0 && dir[length - 1] == '/' ? "" : "/";
    const int written = snprintf(path, PATH, "%s%s%s%s", dir, slash, name, config);
    const bool there = written < PATH && access(path, F_OK) == 0;
    path[written < PATH ? written - (int)strlen(config) : 0] = '\0';
    return there;
}

/* ---- formats that are not supported ---------------------------------------------------------------- */

/* A GGUF file is a whole model, and would have been opened where one was wanted; or the file only has such a name. */
static moxie_status is_gguf(const char *path, moxie_error *error)
{
    mox_file file = { 0 };
    MOX_TRY(mox_file_open(path, false, UINT64_MAX, &file, error));
    const bool is = mox_is_gguf(file.data, file.size);
    mox_file_close(&file);
    if (is)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, path, -1,
                             "a GGUF file has no config.json, which is read here alone or beside tensors in memory; "
                             "open the file itself as a model (moxie_model_open without tensors), or give " NEEDED);
    return mox_fail_file(
        MOXIE_ERR_FORMAT, error, path, 0,
        "its name ends in .gguf, but it does not begin with \"GGUF\": it is damaged, or the download is "
        "incomplete; repeat it");
}

static moxie_status has_gguf(const char *dir, moxie_error *error)
{
    return mox_fail_file(MOXIE_ERR_FORMAT, error, dir, -1,
                         "GGUF files are opened by name: give one of this directory (the first part of a split one)");
}

static moxie_status is_pickled(const char *path, moxie_error *error)
{
    return mox_fail_file(
        MOXIE_ERR_UNSUPPORTED, error, path, -1,
        "weights pickled by PyTorch (*.bin, *.pt, *.pth) are not supported, because loading a pickle runs code; save "
        "them as safetensors (transformers: save_pretrained), or use a release that is " NEEDED);
}

/* ---- a file --------------------------------------------------------------------------------------- */

static moxie_status is_file(const char *path, const struct stat *info, moxie_error *error)
{
    char dir[PATH], inner[PATH], escaped[MAX_ESCAPED];
    char *const slash = snprintf(dir, sizeof dir, "%s", path) < PATH ? strrchr(dir, '/') : NULL;
    if (slash)
        *slash = '\0';
    const char *parent = !slash ? "." : slash == dir ? "/" : dir;
    if (ends_with(path, ".gguf"))
        return is_gguf(path, error);
    if (is_pickle(path))
        return is_pickled(path, error);
    if (!S_ISREG(info->st_mode))
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1,
                             "a checkpoint's directory is needed, and this is a device, pipe or socket; give " NEEDED);
    if (has_config(parent, ".", inner))
        return mox_fail_file(MOXIE_ERR_FORMAT, error, path, -1,
                             "a checkpoint's directory is needed, and this is one file of it: give \"%s\"",
                             mox_escape(escaped, sizeof escaped, parent));
    return mox_fail_file(MOXIE_ERR_FORMAT, error, path, -1,
                         "a checkpoint's directory is needed, and this is a file in a directory without config.json; "
                         "give " NEEDED);
}

/* ---- a directory ---------------------------------------------------------------------------------- */

typedef struct content {
    bool gguf, pickles, experts, tensors, pipeline, cached_model, cache, broken_config;
    char part[PATH]; /* the first directory in it, by name, with a config.json; "": there is none */
} content;

static void note_entry(const char *dir, const char *name, content *c)
{
    char path[PATH];
    c->gguf |= ends_with(name, ".gguf");
    c->pickles |= is_pickle(name);
    c->experts |= ends_with(name, ".moxie");
    c->tensors |= ends_with(name, ".safetensors");
    c->pipeline |= !strcmp(name, "model_index.json");
    c->cached_model |= !strcmp(name, "snapshots");
    c->cache |= !strncmp(name, "models--", 8);
    c->broken_config |= !strcmp(name, "config.json");
    if (name[0] != '.' && has_config(dir, name, path) && (!*c->part || strcmp(path, c->part) < 0))
        memcpy(c->part, path, sizeof path);
}

/* False when the directory cannot be read; errno says why. */
static bool list_directory(const char *dir, content *c)
{
    const struct dirent *entry;
    DIR *stream = opendir(dir);
    *c = (content) { .gguf = false };
    if (!stream)
        return false;
    while ((entry = readdir(stream)) != NULL)
        note_entry(dir, entry->d_name, c);
    closedir(stream);
    return true;
}

/* The snapshot that the branch "main" of a cached model names; "" when it does not exist. */
static void find_main(const char *dir, char snapshot[PATH])
{
    char path[PATH], name[100];
    mox_file file = { 0 };
    moxie_error absent;
    snapshot[0] = '\0';
    if (snprintf(path, sizeof path, "%s/refs/main", dir) >= PATH ||
        mox_file_open(path, true, 64, &file, &absent) != MOXIE_OK)
        return;
    snprintf(name, sizeof name, "snapshots/%.*s", (int)file.size, (const char *)file.data);
    name[strcspn(name, "\n")] = '\0';
    mox_file_close(&file);
    if (!has_config(dir, name, snapshot))
        snapshot[0] = '\0';
}

/* models--org--name, of the Hugging Face cache. */
static moxie_status is_cached_model(const char *dir, moxie_error *error)
{
    char snapshots[PATH], found[PATH], escaped[MAX_ESCAPED];
    content c;
    find_main(dir, found);
    if (!*found && snprintf(snapshots, sizeof snapshots, "%s/snapshots", dir) < PATH && list_directory(snapshots, &c))
        memcpy(found, c.part, sizeof found);
    if (*found)
        return mox_fail_file(MOXIE_ERR_IO, error, dir, -1,
                             "this is a model's folder in the Hugging Face cache, and the checkpoint is one of its "
                             "snapshots: give \"%s\"",
                             mox_escape(escaped, sizeof escaped, found));
    return mox_fail_file(MOXIE_ERR_IO, error, dir, -1,
                         "this is a model's folder in the Hugging Face cache, and none of its snapshots holds "
                         "config.json: the download is incomplete; repeat it");
}

static moxie_status is_broken_link(const char *dir, moxie_error *error)
{
    char path[PATH];
    const bool fits = snprintf(path, sizeof path, "%s/config.json", dir) < PATH;
    return mox_fail_file(MOXIE_ERR_IO, error, fits ? path : dir, -1,
                         "cannot open: a link to nothing, or to itself; is the download incomplete, or were its blobs "
                         "removed? repeat it");
}

/* Decides by the content of the directory, from what is certain to what is likely. */
static moxie_status is_folder(const char *dir, moxie_error *error)
{
    char escaped[MAX_ESCAPED];
    content c;
    if (!list_directory(dir, &c))
        return mox_fail_file(MOXIE_ERR_IO, error, dir, -1, "cannot open the directory: %m");
    mox_escape(escaped, sizeof escaped, c.part);
    if (c.gguf)
        return has_gguf(dir, error);
    if (c.pipeline)
        return mox_fail_file(
            MOXIE_ERR_IO, error, dir, -1,
            "this is a diffusers pipeline (model_index.json), whose parts are models of their own%s%s%s",
            *escaped ? ": give one of them, such as \"" : "; none of them holds config.json", escaped,
            *escaped ? "\"" : "");
    if (c.cached_model)
        return is_cached_model(dir, error);
    if (c.cache)
        return mox_fail_file(
            MOXIE_ERR_IO, error, dir, -1,
            "this is the Hugging Face cache: give one model's snapshot, models--ORG--NAME/snapshots/HASH");
    if (c.broken_config)
        return is_broken_link(dir, error);
    if (c.tensors)
        return mox_fail_file(MOXIE_ERR_IO, error, dir, -1,
                             "config.json, which describes the model, is missing next to the *.safetensors; get it "
                             "from the same release");
    if (c.pickles)
        return is_pickled(dir, error);
    if (*escaped)
        return mox_fail_file(MOXIE_ERR_IO, error, dir, -1,
                             "config.json is not in this directory, but there is one in \"%s\": "
                             "give that",
                             escaped);
    return mox_fail_file(MOXIE_ERR_IO, error, dir, -1,
                         "config.json is missing, and there are no other files of a checkpoint here; give " NEEDED);
}

/* ---- all ------------------------------------------------------------------------------------------- */

/* "openai/gpt-oss-20b": one slash, no dot or slash in front. */
static bool is_hub_name(const char *path)
{
    const char *slash = strchr(path, '/');
    return slash && slash != path && slash[1] && !strchr(slash + 1, '/') && path[0] != '.';
}

moxie_status mox_no_model(const char *dir, moxie_error *error)
{
    struct stat info;
    if (stat(dir, &info) == 0)
        return S_ISDIR(info.st_mode) ? is_folder(dir, error) : is_file(dir, &info, error);
    if (errno != ENOENT)
        return mox_fail_file(MOXIE_ERR_IO, error, dir, -1, "cannot open: %m; give " NEEDED);
    if (ends_with(dir, ".gguf"))
        return mox_fail_file(MOXIE_ERR_IO, error, dir, -1,
                             "there is no such file; give the name of a GGUF file that is "
                             "there");
    return mox_fail_file(MOXIE_ERR_IO, error, dir, -1, "there is no such directory%s; give " NEEDED,
                         is_hub_name(dir) ? " (a model's name on a hub must be downloaded first)" : "");
}

moxie_status mox_no_tensors(const char *dir, moxie_error *error)
{
    content c;
    if (!list_directory(dir, &c))
        return mox_fail_file(MOXIE_ERR_IO, error, dir, -1, "cannot open the directory: %m");
    if (c.gguf)
        return has_gguf(dir, error);
    if (c.pickles)
        return is_pickled(dir, error);
    if (c.experts)
        return mox_fail_file(
            MOXIE_ERR_UNSUPPORTED, error, dir, -1,
            "these are expert files of `moxie prepare` (*.moxie), which only inspect, run, diff, bench, "
            "explain, and prepare --verify and --undo read; give the checkpoint that they were made of");
    return mox_fail_file(
        MOXIE_ERR_IO, error, dir, -1,
        "there is no model.safetensors.index.json and no file *.safetensors in this directory, only its "
        "config.json: the download is incomplete; repeat it");
}
