/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_gguf.c - a whole GGUF file.
 *
 * Promises: every tensor lies inside the file, behind the one before it, and has the size that its shape says;
 * errors name a place in the file.
 */
#include "fuzz_targets.h"

#include <string.h>

#include "ckpt/gguf/gguf_header.h"
#include "format/block.h"
#include "format/format.h"

/* The size that shape and type give; types without a number format are not counted. */
static void check_size(const mox_file_tensor *t)
{
    uint64_t elements = 1;
    for (int32_t i = 0; i < t->view.rank; i++)
        elements *= (uint64_t)t->view.shape[i];
    if (t->unusable)
        return;
    const mox_block *block = mox_block_of(t->view.dtype);
    if (block)
        FUZZ_CHECK(elements / (uint64_t)block->weights * (uint64_t)block->bytes == t->bytes);
    else
        FUZZ_CHECK(elements * (uint64_t)mox_dtype_bytes(t->view.dtype) == t->bytes);
}

void mox_fuzz_gguf(const uint8_t *data, uint64_t size)
{
    unsigned char *file = malloc(size ? size : 1);
    FUZZ_CHECK(file);
    if (size)
        memcpy(file, data, size);
    mox_tensor_list list = { 0 };
    json_t *metadata = NULL;
    moxie_error error = { 0 };
    const moxie_status status = mox_gguf_header_parse(file, size, "fuzz", 0, &list, &metadata, &error);
    FUZZ_CHECK(status == MOXIE_OK || status == MOXIE_ERR_FORMAT || status == MOXIE_ERR_UNSUPPORTED);
    FUZZ_CHECK(status == MOXIE_OK || (error.text[0] && error.offset >= 0 && (uint64_t)error.offset <= size));
    FUZZ_CHECK((status == MOXIE_OK) == (metadata != NULL));
    uint64_t reached = 0;
    for (int64_t i = 0; status == MOXIE_OK && i < list.count; i++) {
        const mox_file_tensor *t = &list.tensors[i];
        FUZZ_CHECK(t->name && t->file_dtype && t->view.data == file + t->offset);
        FUZZ_CHECK(t->offset >= reached && t->offset <= size && t->bytes <= size - t->offset);
        reached = t->offset + t->bytes;
        check_size(t);
    }
    json_decref(metadata);
    mox_tensor_list_free(&list);
    free(file);
}
