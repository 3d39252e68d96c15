/* SPDX-License-Identifier: Apache-2.0
 *
 * beside.h - a file under another name beside its own, until it is whole: path.<pid>-<n>.tmp, then renamed.
 */
#ifndef MOX_CKPT_BESIDE_H
#define MOX_CKPT_BESIDE_H

#include "base/memory.h"
#include "base/status.h"

/* Creates a file that did not exist, with the permissions that the umask leaves, for reading and writing. The name is
 * the arena's. */
moxie_status mox_beside_create(mox_arena *arena, const char *path, const char **temporary, int *fd, moxie_error *error);
/* Writes all, at `offset`, or where the file stands when that is negative. `path` is for messages. */
moxie_status mox_beside_write(int fd, const char *path, const void *data, uint64_t bytes, int64_t offset,
                              moxie_error *error);

#endif
