/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_header.h - one GGUF file: metadata and tensors, read and checked completely before any tensor is returned.
 *
 *     | "GGUF" | version u32 | tensors u64 | pairs u64 | pairs | tensor infos | padding | data |
 *     pair   key string | type u32 | value            string  length u64 | bytes, UTF-8
 *     info   name string | axes u32 | extents u64, the fastest first | type u32 | offset u64
 *
 * Everything is little endian. Offsets count from the start of the data, which is the next multiple of
 * general.alignment (32 without that key). Tensors lie in the order of their infos, each on such a multiple, without
 * other gaps. Versions 2 and 3 are read; big-endian files are refused. Source: the GGUF format,
 * github.com/ggml-org/ggml docs/gguf.md.
 */
#ifndef MOX_CKPT_GGUF_HEADER_H
#define MOX_CKPT_GGUF_HEADER_H

#include <jansson.h>

#include "ckpt/safetensors/safetensors_header.h"

/* Arrays of numbers with more entries are checked and not kept: lists of tokens. Lists with a number a layer are. */
#define MOX_GGUF_MAX_ARRAY 65536

/* True when the bytes begin like a GGUF file. */
bool mox_is_gguf(const unsigned char *file, uint64_t size);
/* Whether `path` is a file that begins so. Fails when it is a file that cannot be read; what is no file is none. */
moxie_status mox_find_gguf_file(const char *path, bool *is, moxie_error *error);
/* The same; false, too, for what cannot be read. */
bool mox_is_gguf_file(const char *path);

/* Checks the whole file and appends its tensors to `list`, as mox_safetensors_header_parse() does. Extents of a view
 * are in elements, the slowest first. A block type's dtype is that of format/blocks.def. *metadata becomes an object of
 * the pairs; the caller owns it. Null stands for what is not kept: arrays of strings, long arrays and texts, numbers
 * that are not finite or above 63 bits. So these are not taken for absent. */
moxie_status mox_gguf_header_parse(unsigned char *file, uint64_t size, const char *path, int32_t shard,
                                   mox_tensor_list *list, json_t **metadata, moxie_error *error);

#endif
