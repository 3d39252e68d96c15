/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_undo.c - `moxie prepare --undo` and `--verify`.
 *
 *     for each layer, for each expert:   unpack every rank's share through the views -> same hash as the checkpoint's?
 *                                        -> its pieces to the file -> their memory released
 *
 * The next run of an interrupted command keeps layers whose experts all have their hashes.
 * Shares of several ranks are given as several directories; together they must hold every expert whole.
 */
#include "prepare.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The directories of all ranks, from which one checkpoint is restored. */
typedef struct ranks {
    const char **dirs;
    prepare_how *how;
    int count;
} ranks;

static void free_ranks(ranks *r)
{
    for (int i = 0; r->how && i < r->count; i++)
        prepare_how_free(&r->how[i]);
    free(r->dirs);
    free(r->how);
}

/* Checks that all have the same layout, sizes and layers, and that every rank is there once. */
static moxie_status check_ranks(const ranks *r, moxie_error *error)
{
    const prepare_how *a = &r->how[0];
    const int64_t all = (int64_t)a->tp_size * a->ep_size;
    if (r->count != all)
        return cli_error(MOXIE_ERR_ARGUMENT, error, r->dirs[0],
                         "it is the share of rank %d of %d (tensor parallel), %d of %d (expert parallel): the way back "
                         "needs all %lld directories, %d given",
                         (int)a->tp_rank, (int)a->tp_size, (int)a->ep_rank, (int)a->ep_size, (long long)all, r->count);
    for (int i = 0; i < r->count; i++) {
        prepare_how same = r->how[i];
        same.tp_rank = a->tp_rank;
        same.ep_rank = a->ep_rank;
        bool equal = false;
        const moxie_status status = prepare_configs_compare(r->dirs[0], r->dirs[i], true, &equal, error);
        if (status != MOXIE_OK)
            return status;
        if (!equal || !prepare_how_equal(&same, a))
            return cli_error(MOXIE_ERR_MISMATCH, error, r->dirs[i], "it was not prepared in the same way as %s",
                             r->dirs[0]);
        for (int j = 0; j < i; j++)
            if (r->how[j].tp_rank == r->how[i].tp_rank && r->how[j].ep_rank == r->how[i].ep_rank)
                return cli_error(MOXIE_ERR_ARGUMENT, error, r->dirs[i], "it is the same rank's share as %s",
                                 r->dirs[j]);
    }
    return MOXIE_OK;
}

/* Expert files of a GGUF file have no configuration beside them: it was in the file. */
static moxie_status refuse_gguf(const char *dir, const prepare_how *how, moxie_error *error)
{
    char path[PATH_MAX];
    if (!prepare_expert_target(how->layout) || moxie_file_exists(prepare_path(dir, prepare_config_name(0), path)))
        return MOXIE_OK;
    return cli_error(MOXIE_ERR_UNSUPPORTED, error, dir,
                     "these are expert files of a GGUF file, which they do not restore: keep that file");
}

static moxie_status read_ranks(const prepare_options *options, ranks *r, moxie_error *error)
{
    *r = (ranks) { .count = 1 + options->n_more };
    r->dirs = calloc((size_t)r->count, sizeof *r->dirs);
    r->how = calloc((size_t)r->count, sizeof *r->how);
    if (!r->dirs || !r->how)
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory");
    for (int i = 0; i < r->count; i++) {
        r->dirs[i] = i == 0 ? options->dir : options->more[i - 1];
        moxie_status status = prepare_check_name(r->dirs[i], error);
        if (status == MOXIE_OK)
            status = prepare_manifest_read(r->dirs[i], PREPARE_PREPARED, &r->how[i], error);
        if (status == MOXIE_OK)
            status = refuse_gguf(r->dirs[i], &r->how[i], error);
        if (status == MOXIE_OK && !prepare_expert_target(r->how[i].layout))
            status = prepare_index_check(r->dirs[i], &r->how[i], error);
        if (status != MOXIE_OK)
            return status;
    }
    return check_ranks(r, error);
}

/* ---- one layer --------------------------------------------------------------------------------------- */

typedef struct undo_work {
    const ranks *ranks;
    prepare_back *backs; /* [ranks] */
    prepare_source source;
    moxie_sealed_writer *writer;
    void **tensors; /* of one slot */
} undo_work;

/* The slot of an expert on a rank, or -1. */
static int32_t slot_of(const prepare_back *back, int64_t expert)
{
    for (int32_t s = 0; s < back->info.n_experts; s++)
        if (back->info.experts[s] == expert)
            return s;
    return -1;
}

