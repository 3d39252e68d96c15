/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks_device.c - copies between a device and the pinned memory of a plan with ranks (ranks_device.h).
 *
 * All copies are enqueued on the run's stream. Pinned memory is written again only after a wait that came behind the
 * copies from it: numbers of a chunk lie in one of two sides, and every chunk waits for its return.
 */
#include "layer/run/ranks_device.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/sizes.h"
#include "layer/plan/exchange_message.h"
#include "layer/run/exchange.h"
#include "layer/run/run_adapters.h"

static bool on_device(const mox_run *run)
{
    return run->plan->backend->on_device;
}

static bool staged(const mox_run *run)
{
    return run->plan->ranks->staged;
}

static moxie_status copy(const mox_run *run, void *to, const void *from, uint64_t bytes, moxie_error *error)
{
    return bytes > 0 ? run->plan->backend->copy(&run->queue, to, from, bytes, error) : MOXIE_OK;
}

/* From the pinned memory to the same place in the workspace. */
static moxie_status bring(const mox_run *run, uint64_t offset, uint64_t bytes, moxie_error *error)
{
    return copy(run, run->space + offset, run->plan->ranks->pinned + offset, bytes, error);
}

/* The other way. */
static moxie_status fetch(const mox_run *run, uint64_t offset, uint64_t bytes, moxie_error *error)
{
    return copy(run, run->plan->ranks->pinned + offset, run->space + offset, bytes, error);
}

static moxie_status wait_for(const mox_run *run, moxie_error *error)
{
    return run->queue.table->stream_wait(run->queue.stream, error);
}

static uint64_t hidden_bytes(const mox_run *run, int64_t rows)
{
    const moxie_layer_config *c = &run->plan->config;
    return (uint64_t)(rows * c->hidden * mox_dtype_bytes(c->dtype));
}

/* ---- the run as the host sees it ----------------------------------------------------------------------- */

moxie_status mox_ranks_begin(mox_run *run, mox_run *host, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const uint64_t choices = (uint64_t)(run->args.tokens * run->plan->config.top_k);
    run->host = run;
    if (!on_device(run))
        return MOXIE_OK;
    *host = *run;
    host->space = x->pinned;
    host->ids = (const int32_t *)(x->pinned + x->pinned_ids);
    host->weights = (const float *)(x->pinned + x->pinned_weights);
    host->args.adapter_ids = run->args.adapters != NULL ? (const int32_t *)(x->pinned + x->pinned_adapters) : NULL;
    host->host = run->host = host;
    if (x->places && !x->staged) /* pinned memory has nothing of the run */
        return MOXIE_OK;
    MOX_TRY(run->queue.table->event_wait(x->last_run, error));
    if (x->places && x->layout == MOXIE_TOKENS_SHARDED)
        return MOXIE_OK;
    MOX_TRY(copy(run, x->pinned + x->pinned_ids, run->ids, choices * sizeof(int32_t), error));
    if (run->plan->config.routing.on_input || x->degraded == MOXIE_DEGRADED_RENORMALIZE)
        MOX_TRY(copy(run, x->pinned + x->pinned_weights, run->weights, choices * sizeof(float), error));
    if (run->args.adapters != NULL)
        MOX_TRY(copy(run, x->pinned + x->pinned_adapters, run->args.adapter_ids,
                     (uint64_t)run->args.tokens * sizeof(int32_t), error));
    return wait_for(run, error);
}

moxie_status mox_ranks_end(const mox_run *run, moxie_error *error)
{
    if (!on_device(run) || (run->plan->ranks->places && !staged(run)))
        return MOXIE_OK;
    return run->queue.table->event_record(run->plan->ranks->last_run, run->queue.stream, error);
}

static moxie_status too_late(const mox_ranks *x, int32_t deadline, moxie_error *error)
{
    moxie_error late;
    (void)mox_fail(
        MOXIE_ERR_TIMEOUT, &late,
        "what is enqueued on the stream of rank %d has not ended within %d ms (deadline_ms): another rank is "
        "dead, late, or has launched no such graph; NCCL does not say which. Make comms and plans anew "
        "without it",
        (int)x->rank, (int)deadline);
    mox_comm_break(x->comm, &late);
    if (error != NULL)
        *error = late;
    return late.code;
}

