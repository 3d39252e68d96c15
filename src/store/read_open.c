/* SPDX-License-Identifier: Apache-2.0
 *
 * read_open.c - opens a reader (record_reader.h): its files, then the first engine that starts; and closes it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "store/read_engine.h"

#define DEPTH       32
#define MAX_DEPTH   1024
#define MAX_THREADS 256
#define CHUNK       (UINT64_C(256) << 10)
#define MAX_CHUNK   (UINT64_C(1) << 30)

void mox_read_add_reason(mox_reader *r, const char *format, ...)
{
    const size_t length = strlen(r->why);
    va_list arguments;
    if (sizeof r->why - length < 8)
        return;
    if (length > 0)
        strcpy(r->why + length, "; ");
    const size_t at = strlen(r->why);
    va_start(arguments, format);
    mox_format_text(r->why + at, sizeof r->why - at, format, arguments);
    va_end(arguments);
}

/* ---- opening ------------------------------------------------------------------------------------------ */

static const mox_read_engine *const engines[] = {
#define MOX_READ_ENGINE(id, name, about) &mox_read_engine_##id,
#include "store/read_engines.def"
#undef MOX_READ_ENGINE
};
static const char *const abouts[] = {
#define MOX_READ_ENGINE(id, name, about) about,
#include "store/read_engines.def"
#undef MOX_READ_ENGINE
};
enum { ENGINES = sizeof engines / sizeof engines[0] };

#define MOX_READ_ENGINE(id, name, about) ", " name
static const char names[] = "auto"
#include "store/read_engines.def"
    ;
#undef MOX_READ_ENGINE

bool mox_read_engine_at(int32_t i, moxie_read_engine *out)
{
    moxie_error error;
    if (i < 0 || i >= ENGINES)
        return false;
    out->name = engines[i]->name;
    out->about = abouts[i];
    out->usable = engines[i]->find(&error) == MOXIE_OK;
    snprintf(out->missing, sizeof out->missing, "%.*s", (int)sizeof out->missing - 1, out->usable ? "" : error.text);
    return true;
}

static moxie_status check_options(const mox_reader_options *o, moxie_error *error)
{
    bool known = o->engine == NULL || strcmp(o->engine, "auto") == 0;
    for (int i = 0; i < ENGINES && !known; i++)
        known = strcmp(o->engine, engines[i]->name) == 0;
    MOX_FAIL_IF(!known, MOXIE_ERR_ARGUMENT, error, "no engine that reads records is called %s; there are %s", o->engine,
                names);
    MOX_FAIL_IF(o->depth < 0 || o->depth > MAX_DEPTH, MOXIE_ERR_ARGUMENT, error,
                "%d reads in flight were asked for; 1 to %d are possible, 0 is %d", (int)o->depth, MAX_DEPTH, DEPTH);
    MOX_FAIL_IF(o->threads < 0 || o->threads > MAX_THREADS, MOXIE_ERR_ARGUMENT, error,
                "%d threads that read were asked for; at most %d are possible", (int)o->threads, MAX_THREADS);
    MOX_FAIL_IF(o->chunk_bytes % MOX_READ_ALIGN != 0 || o->chunk_bytes > MAX_CHUNK, MOXIE_ERR_ARGUMENT, error,
                "reads of %llu bytes were asked for; they are multiples of %llu bytes, at most 1 GiB",
                (unsigned long long)o->chunk_bytes, (unsigned long long)MOX_READ_ALIGN);
    return MOXIE_OK;
}

/* The number of a device among those of the reader. */
static int32_t number_drive(mox_reader *r, uint64_t device)
{
    for (int32_t d = 0; d < r->n_drives; d++)
        if (r->devices[d] == device)
            return d;
    if (r->n_drives == MOX_READ_DRIVES)
        return MOX_READ_DRIVES - 1;
    r->devices[r->n_drives] = device;
    return r->n_drives++;
}

/* O_NONBLOCK was for opening what is no file, such as a FIFO, without waiting. Where it stays set, io_uring of older
 * kernels, and over drivers that cannot but wait, answers every read of the disk with EAGAIN. */
static bool let_reads_wait(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0;
}

static moxie_status open_copy(mox_reader *r, mox_reader_file *file, const char *path, moxie_error *error)
{
    struct stat info;
    mox_read_copy *copy = &file->copies[file->n_copies];
    *copy = (mox_read_copy) { .fd = -1, .path = mox_alloc(strlen(path) + 1) };
    MOX_FAIL_IF(copy->path == NULL, MOXIE_ERR_MEMORY, error, "no memory to open %s", path);
    strcpy(copy->path, path);
    file->n_copies++;
    if (!r->buffered)
        copy->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
    copy->direct = copy->fd >= 0;
    if (copy->fd < 0)
        copy->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (copy->fd < 0 || fstat(copy->fd, &info) != 0)
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1, "cannot open: %m");
    if (!S_ISREG(info.st_mode))
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1, "it is no regular file");
    if (!let_reads_wait(copy->fd))
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1, "its flags cannot be set: %m");
    copy->drive = number_drive(r, (uint64_t)info.st_dev);
    return MOXIE_OK;
}

