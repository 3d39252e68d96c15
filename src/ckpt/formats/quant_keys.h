/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_keys.h - keys of a quantization configuration that no reader looks up and that quant_keys.def does not excuse.
 */
#ifndef MOX_CKPT_QUANT_KEYS_H
#define MOX_CKPT_QUANT_KEYS_H

#include <jansson.h>

#include "base/memory.h"
#include "base/status.h"

/* Such keys as "config_groups.*.weights.mystery": [*count] names in `arena`, each once, at most 64. Keys that name a
 * module, a group or a pattern are "*". `quant_config` NULL: none. MOXIE_ERR_MEMORY is the only failure. */
moxie_status mox_quant_unread_keys(const json_t *quant_config, mox_arena *arena, const char ***out, int64_t *count,
                                   moxie_error *error);

#endif
