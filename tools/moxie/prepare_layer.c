/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_layer.c - one layer of a checkpoint to one sealed file, an expert at a time:
 *
 *     plan -> [survey every expert] -> reserve the file -> kept tensors -> for each expert: pack, hash, write, release
 *
 * Memory: the expert's mapped pages, its tensors in one block, and a list of the layer's tensors.
 */
#include "prepare.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

const char *prepare_layer_path(const char *dir, int64_t layer, char *buffer)
{
    snprintf(buffer, PATH_MAX, "%s/layer-%05lld.safetensors", dir, (long long)layer);
    return buffer;
}

moxie_status prepare_plan(const prepare_how *how, const moxie_model_layer *layer, moxie_preparation **out,
                          moxie_error *error)
{
    moxie_layer_config config = *moxie_model_layer_config(layer);
    config.ep_size = how->ep_size;
    config.ep_rank = how->ep_rank;
    config.ep_map = how->ep_map;
    moxie_preparation_options options = MOXIE_PREPARATION_OPTIONS_INIT;
    options.layout = how->layout;
    options.release = how->release;
    options.symmetric = how->symmetric;
    options.pad = how->pad;
    options.tp_size = how->tp_size;
    options.tp_rank = how->tp_rank;
    moxie_preparation *made = NULL;
    moxie_preparation_info info = MOXIE_PREPARATION_INFO_INIT;
    moxie_status status =
        moxie_preparation_create(&config, &options, moxie_model_layer_weights(layer)->experts, &made, error);
    if (status == MOXIE_OK)
        status = moxie_preparation_get_info(made, &info, error);
    if (status == MOXIE_OK && info.n_experts == 0)
        status = cli_error(MOXIE_ERR_ARGUMENT, error, "",
                           "rank %d of %d has none of the %lld experts; with %lld ranks or fewer each has some",
                           (int)how->ep_rank, (int)how->ep_size, (long long)config.experts, (long long)config.experts);
    if (status == MOXIE_OK)
        *out = made;
    else
        moxie_preparation_destroy(made);
    return status;
}

bool prepare_stacked_tensor(const moxie_preparation *preparation, const char *prefix, int32_t i, char *name,
                            size_t name_size, moxie_sealed_tensor *out)
{
    moxie_prepared_tensor tensor = MOXIE_PREPARED_TENSOR_INIT;
    moxie_preparation_info info = MOXIE_PREPARATION_INFO_INIT;
    moxie_error error;
    if (moxie_preparation_get_info(preparation, &info, &error) != MOXIE_OK || i > info.n_tensors)
        return false;
    if (!moxie_preparation_tensor_at(preparation, i, &tensor)) /* one past the last: the experts' hashes */
        tensor = (moxie_prepared_tensor) { .name = PREPARE_EXPERT_HASH, .dtype = MOXIE_U64 };
    *out = (moxie_sealed_tensor) { .name = name, .dtype = tensor.dtype, .rank = tensor.rank + 1 };
    out->shape[0] = out->pieces = info.n_experts;
    for (int32_t axis = 0; axis < tensor.rank && axis + 1 < MOXIE_MAX_RANK; axis++)
        out->shape[axis + 1] = tensor.shape[axis];
    return tensor.rank < MOXIE_MAX_RANK && snprintf(name, name_size, "%s%s", prefix, tensor.name) < (int)name_size;
}

moxie_status prepare_tensors_alloc(const moxie_preparation *preparation, void ***out, moxie_error *error)
{
    moxie_prepared_tensor tensor = MOXIE_PREPARED_TENSOR_INIT;
    size_t bytes = 0, count = 0;
    while (moxie_preparation_tensor_at(preparation, (int32_t)count, &tensor)) {
        bytes += ((size_t)tensor.bytes + 63) / 64 * 64;
        count++;
    }
    void **tensors = calloc(count + 1, sizeof *tensors);
    unsigned char *block = aligned_alloc(64, bytes > 0 ? bytes : 64);
    if (!tensors || !block) {
        free(tensors);
        free(block);
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no %zu bytes for one expert's tensors", bytes);
    }
    tensors[0] = block;
    for (size_t i = 0; i < count; i++) {
        moxie_preparation_tensor_at(preparation, (int32_t)i, &tensor);
        tensors[i] = block;
        block += ((size_t)tensor.bytes + 63) / 64 * 64;
    }
    *out = tensors;
    return MOXIE_OK;
}

