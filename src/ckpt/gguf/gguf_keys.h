/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_keys.h - what attention and embeddings need of a config.json as metadata of GGUF files, and back
 * (gguf_names.def): sizes, heads, eps, RoPE with its scaling (linear and YaRN) and the dimensions that it turns.
 */
#ifndef MOX_CKPT_GGUF_KEYS_H
#define MOX_CKPT_GGUF_KEYS_H

#include <stdbool.h>

#include <jansson.h>

#include "ckpt/safetensors/tensors.h"

/* Keys that are of another type (where counts are wanted, negative numbers too), and those that are there already, are
 * left alone. False when out of memory. */
bool mox_gguf_keys_to_metadata(const char *architecture, const json_t *config, json_t *metadata);
/* From a file's metadata and tensors. Also: vocabulary, tied embeddings, special tokens, biases of attention. */
bool mox_gguf_keys_to_config(const char *architecture, const mox_tensor_set *file, json_t *config);

#endif
