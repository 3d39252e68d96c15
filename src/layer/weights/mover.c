/* SPDX-License-Identifier: Apache-2.0
 *
 * mover.c - experts on their way between ranks (mover.h).
 */
#include "layer/weights/mover.h"

#include <string.h>

#include "layer/weights/layer_prepare.h"
#include "layer/weights/layer_records.h"

struct moxie_mover {
    moxie_layer *layer;
    moxie_comm *comm;       /* NULL: from views */
    moxie_weights weights;  /* experts NULL: from other ranks */
    mox_move_target target; /* wanted is the mover's own */
    int32_t max;            /* moves of a step */
    mox_move *moves;        /* [max] */
    int64_t *numbers;       /* [4, ranks of the comm] of an exchange */
    float *scales;          /* [max + 1, 2] static scales of experts that come */
};

/* ---- spare slots -------------------------------------------------------------------------------------- */

/* The map's arrays are the layer's, in config_arrays. */
static int32_t *slots_of(moxie_layer *layer)
{
    return (int32_t *)(uintptr_t)layer->config.slot_map->expert_of;
}

moxie_status mox_layer_add_spare_slots(moxie_layer *layer, int32_t spare, moxie_error *error)
{
    const moxie_slot_map *old = layer->config.slot_map;
    MOX_FAIL_IF(old == NULL, MOXIE_ERR_ARGUMENT, error,
                "options.spare_slots is %d, but config.slot_map is NULL: give a map, such as that of "
                "moxie_slot_map_default",
                (int)spare);
    const int64_t slots = old->slots + (int64_t)spare * old->ranks;
    MOX_FAIL_IF(slots > MOXIE_MAX_SLOTS, MOXIE_ERR_ARGUMENT, error,
                "slot_map has %d slots, and %d ranks with %d spare slots each make %lld; the limit is %d",
                (int)old->slots, (int)old->ranks, (int)spare, (long long)slots, MOXIE_MAX_SLOTS);
    moxie_slot_map *map = mox_arena_alloc(&layer->config_arrays, sizeof *map);
    int32_t *expert_of = mox_arena_calloc(&layer->config_arrays, (uint64_t)slots, sizeof *expert_of);
    int32_t *first_slot = mox_arena_calloc(&layer->config_arrays, (uint64_t)old->ranks + 1, sizeof *first_slot);
    MOX_FAIL_IF(map == NULL || expert_of == NULL || first_slot == NULL, MOXIE_ERR_MEMORY, error,
                "no memory for a map of %lld slots", (long long)slots);
    int32_t to = 0;
    for (int32_t r = 0; r < old->ranks; r++) {
        first_slot[r] = to;
        for (int32_t p = old->first_slot[r]; p < old->first_slot[r + 1]; p++) {
            const int32_t e = old->expert_of[p];
            expert_of[to++] = e >= 0 && mox_expert_slots_find(old, r, e) == p ? e : -1;
        }
        for (int32_t i = 0; i < spare; i++)
            expert_of[to++] = -1;
    }
    first_slot[old->ranks] = to;
    *map = *old;
    map->slots = to;
    map->expert_of = expert_of;
    map->first_slot = first_slot;
    layer->config.slot_map = map;
    return MOXIE_OK;
}

/* ---- creation ----------------------------------------------------------------------------------------- */

static moxie_status check_target(const moxie_layer *layer, const moxie_slot_map *target, moxie_error *error)
{
    const moxie_slot_map *now = layer->config.slot_map;
    MOX_FAIL_IF(layer->max_slots == 0, MOXIE_ERR_ARGUMENT, error,
                "the layer has no spare slots: create it with options.spare_slots of 1 at least");
    MOX_FAIL_IF(!mox_device_is_host(&layer->device), MOXIE_ERR_UNSUPPORTED, error,
                "the layer's records are on a device, and a mover writes the host's memory: create the layer anew");
    MOX_FAIL_IF(target->ranks != now->ranks || target->experts != now->experts, MOXIE_ERR_MISMATCH, error,
                "the target has %d ranks and %d experts, but the layer's map %d and %d: make it for the same ranks and "
                "experts",
                (int)target->ranks, (int)target->experts, (int)now->ranks, (int)now->experts);
    return mox_expert_slots_check(target, error);
}

static moxie_status want(moxie_mover *mover, const moxie_slot_map *target, moxie_error *error)
{
    const moxie_slot_map *now = mover->layer->config.slot_map;
    bool *wanted = mox_calloc((uint64_t)now->ranks * (uint64_t)now->experts, sizeof *wanted);
    mover->target = (mox_move_target) { now->ranks, now->experts, wanted };
    MOX_FAIL_IF(wanted == NULL, MOXIE_ERR_MEMORY, error, "no memory for a target of %d ranks", (int)now->ranks);
    for (int32_t r = 0; r < now->ranks; r++) {
        int32_t count = 0;
        for (int32_t p = target->first_slot[r]; p < target->first_slot[r + 1]; p++) {
            const int32_t e = target->expert_of[p];
            if (e < 0 || wanted[(int64_t)r * now->experts + e])
                continue;
            wanted[(int64_t)r * now->experts + e] = true;
            count++;
        }
        const int32_t room = now->first_slot[r + 1] - now->first_slot[r];
        MOX_FAIL_IF(
            count >= room, MOXIE_ERR_MEMORY, error,
            "the target has %d experts on rank %d, whose layer has %d slots: one slot must stay empty, so create "
            "the layers with more options.spare_slots",
            (int)count, (int)r, (int)room);
    }
    return MOXIE_OK;
}