/* For last_run, behind which rows of other ranks may be awaited: at most the comm's deadline. */
static moxie_status wait_for_event(const mox_cuda_table *table, const mox_ranks *x, moxie_error *error)
{
    const int32_t deadline = mox_comm_deadline(x->comm);
    const uint64_t begin = mox_clock_now();
    int32_t done = 0;
    for (uint32_t round = 0; mox_clock_now() - begin <= (uint64_t)deadline * 1000000; round++) {
        MOX_TRY(table->event_done(x->last_run, &done, error));
        if (done)
            return MOXIE_OK;
        if (round < 1000)
            sched_yield();
        else
            nanosleep(&(struct timespec) { .tv_nsec = 20000 }, NULL);
    }
    return too_late(x, deadline, error);
}

moxie_status mox_ranks_wait_for_stream(const moxie_plan *plan, mox_cuda_stream stream, moxie_error *error)
{
    const mox_cuda_table *table = plan->device.table;
    int32_t captured = 0;
    MOX_TRY(table->capturing(stream, &captured, error));
    MOX_FAIL_IF(captured != 0, MOXIE_ERR_ARGUMENT, error,
                "the stream is being captured, and what a graph is to do cannot be waited for: end the capture, launch "
                "the graph, then wait");
    if (plan->ranks == NULL)
        return table->stream_wait(stream, error);
    MOX_TRY(wait_for_event(table, plan->ranks, error)); /* of the last run, perhaps on another stream */
    MOX_TRY(table->event_record(plan->ranks->last_run, stream, error));
    return wait_for_event(table, plan->ranks, error);
}

const mox_run *mox_ranks_rows_of(const mox_run *run)
{
    return staged(run) ? run->host : run;
}

void mox_ranks_mark(const mox_run *run, moxie_comm_rows *rows)
{
    rows->on_device = !on_device(run) || staged(run) ? 0 : run->captured ? 2 : 1;
    rows->stream = rows->on_device != 0 ? run->queue.stream : NULL;
}

/* A rank that a degraded run loses must be seen while its rows are awaited. */
void mox_ranks_mark_early(const mox_run *run, moxie_comm_rows *rows)
{
    mox_ranks_mark(run, rows);
    if (rows->on_device != 0 && run->plan->ranks->places)
        rows->on_device = 2;
}

/* ---- dispatch ------------------------------------------------------------------------------------------ */

moxie_status mox_ranks_copy_hidden(const mox_run *run, int64_t first, uint64_t to, int64_t rows, moxie_error *error)
{
    const moxie_layer_config *c = &run->plan->config;
    const mox_cuda_copy_rows_args args = { .rows = rows,
                                           .cols = c->hidden,
                                           .to_cols = c->hidden,
                                           .row = (const int64_t *)(run->space + run->plan->ranks->space.token),
                                           .from = (const char *)run->args.hidden + hidden_bytes(run, first),
                                           .to = run->space + to,
                                           .from_stride = (int64_t)hidden_bytes(run, 1),
                                           .to_stride = (int64_t)hidden_bytes(run, 1),
                                           .from_dtype = c->dtype,
                                           .to_dtype = c->dtype };
    return run->queue.table->copy_rows(&args, run->queue.stream, error);
}

moxie_status mox_ranks_gather_hidden(const mox_run *run, bool send, int64_t tokens, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const mox_ranks_counts *n = &x->counts;
    const moxie_layer_config *c = &run->plan->config;
    const int32_t last = x->count - 1;
    const int64_t rows = send ? n->at[last] + n->rows[last] : n->from[last] + n->from_rows[last];
    const uint64_t to = send ? x->space.send_x : x->space.recv_x;
    if (!on_device(run))
        return MOXIE_OK;
    MOX_TRY(bring(run, x->space.position, (uint64_t)(tokens * c->top_k) * sizeof(int64_t), error));
    MOX_TRY(bring(run, x->space.token, (uint64_t)rows * sizeof(int64_t), error));
    MOX_TRY(mox_ranks_copy_hidden(run, 0, to, rows, error));
    return send && staged(run) ? fetch(run, to, hidden_bytes(run, rows), error) : MOXIE_OK;
}

