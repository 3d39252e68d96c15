/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_described.c - the checkpoint's tensors as a prepared file describes them in its metadata moxie.source:
 *
 *     [["model.layers.3.mlp.experts.0.up_proj.weight", "bf16", [768, 2048], 1], ...]
 *
 * The text is untrusted, and it decides how memory is laid out. So every type, size and sum is checked: a size that
 * wraps around would give a tensor less memory than is written into it.
 */
#include "prepare.h"

#include <stdlib.h>
#include <string.h>

/* The largest layer of a public checkpoint: 23 GB (DeepSeek-V3 in bf16). */
#define MAX_ROOM  (UINT64_C(1) << 40)
#define MAX_COUNT 1000000

static bool take_shape(const json_t *shape, moxie_tensor *out, uint64_t *bits)
{
    const size_t rank = json_array_size(shape);
    if (!json_is_array(shape) || rank > MOXIE_MAX_RANK)
        return false;
    out->rank = (int32_t)rank;
    bool good = true;
    for (size_t i = 0; good && i < rank; i++) {
        const json_t *axis = json_array_get(shape, i);
        out->shape[i] = json_integer_value(axis);
        good = json_is_integer(axis) && out->shape[i] >= 0 &&
               !__builtin_mul_overflow(*bits, (uint64_t)out->shape[i], bits);
    }
    return good;
}

/* Parses one entry; the lists have room for it. `names`: the names before it. Fills no error. */
static moxie_status take_tensor(const json_t *entry, json_t *names, prepare_described *out)
{
    const json_t *name = json_array_get(entry, 0), *dtype = json_array_get(entry, 1), *count = json_array_get(entry, 3);
    if (json_array_size(entry) != 4 || !json_is_string(name) || !json_is_string(dtype) || !json_is_integer(count))
        return MOXIE_ERR_FORMAT;
    moxie_tensor t = { .dtype = moxie_dtype_from_name(json_string_value(dtype)) };
    uint64_t bits = (uint64_t)moxie_dtype_bits(t.dtype), room;
    const json_int_t pieces = json_integer_value(count);
    if (bits == 0 || !take_shape(json_array_get(entry, 2), &t, &bits) || bits % 8 != 0)
        return MOXIE_ERR_FORMAT;
    const uint64_t bytes = bits / 8;
    if (pieces < 0 || (uint64_t)pieces > bytes || (pieces > 0 && bytes % (uint64_t)pieces != 0) ||
        json_object_get(names, json_string_value(name)) || bytes > MAX_ROOM ||
        __builtin_add_overflow(out->room_bytes, (bytes + 63) / 64 * 64, &room) || room > MAX_ROOM)
        return MOXIE_ERR_FORMAT;
    char *copy = strdup(json_string_value(name));
    if (!copy)
        return MOXIE_ERR_MEMORY;
    out->tensors[out->count] = (moxie_named_tensor) { .name = copy, .tensor = t };
    out->pieces[out->count] = pieces;
    out->bytes[out->count] = bytes;
    out->room_bytes = room;
    out->count++;
    return json_object_set_new(names, copy, json_true()) == 0 ? MOXIE_OK : MOXIE_ERR_MEMORY;
}

static moxie_status take_list(const json_t *list, prepare_described *out)
{
    const size_t count = json_array_size(list);
    if (!json_is_array(list) || count < 1 || count > MAX_COUNT)
        return MOXIE_ERR_FORMAT;
    json_t *names = json_object();
    out->tensors = calloc(count, sizeof *out->tensors);
    out->pieces = calloc(count, sizeof *out->pieces);
    out->bytes = calloc(count, sizeof *out->bytes);
    moxie_status status = names && out->tensors && out->pieces && out->bytes ? MOXIE_OK : MOXIE_ERR_MEMORY;
    for (size_t i = 0; status == MOXIE_OK && i < count; i++)
        status = take_tensor(json_array_get(list, i), names, out);
    json_decref(names);
    return status;
}

moxie_status prepare_described_parse(const char *text, const char *path, prepare_described *out, moxie_error *error)
{
    json_t *list = NULL;
    *out = (prepare_described) { 0 };
    moxie_status status = cli_json_parse(text, strlen(text), path, &list, error);
    if (status == MOXIE_OK)
        status = take_list(list, out);
    json_decref(list);
    if (status == MOXIE_ERR_MEMORY)
        return cli_error(status, error, path, "no memory for a list of tensors");
    if (status != MOXIE_OK)
        return cli_error(status, error, path,
                         "its metadata moxie.source does not describe the tensors of a layer (entry %lld)",
                         (long long)out->count);
    return MOXIE_OK;
}

void prepare_described_free(prepare_described *described)
{
    for (int64_t i = 0; i < described->count; i++)
        free((void *)(uintptr_t)described->tensors[i].name);
    free(described->tensors);
    free(described->pieces);
    free(described->bytes);
    *described = (prepare_described) { 0 };
}
