/* SPDX-License-Identifier: Apache-2.0
 *
 * no_model.h - errors for paths that are no checkpoint directory: what the path is, and what to pass.
 */
#ifndef MOX_CKPT_NO_MODEL_H
#define MOX_CKPT_NO_MODEL_H

#include "base/status.h"

/* `dir` has no config.json. Always fills `error` and returns its code: MOXIE_ERR_UNSUPPORTED for checkpoints in formats
 * that are not supported, else MOXIE_ERR_IO or MOXIE_ERR_FORMAT. */
moxie_status mox_no_model(const char *dir, moxie_error *error);

/* `dir` has a config.json but no safetensors file. Likewise. */
moxie_status mox_no_tensors(const char *dir, moxie_error *error);

#endif
