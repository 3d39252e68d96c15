/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ranks.c - layers on ranks that are threads (test_ranks.h).
 */
#include "test_ranks.h"

#include "test_adapter_set.h"

#include <pthread.h>

#include "base/memory.h"
#include "base/status.h"
#include "layer/plan/plan_ranks.h"

typedef struct rank_thread {
    const test_layer *layer;
    test_ranks_spec *spec;
    int32_t rank;
    moxie_comm *comm;
    void *output; /* where its outputs go: of the layer's size, or inside the whole output */
    test_rank_result *result;
    pthread_t thread;
} rank_thread;

moxie_run_args test_ranks_args(const test_layer *layer, int64_t first, int64_t tokens)
{
    const moxie_layer_config *c = &layer->config;
    const int64_t element = mox_dtype_bytes(c->dtype), candidates = c->experts + c->routing.zero_experts;
    moxie_run_args a = layer->args;
    a.tokens = tokens;
    a.hidden = (const char *)a.hidden + first * c->hidden * element;
    a.output = (char *)a.output + first * c->hidden * element;
    if (a.router_hidden != NULL)
        a.router_hidden = (const char *)a.router_hidden + first * c->router_width * element;
    if (a.logits != NULL)
        a.logits = (const char *)a.logits + first * candidates * mox_dtype_bytes(a.logits_dtype);
    a.token_ids = a.token_ids != NULL ? a.token_ids + first : NULL;
    a.padding = a.padding != NULL ? a.padding + first : NULL;
    a.bias_choice = a.bias_choice != NULL ? a.bias_choice + first : NULL;
    a.ids = a.ids != NULL ? a.ids + first * c->top_k : NULL;
    a.weights = a.weights != NULL ? a.weights + first * c->top_k : NULL;
    a.adapter_ids = a.adapter_ids != NULL ? a.adapter_ids + first : NULL;
    return a;
}

/* One rank's configuration, options and arguments. */
static void arguments_of(const rank_thread *t, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    const test_ranks_spec *spec = t->spec;
    const int32_t tp = spec->tp > 1 ? spec->tp : 1;
    const bool sharded = spec->layout == MOXIE_TOKENS_SHARDED;
    const int64_t first = sharded ? spec->first[t->rank] : 0;
    *config = t->layer->config;
    config->ep_size = spec->ranks / tp;
    config->ep_rank = t->rank / tp;
    config->tp_size = tp;
    config->tp_rank = t->rank % tp;
    config->ep_map = spec->ep_map;
    config->slot_map = spec->map;
    *options = spec->options;
    options->comm = t->comm;
    options->token_layout = spec->layout;
    options->max_tokens = t->layer->args.tokens + 1;
    *args = test_ranks_args(t->layer, first, sharded ? spec->first[t->rank + 1] - first : t->layer->args.tokens);
    args->output = t->output;
    if (spec->change != NULL)
        spec->change(t->rank, config, options, args);
}

moxie_status test_ranks_layer(const moxie_layer_config *config, const moxie_weights *weights,
                              const moxie_options *options, moxie_layer **out, moxie_error *error)
{
    MOX_TRY(moxie_layer_create(config, options, out, error));
    return moxie_layer_prepare(*out, weights, options, error);
}

void test_ranks_workspace(const moxie_plan *plan, moxie_run_args *args)
{
    args->workspace_bytes = moxie_plan_workspace_bytes(plan);
    args->workspace = aligned_alloc(64, (args->workspace_bytes + 64) / 64 * 64);
    memset(args->workspace, 0xa5, args->workspace_bytes);
}

static moxie_status run_plan(const rank_thread *t, moxie_plan *plan, moxie_run_args *args, moxie_error *error)
{
    test_ranks_spec *spec = t->spec;
    moxie_status status = MOXIE_OK;
    if (spec->absent == t->rank + 1)
        return MOXIE_OK;
    test_ranks_workspace(plan, args);
    for (int32_t i = 0; i < (spec->runs > 1 ? spec->runs : 1) && status == MOXIE_OK; i++) {
        if (spec->runs > 1)
            moxie_comm_barrier(t->comm, NULL);
        const uint64_t before = mox_alloc_count();
        if (spec->runs > 1)
            moxie_comm_barrier(t->comm, NULL);
        status = (spec->run != NULL ? spec->run : moxie_plan_run)(plan, args, error);
        if (spec->runs > 1)
            moxie_comm_barrier(t->comm, NULL);
        if (i > 0)
            __atomic_store_n(&spec->allocations, mox_alloc_count() - before, __ATOMIC_RELAXED);
    }
    free(args->workspace);
    return status;
}