static moxie_status allocate(moxie_mover *mover, uint64_t max_bytes, moxie_error *error)
{
    const moxie_layer *layer = mover->layer;
    const moxie_slot_map *now = layer->config.slot_map;
    const uint64_t all = (uint64_t)now->slots, moves = max_bytes / layer->record_bytes;
    MOX_FAIL_IF(max_bytes > 0 && moves == 0, MOXIE_ERR_ARGUMENT, error,
                "max_bytes is %llu, but a record has %llu bytes and moves whole: allow for one",
                (unsigned long long)max_bytes, (unsigned long long)layer->record_bytes);
    mover->max = (int32_t)(max_bytes == 0 || moves > all ? all : moves);
    const uint64_t max = (uint64_t)mover->max;
    mover->moves = mox_calloc(max, sizeof *mover->moves);
    mover->scales = mox_calloc(2 * max + 2, sizeof *mover->scales);
    if (mover->comm != NULL)
        mover->numbers = mox_calloc(4 * (uint64_t)mox_comm_ranks(mover->comm), sizeof *mover->numbers);
    MOX_FAIL_IF(mover->moves == NULL || mover->scales == NULL || (mover->comm != NULL && mover->numbers == NULL),
                MOXIE_ERR_MEMORY, error, "no memory to move %d experts in a step", (int)mover->max);
    return MOXIE_OK;
}

static moxie_status set_source(moxie_mover *mover, const moxie_mover_options *options, moxie_error *error)
{
    const moxie_layer *layer = mover->layer;
    if (options->weights != NULL) {
        mover->weights = *options->weights;
        MOX_FAIL_IF(mover->weights.n_experts != layer->config.experts || mover->weights.experts == NULL,
                    MOXIE_ERR_MISMATCH, error, "weights hold %lld experts, but the layer has %lld",
                    (long long)mover->weights.n_experts, (long long)layer->config.experts);
        return MOXIE_OK;
    }
    mover->comm = options->comm;
    MOX_FAIL_IF(options->comm == NULL, MOXIE_ERR_ARGUMENT, error,
                "neither weights nor comm is set: records come from checkpoint views or from other ranks");
    const moxie_options as = { .comm = options->comm };
    return mox_config_check_comm(&layer->config, &as, error);
}

moxie_status mox_mover_create(moxie_layer *layer, const moxie_slot_map *target, const moxie_mover_options *options,
                              moxie_mover **out, moxie_error *error)
{
    MOX_TRY(mox_layer_need_prepared(layer, error));
    MOX_TRY(check_target(layer, target, error));
    moxie_mover *mover = mox_calloc(1, sizeof *mover);
    MOX_FAIL_IF(mover == NULL, MOXIE_ERR_MEMORY, error, "no memory for a mover");
    mover->layer = layer;
    moxie_status status = set_source(mover, options, error);
    if (status == MOXIE_OK)
        status = want(mover, target, error);
    if (status == MOXIE_OK)
        status = allocate(mover, options->max_bytes, error);
    if (status != MOXIE_OK) {
        mox_mover_destroy(mover);
        return status;
    }
    *out = mover;
    return MOXIE_OK;
}

void mox_mover_destroy(moxie_mover *mover)
{
    if (mover == NULL)
        return;
    mox_free((void *)(uintptr_t)mover->target.wanted);
    mox_free(mover->moves);
    mox_free(mover->numbers);
    mox_free(mover->scales);
    mox_free(mover);
}

/* ---- records ------------------------------------------------------------------------------------------ */

/* Moves of the step to this rank. */
static int32_t own_moves(const moxie_mover *mover, int32_t count)
{
    int32_t own = 0;
    for (int32_t i = 0; i < count; i++)
        own += mover->moves[i].to == mover->layer->config.ep_rank;
    return own;
}

/* Exchanges move i alone: ranks that have no part in it do not wait. A rank's partner has the same tp_rank. */
static moxie_status exchange(moxie_mover *mover, const mox_move *move, const void *send, void *recv, uint64_t bytes,
                             moxie_error *error)
{
    const moxie_layer_config *c = &mover->layer->config;
    const int32_t ranks = mox_comm_ranks(mover->comm), tp = mox_config_tp_ranks(c);
    int64_t *n = mover->numbers;
    mox_comm_request request;
    memset(n, 0, 4 * (size_t)ranks * sizeof *n);
    if (move->from == c->ep_rank)
        n[move->to * tp + c->tp_rank] = 1;
    if (move->to == c->ep_rank)
        n[2 * ranks + move->from * tp + c->tp_rank] = 1;
    const moxie_comm_rows rows = { .send = send,
                                   .recv = recv,
                                   .row_bytes = bytes,
                                   .send_rows = n,
                                   .send_at = n + ranks,
                                   .recv_rows = n + 2 * ranks,
                                   .recv_at = n + 3 * ranks };
    MOX_TRY(mox_comm_start_alltoallv(mover->comm, &rows, &request, error));
    return mox_comm_wait(mover->comm, request, error);
}

