/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_header.c - pairs, tensor infos and the tiling of the data (gguf_header.h). Counts are never trusted: an entry is
 * stored after it was read, so a count beyond the file's end fails at that end.
 */
#include "ckpt/gguf/gguf_header.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sizes.h"
#include "ckpt/gguf/gguf_cursor.h"
#include "ckpt/name_map.h"
#include "ckpt/safetensors/file.h"
#include "format/block.h"

enum { MAX_NAME = 1024, MAX_KEY = 65535, MAX_AXES = 4, MAX_ESCAPED = 160 };
#define DEFAULT_ALIGNMENT 32
/* ggml takes any power of two; a larger one than this is damage. */
#define MAX_ALIGNMENT ((uint64_t)1 << 20)

bool mox_is_gguf(const unsigned char *file, uint64_t size)
{
    return size >= 4 && memcmp(file, "GGUF", 4) == 0;
}

moxie_status mox_find_gguf_file(const char *path, bool *is, moxie_error *error)
{
    struct stat info;
    mox_file file = { 0 };
    *is = false;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return MOXIE_OK;
    MOX_TRY(mox_file_open(path, false, UINT64_MAX, &file, error));
    *is = mox_is_gguf(file.data, file.size);
    mox_file_close(&file);
    return MOXIE_OK;
}

bool mox_is_gguf_file(const char *path)
{
    bool is;
    return mox_find_gguf_file(path, &is, NULL) == MOXIE_OK && is;
}

/* ---- values ----------------------------------------------------------------------------------------- */

enum { U8, I8, U16, I16, U32, I32, F32, BOOLEAN, STRING, ARRAY, U64, I64, F64, VALUE_TYPES };
static const int value_bytes[VALUE_TYPES] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

/* NULL when out of memory. Numbers that JSON cannot hold become null. */
static json_t *number(int type, uint64_t bits)
{
    float narrow;
    double wide;
    const uint32_t low = (uint32_t)bits;
    switch (type) {
    case F32: memcpy(&narrow, &low, sizeof narrow); return isfinite(narrow) ? json_real((double)narrow) : json_null();
    case F64: memcpy(&wide, &bits, sizeof wide); return isfinite(wide) ? json_real(wide) : json_null();
    case BOOLEAN: return json_boolean(bits);
    case I8: return json_integer((int8_t)bits);
    case I16: return json_integer((int16_t)bits);
    case I32: return json_integer((int32_t)bits);
    case U64: return bits > INT64_MAX ? json_null() : json_integer((json_int_t)bits);
    default: return json_integer((json_int_t)bits);
    }
}

static moxie_status read_number(mox_gguf_cursor *c, int type, const char *key, json_t **out)
{
    uint64_t bits = 0;
    char escaped[MAX_ESCAPED];
    MOX_TRY(mox_gguf_integer(c, value_bytes[type], "a value", &bits));
    if (type == BOOLEAN && bits > 1)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "\"%s\" is a truth value of %llu, expected 0 or 1",
                             mox_escape(escaped, sizeof escaped, key), (unsigned long long)bits);
    *out = number(type, bits);
    return *out ? MOXIE_OK : MOX_GGUF_FAIL(c, MOXIE_ERR_MEMORY, "no memory for metadata");
}

/* Strings of an array are passed over. */
static moxie_status skip_strings(mox_gguf_cursor *c, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        MOX_TRY(mox_gguf_string(c, UINT64_MAX, "a string of an array", NULL, NULL));
    return MOXIE_OK;
}

static moxie_status read_array(mox_gguf_cursor *c, const char *key, json_t **out)
{
    uint64_t type = 0, count = 0, bytes;
    char escaped[MAX_ESCAPED];
    MOX_TRY(mox_gguf_integer(c, 4, "the type of an array", &type));
    MOX_TRY(mox_gguf_integer(c, 8, "the length of an array", &count));
    mox_escape(escaped, sizeof escaped, key);
    if (type >= VALUE_TYPES || type == ARRAY)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "\"%s\" is an array of type %llu, expected 0 to %d and no array",
                             escaped, (unsigned long long)type, VALUE_TYPES - 1);
    if (type == STRING) {
        MOX_TRY(skip_strings(c, count));
        *out = json_null();
        return MOXIE_OK;
    }
    if (!mox_mul_u64(count, (uint64_t)value_bytes[type], &bytes))
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "\"%s\" has %llu entries, more bytes than 64 bits count", escaped,
                             (unsigned long long)count);
    MOX_TRY(mox_gguf_need(c, bytes, "an array"));
    if (count > MOX_GGUF_MAX_ARRAY) {
        c->at += bytes;
        *out = json_null();
        return MOXIE_OK;
    }
    json_t *list = json_array(), *entry = NULL;
    moxie_status status = list ? MOXIE_OK : MOX_GGUF_FAIL(c, MOXIE_ERR_MEMORY, "no memory for metadata");
    for (uint64_t i = 0; status == MOXIE_OK && i < count; i++) {
        status = read_number(c, (int)type, key, &entry);
        if (status == MOXIE_OK && json_array_append_new(list, entry) != 0)
            status = MOX_GGUF_FAIL(c, MOXIE_ERR_MEMORY, "no memory for metadata");
    }
    if (status == MOXIE_OK)
        *out = list;
    else
        json_decref(list);
    return status;
}

