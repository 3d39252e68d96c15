/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_resume.c - what a run knows of an earlier one that was interrupted (quantize_resume.h).
 */
#include "ckpt/quantize/quantize_resume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checksum.h"
#include "ckpt/safetensors/seal.h"

/* Size and time of the last change: weights differ although headers are the same, as in two merged checkpoints. */
static moxie_status add_file(const char *path, uint64_t *sum, moxie_error *error)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1, "cannot read its attributes: %m");
    const uint64_t parts[4] = { *sum, (uint64_t)info.st_size, (uint64_t)info.st_mtim.tv_sec,
                                (uint64_t)info.st_mtim.tv_nsec };
    *sum = mox_checksum(parts, sizeof parts);
    return MOXIE_OK;
}

/* Of all files of the source with their headers, and of its configuration. */
moxie_status mox_quantize_fingerprint(const moxie_model *model, uint64_t *out, moxie_error *error)
{
    const mox_tensor_set *set = model->set;
    uint64_t sums[2] = { 0 };
    char *config = json_dumps(model->config, JSON_SORT_KEYS | JSON_COMPACT);
    MOX_FAIL_IF(!config, MOXIE_ERR_MEMORY, error, "no memory for a manifest");
    sums[0] = mox_checksum(config, strlen(config));
    free(config);
    for (int64_t i = 0; i < mox_tensor_set_files(set); i++) {
        uint64_t bytes;
        if (!model->gguf) {
            const unsigned char *header = mox_tensor_set_file_header(set, i, &bytes);
            sums[1] = mox_checksum(header, bytes);
        }
        sums[0] = mox_checksum(sums, sizeof sums);
        MOX_TRY(add_file(mox_tensor_set_file_name(set, i), &sums[0], error));
    }
    *out = sums[0];
    return MOXIE_OK;
}

/* True when an earlier run finished the file. */
bool mox_quantize_is_finished(const char *path, uint64_t *bytes)
{
    mox_tensor_set *set = NULL;
    if (mox_tensor_set_open_file(path, false, &set, NULL) != MOXIE_OK)
        return false;
    const bool whole = mox_seal_check(set, NULL) == MOXIE_OK;
    *bytes = mox_tensor_set_bytes(set);
    mox_tensor_set_close(set);
    return whole;
}

void mox_quantize_report(const moxie_quantize_options *options, const moxie_quantize_error *errors, int64_t count)
{
    for (int64_t i = 0; i < count && options->error; i++)
        if (errors[i].weight_squares > 0 || errors[i].exact)
            options->error(options->error_user, &errors[i]);
}

/* Reads and reports what a run noted of a finished layer. */
bool mox_quantize_report_finished(const moxie_quantize_options *options, const char *path)
{
    FILE *file = fopen(path, "rb");
    moxie_quantize_error errors[3];
    if (!file)
        return false;
    while (fread(errors, sizeof errors, 1, file) == 1)
        mox_quantize_report(options, errors, 3);
    fclose(file);
    return true;
}
