/* SPDX-License-Identifier: Apache-2.0
 *
 * temporaries.c - the list of unfinished files (temporaries.h).
 *
 * An entry goes FREE -> FILLING -> LISTED -> FREE. The handler waits while an entry is FILLING, changes LISTED ones to
 * REMOVING, and never frees them. So no path changes while another thread reads it. An entry also notes its process: a
 * forked child does not remove its parent's files.
 */
#include "base/temporaries.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PLACES = 64 };
enum { FREE, FILLING, LISTED, REMOVING };

static struct place {
    atomic_int state;
    pid_t owner; /* a forked child has the list of its parent */
    mox_is_ours is_ours;
    char path[PATH_MAX];
} places[PLACES];
static atomic_bool ended;

int mox_temporary_begin(const char *path, mox_is_ours is_ours, sigset_t *mask)
{
    const size_t length = strlen(path);
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, mask);
    for (int i = 0; i < PLACES && length < sizeof places[i].path; i++) {
        int expected = FREE;
        if (!atomic_compare_exchange_strong(&places[i].state, &expected, FILLING))
            continue;
        memcpy(places[i].path, path, length + 1);
        places[i].owner = getpid();
        places[i].is_ours = is_ours;
        return i;
    }
    return -1;
}

void mox_temporary_made(int number, bool made, const sigset_t *mask)
{
    if (number >= 0)
        atomic_store(&places[number].state, made ? LISTED : FREE);
    pthread_sigmask(SIG_SETMASK, mask, NULL);
}

void mox_temporary_drop(int number)
{
    int expected = LISTED;
    if (number >= 0)
        atomic_compare_exchange_strong(&places[number].state, &expected, FREE);
}

bool mox_temporaries_ended(void)
{
    return atomic_load(&ended);
}

/* ---- directories ------------------------------------------------------------------------------------ */

/* Calls visit() for each entry until it returns false. False when the directory cannot be listed. Uses getdents64(),
 * since readdir() allocates. */
static bool for_each_entry(int fd, bool (*visit)(int fd, const char *name, void *user), void *user)
{
    _Alignas(struct dirent64) char buffer[4096];
    bool go_on = lseek(fd, 0, SEEK_SET) == 0;
    ssize_t got = go_on ? 0 : -1;
    while (go_on && (got = getdents64(fd, buffer, sizeof buffer)) > 0)
        for (ssize_t at = 0; go_on && at < got;) {
            const struct dirent64 *entry = (const void *)(buffer + at);
            at += entry->d_reclen;
            if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                go_on = visit(fd, entry->d_name, user);
        }
    return got >= 0;
}

typedef struct search {
    mox_is_ours is_ours;
    char *other; /* where the name of one that is not ours goes */
    bool found;
    int removed;
} search;

static bool is_regular(int fd, const char *name)
{
    struct stat info;
    return fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode);
}

static bool remove_entry(int fd, const char *name, void *user)
{
    search *s = user;
    s->removed += s->is_ours(name) && is_regular(fd, name) && unlinkat(fd, name, 0) == 0;
    return true;
}

static bool compare_entry(int fd, const char *name, void *user)
{
    search *s = user;
    s->found = !s->is_ours(name) || !is_regular(fd, name);
    if (s->found)
        strncpy(s->other, name, 255);
    return !s->found;
}

void mox_directory_remove_files(int fd, mox_is_ours is_ours)
{
    search s = { .is_ours = is_ours };
    do { /* some file systems skip entries while others are removed */
        s.removed = 0;
        (void)for_each_entry(fd, remove_entry, &s);
    } while (s.removed > 0);
}

bool mox_directory_find_other(int fd, mox_is_ours is_ours, char *name)
{
    search s = { .is_ours = is_ours, .other = name };
    memset(name, 0, 256);
    if (!for_each_entry(fd, compare_entry, &s) && !s.found) {
        strncpy(name, "(the directory cannot be listed)", 255);
        return true;
    }
    return s.found;
}

/* ---- the end of a process --------------------------------------------------------------------------- */

static void remove_directory(const struct place *place)
{
    const int fd = open(place->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    mox_directory_remove_files(fd, place->is_ours);
    rmdir(place->path);
    close(fd);
}

/* Waits while another thread is creating it; at most two seconds, since its disk may not answer. */
static void wait_until_made(const struct place *place)
{
    static const struct timespec nap = { .tv_nsec = 1000000 };
    for (int i = 0; i < 2000 && atomic_load(&place->state) == FILLING; i++)
        nanosleep(&nap, NULL);
}

void mox_temporaries_remove(void)
{
    atomic_store(&ended, true);
    for (int i = 0; i < PLACES; i++) {
        int expected = LISTED;
        wait_until_made(&places[i]);
        if (!atomic_compare_exchange_strong(&places[i].state, &expected, REMOVING) || places[i].owner != getpid())
            continue;
        if (places[i].is_ours)
            remove_directory(&places[i]);
        else
            unlink(places[i].path);
    }
}
