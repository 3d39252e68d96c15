/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_names.h - names of tensors outside the experts in GGUF files and in checkpoints (gguf_names.def).
 */
#ifndef MOX_CKPT_GGUF_NAMES_H
#define MOX_CKPT_GGUF_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* The other name of a tensor of a model of this architecture: of a checkpoint's tensor in a GGUF file (`to_gguf`), or
 * back. False: it is not known, or its values would be others. */
bool mox_gguf_rename(const char *architecture, bool to_gguf, const char *name, char *out, size_t size);

#endif
