/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_write.c - writes an expert file, one expert in memory at a time:
 *
 *     open:     choose the layout (every expert is asked) -> place all parts -> reserve the disk space -> sections
 *     put:      pack -> sum -> write, for each expert
 *     finish:   index, header, seal -> flush -> rename
 *
 * Until the rename the file has another name (base/whole_file.h), and until `finish` its header is zero: what a killed
 * writer leaves does not open.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/executor.h"
#include "base/whole_file.h"
#include "layer/config/reserved.h"
#include "layer/config/struct_size.h"
#include "layer/weights/layer_records.h"
#include "quant/quant.h"
#include "store/expert_file.h"

struct moxie_expert_writer {
    mox_whole_file file;
    mox_arena arena;
    mox_expert_header header;
    mox_expert_entry *index; /* [E + 1] */
    bool *written;           /* [E] */
    uint64_t end;            /* bytes of the file that are given away */
    moxie_layer_config config;
    moxie_weights weights;
    const moxie_executor *executor;
    const mox_layout *layouts[MOX_EXPERT_KINDS];
    mox_expert_shapes shapes;
    uint8_t *record; /* pages for the largest record */
};

/* ---- packing one expert ------------------------------------------------------------------------------- */

typedef struct pack_work {
    const mox_layout *layout;
    const mox_record_shape *shape;
    const moxie_expert *expert;
    void *record;
    uint64_t *sums;
    _Atomic bool failed;
} pack_work;

static void pack_part(void *context, int64_t part, int32_t worker)
{
    pack_work *w = context;
    (void)worker;
    if (mox_record_pack_part(w->layout, w->shape, w->expert, part, w->record, &w->sums[part], NULL) != MOXIE_OK)
        atomic_store_explicit(&w->failed, true, memory_order_relaxed);
}

static moxie_status pack(const mox_layout *layout, const mox_record_shape *shape, int64_t index,
                         const moxie_expert *expert, void *record, const moxie_executor *executor, moxie_error *error)
{
    MOX_TRY(mox_record_check(layout, shape, index, expert, error));
    const int64_t parts = mox_record_parts(layout, shape);
    pack_work w = { .layout = layout, .shape = shape, .expert = expert, .record = record };
    w.sums = mox_calloc((uint64_t)parts, sizeof *w.sums);
    MOX_FAIL_IF(w.sums == NULL, MOXIE_ERR_MEMORY, error, "no memory for the sums of a record");
    mox_parallel(executor, parts, pack_part, &w);
    if (!w.failed)
        mox_record_seal(layout, shape, index, expert, record, w.sums);
    mox_free(w.sums);
    /* Once more, for the text of the error. */
    return w.failed ? mox_record_pack(layout, shape, index, expert, record, error) : MOXIE_OK;
}

moxie_status mox_expert_pack(const moxie_layer_config *config, const mox_expert_shapes *shapes,
                             const mox_layout *layout, int64_t index, const moxie_expert *expert, void *record,
                             const moxie_executor *executor, moxie_error *error)
{
    const mox_expert_kind kind = mox_expert_kind_of(index);
    moxie_expert mine;
    if (shapes->cut[kind] != MOX_TP_WHOLE)
        MOX_TRY(mox_record_check(layout, &shapes->whole[kind], index, expert, error));
    MOX_TRY(mox_tp_slice_expert(config, kind, shapes->cut[kind], expert, &mine, error));
    return pack(layout, &shapes->mine[kind], index, &mine, record, executor, error);
}

/* ---- the plan of the file ----------------------------------------------------------------------------- */

static uint64_t give_room(moxie_expert_writer *w, uint64_t bytes)
{
    const uint64_t at = w->end;
    w->end += mox_expert_padded(bytes);
    return at;
}

/* Experts of other ranks' files are asked about, too, as far as their views are there: ranks compute together only in
 * one layout. */