void prepare_tensors_free(void **tensors)
{
    if (tensors)
        free(tensors[0]);
    free(tensors);
}

/* ---- what a file says of itself ---------------------------------------------------------------------- */

enum { KEYS = 9 };
typedef struct pairs {
    const char *items[2 * KEYS];
    char *owned[KEYS];
    int count;
} pairs;

/* Stores `value`; false when it is NULL, because there was no memory. */
static bool add_pair(pairs *p, const char *key, char *value)
{
    if (!value)
        return false;
    p->items[2 * p->count] = key;
    p->items[2 * p->count + 1] = value;
    p->owned[p->count++] = value;
    return true;
}

static void free_pairs(pairs *p)
{
    for (int i = 0; i < p->count; i++)
        free(p->owned[i]);
}

static char *slice_text(const prepare_how *how, const moxie_preparation_info *info)
{
    json_t *experts = json_array();
    bool fine = experts != NULL;
    for (int32_t i = 0; fine && i < info->n_experts; i++)
        fine = json_array_append_new(experts, json_integer(info->experts[i])) == 0;
    if (!fine) {
        json_decref(experts);
        return NULL;
    }
    return cli_json_text(json_pack("{s:[i,i], s:[i,i], s:s, s:[I,I,I], s:o}", "tp", how->tp_rank, how->tp_size, "ep",
                                   how->ep_rank, how->ep_size, "ep_map",
                                   how->ep_map == MOXIE_MAP_LINEAR ? "linear" : "round-robin", "intermediate",
                                   (json_int_t)info->first_intermediate, (json_int_t)info->intermediate,
                                   (json_int_t)info->whole_intermediate, "experts", experts),
                         JSON_COMPACT);
}

static char *padding_text(const moxie_preparation_info *info)
{
    return cli_json_text(json_pack("{s:[I,I], s:[I,I], s:i}", "hidden", (json_int_t)info->hidden,
                                   (json_int_t)info->padded_hidden, "intermediate", (json_int_t)info->intermediate,
                                   (json_int_t)info->padded_intermediate, "scales_repeated", info->repeat),
                         JSON_COMPACT);
}

/* Hexadecimal floats are exact. */
static char *facts_text(const moxie_preparation *preparation)
{
    moxie_preparation_facts f = MOXIE_PREPARATION_FACTS_INIT;
    moxie_error error;
    char *text = NULL;
    if (moxie_preparation_get_facts(preparation, &f, &error) != MOXIE_OK ||
        asprintf(&text, "%a %a %a %a %a %a", (double)f.scale_max[0], (double)f.scale_max[1], (double)f.scale_min[0],
                 (double)f.scale_min[1], (double)f.a13_max, (double)f.a2_max) < 0)
        text = NULL;
    return text;
}

/* All metadata but the facts, which come from a survey. False when out of memory. */
static bool describe(const prepare_how *how, const moxie_preparation_info *info, const prepare_source *source,
                     int64_t layer, pairs *p)
{
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)layer);
    return add_pair(p, "format", strdup("pt")) && /* readers in the Hugging Face manner need it */
           add_pair(p, "moxie.version", strdup(MOXIE_VERSION_STRING)) &&
           add_pair(p, "moxie.layout", strdup(how->layout)) && add_pair(p, "moxie.for", strdup(info->release)) &&
           add_pair(p, "moxie.layer", strdup(number)) && add_pair(p, "moxie.slice", slice_text(how, info)) &&
           add_pair(p, "moxie.padding", padding_text(info)) && add_pair(p, "moxie.source", prepare_source_text(source));
}

