/* SPDX-License-Identifier: Apache-2.0
 *
 * api_file.c - the calls of moxie_ckpt.h about whole files: moxie_file_*, moxie_directory_lock,
 * moxie_temporaries_remove. Each checks its pointers; src/base does the work.
 */
#include <moxie/moxie_ckpt.h>

#include "base/file_lock.h"
#include "base/memory.h"
#include "base/temporaries.h"
#include "base/whole_file.h"
#include "ckpt/safetensors/file.h"

moxie_status moxie_file_read(const char *path, uint64_t limit, char **data, uint64_t *bytes, moxie_error *error)
{
    MOX_FAIL_IF(!path || !data || !bytes, MOXIE_ERR_ARGUMENT, error, "moxie_file_read: path, data or bytes is NULL");
    mox_file file = { 0 };
    MOX_TRY(mox_file_open(path, true, limit, &file, error));
    *data = (char *)file.data; /* read, not mapped: one block of memory */
    *bytes = file.size;
    return MOXIE_OK;
}

void moxie_file_free(char *data)
{
    mox_free(data);
}

int moxie_file_exists(const char *path)
{
    return path && mox_file_exists(path);
}

moxie_status moxie_file_write(const char *path, const void *data, uint64_t bytes, moxie_error *error)
{
    MOX_FAIL_IF(!path || (!data && bytes > 0), MOXIE_ERR_ARGUMENT, error, "moxie_file_write: path or data is NULL");
    return mox_whole_file_write(path, data, bytes, error);
}

moxie_status moxie_file_check_output(const char *path, moxie_error *error)
{
    MOX_FAIL_IF(!path, MOXIE_ERR_ARGUMENT, error, "moxie_file_check_output: path is NULL");
    return mox_whole_file_check(path, error);
}

moxie_status moxie_directory_lock(const char *path, int create, int *fd, int *created, moxie_error *error)
{
    MOX_FAIL_IF(!path || !fd, MOXIE_ERR_ARGUMENT, error, "moxie_directory_lock: path or fd is NULL");
    mox_directory held;
    MOX_TRY(mox_directory_hold(path, create != 0, &held, error));
    *fd = held.fd;
    if (created)
        *created = held.created;
    return MOXIE_OK;
}

void moxie_temporaries_remove(void)
{
    mox_temporaries_remove();
}