static bool holds_all(const moxie_expert_writer *w, mox_expert_kind kind)
{
    if (kind == MOX_SHARED_EXPERT)
        return mox_layer_accepts(w->layouts[kind], &w->shapes.whole[kind], -1, w->weights.shared);
    for (int64_t e = 0; e < w->header.experts; e++)
        if (!mox_layer_accepts(w->layouts[kind], &w->shapes.whole[kind], e, &w->weights.experts[e]))
            return false;
    return true;
}

/* The layouts of the target's kernels, or their fallbacks where an expert does not fit them. */
static moxie_status choose_layouts(moxie_expert_writer *w, const moxie_expert_writer_options *options,
                                   moxie_error *error)
{
    moxie_layer_config whole = w->config;
    uint64_t *const bytes[] = { &w->header.record_bytes, &w->header.shared_bytes };
    const char *target;
    whole.ep_size = whole.ep_rank = whole.tp_size = whole.tp_rank = 0;
    whole.slot_map = NULL;
    MOX_TRY(mox_expert_choose(options->target, &whole, options->mode, &target, w->layouts, error));
    strncpy(w->header.target, target, sizeof w->header.target - 1);
    w->shapes = mox_expert_shapes_of(&w->config, target);
    for (int k = 0; k < MOX_EXPERT_KINDS; k++) {
        if (w->layouts[k] == NULL)
            continue;
        while (!holds_all(w, (mox_expert_kind)k))
            w->layouts[k] = mox_layer_fallback(&w->config, (mox_expert_kind)k, w->layouts[k]);
        MOX_FAIL_IF(!w->layouts[k]->record_bytes(&w->shapes.mine[k], bytes[k]), MOXIE_ERR_ARGUMENT, error,
                    "a record in layout %s does not fit in 64 bits", w->layouts[k]->name);
    }
    w->header.layout = w->layouts[MOX_ROUTED]->number;
    strncpy(w->header.layout_name, w->layouts[MOX_ROUTED]->name, sizeof w->header.layout_name - 1);
    if (w->layouts[MOX_SHARED_EXPERT] == NULL)
        return MOXIE_OK;
    w->header.shared_layout = w->layouts[MOX_SHARED_EXPERT]->number;
    strncpy(w->header.shared_layout_name, w->layouts[MOX_SHARED_EXPERT]->name, sizeof w->header.shared_layout_name - 1);
    return MOXIE_OK;
}

static moxie_status check_config(const moxie_layer_config *c, const moxie_weights *weights, moxie_error *error)
{
    MOX_FAIL_IF(c->routing.custom != NULL || c->routing.select == MOXIE_SELECT_CUSTOM, MOXIE_ERR_UNSUPPORTED, error,
                "the routing is a callback, which a file cannot hold: write the file with MOXIE_SELECT_TOPK, and give "
                "moxie_layer_open_file a configuration with the callback");
    MOX_FAIL_IF(weights->n_experts != c->experts || weights->experts == NULL, MOXIE_ERR_MISMATCH, error,
                "weights hold %lld experts, but the configuration has %lld: pass a view for each expert",
                (long long)weights->n_experts, (long long)c->experts);
    MOX_FAIL_IF(c->shared.intermediate > 0 && weights->shared == NULL, MOXIE_ERR_MISMATCH, error,
                "the configuration has a shared expert of intermediate size %lld, but weights.shared is NULL",
                (long long)c->shared.intermediate);
    return mox_reserved_weights(weights, error);
}

moxie_status mox_expert_check_scales(const moxie_layer_config *c, int64_t expert, const moxie_expert *view,
                                     moxie_error *error)
{
    const bool shared = expert < 0;
    const moxie_quant *const quants[] = { shared ? &c->shared.a13 : &c->a13, shared ? &c->shared.a2 : &c->a2 };
    const float values[] = { view->a13_scale, view->a2_scale };
    for (int p = MOX_W13; p <= MOX_W2; p++) {
        char what[64];
        snprintf(what, sizeof what, "expert %lld %s", (long long)expert, p == MOX_W13 ? "a13_scale" : "a2_scale");
        if (!mox_quant_is_none(quants[p]) && (shared || values[p] != 0)) /* 0: what other experts have */
            MOX_TRY(mox_act_quant_check_static_scale(quants[p], values[p], what, error));
    }
    return MOXIE_OK;
}