/* Brings one expert's record and static scales into spare slot `slot` of the rank that gets it. */
static moxie_status fetch(moxie_mover *mover, const mox_move *move, int32_t slot, float *scales, moxie_error *error)
{
    moxie_layer *layer = mover->layer;
    const bool sends = move->from == layer->config.ep_rank, gets = move->to == layer->config.ep_rank;
    const void *record = sends ? layer->records[layer->slot_of[move->expert]] : NULL;
    const float mine[2] = { layer->static_scale[MOX_W13].raw[move->expert],
                            layer->static_scale[MOX_W2].raw[move->expert] };
    MOX_TRY(exchange(mover, move, mine, scales, sizeof mine, error));
    MOX_TRY(exchange(mover, move, record, gets ? layer->records[slot] : NULL, layer->record_bytes, error));
    if (!gets)
        return MOXIE_OK;
    return mox_record_verify(layer->layouts[MOX_ROUTED], &layer->routed_shape, move->expert, layer->records[slot],
                             error);
}

/* All records of the step, into the layer's spare slots in the order of the moves. */
static moxie_status fetch_all(moxie_mover *mover, int32_t count, moxie_error *error)
{
    moxie_layer *layer = mover->layer;
    int32_t slot = layer->slots;
    for (int32_t i = 0; i < count; i++) {
        const mox_move *move = &mover->moves[i];
        const bool gets = move->to == layer->config.ep_rank;
        float *scales = mover->scales + 2 * (slot - layer->slots);
        if (mover->comm != NULL)
            MOX_TRY(fetch(mover, move, slot, scales, error));
        else if (gets) {
            const moxie_expert *views = &mover->weights.experts[move->expert];
            MOX_TRY(mox_layer_pack_alone(layer, move->expert, views, layer->records[slot], error));
            scales[0] = views->a13_scale;
            scales[1] = views->a2_scale;
        }
        slot += gets;
    }
    return MOXIE_OK;
}

/* ---- the layer's slots -------------------------------------------------------------------------------- */

static void add_expert(moxie_layer *layer, int32_t expert, const float *scales)
{
    layer->slot_of[expert] = layer->slots;
    layer->expert_of[layer->slots++] = expert;
    layer->static_scale[MOX_W13].raw[expert] = scales[0];
    layer->static_scale[MOX_W2].raw[expert] = scales[1];
}

/* The last slot takes the number of the one that becomes free. */
static void remove_expert(moxie_layer *layer, int32_t expert)
{
    const int32_t slot = layer->slot_of[expert], last = layer->slots - 1;
    void *record = layer->records[slot];
    layer->records[slot] = layer->records[last];
    layer->records[last] = record;
    layer->expert_of[slot] = layer->expert_of[last];
    layer->slot_of[layer->expert_of[slot]] = slot;
    layer->slot_of[expert] = -1;
    layer->slots--;
}

static moxie_status change_layer(moxie_mover *mover, int32_t count, bool *changed, moxie_error *error)
{
    moxie_layer *layer = mover->layer;
    const moxie_slot_map *map = layer->config.slot_map;
    const float *scales = mover->scales;
    *changed = mox_moves_done(map, &mover->target, mover->moves, count, slots_of(layer));
    for (int32_t i = 0; i < count; i++)
        if (mover->moves[i].to == layer->config.ep_rank) {
            add_expert(layer, mover->moves[i].expert, scales);
            scales += 2;
        }
    for (int32_t s = layer->slots - 1; s >= 0; s--)
        if (mox_expert_slots_find(map, layer->config.ep_rank, (int32_t)layer->expert_of[s]) < 0)
            remove_expert(layer, (int32_t)layer->expert_of[s]);
    ((moxie_slot_map *)(uintptr_t)map)->generation += *changed;
    return mox_layer_resolve_scales(layer, error);
}

moxie_status mox_mover_step(moxie_mover *mover, moxie_mover_report *report, moxie_error *error)
{
    moxie_layer *layer = mover->layer;
    const moxie_slot_map *map = layer->config.slot_map;
    const int32_t count = mox_moves_next(map, &mover->target, mover->max, mover->moves);
    bool changed;
    MOX_TRY(fetch_all(mover, count, error));
    MOX_TRY(change_layer(mover, count, &changed, error));
    report->moves = count;
    report->bytes = (uint64_t)count * layer->record_bytes;
    report->own_bytes = (uint64_t)own_moves(mover, count) * layer->record_bytes;
    report->left = mox_moves_left(map, &mover->target);
    report->generation = map->generation;
    return MOXIE_OK;
}
