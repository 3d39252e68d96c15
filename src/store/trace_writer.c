/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_writer.c - steps of a run, in order, to a trace file (trace_format.h).
 *
 *     create: header -> temporary file      add: ids, weights, requests -> one block, summed -> appended
 *     finish: END -> flushed, renamed
 */
#include "store/trace.h"

#include <string.h>

#include "base/memory.h"
#include "base/sizes.h"
#include "base/whole_file.h"
#include "store/trace_format.h"

struct moxie_trace_writer {
    mox_whole_file file;
    moxie_trace_info info;
    int64_t steps;
    bool finished;
    mox_trace_buffer block; /* the step that is being written */
};

static moxie_status write_header(moxie_trace_writer *w, const moxie_trace_info *info, moxie_error *error)
{
    const uint64_t bytes = mox_trace_header_bytes(info->layers);
    unsigned char *block = mox_alloc(bytes);
    MOX_FAIL_IF(!block, MOXIE_ERR_MEMORY, error, "no memory for the header of a trace");
    mox_trace_header h = { .version = MOX_TRACE_VERSION,
                           .byte_order = MOX_TRACE_BYTE_ORDER,
                           .header_bytes = (uint32_t)bytes,
                           .layers = (uint32_t)info->layers,
                           .experts = (uint32_t)info->experts,
                           .top_k = (uint32_t)info->top_k,
                           .zero_experts = (uint32_t)info->zero_experts,
                           .fingerprint = info->fingerprint };
    memcpy(h.magic, MOX_TRACE_MAGIC, sizeof h.magic);
    h.flags = (info->has_weights ? MOX_TRACE_HAS_WEIGHTS : 0) | (info->has_requests ? MOX_TRACE_HAS_REQUESTS : 0);
    memcpy(h.model, info->model ? info->model : "", info->model ? strlen(info->model) : 0);
    memcpy(block, &h, sizeof h);
    for (int32_t l = 0; l < info->layers; l++) {
        const uint32_t number = (uint32_t)(info->layer_numbers ? info->layer_numbers[l] : l);
        memcpy(block + sizeof h + 4 * (uint64_t)l, &number, sizeof number);
    }
    const uint64_t sum = mox_trace_checksum(block, bytes, offsetof(mox_trace_header, checksum));
    memcpy(block + offsetof(mox_trace_header, checksum), &sum, sizeof sum);
    const moxie_status status = mox_whole_file_append(&w->file, block, bytes, error);
    mox_free(block);
    return status;
}

moxie_status mox_trace_writer_create(const char *path, const moxie_trace_info *info, moxie_trace_writer **out,
                                     moxie_error *error)
{
    MOX_TRY(mox_trace_check_info(info, MOXIE_ERR_ARGUMENT, error));
    MOX_FAIL_IF(info->model && strlen(info->model) >= MOX_TRACE_NAME_BYTES, MOXIE_ERR_ARGUMENT, error,
                "the model's name has %zu bytes; a trace has room for %d", strlen(info->model),
                MOX_TRACE_NAME_BYTES - 1);
    moxie_trace_writer *w = mox_alloc(sizeof *w);
    MOX_FAIL_IF(!w, MOXIE_ERR_MEMORY, error, "no memory to write a trace");
    w->info = *info;
    w->info.model = NULL; /* the caller's */
    w->info.layer_numbers = NULL;
    w->file = MOX_WHOLE_FILE_NONE;
    moxie_status status = mox_whole_file_create(path, &w->file, error);
    if (status == MOXIE_OK)
        status = write_header(w, info, error);
    if (status == MOXIE_OK)
        *out = w;
    else
        mox_trace_writer_destroy(w);
    return status;
}

/* ---- a step ------------------------------------------------------------------------------------------- */

/* The ids of one token in one layer. */
static moxie_status put_ids(const moxie_trace_info *info, const int32_t *ids, int64_t token, int32_t layer,
                            unsigned char *out, moxie_error *error)
{
    for (int32_t j = 0; j < info->top_k; j++) {
        MOX_FAIL_IF(ids[j] >= info->experts + info->zero_experts, MOXIE_ERR_ARGUMENT, error,
                    "token %lld, layer %d, choice %d is expert %d, and the trace has %d", (long long)token, layer, j,
                    ids[j], info->experts + info->zero_experts);
        const uint16_t id = ids[j] < 0 ? MOX_TRACE_NO_EXPERT : (uint16_t)ids[j];
        memcpy(out + 2 * (uint64_t)j, &id, sizeof id);
    }
    return MOXIE_OK;
}

