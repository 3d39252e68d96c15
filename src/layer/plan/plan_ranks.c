/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_ranks.c - the ranks' part of a plan: placement, chunks, buffers (plan_ranks.h).
 */
#include "layer/plan/plan_ranks.h"

#include "base/sizes.h"
#include "layer/config/tp_slice.h"
#include "layer/plan/exchange_bytes.h"
#include "layer/plan/exchange_message.h"
#include "layer/plan/plan_tp.h"

/* ---- placement ------------------------------------------------------------------------------------- */

/* Calls of `add` in the order of ranks: expert e is on `group`. */
static moxie_status count_replicas(const moxie_layer_config *c, mox_ranks *x, int32_t *slot_of, bool fill,
                                   moxie_error *error)
{
    moxie_layer_config there = *c;
    for (int32_t g = 0; g < x->groups; g++) {
        int32_t slots;
        there.ep_rank = g;
        MOX_TRY(mox_config_map_experts(&there, slot_of, &slots, error));
        for (int64_t e = 0; e < c->experts; e++) {
            if (slot_of[e] < 0)
                continue;
            if (fill)
                x->replica[x->first_replica[e]] = g;
            x->first_replica[fill ? e : e + 1]++;
        }
    }
    return MOXIE_OK;
}

/* Counts, sums up, then fills; filling moves each start to the next expert's, so the starts are shifted back. */
static moxie_status place(const moxie_layer_config *c, mox_ranks *x, moxie_error *error)
{
    int32_t slot_of[MOXIE_MAX_EXPERTS];
    for (int64_t e = 0; e <= c->experts; e++)
        x->first_replica[e] = 0;
    MOX_TRY(count_replicas(c, x, slot_of, false, error));
    for (int64_t e = 0; e < c->experts; e++)
        x->first_replica[e + 1] += x->first_replica[e];
    MOX_TRY(count_replicas(c, x, slot_of, true, error));
    for (int64_t e = c->experts; e > 0; e--)
        x->first_replica[e] = x->first_replica[e - 1];
    x->first_replica[0] = 0;
    return MOXIE_OK;
}

static bool allocate_counts(mox_ranks *x, mox_ranks_counts *n)
{
    int64_t **const arrays[] = { &n->rows,     &n->at,         &n->from_rows, &n->from,   &n->pairs,
                                 &n->pairs_at, &n->from_pairs, &n->out,       &n->out_at, &n->in,
                                 &n->in_at,    &n->next_row,   &n->next_pair };
    const uint64_t ranks = (uint64_t)x->count;
    bool ok = true;
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        ok = (*arrays[i] = mox_arena_calloc(&x->arena, ranks, sizeof **arrays[i])) != NULL && ok;
    n->send = mox_arena_calloc(&x->arena, ranks * MOX_MESSAGE_FIELDS, sizeof *n->send);
    n->recv = mox_arena_calloc(&x->arena, ranks * MOX_MESSAGE_FIELDS, sizeof *n->recv);
    return ok && n->send != NULL && n->recv != NULL;
}

void mox_plan_ranks_follow(const moxie_plan *plan)
{
    mox_ranks *x = plan->ranks;
    const moxie_slot_map *map = plan->layer->config.slot_map;
    if (map == NULL || x->generation == (int64_t)map->generation)
        return;
    x->generation = (int64_t)map->generation;
    (void)place(&plan->layer->config, x, NULL); /* a map never fails */
}

moxie_status mox_plan_ranks_update_tables(const moxie_plan *plan, moxie_error *error)
{
    mox_ranks *x = plan->ranks;
    const int64_t experts = plan->config.experts;
    if (x->tables_generation == x->generation)
        return MOXIE_OK;
    MOX_TRY(mox_device_copy(&plan->device, x->tables, x->first_replica,
                            (uint64_t)(experts + 1) * sizeof *x->first_replica, error));
    MOX_TRY(mox_device_copy(&plan->device, x->tables + experts + 1, x->replica,
                            (uint64_t)x->first_replica[experts] * sizeof *x->replica, error));
    x->tables_generation = x->generation;
    return MOXIE_OK;
}

