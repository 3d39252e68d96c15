/* SPDX-License-Identifier: Apache-2.0
 *
 * staging.h - a directory that appears complete or not at all. Files are written to DIR.moxie.tmp next to DIR, which
 * becomes DIR by one rename at the end.
 *
 *     mox_staging_open -> write files below mox_staging_path() -> mox_staging_commit
 *                                                              -> mox_staging_abandon   (failure: all is removed)
 */
#ifndef MOX_CKPT_STAGING_H
#define MOX_CKPT_STAGING_H

#include <stdint.h>

#include "base/status.h"

typedef struct mox_staging mox_staging;

/* `dir` must be absent or empty, and its parent must exist. MOXIE_ERR_IO when the file system has less room than
 * `need_bytes`. A lock is held on DIR.moxie.tmp: MOXIE_ERR_IO when another process works there. What an ended process
 * left is removed if it consists of checkpoint files only. */
moxie_status mox_staging_open(const char *dir, uint64_t need_bytes, mox_staging **out, moxie_error *error);
/* "DIR.moxie.tmp/name" in a buffer of the staging, valid until the next call. NULL when it does not fit. */
const char *mox_staging_path(mox_staging *staging, const char *name);
/* Renames the directory to its final name and frees; abandons it when that fails. */
moxie_status mox_staging_commit(mox_staging *staging, moxie_error *error);
/* Removes the temporary directory with the files in it and frees. NULL is fine. */
void mox_staging_abandon(mox_staging *staging);

#endif
