/* SPDX-License-Identifier: Apache-2.0
 *
 * api_store.c - the functions of moxie_store.h. Each checks its arguments and reads its structs; src/store does the
 * work.
 */
#include <moxie/moxie_store.h>

#include "api/api_need.h"
#include "layer/config/struct_size.h"
#include "store/expert_file.h"
#include "store/record_reader.h"
#include "store/store.h"

int moxie_expert_target_at(int32_t i, moxie_expert_target *out)
{
    moxie_expert_target known = MOXIE_EXPERT_TARGET_INIT;
    if (out == NULL || mox_struct_check(out, MOX_STRUCT(moxie_expert_target), NULL) != MOXIE_OK)
        return 0;
    known.name = mox_expert_target_at(i, &known.summary);
    if (known.name == NULL)
        return 0;
    mox_struct_write(&known, out, MOX_STRUCT(moxie_expert_target));
    return 1;
}

moxie_status moxie_expert_writer_open(const char *path, const moxie_layer_config *config, const moxie_weights *weights,
                                      const moxie_expert_writer_options *options, moxie_expert_writer **out,
                                      moxie_error *error)
{
    static const moxie_expert_writer_options defaults = MOXIE_EXPERT_WRITER_OPTIONS_INIT;
    moxie_expert_writer_options read;
    moxie_weights w;
    NEED(path);
    NEED(config);
    NEED(weights);
    NEED(out);
    MOX_TRY(
        mox_struct_read(options != NULL ? options : &defaults, &read, MOX_STRUCT(moxie_expert_writer_options), error));
    MOX_TRY(mox_struct_read(weights, &w, MOX_STRUCT(moxie_weights), error));
    MOX_FAIL_IF(read.n_extras < 0 || (read.n_extras > 0 && read.extras == NULL), MOXIE_ERR_ARGUMENT, error,
                "options.n_extras is %lld, and options.extras %s", (long long)read.n_extras,
                read.extras != NULL ? "is given" : "is NULL");
    return mox_expert_writer_open(path, config, &w, &read, out, error);
}

moxie_status moxie_expert_writer_put(moxie_expert_writer *writer, int64_t expert, uint64_t source_hash,
                                     moxie_error *error)
{
    NEED(writer);
    return mox_expert_writer_put(writer, expert, source_hash, error);
}

moxie_status moxie_expert_writer_finish(moxie_expert_writer *writer, moxie_error *error)
{
    NEED(writer);
    return mox_expert_writer_finish(writer, error);
}

void moxie_expert_writer_abandon(moxie_expert_writer *writer)
{
    mox_expert_writer_abandon(writer);
}

int moxie_read_engine_at(int32_t i, moxie_read_engine *out)
{
    moxie_read_engine known = MOXIE_READ_ENGINE_INIT;
    if (out == NULL || mox_struct_check(out, MOX_STRUCT(moxie_read_engine), NULL) != MOXIE_OK ||
        !mox_read_engine_at(i, &known))
        return 0;
    mox_struct_write(&known, out, MOX_STRUCT(moxie_read_engine));
    return 1;
}

moxie_status moxie_expert_file_open(const char *path, const moxie_expert_file_options *options, moxie_expert_file **out,
                                    moxie_error *error)
{
    static const moxie_expert_file_options defaults = MOXIE_EXPERT_FILE_OPTIONS_INIT;
    moxie_expert_file_options read;
    NEED(path);
    NEED(out);
    MOX_TRY(
        mox_struct_read(options != NULL ? options : &defaults, &read, MOX_STRUCT(moxie_expert_file_options), error));
    MOX_FAIL_IF(read.access < MOXIE_EXPERT_MAP || read.access > MOXIE_EXPERT_DIRECT, MOXIE_ERR_ARGUMENT, error,
                "options.access is %d; it is one of moxie_expert_access", (int)read.access);
    return mox_expert_file_open(path, &read, out, error);
}

void moxie_expert_file_close(moxie_expert_file *file)
{
    mox_expert_file_close(file);
}