/* Replicas of a map that a mover changes: at most one for each slot. */
static uint64_t max_replicas(const moxie_layer_config *c)
{
    return c->slot_map != NULL ? (uint64_t)c->slot_map->slots : (uint64_t)c->experts;
}

static bool allocate(const moxie_layer_config *c, mox_ranks *x)
{
    x->replica = mox_arena_calloc(&x->arena, max_replicas(c) + 1, sizeof *x->replica);
    x->first_replica = mox_arena_calloc(&x->arena, (uint64_t)c->experts + 1, sizeof *x->first_replica);
    x->col = mox_arena_calloc(&x->arena, (uint64_t)x->tp_size + 1, sizeof *x->col);
    x->tp_numbers = mox_arena_calloc(&x->arena, 4 * (uint64_t)x->count, sizeof *x->tp_numbers);
    x->share = mox_arena_calloc(&x->arena, (uint64_t)x->tp_size, sizeof *x->share);
    const bool counts = allocate_counts(x, &x->sides[0].counts) && allocate_counts(x, &x->sides[1].counts);
    mox_ranks_use(x, 0);
    return counts && x->first_replica != NULL && x->replica != NULL && x->col != NULL && x->tp_numbers != NULL &&
           x->share != NULL;
}

static moxie_status check_degraded(const moxie_layer_config *c, int32_t degraded, moxie_error *error)
{
    MOX_FAIL_IF(degraded != MOXIE_DEGRADED_NONE && mox_config_tp_ranks(c) > 1, MOXIE_ERR_UNSUPPORTED, error,
                "options.degraded is set, but tp_size is %d, and ranks that share an expert cannot compute it without "
                "one of them: set it to 0, or tp_size to 1",
                (int)c->tp_size);
    MOX_FAIL_IF(degraded == MOXIE_DEGRADED_RENORMALIZE && c->routing.on_input, MOXIE_ERR_UNSUPPORTED, error,
                "options.degraded is MOXIE_DEGRADED_RENORMALIZE, but weights multiply the experts' input, and what is "
                "computed cannot be weighted anew: use MOXIE_DEGRADED_KEEP");
    return MOXIE_OK;
}

/* A rank without the shared expert's record cannot add it for its own tokens. */
static moxie_status check_layer(const moxie_plan *plan, moxie_error *error)
{
    const moxie_layer *layer = plan->layer;
    MOX_FAIL_IF(layer != NULL && !layer->has_comm && mox_config_computes_shared(&plan->config, true) &&
                    layer->layouts[MOX_SHARED_EXPERT] == NULL,
                MOXIE_ERR_MISMATCH, error,
                "the plan has a comm, but its layer was created without one, and so without the shared expert: create "
                "the layer with the options of the plan");
    return MOXIE_OK;
}

/* One scale covers the rows of all ranks. */
static bool has_batch_scale(const moxie_layer_config *c)
{
    return mox_act_quant_needs_amax(&c->a13) || mox_act_quant_needs_amax(&c->a2) ||
           (c->shared.intermediate > 0 &&
            (mox_act_quant_needs_amax(&c->shared.a13) || mox_act_quant_needs_amax(&c->shared.a2)));
}

/* Whether the device places rows without a capacity; with one it does where no rank can be lost. Not where the host
 * needs the choices: to send rows itself, to leave out lost ranks, to count what tensor parallel ranks gather, and to
 * find the rows of all ranks' tokens. */
static bool can_place(const mox_ranks *x)
{
    return !x->staged && x->degraded == MOXIE_DEGRADED_NONE && x->tp_size == 1 && x->layout == MOXIE_TOKENS_SHARDED;
}

