/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_expert_file.c - an expert file whose checksums are made right before it is opened, so that changed bytes reach
 * the checks behind them.
 *
 * Promises: records lie inside the file; the configuration is one that the library accepts; errors name the file; what
 * opens can be explained, and unpacked unless its records are damaged or the rows of a tensor parallel rank alone.
 */
#include "fuzz_scratch.h"

#include <string.h>

#include "base/checksum.h"
#include "store/expert_file.h"

/* Makes the checksum of a range right where it lies in the file. */
static void mend(uint8_t *data, uint64_t size, mox_expert_range *r)
{
    const uint64_t padded = mox_expert_padded(r->bytes);
    if (r->bytes <= size && r->offset <= size && padded <= size - r->offset)
        r->checksum = mox_checksum(data + r->offset, padded);
}

static void mend_index(uint8_t *data, uint64_t size, mox_expert_seal *seal)
{
    const mox_expert_range r = seal->index;
    for (uint64_t at = r.offset; r.bytes <= size && at < r.offset + r.bytes && at + 64 <= size; at += 64) {
        mox_expert_entry entry;
        memcpy(&entry, data + at, sizeof entry);
        mend(data, size, &entry.range);
        memcpy(data + at, &entry, sizeof entry);
    }
    mend(data, size, &seal->index);
}

static void mend_all(uint8_t *data, uint64_t size)
{
    mox_expert_header header;
    memcpy(&header, data, sizeof header);
    for (uint32_t i = 0; i < header.n_sections && i < MOX_EXPERT_MAX_SECTIONS; i++)
        mend(data, size, &header.sections[i].range);
    header.checksum = mox_checksum(&header, offsetof(mox_expert_header, checksum));
    memcpy(data, &header, sizeof header);
    for (uint64_t page = 1; page <= 2; page++) {
        static const mox_expert_seal never;
        mox_expert_seal seal;
        memcpy(&seal, data + page * MOX_EXPERT_PAGE, sizeof seal);
        if (memcmp(&seal, &never, sizeof never) == 0)
            continue;
        seal.header_checksum = header.checksum;
        seal.generation = seal.generation / 2 * 2 + page % 2; /* others are read again and again: slow */
        mend_index(data, size, &seal);
        mox_expert_end_seal(&seal);
        memcpy(data + page * MOX_EXPERT_PAGE, &seal, sizeof seal);
    }
}

static void use(moxie_expert_file *file)
{
    moxie_error error = { 0 };
    moxie_plan *plan = NULL;
    moxie_layer *layer = NULL;
    const moxie_weights *weights = NULL;
    FUZZ_CHECK(moxie_layer_config_check(moxie_expert_file_config(file), &error) == MOXIE_OK);
    for (int64_t e = -1; e < file->header.experts; e++) {
        moxie_expert_record record = MOXIE_EXPERT_RECORD_INIT;
        FUZZ_CHECK(moxie_expert_file_record(file, e, &record, &error) == MOXIE_OK);
        const uint8_t *data = record.data;
        FUZZ_CHECK(data == NULL || (data >= file->data && record.bytes <= file->seal.file_bytes - record.offset));
    }
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.backend = MOXIE_BACKEND_CPU;
    if (moxie_expert_file_explain(file, NULL, &options, &plan, &error) == MOXIE_OK)
        moxie_plan_destroy(plan);
    if (moxie_expert_file_verify(file, NULL, &error) == MOXIE_OK)
        FUZZ_CHECK(moxie_expert_file_weights(file, NULL, &weights, &error) ==
                   (file->config.tp_size > 1 ? MOXIE_ERR_UNSUPPORTED : MOXIE_OK));
    if (moxie_layer_open_file(file, NULL, &options, &layer, &error) == MOXIE_OK)
        moxie_layer_destroy(layer);
}

void mox_fuzz_expert_file(const uint8_t *data, uint64_t size)
{
    moxie_expert_file *file = NULL;
    moxie_error error = { 0 };
    uint8_t *copy = malloc(size ? size : 1);
    FUZZ_CHECK(copy);
    if (size)
        memcpy(copy, data, size);
    if (size >= MOX_EXPERT_FIRST)
        mend_all(copy, size);
    fuzz_write("layer.moxie", copy, size);
    free(copy);
    const moxie_status status = moxie_expert_file_open(fuzz_path("layer.moxie"), NULL, &file, &error);
    FUZZ_CHECK(status == MOXIE_OK || error.text[0]);
    if (status == MOXIE_OK)
        use(file);
    moxie_expert_file_close(file);
}
