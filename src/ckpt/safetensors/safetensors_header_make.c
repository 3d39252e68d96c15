/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors_header_make.c - makes a header, which every reader accepts, from declarations.
 *
 *     | N | {"__metadata__":{...},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},...}  blanks | -> data
 *
 * Whatever the reader rejects is rejected here: equal names, text that is not UTF-8, dtypes that the format cannot
 * name, elements that do not fill bytes, sizes beyond 48 bits. N is padded so that the data starts at a multiple of 8.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/sizes.h"
#include "ckpt/safetensors/file_dtype.h"
#include "ckpt/safetensors/header_json.h"
#include "ckpt/name_map.h"
#include "ckpt/safetensors/safetensors_header.h"
#include "ckpt/utf8.h"
#include "format/format.h"

#define MAX_ESCAPED 160

/* A growing text. A failed allocation is remembered, so that only the end has to check. */
typedef struct text {
    char *data;
    uint64_t size, capacity;
    bool out_of_memory;
} text;

static void put_bytes(text *t, const char *bytes, uint64_t n)
{
    if (t->out_of_memory)
        return;
    if (n > t->capacity - t->size) {
        const uint64_t capacity = 2 * t->capacity + n;
        char *grown = mox_realloc(t->data, capacity);
        t->out_of_memory = !grown;
        if (!grown)
            return;
        t->data = grown;
        t->capacity = capacity;
    }
    memcpy(t->data + t->size, bytes, n);
    t->size += n;
}

static void put(text *t, const char *string)
{
    put_bytes(t, string, strlen(string));
}

static void put_number(text *t, uint64_t number)
{
    char digits[24];
    put_bytes(t, digits, (uint64_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)number));
}

/* A JSON string; `string` is valid UTF-8. */
static void put_quoted(text *t, const char *string)
{
    put(t, "\"");
    for (const char *s = string; *s; s++) {
        char escaped[8];
        if (*s == '"' || *s == '\\')
            put(t, "\\");
        if ((unsigned char)*s < 0x20)
            put_bytes(t, escaped, (uint64_t)snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*s));
        else
            put_bytes(t, s, 1);
    }
    put(t, "\"");
}

/* ---- rules ------------------------------------------------------------------------------------------ */

static moxie_status check_utf8(const char *what, const char *string, moxie_error *error)
{
    MOX_FAIL_IF(!string, MOXIE_ERR_ARGUMENT, error, "a %s is NULL", what);
    const uint64_t size = strlen(string);
    char escaped[MAX_ESCAPED];
    for (uint64_t i = 0; i < size;) {
        const int32_t length = mox_utf8_length((const unsigned char *)string + i, size - i);
        MOX_FAIL_IF(length == 0, MOXIE_ERR_ARGUMENT, error, "the %s \"%s\" is not valid UTF-8", what,
                    mox_escape(escaped, sizeof escaped, string));
        i += (uint64_t)length;
    }
    return MOXIE_OK;
}

/* Checks that a key is UTF-8 and new among `keys`. */
static moxie_status check_key(mox_name_map *keys, const char *what, const char *key, moxie_error *error)
{
    int64_t existing = -1;
    char escaped[MAX_ESCAPED];
    MOX_TRY(check_utf8(what, key, error));
    MOX_TRY(mox_name_map_put(keys, key, 0, &existing, error));
    MOX_FAIL_IF(existing >= 0, MOXIE_ERR_ARGUMENT, error, "the %s \"%s\" occurs twice: names must be unique", what,
                mox_escape(escaped, sizeof escaped, key));
    return MOXIE_OK;
}

static moxie_status tensor_bytes(const mox_tensor_decl *decl, const char *escaped, uint64_t *bytes, moxie_error *error)
{
    const char *dtype = mox_file_dtype_name(decl->dtype);
    MOX_FAIL_IF(!dtype, MOXIE_ERR_ARGUMENT, error,
                "tensor \"%s\": safetensors has no dtype for %s; store its words as u8 or i32", escaped,
                mox_dtype_name(decl->dtype));
    MOX_FAIL_IF(decl->rank < 0 || decl->rank > MOXIE_MAX_RANK, MOXIE_ERR_ARGUMENT, error,
                "tensor \"%s\": rank %d is outside 0..%d", escaped, (int)decl->rank, MOXIE_MAX_RANK);
    uint64_t elements = 1, bits = 0;
    bool empty = false, fits = true;
    for (int32_t i = 0; i < decl->rank; i++) {
        const int64_t axis = decl->shape[i];
        fits = fits && axis >= 0 && (uint64_t)axis <= MOX_HEADER_MAX_INTEGER;
        empty = empty || axis == 0;
        fits = fits && (axis == 0 || mox_mul_u64(elements, (uint64_t)axis, &elements));
    }
    fits = fits && mox_mul_u64(elements, (uint64_t)mox_file_dtype_by_name(dtype)->bits, &bits);
    MOX_FAIL_IF(!fits, MOXIE_ERR_ARGUMENT, error, "tensor \"%s\": an axis or the product of its shape is out of range",
                escaped);
    MOX_FAIL_IF(!empty && bits % 8, MOXIE_ERR_ARGUMENT, error,
                "tensor \"%s\": %llu elements of %s do not fill whole bytes", escaped, (unsigned long long)elements,
                dtype);
    *bytes = empty ? 0 : bits / 8;
    return MOXIE_OK;
}

