/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_check.c - opens an expert file: every rule of docs/expert-file.md that needs no byte of a record, then, when
 * it is asked for, the records.
 *
 *     loaded bytes -> table of sections, index: names, numbers, ranges -> no two overlap -> checksums
 *                  -> configuration and its arrays -> shapes: are the records of this size?
 *
 * The file is untrusted: nothing is read before its range was checked.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/executor.h"
#include "pack/order/column_order.h"
#include "store/expert_file.h"

/* ---- ranges ------------------------------------------------------------------------------------------------ */

/* `what` names the range in an error, with `number` where that is not negative. */
static moxie_status bad_range(const moxie_expert_file *file, const mox_expert_range *r, const char *what,
                              int64_t number, const char *why, moxie_error *error)
{
    char name[64] = "";
    if (number >= 0)
        snprintf(name, sizeof name, " %lld", (long long)number);
    return mox_fail_file(MOXIE_ERR_FORMAT, error, file->path, (int64_t)(r->offset & INT64_MAX),
                         "its %s%s, %llu bytes at %llu of %llu, %s: prepare the file anew", what, name,
                         (unsigned long long)r->bytes, (unsigned long long)r->offset,
                         (unsigned long long)file->seal.file_bytes, why);
}

static moxie_status check_range(const moxie_expert_file *file, const mox_expert_range *r, const char *what,
                                int64_t number, moxie_error *error)
{
    const uint64_t end = file->seal.file_bytes;
    if (r->offset % MOX_EXPERT_PAGE != 0)
        return bad_range(file, r, what, number, "does not begin on a page", error);
    if (r->offset < MOX_EXPERT_FIRST || r->offset > end || r->bytes > end - r->offset)
        return bad_range(file, r, what, number, "does not lie in the file", error);
    return MOXIE_OK;
}

static moxie_status check_sum(const moxie_expert_file *file, const mox_expert_range *r, const char *what,
                              moxie_error *error)
{
    if (mox_checksum(file->data + r->offset, mox_expert_padded(r->bytes)) == r->checksum)
        return MOXIE_OK;
    return mox_fail_file(MOXIE_ERR_MISMATCH, error, file->path, (int64_t)r->offset,
                         "its %s is damaged: the checksum differs; prepare the file anew", what);
}

