/* SPDX-License-Identifier: Apache-2.0
 *
 * file_lock.h - marks a file or directory as in use by a process: an advisory lock (flock), which ends with its
 * process.
 *
 * A lock belongs to the opened file, not to its name. So after locking, check that the name still refers to that file:
 * the previous holder may have renamed or removed it.
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

/* Locks an open file exclusively, without waiting. Closing the file unlocks it. */
mox_lock mox_lock_try(int fd);
/* True when `path` is still the open file, and no symbolic link to it. */
bool mox_lock_is_at(int fd, const char *path);
/* MOXIE_ERR_IO; the text names the process that holds the lock of `fd`, if the system tells. */
moxie_status mox_lock_busy(int fd, const char *path, moxie_error *error);

/* A directory that this process has locked. */
typedef struct mox_directory {
    int fd;
    bool created; /* by this call */
} mox_directory;

/* Opens the directory `path`, never through a symbolic link, and locks it. `create`: creates it when it is absent.
 * Close out->fd to unlock. MOXIE_ERR_IO, and nothing changed, when it is no directory or another process has locked it.
 */
moxie_status mox_directory_hold(const char *path, bool create, mox_directory *out, moxie_error *error);

#endif
