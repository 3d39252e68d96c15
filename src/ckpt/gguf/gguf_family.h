/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_family.h - a GGUF file's metadata as the config.json and the family that the readers of models know.
 *
 *     qwen3moe.expert_used_count = 8   ->   { "model_type": "qwen3moe", "expert_used_count": 8, ... }
 *     architectures.def                ->   mox_family: names of tensors, routing, activation
 */
#ifndef MOX_CKPT_GGUF_FAMILY_H
#define MOX_CKPT_GGUF_FAMILY_H

#include "ckpt/families/tables.h"

/* *config belongs to the caller, *family lies in the arena, *architecture is static. MOXIE_ERR_UNSUPPORTED for an
 * architecture that is not listed, or is no mixture of experts. `file` is for messages. */
moxie_status mox_gguf_family(const json_t *metadata, const char *file, mox_arena *arena, json_t **config,
                             const mox_family **family, const char **architecture, moxie_error *error);

#endif