/* Marks the experts of this rank: range.bytes is not 0. */
static moxie_status list_experts(moxie_expert_writer *w, moxie_error *error)
{
    const int64_t experts = w->config.experts;
    int32_t slots = 0, slot_of[MOXIE_MAX_EXPERTS];
    w->index = mox_arena_calloc(&w->arena, (uint64_t)experts + 1, sizeof *w->index);
    w->written = mox_arena_calloc(&w->arena, (uint64_t)experts, sizeof *w->written);
    MOX_FAIL_IF(w->index == NULL || w->written == NULL, MOXIE_ERR_MEMORY, error, "no memory for an index");
    MOX_TRY(mox_config_map_experts(&w->config, slot_of, &slots, error));
    for (int64_t e = 0; e <= experts; e++) {
        const moxie_expert *view = e < experts ? &w->weights.experts[e] : w->weights.shared;
        const bool held = e < experts ? slot_of[e] >= 0 : w->config.shared.intermediate > 0;
        w->index[e] = (mox_expert_entry) { .expert = e < experts ? e : -1,
                                           .range.bytes = held,
                                           .a13_scale = view != NULL ? view->a13_scale : 0,
                                           .a2_scale = view != NULL ? view->a2_scale : 0 };
        w->header.held += e < experts && held;
        if (view != NULL && (e < experts || held))
            MOX_TRY(mox_expert_check_scales(&w->config, w->index[e].expert, view, error));
    }
    return MOXIE_OK;
}

static void place_records(moxie_expert_writer *w)
{
    for (int64_t e = 0; e <= w->header.experts; e++)
        if (w->index[e].range.bytes != 0) {
            w->index[e].range.bytes = e < w->header.experts ? w->header.record_bytes : w->header.shared_bytes;
            w->index[e].range.offset = give_room(w, w->index[e].range.bytes);
            w->index[e].generation = 1;
        }
}

/* ---- writing --------------------------------------------------------------------------------------------- */

/* Writes a section, padded. */
static moxie_status put_section(moxie_expert_writer *w, const char *name, const void *data, uint64_t bytes,
                                moxie_error *error)
{
    MOX_FAIL_IF(w->header.n_sections == MOX_EXPERT_MAX_SECTIONS, MOXIE_ERR_UNSUPPORTED, error,
                "an expert file has at most %d sections", MOX_EXPERT_MAX_SECTIONS);
    mox_expert_section *s = &w->header.sections[w->header.n_sections++];
    uint8_t *padded = mox_alloc(mox_expert_padded(bytes));
    MOX_FAIL_IF(padded == NULL, MOXIE_ERR_MEMORY, error, "no memory for section %s", name);
    if (bytes > 0)
        memcpy(padded, data, bytes);
    strncpy(s->name, name, sizeof s->name - 1);
    s->range = (mox_expert_range) { give_room(w, bytes), bytes, mox_checksum(padded, mox_expert_padded(bytes)) };
    const moxie_status status =
        mox_whole_file_write_at(&w->file, padded, mox_expert_padded(bytes), s->range.offset, error);
    mox_free(padded);
    return status;
}

static moxie_status put_extras(moxie_expert_writer *w, const moxie_expert_writer_options *options, moxie_error *error)
{
    for (int64_t i = 0; i < options->n_extras; i++) {
        const moxie_expert_extra *x = &options->extras[i];
        MOX_RESERVED(moxie_expert_extra, x, "options.extras", error);
        MOX_FAIL_IF(x->name == NULL || strncmp(x->name, MOX_EXPERT_EXTRA, strlen(MOX_EXPERT_EXTRA)) != 0 ||
                        strlen(x->name) >= sizeof w->header.sections->name ||
                        mox_expert_find_section(&w->header, x->name) != NULL || (x->data == NULL && x->bytes > 0),
                    MOXIE_ERR_ARGUMENT, error,
                    "options.extras[%lld]: its name begins with \"" MOX_EXPERT_EXTRA "\", has at most %d bytes, and "
                    "occurs once",
                    (long long)i, (int)sizeof w->header.sections->name - 1);
        MOX_TRY(put_section(w, x->name, x->data, x->bytes, error));
    }
    return MOXIE_OK;
}