static moxie_status read_text(mox_gguf_cursor *c, mox_arena *arena, json_t **out)
{
    const char *text;
    const uint64_t start = c->at;
    MOX_TRY(mox_gguf_string(c, UINT64_MAX, "a string", NULL, NULL));
    /* Chat templates and licenses may be of any encoding; nothing reads them. */
    moxie_error ignored;
    mox_gguf_cursor again = *c;
    again.at = start;
    again.error = &ignored;
    const moxie_status status = mox_gguf_string(&again, MAX_KEY, "a string", arena, &text);
    if (status == MOXIE_ERR_MEMORY)
        return MOX_GGUF_FAIL(c, status, "no memory for metadata");
    *out = status == MOXIE_OK ? json_string(text) : json_null();
    return *out ? MOXIE_OK : MOX_GGUF_FAIL(c, MOXIE_ERR_MEMORY, "no memory for metadata");
}

/* One pair. Its key must be new. */
static moxie_status read_pair(mox_gguf_cursor *c, mox_arena *arena, mox_name_map *keys, json_t *metadata)
{
    const char *key;
    char escaped[MAX_ESCAPED];
    uint64_t type = 0;
    int64_t existing;
    json_t *value = NULL;
    MOX_TRY(mox_gguf_string(c, MAX_KEY, "a key", arena, &key));
    MOX_TRY(mox_name_map_put(keys, key, 0, &existing, c->error));
    mox_escape(escaped, sizeof escaped, key);
    if (existing >= 0)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "the key \"%s\" occurs twice", escaped);
    MOX_TRY(mox_gguf_integer(c, 4, "the type of a value", &type));
    if (type >= VALUE_TYPES)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "\"%s\" has a value of type %llu, expected 0 to %d", escaped,
                             (unsigned long long)type, VALUE_TYPES - 1);
    if (type == STRING)
        MOX_TRY(read_text(c, arena, &value));
    else if (type == ARRAY)
        MOX_TRY(read_array(c, key, &value));
    else
        MOX_TRY(read_number(c, (int)type, key, &value));
    if (value && json_object_set_new(metadata, key, value) != 0)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_MEMORY, "no memory for metadata");
    return MOXIE_OK;
}

/* ---- tensors ---------------------------------------------------------------------------------------- */

/* Types of GGUF tensors that are no block types. `dtype` NONE: no number format in moxie. */
typedef struct plain_type {
    uint64_t type;
    const char *name;
    moxie_dtype dtype;
    uint64_t weights, bytes;
} plain_type;

static const plain_type plain_types[] = {
    { 0, "f32", MOXIE_F32, 1, 4 },
    { 1, "f16", MOXIE_F16, 1, 2 },
    { 9, "q8_1", MOXIE_DTYPE_NONE, 32, 36 },
    { 24, "i8", MOXIE_I8, 1, 1 },
    { 15, "q8_k", MOXIE_DTYPE_NONE, 256, 292 },
    { 25, "i16", MOXIE_I16, 1, 2 },
    { 26, "i32", MOXIE_I32, 1, 4 },
    { 27, "i64", MOXIE_I64, 1, 8 },
    { 28, "f64", MOXIE_F64, 1, 8 },
    { 30, "bf16", MOXIE_BF16, 1, 2 },
};

static bool find_type(uint64_t type, plain_type *out)
{
    for (int32_t i = 0; mox_block_at(i); i++) {
        const mox_block *b = mox_block_at(i);
        if ((uint64_t)b->type == type) {
            *out = (plain_type) { type, b->format.name, b->format.dtype, (uint64_t)b->weights, (uint64_t)b->bytes };
            return true;
        }
    }
    for (size_t i = 0; i < sizeof plain_types / sizeof plain_types[0]; i++)
        if (plain_types[i].type == type) {
            *out = plain_types[i];
            return true;
        }
    return false;
}

