/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_back.c - opens a prepared layer so that its checkpoint can be restored: memory for the checkpoint's tensors,
 * their views.
 *
 *     metadata moxie.source      names, dtypes, shapes      -> addresses in reserved memory without pages
 *     tensors moxie.source/...   those that were kept       -> copied to their addresses
 *     config.json                                           -> the model reader reads these tensors as a checkpoint
 *     its views                                             -> experts are unpacked through them, one at a time
 */
#include "prepare.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static moxie_status reserve(prepare_back *b, moxie_error *error)
{
    const uint64_t bytes = b->described.room_bytes > 0 ? b->described.room_bytes : 1;
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no %llu bytes of addresses for a layer's tensors",
                         (unsigned long long)bytes);
    b->room = room;
    return MOXIE_OK;
}

/* Copies a kept tensor's bytes to its address. */
static moxie_status fill_kept(const prepare_back *b, int64_t i, const char *path, moxie_error *error)
{
    char name[PREPARE_NAME];
    const moxie_tensor *t = &b->described.tensors[i].tensor;
    moxie_tensor kept;
    if (!prepare_kept_name(b->described.tensors[i].name, name))
        return cli_error(MOXIE_ERR_FORMAT, error, path,
                         "the name of a tensor in its metadata moxie.source is too long");
    moxie_status status = moxie_tensor_file_find(b->file, name, &kept, error);
    if (status == MOXIE_OK && (kept.dtype != t->dtype || kept.rank != t->rank ||
                               memcmp(kept.shape, t->shape, (size_t)t->rank * sizeof *t->shape) != 0))
        status =
            cli_error(MOXIE_ERR_MISMATCH, error, path, "%s has not the type and shape that it was kept with", name);
    if (status == MOXIE_OK)
        memcpy(t->data, kept.data, b->described.bytes[i]); /* type and shape are equal, so is the size */
    return status;
}

/* The same from an expert file, whose kept tensors lie one after another; *at: where in its section. */
static moxie_status fill_kept_part(const prepare_back *b, int64_t i, uint64_t *at, const char *path, moxie_error *error)
{
    uint64_t bytes = 0;
    const char *kept = moxie_expert_file_section(b->experts, "x.kept", &bytes);
    if (!kept || *at > bytes || b->described.bytes[i] > bytes - *at)
        return cli_error(MOXIE_ERR_FORMAT, error, path, "its section x.kept does not have the tensors of x.source");
    memcpy(b->described.tensors[i].tensor.data, kept + *at, b->described.bytes[i]);
    *at += (b->described.bytes[i] + 63) / 64 * 64;
    return MOXIE_OK;
}

/* Gives every tensor an address, in order, and copies the kept ones there. */
static moxie_status fill_room(prepare_back *b, const char *path, moxie_error *error)
{
    uint64_t at = 0, kept = 0;
    moxie_status status = MOXIE_OK;
    for (int64_t i = 0; status == MOXIE_OK && i < b->described.count; i++) {
        b->described.tensors[i].tensor.data = b->room + at;
        at += (b->described.bytes[i] + 63) / 64 * 64; /* no overflow: prepare_described_parse() checked the sum */
        if (b->described.pieces[i] == 0)
            status = b->experts ? fill_kept_part(b, i, &kept, path, error) : fill_kept(b, i, path, error);
    }
    return status;
}

/* The text that describes the checkpoint's tensors; NULL when there is none. free() it. */
static char *source_text(const prepare_back *b)
{
    uint64_t bytes = 0;
    if (!b->experts) {
        const char *text = moxie_tensor_file_metadata(b->file, "moxie.source");
        return text ? strdup(text) : NULL;
    }
    const char *data = moxie_expert_file_section(b->experts, "x.source", &bytes);
    return data ? strndup(data, bytes) : NULL;
}

static moxie_status make_room(prepare_back *b, const char *path, moxie_error *error)
{
    char *text = source_text(b);
    if (!text)
        return cli_error(MOXIE_ERR_FORMAT, error, path, "it does not describe the tensors that it was made of");
    moxie_status status = prepare_described_parse(text, path, &b->described, error);
    free(text);
    if (status == MOXIE_OK)
        status = reserve(b, error);
    return status == MOXIE_OK ? fill_room(b, path, error) : status;
}

