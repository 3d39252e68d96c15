/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_pairs.c - makes the bytes of metadata (gguf_pairs.h).
 */
#include "ckpt/gguf/gguf_pairs.h"

#include <string.h>

#include "base/memory.h"
#include "ckpt/gguf/gguf_cursor.h"

enum { U8, I8, U16, I16, U32, I32, F32, BOOLEAN, STRING, ARRAY, U64, I64, F64, VALUE_TYPES };
static const int value_bytes[VALUE_TYPES] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
enum { MAX_KEY = 65535 };

/* ---- bytes ------------------------------------------------------------------------------------------- */

static void put(mox_gguf_pairs *p, const void *bytes, uint64_t size)
{
    if (p->size + size > p->room) {
        const uint64_t room = 2 * (p->size + size) + 256;
        unsigned char *grown = mox_realloc(p->bytes, room);
        p->failed = p->failed || !grown;
        if (!grown)
            return;
        p->bytes = grown;
        p->room = room;
    }
    memcpy(p->bytes + p->size, bytes, size);
    p->size += size;
}

static void put_integer(mox_gguf_pairs *p, uint64_t value, int bytes)
{
    unsigned char out[8];
    for (int i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> 8 * i);
    put(p, out, (uint64_t)bytes);
}

static void put_string(mox_gguf_pairs *p, const char *text)
{
    put_integer(p, strlen(text), 8);
    put(p, text, strlen(text));
}

static void put_float(mox_gguf_pairs *p, double value)
{
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    put_integer(p, bits, 4);
}

/* ---- values ------------------------------------------------------------------------------------------ */

static bool has_reals(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_is_real(json_array_get(list, i)))
            return true;
    return false;
}

static void put_texts(mox_gguf_pairs *p, const json_t *list)
{
    put_integer(p, STRING, 4);
    put_integer(p, json_array_size(list), 8);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        p->failed = p->failed || !text;
        put_string(p, text ? text : "");
    }
}

static void put_list(mox_gguf_pairs *p, const json_t *list)
{
    if (json_is_string(json_array_get(list, 0))) {
        put_texts(p, list);
        return;
    }
    const bool reals = has_reals(list);
    put_integer(p, reals ? F32 : I32, 4);
    put_integer(p, json_array_size(list), 8);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const json_int_t whole = json_integer_value(entry);
        p->failed = p->failed || !json_is_number(entry) || whole < INT32_MIN || whole > INT32_MAX;
        if (reals)
            put_float(p, json_number_value(entry));
        else
            put_integer(p, (uint64_t)whole, 4);
    }
}

static void add(mox_gguf_pairs *p, const char *key, const json_t *value)
{
    const json_int_t integer = json_integer_value(value);
    put_string(p, key);
    p->count++;
    if (json_is_string(value)) {
        put_integer(p, STRING, 4);
        put_string(p, json_string_value(value));
    } else if (json_is_boolean(value)) {
        put_integer(p, BOOLEAN, 4);
        put_integer(p, json_is_true(value), 1);
    } else if (json_is_integer(value) && integer >= 0) {
        const bool wide = integer > (json_int_t)UINT32_MAX;
        put_integer(p, wide ? U64 : U32, 4);
        put_integer(p, (uint64_t)integer, wide ? 8 : 4);
    } else if (json_is_real(value)) {
        put_integer(p, F32, 4);
        put_float(p, json_real_value(value));
    } else if (json_is_array(value)) {
        put_integer(p, ARRAY, 4);
        put_list(p, value);
    } else {
        p->failed = true;
    }
}

void mox_gguf_pairs_add_all(mox_gguf_pairs *p, const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) add(p, key, value);
}

/* ---- another file ------------------------------------------------------------------------------------ */

static moxie_status pass_value(mox_gguf_cursor *c, uint64_t type, bool in_list)
{
    uint64_t count = 0;
    if (type == STRING)
        return mox_gguf_string(c, UINT64_MAX, "a string", NULL, NULL);
    if (type >= VALUE_TYPES || (type == ARRAY && in_list))
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "a value has type %llu, expected 0 to %d", (unsigned long long)type,
                             VALUE_TYPES - 1);
    if (type != ARRAY) {
        MOX_TRY(mox_gguf_need(c, (uint64_t)value_bytes[type], "a value"));
        c->at += (uint64_t)value_bytes[type];
        return MOXIE_OK;
    }
    MOX_TRY(mox_gguf_integer(c, 4, "the type of an array", &type));
    MOX_TRY(mox_gguf_integer(c, 8, "the length of an array", &count));
    for (uint64_t i = 0; i < count; i++)
        MOX_TRY(pass_value(c, type, true));
    return MOXIE_OK;
}

static moxie_status copy_pair(mox_gguf_pairs *p, mox_gguf_cursor *c, bool (*skip)(const char *key))
{
    mox_arena arena = { 0 };
    const char *key = NULL;
    uint64_t type = 0;
    const uint64_t start = c->at;
    moxie_status status = mox_gguf_string(c, MAX_KEY, "a key", &arena, &key);
    if (status == MOXIE_OK)
        status = mox_gguf_integer(c, 4, "the type of a value", &type);
    if (status == MOXIE_OK)
        status = pass_value(c, type, false);
    if (status == MOXIE_OK && !(skip && skip(key))) {
        put(p, c->file + start, c->at - start);
        p->count++;
    }
    mox_arena_free(&arena);
    return status;
}

moxie_status mox_gguf_pairs_copy(mox_gguf_pairs *p, const unsigned char *file, uint64_t size, const char *path,
                                 bool (*skip)(const char *key), moxie_error *error)
{
    mox_gguf_cursor c = { .file = file, .size = size, .path = path, .error = error };
    uint64_t pairs = 0;
    MOX_TRY(mox_gguf_need(&c, 24, "the head"));
    c.at = 16; /* magic, version, number of tensors */
    MOX_TRY(mox_gguf_integer(&c, 8, "the number of pairs", &pairs));
    for (uint64_t i = 0; i < pairs; i++)
        MOX_TRY(copy_pair(p, &c, skip));
    return MOXIE_OK;
}

void mox_gguf_pairs_free(mox_gguf_pairs *p)
{
    mox_free(p->bytes);
    *p = (mox_gguf_pairs) { 0 };
}
