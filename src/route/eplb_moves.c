/* SPDX-License-Identifier: Apache-2.0
 *
 * eplb_moves.c - from the map of today to the map that is wanted, a few moves at a time.
 *
 *     today   0 1 | 2 0        overwrite   slot 3: expert 0 has another replica, so 2 may take its place
 *     target  2 1 | 0 3        exchange    slots 0 and 2: each holds what the other one wants
 *
 * Each operation puts at least one slot right and none wrong, and every expert keeps a replica. There always is one.
 * Where no wrong slot can be overwritten, each holds its expert's only replica. Then the targets of the wrong slots are
 * the same experts in another order, and an exchange exists. Hence repeated steps reach the target.
 *
 * Source of keep_slots: vLLM's preserve_intragpu_slots.
 */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "route/eplb.h"

/* ---- slots kept -------------------------------------------------------------------------------------- */

/* One rank: n slots; scratch and used have room for n. */
static void keep_rank(int32_t n, const int32_t *old, int32_t *now, int32_t *scratch, bool *used)
{
    int32_t next = 0;
    memcpy(scratch, now, (size_t)n * sizeof *scratch);
    memset(used, 0, (size_t)n * sizeof *used);
    for (int32_t p = 0; p < n; p++) {
        now[p] = -2;
        for (int32_t i = 0; i < n && now[p] == -2; i++)
            if (!used[i] && scratch[i] == old[p]) {
                used[i] = true;
                now[p] = scratch[i];
            }
    }
    for (int32_t p = 0; p < n; p++) {
        if (now[p] != -2)
            continue;
        while (used[next])
            next++;
        now[p] = scratch[next++];
    }
}

moxie_status mox_eplb_keep_slots(int32_t layers, int32_t slots, int32_t ranks, const int32_t *first_slot,
                                 const int32_t *old, int32_t *expert_of, moxie_error *error)
{
    MOX_FAIL_IF(layers < 0 || slots < 1 || slots > MOXIE_MAX_SLOTS || ranks < 1 || ranks > MOXIE_MAX_RANKS,
                MOXIE_ERR_ARGUMENT, error, "EPLB: %d layers, %d slots, %d ranks; the limits are 0, 1 to %d, 1 to %d",
                (int)layers, (int)slots, (int)ranks, MOXIE_MAX_SLOTS, MOXIE_MAX_RANKS);
    for (int32_t r = 0; r <= ranks; r++)
        MOX_FAIL_IF(first_slot[r] < (r > 0 ? first_slot[r - 1] : 0) || first_slot[r] > slots, MOXIE_ERR_ARGUMENT, error,
                    "EPLB: first_slot[%d] is %d; it must not fall and not be past %d slots", (int)r, (int)first_slot[r],
                    (int)slots);
    int32_t *scratch = mox_calloc((uint64_t)slots, sizeof *scratch);
    bool *used = mox_calloc((uint64_t)slots, sizeof *used);
    const bool fine = scratch && used;
    for (int32_t l = 0; fine && l < layers; l++)
        for (int32_t r = 0; r < ranks; r++) {
            const int64_t at = (int64_t)l * slots + first_slot[r];
            keep_rank(first_slot[r + 1] - first_slot[r], old + at, expert_of + at, scratch, used);
        }
    mox_free(scratch);
    mox_free(used);
    return fine ? MOXIE_OK : mox_fail(MOXIE_ERR_MEMORY, error, "EPLB: no memory for %d slots", (int)slots);
}

/* ---- operations -------------------------------------------------------------------------------------- */

/* Slot p gets its target expert: it overwrites what is there (q -1), or p and q exchange theirs. */
typedef struct operation {
    double max, squares; /* the ranks' loads afterwards, less what they are before; the smaller the better */
    int32_t p, q;        /* p -1: there is none */
    int32_t moves;       /* more moved slots than before */
} operation;

typedef struct stepper {
    const moxie_eplb_config *c;
    const double *loads;
    const int32_t *target;
    int32_t *now;        /* [layers, slots] */
    int32_t *before;     /* [layers, slots]: the maps when the step began */
    int32_t *count;      /* [layers, experts]: replicas of today */
    operation *best;     /* [layers] */
    int32_t *first_slot; /* [ranks + 1] */
    double *share;       /* [experts]: the load of one replica, of the layer at work */
} stepper;

/* One layer of it. */
typedef struct layer_maps {
    const double *loads;
    const int32_t *target, *before;
    int32_t *now, *count;
} layer_maps;

