/* SPDX-License-Identifier: Apache-2.0
 *
 * bake_files.c - the output of `moxie bake`: every file of the checkpoint's directory, shards with merged experts.
 * config.json comes last, so a directory without it is one that was interrupted.
 */
#include "bake.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_COPIED (UINT64_C(1) << 30)
static const char LAST[] = "config.json";

typedef struct names {
    char **at;
    int count;
} names;

static void free_names(names *n)
{
    for (int i = 0; i < n->count; i++)
        free(n->at[i]);
    free(n->at);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The regular files of a directory, sorted; others, and subdirectories, are left out. */
static moxie_status list(const char *dir, names *out, moxie_error *error)
{
    char path[8192];
    struct stat info;
    DIR *listing = opendir(dir);
    if (!listing)
        return cli_error(MOXIE_ERR_IO, error, dir, "cannot be listed: %s", strerror(errno));
    for (const struct dirent *entry; (entry = readdir(listing));) {
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
            continue;
        const size_t bytes = strlen(entry->d_name) + 1;
        out->at = cli_realloc(out->at, (size_t)(out->count + 1) * sizeof *out->at);
        out->at[out->count++] = memcpy(cli_alloc(bytes), entry->d_name, bytes);
    }
    closedir(listing);
    if (out->count > 0)
        qsort(out->at, (size_t)out->count, sizeof *out->at, by_name);
    return MOXIE_OK;
}

static bool is_shard(const char *name)
{
    const size_t length = strlen(name);
    return length > 12 && strcmp(name + length - 12, ".safetensors") == 0;
}

static moxie_status copy_file(const char *from, const char *to, moxie_error *error)
{
    char *data = NULL;
    uint64_t bytes = 0;
    moxie_status status = moxie_file_read(from, MAX_COPIED, &data, &bytes, error);
    if (status == MOXIE_OK)
        status = moxie_file_write(to, data, bytes, error);
    moxie_file_free(data);
    return status;
}

/* ---- a shard --------------------------------------------------------------------------------------------- */

static uint64_t bytes_of(const moxie_tensor *t)
{
    uint64_t elements = 1;
    for (int32_t i = 0; i < t->rank; i++)
        elements *= (uint64_t)t->shape[i];
    return elements * (uint64_t)moxie_dtype_bits(t->dtype) / 8;
}

static moxie_status describe(const bake *b, const moxie_tensor_file *file, const char *path, int64_t i,
                             moxie_sealed_tensor *out, moxie_error *error)
{
    moxie_tensor view;
    const char *name;
    const moxie_status status = moxie_tensor_file_at(file, i, &name, &view);
    if (status == MOXIE_OK && view.dtype == MOXIE_DTYPE_NONE)
        return cli_error(MOXIE_ERR_UNSUPPORTED, error, path, "tensor %s has a type or rank that cannot be written",
                         cli_printable(name));
    *out = (moxie_sealed_tensor) { .name = name, .dtype = view.dtype, .rank = view.rank, .pieces = 1 };
    memcpy(out->shape, view.shape, sizeof out->shape);
    if (bake_layer_of(b, name) >= 0 && view.rank == 3 && view.shape[0] > 0)
        out->pieces = view.shape[0];
    return status;
}

static moxie_status put_tensor(bake *b, const moxie_tensor_file *file, int64_t i, const moxie_sealed_tensor *t,
                               moxie_sealed_writer *writer, moxie_error *error)
{
    moxie_tensor view;
    const int64_t layer = bake_layer_of(b, t->name);
    moxie_status status = moxie_tensor_file_at(file, i, NULL, &view);
    const uint64_t bytes = bytes_of(&view) / (uint64_t)t->pieces;
    char *piece = layer >= 0 ? cli_alloc(bytes + 1) : NULL;
    for (int64_t p = 0; p < t->pieces && status == MOXIE_OK; p++) {
        const uint64_t first = (uint64_t)p * bytes;
        const char *from = (const char *)view.data + first;
        if (piece) {
            memcpy(piece, from, bytes);
            status = bake_piece(b, layer, t->name, first, bytes, piece, error);
        }
        if (status == MOXIE_OK)
            status = moxie_sealed_writer_put(writer, i, p, piece ? piece : from, error);
        moxie_tensor_file_release_pages(file, from, bytes);
    }
    free(piece);
    return status;
}

static moxie_status write_shard(bake *b, const char *from, const char *to, moxie_error *error)
{
    moxie_tensor_file *file = NULL;
    moxie_sealed_writer *writer = NULL;
    moxie_status status = moxie_tensor_file_open(from, 0, &file, error);
    if (status != MOXIE_OK)
        return status;
    const int64_t count = moxie_tensor_file_count(file);
    const char *format = moxie_tensor_file_metadata(file, "format");
    const char *const metadata[] = { "format", format };
    moxie_sealed_tensor *tensors = cli_alloc((size_t)(count + 1) * sizeof *tensors);
    for (int64_t i = 0; i < count && status == MOXIE_OK; i++)
        status = describe(b, file, from, i, &tensors[i], error);
    if (status == MOXIE_OK)
        status = moxie_sealed_writer_open(to, tensors, count, metadata, format ? 1 : 0, &writer, error);
    for (int64_t i = 0; i < count && status == MOXIE_OK; i++)
        status = put_tensor(b, file, i, &tensors[i], writer, error);
    if (status == MOXIE_OK)
        status = moxie_sealed_writer_finish(writer, error);
    else
        moxie_sealed_writer_abandon(writer);
    free(tensors);
    moxie_tensor_file_close(file);
    return status;
}

/* ---- the directory --------------------------------------------------------------------------------------- */

static moxie_status write_one(bake *b, const char *name, moxie_error *error)
{
    char from[8192], to[8192];
    snprintf(from, sizeof from, "%s/%s", b->dir, name);
    snprintf(to, sizeof to, "%s/%s", b->out, name);
    return is_shard(name) ? write_shard(b, from, to, error) : copy_file(from, to, error);
}

/* The directory while it is written. */
static struct {
    const names *files;
    const char *out;
    int fd;
    bool created;
    volatile sig_atomic_t reached; /* the file that is being written; those before it are there */
} begun;

/* After a failure, or when a signal ends the program: async-signal-safe. */
static void remove_begun(void)
{
    for (int i = 0; i <= begun.reached && i < begun.files->count; i++)
        unlinkat(begun.fd, begun.files->at[i], 0);
    if (begun.created)
        rmdir(begun.out);
}

static moxie_status write_all(bake *b, const names *files, moxie_error *error)
{
    cli_progress progress;
    moxie_status status = MOXIE_OK;
    cli_progress_begin(&progress, "bake");
    for (int i = 0; i < files->count && status == MOXIE_OK; i++) {
        begun.reached = i;
        if (strcmp(files->at[i], LAST) != 0)
            status = write_one(b, files->at[i], error);
        cli_progress_show(&progress, (uint64_t)i + 1, (uint64_t)files->count);
    }
    if (status == MOXIE_OK)
        status = bake_end(b, error);
    if (status == MOXIE_OK)
        status = write_one(b, LAST, error);
    cli_progress_end(&progress);
    return status;
}

void bake_remove(const char *dir)
{
    names files = { 0 };
    char path[8192];
    moxie_error absent;
    if (list(dir, &files, &absent) == MOXIE_OK)
        for (int i = 0; i < files.count; i++) {
            snprintf(path, sizeof path, "%s/%s", dir, files.at[i]);
            unlink(path);
        }
    rmdir(dir);
    free_names(&files);
}

moxie_status bake_check_empty(const char *dir, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    DIR *listing = opendir(dir);
    if (!listing)
        return cli_error(MOXIE_ERR_IO, error, dir, "cannot be listed: %s", strerror(errno));
    for (const struct dirent *entry; status == MOXIE_OK && (entry = readdir(listing));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = cli_error(MOXIE_ERR_IO, error, dir, "the directory is not empty: %s is in it; name a new one",
                               cli_printable(entry->d_name));
    closedir(listing);
    return status;
}

/* Into a directory that is locked. */
static moxie_status write_locked(bake *b, const names *files, int fd, bool created, moxie_error *error)
{
    moxie_status status = bake_check_empty(b->out, error);
    if (status != MOXIE_OK)
        return status;
    begun.files = files;
    begun.out = b->out;
    begun.fd = fd;
    begun.created = created;
    begun.reached = 0;
    cli_on_end(remove_begun);
    status = write_all(b, files, error);
    cli_on_end(NULL);
    if (status != MOXIE_OK)
        remove_begun();
    return status;
}

moxie_status bake_write(bake *b, moxie_error *error)
{
    names files = { 0 };
    int fd = -1, created = 0;
    moxie_status status = list(b->dir, &files, error);
    if (status == MOXIE_OK)
        status = moxie_directory_lock(b->out, 1, &fd, &created, error);
    if (status == MOXIE_OK) {
        status = write_locked(b, &files, fd, created != 0, error);
        close(fd);
    }
    free_names(&files);
    return status;
}