/* Checks that the tensors that the file keeps still equal the checkpoint's. */
static bool has_kept(const moxie_tensor_file *file, const prepare_source *source)
{
    bool same = true;
    for (int64_t i = 0; same && i < source->count; i++) {
        const prepare_tensor *t = &source->tensors[i];
        moxie_tensor kept;
        moxie_error error;
        char name[PREPARE_NAME];
        if (t->pieces > 0)
            continue;
        same = prepare_kept_name(t->name, name) && moxie_tensor_file_find(file, name, &kept, &error) == MOXIE_OK &&
               kept.dtype == t->view.dtype && kept.rank == t->view.rank &&
               !memcmp(kept.shape, t->view.shape, (size_t)kept.rank * sizeof *kept.shape) &&
               !memcmp(kept.data, t->view.data, (size_t)t->bytes);
    }
    return same;
}

/* Whether the file is whole, was made in the same way, of tensors of the same shapes, and keeps equal tensors. Its
 * experts' hashes go to `hashes`. */
static bool is_made(const char *path, const pairs *p, const char *prefix, const prepare_source *source,
                    int32_t n_experts, uint64_t *hashes)
{
    moxie_tensor_file *file = NULL;
    moxie_error error;
    moxie_tensor tensor;
    char name[PREPARE_NAME];
    if (!moxie_file_exists(path) || moxie_tensor_file_open(path, 0, &file, &error) != MOXIE_OK)
        return false;
    bool same = true;
    for (int i = 0; same && i < p->count; i++) {
        const char *value = moxie_tensor_file_metadata(file, p->items[2 * i]);
        same = value && !strcmp(value, p->items[2 * i + 1]);
    }
    same = same && moxie_tensor_file_check_seal(file, &error) == MOXIE_OK;
    same = same && has_kept(file, source);
    snprintf(name, sizeof name, "%s%s", prefix, PREPARE_EXPERT_HASH);
    same = same && moxie_tensor_file_find(file, name, &tensor, &error) == MOXIE_OK && tensor.dtype == MOXIE_U64 &&
           tensor.rank == 1 && tensor.shape[0] == n_experts;
    if (same)
        memcpy(hashes, tensor.data, (size_t)n_experts * sizeof *hashes);
    moxie_tensor_file_close(file);
    return same;
}

/* ---- writing it -------------------------------------------------------------------------------------- */

/* A layer that is being prepared. */
typedef struct layer_work {
    const prepare_options *options;
    const moxie_weights *weights;
    moxie_preparation *preparation;
    moxie_preparation_info info;
    prepare_source source;
    char prefix[300];
    pairs pairs;
    uint64_t *hashes; /* [n_experts] */
    void **tensors;
    moxie_sealed_writer *writer;
} layer_work;

static void let_go(const moxie_weights *weights, const moxie_expert *expert)
{
    if (weights->done)
        weights->done(weights->done_user, expert);
}

static moxie_status survey(layer_work *w, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    for (int32_t s = 0; w->info.surveys && status == MOXIE_OK && s < w->info.n_experts; s++) {
        const moxie_expert *expert = &w->weights->experts[w->info.experts[s]];
        status = moxie_preparation_survey(w->preparation, expert, error);
        let_go(w->weights, expert);
    }
    return status;
}

