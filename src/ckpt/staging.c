/* SPDX-License-Identifier: Apache-2.0
 *
 * staging.c - the temporary directory beside the real one, see staging.h.
 *
 * POSIX rename() of a directory replaces an empty directory and nothing else, so whoever fills DIR in the meantime
 * keeps what they wrote and gets an error here.
 */
#include "ckpt/staging.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/memory.h"

struct mox_staging {
    char dir[PATH_MAX];  /* where it shall end up, without trailing slashes */
    char temp[PATH_MAX]; /* where it is */
    char path[PATH_MAX]; /* of mox_staging_path() */
};

static moxie_status check_target(const char *dir, moxie_error *error)
{
    DIR *listing = opendir(dir);
    if (!listing && errno == ENOENT)
        return MOXIE_OK;
    if (!listing)
        return mox_fail_file(MOXIE_ERR_IO, error, dir, -1, "cannot use this as the output directory: %s",
                             strerror(errno));
    bool empty = true;
    for (const struct dirent *entry; empty && (entry = readdir(listing));)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    closedir(listing);
    if (!empty)
        return mox_fail_file(MOXIE_ERR_IO, error, dir, -1,
                             "the output directory is not empty; name a new one or remove its files");
    return MOXIE_OK;
}

static moxie_status check_room(const mox_staging *s, uint64_t need_bytes, moxie_error *error)
{
    struct statvfs room;
    if (statvfs(s->temp, &room) != 0)
        return MOXIE_OK; /* the writes themselves will tell */
    const uint64_t free_bytes = (uint64_t)room.f_bavail * room.f_frsize;
    if (free_bytes < need_bytes)
        return mox_fail_file(MOXIE_ERR_IO, error, s->dir, -1,
                             "the checkpoint needs %llu bytes and the file system has %llu; write fewer layers or "
                             "experts, or to another disk",
                             (unsigned long long)need_bytes, (unsigned long long)free_bytes);
    return MOXIE_OK;
}

static moxie_status make_directory(mox_staging *s, moxie_error *error)
{
    static _Atomic unsigned serial;
    for (int attempt = 0; attempt < 100; attempt++) {
        const unsigned n = atomic_fetch_add(&serial, 1);
        const int length = snprintf(s->temp, sizeof s->temp, "%s.tmp-%ld-%u", s->dir, (long)getpid(), n);
        if (length < 0 || (size_t)length >= sizeof s->temp)
            return mox_fail_file(MOXIE_ERR_ARGUMENT, error, s->dir, -1, "the output directory's name is too long");
        if (mkdir(s->temp, 0777) == 0)
            return MOXIE_OK;
        if (errno != EEXIST)
            break;
    }
    return mox_fail_file(MOXIE_ERR_IO, error, s->temp, -1, "cannot create the temporary directory: %s",
                         strerror(errno));
}

moxie_status mox_staging_open(const char *dir, uint64_t need_bytes, mox_staging **out, moxie_error *error)
{
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    MOX_FAIL_IF(length == 0, MOXIE_ERR_ARGUMENT, error, "the output directory's name is empty");
    MOX_TRY(check_target(dir, error));
    mox_staging *s = mox_alloc(sizeof *s);
    MOX_FAIL_IF(!s, MOXIE_ERR_MEMORY, error, "no memory for a directory's name");
    snprintf(s->dir, sizeof s->dir, "%.*s", (int)(length < PATH_MAX ? length : PATH_MAX), dir);
    moxie_status status = make_directory(s, error);
    if (status != MOXIE_OK) {
        mox_free(s);
        return status;
    }
    status = check_room(s, need_bytes, error);
    if (status != MOXIE_OK) {
        mox_staging_abandon(s);
        return status;
    }
    *out = s;
    return MOXIE_OK;
}

const char *mox_staging_path(mox_staging *staging, const char *name)
{
    const int length = snprintf(staging->path, sizeof staging->path, "%s/%s", staging->temp, name);
    return length > 0 && (size_t)length < sizeof staging->path ? staging->path : NULL;
}

moxie_status mox_staging_commit(mox_staging *staging, moxie_error *error)
{
    if (rename(staging->temp, staging->dir) != 0) {
        const moxie_status status = mox_fail_file(MOXIE_ERR_IO, error, staging->dir, -1,
                                                  "cannot put the finished directory in place: %s", strerror(errno));
        mox_staging_abandon(staging);
        return status;
    }
    mox_free(staging);
    return MOXIE_OK;
}

void mox_staging_abandon(mox_staging *staging)
{
    if (!staging)
        return;
    DIR *listing = opendir(staging->temp);
    for (const struct dirent *entry; listing && (entry = readdir(listing));)
        unlinkat(dirfd(listing), entry->d_name, 0);
    if (listing)
        closedir(listing);
    rmdir(staging->temp);
    mox_free(staging);
}