static moxie_status put_sections(moxie_expert_writer *w, const moxie_expert_writer_options *options, moxie_error *error)
{
    mox_expert_part parts[MOX_EXPERT_PARTS];
    uint64_t bytes;
    const char *text = mox_expert_config_text(&w->config, &w->arena, &bytes);
    MOX_FAIL_IF(text == NULL, MOXIE_ERR_MEMORY, error, "no memory for the text of a configuration");
    MOX_TRY(put_section(w, "config", text, bytes, error));
    const int count = mox_expert_parts(&w->config, &w->weights, &w->arena, parts, error);
    if (count < 0)
        return error != NULL ? error->code : MOXIE_ERR_MISMATCH;
    for (int i = 0; i < count; i++)
        MOX_TRY(put_section(w, parts[i].name, parts[i].data, parts[i].bytes, error));
    return put_extras(w, options, error);
}

static moxie_status put_record(moxie_expert_writer *w, int64_t expert, const moxie_expert *view, moxie_error *error)
{
    const mox_expert_kind kind = mox_expert_kind_of(expert);
    mox_expert_entry *entry = &w->index[expert < 0 ? w->header.experts : expert];
    const uint64_t padded = mox_expert_padded(entry->range.bytes);
    MOX_TRY(mox_expert_pack(&w->config, &w->shapes, w->layouts[kind], expert, view, w->record, w->executor, error));
    memset(w->record + entry->range.bytes, 0, padded - entry->range.bytes);
    entry->range.checksum = mox_checksum(w->record, padded);
    return mox_whole_file_write_at(&w->file, w->record, padded, entry->range.offset, error);
}

static moxie_status begin(moxie_expert_writer *w, const char *path, const moxie_expert_writer_options *options,
                          moxie_error *error)
{
    MOX_FAIL_IF(options->layer < 0, MOXIE_ERR_ARGUMENT, error,
                "options.layer is %lld; layers have numbers from 0 on, by which stores find them",
                (long long)options->layer);
    w->header.experts = w->config.experts;
    w->header.layer = options->layer;
    w->end = MOX_EXPERT_FIRST;
    MOX_TRY(check_config(&w->config, &w->weights, error));
    MOX_TRY(list_experts(w, error));
    MOX_TRY(choose_layouts(w, options, error));
    const uint64_t largest =
        w->header.record_bytes > w->header.shared_bytes ? w->header.record_bytes : w->header.shared_bytes;
    w->record = mox_alloc_pages(mox_expert_padded(largest));
    MOX_FAIL_IF(w->record == NULL, MOXIE_ERR_MEMORY, error, "no memory for a record of %llu bytes",
                (unsigned long long)largest);
    MOX_TRY(mox_whole_file_create(path, &w->file, error));
    MOX_TRY(put_sections(w, options, error));
    place_records(w);
    MOX_TRY(mox_whole_file_reserve(&w->file, w->end, error));
    return w->header.shared_bytes > 0 ? put_record(w, -1, w->weights.shared, error) : MOXIE_OK;
}

moxie_status mox_expert_writer_open(const char *path, const moxie_layer_config *config, const moxie_weights *weights,
                                    const moxie_expert_writer_options *options, moxie_expert_writer **out,
                                    moxie_error *error)
{
    moxie_expert_writer *w = mox_alloc(sizeof *w);
    MOX_FAIL_IF(w == NULL, MOXIE_ERR_MEMORY, error, "no memory to write a file");
    w->file = MOX_WHOLE_FILE_NONE;
    w->weights = *weights;
    w->executor = options->executor != NULL ? options->executor : &mox_executor_serial;
    moxie_status status = mox_config_read(config, &w->config, error);
    if (status == MOXIE_OK)
        status = mox_config_own_arrays(&w->config, &w->arena, error);
    if (status == MOXIE_OK)
        status = begin(w, path, options, error);
    if (status != MOXIE_OK) {
        mox_expert_writer_abandon(w);
        return status;
    }
    *out = w;
    return MOXIE_OK;
}

