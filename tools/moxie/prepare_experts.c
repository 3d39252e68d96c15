/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_experts.c - one layer of a checkpoint to one expert file (docs/expert-file.md), an expert at a time:
 *
 *     load -> describe its source -> for each expert: pack, hash, write, release
 *
 * The file's own sections have all that a run needs. Three are for the way back: x.source and x.kept, which are what
 * other prepared files have in their metadata and tensors, and x.how, by which the next run knows a finished file.
 */
#include "prepare.h"

#include <stdlib.h>
#include <string.h>

const char *prepare_expert_target(const char *layout)
{
    moxie_expert_target target = MOXIE_EXPERT_TARGET_INIT;
    for (int32_t i = 0; moxie_expert_target_at(i, &target); i++)
        if (!strcmp(target.name, layout))
            return target.name;
    return NULL;
}

const char *prepare_experts_path(const char *dir, int64_t layer, char *buffer)
{
    snprintf(buffer, PATH_MAX, "%s/layer-%05lld.moxie", dir, (long long)layer);
    return buffer;
}

/* ---- what the file says of its source ---------------------------------------------------------------- */

enum { HOW, SOURCE, KEPT, EXTRAS };

typedef struct experts_work {
    const prepare_options *options;
    moxie_layer_config config;
    const moxie_weights *weights;
    prepare_source source;
    moxie_expert_extra extras[EXTRAS];
    char *how, *text;
    unsigned char *kept;
    int32_t local[MOXIE_MAX_EXPERTS], held;
    uint64_t *hashes; /* [E] */
    int64_t layer;
} experts_work;

/* The kept tensors, each padded to 64 bytes. */
static bool gather_kept(experts_work *w)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < w->source.count; i++)
        bytes += w->source.tensors[i].pieces == 0 ? (w->source.tensors[i].bytes + 63) / 64 * 64 : 0;
    w->kept = calloc(1, bytes + 1);
    uint64_t at = 0;
    for (int64_t i = 0; w->kept && i < w->source.count; i++) {
        const prepare_tensor *t = &w->source.tensors[i];
        if (t->pieces > 0)
            continue;
        memcpy(w->kept + at, t->view.data, t->bytes);
        at += (t->bytes + 63) / 64 * 64;
    }
    w->extras[KEPT] = (moxie_expert_extra) { .name = "x.kept", .data = w->kept, .bytes = bytes };
    return w->kept != NULL;
}

/* Parts of a layer that are no routed experts': at most 6 of a matrix, and 7 arrays. */
typedef struct rest_parts {
    prepare_span spans[7 * 6 + 7];
    int count;
} rest_parts;

static void add_rest(rest_parts *r, const void *data, uint64_t bytes)
{
    if (data && bytes > 0)
        r->spans[r->count++] = (prepare_span) { .data = (unsigned char *)(uintptr_t)data, .bytes = bytes };
}

static void add_matrix(rest_parts *r, const moxie_matrix *m)
{
    const moxie_grid *const grids[] = { &m->codes, &m->scale, &m->zero, &m->global, &m->bias };
    for (int i = 0; i < 5; i++)
        if (grids[i]->data && grids[i]->rows > 0 && grids[i]->cols > 0)
            add_rest(r, grids[i]->data, prepare_grid_extent(grids[i]));
    if (m->group_index)
        add_rest(r, m->group_index, (uint64_t)m->codes.cols * sizeof *m->group_index);
}

/* Hash of what the file has besides routed experts: shared expert, router, norms, arrays of the configuration. */
static uint64_t rest_hash(const experts_work *w)
{
    const moxie_layer_config *c = &w->config;
    const moxie_weights *all = w->weights;
    const uint64_t experts = (uint64_t)c->experts * sizeof(float);
    const uint64_t candidates = experts + (uint64_t)c->routing.zero_experts * sizeof(float);
    rest_parts r = { .count = 0 };
    if (all->shared) {
        add_matrix(&r, &all->shared->gate);
        add_matrix(&r, &all->shared->up);
        add_matrix(&r, &all->shared->down);
    }
    add_matrix(&r, &all->router);
    add_matrix(&r, &all->shared_gate);
    add_matrix(&r, &all->router_norm);
    add_matrix(&r, &all->expert_norm);
    add_rest(&r, c->routing.bias, candidates);
    add_rest(&r, c->routing.bias_alt, candidates);
    add_rest(&r, c->routing.per_expert_scale, candidates);
    add_rest(&r, c->routing.table, (uint64_t)(c->routing.table_rows * c->top_k) * sizeof *c->routing.table);
    add_rest(&r, c->activation.expert_alpha, experts);
    add_rest(&r, c->activation.expert_beta, experts);
    add_rest(&r, c->activation.expert_limit, experts);
    return prepare_span_hash(r.spans, r.count);
}

