/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_files.c - copies the files of a checkpoint that hold neither weights nor how they are quantized
 * (quantize_rest.h).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/listing.h"
#include "base/memory.h"
#include "base/whole_file.h"
#include "ckpt/quantize/quantize_rest.h"

static bool is_left_out(const char *name)
{
    static const char *const names[] = { "config.json",       "hf_quant_config.json", "quantize_config.json",
                                         "quant_config.json", "moxie_quantize.json",  "moxie_quantize.finished.json" };
    static const char *const tails[] = { ".safetensors", ".index.json", ".gguf", ".bin", ".pt", ".pth", ".moxie.tmp" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        const size_t length = strlen(name), tail = strlen(tails[i]);
        if (length >= tail && strcmp(name + length - tail, tails[i]) == 0)
            return true;
    }
    return false;
}

static moxie_status copy_bytes(int fd, const char *from, mox_whole_file *to, moxie_error *error)
{
    enum { CHUNK = 1 << 16 };
    char chunk[CHUNK];
    for (;;) {
        const ssize_t got = read(fd, chunk, sizeof chunk);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mox_fail_file(MOXIE_ERR_IO, error, from, -1, "cannot be read: %m");
        if (got == 0)
            return mox_whole_file_publish(to, error);
        MOX_TRY(mox_whole_file_append(to, chunk, (uint64_t)got, error));
    }
}

static moxie_status copy_file(const char *from, const char *to, moxie_error *error)
{
    struct stat info;
    mox_whole_file file = MOX_WHOLE_FILE_NONE;
    const int fd = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        const moxie_status status = fd < 0 ? mox_fail_file(MOXIE_ERR_IO, error, from, -1, "cannot be opened: %m")
                                           : MOXIE_OK; /* directories and the like stay behind */
        if (fd >= 0)
            close(fd);
        return status;
    }
    moxie_status status = mox_whole_file_create(to, &file, error);
    if (status == MOXIE_OK) {
        status = copy_bytes(fd, from, &file, error);
        mox_whole_file_discard(&file);
    }
    close(fd);
    return status;
}

moxie_status mox_quantize_rest_files(const char *from, const char *to, moxie_error *error)
{
    char source[PATH_MAX], target[PATH_MAX];
    moxie_status status = MOXIE_OK;
    DIR *listing = opendir(from);
    if (!listing)
        return mox_fail_file(MOXIE_ERR_IO, error, from, -1, "cannot be listed: %m");
    for (const struct dirent *entry;
         status == MOXIE_OK && (status = mox_next_entry(listing, from, &entry, error)) == MOXIE_OK && entry != NULL;) {
        if (entry->d_name[0] == '.' || is_left_out(entry->d_name))
            continue;
        const int a = snprintf(source, sizeof source, "%s/%s", from, entry->d_name);
        const int b = snprintf(target, sizeof target, "%s/%s", to, entry->d_name);
        if (a > 0 && b > 0 && (size_t)a < sizeof source && (size_t)b < sizeof target)
            status = copy_file(source, target, error);
    }
    closedir(listing);
    return status;
}
