/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_dir.c - the directory in which a checkpoint is quantized (quantize_dir.h).
 */
#include "ckpt/quantize/quantize_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/temporaries.h"
#include "ckpt/json.h"

static const char manifest_name[] = "moxie_quantize.json", finished_name[] = "moxie_quantize.finished.json";
enum { MANIFEST_LIMIT = 1 << 20 };

/* ---- names ------------------------------------------------------------------------------------------- */

static bool begins(const char *name, const char *head)
{
    return strncmp(name, head, strlen(head)) == 0;
}

static bool ends(const char *name, const char *tail)
{
    const size_t length = strlen(name), end = strlen(tail);
    return length >= end && strcmp(name + length - end, tail) == 0;
}

/* Files that are no part of the result. No file of the source that is copied has such a name. */
static bool is_own(const char *name)
{
    return strcmp(name, manifest_name) == 0 || strcmp(name, finished_name) == 0 ||
           (begins(name, "errors-") && ends(name, ".bin")) || strstr(name, MOX_TEMPORARY_SUFFIX) != NULL;
}

static bool is_finished(const char *name)
{
    return strcmp(name, finished_name) == 0;
}

static bool is_own_but_finished(const char *name)
{
    return is_own(name) && !is_finished(name);
}

static bool is_result_or_finished(const char *name)
{
    return !is_own_but_finished(name);
}

/* Files that a run without a finished layer may have written. */
static bool is_ours(const char *name)
{
    return is_own(name) || begins(name, "model-") || strcmp(name, "model.safetensors") == 0;
}

static bool is_ours_but_finished(const char *name)
{
    return is_ours(name) && !is_finished(name);
}

static bool is_temporary(const char *name)
{
    return strstr(name, MOX_TEMPORARY_SUFFIX) != NULL;
}

const char *mox_quantize_dir_path(mox_quantize_dir *d, const char *name)
{
    const int length = snprintf(d->path, sizeof d->path, "%s/%s", d->partial, name);
    return length > 0 && (size_t)length < sizeof d->path ? d->path : "";
}

const char *mox_quantize_dir_errors_path(mox_quantize_dir *d, int64_t i)
{
    char name[64];
    snprintf(name, sizeof name, "errors-%05lld.bin", (long long)i + 1);
    return mox_quantize_dir_path(d, name);
}

/* ---- OUT --------------------------------------------------------------------------------------------- */

static bool is_empty(const char *dir)
{
    int entries = 0;
    DIR *listing = opendir(dir);
    while (listing && readdir(listing))
        entries++;
    if (listing)
        closedir(listing);
    return listing && entries == 2;
}

moxie_status mox_quantize_dir_check(const char *out, moxie_error *error)
{
    struct stat info;
    if (lstat(out, &info) != 0)
        return errno == ENOENT
                   ? MOXIE_OK
                   : mox_fail_file(MOXIE_ERR_IO, error, out, -1, "%m; name a new directory in one that can be written");
    if (S_ISDIR(info.st_mode) && is_empty(out))
        return MOXIE_OK;
    return mox_fail_file(MOXIE_ERR_IO, error, out, -1, "it exists already; name a new directory, or remove this one");
}

/* ---- what lies in OUT.partial ------------------------------------------------------------------------ */

static moxie_status check_manifest(mox_quantize_dir *d, const json_t *manifest, moxie_error *error)
{
    json_t *before = NULL;
    MOX_TRY(mox_json_load(mox_quantize_dir_path(d, manifest_name), MANIFEST_LIMIT, false, &before, error));
    const bool same = json_equal(before, (json_t *)(uintptr_t)manifest) == 1;
    json_decref(before);
    if (same)
        return MOXIE_OK;
    return mox_fail_file(
        MOXIE_ERR_IO, error, d->partial, -1,
        "another quantization was interrupted there, or the source has changed since: run that again, or remove "
        "the directory");
}

/* The manifest is the first file of a run, so other files without one are somebody else's. */
static moxie_status enter(mox_quantize_dir *d, const json_t *manifest, moxie_error *error)
{
    struct stat info;
    sigset_t mask;
    if (lstat(mox_quantize_dir_path(d, manifest_name), &info) == 0) {
        d->finished = true;
        MOX_TRY(check_manifest(d, manifest, error));
        mox_directory_remove_files(d->held.fd, is_temporary);
        return MOXIE_OK;
    }
    mox_directory_remove_files(d->held.fd, is_temporary);
    if (!is_empty(d->partial))
        return mox_fail_file(MOXIE_ERR_IO, error, d->partial, -1,
                             "unfinished work goes there, but it holds files of something else: move them away, or "
                             "name another output");
    d->number = mox_temporary_begin(d->partial, is_ours, &mask);
    mox_temporary_made(d->number, true, &mask);
    return mox_json_write(mox_quantize_dir_path(d, manifest_name), manifest, error);
}

/* ---- its life ---------------------------------------------------------------------------------------- */

static bool name_paths(mox_quantize_dir *d, const char *out)
{
    size_t length = strlen(out);
    while (length > 1 && out[length - 1] == '/')
        length--;
    if (length == 0 || length > sizeof d->out - 64)
        return false;
    snprintf(d->out, sizeof d->out, "%.*s", (int)length, out);
    snprintf(d->partial, sizeof d->partial, "%.*s.partial", (int)length, out);
    return true;
}

