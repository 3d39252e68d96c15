/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors_header.c - parses every entry, then proves that the tensors tile the data.
 *
 *     for each entry:   product(shape) * bits = 8 * (end - begin),   begin <= end <= bytes of data
 *     sorted by begin:  begin[0] = 0,  begin[i] = end[i - 1],  end[last] = bytes of data
 *
 * Stricter than the reference reader, which keeps the last of two equal keys and ignores unknown fields: a file that
 * two readers could understand differently is rejected. Time is O(n log n) at worst, and linear when the header lists
 * the tensors in the order of their data.
 */
#include "ckpt/safetensors/safetensors_header.h"

#include <stdlib.h>
#include <string.h>

#include "base/sizes.h"
#include "ckpt/safetensors/file_dtype.h"
#include "ckpt/safetensors/header_json.h"
#include "ckpt/name_map.h"

#define MAX_ESCAPED 160

/* State while the header of one file is read. */
typedef struct header {
    mox_cursor cursor;
    uint64_t data_start, data_bytes; /* of the data in the file */
    mox_name_map names;              /* names in this file, to find duplicates */
    mox_tensor_list *list;
} header;

typedef struct entry {
    const mox_file_dtype *dtype;
    bool has_shape, has_offsets;
    int64_t shape[MOXIE_MAX_RANK];
    int64_t rank;
    uint64_t elements; /* product of the axes that are not 0 */
    bool empty;        /* an axis is 0 */
    uint64_t begin, end;
} entry;

/* ---- entries ---------------------------------------------------------------------------------------- */

static moxie_status parse_dtype(mox_cursor *c, entry *e, const char *escaped)
{
    char word[32], escaped_word[80];
    MOX_TRY(mox_cursor_word(c, word, sizeof word));
    e->dtype = mox_file_dtype_by_name(word);
    if (!e->dtype)
        return MOX_CURSOR_FAIL(c, "tensor \"%s\" has the unknown dtype \"%s\", so its size cannot be checked", escaped,
                               mox_escape(escaped_word, sizeof escaped_word, word));
    return MOXIE_OK;
}

static moxie_status parse_shape(mox_cursor *c, entry *e, const char *escaped)
{
    e->has_shape = true;
    e->elements = 1;
    MOX_TRY(mox_cursor_expect(c, '[', "before a shape"));
    if (mox_cursor_accept(c, ']'))
        return MOXIE_OK;
    do {
        uint64_t axis;
        MOX_TRY(mox_cursor_integer(c, &axis));
        if (axis == 0)
            e->empty = true;
        else if (!mox_mul_u64(e->elements, axis, &e->elements))
            return MOX_CURSOR_FAIL(c, "the shape of tensor \"%s\" multiplies to more than 64 bits", escaped);
        if (e->rank < MOXIE_MAX_RANK)
            e->shape[e->rank] = (int64_t)axis;
        e->rank++;
    } while (mox_cursor_accept(c, ','));
    return mox_cursor_expect(c, ']', "behind a shape");
}

static moxie_status parse_offsets(mox_cursor *c, entry *e)
{
    e->has_offsets = true;
    MOX_TRY(mox_cursor_expect(c, '[', "before data_offsets"));
    MOX_TRY(mox_cursor_integer(c, &e->begin));
    MOX_TRY(mox_cursor_expect(c, ',', "between the two data_offsets"));
    MOX_TRY(mox_cursor_integer(c, &e->end));
    return mox_cursor_expect(c, ']', "behind the two data_offsets");
}

static moxie_status parse_field(mox_cursor *c, entry *e, const char *escaped)
{
    char key[32], escaped_key[80];
    MOX_TRY(mox_cursor_word(c, key, sizeof key));
    MOX_TRY(mox_cursor_expect(c, ':', "behind a field's name"));
    const bool dtype = strcmp(key, "dtype") == 0, shape = strcmp(key, "shape") == 0;
    const bool offsets = strcmp(key, "data_offsets") == 0;
    if ((dtype && e->dtype) || (shape && e->has_shape) || (offsets && e->has_offsets))
        return MOX_CURSOR_FAIL(c, "tensor \"%s\" has two fields \"%s\"", escaped, key);
    if (dtype)
        return parse_dtype(c, e, escaped);
    if (shape)
        return parse_shape(c, e, escaped);
    if (offsets)
        return parse_offsets(c, e);
    return MOX_CURSOR_FAIL(c, "tensor \"%s\" has the unknown field \"%s\": expected dtype, shape and data_offsets",
                           escaped, mox_escape(escaped_key, sizeof escaped_key, key));
}

