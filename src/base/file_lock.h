/* SPDX-License-Identifier: Apache-2.0
 *
 * file_lock.h - who is at work on a file or in a directory: an advisory lock (flock) that ends with its process.
 *
 * A lock belongs to the opened file, not to its name. So whoever gets one checks that the name still means that file:
 * in between, the holder before may have renamed or removed it.
 */
#ifndef MOX_BASE_FILE_LOCK_H
#define MOX_BASE_FILE_LOCK_H

#include <stdbool.h>

#include "base/status.h"

typedef enum mox_lock {
    MOX_LOCK_HELD,
    MOX_LOCK_BUSY, /* another process, or another part of this one, holds it */
    MOX_LOCK_NONE  /* the file system has no locks */
} mox_lock;

/* Takes the exclusive lock of an open file, without waiting. Closing the file lets go. */
mox_lock mox_lock_try(int fd);
/* `path` itself, not what a symbolic link there points to, is the open file. */
bool mox_lock_is_at(int fd, const char *path);
/* MOXIE_ERR_IO that names the process which holds the lock of `fd`, where the system tells. */
moxie_status mox_lock_busy(int fd, const char *path, moxie_error *error);

/* A directory that is held against other processes. */
typedef struct mox_directory {
    int fd;
    bool created; /* by this call */
} mox_directory;

/* Opens the directory `path`, never through a symbolic link, and takes its lock. `create`: makes it when it is absent.
 * Close out->fd to let go. MOXIE_ERR_IO, with nothing changed, when it is no directory or another process holds it. */
moxie_status mox_directory_hold(const char *path, bool create, mox_directory *out, moxie_error *error);

#endif