moxie_status mox_expert_writer_put(moxie_expert_writer *w, int64_t expert, uint64_t source_hash, moxie_error *error)
{
    MOX_FAIL_IF(expert < 0 || expert >= w->header.experts || w->index[expert].range.bytes == 0, MOXIE_ERR_ARGUMENT,
                error, "expert %lld is none of the %lld that this file is for", (long long)expert,
                (long long)w->header.held);
    w->index[expert].source_hash = source_hash;
    MOX_TRY(put_record(w, expert, &w->weights.experts[expert], error));
    w->written[expert] = true;
    return MOXIE_OK;
}

/* ---- the end ----------------------------------------------------------------------------------------------- */

void mox_expert_end_seal(mox_expert_seal *seal)
{
    memcpy(seal->magic, MOX_EXPERT_SEAL_MAGIC, sizeof seal->magic);
    seal->checksum = mox_checksum(seal, offsetof(mox_expert_seal, checksum));
}

/* The caller's hashes of all experts, in order, as one. */
static uint64_t fingerprint(const moxie_expert_writer *w)
{
    uint64_t pair[2] = { 0 };
    for (int64_t e = 0; e < w->header.experts; e++)
        if (w->index[e].range.bytes != 0) {
            pair[1] = w->index[e].source_hash;
            pair[0] = mox_checksum(pair, sizeof pair);
        }
    return pair[0];
}

static moxie_status put_end(moxie_expert_writer *w, moxie_error *error)
{
    mox_expert_header *h = &w->header;
    mox_expert_seal seal = { .generation = 1 };
    memcpy(h->magic, MOX_EXPERT_MAGIC, sizeof h->magic);
    h->version = MOX_EXPERT_VERSION;
    h->byte_order = MOX_EXPERT_BYTE_ORDER;
    h->page_bytes = MOX_EXPERT_PAGE;
    h->source_xxh3 = fingerprint(w);
    h->checksum = mox_checksum(h, offsetof(mox_expert_header, checksum));
    seal.index.bytes = ((uint64_t)h->experts + 1) * sizeof *w->index;
    const uint64_t padded = mox_expert_padded(seal.index.bytes);
    uint8_t *index = mox_alloc(padded);
    MOX_FAIL_IF(index == NULL, MOXIE_ERR_MEMORY, error, "no memory for an index");
    memcpy(index, w->index, seal.index.bytes);
    seal.index.offset = give_room(w, seal.index.bytes);
    seal.index.checksum = mox_checksum(index, padded);
    seal.header_checksum = h->checksum;
    seal.file_bytes = w->end;
    mox_expert_end_seal(&seal);
    moxie_status status = mox_whole_file_write_at(&w->file, index, padded, seal.index.offset, error);
    mox_free(index);
    if (status == MOXIE_OK)
        status = mox_whole_file_write_at(&w->file, h, sizeof *h, 0, error);
    if (status == MOXIE_OK)
        status = mox_whole_file_write_at(&w->file, &seal, sizeof seal, MOX_EXPERT_PAGE, error);
    return status;
}

moxie_status mox_expert_writer_finish(moxie_expert_writer *w, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    for (int64_t e = 0; status == MOXIE_OK && e < w->header.experts; e++)
        if (w->index[e].range.bytes != 0 && !w->written[e])
            status = mox_fail(MOXIE_ERR_ARGUMENT, error, "expert %lld was not written: put every expert of the share",
                              (long long)e);
    if (status == MOXIE_OK)
        status = put_end(w, error);
    if (status == MOXIE_OK)
        status = mox_whole_file_publish(&w->file, error);
    mox_expert_writer_abandon(w);
    return status;
}

void mox_expert_writer_abandon(moxie_expert_writer *w)
{
    if (w == NULL)
        return;
    mox_whole_file_discard(&w->file);
    mox_free_pages(w->record);
    mox_arena_free(&w->arena);
    mox_free(w);
}
