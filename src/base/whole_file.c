/* SPDX-License-Identifier: Apache-2.0
 *
 * whole_file.c - temporary files beside the real ones, and complete writes (whole_file.h).
 */
#include "base/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file_lock.h"
#include "base/memory.h"
#include "base/temporaries.h"

#define BUFFER_BYTES (UINT64_C(1) << 18)
/* How long to wait for another writer of the same file: TRIES times NAP. */
enum { TRIES = 150, NAP_NS = 20000000 };

/* ---- creating --------------------------------------------------------------------------------------- */

/* Checks that the file that has the name now, if any, may be replaced. */
static moxie_status check_target(const char *path, moxie_error *error)
{
    struct stat info;
    if (lstat(path, &info) != 0)
        return MOXIE_OK; /* absent; creating the temporary file finds other problems */
    if (S_ISDIR(info.st_mode))
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1, "cannot be written: Is a directory; name a file in it");
    if (S_ISLNK(info.st_mode))
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1,
                             "cannot be written: it is a symbolic link, which would be replaced; name the file itself");
    if (!S_ISREG(info.st_mode))
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1,
                             "cannot be written: it is a device, pipe or socket; name a file");
    return MOXIE_OK;
}

/* Removes the temporary file of a dead writer. *busy: the writer lives. */
static moxie_status sweep(const char *path, const char *temporary, bool *busy, moxie_error *error)
{
    struct stat info;
    const int fd = open(temporary, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return MOXIE_OK;
    const bool ours = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid();
    const mox_lock lock = ours ? mox_lock_try(fd) : MOX_LOCK_NONE;
    moxie_status status = MOXIE_OK;
    *busy = lock == MOX_LOCK_BUSY;
    if (*busy)
        status = mox_lock_busy(fd, path, error);
    else if (lock == MOX_LOCK_NONE)
        status = mox_fail_file(MOXIE_ERR_IO, error, temporary, -1,
                               "it is in the way, and nothing shows that a moxie which has ended left it: remove it");
    else if (mox_lock_is_at(fd, temporary) && unlink(temporary) != 0)
        status = mox_fail_file(MOXIE_ERR_IO, error, temporary, -1, "cannot remove what an ended process left: %m");
    if (fd >= 0)
        close(fd);
    return status;
}

/* Creates and locks a new file. *out -1 with MOXIE_OK: another process was faster; try again. */
static moxie_status make_locked(const char *path, const char *temporary, int *out, bool *busy, moxie_error *error)
{
    *busy = false;
    *out = -1;
    const int fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST)
        return sweep(path, temporary, busy, error);
    if (fd < 0)
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1,
                             "cannot be written: %m; name a file in a directory that can be written");
    /* Until it is locked, another process may think that a dead writer left this file, and remove it. */
    if (mox_lock_try(fd) != MOX_LOCK_BUSY && mox_lock_is_at(fd, temporary))
        *out = fd;
    else
        close(fd);
    return MOXIE_OK;
}

static moxie_status make_listed(mox_whole_file *file, bool *busy, moxie_error *error)
{
    sigset_t mask;
    file->number = mox_temporary_begin(file->temporary, NULL, &mask);
    const moxie_status status =
        mox_temporaries_ended()
            ? mox_fail_file(MOXIE_ERR_IO, error, file->path, -1, "not written: the process is being ended")
            : make_locked(file->path, file->temporary, &file->fd, busy, error);
    const bool made = status == MOXIE_OK && file->fd >= 0;
    mox_temporary_made(file->number, made, &mask);
    file->number = made ? file->number : -1;
    return status;
}

static moxie_status create(mox_whole_file *file, moxie_error *error)
{
    static const struct timespec nap = { .tv_nsec = NAP_NS };
    MOX_FAIL_IF(!file->path[0], MOXIE_ERR_ARGUMENT, error, "the name of the file to write is empty");
    MOX_TRY(check_target(file->path, error));
    for (int tries = 0; tries < TRIES; tries++) {
        bool busy = false;
        const moxie_status status = make_listed(file, &busy, error);
        if (file->fd >= 0 || (status != MOXIE_OK && !busy))
            return status;
        if (busy && tries + 1 == TRIES)
            return status;
        if (busy)
            nanosleep(&nap, NULL);
    }
    return mox_fail_file(MOXIE_ERR_IO, error, file->path, -1, "other processes keep writing this file");
}

moxie_status mox_whole_file_create(const char *path, mox_whole_file *out, moxie_error *error)
{
    const size_t length = strlen(path);
    mox_whole_file file = MOX_WHOLE_FILE_NONE;
    file.path = mox_alloc(length + 1);
    file.buffer = mox_alloc(BUFFER_BYTES);
    char *temporary = mox_alloc(length + sizeof MOX_TEMPORARY_SUFFIX);
    moxie_status status = file.path && file.buffer && temporary
                              ? MOXIE_OK
                              : mox_fail_file(MOXIE_ERR_MEMORY, error, path, -1, "no memory to write a file");
    if (status == MOXIE_OK) {
        memcpy(file.path, path, length + 1);
        memcpy(temporary, path, length);
        memcpy(temporary + length, MOX_TEMPORARY_SUFFIX, sizeof MOX_TEMPORARY_SUFFIX);
        file.temporary = temporary;
        status = create(&file, error);
    }
    if (status == MOXIE_OK) {
        *out = file;
        return MOXIE_OK;
    }
    file.temporary = NULL; /* if there is such a file, it is not this writer's */
    mox_free(temporary);
    mox_whole_file_discard(&file);
    return status;
}