moxie_status mox_ranks_fetch_counts(const mox_run *run, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    MOX_TRY(fetch(run, x->space.placed, (uint64_t)(2 * x->groups) * sizeof(int64_t), error));
    return mox_comm_takes_numbers(x->comm) ? MOXIE_OK
                                           : run->queue.table->event_record(x->last_run, run->queue.stream, error);
}

moxie_status mox_ranks_read_counts(const mox_run *run, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    if (mox_comm_takes_numbers(x->comm))
        return MOXIE_OK;
    MOX_TRY(wait_for_event(run->queue.table, x, error));
    mox_ranks_take_counts(run);
    return MOXIE_OK;
}

/* Rows and choices are neighbours in a message, as in `placed`. There is one group to a rank. */
static moxie_status put_counts(const void *user, void *first, uint64_t stride, moxie_error *error)
{
    const mox_run *run = user;
    const mox_ranks *x = run->plan->ranks;
    const int64_t words = 2 * (int64_t)(sizeof(int64_t) / sizeof(float));
    const mox_cuda_copy_rows_args args = { .rows = x->groups,
                                           .cols = words, /* of two numbers */
                                           .to_cols = words,
                                           .from = run->space + x->space.placed,
                                           .to = (int64_t *)first + MOX_MESSAGE_ROWS,
                                           .from_stride = words * (int64_t)sizeof(float),
                                           .to_stride = (int64_t)stride,
                                           .from_dtype = MOXIE_F32,
                                           .to_dtype = MOXIE_F32 };
    _Static_assert(MOX_MESSAGE_PAIRS == MOX_MESSAGE_ROWS + 1, "rows and choices are neighbours");
    return run->queue.table->copy_rows(&args, run->queue.stream, error);
}

mox_comm_numbers mox_ranks_numbers(const mox_run *run)
{
    return (mox_comm_numbers) { .user = run, .put = put_counts, .stream = run->queue.stream };
}

void mox_ranks_take_counts(const mox_run *run)
{
    const mox_ranks *x = run->plan->ranks;
    const mox_ranks_counts *n = &x->counts;
    const int64_t *placed = (const int64_t *)(x->pinned + x->space.placed);
    int64_t pairs = 0; /* a sum in memory, pairs_at[g - 1] + pairs[g - 1], is what gcc 12 gets wrong at -O3 */
    for (int32_t g = 0; g < x->groups; g++) {
        n->rows[g] = placed[2 * g];
        n->pairs[g] = placed[2 * g + 1];
        n->at[g] = g * x->chunk_tokens;
        n->pairs_at[g] = pairs;
        pairs += n->pairs[g];
    }
}

/* The device places the numbers that tokens name. One whose adapter is disabled or absent is none, as where the host
 * places them. */
static void leave_out_adapters(const mox_run *run, int64_t rows)
{
    int32_t *numbers = (int32_t *)(run->plan->ranks->pinned + run->plan->ranks->space.send_adapters);
    for (int64_t i = 0; i < rows; i++)
        numbers[i] = mox_run_has_adapter(run, numbers[i]) ? numbers[i] : -1;
}

moxie_status mox_ranks_download_sent(const mox_run *run, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const int64_t rows = x->groups * x->capacity;
    const uint64_t choices = (uint64_t)(rows * run->plan->config.top_k);
    if (!staged(run))
        return MOXIE_OK;
    MOX_TRY(fetch(run, x->space.send_x, hidden_bytes(run, rows), error));
    MOX_TRY(fetch(run, x->space.send_ids, choices * sizeof(int32_t), error));
    if (run->plan->config.routing.on_input)
        MOX_TRY(fetch(run, x->space.send_weights, choices * sizeof(float), error));
    if (x->adapted)
        MOX_TRY(fetch(run, x->space.send_adapters, (uint64_t)rows * sizeof(int32_t), error));
    MOX_TRY(wait_for(run, error));
    if (x->adapted)
        leave_out_adapters(run, rows);
    return MOXIE_OK;
}

