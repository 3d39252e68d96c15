/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_partial.c - OUT.partial, the directory that becomes OUT:
 *
 *     lock it -> who began it? -> manifest, configurations -> layers, index (other files) -> commit: rename to OUT
 *                    |                                                                   \-> leave: see below
 *                    not this command: rejected, nothing is changed
 *
 * Without the lock, nothing is written or removed. A run may continue in a directory whose manifest says that the same
 * command began it, and which holds no other file; or in an empty one. A failed run leaves finished layers for the next
 * one; without finished layers it removes the directory.
 */
#include "prepare.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMPORARY ".moxie.tmp" /* what the library appends to the name of an unfinished file */

/* ---- OUT ---------------------------------------------------------------------------------------------- */

/* The number of entries besides "." and ".."; -1 when the directory cannot be listed. */
static int count_entries(const char *dir)
{
    DIR *listing = opendir(dir);
    int entries = -2;
    if (!listing)
        return -1;
    errno = 0;
    while (readdir(listing))
        entries++;
    const int why = errno;
    closedir(listing);
    errno = why;
    return why ? -1 : entries;
}

moxie_status prepare_check_out(const char *out, moxie_error *error)
{
    struct stat info;
    const char *slash = strrchr(out, '/'), *last = slash ? slash + 1 : out;
    if (!*out || !strcmp(last, ".") || !strcmp(last, ".."))
        return cli_error(MOXIE_ERR_ARGUMENT, error, out, "OUT has to be the name of a directory that can be made");
    if (lstat(out, &info) != 0)
        return errno == ENOENT ? MOXIE_OK
                               : cli_error(MOXIE_ERR_IO, error, out,
                                           "%s; name a new directory in one that can be written", strerror(errno));
    if (S_ISDIR(info.st_mode) && count_entries(out) == 0)
        return MOXIE_OK;
    return cli_error(MOXIE_ERR_IO, error, out,
                     "it exists already; name a new directory, or remove this one "
                     "(`moxie prepare --verify` says whether it is whole)");
}

/* ---- what lies in OUT.partial ------------------------------------------------------------------------- */

typedef struct contents {
    bool manifest, other_manifest;
    bool made;         /* a file that is only written after a manifest */
    char foreign[256]; /* an entry that no run writes, or "" */
} contents;

/* Whether `name` is `own`, or its temporary file (*under_way). */
static bool is_file(const char *name, const char *own, bool *under_way)
{
    const size_t length = strlen(own);
    if (strncmp(name, own, length) != 0)
        return false;
    *under_way = !strcmp(name + length, TEMPORARY);
    return *under_way || name[length] == '\0';
}

static bool is_layer(const char *name, const prepare_how *how, bool *under_way)
{
    char path[PATH_MAX];
    for (int64_t i = 0; i < how->n_layers; i++)
        if (is_file(name, strrchr(prepare_layer_path("", how->layers[i], path), '/') + 1, under_way) ||
            is_file(name, strrchr(prepare_experts_path("", how->layers[i], path), '/') + 1, under_way))
            return true;
    return false;
}

static bool is_made(const char *name, const prepare_how *how, bool *under_way)
{
    for (int i = 0; prepare_config_name(i); i++)
        if (is_file(name, prepare_config_name(i), under_way))
            return true;
    return is_file(name, PREPARE_INDEX, under_way) || is_layer(name, how, under_way);
}