moxie_status moxie_expert_file_get_info(const moxie_expert_file *file, moxie_expert_file_info *out, moxie_error *error)
{
    NEED(file);
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_expert_file_info), error));
    const mox_expert_header *h = &file->header;
    const moxie_expert_file_info info = { .version = (int32_t)h->version,
                                          .target = h->target,
                                          .layout = h->layout_name,
                                          .shared_layout = h->shared_layout_name,
                                          .layer = h->layer,
                                          .experts = h->experts,
                                          .held = h->held,
                                          .record_bytes = h->record_bytes,
                                          .shared_bytes = h->shared_bytes,
                                          .file_bytes = file->seal.file_bytes,
                                          .generation = file->seal.generation,
                                          .source_xxh3 = h->source_xxh3,
                                          .direct = file->direct,
                                          .unused_bytes = file->seal.unused_bytes,
                                          .read_engine = file->read_engine != NULL ? file->read_engine : "",
                                          .read_why = file->read_why };
    mox_struct_write(&info, out, MOX_STRUCT(moxie_expert_file_info));
    return MOXIE_OK;
}

const moxie_layer_config *moxie_expert_file_config(const moxie_expert_file *file)
{
    return file != NULL ? &file->config : NULL;
}

moxie_status moxie_expert_file_record(const moxie_expert_file *file, int64_t expert, moxie_expert_record *out,
                                      moxie_error *error)
{
    NEED(file);
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_expert_record), error));
    MOX_FAIL_IF(expert < -1 || expert >= file->header.experts, MOXIE_ERR_ARGUMENT, error,
                "expert %lld was asked for; the layer has experts 0 to %lld, and -1 is the shared one",
                (long long)expert, (long long)file->header.experts - 1);
    const mox_expert_entry *entry = mox_expert_entry_of(file, expert);
    const moxie_expert_record record = { .data = entry->range.bytes != 0 ? file->data + entry->range.offset : NULL,
                                         .offset = entry->range.offset,
                                         .bytes = entry->range.bytes,
                                         .checksum = entry->range.checksum,
                                         .generation = entry->generation,
                                         .source_hash = entry->source_hash };
    mox_struct_write(&record, out, MOX_STRUCT(moxie_expert_record));
    return MOXIE_OK;
}

const void *moxie_expert_file_section(const moxie_expert_file *file, const char *name, uint64_t *bytes)
{
    const mox_expert_section *s = file != NULL && name != NULL ? mox_expert_find_section(&file->header, name) : NULL;
    if (bytes != NULL)
        *bytes = s != NULL ? s->range.bytes : 0;
    return s != NULL ? file->data + s->range.offset : NULL;
}

moxie_status moxie_expert_file_verify(const moxie_expert_file *file, const moxie_executor *executor, moxie_error *error)
{
    NEED(file);
    return mox_expert_file_verify(file, executor, error);
}

moxie_status moxie_expert_file_unpack(const moxie_expert_file *file, int64_t expert, moxie_expert *views,
                                      moxie_error *error)
{
    NEED(file);
    NEED(views);
    return mox_expert_file_unpack(file, expert, views, error);
}

moxie_status moxie_expert_file_weights(moxie_expert_file *file, const moxie_executor *executor,
                                       const moxie_weights **out, moxie_error *error)
{
    NEED(file);
    NEED(out);
    return mox_expert_file_weights(file, executor, out, error);
}

moxie_status moxie_layer_open_file(const moxie_expert_file *file, const moxie_layer_config *config,
                                   const moxie_options *options, moxie_layer **out, moxie_error *error)
{
    NEED(file);
    NEED(out);
    return mox_layer_open_file(file, config, options, out, error);
}

moxie_status moxie_expert_file_explain(const moxie_expert_file *file, const moxie_layer_config *config,
                                       const moxie_options *options, moxie_plan **out, moxie_error *error)
{
    NEED(file);
    NEED(out);
    return mox_expert_file_explain(file, config, options, out, error);
}

moxie_status moxie_expert_file_replace(const char *path, int64_t expert, const moxie_expert *weights,
                                       uint64_t source_hash, const moxie_executor *executor, moxie_error *error)
{
    NEED(path);
    NEED(weights);
    return mox_expert_file_replace(path, expert, weights, source_hash, executor, error);
}

/* ---- stores ------------------------------------------------------------------------------------------- */

static moxie_status read_store_arguments(const char *const *paths, int64_t n_paths, const moxie_store_options *options,
                                         moxie_store_options *read, moxie_error *error)
{
    for (int64_t i = 0; i < n_paths; i++)
        MOX_FAIL_IF(paths[i] == NULL, MOXIE_ERR_ARGUMENT, error, "paths[%lld] is NULL", (long long)i);
    return mox_struct_read(options, read, MOX_STRUCT(moxie_store_options), error);
}