/* Shares the room of another rank's file when it describes the same tensors. */
static moxie_status share_room(prepare_back *b, const prepare_back *first, const char *path, moxie_error *error)
{
    char *mine = source_text(b), *other = source_text(first);
    const bool same = mine && other && strcmp(mine, other) == 0;
    free(mine);
    free(other);
    if (!same)
        return cli_error(MOXIE_ERR_MISMATCH, error, path, "it was not made of the tensors that the other ranks' were");
    b->shared = true;
    b->described = first->described;
    b->room = first->room;
    return MOXIE_OK;
}

/* Parses six numbers and nothing else. */
static bool read_facts(const char *text, moxie_preparation_facts *out)
{
    int end = 0;
    return text &&
           sscanf(text, "%a %a %a %a %a %a%n", &out->scale_max[0], &out->scale_max[1], &out->scale_min[0],
                  &out->scale_min[1], &out->a13_max, &out->a2_max, &end) == 6 &&
           text[end] == '\0';
}

/* The experts of an expert file, as the slots of a preparation. */
static moxie_status list_held(prepare_back *b, moxie_error *error)
{
    moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
    moxie_expert_file_get_info(b->experts, &info, NULL);
    b->held = calloc((size_t)info.held + 1, sizeof *b->held);
    if (!b->held)
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for a list of experts");
    if (info.experts != moxie_model_layer_weights(b->layer)->n_experts)
        return cli_error(MOXIE_ERR_MISMATCH, error, "", "the file has %lld experts, its config.json another number",
                         (long long)info.experts);
    for (int64_t e = 0; e < info.experts; e++) {
        moxie_expert_record record = MOXIE_EXPERT_RECORD_INIT;
        moxie_expert_file_record(b->experts, e, &record, NULL);
        if (record.data)
            b->held[b->info.n_experts++] = (int32_t)e;
    }
    b->info.experts = b->held;
    b->info.layout = prepare_expert_target(info.target);
    return MOXIE_OK;
}

static moxie_status open_views(const char *dir, const prepare_how *how, int64_t layer, prepare_back *b,
                               moxie_error *error)
{
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    moxie_preparation_facts facts = MOXIE_PREPARATION_FACTS_INIT;
    options.experts_only = 1;
    options.allow_unread = 1; /* whoever prepared these tensors was asked */
    options.tensors = b->described.tensors;
    options.n_tensors = b->described.count;
    moxie_status status = moxie_model_open(dir, &options, &b->model, error);
    if (status == MOXIE_OK)
        status = moxie_model_load_layer(b->model, layer, &b->layer, error);
    if (status == MOXIE_OK)
        status = moxie_model_expert_prefix(b->model, layer, b->prefix, sizeof b->prefix, error);
    if (status == MOXIE_OK && b->experts)
        return list_held(b, error);
    if (status == MOXIE_OK)
        status = prepare_plan(how, b->layer, &b->preparation, error);
    if (status == MOXIE_OK)
        status = moxie_preparation_get_info(b->preparation, &b->info, error);
    if (status == MOXIE_OK && b->info.n_tensors > PREPARE_PIECES)
        status = cli_error(MOXIE_ERR_UNSUPPORTED, error, "", "%s makes more than %d tensors of an expert",
                           b->info.layout, PREPARE_PIECES);
    if (status != MOXIE_OK)
        return status;
    if (!read_facts(moxie_tensor_file_metadata(b->file, "moxie.facts"), &facts))
        return cli_error(MOXIE_ERR_FORMAT, error, "", "the metadata moxie.facts of layer %lld are no six numbers",
                         (long long)layer);
    return moxie_preparation_set_facts(b->preparation, &facts, error);
}

/* Checks that the file has exactly the tensors of the plan, and the hashes of the experts. */
static moxie_status check_tensors(const prepare_back *b, const char *path, moxie_error *error)
{
    char name[PREPARE_NAME];
    moxie_sealed_tensor want;
    moxie_status status = MOXIE_OK;
    for (int32_t i = 0; status == MOXIE_OK && i <= b->info.n_tensors; i++) {
        moxie_tensor found;
        if (!prepare_stacked_tensor(b->preparation, b->prefix, i, name, sizeof name, &want))
            return cli_error(MOXIE_ERR_UNSUPPORTED, error, path, "tensor %s cannot be stacked over experts", name);
        status = moxie_tensor_file_find(b->file, name, &found, error);
        if (status == MOXIE_OK && (found.dtype != want.dtype || found.rank != want.rank ||
                                   memcmp(found.shape, want.shape, (size_t)want.rank * sizeof *want.shape) != 0))
            status =
                cli_error(MOXIE_ERR_MISMATCH, error, path, "%s has another type or shape than its layout makes", name);
    }
    return status;
}