static moxie_status describe(experts_work *w, moxie_error *error)
{
    const prepare_how *how = &w->options->how;
    char rest[24];
    snprintf(rest, sizeof rest, "%016llx", (unsigned long long)rest_hash(w));
    json_t *made =
        json_pack("{s:s, s:s, s:[i,i,i], s:I, s:s}", "version", MOXIE_VERSION_STRING, "layout", how->layout, "ep",
                  how->ep_rank, how->ep_size, how->ep_map, "layer", (json_int_t)w->layer, "rest_xxh3", rest);
    if (made && how->tp_size > 1)
        (void)json_object_set_new(made, "tp", json_pack("[i,i]", how->tp_rank, how->tp_size));
    w->how = cli_json_text(made, JSON_COMPACT);
    w->text = prepare_source_text(&w->source);
    w->hashes = calloc((size_t)w->config.experts, sizeof *w->hashes);
    if (!w->how || !w->text || !w->hashes || !gather_kept(w))
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for the description of layer %lld",
                         (long long)w->layer);
    w->extras[HOW] = (moxie_expert_extra) { .name = "x.how", .data = w->how, .bytes = strlen(w->how) };
    w->extras[SOURCE] = (moxie_expert_extra) { .name = "x.source", .data = w->text, .bytes = strlen(w->text) };
    return MOXIE_OK;
}

static moxie_status begin(experts_work *w, const moxie_model *model, const moxie_model_layer *loaded,
                          moxie_error *error)
{
    const prepare_how *how = &w->options->how;
    w->config = *moxie_model_layer_config(loaded);
    w->config.ep_size = how->ep_size > 1 ? how->ep_size : 0;
    w->config.ep_rank = how->ep_rank;
    w->config.ep_map = how->ep_map;
    w->config.tp_size = how->tp_size > 1 ? how->tp_size : 0;
    w->config.tp_rank = how->tp_rank;
    w->weights = moxie_model_layer_weights(loaded);
    moxie_status status = moxie_expert_map((moxie_expert_map_kind)how->ep_map, (int32_t)w->config.experts, how->ep_size,
                                           how->ep_rank, w->local, &w->held, error);
    if (status == MOXIE_OK && w->held == 0)
        status = cli_error(MOXIE_ERR_ARGUMENT, error, "", "rank %d of %d has none of the %lld experts",
                           (int)how->ep_rank, (int)how->ep_size, (long long)w->config.experts);
    if (status == MOXIE_OK)
        status = prepare_source_read(model, w->layer, w->weights, &w->source, error);
    return status == MOXIE_OK ? describe(w, error) : status;
}

/* ---- a file that is there ------------------------------------------------------------------------------ */

static uint64_t source_hash(const experts_work *w, int64_t expert)
{
    prepare_span spans[PREPARE_SPANS];
    const int count = prepare_source_spans(&w->source, &w->weights->experts[expert], spans);
    return prepare_span_hash(spans, count);
}

static void let_go(const experts_work *w, int64_t expert)
{
    if (w->weights->done)
        w->weights->done(w->weights->done_user, &w->weights->experts[expert]);
}

/* Whether the file is whole, made in this way and of this checkpoint. */
static bool is_made(const experts_work *w, const char *path, const moxie_executor *executor)
{
    moxie_expert_file_options options = MOXIE_EXPERT_FILE_OPTIONS_INIT;
    moxie_expert_file *file = NULL;
    moxie_error error;
    options.verify = 1;
    options.executor = executor;
    if (!moxie_file_exists(path) || moxie_expert_file_open(path, &options, &file, &error) != MOXIE_OK)
        return false;
    bool same = true;
    for (int i = 0; same && i < EXTRAS; i++) {
        uint64_t bytes = 0;
        const void *data = moxie_expert_file_section(file, w->extras[i].name, &bytes);
        same = data && bytes == w->extras[i].bytes && !memcmp(data, w->extras[i].data, bytes);
    }
    for (int64_t e = 0; same && e < w->config.experts; e++) {
        moxie_expert_record record = MOXIE_EXPERT_RECORD_INIT;
        if (w->local[e] < 0)
            continue;
        w->hashes[e] = source_hash(w, e);
        same = moxie_expert_file_record(file, e, &record, &error) == MOXIE_OK && record.source_hash == w->hashes[e];
        let_go(w, e);
    }
    moxie_expert_file_close(file);
    return same;
}

/* ---- writing it ------------------------------------------------------------------------------------------ */