/* Fills the payload. */
static moxie_status put_choices(moxie_trace_writer *w, const moxie_trace_step *step, const mox_trace_parts *parts,
                                moxie_error *error)
{
    const moxie_trace_info *info = &w->info;
    const bool packed = step->token_stride == 0 && step->layer_stride == 0;
    const int64_t by_layer = packed ? info->top_k : step->layer_stride;
    const int64_t by_token = packed ? (int64_t)info->layers * info->top_k : step->token_stride;
    unsigned char *payload = w->block.at + sizeof(mox_trace_frame);
    uint64_t at = 0;
    for (int64_t t = 0; t < step->tokens; t++)
        for (int32_t l = 0; l < info->layers; l++, at += (uint64_t)info->top_k) {
            const int64_t from = t * by_token + l * by_layer;
            MOX_TRY(put_ids(info, step->ids + from, t, l, payload + 2 * at, error));
            if (info->has_weights)
                memcpy(payload + parts->weights + 4 * at, step->weights + from, 4 * (size_t)info->top_k);
        }
    if (info->has_requests && step->tokens > 0)
        memcpy(payload + parts->requests, step->requests, 8 * (size_t)step->tokens);
    return MOXIE_OK;
}

static moxie_status check_step(const moxie_trace_writer *w, const moxie_trace_step *step, moxie_error *error)
{
    MOX_FAIL_IF(w->finished, MOXIE_ERR_ARGUMENT, error, "the trace is finished: begin another one");
    MOX_FAIL_IF(step->tokens < 0 || step->tokens > MOXIE_TRACE_MAX_TOKENS, MOXIE_ERR_ARGUMENT, error,
                "a step of %lld tokens: the limits are 0 and %d", (long long)step->tokens, MOXIE_TRACE_MAX_TOKENS);
    MOX_FAIL_IF(step->phase < MOXIE_TRACE_UNKNOWN || step->phase > MOXIE_TRACE_MIXED, MOXIE_ERR_ARGUMENT, error,
                "phase %d is none of moxie_trace_phase", step->phase);
    MOX_FAIL_IF(step->tokens > 0 && (!step->ids || (w->info.has_weights && !step->weights) ||
                                     (w->info.has_requests && !step->requests)),
                MOXIE_ERR_ARGUMENT, error,
                "a step without ids, or without weights or requests of a trace that has them");
    return MOXIE_OK;
}

/* Sums and appends the block, whose payload is there. */
static moxie_status append(moxie_trace_writer *w, const char *magic, const moxie_trace_step *step, uint64_t bytes,
                           moxie_error *error)
{
    mox_trace_frame frame = { .tokens = (uint32_t)step->tokens,
                              .phase = (uint32_t)step->phase,
                              .number = (uint64_t)w->steps };
    memcpy(frame.magic, magic, sizeof frame.magic);
    memcpy(w->block.at, &frame, sizeof frame);
    frame.checksum = mox_trace_checksum(w->block.at, bytes, offsetof(mox_trace_frame, checksum));
    memcpy(w->block.at, &frame, sizeof frame);
    return mox_whole_file_append(&w->file, w->block.at, bytes, error);
}

moxie_status mox_trace_writer_add(moxie_trace_writer *w, const moxie_trace_step *step, moxie_error *error)
{
    MOX_TRY(check_step(w, step, error));
    const mox_trace_parts parts = mox_trace_parts_of(&w->info, (uint64_t)step->tokens);
    const uint64_t bytes = sizeof(mox_trace_frame) + parts.bytes;
    MOX_TRY(mox_trace_reserve(&w->block, bytes, error));
    memset(w->block.at, 0, bytes);
    MOX_TRY(put_choices(w, step, &parts, error));
    MOX_TRY(append(w, MOX_TRACE_STEP, step, bytes, error));
    w->steps++;
    return MOXIE_OK;
}

moxie_status mox_trace_writer_finish(moxie_trace_writer *w, moxie_error *error)
{
    const moxie_trace_step end = MOXIE_TRACE_STEP_INIT;
    MOX_FAIL_IF(w->finished, MOXIE_ERR_ARGUMENT, error, "the trace is finished already");
    MOX_TRY(mox_trace_reserve(&w->block, sizeof(mox_trace_frame), error));
    w->finished = true;
    MOX_TRY(append(w, MOX_TRACE_END, &end, sizeof(mox_trace_frame), error));
    return mox_whole_file_publish(&w->file, error);
}

void mox_trace_writer_destroy(moxie_trace_writer *w)
{
    if (!w)
        return;
    mox_whole_file_discard(&w->file);
    mox_free(w->block.at);
    mox_free(w);
}
