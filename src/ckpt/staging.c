/* SPDX-License-Identifier: Apache-2.0
 *
 * staging.c - the temporary directory next to the final one (staging.h).
 *
 * POSIX rename() replaces a directory only if it is empty. So if another process fills DIR in the meantime, its files
 * stay and commit fails here.
 */
#include "ckpt/staging.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file_lock.h"
#include "base/memory.h"
#include "base/temporaries.h"

struct mox_staging {
    char dir[PATH_MAX];  /* the final directory, without trailing slashes */
    char temp[PATH_MAX]; /* the temporary directory */
    char path[PATH_MAX]; /* result of mox_staging_path() */
    mox_directory held;  /* fd -1: not opened yet */
    int number;          /* number in the list of temporaries; -1: none */
};

/* ---- what may exist already ------------------------------------------------------------------------ */

static moxie_status check_target(const char *dir, moxie_error *error)
{
    struct stat info;
    if (lstat(dir, &info) == 0 && S_ISLNK(info.st_mode))
        return mox_fail_file(MOXIE_ERR_IO, error, dir, -1,
                             "the output directory is a symbolic link, which cannot be replaced: name the directory "
                             "itself");
    DIR *listing = opendir(dir);
    if (!listing && errno == ENOENT)
        return MOXIE_OK;
    if (!listing)
        return mox_fail_file(MOXIE_ERR_IO, error, dir, -1,
                             "cannot use this as the output directory: %m; name a new directory, or an empty one");
    bool empty = true;
    errno = 0;
    for (const struct dirent *entry; empty && (entry = readdir(listing));)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    const int why = errno;
    closedir(listing);
    errno = why;
    if (empty && why)
        return mox_fail_file(MOXIE_ERR_IO, error, dir, -1, "cannot list the output directory: %m");
    if (!empty)
        return mox_fail_file(MOXIE_ERR_IO, error, dir, -1,
                             "the output directory is not empty; name a new one or remove its files");
    return MOXIE_OK;
}

static moxie_status check_room(const mox_staging *s, uint64_t need_bytes, moxie_error *error)
{
    struct statvfs room;
    if (statvfs(s->temp, &room) != 0)
        return MOXIE_OK; /* then the writes will fail if there is no room */
    const uint64_t free_bytes = (uint64_t)room.f_bavail * room.f_frsize;
    if (free_bytes < need_bytes)
        return mox_fail_file(MOXIE_ERR_IO, error, s->dir, -1,
                             "the checkpoint needs %llu bytes and the file system has %llu; write fewer layers or "
                             "experts, or to another disk",
                             (unsigned long long)need_bytes, (unsigned long long)free_bytes);
    return MOXIE_OK;
}

static bool ends_here(const char *rest)
{
    return *rest == '\0' || strcmp(rest, MOX_TEMPORARY_SUFFIX) == 0;
}

/* True for config.json, model.safetensors.index.json, model.safetensors, model-00001-of-00020.safetensors, and each of
 * them with the suffix of a file being written. */
static bool is_checkpoint_file(const char *name)
{
    static const char *const whole[] = { "config.json", "model.safetensors", "model.safetensors.index.json" };
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
        if (strncmp(name, whole[i], strlen(whole[i])) == 0 && ends_here(name + strlen(whole[i])))
            return true;
    static const char digits[] = "0123456789";
    const char *at = name;
    for (int part = 0; part < 2; part++) {
        const char *before = part == 0 ? "model-" : "-of-";
        if (strncmp(at, before, strlen(before)) != 0)
            return false;
        at += strlen(before);
        const size_t count = strspn(at, digits);
        if (count < 5)
            return false;
        at += count;
    }
    return strncmp(at, ".safetensors", 12) == 0 && ends_here(at + 12);
}

/* ---- the directory ---------------------------------------------------------------------------------- */

