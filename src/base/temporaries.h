/* SPDX-License-Identifier: Apache-2.0
 *
 * temporaries.h - the list of this process' unfinished files and directories, which a signal handler may remove.
 *
 *     mox_temporary_begin -> create it -> mox_temporary_made -> ... -> rename or unlink it -> mox_temporary_drop
 *                                                                |
 *     signal handler -> mox_temporaries_remove ------------------+      no allocation, no lock
 */
#ifndef MOX_BASE_TEMPORARIES_H
#define MOX_BASE_TEMPORARIES_H

#include <signal.h>
#include <stdbool.h>

/* What every temporary name ends with: FILE.moxie.tmp, DIRECTORY.moxie.tmp. */
#define MOX_TEMPORARY_SUFFIX ".moxie.tmp"

/* The names of files in a directory that may be removed. Called in signal handlers. */
typedef bool (*mox_is_ours)(const char *name);

/* Announces a temporary file, or with `is_ours` a directory of such files, right before it is created; the name is
 * copied. Until mox_temporary_made(), which is to follow soon, this thread takes no signals and a handler on another
 * waits. Returns a number for the two calls below, or -1 when the list is full: then only the next run removes it. */
int mox_temporary_begin(const char *path, mox_is_ours is_ours, sigset_t *mask);
/* Whether it was created, by this process. */
void mox_temporary_made(int number, bool made, const sigset_t *mask);
/* It has another name now, or is gone. -1 is fine. */
void mox_temporary_drop(int number);
/* Removes what is in the list. Async-signal-safe; later temporaries of this process are refused. */
void mox_temporaries_remove(void);
/* Whether mox_temporaries_remove() was called. */
bool mox_temporaries_ended(void);

/* Removes the regular files of an open directory whose names are ours. Async-signal-safe. */
void mox_directory_remove_files(int fd, mox_is_ours is_ours);
/* Copies the name of an entry that is not ours to `name` (256 bytes). False when there is none. */
bool mox_directory_find_other(int fd, mox_is_ours is_ours, char *name);

#endif