static moxie_status write_layer(experts_work *w, const char *path, const moxie_executor *executor,
                                cli_progress *progress, moxie_error *error)
{
    moxie_expert_writer_options options = MOXIE_EXPERT_WRITER_OPTIONS_INIT;
    moxie_expert_writer *writer = NULL;
    int32_t done = 0;
    options.target = w->options->how.layout;
    options.layer = w->layer;
    options.executor = executor;
    options.extras = w->extras;
    options.n_extras = EXTRAS;
    moxie_status status = moxie_expert_writer_open(path, &w->config, w->weights, &options, &writer, error);
    for (int64_t e = 0; status == MOXIE_OK && e < w->config.experts; e++) {
        if (w->local[e] < 0)
            continue;
        w->hashes[e] = source_hash(w, e);
        status = moxie_expert_writer_put(writer, e, w->hashes[e], error);
        let_go(w, e);
        cli_progress_show(progress, (uint64_t)++done, (uint64_t)w->held);
    }
    if (status == MOXIE_OK)
        return moxie_expert_writer_finish(writer, error);
    moxie_expert_writer_abandon(writer);
    return status;
}

/* The file's numbers, for the report; its layout is the target's static name. */
static moxie_status account(const char *path, uint64_t expert_bytes_in, prepare_report *report, moxie_error *error)
{
    moxie_expert_file *file = NULL;
    moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
    moxie_status status = moxie_expert_file_open(path, NULL, &file, error);
    if (status != MOXIE_OK)
        return status;
    const moxie_layer_config *c = moxie_expert_file_config(file);
    moxie_expert_file_get_info(file, &info, NULL);
    report->info = (moxie_preparation_info)MOXIE_PREPARATION_INFO_INIT;
    report->info.layout = prepare_expert_target(info.target);
    report->info.release = "";
    report->info.hidden = report->info.padded_hidden = c->hidden;
    report->info.intermediate = report->info.padded_intermediate = report->info.whole_intermediate = c->intermediate;
    report->info.repeat = 1;
    report->info.n_experts = (int32_t)info.held;
    report->info.expert_bytes = info.record_bytes;
    report->bytes += info.file_bytes;
    report->expert_bytes_in = expert_bytes_in > report->expert_bytes_in ? expert_bytes_in : report->expert_bytes_in;
    report->expert_bytes_out =
        info.record_bytes > report->expert_bytes_out ? info.record_bytes : report->expert_bytes_out;
    const uint64_t pair[2] = { report->source_hash, info.source_xxh3 };
    const prepare_span span = { .data = (unsigned char *)(uintptr_t)pair, .bytes = sizeof pair };
    report->source_hash = prepare_span_hash(&span, 1);
    moxie_expert_file_close(file);
    return MOXIE_OK;
}

moxie_status prepare_experts(const prepare_options *options, const moxie_model *model, int64_t layer, const char *out,
                             const moxie_executor *executor, cli_progress *progress, prepare_report *report,
                             moxie_error *error)
{
    char path[PATH_MAX];
    moxie_model_layer *loaded = NULL;
    experts_work w = { .options = options, .layer = layer };
    bool made = false;
    prepare_experts_path(out, layer, path);
    moxie_status status = moxie_model_load_layer(model, layer, &loaded, error);
    if (status == MOXIE_OK)
        status = begin(&w, model, loaded, error);
    if (status == MOXIE_OK && !is_made(&w, path, executor)) {
        made = true;
        status = write_layer(&w, path, executor, progress, error);
    }
    if (status == MOXIE_OK)
        status = account(path, prepare_source_expert_bytes(&w.source, w.weights->experts), report, error);
    report->made += status == MOXIE_OK && made;
    report->kept += status == MOXIE_OK && !made;
    prepare_source_free(&w.source);
    free(w.how);
    free(w.text);
    free(w.kept);
    free(w.hashes);
    moxie_model_layer_free(loaded);
    return status;
}

moxie_status prepare_experts_verify(const char *dir, const prepare_how *how, const moxie_executor *executor,
                                    cli_progress *progress, prepare_report *report, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    for (int64_t i = 0; status == MOXIE_OK && i < how->n_layers; i++) {
        char path[PATH_MAX];
        moxie_expert_file *file = NULL;
        moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
        moxie_expert_file_options options = MOXIE_EXPERT_FILE_OPTIONS_INIT;
        options.verify = 1;
        options.executor = executor;
        status = moxie_expert_file_open(prepare_experts_path(dir, how->layers[i], path), &options, &file, error);
        if (status == MOXIE_OK)
            status = moxie_expert_file_get_info(file, &info, error);
        if (status == MOXIE_OK && info.layer != how->layers[i])
            status = cli_error(MOXIE_ERR_MISMATCH, error, path, "it is layer %lld, by its name it is layer %lld",
                               (long long)info.layer, (long long)how->layers[i]);
        moxie_expert_file_close(file);
        if (status == MOXIE_OK)
            status = account(path, 0, report, error);
        report->made += status == MOXIE_OK;
        cli_progress_show(progress, (uint64_t)i + 1, (uint64_t)how->n_layers);
    }
    return status;
}