static int by_offset(const void *a, const void *b)
{
    const mox_expert_range *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* No two parts share a page. Parts of 0 bytes take none. */
static moxie_status check_overlap(const moxie_expert_file *file, moxie_error *error)
{
    const mox_expert_header *h = &file->header;
    mox_expert_range *all = mox_calloc((uint64_t)h->experts + 2 + h->n_sections, sizeof *all);
    uint64_t count = 0;
    moxie_status status = MOXIE_OK;
    MOX_FAIL_IF(all == NULL, MOXIE_ERR_MEMORY, error, "no memory for a list of ranges");
    all[count++] = file->seal.index;
    for (uint32_t i = 0; i < h->n_sections; i++)
        all[count++] = h->sections[i].range;
    for (int64_t e = 0; e <= h->experts; e++)
        all[count++] = file->index[e].range;
    qsort(all, count, sizeof *all, by_offset);
    for (uint64_t i = 0, end = 0; status == MOXIE_OK && i < count; i++) {
        if (all[i].bytes == 0)
            continue;
        if (all[i].offset < end)
            status = bad_range(file, &all[i], "part", -1, "overlaps another one", error);
        end = all[i].offset + mox_expert_padded(all[i].bytes);
    }
    mox_free(all);
    return status;
}

/* ---- header and index --------------------------------------------------------------------------------------- */

static bool is_text(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

static moxie_status check_header(const moxie_expert_file *file, moxie_error *error)
{
    const mox_expert_header *h = &file->header;
    bool good = h->n_sections <= MOX_EXPERT_MAX_SECTIONS && h->experts >= 1 && h->experts <= MOXIE_MAX_EXPERTS &&
                h->held >= 0 && h->held <= h->experts && is_text(h->target, sizeof h->target) &&
                is_text(h->layout_name, sizeof h->layout_name) &&
                is_text(h->shared_layout_name, sizeof h->shared_layout_name);
    for (uint32_t i = 0; good && i < h->n_sections; i++)
        good = is_text(h->sections[i].name, sizeof h->sections[i].name) &&
               mox_expert_find_section(h, h->sections[i].name) == &h->sections[i];
    if (!good)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, file->path, 0,
                             "its header contradicts itself: %lld experts, of which it has %lld, %u sections",
                             (long long)h->experts, (long long)h->held, (unsigned)h->n_sections);
    for (uint32_t i = 0; i < h->n_sections; i++) {
        const mox_expert_section *s = &h->sections[i];
        MOX_TRY(check_range(file, &s->range, "section", i, error));
        if (strncmp(s->name, MOX_EXPERT_EXTRA, strlen(MOX_EXPERT_EXTRA)) != 0)
            MOX_TRY(check_sum(file, &s->range, s->name, error));
    }
    return MOXIE_OK;
}

static moxie_status check_index(moxie_expert_file *file, moxie_error *error)
{
    const mox_expert_header *h = &file->header;
    const uint64_t want = ((uint64_t)h->experts + 1) * sizeof *file->index;
    int64_t held = 0;
    MOX_TRY(check_range(file, &file->seal.index, "index", -1, error));
    if (file->seal.index.bytes != want)
        return bad_range(file, &file->seal.index, "index", -1, "has not one entry for each expert and one more", error);
    MOX_TRY(check_sum(file, &file->seal.index, "index", error));
    file->index = (const mox_expert_entry *)(const void *)(file->data + file->seal.index.offset);
    for (int64_t e = 0; e <= h->experts; e++) {
        const mox_expert_entry *entry = &file->index[e];
        const bool shared = e == h->experts;
        held += !shared && entry->range.bytes != 0;
        if (entry->expert != (shared ? -1 : e) || entry->generation > file->seal.generation)
            return bad_range(file, &entry->range, "entry", e, "is of another expert or generation", error);
        if (entry->range.bytes == 0 && entry->range.offset == 0)
            continue;
        MOX_TRY(check_range(file, &entry->range, "record", e, error));
        if (entry->range.bytes != (shared ? h->shared_bytes : h->record_bytes))
            return bad_range(file, &entry->range, "record", e, "has not the size of a record", error);
    }
    if (held != h->held || (file->index[h->experts].range.bytes != 0) != (h->shared_bytes != 0))
        return mox_fail_file(MOXIE_ERR_FORMAT, error, file->path, (int64_t)file->seal.index.offset,
                             "its index has %lld experts, its header %lld", (long long)held, (long long)h->held);
    return check_overlap(file, error);
}

/* ---- configuration ------------------------------------------------------------------------------------------ */

static moxie_status take_config(moxie_expert_file *file, moxie_error *error)
{
    const mox_expert_section *s = mox_expert_find_section(&file->header, "config");
    moxie_layer_config checked;
    if (s == NULL)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, file->path, -1, "it has no configuration");
    MOX_TRY(mox_expert_config_parse((const char *)file->data + s->range.offset, s->range.bytes, file->path,
                                    &file->config, error));
    if (file->config.experts != file->header.experts)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, file->path, (int64_t)s->range.offset,
                             "its configuration has %lld experts, its header %lld", (long long)file->config.experts,
                             (long long)file->header.experts);
    MOX_TRY(mox_expert_take_arrays(file, error));
    moxie_error why = { 0 };
    if (mox_config_read(&file->config, &checked, &why) != MOXIE_OK)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, file->path, (int64_t)s->range.offset,
                             "its configuration breaks a rule: %s", why.text);
    return MOXIE_OK;
}