/* Releases the memory of a piece's whole pages; the rest of its first and last page stays. */
static void let_go_piece(const prepare_span *span)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)span->data + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)span->data + span->bytes) / page * page;
    if (end > begin)
        madvise(span->data + (begin - (uintptr_t)span->data), end - begin, MADV_DONTNEED);
}

static moxie_status undo_expert(undo_work *w, int64_t expert, const moxie_executor *executor, moxie_error *error)
{
    moxie_expert views = moxie_model_layer_weights(w->backs[0].layer)->experts[expert];
    uint64_t want = 0;
    moxie_status status = MOXIE_OK;
    for (int r = 0; status == MOXIE_OK && r < w->ranks->count; r++) {
        const prepare_back *back = &w->backs[r];
        const int32_t slot = slot_of(back, expert);
        if (slot < 0)
            continue;
        status = prepare_back_unpack(back, slot, w->tensors, &views, executor, error);
        want = prepare_back_hash(back, slot);
    }
    if (status != MOXIE_OK)
        return status;
    prepare_span spans[PREPARE_SPANS];
    prepare_piece pieces[PREPARE_SPANS];
    uint64_t hash = 0;
    const int count = prepare_source_spans(&w->source, &views, spans);
    for (int i = 0; i < count; i++)
        pieces[i] = (prepare_piece) { spans[i].tensor, spans[i].piece, spans[i].data };
    status = prepare_put(w->writer, pieces, count, spans, count, &hash, executor, error);
    for (int i = 0; i < count; i++)
        let_go_piece(&spans[i]);
    if (status == MOXIE_OK && hash != want)
        return cli_error(MOXIE_ERR_MISMATCH, error, w->ranks->dirs[0],
                         "expert %lld does not come back as it was: its hash differs from the checkpoint's",
                         (long long)expert);
    return status;
}

/* Declares the checkpoint's tensors and writes the kept ones, before any expert is unpacked over them. */
static moxie_status open_restored(undo_work *w, const char *path, moxie_error *error)
{
    static const char *const metadata[] = { "format", "pt" };
    const prepare_described *b = &w->backs[0].described;
    moxie_sealed_tensor *decls = calloc((size_t)b->count, sizeof *decls);
    if (!decls)
        return cli_error(MOXIE_ERR_MEMORY, error, path, "no memory for %lld tensors", (long long)b->count);
    for (int64_t i = 0; i < b->count; i++) {
        const moxie_tensor *t = &b->tensors[i].tensor;
        decls[i] = (moxie_sealed_tensor) { .name = b->tensors[i].name,
                                           .dtype = t->dtype,
                                           .rank = t->rank,
                                           .pieces = b->pieces[i] > 0 ? b->pieces[i] : 1 };
        memcpy(decls[i].shape, t->shape, sizeof decls[i].shape);
    }
    moxie_status status = moxie_sealed_writer_open(path, decls, b->count, metadata, 1, &w->writer, error);
    for (int64_t i = 0; status == MOXIE_OK && i < b->count; i++)
        if (b->pieces[i] == 0)
            status = moxie_sealed_writer_put(w->writer, i, 0, b->tensors[i].tensor.data, error);
    free(decls);
    return status;
}

static moxie_status write_restored(undo_work *w, const moxie_weights *weights, const char *path,
                                   const moxie_executor *executor, cli_progress *progress, moxie_error *error)
{
    moxie_status status = open_restored(w, path, error);
    for (int64_t e = 0; status == MOXIE_OK && e < weights->n_experts; e++) {
        status = undo_expert(w, e, executor, error);
        cli_progress_show(progress, (uint64_t)e + 1, (uint64_t)weights->n_experts);
    }
    if (status == MOXIE_OK)
        return moxie_sealed_writer_finish(w->writer, error);
    moxie_sealed_writer_abandon(w->writer);
    return status;
}

/* Checks that the pieces that the files record are those of the views. */
static moxie_status check_pieces(const undo_work *w, moxie_error *error)
{
    const prepare_described *b = &w->backs[0].described;
    bool same = w->source.count == b->count;
    for (int64_t i = 0; same && i < b->count; i++)
        same = w->source.tensors[i].pieces == b->pieces[i];
    return same ? MOXIE_OK
                : cli_error(MOXIE_ERR_MISMATCH, error, w->ranks->dirs[0],
                            "its layers were cut into other pieces than this version of moxie (%s) finds",
                            MOXIE_VERSION_STRING);
}

/* ---- going on ----------------------------------------------------------------------------------------- */

