/* SPDX-License-Identifier: Apache-2.0
 *
 * beside.h - a file under another name beside its own, until it is whole: path.<pid>-<n>.tmp, then renamed.
 */
#ifndef MOX_CKPT_BESIDE_H
#define MOX_CKPT_BESIDE_H

#include <stdbool.h>

#include "base/memory.h"
#include "base/status.h"

typedef struct mox_beside {
    const char *path;      /* its own name; lives as long */
    const char *temporary; /* NULL: there is no temporary file (any more) */
    int fd;                /* -1: none */
} mox_beside;

/* Creates a file that did not exist, with the permissions that the umask leaves, for reading and writing. The temporary
 * name is the arena's. Whatever comes back, mox_beside_discard() ends it. */
moxie_status mox_beside_create(mox_arena *arena, const char *path, mox_beside *out, moxie_error *error);
/* Writes all, at `offset`, or where the file stands when that is negative. */
moxie_status mox_beside_write(const mox_beside *file, const void *data, uint64_t bytes, int64_t offset,
                              moxie_error *error);
/* Closes the file and gives it its name. `sync`: its content is on the disk before. */
moxie_status mox_beside_publish(mox_beside *file, bool sync, moxie_error *error);
/* Removes what was not published. */
void mox_beside_discard(mox_beside *file);

#endif