/* Whether rows of the plan's device travel through pinned memory, and who places them. */
static moxie_status set_staged(const moxie_plan *plan, mox_ranks *x, moxie_error *error)
{
    const int32_t device = mox_comm_rows_device(x->comm);
    if (!plan->backend->on_device)
        return MOXIE_OK;
    MOX_FAIL_IF(
        x->degraded != MOXIE_DEGRADED_NONE && !mox_comm_can_lose(x->comm), MOXIE_ERR_UNSUPPORTED, error,
        "options.degraded is %d, but rows of this comm are on a device, and its transport %s has no mask(): use one "
        "with it, a comm of moxie_comm_nccl_create, or one whose rows are in host memory",
        (int)x->degraded, mox_comm_name(x->comm));
    MOX_FAIL_IF(device >= 0 && device != plan->device.ordinal, MOXIE_ERR_MISMATCH, error,
                "the plan runs on CUDA device %d, but options.comm is of device %d: make the comm for the device of "
                "the plan",
                (int)plan->device.ordinal, (int)device);
    x->staged = device < 0;
    x->places = (x->capacity > 0 && x->degraded == MOXIE_DEGRADED_NONE) || can_place(x);
    return MOXIE_OK;
}

/* Exchanges get a stream of their own where they are asked to, and where none comes between the products: there would
 * be nothing beside it, and two of one comm at a time. */
static moxie_status set_streams(const moxie_plan *plan, mox_ranks *x, moxie_error *error)
{
    const char *why = !plan->backend->on_device        ? "the plan is on the host, whose exchanges run beside "
                                                         "products anyway"
                      : x->staged                      ? "rows of this comm travel through the host's memory, "
                                                         "beside products anyway"
                      : x->tp_size > 1                 ? "tensor parallel ranks exchange activations between "
                                                         "the products"
                      : has_batch_scale(&plan->config) ? "ranks agree on one activation scale between the "
                                                         "products"
                                                       : NULL;
    MOX_FAIL_IF(x->asked_streams > 1 && why != NULL, MOXIE_ERR_UNSUPPORTED, error,
                "options.exchange_streams is %lld, but %s: set it to 0 or 1", (long long)x->asked_streams, why);
    x->beside = x->asked_streams > 1;
    return MOXIE_OK;
}

/* The columns of y of each rank of a group: the rows of W2 that it has. */
static void set_columns(const moxie_layer_config *c, mox_ranks *x)
{
    x->col[x->tp_size] = x->unit = c->hidden;
    for (int32_t r = 0; r < x->tp_size; r++) {
        const mox_tp_rows rows = mox_tp_rows2(c, r);
        x->col[r] = rows.first;
        x->unit = mox_common_divisor(x->unit, rows.count);
    }
}

moxie_status mox_plan_ranks_create(moxie_plan *plan, const moxie_options *options, moxie_error *error)
{
    const moxie_layer_config *c = &plan->config;
    MOX_FAIL_IF(
        options->comm == NULL && plan->layer != NULL && mox_config_tp_ranks(c) > 1, MOXIE_ERR_ARGUMENT, error,
        "the layer is tensor parallel rank %d of %d and has a part of every expert, but options.comm is NULL: give "
        "the comm of all ranks",
        (int)c->tp_rank, (int)c->tp_size);
    if (options->comm == NULL)
        return MOXIE_OK;
    MOX_TRY(mox_config_check_comm(c, options, error));
    MOX_TRY(check_layer(plan, error));
    MOX_TRY(check_degraded(c, options->degraded, error));
    mox_ranks *x = plan->ranks = mox_calloc(1, sizeof *x);
    MOX_FAIL_IF(x == NULL, MOXIE_ERR_MEMORY, error, "no memory for a plan");
    x->comm = options->comm;
    x->count = mox_comm_ranks(x->comm);
    x->rank = mox_comm_rank(x->comm);
    x->groups = mox_config_ep_ranks(c);
    x->group = c->ep_rank;
    x->tp_size = mox_config_tp_ranks(c);
    x->tp_rank = c->tp_rank;
    x->layout = (moxie_token_layout)options->token_layout;
    x->degraded = (moxie_degraded)options->degraded;
    x->generation = c->slot_map != NULL ? (int64_t)c->slot_map->generation : 0;
    MOX_FAIL_IF(!allocate(c, x), MOXIE_ERR_MEMORY, error, "no memory for a plan of %d ranks", (int)x->count);
    set_columns(c, x);
    const mox_dispatch sent = mox_exchange_dispatch(c, plan->backend == &mox_backend_host, plan->max_adapter_rank > 0);
    x->adapted = sent.adapters;
    x->coded =
        sent.codes && x->layout == MOXIE_TOKENS_SHARDED; /* static scales may differ: mox_plan_ranks_agree() sees */
    x->capacity = options->exchange_capacity;
    x->asked_chunk = options->exchange_chunk;
    x->asked_streams = options->exchange_streams;
    MOX_TRY(set_staged(plan, x, error));
    MOX_TRY(set_streams(plan, x, error));
    return place(c, x, error);
}

