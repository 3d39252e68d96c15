/* SPDX-License-Identifier: Apache-2.0
 *
 * store_files.h - the files of a store, and their reader.
 */
#ifndef MOX_STORE_STORE_FILES_H
#define MOX_STORE_STORE_FILES_H

#include "store/store.h"

/* Opens the files and those of the folders among `paths`: store->layers, by number. On failure the caller closes what
 * was opened. */
moxie_status mox_store_open_files(moxie_store *store, const char *const *paths, int64_t n_paths, moxie_error *error);
/* Opens the reader of these files; `base` has what the options do not say, and may be NULL. */
moxie_status mox_store_open_reader(moxie_store *store, const moxie_store_options *options,
                                   const mox_reader_options *base, moxie_error *error);

#endif