/* Checks the size from shape and dtype against the offsets, and the offsets against the file. */
static moxie_status check_entry(const header *h, const entry *e, const char *escaped)
{
    const mox_cursor *c = &h->cursor;
    if (!e->dtype || !e->has_shape || !e->has_offsets)
        return MOX_CURSOR_FAIL(c, "tensor \"%s\" has no field \"%s\"", escaped,
                               !e->dtype       ? "dtype"
                               : !e->has_shape ? "shape"
                                               : "data_offsets");
    uint64_t bits;
    if (!mox_mul_u64(e->elements, (uint64_t)e->dtype->bits, &bits))
        return MOX_CURSOR_FAIL(c, "the shape of tensor \"%s\" multiplies to more than 64 bits", escaped);
    if (e->empty)
        bits = 0;
    if (bits % 8)
        return MOX_CURSOR_FAIL(c, "tensor \"%s\": %llu elements of %s (%d bits) do not fill whole bytes", escaped,
                               (unsigned long long)e->elements, e->dtype->name, (int)e->dtype->bits);
    if (e->begin > e->end || e->end > h->data_bytes)
        return MOX_CURSOR_FAIL(
            c,
            "tensor \"%s\" lies at [%llu, %llu), but the file has %llu bytes of data: it was cut short or "
            "damaged, copy or download it again",
            escaped, (unsigned long long)e->begin, (unsigned long long)e->end, (unsigned long long)h->data_bytes);
    if (bits / 8 != e->end - e->begin)
        return MOX_CURSOR_FAIL(c, "tensor \"%s\": its shape needs %llu bytes of %s, its data_offsets give %llu",
                               escaped, (unsigned long long)(bits / 8), e->dtype->name,
                               (unsigned long long)(e->end - e->begin));
    return MOXIE_OK;
}

static moxie_status append(header *h, const char *name, const entry *e, int32_t shard)
{
    mox_tensor_list *list = h->list;
    if (list->count == MOX_MAX_TENSORS)
        return MOX_CURSOR_FAIL(&h->cursor, "there are more than %lld tensors", (long long)MOX_MAX_TENSORS);
    if (list->count == list->capacity) {
        const int64_t capacity = list->capacity ? 2 * list->capacity : 64;
        mox_file_tensor *grown = mox_realloc(list->tensors, (uint64_t)capacity * sizeof *grown);
        if (!grown)
            return mox_fail_file(MOXIE_ERR_MEMORY, h->cursor.error, h->cursor.path, -1, "no memory for %lld tensors",
                                 (long long)capacity);
        list->tensors = grown;
        list->capacity = capacity;
    }
    mox_file_tensor *t = &list->tensors[list->count++];
    *t = (mox_file_tensor) { .name = name, .file = shard, .file_dtype = e->dtype->name };
    t->bytes = e->end - e->begin;
    t->offset = h->data_start + e->begin;
    if (e->dtype->dtype == MOXIE_DTYPE_NONE)
        t->unusable = "its dtype has no number format in moxie";
    else if (e->rank > MOXIE_MAX_RANK)
        t->unusable = "it has more than 5 axes";
    t->view.dtype = t->unusable ? MOXIE_DTYPE_NONE : e->dtype->dtype;
    t->view.rank = (int32_t)mox_min_i64(e->rank, MOXIE_MAX_RANK);
    memcpy(t->view.shape, e->shape, sizeof t->view.shape);
    return MOXIE_OK;
}

static moxie_status parse_entry(header *h, const char *name, int32_t shard)
{
    mox_cursor *c = &h->cursor;
    entry e = { 0 };
    char escaped[MAX_ESCAPED];
    mox_escape(escaped, sizeof escaped, name);
    MOX_TRY(mox_cursor_expect(c, '{', "before a tensor's fields"));
    do {
        MOX_TRY(parse_field(c, &e, escaped));
    } while (mox_cursor_accept(c, ','));
    MOX_TRY(mox_cursor_expect(c, '}', "behind a tensor's fields"));
    MOX_TRY(check_entry(h, &e, escaped));
    return append(h, name, &e, shard);
}

