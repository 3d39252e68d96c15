/* SPDX-License-Identifier: Apache-2.0
 *
 * beside.c - temporary files beside the real ones, and writes that come to their end (beside.h).
 */
#include "ckpt/beside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

moxie_status mox_beside_create(mox_arena *arena, const char *path, mox_beside *out, moxie_error *error)
{
    static atomic_uint serial;
    *out = (mox_beside) { .path = path, .fd = -1 };
    for (int tries = 0; tries < 100; tries++) {
        const char *name = mox_arena_printf(arena, "%s.%ld-%u.tmp", path, (long)getpid(), atomic_fetch_add(&serial, 1));
        MOX_FAIL_IF(!name, MOXIE_ERR_MEMORY, error, "no memory for a file name");
        out->fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (out->fd >= 0) {
            out->temporary = name;
            return MOXIE_OK;
        }
        if (errno != EEXIST)
            break;
    }
    return mox_fail_file(MOXIE_ERR_IO, error, path, -1, "cannot create a temporary file beside it: %m");
}

moxie_status mox_beside_write(const mox_beside *file, const void *data, uint64_t bytes, int64_t offset,
                              moxie_error *error)
{
    const unsigned char *at = data;
    while (bytes > 0) {
        const ssize_t done = offset < 0 ? write(file->fd, at, bytes) : pwrite(file->fd, at, bytes, offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return mox_fail_file(MOXIE_ERR_IO, error, file->path, -1, "cannot write: %m");
        at += done;
        bytes -= (uint64_t)done;
        offset += offset < 0 ? 0 : done;
    }
    return MOXIE_OK;
}

moxie_status mox_beside_publish(mox_beside *file, bool sync, moxie_error *error)
{
    const int synced = sync ? fsync(file->fd) : 0, closed = close(file->fd);
    file->fd = -1;
    if (synced != 0 || closed != 0)
        return mox_fail_file(MOXIE_ERR_IO, error, file->path, -1, "cannot write: %m");
    if (rename(file->temporary, file->path) != 0)
        return mox_fail_file(MOXIE_ERR_IO, error, file->path, -1, "cannot rename the temporary file to it: %m");
    file->temporary = NULL;
    return MOXIE_OK;
}

void mox_beside_discard(mox_beside *file)
{
    if (file->fd >= 0)
        close(file->fd);
    if (file->temporary != NULL)
        unlink(file->temporary);
    *file = (mox_beside) { .fd = -1 };
}
