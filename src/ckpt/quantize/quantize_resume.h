/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_resume.h - whether an earlier run was of the same source, and which files of it are finished.
 */
#ifndef MOX_CKPT_QUANTIZE_RESUME_H
#define MOX_CKPT_QUANTIZE_RESUME_H

#include <moxie/moxie_quantize.h>

#include "ckpt/model/model_state.h"

/* A sum of the source's configuration, and of its files' headers, sizes and times. */
moxie_status mox_quantize_fingerprint(const moxie_model *model, uint64_t *out, moxie_error *error);
/* True when an earlier run finished the sealed file; *bytes: of its tensors. */
bool mox_quantize_is_finished(const char *path, uint64_t *bytes);
/* Calls options->error for each that was set. */
void mox_quantize_report(const moxie_quantize_options *options, const moxie_quantize_error *errors, int64_t count);
/* Reads and reports what a run noted of a finished layer; false when there is no such file. */
bool mox_quantize_report_finished(const moxie_quantize_options *options, const char *path);

#endif
