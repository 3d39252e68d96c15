/* SPDX-License-Identifier: Apache-2.0
 *
 * temporaries.h - the list of this process' unfinished files and directories, so that a signal handler can remove them.
 *
 *     mox_temporary_begin -> create it -> mox_temporary_made -> ... -> rename or unlink it -> mox_temporary_drop
 *                                                                |
 *     signal handler -> mox_temporaries_remove ------------------+      no allocation, no lock
 */
#ifndef MOX_BASE_TEMPORARIES_H
#define MOX_BASE_TEMPORARIES_H

#include <signal.h>
#include <stdbool.h>

/* The suffix of every temporary name: FILE.moxie.tmp, DIRECTORY.moxie.tmp. */
#define MOX_TEMPORARY_SUFFIX ".moxie.tmp"

/* True for names of files that may be removed from a directory. Called in signal handlers. */
typedef bool (*mox_is_ours)(const char *name);

/* Call right before creating a temporary file, or with `is_ours` a directory of such files. The name is copied. Until
 * mox_temporary_made(), which must follow soon, signals are blocked in this thread, and a handler in another thread
 * waits. Returns a number for the two calls below, or -1 when the list is full: then only the next run removes it. */
int mox_temporary_begin(const char *path, mox_is_ours is_ours, sigset_t *mask);
/* Call right after; `made`: this process created it. */
void mox_temporary_made(int number, bool made, const sigset_t *mask);
/* Call when it was renamed or removed. -1 is allowed. */
void mox_temporary_drop(int number);
/* Removes everything in the list. Async-signal-safe. Later temporaries of this process fail. */
void mox_temporaries_remove(void);
/* Whether mox_temporaries_remove() was called. */
bool mox_temporaries_ended(void);

/* Removes the regular files for which is_ours() is true from an open directory. Async-signal-safe. */
void mox_directory_remove_files(int fd, mox_is_ours is_ours);
/* Copies the name of an entry for which is_ours() is false to `name` (256 bytes). False when there is none. True with a
 * text in brackets when the directory cannot be listed. */
bool mox_directory_find_other(int fd, mox_is_ours is_ours, char *name);

#endif