static moxie_status open_files(mox_reader *r, const mox_read_file *files, int32_t n, moxie_error *error)
{
    r->files = mox_calloc((uint64_t)n, sizeof *r->files);
    MOX_FAIL_IF(r->files == NULL, MOXIE_ERR_MEMORY, error, "no memory for a list of %d files", (int)n);
    r->n_files = n;
    for (int32_t i = 0; i < n; i++) {
        MOX_FAIL_IF(files[i].path == NULL, MOXIE_ERR_ARGUMENT, error, "file %d of a reader has no path", (int)i);
        MOX_TRY(open_copy(r, &r->files[i], files[i].path, error));
        if (files[i].mirror != NULL)
            MOX_TRY(open_copy(r, &r->files[i], files[i].mirror, error));
    }
    return MOXIE_OK;
}

static moxie_status start_engine(mox_reader *r, const char *wanted, moxie_error *error)
{
    const bool any = wanted == NULL || strcmp(wanted, "auto") == 0;
    moxie_error refused = { 0 };
    moxie_status status = MOXIE_ERR_UNSUPPORTED;
    for (int i = 0; i < ENGINES && status != MOXIE_OK; i++) {
        if (!any && strcmp(wanted, engines[i]->name) != 0)
            continue;
        r->engine = engines[i];
        status = engines[i]->start(r, &refused);
        if (status != MOXIE_OK)
            mox_read_add_reason(r, "%s: %s", engines[i]->name, refused.text);
    }
    MOX_FAIL_IF(status != MOXIE_OK, status, error, "records cannot be read: %s", r->why);
    return MOXIE_OK;
}

static moxie_status copy_buffers(mox_reader *r, const mox_reader_options *o, moxie_error *error)
{
    if (o->n_buffers <= 0)
        return MOXIE_OK;
    r->buffers = mox_calloc((uint64_t)o->n_buffers, sizeof *r->buffers);
    MOX_FAIL_IF(r->buffers == NULL, MOXIE_ERR_MEMORY, error, "no memory for a list of buffers");
    memcpy(r->buffers, o->buffers, (uint64_t)o->n_buffers * sizeof *r->buffers);
    r->n_buffers = o->n_buffers;
    return MOXIE_OK;
}

static void free_reader(mox_reader *r)
{
    for (int32_t i = 0; i < r->n_files; i++)
        for (int32_t c = 0; c < r->files[i].n_copies; c++) {
            if (r->files[i].copies[c].fd >= 0)
                close(r->files[i].copies[c].fd);
            mox_free(r->files[i].copies[c].path);
        }
    mox_free(r->files);
    mox_free(r->buffers);
    pthread_cond_destroy(&r->done);
    pthread_cond_destroy(&r->work);
    pthread_mutex_destroy(&r->lock);
    mox_free(r);
}

static mox_reader *create_reader(const mox_reader_options *o)
{
    pthread_condattr_t clock;
    mox_reader *r = mox_alloc(sizeof *r);
    if (r == NULL)
        return NULL;
    r->depth = o->depth > 0 ? o->depth : DEPTH;
    r->chunk_bytes = o->chunk_bytes > 0 ? o->chunk_bytes : CHUNK;
    r->threads = o->threads;
    r->buffered = o->buffered;
    r->fault = o->fault;
    r->fault_user = o->fault_user;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->work, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&r->done, &clock);
    pthread_condattr_destroy(&clock);
    return r;
}

moxie_status mox_reader_open(const mox_read_file *files, int32_t n_files, const mox_reader_options *options,
                             mox_reader **out, moxie_error *error)
{
    static const mox_reader_options defaults;
    const mox_reader_options *o = options != NULL ? options : &defaults;
    MOX_TRY(check_options(o, error));
    MOX_FAIL_IF(n_files < 1, MOXIE_ERR_ARGUMENT, error, "a reader was asked for, but no file");
    mox_reader *r = create_reader(o);
    MOX_FAIL_IF(r == NULL, MOXIE_ERR_MEMORY, error, "no memory for a reader of records");
    moxie_status status = open_files(r, files, n_files, error);
    if (status == MOXIE_OK)
        status = copy_buffers(r, o, error);
    if (status == MOXIE_OK)
        status = start_engine(r, o->engine, error);
    if (status == MOXIE_OK)
        *out = r;
    else
        free_reader(r);
    return status;
}

void mox_reader_close(mox_reader *r)
{
    if (r == NULL)
        return;
    pthread_mutex_lock(&r->lock);
    while (r->urgent.first != NULL)
        mox_read_drop(r, r->urgent.first, ECANCELED);
    while (r->queue.first != NULL)
        mox_read_drop(r, r->queue.first, ECANCELED);
    while (r->in_flight > 0)
        pthread_cond_wait(&r->done, &r->lock);
    r->closing = true;
    pthread_cond_broadcast(&r->work);
    if (r->engine->wake != NULL)
        r->engine->wake(r);
    pthread_mutex_unlock(&r->lock);
    r->engine->stop(r);
    free_reader(r);
}
