/* SPDX-License-Identifier: Apache-2.0
 *
 * whole_file.h - the one writer of whole files: under another name until all of it is on the disk.
 *
 *     create: FILE.moxie.tmp, locked -> append, write_at ... -> publish: flush, fsync, close, rename to FILE
 *                                                            \-> discard: unlink
 *
 * The lock says whether a temporary file's writer still lives. One whose writer has died is removed by the next writer
 * of the same file, so no process needs to have ended well for a folder to become clean again.
 */
#ifndef MOX_BASE_WHOLE_FILE_H
#define MOX_BASE_WHOLE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mox_whole_file {
    char *path;      /* its own name */
    char *temporary; /* NULL: there is no temporary file (any more) */
    int fd;          /* -1: none */
    unsigned char *buffer;
    uint64_t buffered; /* bytes that append() gathered */
    bool failed;       /* an append failed before: this file is never published */
    int number;        /* in the list of temporaries */
} mox_whole_file;
#define MOX_WHOLE_FILE_NONE ((mox_whole_file) { .fd = -1, .number = -1 })

/* Creates the temporary file, with the permissions that the umask leaves, for reading and writing. MOXIE_ERR_IO when
 * `path` is a directory, a device, a pipe or a symbolic link, when its folder cannot be written, or when another
 * process writes the same file for longer than three seconds. `out` needs no mox_whole_file_discard() then. */
moxie_status mox_whole_file_create(const char *path, mox_whole_file *out, moxie_error *error);
/* The next bytes. Small pieces are gathered. */
moxie_status mox_whole_file_append(mox_whole_file *file, const void *data, uint64_t bytes, moxie_error *error);
/* Bytes at an offset, at once. Thread-safe for different bytes. Not for files that append() is used on. */
moxie_status mox_whole_file_write_at(const mox_whole_file *file, const void *data, uint64_t bytes, uint64_t offset,
                                     moxie_error *error);
/* Brings all bytes to the disk and gives the file its name. When the name itself comes to the disk is left to the file
 * system: a crash of the machine leaves the file before or the new one. */
moxie_status mox_whole_file_publish(mox_whole_file *file, moxie_error *error);
/* Removes what was not published and frees. After mox_whole_file_publish(), too. */
void mox_whole_file_discard(mox_whole_file *file);

/* All of it. */
moxie_status mox_whole_file_write(const char *path, const void *data, uint64_t bytes, moxie_error *error);
/* Whether mox_whole_file_create() would do; leaves nothing. */
moxie_status mox_whole_file_check(const char *path, moxie_error *error);

#endif
