/* SPDX-License-Identifier: Apache-2.0
 *
 * imatrix.c - reads importance matrices (imatrix.h).
 */
#include "ckpt/gguf/imatrix.h"

#include <math.h>
#include <string.h>

#include "base/checksum.h"
#include "base/sizes.h"
#include "ckpt/gguf/gguf_cursor.h"
#include "ckpt/gguf/gguf_header.h"
#include "ckpt/name_map.h"
#include "ckpt/safetensors/file.h"
#include "format/format.h"

enum { MAX_NAME = 1024, MAX_ENTRIES = 1 << 20 };
/* The largest models of today have some gigabytes of sums. */
static const uint64_t max_bytes = UINT64_C(32) << 30;
/* Of the mean importance; a column that no token used still counts a little. */
static const float least_share = 1e-4f;

typedef struct entry {
    const unsigned char *sums; /* f32, unaligned */
    int64_t count;
} entry;

struct mox_imatrix {
    mox_arena arena;
    mox_file file;
    mox_name_map names;
    mox_tensor_list list; /* of a GGUF file */
    json_t *metadata;
    entry *entries;
    int64_t count, room;
    const char *path;
};

/* ---- entries ----------------------------------------------------------------------------------------- */

static moxie_status add(mox_imatrix *m, const char *name, const unsigned char *sums, int64_t count, moxie_error *error)
{
    int64_t existing;
    char escaped[160];
    mox_escape(escaped, sizeof escaped, name);
    for (int64_t i = 0; i < count; i++) {
        const float value = mox_load(MOXIE_F32, sums + 4 * i);
        if (!(value >= 0 && value < INFINITY))
            return mox_fail_file(MOXIE_ERR_FORMAT, error, m->path, sums + 4 * i - m->file.data,
                                 "value %lld of \"%s\" is %g, expected a finite sum of squares: make the importance "
                                 "matrix again",
                                 (long long)i, escaped, (double)value);
    }
    if (m->count == m->room) {
        const int64_t room = m->room > 0 ? 2 * m->room : 64;
        entry *grown = mox_realloc(m->entries, (uint64_t)room * sizeof *grown);
        MOX_FAIL_IF(!grown, MOXIE_ERR_MEMORY, error, "no memory for an importance matrix");
        m->entries = grown;
        m->room = room;
    }
    m->entries[m->count] = (entry) { sums, count };
    MOX_TRY(mox_name_map_put(&m->names, name, m->count++, &existing, error));
    if (existing >= 0)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, m->path, -1, "\"%s\" occurs twice", escaped);
    return MOXIE_OK;
}

static moxie_status read_old_entry(mox_imatrix *m, mox_gguf_cursor *c)
{
    uint64_t length = 0, calls = 0, values = 0;
    MOX_TRY(mox_gguf_integer(c, 4, "the length of a name", &length));
    if (length < 1 || length > MAX_NAME)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "a name has %llu bytes, expected 1 to %d: it is no importance matrix",
                             (unsigned long long)length, MAX_NAME);
    MOX_TRY(mox_gguf_need(c, length, "a name"));
    const char *name = mox_arena_strndup(&m->arena, (const char *)c->file + c->at, length);
    if (!name)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_MEMORY, "no memory for a name");
    if (strlen(name) != length)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "a name has a zero byte");
    c->at += length;
    MOX_TRY(mox_gguf_integer(c, 4, "the number of calls", &calls));
    MOX_TRY(mox_gguf_integer(c, 4, "the number of values", &values));
    if (values < 1 || values > INT32_MAX)
        return MOX_GGUF_FAIL(c, MOXIE_ERR_FORMAT, "an entry has %llu values, expected 1 to %d",
                             (unsigned long long)values, INT32_MAX);
    MOX_TRY(mox_gguf_need(c, 4 * values, "the values of an entry"));
    MOX_TRY(add(m, name, c->file + c->at, (int64_t)values, c->error));
    c->at += 4 * values;
    return MOXIE_OK;
}

static moxie_status read_old(mox_imatrix *m, moxie_error *error)
{
    mox_gguf_cursor c = { .file = m->file.data, .size = m->file.size, .path = m->path, .error = error };
    uint64_t entries = 0;
    MOX_TRY(mox_gguf_integer(&c, 4, "the number of entries", &entries));
    if (entries < 1 || entries > MAX_ENTRIES)
        return MOX_GGUF_FAIL(&c, MOXIE_ERR_FORMAT, "%llu entries, expected 1 to %d: it is no importance matrix",
                             (unsigned long long)entries, MAX_ENTRIES);
    for (uint64_t i = 0; i < entries; i++)
        MOX_TRY(read_old_entry(m, &c));
    return MOXIE_OK;
}