static moxie_status take_layout(moxie_expert_file *file, mox_expert_kind kind, uint32_t number, const char *name,
                                uint64_t bytes, moxie_error *error)
{
    const mox_layout *layout = mox_layout_by_name(name);
    char reason[256], shown[100];
    uint64_t want = 0;
    if (layout == NULL || layout->number != number)
        return mox_fail_file(
            MOXIE_ERR_UNSUPPORTED, error, file->path, 24,
            "its records are in layout %s (number %u), which this version of moxie (%s) does not have: "
            "use the version that wrote it, or prepare the file anew",
            mox_escape(shown, sizeof shown, name), (unsigned)number, MOXIE_VERSION_STRING);
    file->layouts[kind] = layout;
    const char *limit = layout->reject(&file->shapes.whole[kind], reason, sizeof reason);
    if (limit != NULL || !layout->record_bytes(&file->shapes.mine[kind], &want) || want != bytes)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, file->path, 24,
                             "its records have %llu bytes; its configuration makes records of %llu in layout %s%s%s",
                             (unsigned long long)bytes, (unsigned long long)want, name, limit != NULL ? ": " : "",
                             limit != NULL ? limit : "");
    return MOXIE_OK;
}

static moxie_status take_layouts(moxie_expert_file *file, moxie_error *error)
{
    const mox_expert_header *h = &file->header;
    file->shapes = mox_expert_shapes_of(&file->config, h->target);
    MOX_TRY(take_layout(file, MOX_ROUTED, h->layout, h->layout_name, h->record_bytes, error));
    if ((file->config.shared.intermediate > 0) != (h->shared_layout != 0))
        return mox_fail_file(MOXIE_ERR_FORMAT, error, file->path, 24,
                             "its header and its configuration disagree about a shared expert");
    if (h->shared_layout == 0)
        return MOXIE_OK;
    return take_layout(file, MOX_SHARED_EXPERT, h->shared_layout, h->shared_layout_name, h->shared_bytes, error);
}

moxie_status mox_expert_check(moxie_expert_file *file, moxie_error *error)
{
    MOX_TRY(check_header(file, error));
    MOX_TRY(check_index(file, error));
    moxie_weights matrices = MOXIE_WEIGHTS_INIT;
    MOX_TRY(take_config(file, error));
    MOX_TRY(mox_expert_take_matrices(file, &file->config, &matrices, error));
    return take_layouts(file, error);
}

/* ---- records -------------------------------------------------------------------------------------------------- */

typedef struct verify_work {
    const moxie_expert_file *file;
    _Atomic int64_t first_bad; /* entry, or E + 1 */
} verify_work;

/* The one thing in a record by which kernels index: the order of columns (GPTQ act order). In layout rowmajor kernels
 * have room for as many runs of columns as groups make, so each group must be one run. `claimed`: by its header the
 * record has an order, for which other formats have no room. */
static bool has_order(const mox_rowmajor_matrix *m, uint32_t claimed)
{
    if (m->group_index == NULL)
        return !claimed;
    for (int64_t k = 0; k < m->cols; k++)
        if (m->group_index[k] < 0 || m->group_index[k] >= m->scale_cols || m->visit[k] < 0 || m->visit[k] >= m->cols)
            return false;
    for (int64_t k = 1; k < m->cols; k++) {
        const int32_t before = m->visit[k - 1], now = m->visit[k];
        const int32_t step = m->group_index[now] - m->group_index[before];
        if (step < 0 || (step == 0 && now <= before))
            return false;
    }
    return true;
}

