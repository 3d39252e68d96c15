/* SPDX-License-Identifier: Apache-2.0
 *
 * one_file.h - fixture of tests of writers: a fresh directory, and the path of a file in it.
 */
#ifndef TEST_ONE_FILE_H
#define TEST_ONE_FILE_H

#include "test_support.h"

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

#endif
