/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_config.h - config.json of a synthetic checkpoint.
 */
#ifndef MOX_CKPT_SYNTH_CONFIG_H
#define MOX_CKPT_SYNTH_CONFIG_H

#include "ckpt/synth/synth_model.h"

/* config.json with quantization_config. The caller owns it. */
moxie_status mox_synth_config(const mox_synth_model *model, json_t **out, moxie_error *error);

#endif