static moxie_status verify_order(const mox_layout *layout, const mox_record_shape *shape, int64_t expert,
                                 const void *data, moxie_error *error)
{
    mox_rowmajor_record record;
    mox_record_header header;
    MOX_FAIL_IF(layout != &mox_layout_rowmajor && !mox_column_order_is_valid(layout, shape, data), MOXIE_ERR_FORMAT,
                error,
                "the record of expert %lld has an order of columns that is no permutation: prepare the file anew",
                (long long)expert);
    if (layout != &mox_layout_rowmajor)
        return MOXIE_OK;
    mox_rowmajor_open(shape, data, &record);
    memcpy(&header, data, sizeof header);
    MOX_FAIL_IF(
        !has_order(&record.gate, header.flags & MOX_ROWMAJOR_ORDER_GATE) ||
            !has_order(&record.up, header.flags & MOX_ROWMAJOR_ORDER_UP) ||
            !has_order(&record.down, header.flags & MOX_ROWMAJOR_ORDER_DOWN),
        MOXIE_ERR_FORMAT, error,
        "the record of expert %lld has columns in groups that do not exist, or out of order: prepare the file anew",
        (long long)expert);
    return MOXIE_OK;
}

static moxie_status verify_entry(const moxie_expert_file *file, int64_t e, moxie_error *error)
{
    const mox_expert_entry *entry = &file->index[e];
    const mox_expert_kind kind = mox_expert_kind_of(entry->expert);
    char what[48];
    if (entry->range.bytes == 0)
        return MOXIE_OK;
    snprintf(what, sizeof what, "record of expert %lld", (long long)entry->expert);
    MOX_TRY(check_sum(file, &entry->range, what, error));
    const void *data = file->data + entry->range.offset;
    moxie_status status = mox_record_verify(file->layouts[kind], &file->shapes.mine[kind], entry->expert, data, error);
    if (status == MOXIE_OK)
        status = verify_order(file->layouts[kind], &file->shapes.mine[kind], entry->expert, data, error);
    if (status == MOXIE_OK || error == NULL)
        return status;
    moxie_error why = *error;
    return mox_fail_file(status, error, file->path, (int64_t)entry->range.offset, "%s", why.text);
}

static void verify_one(void *context, int64_t e, int32_t worker)
{
    verify_work *w = context;
    (void)worker;
    int64_t best = atomic_load(&w->first_bad);
    if (verify_entry(w->file, e, NULL) != MOXIE_OK)
        while (e < best && !atomic_compare_exchange_weak(&w->first_bad, &best, e))
            continue;
}

moxie_status mox_expert_file_verify(const moxie_expert_file *file, const moxie_executor *executor, moxie_error *error)
{
    const int64_t entries = file->header.experts + 1;
    verify_work w = { .file = file, .first_bad = entries };
    for (uint32_t i = 0; i < file->header.n_sections; i++)
        MOX_TRY(check_sum(file, &file->header.sections[i].range, file->header.sections[i].name, error));
    mox_parallel(executor != NULL ? executor : &mox_executor_serial, entries, verify_one, &w);
    return w.first_bad < entries ? verify_entry(file, w.first_bad, error) : MOXIE_OK;
}

moxie_status mox_expert_file_open(const char *path, const moxie_expert_file_options *options, moxie_expert_file **out,
                                  moxie_error *error)
{
    moxie_expert_file *file = mox_alloc(sizeof *file);
    MOX_FAIL_IF(file == NULL, MOXIE_ERR_MEMORY, error, "no memory to open a file");
    file->path = mox_arena_strndup(&file->arena, path, strlen(path));
    moxie_status status = file->path != NULL ? mox_expert_load(file, options, error)
                                             : mox_fail(MOXIE_ERR_MEMORY, error, "no memory to open a file");
    if (status == MOXIE_OK)
        status = mox_expert_check(file, error);
    if (status == MOXIE_OK && options->verify)
        status = mox_expert_file_verify(file, options->executor, error);
    if (status != MOXIE_OK) {
        mox_expert_file_close(file);
        return status;
    }
    *out = file;
    return MOXIE_OK;
}

void mox_expert_file_close(moxie_expert_file *file)
{
    if (file == NULL)
        return;
    mox_expert_unload(file);
    mox_free_pages(file->weights_memory);
    mox_arena_free(&file->arena);
    mox_free(file);
}