void mox_plan_ranks_destroy(const moxie_plan *plan)
{
    mox_ranks *x = plan->ranks;
    const mox_cuda_table *table = plan->device.table;
    if (x == NULL)
        return;
    if (x->pinned != NULL)
        table->release_pinned(x->pinned);
    if (x->last_run != NULL)
        table->event_destroy(x->last_run);
    for (int i = 0; i < MOX_RANKS_EVENTS; i++)
        if (x->events[i] != NULL)
            table->event_destroy(x->events[i]);
    if (x->exchanges != NULL)
        table->stream_destroy(x->exchanges);
    if (x->tables != NULL)
        mox_device_release(&plan->device, x->tables);
    if (x->places && !x->staged && x->refusal != NULL)
        mox_device_release(&plan->device, x->refusal);
    if (x->refusal_x != NULL)
        mox_device_release(&plan->device, x->refusal_x);
    mox_arena_free(&x->arena);
    mox_free(x);
}

void mox_plan_ranks_losses(const mox_ranks *ranks, moxie_losses *out)
{
    out->ranks = mox_comm_losses(ranks->comm);
    out->slots = ranks->lost_slots;
    out->tokens = ranks->lost_tokens;
}

/* ---- chunks ---------------------------------------------------------------------------------------- */

int64_t mox_plan_ranks_row_bytes(const moxie_plan *plan)
{
    return (int64_t)mox_exchange_dispatch_bytes(&plan->config, mox_ranks_dispatch(plan->ranks));
}

/* Copies of a token's row that leave a rank, or that have room in its buffers. */
static int64_t max_copies(const moxie_plan *plan)
{
    const mox_ranks *x = plan->ranks;
    if (x->layout != MOXIE_TOKENS_SHARDED)
        return 0;
    return x->places || x->capacity > 0 ? x->groups : mox_min_i64(plan->config.top_k, x->groups);
}

int64_t mox_plan_ranks_max_own(const moxie_plan *plan)
{
    return plan->ranks->layout == MOXIE_TOKENS_SHARDED ? plan->max_tokens
                                                       : mox_ceil_div(plan->max_tokens, plan->ranks->count);
}

void mox_plan_ranks_set_row(moxie_plan *plan)
{
    mox_ranks *x = plan->ranks;
    x->row_bytes = (int64_t)mox_exchange_array_bytes(&plan->config, mox_ranks_dispatch(x), 0);
}

int64_t mox_plan_max_pass(const moxie_plan *plan)
{
    return plan->ranks != NULL ? plan->ranks->max_rows : plan->max_tokens;
}

int64_t mox_plan_ranks_test_chunk, mox_plan_ranks_test_more;

static bool in_host_memory(const moxie_plan *plan)
{
    return !plan->backend->on_device || plan->ranks->staged;
}

/* What the buffers of a chunk may take. */
static int64_t max_bytes(const moxie_plan *plan)
{
    const int64_t part = (int64_t)(plan->device.features.memory_bytes / 16);
    if (in_host_memory(plan))
        return MOX_EXCHANGE_BYTES;
    return mox_min_i64(mox_max_i64(part, MOX_EXCHANGE_BYTES_DEVICE), MOX_EXCHANGE_MAX_BYTES_DEVICE);
}

int64_t mox_plan_ranks_token_bytes(const moxie_plan *plan)
{
    const mox_ranks *x = plan->ranks;
    const int64_t results = plan->config.top_k * (int64_t)mox_exchange_result_bytes(&plan->config);
    return 2 * (max_copies(plan) + x->count) * mox_plan_ranks_row_bytes(plan) + (x->count + 1) * results;
}

