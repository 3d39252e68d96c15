/* SPDX-License-Identifier: Apache-2.0
 *
 * file_lock.c - advisory locks, and which process holds them (file_lock.h).
 */
#include "base/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

mox_lock mox_lock_try(int fd)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return MOX_LOCK_HELD;
    return errno == EWOULDBLOCK ? MOX_LOCK_BUSY : MOX_LOCK_NONE;
}

bool mox_lock_is_at(int fd, const char *path)
{
    struct stat open_file, named;
    return fstat(fd, &open_file) == 0 && lstat(path, &named) == 0 && open_file.st_dev == named.st_dev &&
           open_file.st_ino == named.st_ino;
}

/* The process that holds the lock of `fd`, 0 when the system does not tell.
 * A line of /proc/locks: "1: FLOCK  ADVISORY  WRITE 4711 fe:01:131074 0 EOF", device in hexadecimal. */
static long holder_of(int fd)
{
    struct stat info;
    FILE *locks = fstat(fd, &info) == 0 ? fopen("/proc/locks", "re") : NULL;
    char line[256];
    long holder = 0;
    while (locks && holder == 0 && fgets(line, sizeof line, locks)) {
        long process = 0;
        unsigned major_number = 0, minor_number = 0;
        unsigned long long inode = 0;
        if (sscanf(line, "%*s FLOCK ADVISORY WRITE %ld %x:%x:%llu", &process, &major_number, &minor_number, &inode) ==
                4 &&
            inode == info.st_ino && makedev(major_number, minor_number) == info.st_dev && process > 0)
            holder = process;
    }
    if (locks)
        fclose(locks);
    return holder;
}

moxie_status mox_lock_busy(int fd, const char *path, moxie_error *error)
{
    char who[32] = "";
    const long holder = holder_of(fd);
    if (holder > 0)
        snprintf(who, sizeof who, " (process %ld)", holder);
    return mox_fail_file(MOXIE_ERR_IO, error, path, -1,
                         "another moxie%s is at work there: wait until it has ended, or name another output", who);
}

/* Turns the errno of open() into an error. */
static moxie_status no_directory(const char *path, moxie_error *error)
{
    const int why = errno;
    struct stat info;
    if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode))
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1,
                             "a symbolic link is in the place of this directory, and links are not followed here: "
                             "remove it, or name another output");
    return mox_fail_file(MOXIE_ERR_IO, error, path, -1, "cannot open the directory: %s", strerror(why));
}

/* Locks an opened directory. *again: its name refers to another directory by now. */
static moxie_status lock_directory(const mox_directory *dir, const char *path, bool *again, moxie_error *error)
{
    const mox_lock lock = mox_lock_try(dir->fd);
    *again = false;
    if (lock == MOX_LOCK_BUSY)
        return mox_lock_busy(dir->fd, path, error);
    /* Without locks, only the process that created the directory knows that no other uses it. */
    if (lock == MOX_LOCK_NONE && !dir->created)
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1,
                             "it is there already, and its file system cannot say whether another process is at work "
                             "in it (no flock): remove it when there is none");
    *again = !mox_lock_is_at(dir->fd, path);
    return MOXIE_OK;
}

moxie_status mox_directory_hold(const char *path, bool create, mox_directory *out, moxie_error *error)
{
    for (int tries = 0; tries < 100; tries++) {
        bool again = false;
        mox_directory dir = { .fd = -1 };
        dir.created = create && mkdir(path, 0777) == 0;
        if (create && !dir.created && errno != EEXIST)
            return mox_fail_file(MOXIE_ERR_IO, error, path, -1,
                                 "cannot make the directory: %m; name one in a directory that can be written");
        dir.fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir.fd < 0 && errno == ENOENT && create)
            continue; /* its user has just removed it */
        if (dir.fd < 0)
            return no_directory(path, error);
        const moxie_status status = lock_directory(&dir, path, &again, error);
        if (status == MOXIE_OK && !again) {
            *out = dir;
            return MOXIE_OK;
        }
        close(dir.fd);
        if (status != MOXIE_OK)
            return status;
    }
    return mox_fail_file(MOXIE_ERR_IO, error, path, -1, "other processes keep making and removing this directory");
}