/* ---- writing ---------------------------------------------------------------------------------------- */

/* Writes at `offset`, or at the file position when that is negative. */
static moxie_status write_all(const mox_whole_file *file, const void *data, uint64_t bytes, int64_t offset,
                              moxie_error *error)
{
    const unsigned char *at = data;
    while (bytes > 0) {
        const ssize_t done = offset < 0 ? write(file->fd, at, bytes) : pwrite(file->fd, at, bytes, offset);
        if (done < 0 && errno == EINTR)
            continue;
        errno = done == 0 ? EIO : errno;
        if (done <= 0)
            return mox_fail_file(MOXIE_ERR_IO, error, file->path, -1, "cannot write: %m");
        at += done;
        bytes -= (uint64_t)done;
        offset += offset < 0 ? 0 : done;
    }
    return MOXIE_OK;
}

moxie_status mox_whole_file_write_at(const mox_whole_file *file, const void *data, uint64_t bytes, uint64_t offset,
                                     moxie_error *error)
{
    return write_all(file, data, bytes, (int64_t)offset, error);
}

moxie_status mox_whole_file_reserve(const mox_whole_file *file, uint64_t bytes, moxie_error *error)
{
    int failed;
    do
        failed = fallocate(file->fd, 0, 0, (off_t)bytes);
    while (failed && errno == EINTR);
    if (!failed)
        return MOXIE_OK;
    /* Some file systems cannot allocate ahead; then writes will fail if there is no room. */
    if ((errno == EOPNOTSUPP || errno == ENOSYS) && ftruncate(file->fd, (off_t)bytes) == 0)
        return MOXIE_OK;
    return mox_fail_file(MOXIE_ERR_IO, error, file->path, -1, "no room for its %llu bytes: %m",
                         (unsigned long long)bytes);
}

static moxie_status append_now(mox_whole_file *file, const void *data, uint64_t bytes, moxie_error *error)
{
    const moxie_status status = write_all(file, data, bytes, -1, error);
    file->failed = file->failed || status != MOXIE_OK;
    return status;
}

static moxie_status flush(mox_whole_file *file, moxie_error *error)
{
    const uint64_t bytes = file->buffered;
    file->buffered = 0;
    return append_now(file, file->buffer, bytes, error);
}

moxie_status mox_whole_file_append(mox_whole_file *file, const void *data, uint64_t bytes, moxie_error *error)
{
    if (bytes > BUFFER_BYTES - file->buffered)
        MOX_TRY(flush(file, error));
    if (bytes > BUFFER_BYTES)
        return append_now(file, data, bytes, error);
    if (bytes > 0)
        memcpy(file->buffer + file->buffered, data, bytes);
    file->buffered += bytes;
    return MOXIE_OK;
}

/* ---- the end ---------------------------------------------------------------------------------------- */

moxie_status mox_whole_file_publish(mox_whole_file *file, moxie_error *error)
{
    MOX_TRY(flush(file, error));
    if (file->failed)
        return mox_fail_file(MOXIE_ERR_IO, error, file->path, -1, "an earlier write failed");
    /* A second descriptor keeps the lock while the first one is closed, until the file has its name. */
    const int keep = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
    const int why = keep >= 0 && fsync(file->fd) == 0 ? 0 : errno;
    const int why_closed = close(file->fd) == 0 ? 0 : errno;
    file->fd = keep;
    errno = why ? why : why_closed;
    if (why || why_closed)
        return mox_fail_file(MOXIE_ERR_IO, error, file->path, -1, "cannot write: %m");
    if (rename(file->temporary, file->path) != 0)
        return mox_fail_file(MOXIE_ERR_IO, error, file->path, -1, "cannot rename the temporary file to it: %m");
    mox_temporary_drop(file->number);
    file->number = -1;
    mox_free(file->temporary);
    file->temporary = NULL;
    return MOXIE_OK;
}

void mox_whole_file_discard(mox_whole_file *file)
{
    if (file->temporary != NULL)
        unlink(file->temporary); /* still locked, so it is not another writer's */
    if (file->fd >= 0)
        close(file->fd);
    mox_temporary_drop(file->number);
    mox_free(file->temporary);
    mox_free(file->path);
    mox_free(file->buffer);
    *file = MOX_WHOLE_FILE_NONE;
}

moxie_status mox_whole_file_write(const char *path, const void *data, uint64_t bytes, moxie_error *error)
{
    mox_whole_file file = MOX_WHOLE_FILE_NONE;
    MOX_TRY(mox_whole_file_create(path, &file, error));
    moxie_status status = mox_whole_file_append(&file, data, bytes, error);
    if (status == MOXIE_OK)
        status = mox_whole_file_publish(&file, error);
    mox_whole_file_discard(&file);
    return status;
}

moxie_status mox_whole_file_check(const char *path, moxie_error *error)
{
    mox_whole_file file = MOX_WHOLE_FILE_NONE;
    const moxie_status status = mox_whole_file_create(path, &file, error);
    mox_whole_file_discard(&file);
    return status;
}