moxie_status mox_ranks_wait(const mox_run *run, moxie_error *error)
{
    return staged(run) ? wait_for(run, error) : MOXIE_OK;
}

moxie_status mox_ranks_upload_received(const mox_run *run, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const int32_t last = x->count - 1;
    const int64_t rows = x->counts.from[last] + x->counts.from_rows[last];
    const uint64_t choices = (uint64_t)(rows * run->plan->config.top_k);
    if (!on_device(run) || (x->places && (!x->staged || x->layout != MOXIE_TOKENS_SHARDED)))
        return MOXIE_OK;
    if (x->layout == MOXIE_TOKENS_SHARDED)
        MOX_TRY(mox_ranks_upload(run, x->space.recv_x, hidden_bytes(run, rows), error));
    if (run->plan->config.routing.on_input)
        MOX_TRY(bring(run, x->space.recv_weights, choices * sizeof(float), error));
    if (x->adapted)
        MOX_TRY(bring(run, x->space.recv_adapters, (uint64_t)rows * sizeof(int32_t), error));
    return bring(run, x->space.recv_ids, choices * sizeof(int32_t), error);
}

/* ---- experts ------------------------------------------------------------------------------------------- */

static bool is_here(const moxie_plan *plan, int32_t id)
{
    return id >= 0 && id < plan->config.experts && plan->layer->slot_of[id] >= 0;
}

int64_t mox_ranks_pairs(const mox_run *run)
{
    const moxie_plan *plan = run->plan;
    const mox_ranks *x = plan->ranks;
    const int64_t k = plan->config.top_k;
    int64_t pairs = 0;
    if (!on_device(run))
        return run->permutation.offsets[plan->layer->slots];
    if (run->own == NULL || x->places) /* the host does not know the ids */
        return run->tokens * k;
    const int32_t *ids = (const int32_t *)(x->pinned + x->space.recv_ids) + run->first * k;
    for (int64_t p = 0; p < run->tokens * k; p++)
        pairs += is_here(plan, ids[p]);
    return pairs;
}

/* The host does not know the pairs, but how many all ranks have sent. They are one pass. */
static moxie_status order_placed(const mox_run *run, int64_t *count, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    *count = 0;
    for (int32_t r = 0; r < x->count; r++)
        *count += x->counts.from_pairs[r];
    const mox_cuda_order_rows_args args = { .position = run->permutation.position,
                                            .pairs = run->tokens * run->plan->config.top_k,
                                            .count = *count,
                                            .order = (int64_t *)(run->space + x->space.order) };
    return run->queue.table->order_rows(&args, run->queue.stream, error);
}

/* The pairs of the pass that this rank computes, which the host knows, say where in `position` the device finds the
 * rows of y. */
static moxie_status order_known(const mox_run *run, int64_t done, int64_t *count, moxie_error *error)
{
    const moxie_plan *plan = run->plan;
    const mox_ranks *x = plan->ranks;
    const int64_t k = plan->config.top_k;
    const int32_t *ids = (const int32_t *)(x->pinned + x->space.recv_ids) + run->first * k;
    int64_t *local = (int64_t *)(x->pinned + x->space.local) + done;
    const uint64_t at = x->space.local + (uint64_t)done * sizeof *local;
    *count = 0;
    for (int64_t p = 0; p < run->tokens * k; p++)
        if (is_here(plan, ids[p]))
            local[(*count)++] = p;
    MOX_TRY(bring(run, at, (uint64_t)*count * sizeof *local, error));
    const mox_cuda_copy_rows_args args = { .rows = *count,
                                           .cols = 2, /* words of a number */
                                           .to_cols = 2,
                                           .row = (const int64_t *)(run->space + at),
                                           .from = run->permutation.position,
                                           .to = run->space + x->space.order,
                                           .from_stride = sizeof(int64_t),
                                           .to_stride = sizeof(int64_t),
                                           .from_dtype = MOXIE_F32,
                                           .to_dtype = MOXIE_F32 };
    return run->queue.table->copy_rows(&args, run->queue.stream, error);
}