/* A GPU's buffers are no larger than alike chunks of max_tokens need. Those in the host's memory are small: they are as
 * large as they may be, so that a batch that fits is not cut. */
static int64_t most_tokens(const moxie_plan *plan, int64_t own, int64_t limit)
{
    const bool all = plan->ranks->asked_chunk == 0 && in_host_memory(plan);
    return all ? mox_min_i64(own, limit) : mox_ranks_even_chunk(own, limit);
}

void mox_plan_ranks_set_chunk(moxie_plan *plan, bool one_chunk)
{
    mox_ranks *x = plan->ranks;
    if (x == NULL)
        return;
    mox_plan_ranks_set_row(plan);
    const int64_t own = mox_max_i64(mox_plan_ranks_max_own(plan), 1);
    int64_t limit =
        x->asked_chunk > 0 ? x->asked_chunk : mox_max_i64(max_bytes(plan) / mox_plan_ranks_token_bytes(plan), 1);
    if (x->beside && x->asked_chunk == 0 && own >= 2 * MOX_EXCHANGE_BESIDE_TOKENS)
        limit = mox_min_i64(limit, mox_ceil_div(own, 2));
    if (mox_plan_ranks_test_chunk > 0)
        limit = mox_min_i64(limit, mox_plan_ranks_test_chunk + x->rank * mox_plan_ranks_test_more);
    if (x->capacity > 0)
        x->capacity = mox_min_i64(x->capacity, own);
    x->one_chunk = one_chunk;
    x->chunk_tokens = x->capacity > 0 ? x->capacity : one_chunk ? own : most_tokens(plan, own, limit);
    x->max_rows = x->count * x->chunk_tokens;
}

/* What a device has placed, it computes in one pass: the host does not know where one would end. */
static bool has_one_pass(const mox_ranks *x)
{
    return x->places && x->capacity == 0;
}

int64_t mox_plan_ranks_min_pass(const moxie_plan *plan)
{
    const mox_ranks *x = plan->ranks;
    return x == NULL ? 0 : has_one_pass(x) ? x->count : x->capacity;
}

/* Also room for hidden states, which may have to travel instead of codes. */
moxie_status mox_plan_ranks_allocate_refusal(moxie_plan *plan, moxie_error *error)
{
    mox_ranks *x = plan->ranks;
    const moxie_layer_config *c = &plan->config;
    if (x == NULL || plan->layer == NULL || x->capacity == 0 || x->layout != MOXIE_TOKENS_SHARDED)
        return MOXIE_OK;
    const uint64_t present = mox_exchange_dispatch_bytes(c, mox_ranks_dispatch(x));
    const uint64_t plain = mox_exchange_dispatch_bytes(c, (mox_dispatch) { .adapters = x->adapted });
    const uint64_t row = present > plain ? present : plain, rows = (uint64_t)(x->capacity * (1 + x->count));
    if (x->places && !x->staged)
        return mox_device_allocate(&plan->device, rows * row, "the rows of a refused run", &x->refusal, error);
    if (plan->backend->on_device && !x->staged)
        MOX_TRY(mox_device_allocate(&plan->device, rows * row, "the rows of a refused run", &x->refusal_x, error));
    x->refusal = mox_arena_calloc(&x->arena, rows, row);
    MOX_FAIL_IF(x->refusal == NULL, MOXIE_ERR_MEMORY, error,
                "no memory for an exchange of %lld tokens of each rank: lower options.exchange_capacity",
                (long long)x->capacity);
    return MOXIE_OK;
}

void mox_plan_ranks_fit_chunk(moxie_plan *plan)
{
    const mox_ranks *x = plan->ranks;
    if (x != NULL)
        mox_plan_ranks_limit_chunk(plan, has_one_pass(x) ? plan->pass_tokens / x->count : plan->pass_tokens);
}

void mox_plan_ranks_limit_chunk(moxie_plan *plan, int64_t tokens)
{
    mox_ranks *x = plan->ranks;
    x->chunk_tokens = mox_min_i64(x->chunk_tokens, tokens);
    x->max_rows = x->count * x->chunk_tokens;
}

