/* SPDX-License-Identifier: Apache-2.0
 *
 * file.c - opens a file, checks it, maps or reads it, and checks it again.
 *
 *     open(O_NONBLOCK) -> fstat: regular? small enough? -> mmap | read -> fstat: same size? -> close
 *                                                           |
 *                     before the bytes are used, as often as asked: stat: not shorter? (mox_file_check)
 *
 * O_NONBLOCK: opening a pipe in place of a file would otherwise block for ever; for regular files it changes nothing.
 * The descriptor is closed at once, since a mapping outlives it and large models have hundreds of shards.
 */
#include "ckpt/safetensors/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

/* The attributes of a regular file within `limit`. */
static moxie_status examine(int fd, const char *path, uint64_t limit, struct stat *info, moxie_error *error)
{
    if (fstat(fd, info) != 0)
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1, "cannot read its attributes: %m");
    if (!S_ISREG(info->st_mode))
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1, "expected a regular file, found a %s; give a file",
                             S_ISDIR(info->st_mode) ? "directory" : "device, pipe or socket");
    if ((uint64_t)info->st_size > limit)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, path, -1,
                             "the file has %llu bytes, and moxie reads at most %llu of such a file",
                             (unsigned long long)info->st_size, (unsigned long long)limit);
    return MOXIE_OK;
}

static moxie_status read_all(int fd, const char *path, mox_file *file, moxie_error *error)
{
    file->data = file->size < UINT64_MAX ? mox_alloc(file->size + 1) : NULL; /* plus a zero byte at the end */
    if (!file->data)
        return mox_fail_file(MOXIE_ERR_MEMORY, error, path, -1, "no memory to read its %llu bytes",
                             (unsigned long long)file->size);
    for (uint64_t done = 0; done < file->size;) {
        const ssize_t got = read(fd, file->data + done, file->size - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mox_fail_file(MOXIE_ERR_IO, error, path, (int64_t)done, "cannot read: %m");
        if (got == 0)
            return mox_fail_file(MOXIE_ERR_IO, error, path, (int64_t)done,
                                 "the file ended after %llu of %llu bytes: it shrank while it was read",
                                 (unsigned long long)done, (unsigned long long)file->size);
        done += (uint64_t)got;
    }
    return MOXIE_OK;
}

static moxie_status map_all(int fd, const char *path, mox_file *file, moxie_error *error)
{
    void *data = mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1, "cannot map its %llu bytes: %m",
                             (unsigned long long)file->size);
    file->data = data;
    file->mapped = true;
    return MOXIE_OK;
}

moxie_status mox_file_open(const char *path, bool no_mmap, uint64_t limit, mox_file *out, moxie_error *error)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1,
                             "cannot open: %m; give a file that is there and can be read");
    mox_file file = { 0 };
    struct stat info, after;
    moxie_status status = examine(fd, path, limit, &info, error);
    if (status != MOXIE_OK)
        goto out;
    file.size = (uint64_t)info.st_size;
    file.device = info.st_dev;
    file.inode = info.st_ino;
    status = no_mmap || file.size == 0 ? read_all(fd, path, &file, error) : map_all(fd, path, &file, error);
    if (status == MOXIE_OK)
        status = examine(fd, path, limit, &after, error);
    if (status == MOXIE_OK && (uint64_t)after.st_size != file.size)
        status =
            mox_fail_file(MOXIE_ERR_IO, error, path, -1, "the file changed from %llu to %llu bytes while it was opened",
                          (unsigned long long)file.size, (unsigned long long)after.st_size);
out:
    close(fd);
    if (status == MOXIE_OK)
        *out = file;
    else
        mox_file_close(&file);
    return status;
}

bool mox_file_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 || errno != ENOENT;
}

moxie_status mox_file_check(const mox_file *file, const char *path, moxie_error *error)
{
    struct stat info;
    /* A file that was replaced or removed still exists for those who mapped it. */
    if (!file->mapped || stat(path, &info) != 0 || info.st_dev != file->device || info.st_ino != file->inode ||
        (uint64_t)info.st_size >= file->size)
        return MOXIE_OK;
    return mox_fail_file(MOXIE_ERR_IO, error, path, -1,
                         "the file had %llu bytes when it was opened and has %llu now: it was cut off; restore it and "
                         "open it again",
                         (unsigned long long)file->size, (unsigned long long)info.st_size);
}

void mox_file_close(mox_file *file)
{
    if (file->mapped)
        munmap(file->data, file->size);
    else
        mox_free(file->data);
    *file = (mox_file) { 0 };
}