/* The name may hold any bytes, and a terminal prints it. */
static void set_foreign(contents *out, const char *name)
{
    snprintf(out->foreign, sizeof out->foreign, "%s", name);
    for (char *c = out->foreign; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
}

static void note_entry(int fd, const char *name, prepare_kind kind, const prepare_how *how, contents *out)
{
    const prepare_kind other = kind == PREPARE_PREPARED ? PREPARE_RESTORED : PREPARE_PREPARED;
    struct stat info;
    bool under_way = false;
    if (fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
        set_foreign(out, name);
    else if (is_file(name, prepare_manifest_file(kind), &under_way))
        out->manifest = out->manifest || !under_way;
    else if (is_file(name, prepare_manifest_file(other), &under_way))
        out->other_manifest = true;
    else if (is_made(name, how, &under_way))
        out->made = out->made || !under_way;
    else
        set_foreign(out, name);
}

/* Calls note_entry() for every entry. With `out` NULL it removes temporary files instead: their process has ended. */
static moxie_status list(const prepare_partial *p, const prepare_how *how, contents *out, moxie_error *error)
{
    const int fd = openat(p->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd >= 0 ? fdopendir(fd) : NULL;
    errno = listing ? 0 : errno;
    for (const struct dirent *entry; listing && (entry = readdir(listing));) {
        const size_t length = strlen(entry->d_name), suffix = sizeof TEMPORARY - 1;
        const bool under_way = length > suffix && !strcmp(entry->d_name + length - suffix, TEMPORARY);
        if (out && strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            note_entry(p->fd, entry->d_name, p->kind, how, out);
        else if (!out && under_way)
            unlinkat(p->fd, entry->d_name, 0);
        errno = 0;
    }
    const int why = errno;
    if (listing)
        closedir(listing);
    else if (fd >= 0)
        close(fd);
    return why ? cli_error(MOXIE_ERR_IO, error, p->path, "cannot be listed: %s", strerror(why)) : MOXIE_OK;
}

static moxie_status another(const prepare_partial *p, moxie_error *error)
{
    return cli_error(MOXIE_ERR_IO, error, p->path,
                     "it is what another preparation left when it was interrupted: run that again, or remove it");
}

/* Checks that the existing manifest and configurations are those of this run. */
static moxie_status check_same(const prepare_partial *p, const prepare_how *how, const char *source, moxie_error *error)
{
    prepare_how before;
    bool same = false;
    moxie_status status = prepare_manifest_read(p->path, p->kind, &before, error);
    if (status != MOXIE_OK)
        return status;
    same = prepare_how_equal(&before, how);
    prepare_how_free(&before);
    if (same)
        status = prepare_configs_compare(source, p->path, false, &same, error);
    return status == MOXIE_OK && !same ? another(p, error) : status;
}

/* Whether this run may continue in the directory. Changes nothing. */
static moxie_status check_contents(const prepare_partial *p, const prepare_how *how, const char *source, bool *go_on,
                                   moxie_error *error)
{
    contents found = { 0 };
    const moxie_status status = list(p, how, &found, error);
    *go_on = found.manifest;
    if (status != MOXIE_OK)
        return status;
    if (found.other_manifest)
        return cli_error(MOXIE_ERR_IO, error, p->path,
                         "it is what %s left when it was interrupted: run that again, or remove it",
                         p->kind == PREPARE_RESTORED ? "a preparation" : "a `moxie prepare --undo`");
    if (found.manifest && found.foreign[0]) {
        /* The layers of another run are foreign, too. Then that another run left them is the better message. */
        const moxie_status same = check_same(p, how, source, error);
        if (same != MOXIE_OK)
            return same;
    }
    if (found.foreign[0] || (found.made && !found.manifest))
        return cli_error(
            MOXIE_ERR_IO, error, p->path,
            "this is where unfinished work goes, but %s%s%s is not what this run writes there: move it away, "
            "or name another OUT",
            found.foreign[0] ? "\"" : "", found.foreign[0] ? found.foreign : "what lies in it",
            found.foreign[0] ? "\"" : "");
    return found.manifest ? check_same(p, how, source, error) : MOXIE_OK;
}

/* ---- the end that a signal makes ----------------------------------------------------------------------- */

/* The directory that this run began, until a layer is finished. The signal handler needs the names ready-made. */
static struct {
    char path[PATH_MAX], first_layer[64];
    const char *manifest;
    int fd;
    bool created;
} begun;

/* Async-signal-safe. */
static void remove_begun(void)
{
    for (int i = 0; prepare_config_name(i); i++)
        unlinkat(begun.fd, prepare_config_name(i), 0);
    unlinkat(begun.fd, PREPARE_INDEX, 0);
    unlinkat(begun.fd, begun.first_layer, 0);
    unlinkat(begun.fd, begun.manifest, 0);
    if (begun.created)
        rmdir(begun.path);
}

static void begin(const prepare_partial *p, const prepare_how *how, bool created)
{
    char layer[PATH_MAX];
    snprintf(begun.path, sizeof begun.path, "%s", p->path);
    const bool experts = p->kind == PREPARE_PREPARED && prepare_expert_target(how->layout);
    (experts ? prepare_experts_path : prepare_layer_path)("", how->layers[0], layer);
    snprintf(begun.first_layer, sizeof begun.first_layer, "%s", strrchr(layer, '/') + 1);
    begun.manifest = prepare_manifest_file(p->kind);
    begun.fd = p->fd;
    begun.created = created;
    cli_on_end(remove_begun);
}

/* ---- its life ----------------------------------------------------------------------------------------- */

static moxie_status fill(prepare_partial *p, const prepare_how *how, const char *source, bool go_on, moxie_error *error)
{
    moxie_status status = list(p, how, NULL, error);
    if (status == MOXIE_OK && !go_on)
        status = prepare_manifest_write(p->path, p->kind, how, source, error);
    return status == MOXIE_OK ? prepare_configs_copy(source, p->path, error) : status;
}

moxie_status prepare_partial_open(const char *out, prepare_kind kind, const prepare_how *how, const char *source,
                                  prepare_partial *p, moxie_error *error)
{
    int created = 0;
    bool go_on = false;
    *p = (prepare_partial) { .kind = kind, .fd = -1 };
    snprintf(p->path, sizeof p->path, "%s%s", out, PREPARE_PARTIAL);
    moxie_status status = moxie_directory_lock(p->path, 1, &p->fd, &created, error);
    if (status != MOXIE_OK)
        return status;
    /* Checked again: another run may have created OUT before this one had the lock. */
    status = prepare_check_out(out, error);
    if (status == MOXIE_OK)
        status = check_contents(p, how, source, &go_on, error);
    if (status != MOXIE_OK) {
        if (created)
            rmdir(p->path);
        close(p->fd);
        p->fd = -1;
        return status;
    }
    p->begun = !go_on;
    if (p->begun)
        begin(p, how, created != 0);
    status = fill(p, how, source, go_on, error);
    if (status != MOXIE_OK)
        prepare_partial_leave(p, 0);
    return status;
}

void prepare_partial_keep(prepare_partial *p)
{
    cli_on_end(NULL);
    p->begun = false;
}

moxie_status prepare_partial_commit(prepare_partial *p, const char *out, moxie_error *error)
{
    prepare_partial_keep(p);
    /* EINVAL: this file system cannot synchronise directories. */
    if ((fsync(p->fd) != 0 && errno != EINVAL) || rename(p->path, out) != 0)
        return cli_error(MOXIE_ERR_IO, error, out, "cannot be put in place: %s", strerror(errno));
    close(p->fd);
    p->fd = -1;
    return MOXIE_OK;
}

void prepare_partial_leave(prepare_partial *p, int64_t finished)
{
    if (p->fd < 0)
        return;
    cli_on_end(NULL);
    if (p->begun)
        remove_begun();
    else if (finished > 0)
        fprintf(stderr, "moxie prepare: %lld finished %s in %s; run the same again to go on\n",
                CLI_COUNT_OF(finished, "layer stays", "layers stay"), p->path);
    close(p->fd);
    p->fd = -1;
}
