/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_dir.h - OUT.partial, the directory that becomes OUT when all of it is written:
 *
 *     moxie_quantize.json              what is made of what: a run goes on only in what the same run left
 *     model-00001-of-00005.safetensors finished files, each sealed
 *     errors-00001.bin                 the errors of a layer, so that a later run reports them, too
 *
 * A GGUF file is made in it, too; then the file becomes OUT, and the directory goes.
 *
 *     all is written -> the manifest is renamed to moxie_quantize.finished.json -> the result is moved to OUT
 *                    -> the files of the first and the last kind are removed, the renamed manifest last
 *
 * So each moment at which a run can be killed is known to the next one (mox_quantize_dir_settle).
 */
#ifndef MOX_CKPT_QUANTIZE_DIR_H
#define MOX_CKPT_QUANTIZE_DIR_H

#include <limits.h>

#include <jansson.h>

#include "base/file_lock.h"
#include "base/status.h"

#define MOX_QUANTIZE_FILE "model-00000.gguf" /* the GGUF file that becomes OUT */

typedef struct mox_quantize_dir {
    char out[PATH_MAX], partial[PATH_MAX], path[PATH_MAX];
    mox_directory held;
    int number;    /* in the list of temporaries, until a layer is finished; -1: not there */
    bool finished; /* some layer is */
} mox_quantize_dir;

/* Call first. After a run for `out` that was killed at its end: if the result is in place, removes the other files of
 * that run; else gives the manifest its first name again, so that this run goes on from there. Changes nothing while
 * another process is at work. */
void mox_quantize_dir_settle(const char *out);
/* MOXIE_ERR_IO when `out` is not absent or empty. */
moxie_status mox_quantize_dir_check(const char *out, moxie_error *error);
/* Creates the directory for what `manifest` says, or goes on in one with the same manifest. MOXIE_ERR_IO, and nothing
 * changed, when `out` is not absent or empty, or what lies in the directory is not this run's. */
moxie_status mox_quantize_dir_open(const char *out, const json_t *manifest, mox_quantize_dir *d, moxie_error *error);
/* "OUT.partial/NAME", valid until the next call. */
const char *mox_quantize_dir_path(mox_quantize_dir *d, const char *name);
/* The same of the file with the errors of layer i, counted from 0. */
const char *mox_quantize_dir_errors_path(mox_quantize_dir *d, int64_t i);
/* From now on the directory outlives a failure. */
void mox_quantize_dir_keep(mox_quantize_dir *d);
/* Renames it to OUT. */
moxie_status mox_quantize_dir_commit(mox_quantize_dir *d, moxie_error *error);
/* Renames MOX_QUANTIZE_FILE in it to OUT, and removes all files of the work. */
moxie_status mox_quantize_dir_commit_file(mox_quantize_dir *d, moxie_error *error);
/* Call in any case. After a failure the directory is removed unless a layer is finished. */
void mox_quantize_dir_close(mox_quantize_dir *d);

#endif