/* Declares the file's tensors: stacked ones, hashes, kept ones. */
static moxie_status open_writer(layer_work *w, const char *path, moxie_error *error)
{
    const int64_t stacked = w->info.n_tensors + 1, max = stacked + w->source.count;
    moxie_sealed_tensor *decls = calloc((size_t)max, sizeof *decls);
    char(*names)[PREPARE_NAME] = calloc((size_t)max, sizeof *names);
    moxie_status status = decls && names ? MOXIE_OK : cli_error(MOXIE_ERR_MEMORY, error, path, "no memory");
    int64_t n = 0;
    for (; status == MOXIE_OK && n < stacked; n++)
        if (!prepare_stacked_tensor(w->preparation, w->prefix, (int32_t)n, names[n], sizeof names[n], &decls[n]))
            status =
                cli_error(MOXIE_ERR_UNSUPPORTED, error, path, "tensor %s cannot be stacked over experts", names[n]);
    for (int64_t i = 0; status == MOXIE_OK && i < w->source.count; i++) {
        const prepare_tensor *t = &w->source.tensors[i];
        if (t->pieces > 0)
            continue;
        if (!prepare_kept_name(t->name, names[n]))
            status = cli_error(MOXIE_ERR_UNSUPPORTED, error, path,
                               "the name of a tensor is too long to be kept: %.100s", t->name);
        decls[n] =
            (moxie_sealed_tensor) { .name = names[n], .dtype = t->view.dtype, .rank = t->view.rank, .pieces = 1 };
        memcpy(decls[n].shape, t->view.shape, sizeof decls[n].shape);
        n++;
    }
    if (status == MOXIE_OK)
        status = moxie_sealed_writer_open(path, decls, n, w->pairs.items, w->pairs.count, &w->writer, error);
    free(decls);
    free(names);
    return status;
}

static moxie_status put_kept(layer_work *w, moxie_error *error)
{
    int64_t n = w->info.n_tensors + 1;
    moxie_status status = MOXIE_OK;
    for (int64_t i = 0; status == MOXIE_OK && i < w->source.count; i++)
        if (w->source.tensors[i].pieces == 0)
            status = moxie_sealed_writer_put(w->writer, n++, 0, w->source.tensors[i].view.data, error);
    return status;
}

static moxie_status put_expert(layer_work *w, int32_t slot, const moxie_executor *executor, moxie_error *error)
{
    const moxie_expert *expert = &w->weights->experts[w->info.experts[slot]];
    prepare_span spans[PREPARE_SPANS];
    prepare_piece pieces[PREPARE_PIECES];
    moxie_status status = moxie_preparation_pack(w->preparation, expert, w->tensors, executor, error);
    if (status != MOXIE_OK)
        return status;
    for (int32_t i = 0; i < w->info.n_tensors; i++)
        pieces[i] = (prepare_piece) { i, slot, w->tensors[i] };
    status = prepare_put(w->writer, pieces, w->info.n_tensors, spans, prepare_source_spans(&w->source, expert, spans),
                         &w->hashes[slot], executor, error);
    let_go(w->weights, expert);
    if (status == MOXIE_OK)
        status = moxie_sealed_writer_put(w->writer, w->info.n_tensors, slot, &w->hashes[slot], error);
    return status;
}

static moxie_status write_layer(layer_work *w, const char *path, const moxie_executor *executor, cli_progress *progress,
                                moxie_error *error)
{
    moxie_status status = survey(w, error);
    if (status == MOXIE_OK && !add_pair(&w->pairs, "moxie.facts", facts_text(w->preparation)))
        status = cli_error(MOXIE_ERR_MEMORY, error, path, "no memory for its metadata");
    if (status == MOXIE_OK)
        status = prepare_tensors_alloc(w->preparation, &w->tensors, error);
    if (status == MOXIE_OK)
        status = open_writer(w, path, error);
    if (status == MOXIE_OK)
        status = put_kept(w, error);
    for (int32_t s = 0; status == MOXIE_OK && s < w->info.n_experts; s++) {
        status = put_expert(w, s, executor, error);
        cli_progress_show(progress, (uint64_t)s + 1, (uint64_t)w->info.n_experts);
    }
    if (status != MOXIE_OK) {
        moxie_sealed_writer_abandon(w->writer);
        return status;
    }
    return moxie_sealed_writer_finish(w->writer, error);
}

