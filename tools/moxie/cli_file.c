/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_file.c - files that are there whole or not at all: written beside their name, then renamed.
 */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static moxie_status io_error(const char *path, const char *what, moxie_error *error)
{
    return cli_error(MOXIE_ERR_IO, error, path, "%s: %s; name a file in a directory that can be written", what,
                     strerror(errno));
}

moxie_status cli_beside_open(const char *path, cli_beside *out, moxie_error *error)
{
    *out = (cli_beside) { .path = path, .fd = -1 };
    if (asprintf(&out->temporary, "%s.XXXXXX", path) < 0) {
        out->temporary = NULL;
        return cli_error(MOXIE_ERR_MEMORY, error, path, "no memory for its name");
    }
    out->fd = mkstemp(out->temporary);
    if (out->fd >= 0)
        return MOXIE_OK;
    const moxie_status status = io_error(path, "cannot be written", error);
    free(out->temporary);
    out->temporary = NULL;
    return status;
}

moxie_status cli_beside_commit(cli_beside *file, moxie_error *error)
{
    /* mkstemp() makes the file private; it gets what any new file has. */
    const mode_t mask = umask(0);
    umask(mask);
    moxie_status status = MOXIE_OK;
    const bool moded = fchmod(file->fd, 0666 & ~mask) == 0;
    const bool closed = close(file->fd) == 0;
    file->fd = -1;
    if (!moded || !closed || rename(file->temporary, file->path) != 0)
        status = io_error(file->path, "cannot be written", error);
    if (status != MOXIE_OK)
        unlink(file->temporary);
    free(file->temporary);
    file->temporary = NULL;
    return status;
}

void cli_beside_discard(cli_beside *file)
{
    if (file->fd >= 0)
        close(file->fd);
    if (file->temporary)
        unlink(file->temporary);
    free(file->temporary);
    *file = (cli_beside) { .fd = -1 };
}
