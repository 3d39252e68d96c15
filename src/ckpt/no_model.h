/* SPDX-License-Identifier: Apache-2.0
 *
 * no_model.h - what to say about a path that is no checkpoint's directory: what it is instead, and what to give.
 */
#ifndef MOX_CKPT_NO_MODEL_H
#define MOX_CKPT_NO_MODEL_H

#include "base/status.h"

/* There is no config.json at `dir`. Always fills `error` and returns its code: MOXIE_ERR_UNSUPPORTED for checkpoints in
 * formats that are not read, else MOXIE_ERR_IO or MOXIE_ERR_FORMAT. */
moxie_status mox_no_model(const char *dir, moxie_error *error);

/* There is one, but no safetensors. Likewise. */
moxie_status mox_no_tensors(const char *dir, moxie_error *error);

#endif
