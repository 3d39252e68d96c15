/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_split.c - names and numbers of the parts of a split model (gguf_split.h).
 */
#include "ckpt/gguf/gguf_split.h"

#include <stdio.h>
#include <string.h>

/* llama.cpp counts parts in 16 bits, names have five digits. */
#define MAX_PARTS 65535

moxie_status mox_gguf_split_count(const json_t *metadata, const char *path, int64_t *out, moxie_error *error)
{
    const json_t *count = json_object_get(metadata, "split.count");
    if (count && !json_is_integer(count))
        return mox_fail_file(MOXIE_ERR_FORMAT, error, path, -1, "split.count is no integer: the file is damaged");
    *out = count ? json_integer_value(count) : 1;
    if (*out == 0) /* a file that was joined again */
        *out = 1;
    if (*out < 1 || *out > MAX_PARTS)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, path, -1, "split.count is %lld, expected 1 to %d",
                             (long long)*out, MAX_PARTS);
    return MOXIE_OK;
}

const char *mox_gguf_split_path(const char *path, int64_t part, int64_t count, mox_arena *arena)
{
    char ending[40], number[8];
    const size_t length = strlen(path);
    snprintf(ending, sizeof ending, "-of-%05lld.gguf", (long long)count);
    const size_t tail = strlen(ending) + 5;
    if (length < tail + 1 || strcmp(path + length - strlen(ending), ending) != 0 || path[length - tail - 1] != '-' ||
        strspn(path + length - tail, "0123456789") < 5)
        return NULL;
    snprintf(number, sizeof number, "%05d", (int)(part + 1));
    return mox_arena_printf(arena, "%.*s%s%s", (int)(length - tail), path, number, ending);
}

moxie_status mox_gguf_split_check(const json_t *metadata, const char *path, int64_t part, int64_t count,
                                  moxie_error *error)
{
    int64_t found = 0;
    MOX_TRY(mox_gguf_split_count(metadata, path, &found, error));
    const json_int_t no = json_integer_value(json_object_get(metadata, "split.no"));
    if (found != count || no != part)
        return mox_fail_file(
            MOXIE_ERR_MISMATCH, error, path, -1,
            "it says that it is part %lld of %lld (split.no, split.count), expected part %lld of %lld: "
            "parts of different models are mixed",
            (long long)no + 1, (long long)found, (long long)part + 1, (long long)count);
    return MOXIE_OK;
}
