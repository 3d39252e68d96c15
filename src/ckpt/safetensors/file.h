/* SPDX-License-Identifier: Apache-2.0
 *
 * file.h - a regular file's bytes in memory: mapped, or read whole.
 *
 * Symbolic links are followed (model caches store every file as one); directories, devices and pipes are
 * refused. The size is taken again once the bytes are there: a file that changes while it is opened is an error.
 */
#ifndef MOX_CKPT_FILE_H
#define MOX_CKPT_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mox_file {
    unsigned char *data; /* read-only when mapped; never NULL in an open file */
    uint64_t size;
    bool mapped;
} mox_file;

/* Opens `path`, of `limit` bytes at most. An empty file is read, as there is nothing to map. MOXIE_ERR_IO when the
 * system refuses, MOXIE_ERR_FORMAT when it is too large. */
moxie_status mox_file_open(const char *path, bool no_mmap, uint64_t limit, mox_file *out, moxie_error *error);
/* A zero-initialised file is fine. */
void mox_file_close(mox_file *file);

#endif
