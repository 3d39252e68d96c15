/* SPDX-License-Identifier: Apache-2.0
 *
 * ct_presets.h - config groups of compressed-tensors that only name their scheme: "W4A16": ["Linear"].
 */
#ifndef MOX_CKPT_CT_PRESETS_H
#define MOX_CKPT_CT_PRESETS_H

#include <stdbool.h>

#include <jansson.h>

/* Replaces each list of targets whose key names a scheme of ct_presets.def by the group that the name stands for.
 * Groups under other names stay lists. Nothing happens in configurations of other methods. False when out of memory. */
bool mox_ct_expand_presets(json_t *quant_config);

#endif
