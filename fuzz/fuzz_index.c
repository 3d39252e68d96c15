/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_index.c - model.safetensors.index.json.
 *
 * Promises: files are bare names, sorted and without repetition. Every entry points to a file, and every file has an
 * entry.
 */
#include "fuzz_targets.h"

#include <string.h>

#include "ckpt/safetensors/tensor_index.h"

static void check_files(const mox_tensor_index *index)
{
    for (int64_t i = 0; i < index->n_files; i++) {
        const char *name = index->files[i];
        FUZZ_CHECK(name[0] && !strchr(name, '/') && strcmp(name, "..") != 0 && strcmp(name, ".") != 0);
        FUZZ_CHECK(i == 0 || strcmp(index->files[i - 1], name) < 0);
    }
}

void mox_fuzz_index(const uint8_t *data, uint64_t size)
{
    mox_tensor_index index = { 0 };
    moxie_error error = { 0 };
    const moxie_status status = mox_tensor_index_parse((const char *)data, size, "fuzz", &index, &error);
    FUZZ_CHECK(status == MOXIE_OK || (status == MOXIE_ERR_FORMAT && error.text[0]));
    if (status != MOXIE_OK)
        return;
    FUZZ_CHECK(index.n_entries > 0 && index.n_files > 0 && index.n_files <= index.n_entries);
    check_files(&index);
    for (int64_t i = 0; i < index.n_entries; i++)
        FUZZ_CHECK(index.entries[i].tensor && index.entries[i].file >= 0 && index.entries[i].file < index.n_files);
    mox_tensor_index_free(&index);
}