static uint64_t carve(mox_carver *c, int64_t rows, int64_t cols, int64_t element)
{
    return mox_carve_offset(c, (uint64_t)rows, (uint64_t)(cols * element));
}

/* Buffers that both sides have: numbers, then rows. */
static void carve_numbers(const moxie_plan *plan, mox_ranks_space *s, mox_carver *c)
{
    const mox_ranks *x = plan->ranks;
    const int64_t k = plan->config.top_k, sent = x->chunk_tokens * max_copies(plan);
    s->position = carve(c, x->chunk_tokens, k, sizeof(int64_t));
    s->token = carve(c, mox_max_i64(sent, x->max_rows), 1, sizeof(int64_t));
    s->send_ids = carve(c, sent, k, sizeof(int32_t));
    s->recv_ids = carve(c, x->max_rows, k, sizeof(int32_t));
    if (plan->config.routing.on_input) {
        s->send_weights = carve(c, sent, k, sizeof(float));
        s->recv_weights = carve(c, x->max_rows, k, sizeof(float));
    }
    if (x->adapted) {
        s->send_adapters = carve(c, sent, 1, sizeof(int32_t));
        s->recv_adapters = carve(c, x->max_rows, 1, sizeof(int32_t));
    }
    if (x->degraded == MOXIE_DEGRADED_RENORMALIZE)
        s->kept = carve(c, x->chunk_tokens, k, sizeof(float));
    if (plan->backend->on_device) {
        s->local = carve(c, x->max_rows, k, sizeof(int64_t));
        s->shared_offsets = carve(c, 2, 1, sizeof(int64_t));
        s->placed = carve(c, x->groups, 2, sizeof(int64_t));
    }
}

static void carve_rows(const moxie_plan *plan, mox_ranks_space *s, mox_carver *c)
{
    const mox_ranks *x = plan->ranks;
    s->send_x = carve(c, x->chunk_tokens * max_copies(plan), x->row_bytes, 1);
    s->recv_x = carve(c, x->max_rows, x->row_bytes, 1);
}

/* Buffers that both sides share. */
static void carve_shared(const moxie_plan *plan, mox_ranks_space *s, mox_carver *c)
{
    const mox_ranks *x = plan->ranks;
    const moxie_layer_config *config = &plan->config;
    const int64_t tokens = x->chunk_tokens, k = config->top_k, h = config->hidden;
    const int64_t result = mox_dtype_bytes(mox_exchange_result_dtype(config));
    s->order = carve(c, plan->pass_tokens, k, sizeof(int64_t));
    s->results = carve(c, x->max_rows * k, x->col[x->tp_rank + 1] - x->col[x->tp_rank], result);
    const int64_t returned = tokens * k * (x->capacity > 0 ? x->groups : 1);
    s->returned = carve(c, returned, h, result);
    if (x->tp_size > 1)
        s->whole = carve(c, returned, h, result);
    if (x->layout == MOXIE_TOKENS_REPLICATED)
        s->output = carve(c, tokens, h, mox_dtype_bytes(config->dtype));
    if (plan->backend->on_device && has_batch_scale(config))
        s->maxima = carve(c, x->count, 1, sizeof(uint32_t));
}

/* A worker's scratch: the row as f32, its codes and its scales. */
static void carve_codes(const moxie_plan *plan, mox_ranks_space *s, mox_carver *c)
{
    mox_ranks *x = plan->ranks;
    const int64_t h = plan->config.hidden, floats = h + mox_scale_cols(&plan->config.a13, h);
    x->code_scratch_bytes = (uint64_t)(mox_ceil_div(floats * (int64_t)sizeof(float) + h, 64) * 64);
    s->coded = carve(c, x->chunk_tokens, x->row_bytes, 1);
    s->code_scratch = carve(c, plan->executor.workers, (int64_t)x->code_scratch_bytes, 1);
}

