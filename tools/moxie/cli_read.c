/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_read.c - all of a small file. A pipe does not block, a device does not end, a huge file is not read: only regular
 * files of at most so many bytes are.
 */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static moxie_status io_error(const char *path, const char *reason, moxie_error *error)
{
    return cli_error(MOXIE_ERR_IO, error, path, "%s; give a regular file that can be read", reason);
}

static moxie_status read_all(int fd, const char *path, char *text, size_t size, size_t *length, moxie_error *error)
{
    for (*length = 0; *length < size;) {
        const ssize_t got = read(fd, text + *length, size - *length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return io_error(path, strerror(errno), error);
        if (got == 0)
            return MOXIE_OK;
        *length += (size_t)got;
    }
    return MOXIE_OK;
}

static moxie_status read_open_file(int fd, const char *path, uint64_t limit, char **text, size_t *length,
                                   moxie_error *error)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return io_error(path, strerror(errno), error);
    if (!S_ISREG(info.st_mode))
        return io_error(path,
                        S_ISDIR(info.st_mode) ? "a file is needed, and this is a directory"
                                              : "a file is needed, and this is a device, pipe or socket",
                        error);
    if ((uint64_t)info.st_size > limit)
        return cli_error(MOXIE_ERR_FORMAT, error, path,
                         "it has %llu bytes, and no more than %llu are read: is it another "
                         "file than was meant?",
                         (unsigned long long)info.st_size, (unsigned long long)limit);
    char *block = malloc((size_t)info.st_size + 1);
    if (!block)
        return cli_error(MOXIE_ERR_MEMORY, error, path, "no memory for its %llu bytes",
                         (unsigned long long)info.st_size);
    const moxie_status status = read_all(fd, path, block, (size_t)info.st_size, length, error);
    if (status != MOXIE_OK) {
        free(block);
        return status;
    }
    block[*length] = '\0';
    *text = block;
    return MOXIE_OK;
}

moxie_status cli_read_file(const char *path, uint64_t limit, char **text, size_t *length, moxie_error *error)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return io_error(path, strerror(errno), error);
    const moxie_status status = read_open_file(fd, path, limit, text, length, error);
    close(fd);
    return status;
}