/* The weights without the static scales of other ranks' experts. `experts` is freed by the caller. */
static moxie_weights own_scales(const rank_thread *t, const moxie_layer_config *c, moxie_expert **experts)
{
    moxie_weights weights = t->layer->weights;
    int32_t slot_of[MOXIE_MAX_EXPERTS], slots;
    moxie_expert_map((moxie_expert_map_kind)c->ep_map, (int32_t)c->experts, c->ep_size, c->ep_rank, slot_of, &slots,
                     NULL);
    *experts = malloc((size_t)c->experts * sizeof **experts);
    for (int64_t e = 0; e < c->experts; e++) {
        (*experts)[e] = weights.experts[e];
        if (slot_of[e] < 0)
            (*experts)[e].a13_scale = (*experts)[e].a2_scale = 0;
    }
    weights.experts = *experts;
    return weights;
}

/* A copy of the slot map, which the layer does not need once it is made. */
typedef struct map_copy {
    moxie_slot_map map;
    int32_t *expert_of, *first_slot;
} map_copy;

static const moxie_slot_map *copy_map(const moxie_slot_map *map, map_copy *copy)
{
    const size_t slots = (size_t)map->slots * sizeof(int32_t), ranks = (size_t)(map->ranks + 1) * sizeof(int32_t);
    *copy = (map_copy) { *map, malloc(slots), malloc(ranks) };
    memcpy(copy->expert_of, map->expert_of, slots);
    memcpy(copy->first_slot, map->first_slot, ranks);
    copy->map.expert_of = copy->expert_of;
    copy->map.first_slot = copy->first_slot;
    return &copy->map;
}

static void poison_map(map_copy *copy)
{
    if (copy->expert_of == NULL)
        return;
    memset(copy->expert_of, 0x7f, (size_t)copy->map.slots * sizeof(int32_t));
    memset(copy->first_slot, 0x7f, (size_t)(copy->map.ranks + 1) * sizeof(int32_t));
    free(copy->expert_of);
    free(copy->first_slot);
    memset(&copy->map, 0x7f, sizeof copy->map);
}

static moxie_status run_rank(const rank_thread *t, moxie_error *error)
{
    moxie_layer_config config;
    moxie_options options;
    moxie_run_args args;
    moxie_executor *pool = NULL;
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    moxie_adapters *adapters = NULL;
    moxie_expert *experts = NULL;
    map_copy copy = { .expert_of = NULL };
    arguments_of(t, &config, &options, &args);
    const moxie_weights weights = t->spec->hides_scales ? own_scales(t, &config, &experts) : t->layer->weights;
    if (config.slot_map != NULL)
        config.slot_map = copy_map(config.slot_map, &copy);
    moxie_status status = MOXIE_OK;
    if (t->spec->threads > 0) {
        status = moxie_executor_create(t->spec->threads, &pool, error);
        options.executor = pool;
    }
    if (status == MOXIE_OK && t->spec->open != NULL)
        status = t->spec->open(t->rank, &config, &options, &layer, error);
    else if (status == MOXIE_OK)
        status = moxie_layer_create(&config, &options, &layer, error);
    poison_map(&copy);
    if (status == MOXIE_OK && t->spec->open == NULL)
        status = moxie_layer_prepare(layer, &weights, &options, error);
    if (status == MOXIE_OK)
        status = moxie_plan_create(layer, &options, &plan, error);
    if (t->spec->lacks_adapters == t->rank + 1)
        args.adapter_ids = NULL;
    else if (status == MOXIE_OK && t->spec->adapters != NULL) {
        status = test_adapter_set_give(t->spec->adapters, layer, &adapters, error);
        args.adapters = adapters;
    }
    if (status == MOXIE_OK)
        status = run_plan(t, plan, &args, error);
    moxie_adapters_destroy(adapters);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
    moxie_executor_destroy(pool);
    free(experts);
    return status;
}

static void *rank_main(void *user)
{
    rank_thread *t = user;
    moxie_comm *local = t->comm;
    if (t->spec->over != NULL)
        t->comm = t->spec->over(local, &t->result->error);
    t->result->status = t->comm != NULL ? run_rank(t, &t->result->error) : t->result->error.code;
    moxie_comm_destroy(t->comm);
    if (t->comm != local)
        moxie_comm_destroy(local);
    return NULL;
}

void test_ranks_cut(test_ranks_spec *spec, test_rng *rng, int64_t tokens)
{
    for (int32_t r = 1; r < spec->ranks; r++) {
        const int64_t left = tokens - spec->first[r - 1];
        const int64_t fair = left / (spec->ranks - r + 1);
        spec->first[r] = spec->first[r - 1] + (test_below(rng, 3) == 0 ? 0 : test_below(rng, 3) == 0 ? left : fair);
    }
    spec->first[spec->ranks] = tokens;
}

