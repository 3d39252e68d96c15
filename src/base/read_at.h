/* SPDX-License-Identifier: Apache-2.0
 *
 * read_at.h - reads bytes of a file at an offset, whole.
 */
#ifndef MOX_BASE_READ_AT_H
#define MOX_BASE_READ_AT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

/* Reads exactly `bytes`; false with errno, 0 at the end of the file. */
static inline bool mox_read_at(int fd, void *to, uint64_t bytes, uint64_t offset)
{
    uint8_t *at = to;
    while (bytes > 0) {
        const ssize_t done = pread(fd, at, bytes, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        errno = done == 0 ? 0 : errno;
        if (done <= 0)
            return false;
        at += done;
        bytes -= (uint64_t)done;
        offset += (uint64_t)done;
    }
    return true;
}

#endif