moxie_status mox_ranks_order(const mox_run *run, int64_t done, int64_t *count, moxie_error *error)
{
    return run->plan->ranks->places ? order_placed(run, count, error) : order_known(run, done, count, error);
}

/* place_rows has found them. */
static moxie_status copy_offsets(const mox_run *run, int64_t *offsets, moxie_error *error)
{
    const int64_t words = 2 * (int64_t)(sizeof *offsets / sizeof(float)), bytes = words * (int64_t)sizeof(float);
    const mox_cuda_copy_rows_args args = { .rows = 1,
                                           .cols = words,
                                           .to_cols = words,
                                           .from = run->space + run->plan->ranks->space.shared_offsets,
                                           .to = offsets,
                                           .from_stride = bytes,
                                           .to_stride = bytes,
                                           .from_dtype = MOXIE_F32,
                                           .to_dtype = MOXIE_F32 };
    return run->queue.table->copy_rows(&args, run->queue.stream, error);
}

moxie_status mox_ranks_shared_offsets(const mox_run *run, int64_t *offsets, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    if (x->places)
        return copy_offsets(run, offsets, error);
    int64_t *values = on_device(run) ? (int64_t *)(x->pinned + x->space.shared_offsets) : offsets;
    values[0] = 0;
    values[1] = run->tokens;
    return values != offsets ? copy(run, offsets, values, 2 * sizeof *values, error) : MOXIE_OK;
}

/* Byte by byte, the lowest first: fills need no memory of the host that a later run may have changed. */
moxie_status mox_ranks_group_offsets(const mox_run *run, int64_t *offsets, moxie_error *error)
{
    const uint64_t tokens = (uint64_t)run->tokens;
    if (!on_device(run)) {
        offsets[0] = 0;
        offsets[1] = run->tokens;
        return MOXIE_OK;
    }
    MOX_TRY(run->queue.table->fill(offsets, 0, 2 * sizeof *offsets, run->queue.stream, error));
    for (uint64_t i = 0; i < sizeof tokens; i++) {
        const int32_t byte = (int32_t)(tokens >> (8 * i) & 255);
        if (byte != 0)
            MOX_TRY(run->queue.table->fill((char *)(offsets + 1) + i, byte, 1, run->queue.stream, error));
    }
    return MOXIE_OK;
}

/* ---- what a degraded run changes ----------------------------------------------------------------------- */

moxie_status mox_ranks_settle(const mox_run *run, moxie_error *error)
{
    return on_device(run) ? wait_for(run, error) : MOXIE_OK;
}

moxie_status mox_ranks_bring_choices(const mox_run *run, bool weights, moxie_error *error)
{
    const mox_ranks_space *s = &run->plan->ranks->space;
    const uint64_t choices = (uint64_t)(run->tokens * run->plan->config.top_k);
    if (!on_device(run))
        return MOXIE_OK;
    if (weights)
        MOX_TRY(bring(run, s->kept, choices * sizeof(float), error));
    MOX_TRY(bring(run, s->position, choices * sizeof(int64_t), error));
    return wait_for(run, error);
}

moxie_status mox_ranks_clear(const mox_run *run, void *memory, uint64_t bytes, moxie_error *error)
{
    if (on_device(run))
        return bytes > 0 ? run->queue.table->fill(memory, 0, bytes, run->queue.stream, error) : MOXIE_OK;
    memset(memory, 0, bytes);
    return MOXIE_OK;
}

/* ---- one scale of the batch ---------------------------------------------------------------------------- */

