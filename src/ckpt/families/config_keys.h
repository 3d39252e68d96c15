/* SPDX-License-Identifier: Apache-2.0
 *
 * config_keys.h - keys of config.json that could matter to a MoE layer and that nothing looks up.
 */
#ifndef MOX_CKPT_CONFIG_KEYS_H
#define MOX_CKPT_CONFIG_KEYS_H

#include "base/memory.h"
#include "ckpt/families/family_config.h"

/* True when config.json says that experts are chosen with a correction bias. */
bool mox_config_promises_bias(const json_t *config);
/* True when it says that there is none: the libraries then ignore the tensor, or do not look at the key. */
bool mox_config_denies_bias(const json_t *config);

/* Keys of `config` that config_keys.def picks, that no reader of these layers looks up and that it does not excuse:
 * [*count] dotted names in `arena`, without "text_config.". None when a layer cannot be read: loading it says why.
 * MOXIE_ERR_MEMORY is the only failure. */
moxie_status mox_config_unread_keys(const mox_family *family, const json_t *config, const int64_t *layers,
                                    int64_t n_layers, mox_arena *arena, const char ***out, int64_t *count,
                                    moxie_error *error);

#endif
