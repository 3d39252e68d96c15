/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_outputs.c - files that are written, before the work that they come of: they can be made, and none of them is what
 * the same command reads. A model of many gigabytes would be lost by `moxie run DIR -o DIR/model.safetensors`.
 */
#include "cli.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static bool is_file(const struct stat *written, int folder, const char *name)
{
    struct stat read;
    return fstatat(folder, name, &read, 0) == 0 && read.st_dev == written->st_dev && read.st_ino == written->st_ino;
}

/* A checkpoint's weights and configurations, an adapter's, expert files. Other files may be earlier outputs. */
static bool is_of_models(const char *name)
{
    static const char *const endings[] = { ".safetensors", ".json", ".moxie", ".gguf" };
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const size_t n = strlen(endings[i]);
        if (length > n && !strcmp(name + length - n, endings[i]))
            return true;
    }
    return false;
}

/* Links are followed: a hub's cache has links to its files. */
static bool holds(const char *input, const struct stat *written)
{
    if (is_file(written, AT_FDCWD, input))
        return true;
    DIR *folder = opendir(input);
    bool found = false;
    for (const struct dirent *entry; folder && !found && (entry = readdir(folder)) != NULL;)
        found = is_of_models(entry->d_name) && is_file(written, dirfd(folder), entry->d_name);
    if (folder)
        closedir(folder);
    return found;
}

moxie_status cli_output_spares(const char *path, const char *input, moxie_error *error)
{
    struct stat written;
    if (!path || !input || stat(path, &written) != 0 || !S_ISREG(written.st_mode) || !holds(input, &written))
        return MOXIE_OK;
    return cli_error(MOXIE_ERR_ARGUMENT, error, path,
                     "it would be replaced, and this command reads %s: name another file to write",
                     strcmp(path, input) ? cli_printable(input) : "it");
}

moxie_status cli_output_check(const char *path, const char *const *inputs, int32_t count, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    for (int32_t i = 0; status == MOXIE_OK && i < count; i++)
        status = cli_output_spares(path, inputs[i], error);
    return status == MOXIE_OK ? moxie_file_check_output(path, error) : status;
}
