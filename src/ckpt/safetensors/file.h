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
#include <sys/types.h>

#include "base/status.h"

typedef struct mox_file {
    unsigned char *data; /* read-only when mapped; never NULL in an open file; when read, a zero byte follows */
    uint64_t size;
    bool mapped;
    dev_t device; /* which file it is */
    ino_t inode;
} mox_file;

/* Opens `path`, of `limit` bytes at most. An empty file is read, as there is nothing to map. MOXIE_ERR_IO when the
 * system refuses, MOXIE_ERR_FORMAT when it is too large. */
moxie_status mox_file_open(const char *path, bool no_mmap, uint64_t limit, mox_file *out, moxie_error *error);
/* Something has this name, be it a symbolic link that leads nowhere: a broken input, not an absent one. */
bool mox_file_exists(const char *path);
/* MOXIE_ERR_IO when the file that was opened at `path` has become shorter, so that touching its mapping would end the
 * process (SIGBUS). To be called right before much of it is read; what is cut off later cannot be told. */
moxie_status mox_file_check(const mox_file *file, const char *path, moxie_error *error);
/* A zero-initialised file is fine. */
void mox_file_close(mox_file *file);

#endif