int64_t test_ranks_own(const test_ranks_spec *spec, int64_t tokens)
{
    int64_t most = 1;
    for (int32_t r = 0; r < spec->ranks; r++) {
        const int64_t cut = (r + 1) * tokens / spec->ranks - r * tokens / spec->ranks;
        const int64_t own = spec->layout == MOXIE_TOKENS_SHARDED ? spec->first[r + 1] - spec->first[r] : cut;
        most = own > most ? own : most;
    }
    return most;
}

/* Rank r's place in the whole output, or memory of its own where every rank gets all. */
static void *output_of(const test_layer *layer, const test_ranks_spec *spec, int32_t rank, void *output)
{
    const int64_t row = layer->config.hidden * mox_dtype_bytes(layer->config.dtype), tokens = layer->args.tokens;
    if (spec->layout == MOXIE_TOKENS_SHARDED)
        return (char *)output + spec->first[rank] * row;
    if (spec->layout == MOXIE_TOKENS_SCATTERED)
        return (char *)output + rank * tokens / spec->ranks * row;
    return rank == 0 ? output : malloc((size_t)(tokens * row) + 1);
}

moxie_status test_ranks_run_one(const test_layer *layer, test_ranks_spec *spec, moxie_comm *comm, void *output,
                                moxie_error *error)
{
    const int32_t rank = moxie_comm_rank(comm);
    const bool replicated = spec->layout == MOXIE_TOKENS_REPLICATED;
    const rank_thread alone = {
        .layer = layer,
        .spec = spec,
        .rank = rank,
        .comm = comm,
        .output = replicated ? output : output_of(layer, spec, rank, output),
    };
    return run_rank(&alone, error);
}

moxie_status test_ranks_run(const test_layer *layer, test_ranks_spec *spec, void *output, test_rank_result *results)
{
    moxie_comm *comms[TEST_MAX_RANKS];
    rank_thread threads[TEST_MAX_RANKS];
    moxie_error error;
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    const size_t bytes = test_layer_output_bytes(layer);
    mox_plan_ranks_test_chunk = spec->chunk;
    mox_plan_ranks_test_more = spec->more;
    options.deadline_ms = spec->deadline_ms > 0 ? spec->deadline_ms : 60000;
    assert_ok(moxie_comm_local_create(spec->ranks, &options, comms, &error), &error);
    for (int32_t r = 0; r < spec->ranks; r++) {
        threads[r] = (rank_thread) { layer, spec, r, comms[r], output_of(layer, spec, r, output), &results[r], 0 };
        results[r] = (test_rank_result) { MOXIE_OK, { 0 } };
        assert_int_equal(pthread_create(&threads[r].thread, NULL, rank_main, &threads[r]), 0);
    }
    moxie_status status = MOXIE_OK;
    for (int32_t r = 0; r < spec->ranks; r++) {
        pthread_join(threads[r].thread, NULL);
        status = status == MOXIE_OK ? results[r].status : status;
    }
    mox_plan_ranks_test_chunk = mox_plan_ranks_test_more = 0;
    for (int32_t r = 1; r < spec->ranks && spec->layout == MOXIE_TOKENS_REPLICATED; r++) {
        if (status == MOXIE_OK && spec->absent == 0 && memcmp(output, threads[r].output, bytes) != 0)
            fail_msg("rank %d's output differs from rank 0's: %s", (int)r, layer->text);
        free(threads[r].output);
    }
    return status;
}

moxie_slot_map test_ranks_map(test_layer *layer, test_rng *rng, int32_t ranks)
{
    const int32_t experts = (int32_t)layer->config.experts;
    int32_t *first = test_layer_own(layer, (size_t)(ranks + 1) * sizeof *first);
    int32_t *expert_of = test_layer_own(layer, (size_t)(ranks * (2 * experts + 2)) * sizeof *expert_of);
    int32_t *home = test_layer_own(layer, (size_t)experts * sizeof *home);
    int32_t slots = 0;
    for (int32_t e = 0; e < experts; e++)
        home[e] = (int32_t)test_below(rng, (uint64_t)ranks);
    for (int32_t r = 0; r < ranks; r++) {
        const int32_t start = (int32_t)test_below(rng, (uint64_t)experts);
        first[r] = slots;
        for (int32_t i = 0; i < experts; i++) {
            const int32_t e = (start + i) % experts;
            if (home[e] == r || test_below(rng, 4) == 0)
                expert_of[slots++] = e;
            else if (test_below(rng, 8) == 0)
                expert_of[slots++] = -1;
            if (slots > first[r] && test_below(rng, 8) == 0) /* twice on the rank, or another empty slot */
                expert_of[slots++] = expert_of[first[r]];
        }
    }
    first[ranks] = slots;
    moxie_slot_map map = MOXIE_SLOT_MAP_INIT;
    map.ranks = ranks;
    map.experts = experts;
    map.slots = slots;
    map.expert_of = expert_of;
    map.first_slot = first;
    map.generation = 1 + test_below(rng, 9);
    return map;
}
