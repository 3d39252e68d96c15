/* SPDX-License-Identifier: Apache-2.0
 *
 * file.h - the bytes of a regular file in memory: mapped, or read whole.
 *
 * Symbolic links are followed (model caches store every file as one); directories, devices and pipes are rejected. The
 * size is read again after the bytes: a file that changes while it is opened is an error.
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
    dev_t device; /* device and inode: the identity of the file */
    ino_t inode;
} mox_file;

/* Opens `path`, which may have at most `limit` bytes. An empty file is read, since it cannot be mapped. MOXIE_ERR_IO
 * when the system fails, MOXIE_ERR_FORMAT when the file is too large. */
moxie_status mox_file_open(const char *path, bool no_mmap, uint64_t limit, mox_file *out, moxie_error *error);
/* True when something has this name, even a dangling symbolic link: that is a broken input, not an absent one. */
bool mox_file_exists(const char *path);
/* MOXIE_ERR_IO when the file that was opened at `path` has become shorter, so that reading its mapping would end the
 * process (SIGBUS). Call it right before much of the file is read; a later cut cannot be detected. */
moxie_status mox_file_check(const mox_file *file, const char *path, moxie_error *error);
/* Also accepts a zero-initialised file. */
void mox_file_close(mox_file *file);

#endif