void mox_plan_ranks_carve(moxie_plan *plan, mox_carver *c)
{
    mox_ranks *x = plan->ranks;
    if (x == NULL)
        return;
    mox_ranks_space *one = &x->sides[0].space, *two = &x->sides[1].space;
    /* On a device there are always two sides: pinned memory is as large before ranks agree on a smaller chunk. */
    const bool chunks =
        x->capacity == 0 && (mox_plan_ranks_max_own(plan) > x->chunk_tokens || plan->backend->on_device);
    mox_ranks_space numbers = { 0 };
    carve_numbers(plan, one, c);
    if (chunks)
        carve_numbers(plan, &numbers, c);
    x->number_bytes = c->used;
    carve_shared(plan, one, c);
    if (x->coded)
        carve_codes(plan, one, c);
    carve_rows(plan, one, c);
    *two = *one;
    if (chunks) {
        two->position = numbers.position;
        two->token = numbers.token;
        two->send_ids = numbers.send_ids;
        two->recv_ids = numbers.recv_ids;
        two->send_weights = numbers.send_weights;
        two->recv_weights = numbers.recv_weights;
        two->send_adapters = numbers.send_adapters;
        two->recv_adapters = numbers.recv_adapters;
        two->kept = numbers.kept;
        two->local = numbers.local;
        two->shared_offsets = numbers.shared_offsets;
        two->placed = numbers.placed;
        carve_rows(plan, two, c);
    }
    x->bytes = c->used;
    mox_ranks_use(x, 0);
}

static moxie_status allocate_tables(const moxie_plan *plan, moxie_error *error)
{
    mox_ranks *x = plan->ranks;
    void *tables = NULL;
    const uint64_t numbers = (uint64_t)plan->config.experts + 1 + max_replicas(&plan->config);
    MOX_TRY(mox_device_allocate(&plan->device, numbers * sizeof *x->tables, "who holds which expert", &tables, error));
    x->tables = tables;
    x->tables_generation = x->generation - 1;
    return mox_plan_ranks_update_tables(plan, error);
}

static moxie_status make_stream(const moxie_plan *plan, moxie_error *error)
{
    mox_ranks *x = plan->ranks;
    if (!x->beside)
        return MOXIE_OK;
    for (int i = 0; i < MOX_RANKS_EVENTS; i++)
        MOX_TRY(plan->device.table->event_create(&x->events[i], error));
    return plan->device.table->stream_create(&x->exchanges, error);
}

moxie_status mox_plan_ranks_pin(const moxie_plan *plan, moxie_error *error)
{
    mox_ranks *x = plan->ranks;
    void *pinned = NULL;
    if (x == NULL || !plan->backend->on_device || plan->layer == NULL)
        return MOXIE_OK;
    mox_carver c = mox_offset_carver(plan->backend->align);
    carve(&c, (int64_t)(x->staged ? x->bytes : x->number_bytes), 1, 1);
    x->pinned_ids = carve(&c, plan->max_tokens, plan->config.top_k, sizeof(int32_t));
    x->pinned_weights = carve(&c, plan->max_tokens, plan->config.top_k, sizeof(float));
    if (x->adapted)
        x->pinned_adapters = carve(&c, plan->max_tokens, 1, sizeof(int32_t));
    x->pinned_amax = carve(&c, 1, 1, sizeof(uint32_t));
    if (x->staged && x->layout == MOXIE_TOKENS_REPLICATED)
        x->pinned_outputs = carve(&c, x->max_rows, plan->config.hidden, mox_dtype_bytes(plan->config.dtype));
    if (x->staged && plan->space.tp_recv_bytes > 0) {
        x->pinned_sent = mox_carve_offset(&c, plan->space.tp_send_bytes, 1);
        x->pinned_came = mox_carve_offset(&c, plan->space.tp_recv_bytes, 1);
    }
    if (x->places)
        MOX_TRY(allocate_tables(plan, error));
    MOX_TRY(plan->device.table->use(plan->device.ordinal, error));
    MOX_TRY(plan->device.table->event_create(&x->last_run, error));
    MOX_TRY(make_stream(plan, error));
    MOX_TRY(plan->device.table->allocate_pinned(c.used, &pinned, error));
    x->pinned = pinned;
    return MOXIE_OK;
}
