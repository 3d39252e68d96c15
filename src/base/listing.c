/* SPDX-License-Identifier: Apache-2.0
 *
 * listing.c - entries of directories (listing.h).
 */
#include "base/listing.h"

#include <errno.h>

moxie_status mox_next_entry(DIR *listing, const char *dir, const struct dirent **entry, moxie_error *error)
{
    errno = 0;
    *entry = readdir(listing);
    if (*entry == NULL && errno != 0)
        return mox_fail_file(MOXIE_ERR_IO, error, dir, -1, "cannot list the directory: %m");
    return MOXIE_OK;
}
