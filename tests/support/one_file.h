/* SPDX-License-Identifier: Apache-2.0
 *
 * one_file.h - fixture of tests of writers: a fresh directory, the path of a file in it, and how many files it holds.
 */
#ifndef TEST_ONE_FILE_H
#define TEST_ONE_FILE_H

#include "test_support.h"

#include <dirent.h>

typedef struct fixture {
    char *dir;
    char path[600], temporary[640]; /* the latter holds what is not whole yet */
    moxie_error error;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->dir = test_tmpdir();
    snprintf(f->path, sizeof f->path, "%s/x.safetensors", f->dir);
    snprintf(f->temporary, sizeof f->temporary, "%s.moxie.tmp", f->path);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    test_rmdir(f->dir);
    free(f);
    return 0;
}

/* Number of entries of `dir`. */
static int files_in(const char *dir)
{
    int count = -2; /* . and .. */
    DIR *stream = opendir(dir);
    assert_non_null(stream);
    while (readdir(stream))
        count++;
    closedir(stream);
    return count;
}

#endif
