/* SPDX-License-Identifier: Apache-2.0
 *
 * beside.c - temporary files beside the real ones, and writes that come to their end (beside.h).
 */
#include "ckpt/beside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

moxie_status mox_beside_create(mox_arena *arena, const char *path, const char **temporary, int *fd, moxie_error *error)
{
    static atomic_uint serial;
    for (int tries = 0; tries < 100; tries++) {
        const char *name = mox_arena_printf(arena, "%s.%ld-%u.tmp", path, (long)getpid(), atomic_fetch_add(&serial, 1));
        MOX_FAIL_IF(!name, MOXIE_ERR_MEMORY, error, "no memory for a file name");
        *fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (*fd >= 0) {
            *temporary = name;
            return MOXIE_OK;
        }
        if (errno != EEXIST)
            break;
    }
    return mox_fail_file(MOXIE_ERR_IO, error, path, -1, "cannot create a temporary file beside it: %m");
}

moxie_status mox_beside_write(int fd, const char *path, const void *data, uint64_t bytes, int64_t offset,
                              moxie_error *error)
{
    const unsigned char *at = data;
    while (bytes > 0) {
        const ssize_t done = offset < 0 ? write(fd, at, bytes) : pwrite(fd, at, bytes, offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return mox_fail_file(MOXIE_ERR_IO, error, path, -1, "cannot write: %m");
        at += done;
        bytes -= (uint64_t)done;
        offset += offset < 0 ? 0 : done;
    }
    return MOXIE_OK;
}