/* ---- the object ------------------------------------------------------------------------------------- */

/* Parses a key that must be new among `names`. */
static moxie_status parse_key(header *h, mox_name_map *names, const char *what, const char **key)
{
    mox_cursor *c = &h->cursor;
    int64_t existing;
    MOX_TRY(mox_cursor_string(c, &h->list->arena, key));
    MOX_TRY(mox_name_map_put(names, *key, 0, &existing, c->error));
    char escaped[MAX_ESCAPED];
    if (existing >= 0)
        return MOX_CURSOR_FAIL(c, "%s \"%s\" occurs twice", what, mox_escape(escaped, sizeof escaped, *key));
    return mox_cursor_expect(c, ':', "behind a name");
}

static moxie_status append_metadata(header *h, const char *key, const char *value, int32_t shard)
{
    mox_tensor_list *list = h->list;
    if (list->n_metadata == list->metadata_capacity) {
        const int64_t capacity = list->metadata_capacity ? 2 * list->metadata_capacity : 8;
        mox_file_metadata *grown = mox_realloc(list->metadata, (uint64_t)capacity * sizeof *grown);
        if (!grown)
            return mox_fail_file(MOXIE_ERR_MEMORY, h->cursor.error, h->cursor.path, -1, "no memory for its metadata");
        list->metadata = grown;
        list->metadata_capacity = capacity;
    }
    list->metadata[list->n_metadata++] = (mox_file_metadata) { key, value, shard };
    return MOXIE_OK;
}

/* {"key": "value", ...} */
static moxie_status parse_metadata(header *h, mox_name_map *keys, int32_t shard)
{
    mox_cursor *c = &h->cursor;
    MOX_TRY(mox_cursor_expect(c, '{', "before __metadata__"));
    if (mox_cursor_accept(c, '}'))
        return MOXIE_OK;
    do {
        const char *key, *value;
        MOX_TRY(parse_key(h, keys, "the __metadata__ key", &key));
        MOX_TRY(mox_cursor_string(c, &h->list->arena, &value));
        MOX_TRY(append_metadata(h, key, value, shard));
    } while (mox_cursor_accept(c, ','));
    return mox_cursor_expect(c, '}', "behind __metadata__");
}

static moxie_status parse_object(header *h, int32_t shard)
{
    mox_cursor *c = &h->cursor;
    if (c->at == c->end || *c->at != '{')
        return MOX_CURSOR_FAIL(c, "the header does not begin with '{': this is no safetensors file");
    c->at++;
    if (mox_cursor_accept(c, '}'))
        return MOXIE_OK;
    do {
        const char *key;
        MOX_TRY(parse_key(h, &h->names, "the tensor", &key));
        if (strcmp(key, "__metadata__") == 0) {
            mox_name_map keys = { 0 };
            const moxie_status status = parse_metadata(h, &keys, shard);
            mox_name_map_free(&keys);
            MOX_TRY(status);
        } else {
            MOX_TRY(parse_entry(h, key, shard));
        }
    } while (mox_cursor_accept(c, ','));
    return mox_cursor_expect(c, '}', "behind the last tensor");
}

/* Only blanks, the padding, may follow the object. */
static moxie_status check_padding(mox_cursor *c)
{
    while (c->at < c->end && *c->at == ' ')
        c->at++;
    if (c->at < c->end)
        return MOX_CURSOR_FAIL(c, "the header goes on behind its object (byte 0x%02x): only blanks may stand there",
                               *c->at);
    return MOXIE_OK;
}

/* ---- tiling ----------------------------------------------------------------------------------------- */