/* ---- the text --------------------------------------------------------------------------------------- */

static moxie_status put_metadata(text *t, const char *const *pairs, int64_t n, moxie_error *error)
{
    mox_name_map keys = { 0 };
    moxie_status status = MOXIE_OK;
    put(t, "\"__metadata__\":{");
    for (int64_t i = 0; i < n && status == MOXIE_OK; i++) {
        status = check_key(&keys, "metadata key", pairs[2 * i], error);
        if (status == MOXIE_OK)
            status = check_utf8("metadata value", pairs[2 * i + 1], error);
        if (status != MOXIE_OK)
            break;
        put(t, i ? "," : "");
        put_quoted(t, pairs[2 * i]);
        put(t, ":");
        put_quoted(t, pairs[2 * i + 1]);
    }
    put(t, "}");
    mox_name_map_free(&keys);
    return status;
}

/* Writes one entry; *end is the end of the data before and after it. */
static moxie_status put_entry(text *t, const mox_tensor_decl *decl, mox_name_map *names, uint64_t *end,
                              moxie_error *error)
{
    char escaped[MAX_ESCAPED];
    uint64_t bytes = 0;
    MOX_FAIL_IF(!decl->name, MOXIE_ERR_ARGUMENT, error, "a tensor has no name");
    mox_escape(escaped, sizeof escaped, decl->name);
    MOX_FAIL_IF(strcmp(decl->name, "__metadata__") == 0, MOXIE_ERR_ARGUMENT, error,
                "no tensor can have the name \"__metadata__\": the format reserves it");
    MOX_TRY(check_key(names, "tensor name", decl->name, error));
    MOX_TRY(tensor_bytes(decl, escaped, &bytes, error));
    MOX_FAIL_IF(bytes > MOX_HEADER_MAX_INTEGER - *end, MOXIE_ERR_ARGUMENT, error,
                "tensor \"%s\" would end beyond 2^48 - 1 bytes", escaped);
    put_quoted(t, decl->name);
    put(t, ":{\"dtype\":\"");
    put(t, mox_file_dtype_name(decl->dtype));
    put(t, "\",\"shape\":[");
    for (int32_t i = 0; i < decl->rank; i++) {
        put(t, i ? "," : "");
        put_number(t, (uint64_t)decl->shape[i]);
    }
    put(t, "],\"data_offsets\":[");
    put_number(t, *end);
    put(t, ",");
    put_number(t, *end += bytes);
    put(t, "]}");
    return MOXIE_OK;
}

static moxie_status put_object(text *t, const mox_tensor_decl *tensors, int64_t count, const char *const *metadata,
                               int64_t n_metadata, uint64_t *data_bytes, moxie_error *error)
{
    mox_name_map names = { 0 };
    moxie_status status = MOXIE_OK;
    put(t, "{");
    if (n_metadata > 0)
        status = put_metadata(t, metadata, n_metadata, error);
    for (int64_t i = 0; i < count && status == MOXIE_OK; i++) {
        put(t, i || n_metadata > 0 ? "," : "");
        status = put_entry(t, &tensors[i], &names, data_bytes, error);
    }
    put(t, "}");
    mox_name_map_free(&names);
    return status;
}

moxie_status mox_safetensors_header_make(const mox_tensor_decl *tensors, int64_t count, const char *const *metadata,
                                         int64_t n_metadata, unsigned char **out, uint64_t *out_size,
                                         uint64_t *data_bytes, moxie_error *error)
{
    text t = { 0 };
    uint64_t total = 0;
    put_bytes(&t, "\0\0\0\0\0\0\0\0", 8);
    moxie_status status = put_object(&t, tensors, count, metadata, n_metadata, &total, error);
    while (t.size % 8 && !t.out_of_memory)
        put(&t, " ");
    if (status == MOXIE_OK && t.out_of_memory)
        status = mox_fail(MOXIE_ERR_MEMORY, error, "no memory for the header of %lld tensors", (long long)count);
    if (status == MOXIE_OK && t.size - 8 > MOX_HEADER_MAX_BYTES)
        status = mox_fail(MOXIE_ERR_ARGUMENT, error,
                          "the header of %lld tensors has %llu bytes, the format allows %llu: split the file",
                          (long long)count, (unsigned long long)t.size - 8, (unsigned long long)MOX_HEADER_MAX_BYTES);
    if (status != MOXIE_OK) {
        mox_free(t.data);
        return status;
    }
    for (int i = 0; i < 8; i++)
        t.data[i] = (char)(unsigned char)((t.size - 8) >> 8 * i);
    *out = (unsigned char *)t.data;
    *out_size = t.size;
    *data_bytes = total;
    return MOXIE_OK;
}
