/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_names.h - names of tensors outside the experts in GGUF files and in checkpoints (gguf_names.def).
 */
#ifndef MOX_CKPT_GGUF_NAMES_H
#define MOX_CKPT_GGUF_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

/* The other name of a tensor of a model of this architecture: of a checkpoint's tensor in a GGUF file (`to_gguf`), or
 * back. False: it is not known, or its values would be others. */
bool mox_gguf_rename(const char *architecture, bool to_gguf, const char *name, char *out, size_t size);
/* Copies what attention and embeddings need from a config.json to metadata, or from metadata to a config.json. Keys
 * that are no numbers, and those that are there already, are left alone. False when out of memory. */
bool mox_gguf_keys_to_metadata(const char *architecture, const json_t *config, json_t *metadata);
bool mox_gguf_keys_to_config(const char *architecture, const json_t *metadata, json_t *config);

#endif