/* Axes of an info, the fastest first in the file; and their product. */
static moxie_status read_axes(mox_gguf_cursor *c, const char *escaped, mox_file_tensor *t, uint64_t *elements)
{
    uint64_t axes = 0, extent = 0;
    MOX_TRY(mox_gguf_integer(c, 4, "the number of axes", &axes));
    if (axes > MAX_AXES)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "tensor \"%s\" has %llu axes, expected at most %d", escaped,
                             (unsigned long long)axes, MAX_AXES);
    *elements = 1;
    t->view.rank = (int32_t)axes;
    for (uint64_t i = 0; i < axes; i++) {
        MOX_TRY(mox_gguf_integer(c, 8, "an extent", &extent));
        if (extent > INT64_MAX || !mox_mul_u64(*elements, extent, elements))
            return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "the shape of tensor \"%s\" multiplies to more than 64 bits",
                                 escaped);
        t->view.shape[axes - 1 - i] = (int64_t)extent;
    }
    return MOXIE_OK;
}

static moxie_status read_info(mox_gguf_cursor *c, const char *name, mox_file_tensor *t)
{
    uint64_t elements = 1, type = 0, offset = 0;
    char escaped[MAX_ESCAPED];
    plain_type found;
    mox_escape(escaped, sizeof escaped, name);
    MOX_TRY(read_axes(c, escaped, t, &elements));
    MOX_TRY(mox_gguf_integer(c, 4, "the type of a tensor", &type));
    if (!find_type(type, &found))
        return MOX_GGUF_FAIL(c, MOXIE_ERR_UNSUPPORTED,
                             "tensor \"%s\" has type %llu, which is not known here (types of 137 and more are "
                             "ik_llama.cpp's); use a file in ggml's own types",
                             escaped, (unsigned long long)type);
    const uint64_t fastest = t->view.rank > 0 ? (uint64_t)t->view.shape[t->view.rank - 1] : 1;
    if (fastest % found.weights != 0)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT,
                             "tensor \"%s\" has rows of %llu, blocks of %s have %llu: not a multiple", escaped,
                             (unsigned long long)fastest, found.name, (unsigned long long)found.weights);
    if (!mox_mul_u64(elements / found.weights, found.bytes, &t->bytes) || t->bytes > INT64_MAX)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "tensor \"%s\" has more bytes than 63 bits count", escaped);
    MOX_TRY(mox_gguf_integer(c, 8, "the offset of a tensor", &offset));
    t->name = name;
    t->file_dtype = found.name;
    t->view.dtype = found.dtype;
    t->offset = offset; /* in the data, until place_tensors() */
    if (found.dtype == MOXIE_DTYPE_NONE)
        t->unusable = "its type only holds activations in ggml";
    return MOXIE_OK;
}

static moxie_status append(mox_gguf_cursor *c, mox_tensor_list *list, const mox_file_tensor *tensor)
{
    if (list->count == MOX_MAX_TENSORS)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "there are more than %lld tensors", (long long)MOX_MAX_TENSORS);
    if (list->count == list->capacity) {
        const int64_t capacity = list->capacity ? 2 * list->capacity : 64;
        mox_file_tensor *grown = mox_realloc(list->tensors, (uint64_t)capacity * sizeof *grown);
        if (!grown)
            return MOX_GGUF_FAIL(c, MOXIE_ERR_MEMORY, "no memory for %lld tensors", (long long)capacity);
        list->tensors = grown;
        list->capacity = capacity;
    }
    list->tensors[list->count++] = *tensor;
    return MOXIE_OK;
}

static moxie_status read_tensor(mox_gguf_cursor *c, mox_name_map *names, int32_t shard, mox_tensor_list *list)
{
    const char *name;
    char escaped[MAX_ESCAPED];
    int64_t existing;
    mox_file_tensor tensor = { .file = shard };
    MOX_TRY(mox_gguf_string(c, MAX_NAME, "the name of a tensor", &list->arena, &name));
    MOX_TRY(mox_name_map_put(names, name, 0, &existing, c->error));
    if (existing >= 0)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "the tensor \"%s\" occurs twice",
                             mox_escape(escaped, sizeof escaped, name));
    MOX_TRY(read_info(c, name, &tensor));
    return append(c, list, &tensor);
}