/* Hashes an expert in a restored file, whose tensors are those of the checkpoint. */
static uint64_t restored_hash(const undo_work *w, const moxie_tensor_file *file, const moxie_expert *views)
{
    prepare_span spans[PREPARE_SPANS];
    const int count = prepare_source_spans(&w->source, views, spans);
    for (int i = 0; i < count; i++) {
        const char *name;
        moxie_tensor tensor;
        if (moxie_tensor_file_at(file, spans[i].tensor, &name, &tensor) != MOXIE_OK)
            return 0;
        spans[i].data = (unsigned char *)tensor.data + (uint64_t)spans[i].piece * spans[i].bytes;
    }
    const uint64_t hash = prepare_span_hash(spans, count);
    for (int i = 0; i < count; i++)
        moxie_tensor_file_release_pages(file, spans[i].data, spans[i].bytes);
    return hash;
}

/* Compares names, types, shapes, and the bytes of kept tensors. */
static bool has_tensors(const undo_work *w, const moxie_tensor_file *file)
{
    const prepare_described *b = &w->backs[0].described;
    bool same = moxie_tensor_file_count(file) == b->count;
    for (int64_t i = 0; same && i < b->count; i++) {
        const moxie_tensor *want = &b->tensors[i].tensor;
        const char *name;
        moxie_tensor found;
        same = moxie_tensor_file_at(file, i, &name, &found) == MOXIE_OK && !strcmp(name, b->tensors[i].name) &&
               found.dtype == want->dtype && found.rank == want->rank &&
               !memcmp(found.shape, want->shape, (size_t)want->rank * sizeof *want->shape) &&
               (b->pieces[i] > 0 || !memcmp(found.data, want->data, (size_t)b->bytes[i]));
    }
    return same;
}

/* Whether a file is whole and every expert has the hash that it had in the checkpoint. */
static bool is_restored(const undo_work *w, const moxie_weights *weights, const char *path)
{
    moxie_tensor_file *file = NULL;
    moxie_error error;
    if (!moxie_file_exists(path) || moxie_tensor_file_open(path, 0, &file, &error) != MOXIE_OK)
        return false;
    bool same = moxie_tensor_file_check_seal(file, &error) == MOXIE_OK && has_tensors(w, file);
    for (int64_t e = 0; same && e < weights->n_experts; e++) {
        int r = 0;
        while (slot_of(&w->backs[r], e) < 0 && r + 1 < w->ranks->count)
            r++;
        const int32_t slot = slot_of(&w->backs[r], e);
        same = slot >= 0 && restored_hash(w, file, &weights->experts[e]) == prepare_back_hash(&w->backs[r], slot);
    }
    moxie_tensor_file_close(file);
    return same;
}

static moxie_status undo_layer(const ranks *r, int64_t layer, const char *out, const moxie_executor *executor,
                               cli_progress *progress, prepare_report *report, moxie_error *error)
{
    undo_work w = { .ranks = r, .backs = calloc((size_t)r->count, sizeof *w.backs) };
    char path[PATH_MAX];
    moxie_status status = w.backs ? MOXIE_OK : cli_error(MOXIE_ERR_MEMORY, error, "", "no memory");
    for (int i = 0; status == MOXIE_OK && i < r->count; i++)
        status = prepare_back_open(r->dirs[i], &r->how[i], layer, i > 0 ? &w.backs[0] : NULL, &w.backs[i], error);
    const moxie_weights *weights = status == MOXIE_OK ? moxie_model_layer_weights(w.backs[0].layer) : NULL;
    if (status == MOXIE_OK)
        status = prepare_source_read(w.backs[0].model, layer, weights, &w.source, error);
    if (status == MOXIE_OK)
        status = check_pieces(&w, error);
    if (status == MOXIE_OK)
        w.tensors = calloc(PREPARE_PIECES, sizeof *w.tensors);
    if (status == MOXIE_OK && !w.tensors)
        status = cli_error(MOXIE_ERR_MEMORY, error, "", "no memory");
    const bool kept = status == MOXIE_OK && is_restored(&w, weights, prepare_layer_path(out, layer, path));
    if (status == MOXIE_OK && !kept)
        status = write_restored(&w, weights, path, executor, progress, error);
    for (int64_t e = 0; status == MOXIE_OK && e < weights->n_experts; e++)
        report->bytes += prepare_source_expert_bytes(&w.source, &weights->experts[e]);
    report->kept += kept;
    report->made += status == MOXIE_OK && !kept;
    free(w.tensors);
    prepare_source_free(&w.source);
    for (int i = r->count - 1; w.backs && i >= 0; i--)
        prepare_back_close(&w.backs[i]);
    free(w.backs);
    return status;
}

