/* SPDX-License-Identifier: Apache-2.0
 *
 * whole_file.h - the only writer of whole files: a file gets its name when all its bytes are on the disk.
 *
 *     create: FILE.moxie.tmp, locked -> append, write_at ... -> publish: flush, fsync, close, rename to FILE
 *                                                            \-> discard: unlink
 *
 * The lock tells whether the writer of a temporary file still lives. The next writer of the same file removes the
 * temporary of a dead one. So folders become clean again even after crashes.
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

/* Creates the temporary file for reading and writing, with permissions by the umask. MOXIE_ERR_IO when
 * `path` is a directory, a device, a pipe or a symbolic link, when its folder cannot be written, or when another
 * process writes the same file for longer than three seconds. Then `out` needs no
 * mox_whole_file_discard(). */
moxie_status mox_whole_file_create(const char *path, mox_whole_file *out, moxie_error *error);
/* Appends bytes. Small writes are buffered. */
moxie_status mox_whole_file_append(mox_whole_file *file, const void *data, uint64_t bytes, moxie_error *error);
/* Writes bytes at an offset, unbuffered. Thread-safe for disjoint ranges. Not to be mixed with append(). */
moxie_status mox_whole_file_write_at(const mox_whole_file *file, const void *data, uint64_t bytes, uint64_t offset,
                                     moxie_error *error);
/* Reserves the disk space of a file of so many bytes. */
moxie_status mox_whole_file_reserve(const mox_whole_file *file, uint64_t bytes, moxie_error *error);
/* Flushes all bytes to the disk and renames the file. The file system decides when the rename itself reaches the disk:
 * a crash of the machine leaves either the old file or the new one. */
moxie_status mox_whole_file_publish(mox_whole_file *file, moxie_error *error);
/* Removes an unpublished file, and frees memory. Also needed after mox_whole_file_publish(). */
void mox_whole_file_discard(mox_whole_file *file);

/* Creates, appends and publishes in one call. */
moxie_status mox_whole_file_write(const char *path, const void *data, uint64_t bytes, moxie_error *error);
/* Checks that mox_whole_file_create() would succeed; leaves nothing behind. */
moxie_status mox_whole_file_check(const char *path, moxie_error *error);

#endif
