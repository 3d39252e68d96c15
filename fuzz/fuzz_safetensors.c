/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_safetensors.c - a whole safetensors file.
 *
 * Promises: every tensor lies inside the file, has the size that its shape says, and together they fill the data.
 */
#include "fuzz_targets.h"

#include <string.h>

#include "ckpt/safetensors/safetensors_header.h"
#include "format/format.h"

/* A view's data is not const, but it is only read. */
static unsigned char *copy_of(const uint8_t *data, uint64_t size)
{
    unsigned char *copy = malloc(size ? size : 1);
    FUZZ_CHECK(copy);
    if (size)
        memcpy(copy, data, size);
    return copy;
}

static void check_tensor(const mox_file_tensor *t, const unsigned char *file, uint64_t size)
{
    FUZZ_CHECK(t->name && t->file_dtype);
    FUZZ_CHECK(t->offset <= size && t->bytes <= size - t->offset);
    FUZZ_CHECK(t->view.data == file + t->offset);
    FUZZ_CHECK((t->view.dtype == MOXIE_DTYPE_NONE) == (t->unusable != NULL));
    if (t->unusable)
        return;
    uint64_t bits = (uint64_t)mox_dtype_bits(t->view.dtype);
    for (int32_t i = 0; i < t->view.rank; i++)
        bits *= (uint64_t)t->view.shape[i];
    FUZZ_CHECK(bits == 8 * t->bytes);
}

void mox_fuzz_safetensors(const uint8_t *data, uint64_t size)
{
    unsigned char *file = copy_of(data, size);
    mox_tensor_list list = { 0 };
    moxie_error error = { 0 };
    const moxie_status status = mox_safetensors_header_parse(file, size, "fuzz", 0, &list, &error);
    FUZZ_CHECK(status == MOXIE_OK || status == MOXIE_ERR_FORMAT);
    FUZZ_CHECK(status == MOXIE_OK || (error.text[0] && error.offset >= 0 && (uint64_t)error.offset <= size));
    uint64_t header = 0, bytes = 0;
    for (int64_t i = 0; status == MOXIE_OK && i < list.count; i++) {
        check_tensor(&list.tensors[i], file, size);
        bytes += list.tensors[i].bytes;
    }
    if (status == MOXIE_OK) {
        memcpy(&header, file, 8);
        FUZZ_CHECK(8 + header + bytes == size);
    }
    mox_tensor_list_free(&list);
    free(file);
}
