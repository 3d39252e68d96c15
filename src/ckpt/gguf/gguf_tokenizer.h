/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_tokenizer.h - a directory's tokenizer as metadata of GGUF files, as llama.cpp's conversion writes it:
 *
 *     tokenizer.json           vocabulary, added tokens -> tokenizer.ggml.tokens, .token_type     merges -> .merges
 *                              pre-tokenizer            -> .pre (gguf_tokenizers.def)
 *     tokenizer_config.json    bos, eos, ...            -> .bos_token_id, ...   .add_bos_token, ...
 *     chat_template.jinja      or of that file          -> tokenizer.chat_template
 *
 * Byte-level BPE alone, of architectures in gguf_tokenizers.def.
 */
#ifndef MOX_CKPT_GGUF_TOKENIZER_H
#define MOX_CKPT_GGUF_TOKENIZER_H

#include <jansson.h>

#include "base/status.h"

/* Adds the keys to `metadata`. *tokens: entries of the vocabulary. When there is no such tokenizer, or it has parts
 * that GGUF's keys cannot say, nothing is added, *tokens is 0 and *why is a static text. Fails without memory alone. */
moxie_status mox_gguf_tokenizer_add(const char *dir, const char *architecture, const json_t *config, json_t *metadata,
                                    int64_t *tokens, const char **why, moxie_error *error);

#endif