moxie_status mox_quantize_dir_open(const char *out, const json_t *manifest, mox_quantize_dir *d, moxie_error *error)
{
    d->held.fd = d->number = -1;
    d->finished = false;
    MOX_FAIL_IF(!name_paths(d, out), MOXIE_ERR_ARGUMENT, error, "the output directory's name is empty or too long");
    MOX_TRY(mox_quantize_dir_check(d->out, error));
    MOX_TRY(mox_directory_hold(d->partial, true, &d->held, error));
    /* Checked again: another run may have ended between the first check and the lock. */
    moxie_status status = mox_quantize_dir_check(d->out, error);
    if (status == MOXIE_OK)
        status = enter(d, manifest, error);
    if (status == MOXIE_OK)
        return MOXIE_OK;
    if (d->held.created || d->number >= 0)
        mox_directory_remove_files(d->held.fd, is_own);
    if (d->held.created)
        rmdir(d->partial);
    mox_temporary_drop(d->number);
    close(d->held.fd);
    d->held.fd = -1;
    return status;
}

void mox_quantize_dir_keep(mox_quantize_dir *d)
{
    mox_temporary_drop(d->number);
    d->number = -1;
    d->finished = true;
}

/* ---- its end ----------------------------------------------------------------------------------------- */

/* The renamed manifest is the last to go: it says to the next run what the others are. */
static bool remove_own(int fd)
{
    char left[256];
    mox_directory_remove_files(fd, is_own_but_finished);
    return !mox_directory_find_other(fd, is_result_or_finished, left) && unlinkat(fd, finished_name, 0) == 0;
}

static bool remove_ours(int fd)
{
    char left[256];
    mox_directory_remove_files(fd, is_ours_but_finished);
    return !mox_directory_find_other(fd, is_finished, left) && unlinkat(fd, finished_name, 0) == 0;
}

static moxie_status finish(const mox_quantize_dir *d, moxie_error *error)
{
    if (renameat(d->held.fd, manifest_name, d->held.fd, finished_name) == 0)
        return MOXIE_OK;
    return mox_fail_file(MOXIE_ERR_IO, error, d->partial, -1, "cannot rename its %s: %m", manifest_name);
}

static void go_back(int fd)
{
    if (renameat(fd, finished_name, fd, manifest_name) != 0)
        mox_log(MOXIE_LOG_WARN, "cannot rename %s: %m", finished_name);
}

static moxie_status move_out(const mox_quantize_dir *d, const char *from, moxie_error *error)
{
    MOX_TRY(finish(d, error));
    if (rename(from, d->out) == 0)
        return MOXIE_OK;
    const moxie_status status =
        mox_fail_file(MOXIE_ERR_IO, error, d->out, -1, "cannot put the finished result in place: %m");
    go_back(d->held.fd);
    return status;
}

static bool has(int fd, const char *name)
{
    return faccessat(fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Of a run that was killed after its manifest had been renamed. */
static void settle_partial(const char *partial)
{
    mox_directory dir = { .fd = -1 };
    moxie_error ignored;
    if (mox_directory_hold(partial, false, &dir, &ignored) != MOXIE_OK)
        return;
    if (has(dir.fd, finished_name) && (has(dir.fd, MOX_QUANTIZE_FILE) || has(dir.fd, "config.json")))
        go_back(dir.fd); /* before the result was moved */
    else if (has(dir.fd, finished_name))
        remove_ours(dir.fd);
    rmdir(partial); /* if it is empty */
    close(dir.fd);
}

static void settle_out(const char *out)
{
    mox_directory dir = { .fd = -1 };
    moxie_error ignored;
    if (mox_directory_hold(out, false, &dir, &ignored) != MOXIE_OK)
        return;
    if (has(dir.fd, finished_name))
        remove_own(dir.fd);
    close(dir.fd);
}

void mox_quantize_dir_settle(const char *out)
{
    mox_quantize_dir d;
    if (!name_paths(&d, out))
        return;
    settle_partial(d.partial);
    settle_out(d.out);
}

moxie_status mox_quantize_dir_commit(mox_quantize_dir *d, moxie_error *error)
{
    mox_quantize_dir_keep(d);
    /* EINVAL: the file system cannot synchronise directories. */
    if (fsync(d->held.fd) != 0 && errno != EINVAL)
        return mox_fail_file(MOXIE_ERR_IO, error, d->partial, -1, "cannot synchronise the finished directory: %m");
    MOX_TRY(move_out(d, d->partial, error));
    if (!remove_own(d->held.fd) && rename(d->out, d->partial) == 0) {
        go_back(d->held.fd);
        return mox_fail_file(MOXIE_ERR_IO, error, d->partial, -1,
                             "files that only the work needs cannot be removed from the finished directory: run this "
                             "again, which goes on from here");
    }
    close(d->held.fd);
    d->held.fd = -1;
    return MOXIE_OK;
}

moxie_status mox_quantize_dir_commit_file(mox_quantize_dir *d, moxie_error *error)
{
    const char *file = mox_quantize_dir_path(d, MOX_QUANTIZE_FILE);
    MOX_TRY(move_out(d, file, error));
    if (!remove_ours(d->held.fd) && rename(d->out, file) == 0) {
        go_back(d->held.fd);
        return mox_fail_file(MOXIE_ERR_IO, error, d->partial, -1,
                             "the layers' files cannot be removed: run this again, which goes on from here");
    }
    d->finished = false; /* the directory is empty */
    return MOXIE_OK;
}

void mox_quantize_dir_close(mox_quantize_dir *d)
{
    if (d->held.fd < 0)
        return;
    if (!d->finished) {
        mox_directory_remove_files(d->held.fd, is_ours);
        if (rmdir(d->partial) != 0)
            mox_log(MOXIE_LOG_WARN, "%s is of no use any more, but cannot be removed: %m", d->partial);
    }
    mox_temporary_drop(d->number);
    close(d->held.fd);
    d->held.fd = -1;
}