/* Through the host, as ranks on the host do it, who may be among the others. */
static moxie_status join_on_host(const mox_run *run, uint32_t *amax, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    float *value = (float *)(x->pinned + x->pinned_amax);
    mox_comm_request request;
    MOX_TRY(copy(run, value, amax, sizeof *value, error));
    MOX_TRY(wait_for(run, error));
    MOX_TRY(mox_comm_start_allreduce(x->comm, value, 1, MOXIE_COMM_MAX_F32, &request, error));
    MOX_TRY(mox_comm_wait(x->comm, request, error));
    return copy(run, amax, value, sizeof *value, error);
}

/* From device to device: every rank gets all magnitudes, and the quantizer takes the largest. Those of lost ranks are
 * zero. */
static moxie_status join_on_device(const mox_run *run, const uint32_t *amax, uint32_t *maxima, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const int64_t one = 1, zero = 0;
    int64_t *rows = x->tp_numbers, *at = rows + x->count;
    mox_comm_request request;
    for (int32_t r = 0; r < x->count; r++) {
        rows[r] = 1;
        at[r] = r;
    }
    MOX_TRY(run->queue.table->fill(maxima, 0, (uint64_t)x->count * sizeof *maxima, run->queue.stream, error));
    moxie_comm_rows values = { .send = amax,
                               .recv = maxima,
                               .row_bytes = sizeof *amax,
                               .send_rows = &one,
                               .send_at = &zero,
                               .recv_rows = rows,
                               .recv_at = at };
    mox_ranks_mark(run, &values);
    MOX_TRY(mox_comm_start_allgatherv(x->comm, &values, &request, error));
    return mox_comm_wait(x->comm, request, error);
}

moxie_status mox_ranks_join_amax(const mox_run *run, uint32_t *amax, const uint32_t **maxima, int32_t *count,
                                 moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    uint32_t *all = (uint32_t *)(run->space + x->space.maxima);
    *maxima = staged(run) ? amax : all;
    *count = staged(run) ? 1 : x->count;
    return staged(run) ? join_on_host(run, amax, error) : join_on_device(run, amax, all, error);
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

moxie_status mox_ranks_download(const mox_run *run, uint64_t offset, uint64_t bytes, moxie_error *error)
{
    if (!staged(run))
        return MOXIE_OK;
    MOX_TRY(fetch(run, offset, bytes, error));
    return wait_for(run, error);
}

moxie_status mox_ranks_upload(const mox_run *run, uint64_t offset, uint64_t bytes, moxie_error *error)
{
    return staged(run) ? bring(run, offset, bytes, error) : MOXIE_OK;
}

moxie_status mox_ranks_lend_pieces(const mox_run *run, uint64_t bytes, moxie_comm_rows *rows, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    mox_ranks_mark(run, rows);
    if (!staged(run))
        return MOXIE_OK;
    MOX_TRY(copy(run, x->pinned + x->pinned_sent, rows->send, bytes, error));
    rows->send = x->pinned + x->pinned_sent;
    rows->recv = x->pinned + x->pinned_came;
    return wait_for(run, error);
}

moxie_status mox_ranks_bring_pieces(const mox_run *run, uint64_t bytes, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    return staged(run) ? copy(run, MOX_RUN_AT(run, char, tp_recv), x->pinned + x->pinned_came, bytes, error) : MOXIE_OK;
}

void *mox_ranks_outputs(const mox_run *run, int64_t *in_at, const int64_t *in)
{
    const mox_ranks *x = run->plan->ranks;
    if (!staged(run))
        return run->args.output;
    for (int32_t r = 0; r < x->count; r++)
        in_at[r] = r == 0 ? 0 : in_at[r - 1] + in[r - 1];
    return x->pinned + x->pinned_outputs;
}

moxie_status mox_ranks_place_outputs(const mox_run *run, int64_t chunk, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const char *from = x->pinned + x->pinned_outputs;
    for (int32_t r = 0; staged(run) && r < x->count; r++) {
        const mox_chunk theirs = mox_exchange_chunk(run, r, chunk);
        char *to = (char *)run->args.output + hidden_bytes(run, theirs.first);
        MOX_TRY(copy(run, to, from, hidden_bytes(run, theirs.tokens), error));
        from += hidden_bytes(run, theirs.tokens);
    }
    return MOXIE_OK;
}