static layer_maps maps_of(const stepper *s, int32_t layer)
{
    const int64_t slots = (int64_t)layer * s->c->slots, experts = (int64_t)layer * s->c->experts;
    return (layer_maps) { s->loads + experts, s->target + slots, s->before + slots, s->now + slots,
                          s->count + experts };
}

static void put(const layer_maps *m, int32_t slot, int32_t expert)
{
    if (m->now[slot] >= 0)
        m->count[m->now[slot]]--;
    if (expert >= 0)
        m->count[expert]++;
    m->now[slot] = expert;
}

static void apply(const layer_maps *m, int32_t p, int32_t q)
{
    const int32_t expert = q < 0 ? m->target[p] : m->now[q];
    if (q >= 0)
        put(m, q, m->now[p]);
    put(m, p, expert);
}

static int32_t is_moved(const layer_maps *m, int32_t slot)
{
    return slot >= 0 && m->now[slot] >= 0 && m->now[slot] != m->before[slot];
}

/* The largest of the ranks' loads, and the sum of their squares. */
static void measure(const stepper *s, const layer_maps *m, double *max, double *squares)
{
    *max = *squares = 0;
    for (int32_t e = 0; e < s->c->experts; e++)
        s->share[e] = m->loads[e] / m->count[e];
    for (int32_t r = 0; r < s->c->ranks; r++) {
        double load = 0;
        for (int32_t p = s->first_slot[r]; p < s->first_slot[r + 1]; p++)
            load += m->now[p] < 0 ? 0 : s->share[m->now[p]];
        *max = load > *max ? load : *max;
        *squares += load * load;
    }
}

/* What an operation does, by doing it and taking it back. */
static operation try_operation(const stepper *s, const layer_maps *m, int32_t p, int32_t q)
{
    operation o = { .p = p, .q = q, .moves = -is_moved(m, p) - is_moved(m, q) };
    const int32_t mine = m->now[p], its = q < 0 ? -1 : m->now[q];
    apply(m, p, q);
    measure(s, m, &o.max, &o.squares);
    o.moves += is_moved(m, p) + is_moved(m, q);
    put(m, p, mine);
    if (q >= 0)
        put(m, q, its);
    return o;
}

/* The partner of slot p: a wrong slot with what p wants; -1: none. */
static int32_t partner(const stepper *s, const layer_maps *m, int32_t p)
{
    for (int32_t q = 0; m->target[p] >= 0 && q < s->c->slots; q++)
        if (m->now[q] == m->target[p] && m->target[q] != m->now[q])
            return q;
    return -1;
}

static bool is_better(const operation *a, const operation *b)
{
    return b->p < 0 || a->max < b->max || (a->max == b->max && a->squares < b->squares);
}

/* The best operation of a layer with at most `limit` moves. */
static operation best_operation(const stepper *s, int32_t layer, int64_t limit)
{
    const layer_maps m = maps_of(s, layer);
    operation best = { .p = -1, .q = -1 };
    double max, squares;
    measure(s, &m, &max, &squares);
    for (int32_t p = 0; p < s->c->slots; p++) {
        if (m.now[p] == m.target[p])
            continue;
        const bool spare = m.now[p] < 0 || m.count[m.now[p]] > 1;
        const int32_t q = spare ? -1 : partner(s, &m, p);
        if (!spare && q < 0)
            continue;
        operation o = try_operation(s, &m, p, q);
        o.max -= max;
        o.squares -= squares;
        if (o.moves <= limit && is_better(&o, &best))
            best = o;
    }
    return best;
}

/* ---- a step ------------------------------------------------------------------------------------------ */

static moxie_status check_maps(const stepper *s, const int32_t *maps, const char *which, moxie_error *error)
{
    for (int32_t l = 0; l < s->c->layers; l++) {
        const moxie_slot_map map = { .struct_size = sizeof map,
                                     .ranks = s->c->ranks,
                                     .experts = s->c->experts,
                                     .slots = s->c->slots,
                                     .expert_of = maps + (int64_t)l * s->c->slots,
                                     .first_slot = s->first_slot };
        const moxie_status status = mox_expert_slots_check(&map, error);
        if (status != MOXIE_OK)
            return mox_fail_context(status, error, "checking layer %d of %s", (int)l, which);
    }
    return MOXIE_OK;
}

