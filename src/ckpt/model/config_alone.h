/* SPDX-License-Identifier: Apache-2.0
 *
 * config_alone.h - a layer's configuration from config.json, without the files of weights (moxie_config_layer).
 */
#ifndef MOX_CKPT_MODEL_CONFIG_ALONE_H
#define MOX_CKPT_MODEL_CONFIG_ALONE_H

#include "base/status.h"

moxie_status mox_config_alone(const char *dir, int64_t layer, const char *format, moxie_layer_config *out,
                              moxie_error *error);

#endif