static moxie_status open_tensors(const char *path, prepare_back *b, moxie_error *error)
{
    const moxie_status status = moxie_tensor_file_open(path, 0, &b->file, error);
    return status == MOXIE_OK ? moxie_tensor_file_check_seal(b->file, error) : status;
}

static moxie_status open_experts(const char *path, prepare_back *b, moxie_error *error)
{
    moxie_expert_file_options options = MOXIE_EXPERT_FILE_OPTIONS_INIT;
    options.verify = 1;
    return moxie_expert_file_open(path, &options, &b->experts, error);
}

moxie_status prepare_back_open(const char *dir, const prepare_how *how, int64_t layer, const prepare_back *first,
                               prepare_back *out, moxie_error *error)
{
    char path[PATH_MAX];
    *out = (prepare_back) { .info = MOXIE_PREPARATION_INFO_INIT };
    const bool experts = prepare_expert_target(how->layout) != NULL;
    (experts ? prepare_experts_path : prepare_layer_path)(dir, layer, path);
    moxie_status status = experts ? open_experts(path, out, error) : open_tensors(path, out, error);
    if (status == MOXIE_OK)
        status = first ? share_room(out, first, path, error) : make_room(out, path, error);
    if (status == MOXIE_OK)
        status = open_views(dir, how, layer, out, error);
    return status == MOXIE_OK && !experts ? check_tensors(out, path, error) : status;
}

void prepare_back_close(prepare_back *b)
{
    moxie_preparation_destroy(b->preparation);
    moxie_model_layer_free(b->layer);
    moxie_model_close(b->model);
    moxie_tensor_file_close(b->file);
    moxie_expert_file_close(b->experts);
    free(b->held);
    if (!b->shared) {
        if (b->room)
            munmap(b->room, b->described.room_bytes > 0 ? b->described.room_bytes : 1);
        prepare_described_free(&b->described);
    }
    *b = (prepare_back) { 0 };
}

static moxie_status find_slot(const prepare_back *b, int32_t slot, void **tensors, moxie_error *error)
{
    char name[PREPARE_NAME];
    moxie_sealed_tensor stacked;
    moxie_prepared_tensor one = MOXIE_PREPARED_TENSOR_INIT;
    moxie_status status = MOXIE_OK;
    for (int32_t i = 0; status == MOXIE_OK && moxie_preparation_tensor_at(b->preparation, i, &one); i++) {
        moxie_tensor found;
        prepare_stacked_tensor(b->preparation, b->prefix, i, name, sizeof name, &stacked);
        status = moxie_tensor_file_find(b->file, name, &found, error);
        if (status == MOXIE_OK)
            tensors[i] = (unsigned char *)found.data + (uint64_t)slot * one.bytes;
    }
    return status;
}

static void let_go_slot(const prepare_back *back, void **tensors)
{
    moxie_prepared_tensor one = MOXIE_PREPARED_TENSOR_INIT;
    for (int32_t i = 0; moxie_preparation_tensor_at(back->preparation, i, &one); i++)
        moxie_tensor_file_release_pages(back->file, tensors[i], one.bytes);
}

moxie_status prepare_back_unpack(const prepare_back *b, int32_t slot, void **tensors, moxie_expert *views,
                                 const moxie_executor *executor, moxie_error *error)
{
    if (b->experts)
        return moxie_expert_file_unpack(b->experts, b->held[slot], views, error);
    moxie_status status = find_slot(b, slot, tensors, error);
    if (status == MOXIE_OK)
        status = moxie_preparation_unpack(b->preparation, tensors, views, executor, error);
    if (status == MOXIE_OK)
        let_go_slot(b, tensors);
    return status;
}

uint64_t prepare_back_hash(const prepare_back *b, int32_t slot)
{
    char name[PREPARE_NAME];
    moxie_tensor found;
    moxie_error error;
    uint64_t hash = 0;
    if (b->experts) {
        moxie_expert_record record = MOXIE_EXPERT_RECORD_INIT;
        moxie_expert_file_record(b->experts, b->held[slot], &record, NULL);
        return record.source_hash;
    }
    snprintf(name, sizeof name, "%s%s", b->prefix, PREPARE_EXPERT_HASH);
    if (moxie_tensor_file_find(b->file, name, &found, &error) == MOXIE_OK)
        memcpy(&hash, (const unsigned char *)found.data + (uint64_t)slot * sizeof hash, sizeof hash);
    return hash;
}