moxie_status moxie_store_open(const char *const *paths, int64_t n_paths, const moxie_store_options *options,
                              moxie_store **out, moxie_error *error)
{
    moxie_store_options read;
    NEED(paths);
    NEED(options);
    NEED(out);
    MOX_TRY(read_store_arguments(paths, n_paths, options, &read, error));
    return mox_store_open(paths, n_paths, &read, NULL, out, error);
}

moxie_status moxie_store_describe(const char *const *paths, int64_t n_paths, const moxie_store_options *options,
                                  moxie_store_info *out, moxie_error *error)
{
    moxie_store_options read;
    moxie_store_info info;
    NEED(paths);
    NEED(options);
    NEED(out);
    MOX_TRY(read_store_arguments(paths, n_paths, options, &read, error));
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_store_info), error));
    MOX_TRY(mox_store_describe(paths, n_paths, &read, &info, error));
    mox_struct_write(&info, out, MOX_STRUCT(moxie_store_info));
    return MOXIE_OK;
}

void moxie_store_close(moxie_store *store)
{
    mox_store_close(store);
}

moxie_status moxie_store_get_info(const moxie_store *store, moxie_store_info *out, moxie_error *error)
{
    moxie_store_info info;
    NEED(store);
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_store_info), error));
    mox_store_get_info(store, &info);
    mox_struct_write(&info, out, MOX_STRUCT(moxie_store_info));
    return MOXIE_OK;
}

int64_t moxie_store_layer_number(const moxie_store *store, int64_t i)
{
    return store != NULL && i >= 0 && i < store->n_layers ? store->layers[i].file->header.layer : -1;
}

const moxie_expert_file *moxie_store_file(const moxie_store *store, int64_t layer)
{
    mox_store_layer *found;
    return store != NULL && mox_store_find(store, layer, &found, NULL) == MOXIE_OK ? found->file : NULL;
}

moxie_status moxie_store_layer(moxie_store *store, int64_t layer, const moxie_layer_config *config,
                               const moxie_options *options, moxie_layer **out, moxie_error *error)
{
    NEED(store);
    NEED(out);
    return mox_store_layer_open(store, layer, config, options, out, error);
}

moxie_status moxie_store_prefetch(moxie_store *store, int64_t layer, const int32_t *ids, int64_t count,
                                  moxie_error *error)
{
    NEED(store);
    MOX_FAIL_IF(count < 0 || (count > 0 && ids == NULL), MOXIE_ERR_ARGUMENT, error, "count is %lld, and ids %s",
                (long long)count, ids != NULL ? "are given" : "is NULL");
    return mox_store_prefetch(store, layer, ids, count, error);
}

moxie_status moxie_store_lookahead(const moxie_plan *plan, const moxie_run_args *args, moxie_error *error)
{
    NEED(plan);
    NEED(args);
    return mox_store_lookahead(plan, args, error);
}

moxie_status moxie_store_get_counters(moxie_store *store, int64_t layer, int32_t last_run, moxie_store_counters *out,
                                      moxie_error *error)
{
    moxie_store_counters counters;
    NEED(store);
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_store_counters), error));
    MOX_TRY(mox_store_get_counters(store, layer, last_run != 0, &counters, error));
    mox_struct_write(&counters, out, MOX_STRUCT(moxie_store_counters));
    return MOXIE_OK;
}

moxie_status moxie_disk_measure(const char *const *paths, int32_t n, const moxie_disk_options *options,
                                moxie_disk_rate *out, moxie_error *error)
{
    static const moxie_disk_options defaults = MOXIE_DISK_OPTIONS_INIT;
    moxie_disk_options read;
    moxie_disk_rate rate = MOXIE_DISK_RATE_INIT;
    NEED(paths);
    NEED(out);
    MOX_TRY(mox_struct_read(options != NULL ? options : &defaults, &read, MOX_STRUCT(moxie_disk_options), error));
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_disk_rate), error));
    MOX_TRY(mox_disk_measure(paths, n, &read, &rate, error));
    mox_struct_write(&rate, out, MOX_STRUCT(moxie_disk_rate));
    return MOXIE_OK;
}
