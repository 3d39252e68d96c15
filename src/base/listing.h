/* SPDX-License-Identifier: Apache-2.0
 *
 * listing.h - the entries of a directory, one after the other. An error of the system is not the end of the list.
 */
#ifndef MOX_BASE_LISTING_H
#define MOX_BASE_LISTING_H

#include <dirent.h>

#include "base/status.h"

/* *entry becomes the next one, owned by `listing`, or NULL at the end. `dir` is the directory's name, for the error. */
moxie_status mox_next_entry(DIR *listing, const char *dir, const struct dirent **entry, moxie_error *error);

#endif