static moxie_status read_gguf(mox_imatrix *m, moxie_error *error)
{
    static const char tail[] = ".in_sum2";
    MOX_TRY(mox_gguf_header_parse(m->file.data, m->file.size, m->path, 0, &m->list, &m->metadata, error));
    for (int64_t i = 0; i < m->list.count; i++) {
        const mox_file_tensor *t = &m->list.tensors[i];
        const size_t length = strlen(t->name), end = strlen(tail);
        if (length <= end || strcmp(t->name + length - end, tail) != 0)
            continue;
        const char *name = mox_arena_strndup(&m->arena, t->name, length - end);
        MOX_FAIL_IF(!name, MOXIE_ERR_MEMORY, error, "no memory for a name");
        if (t->view.dtype != MOXIE_F32)
            return mox_fail_file(MOXIE_ERR_FORMAT, error, m->path, (int64_t)t->offset,
                                 "sums of an importance matrix are %s, expected f32", t->file_dtype);
        MOX_TRY(add(m, name, t->view.data, (int64_t)(t->bytes / 4), error));
    }
    if (m->count == 0)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, m->path, -1,
                             "the GGUF file has no tensor NAME.in_sum2: it is no importance matrix");
    return MOXIE_OK;
}

/* ---- the file ---------------------------------------------------------------------------------------- */

moxie_status mox_imatrix_open(const char *path, mox_imatrix **out, moxie_error *error)
{
    mox_imatrix *m = mox_alloc(sizeof *m);
    MOX_FAIL_IF(!m, MOXIE_ERR_MEMORY, error, "no memory for an importance matrix");
    m->path = mox_arena_strndup(&m->arena, path, strlen(path));
    moxie_status status = m->path ? mox_file_open(path, true, max_bytes, &m->file, error)
                                  : mox_fail(MOXIE_ERR_MEMORY, error, "no memory for an importance matrix");
    if (status == MOXIE_OK)
        status = mox_is_gguf(m->file.data, m->file.size) ? read_gguf(m, error) : read_old(m, error);
    if (status == MOXIE_OK)
        *out = m;
    else
        mox_imatrix_close(m);
    return status;
}

void mox_imatrix_close(mox_imatrix *m)
{
    if (!m)
        return;
    mox_file_close(&m->file);
    mox_name_map_free(&m->names);
    mox_free(m->list.tensors);
    mox_arena_free(&m->list.arena);
    json_decref(m->metadata);
    mox_arena_free(&m->arena);
    mox_free(m->entries);
    mox_free(m);
}

bool mox_imatrix_has(const mox_imatrix *m, const char *name)
{
    return mox_name_map_find(&m->names, name) >= 0;
}

uint64_t mox_imatrix_sum(const mox_imatrix *m)
{
    return mox_checksum(m->file.data, m->file.size);
}

moxie_status mox_imatrix_columns(const mox_imatrix *m, const char *name, int64_t expert, int64_t experts, int64_t cols,
                                 float *out, bool *found, moxie_error *error)
{
    const int64_t at = mox_name_map_find(&m->names, name);
    double sum = 0;
    *found = false;
    if (at < 0)
        return MOXIE_OK;
    const entry *e = &m->entries[at];
    if (e->count != cols && e->count != cols * experts)
        return mox_fail_file(
            MOXIE_ERR_MISMATCH, error, m->path, -1,
            "\"%s\" has %lld values, expected %lld or %lld (%lld experts): the importance matrix is of "
            "another model",
            name, (long long)e->count, (long long)cols, (long long)(cols * experts), (long long)experts);
    const unsigned char *from = e->sums + (e->count == cols ? 0 : 4 * expert * cols);
    for (int64_t i = 0; i < cols; i++)
        sum += (double)(out[i] = mox_load(MOXIE_F32, from + 4 * i));
    /* Only quotients matter: the mean becomes 1. */
    const double mean = sum / (double)cols;
    *found = mean > 0 && mean < (double)INFINITY;
    for (int64_t i = 0; i < cols && *found; i++)
        out[i] = fmaxf((float)((double)out[i] / mean), least_share);
    return MOXIE_OK;
}