static moxie_status begin(layer_work *w, const moxie_model *model, const moxie_model_layer *loaded, int64_t layer,
                          moxie_error *error)
{
    w->weights = moxie_model_layer_weights(loaded);
    w->info = (moxie_preparation_info)MOXIE_PREPARATION_INFO_INIT;
    moxie_status status = prepare_plan(&w->options->how, loaded, &w->preparation, error);
    if (status == MOXIE_OK)
        status = moxie_preparation_get_info(w->preparation, &w->info, error);
    if (status == MOXIE_OK && w->info.n_tensors > PREPARE_PIECES)
        status = cli_error(MOXIE_ERR_UNSUPPORTED, error, "", "%s makes more than %d tensors of an expert",
                           w->info.layout, PREPARE_PIECES);
    if (status == MOXIE_OK)
        status = moxie_model_expert_prefix(model, layer, w->prefix, sizeof w->prefix, error);
    if (status == MOXIE_OK)
        status = prepare_source_read(model, layer, w->weights, &w->source, error);
    if (status != MOXIE_OK)
        return status;
    w->hashes = calloc((size_t)w->info.n_experts, sizeof *w->hashes);
    if (!w->hashes || !describe(&w->options->how, &w->info, &w->source, layer, &w->pairs))
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for the description of layer %lld", (long long)layer);
    return MOXIE_OK;
}

/* Whether the existing file was made of this checkpoint: every expert still has its hash. */
static bool is_of_source(const layer_work *w)
{
    bool same = true;
    for (int32_t s = 0; same && s < w->info.n_experts; s++) {
        const moxie_expert *expert = &w->weights->experts[w->info.experts[s]];
        prepare_span spans[PREPARE_SPANS];
        const int count = prepare_source_spans(&w->source, expert, spans);
        same = prepare_span_hash(spans, count) == w->hashes[s];
        let_go(w->weights, expert);
    }
    return same;
}

static void account(const layer_work *w, bool made, prepare_report *report)
{
    const uint64_t in = prepare_source_expert_bytes(&w->source, w->weights->experts);
    report->made += made;
    report->kept += !made;
    report->info = w->info;
    report->info.experts = NULL; /* owned by the preparation, which is destroyed */
    report->bytes += w->info.expert_bytes * (uint64_t)w->info.n_experts;
    report->expert_bytes_in = in > report->expert_bytes_in ? in : report->expert_bytes_in;
    if (w->info.expert_bytes > report->expert_bytes_out)
        report->expert_bytes_out = w->info.expert_bytes;
    /* One number for all layers: each expert's hash, mixed with the number so far. */
    for (int32_t s = 0; s < w->info.n_experts; s++) {
        uint64_t pair[2] = { report->source_hash, w->hashes[s] };
        const prepare_span span = { .data = (unsigned char *)pair, .bytes = sizeof pair };
        report->source_hash = prepare_span_hash(&span, 1);
    }
}

moxie_status prepare_layer(const prepare_options *options, const moxie_model *model, int64_t layer, const char *out,
                           const moxie_executor *executor, cli_progress *progress, prepare_report *report,
                           moxie_error *error)
{
    char path[PATH_MAX];
    moxie_model_layer *loaded = NULL;
    layer_work w = { .options = options };
    bool made = false;
    prepare_layer_path(out, layer, path);
    moxie_status status = moxie_model_load_layer(model, layer, &loaded, error);
    if (status == MOXIE_OK)
        status = begin(&w, model, loaded, layer, error);
    if (status == MOXIE_OK &&
        !(is_made(path, &w.pairs, w.prefix, &w.source, w.info.n_experts, w.hashes) && is_of_source(&w))) {
        made = true;
        status = write_layer(&w, path, executor, progress, error);
    }
    if (status == MOXIE_OK)
        account(&w, made, report);
    free_pairs(&w.pairs);
    free(w.hashes);
    prepare_tensors_free(w.tensors);
    prepare_source_free(&w.source);
    moxie_preparation_destroy(w.preparation);
    moxie_model_layer_free(loaded);
    return status;
}