/* Sorts by offset; an empty tensor comes before one that begins at the same offset. */
static int by_offset(const void *a, const void *b)
{
    const mox_file_tensor *x = *(const mox_file_tensor *const *)a, *y = *(const mox_file_tensor *const *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* `order` holds the tensors by offset. */
static moxie_status check_tiling(const header *h, const mox_file_tensor *const *order, int64_t count)
{
    const mox_cursor *c = &h->cursor;
    uint64_t reached = h->data_start;
    char escaped[MAX_ESCAPED];
    for (int64_t i = 0; i < count; i++) {
        if (order[i]->offset != reached)
            return mox_fail_file(MOXIE_ERR_FORMAT, c->error, c->path, (int64_t)order[i]->offset,
                                 "tensor \"%s\" begins at byte %llu of the data, expected %llu: the tensors %s",
                                 mox_escape(escaped, sizeof escaped, order[i]->name),
                                 (unsigned long long)(order[i]->offset - h->data_start),
                                 (unsigned long long)(reached - h->data_start),
                                 order[i]->offset < reached ? "overlap" : "leave a hole");
        reached += order[i]->bytes;
    }
    if (reached != h->data_start + h->data_bytes)
        return mox_fail_file(MOXIE_ERR_FORMAT, c->error, c->path, (int64_t)reached,
                             "the tensors end after %llu bytes of data, but the file has %llu: it is damaged, copy or "
                             "download it again",
                             (unsigned long long)(reached - h->data_start), (unsigned long long)h->data_bytes);
    return MOXIE_OK;
}

/* Proves that the tensors from `first` on tile the data, and gives them their pointers. */
static moxie_status place_tensors(const header *h, unsigned char *file, int64_t first)
{
    mox_file_tensor *tensors = h->list->tensors;
    const int64_t count = h->list->count - first;
    const mox_file_tensor **order = mox_calloc((uint64_t)count, sizeof *order);
    if (!order)
        return mox_fail_file(MOXIE_ERR_MEMORY, h->cursor.error, h->cursor.path, -1, "no memory to sort %lld tensors",
                             (long long)count);
    bool sorted = true;
    for (int64_t i = 0; i < count; i++) {
        order[i] = &tensors[first + i];
        sorted = sorted && (i == 0 || by_offset(&order[i - 1], &order[i]) <= 0);
    }
    if (!sorted)
        qsort(order, (size_t)count, sizeof *order, by_offset);
    const moxie_status status = check_tiling(h, order, count);
    mox_free(order);
    for (int64_t i = first; status == MOXIE_OK && i < h->list->count; i++)
        tensors[i].view.data = file + tensors[i].offset;
    return status;
}

/* ---- the file --------------------------------------------------------------------------------------- */

/* Reads N and checks it against the limit of the format and the size of the file. */
static moxie_status header_length(const unsigned char *file, uint64_t size, const char *path, uint64_t *out,
                                  moxie_error *error)
{
    if (size < 8)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, path, 0,
                             "the file has %llu bytes, a safetensors file has at least 8", (unsigned long long)size);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | file[i];
    if (n > MOX_HEADER_MAX_BYTES)
        return mox_fail_file(
            MOXIE_ERR_FORMAT, error, path, 0,
            "the header is said to have %llu bytes, the format allows %llu: this is no safetensors file",
            (unsigned long long)n, (unsigned long long)MOX_HEADER_MAX_BYTES);
    if (n > size - 8)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, path, 0,
                             "the header is said to have %llu bytes, but only %llu follow: the file is truncated",
                             (unsigned long long)n, (unsigned long long)(size - 8));
    *out = n;
    return MOXIE_OK;
}

moxie_status mox_safetensors_header_parse(unsigned char *file, uint64_t size, const char *path, int32_t shard,
                                          mox_tensor_list *list, moxie_error *error)
{
    uint64_t n = 0;
    MOX_TRY(header_length(file, size, path, &n, error));
    header h = { .data_start = 8 + n, .data_bytes = size - 8 - n, .list = list };
    h.cursor = (mox_cursor) { .at = file + 8, .end = file + 8 + n, .file = file, .path = path, .error = error };
    const int64_t first = list->count;
    moxie_status status = parse_object(&h, shard);
    if (status == MOXIE_OK)
        status = check_padding(&h.cursor);
    if (status == MOXIE_OK)
        status = place_tensors(&h, file, first);
    mox_name_map_free(&h.names);
    return status;
}

void mox_tensor_list_free(mox_tensor_list *list)
{
    mox_free(list->metadata);
    mox_free(list->tensors);
    mox_arena_free(&list->arena);
    *list = (mox_tensor_list) { 0 };
}