/* Only moxie uses this name, but files that moxie does not write belong to somebody else. */
static moxie_status empty_directory(mox_staging *s, moxie_error *error)
{
    char other[256], escaped[160];
    if (mox_directory_find_other(s->held.fd, is_checkpoint_file, other))
        return mox_fail_file(MOXIE_ERR_IO, error, s->temp, -1,
                             "this is the working directory of a run that was interrupted, but \"%s\" in it is not "
                             "moxie's: move that file elsewhere, or remove the directory",
                             mox_escape(escaped, sizeof escaped, other));
    mox_directory_remove_files(s->held.fd, is_checkpoint_file);
    sigset_t mask;
    s->number = mox_temporary_begin(s->temp, is_checkpoint_file, &mask);
    mox_temporary_made(s->number, true, &mask);
    return MOXIE_OK;
}

/* A new directory is listed as a temporary at once. An existing one is listed only after it is known to be ours. */
static moxie_status hold_listed(mox_staging *s, moxie_error *error)
{
    sigset_t mask;
    s->number = mox_temporary_begin(s->temp, is_checkpoint_file, &mask);
    const moxie_status status = mox_temporaries_ended() ? mox_fail_file(MOXIE_ERR_IO, error, s->dir, -1,
                                                                        "not written: the process is being ended")
                                                        : mox_directory_hold(s->temp, true, &s->held, error);
    const bool made = status == MOXIE_OK && s->held.created;
    mox_temporary_made(s->number, made, &mask);
    s->number = made ? s->number : -1;
    return status;
}

static moxie_status make_directory(mox_staging *s, moxie_error *error)
{
    const int length = snprintf(s->temp, sizeof s->temp, "%s" MOX_TEMPORARY_SUFFIX, s->dir);
    if (length < 0 || (size_t)length >= sizeof s->temp)
        return mox_fail_file(MOXIE_ERR_ARGUMENT, error, s->dir, -1, "the output directory's name is too long");
    MOX_TRY(check_target(s->dir, error));
    MOX_TRY(hold_listed(s, error));
    moxie_status status = s->held.created ? MOXIE_OK : empty_directory(s, error);
    /* Checked again: another run may have ended between the first check and the lock. */
    if (status == MOXIE_OK)
        status = check_target(s->dir, error);
    if (status == MOXIE_OK)
        return MOXIE_OK;
    if (s->held.created)
        rmdir(s->temp);
    mox_temporary_drop(s->number);
    close(s->held.fd);
    s->held.fd = -1;
    return status;
}

moxie_status mox_staging_open(const char *dir, uint64_t need_bytes, mox_staging **out, moxie_error *error)
{
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    MOX_FAIL_IF(length == 0, MOXIE_ERR_ARGUMENT, error, "the output directory's name is empty");
    MOX_FAIL_IF(length >= PATH_MAX, MOXIE_ERR_ARGUMENT, error, "the output directory's name is too long");
    mox_staging *s = mox_alloc(sizeof *s);
    MOX_FAIL_IF(!s, MOXIE_ERR_MEMORY, error, "no memory for a directory's name");
    s->held.fd = s->number = -1;
    memcpy(s->dir, dir, length);
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

/* The lock is released last; by then the directory has its final name. */
static void let_go(mox_staging *staging)
{
    mox_temporary_drop(staging->number);
    close(staging->held.fd);
    mox_free(staging);
}

moxie_status mox_staging_commit(mox_staging *staging, moxie_error *error)
{
    /* EINVAL: the file system cannot synchronise directories. */
    const bool synced = fsync(staging->held.fd) == 0 || errno == EINVAL;
    if (!synced || rename(staging->temp, staging->dir) != 0) {
        const moxie_status status =
            mox_fail_file(MOXIE_ERR_IO, error, staging->dir, -1, "cannot put the finished directory in place: %m");
        mox_staging_abandon(staging);
        return status;
    }
    let_go(staging);
    return MOXIE_OK;
}

void mox_staging_abandon(mox_staging *staging)
{
    if (!staging)
        return;
    mox_directory_remove_files(staging->held.fd, is_checkpoint_file);
    rmdir(staging->temp);
    let_go(staging);
}
