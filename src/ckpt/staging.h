/* SPDX-License-Identifier: Apache-2.0
 *
 * staging.h - a directory that appears whole or not at all: files are written to DIR.moxie.tmp beside it, which becomes
 * DIR by one rename at the end.
 *
 *     mox_staging_open -> write files below mox_staging_path() -> mox_staging_commit
 *                                                              -> mox_staging_abandon   (failure: all is removed)
 */
#ifndef MOX_CKPT_STAGING_H
#define MOX_CKPT_STAGING_H

#include <stdint.h>

#include "base/status.h"

typedef struct mox_staging mox_staging;

/* `dir` must be absent or an empty directory and its parent must exist. `need_bytes`: MOXIE_ERR_IO when the file
 * system has less room than that. DIR.moxie.tmp is held by a lock: MOXIE_ERR_IO when another process is at work there;
 * what a process left that has ended is removed, as far as it is files of a checkpoint. */
moxie_status mox_staging_open(const char *dir, uint64_t need_bytes, mox_staging **out, moxie_error *error);
/* "DIR.moxie.tmp/name" in the staging's own buffer, valid until the next call. NULL when it does not fit. */
const char *mox_staging_path(mox_staging *staging, const char *name);
/* Puts the directory in place and frees; abandons it when that fails. */
moxie_status mox_staging_commit(mox_staging *staging, moxie_error *error);
/* Removes the temporary directory with the files in it and frees. NULL is fine. */
void mox_staging_abandon(mox_staging *staging);

#endif
