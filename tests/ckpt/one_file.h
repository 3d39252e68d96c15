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
    char path[600];
    moxie_error error;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->dir = test_tmpdir();
    snprintf(f->path, sizeof f->path, "%s/x.safetensors", f->dir);
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

/* Number of files in `dir`, without hidden ones. */
static int files_in(const char *dir)
{
    int count = 0;
    DIR *stream = opendir(dir);
    assert_non_null(stream);
    for (const struct dirent *entry; (entry = readdir(stream));)
        count += entry->d_name[0] != '.';
    closedir(stream);
    return count;
}

#endif