static void begin(stepper *s)
{
    memcpy(s->before, s->now, (size_t)s->c->layers * (size_t)s->c->slots * sizeof *s->now);
    for (int32_t l = 0; l < s->c->layers; l++) {
        const layer_maps m = maps_of(s, l);
        for (int32_t p = 0; p < s->c->slots; p++)
            if (m.now[p] >= 0)
                m.count[m.now[p]]++;
    }
}

/* Operations in the order of their gain, until none fits. A layer's best one stays so until the layer changes, or has
 * more moves than are left. */
static void go(const stepper *s, int64_t left)
{
    for (int32_t l = 0; l < s->c->layers; l++)
        s->best[l] = best_operation(s, l, left);
    for (;;) {
        int32_t chosen = -1;
        for (int32_t l = 0; l < s->c->layers; l++) {
            if (s->best[l].p >= 0 && s->best[l].moves > left)
                s->best[l] = best_operation(s, l, left);
            if (s->best[l].p >= 0 && (chosen < 0 || is_better(&s->best[l], &s->best[chosen])))
                chosen = l;
        }
        if (chosen < 0)
            return;
        const layer_maps m = maps_of(s, chosen);
        apply(&m, s->best[chosen].p, s->best[chosen].q);
        left -= s->best[chosen].moves;
        s->best[chosen] = best_operation(s, chosen, left);
    }
}

static bool rank_had(const stepper *s, const int32_t *before, int32_t slot)
{
    const moxie_slot_map map = {
        .struct_size = sizeof map, .ranks = s->c->ranks, .expert_of = before, .first_slot = s->first_slot
    };
    return mox_expert_slots_find(&map, mox_expert_slots_rank_of(&map, slot), s->now[before - s->before + slot]) >= 0;
}

static void count_moves(const stepper *s, moxie_eplb_moves *moves)
{
    moves->moves = moves->remote = moves->left = 0;
    for (int32_t l = 0; l < s->c->layers; l++) {
        const layer_maps m = maps_of(s, l);
        for (int32_t p = 0; p < s->c->slots; p++) {
            moves->left += m.now[p] != m.target[p];
            if (!is_moved(&m, p))
                continue;
            moves->moves++;
            moves->remote += !rank_had(s, m.before, p);
        }
    }
}

static void stepper_free(stepper *s)
{
    mox_free(s->before);
    mox_free(s->count);
    mox_free(s->best);
    mox_free(s->first_slot);
    mox_free(s->share);
}

static moxie_status stepper_alloc(stepper *s, moxie_error *error)
{
    const uint64_t layers = (uint64_t)s->c->layers;
    s->before = mox_calloc(layers * (uint64_t)s->c->slots, sizeof *s->before);
    s->count = mox_calloc(layers * (uint64_t)s->c->experts, sizeof *s->count);
    s->best = mox_calloc(layers, sizeof *s->best);
    s->first_slot = mox_calloc((uint64_t)s->c->ranks + 1, sizeof *s->first_slot);
    s->share = mox_calloc((uint64_t)s->c->experts, sizeof *s->share);
    return s->before && s->count && s->best && s->first_slot && s->share
               ? MOXIE_OK
               : mox_fail(MOXIE_ERR_MEMORY, error, "EPLB: no memory for a step of %d layers of %d slots",
                          (int)s->c->layers, (int)s->c->slots);
}

moxie_status mox_eplb_step(const moxie_eplb_config *config, const double *loads, const int32_t *target,
                           int64_t max_moves, int32_t *expert_of, moxie_eplb_moves *moves, moxie_error *error)
{
    MOX_TRY(mox_eplb_config_check(config, loads, error));
    MOX_FAIL_IF(max_moves < 0 || max_moves == 1, MOXIE_ERR_ARGUMENT, error,
                "EPLB: max_moves is %lld; an exchange of two experts is 2 moves, so give 2 or more, or 0 for all",
                (long long)max_moves);
    stepper s = { .c = config, .loads = loads, .target = target, .now = expert_of };
    moxie_status status = stepper_alloc(&s, error);
    if (status != MOXIE_OK)
        goto out;
    mox_expert_slots_first_slots(config->slots, config->ranks, s.first_slot);
    status = check_maps(&s, target, "the target", error);
    if (status == MOXIE_OK)
        status = check_maps(&s, expert_of, "the maps to change", error);
    if (status != MOXIE_OK)
        goto out;
    begin(&s);
    if (max_moves == 0)
        memcpy(s.now, target, (size_t)config->layers * (size_t)config->slots * sizeof *s.now);
    else
        go(&s, max_moves);
    count_moves(&s, moves);
out:
    stepper_free(&s);
    return status;
}