static moxie_status undo_layers(const ranks *r, prepare_partial *partial, const moxie_executor *executor,
                                cli_progress *progress, prepare_report *report, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    for (int64_t i = 0; status == MOXIE_OK && i < r->how[0].n_layers; i++) {
        status = undo_layer(r, r->how[0].layers[i], partial->path, executor, progress, report, error);
        if (status == MOXIE_OK)
            prepare_partial_keep(partial);
    }
    return status;
}

moxie_status prepare_undo(const prepare_options *options, const moxie_executor *executor, cli_progress *progress,
                          prepare_report *report, moxie_error *error)
{
    prepare_partial partial = { .fd = -1 };
    ranks r;
    moxie_status status = read_ranks(options, &r, error);
    if (status == MOXIE_OK)
        status = prepare_check_name(options->out, error);
    if (status == MOXIE_OK)
        status = prepare_check_out(options->out, error);
    if (status == MOXIE_OK) {
        prepare_how of_all = r.how[0]; /* the same for whatever rank is named first */
        of_all.tp_rank = of_all.ep_rank = 0;
        status = prepare_partial_open(options->out, PREPARE_RESTORED, &of_all, r.dirs[0], &partial, error);
    }
    if (status == MOXIE_OK)
        status = undo_layers(&r, &partial, executor, progress, report, error);
    if (status == MOXIE_OK)
        status = prepare_index_write(partial.path, &r.how[0], NULL, error);
    if (status == MOXIE_OK)
        status = prepare_partial_commit(&partial, options->out, error);
    prepare_partial_leave(&partial, report->made + report->kept);
    free_ranks(&r);
    return status;
}

/* ---- reading again ------------------------------------------------------------------------------------ */

static bool reads_slice(const char *text, const prepare_how *how)
{
    json_t *object = NULL;
    moxie_error ignored;
    json_int_t tp[2], ep[2];
    const bool read = text && cli_json_parse(text, strlen(text), "", &object, &ignored) == MOXIE_OK &&
                      json_unpack(object, "{s:[I,I], s:[I,I]}", "tp", &tp[0], &tp[1], "ep", &ep[0], &ep[1]) == 0;
    json_decref(object);
    return read && tp[0] == how->tp_rank && tp[1] == how->tp_size && ep[0] == how->ep_rank && ep[1] == how->ep_size;
}

/* Checks that a file's metadata agree with the manifest. */
static moxie_status check_layer_words(const char *dir, const prepare_how *how, int64_t layer, const prepare_back *b,
                                      moxie_error *error)
{
    char number[24], path[PATH_MAX];
    const char *layout = moxie_tensor_file_metadata(b->file, "moxie.layout");
    const char *release = moxie_tensor_file_metadata(b->file, "moxie.for");
    const char *index = moxie_tensor_file_metadata(b->file, "moxie.layer");
    snprintf(number, sizeof number, "%lld", (long long)layer);
    if (layout && index && !strcmp(layout, how->layout) &&
        (!how->release[0] || (release && !strcmp(release, how->release))) && !strcmp(index, number) &&
        reads_slice(moxie_tensor_file_metadata(b->file, "moxie.slice"), how))
        return MOXIE_OK;
    return cli_error(MOXIE_ERR_MISMATCH, error, prepare_layer_path(dir, layer, path),
                     "it says of itself another layout, version, layer or share than %s",
                     prepare_manifest_file(PREPARE_PREPARED));
}

moxie_status prepare_verify(const char *dir, const moxie_executor *executor, cli_progress *progress,
                            prepare_report *report, moxie_error *error)
{
    prepare_how how = { 0 };
    moxie_status status = prepare_check_name(dir, error);
    if (status == MOXIE_OK)
        status = prepare_manifest_read(dir, PREPARE_PREPARED, &how, error);
    if (status != MOXIE_OK)
        return status;
    const bool experts = prepare_expert_target(how.layout) != NULL;
    status = experts ? prepare_experts_verify(dir, &how, executor, progress, report, error)
                     : prepare_index_check(dir, &how, error);
    for (int64_t i = 0; status == MOXIE_OK && !experts && i < how.n_layers; i++) {
        prepare_back back;
        status = prepare_back_open(dir, &how, how.layers[i], NULL, &back, error);
        if (status == MOXIE_OK)
            status = check_layer_words(dir, &how, how.layers[i], &back, error);
        if (status == MOXIE_OK)
            report->info = back.info;
        report->info.experts = NULL; /* owned by the preparation, which is destroyed */
        report->made += status == MOXIE_OK;
        report->bytes += report->info.expert_bytes * (uint64_t)report->info.n_experts;
        prepare_back_close(&back);
        cli_progress_show(progress, (uint64_t)i + 1, (uint64_t)how.n_layers);
    }
    prepare_how_free(&how);
    return status;
}