/* Gives the tensors from `first` on their places: in order, each on a multiple of `alignment`, inside the file. */
static moxie_status place_tensors(mox_gguf_cursor *c, unsigned char *file, uint64_t alignment, int64_t first,
                                  mox_tensor_list *list)
{
    uint64_t start, reached = 0, end;
    char escaped[MAX_ESCAPED];
    if (!mox_align_u64(c->at, alignment, &start))
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "the data begins beyond 64 bits");
    for (int64_t i = first; i < list->count; i++) {
        mox_file_tensor *t = &list->tensors[i];
        mox_escape(escaped, sizeof escaped, t->name);
        if (t->offset != reached)
            return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT,
                                 "tensor \"%s\" begins at byte %llu of the data, expected %llu: %s", escaped,
                                 (unsigned long long)t->offset, (unsigned long long)reached,
                                 t->offset < reached ? "tensors overlap" : "tensors leave a hole");
        if (!mox_add_u64(start, reached, &t->offset) || !mox_add_u64(t->offset, t->bytes, &end) || end > c->size)
            return MOX_GGUF_FAIL(
                c, MOXIE_ERR_FORMAT,
                "tensor \"%s\" takes %llu bytes at byte %llu of the data, but the file has %llu bytes: "
                "it was cut short or damaged, copy or download it again",
                escaped, (unsigned long long)t->bytes, (unsigned long long)reached, (unsigned long long)c->size);
        t->view.data = file + t->offset;
        if (!mox_align_u64(end - start, alignment, &reached))
            return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "the tensors end beyond 64 bits");
    }
    return MOXIE_OK;
}

/* ---- the file --------------------------------------------------------------------------------------- */

static moxie_status read_version(mox_gguf_cursor *c)
{
    uint64_t version = 0;
    if (!mox_is_gguf(c->file, c->size))
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "the file does not begin with \"GGUF\": it is no GGUF file");
    c->at = 4;
    MOX_TRY(mox_gguf_integer(c, 4, "the version", &version));
    if (version != 0 && (version & 0xffff) == 0)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_UNSUPPORTED,
                             "a big-endian GGUF file; convert it to little endian (gguf-py: gguf_convert_endian.py)");
    if (version != 2 && version != 3)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_UNSUPPORTED, "GGUF version %llu; versions 2 and 3 are read: convert the file",
                             (unsigned long long)version);
    return MOXIE_OK;
}

static moxie_status read_alignment(const mox_gguf_cursor *c, const json_t *metadata, uint64_t *out)
{
    const json_t *value = json_object_get(metadata, "general.alignment");
    const json_int_t alignment = value ? json_integer_value(value) : DEFAULT_ALIGNMENT;
    *out = (uint64_t)alignment;
    if (alignment < 1 || *out > MAX_ALIGNMENT || (*out & (*out - 1)) != 0)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "general.alignment is %lld, expected a power of two up to %llu",
                             (long long)alignment, (unsigned long long)MAX_ALIGNMENT);
    return MOXIE_OK;
}

static moxie_status parse(mox_gguf_cursor *c, unsigned char *file, int32_t shard, mox_name_map maps[2],
                          mox_tensor_list *list, json_t *metadata)
{
    uint64_t tensors = 0, pairs = 0, alignment = 0;
    const int64_t first = list->count;
    MOX_TRY(read_version(c));
    MOX_TRY(mox_gguf_integer(c, 8, "the number of tensors", &tensors));
    MOX_TRY(mox_gguf_integer(c, 8, "the number of pairs", &pairs));
    for (uint64_t i = 0; i < pairs; i++)
        MOX_TRY(read_pair(c, &list->arena, &maps[0], metadata));
    MOX_TRY(read_alignment(c, metadata, &alignment));
    for (uint64_t i = 0; i < tensors; i++)
        MOX_TRY(read_tensor(c, &maps[1], shard, list));
    return place_tensors(c, file, alignment, first, list);
}

moxie_status mox_gguf_header_parse(unsigned char *file, uint64_t size, const char *path, int32_t shard,
                                   mox_tensor_list *list, json_t **metadata, moxie_error *error)
{
    mox_gguf_cursor c = { .file = file, .size = size, .path = path, .error = error };
    mox_name_map maps[2] = { { 0 } }; /* keys, tensors */
    json_t *object = json_object();
    moxie_status status = object ? parse(&c, file, shard, maps, list, object)
                                 : MOX_GGUF_FAIL(&c, MOXIE_ERR_MEMORY, "no memory to read it");
    mox_name_map_free(&maps[0]);
    mox_name_map_free(&maps[1]);
    if (status == MOXIE_OK)
        *metadata = object;
    else
        json_decref(object);
    return status;
}
