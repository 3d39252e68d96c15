/* SPDX-License-Identifier: Apache-2.0
 *
 * cache_best.c - Belady's cache for one layer of a trace (cache_best.h).
 *
 *     steps -> uses: experts of all steps in a row, begin [steps + 1]
 *           -> next: for each use, the step in which the same expert is used again   (walked from the end)
 *           -> keep the `slots` experts whose next use comes first, of those that were used
 *
 * After a step the cache holds the experts with the soonest next use among those that it held and those that were used.
 */
#include "store/cache_best.h"

#include <string.h>

#include "base/memory.h"
#include "store/trace_uses.h"

typedef struct uses {
    int64_t steps;
    int64_t *begin;   /* [steps + 1] */
    int32_t *experts; /* [begin[steps]] */
    int64_t *next;    /* of the same length; `steps`: never */
    int64_t room;
    int64_t *seen; /* [experts] scratch */
} uses;

static void free_uses(uses *u)
{
    mox_free(u->begin);
    mox_free(u->experts);
    mox_free(u->next);
    mox_free(u->seen);
}

static moxie_status gather(moxie_trace *trace, int32_t layer, uses *u, moxie_error *error)
{
    const moxie_trace_info *info = mox_trace_info_of(trace);
    for (int64_t i = 0; i < u->steps; i++) {
        moxie_trace_step step;
        MOX_TRY(mox_trace_read(trace, i, &step, error));
        if (u->begin[i] + info->experts > u->room) {
            const int64_t room = 2 * u->room + info->experts;
            int32_t *grown = mox_realloc(u->experts, (uint64_t)room * sizeof *grown);
            MOX_FAIL_IF(!grown, MOXIE_ERR_MEMORY, error, "no memory for the uses of a layer");
            u->experts = grown;
            u->room = room;
        }
        u->begin[i + 1] = u->begin[i] + mox_trace_uses(info, &step, layer, i + 1, u->seen, u->experts + u->begin[i]);
    }
    return MOXIE_OK;
}

/* From the last use to the first. */
static void find_next(const uses *u, int32_t experts)
{
    for (int32_t e = 0; e < experts; e++)
        u->seen[e] = u->steps;
    for (int64_t i = u->steps; i-- > 0;)
        for (int64_t at = u->begin[i]; at < u->begin[i + 1]; at++) {
            u->next[at] = u->seen[u->experts[at]];
            u->seen[u->experts[at]] = i;
        }
}

typedef struct held {
    int32_t count;
    int32_t expert[MOXIE_MAX_EXPERTS];
    int64_t next[MOXIE_MAX_EXPERTS];
} held;

/* Notes an expert's next use; or holds the expert, if it is used sooner than the last of those that are held. */
static bool hold(held *h, int32_t expert, int64_t next, int32_t slots, int64_t never)
{
    int32_t last = -1;
    for (int32_t s = 0; s < h->count; s++) {
        if (h->expert[s] == expert) {
            h->next[s] = next;
            return true;
        }
        if (last < 0 || h->next[s] > h->next[last])
            last = s;
    }
    if (next == never)
        return false;
    if (h->count < slots)
        last = h->count++;
    else if (next >= h->next[last])
        return false;
    h->expert[last] = expert;
    h->next[last] = next;
    return false;
}

/* Hits first: their next uses must be known before a miss takes a slot. */
static int64_t replay_step(const uses *u, int64_t i, int32_t slots, held *h)
{
    int64_t hits = 0;
    for (int32_t s = 0; s < h->count; s++)
        hits += h->next[s] == i;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t at = u->begin[i]; at < u->begin[i + 1]; at++) {
            bool held_already = false;
            for (int32_t s = 0; s < h->count && !held_already; s++)
                held_already = h->expert[s] == u->experts[at];
            if (pass || held_already)
                hold(h, u->experts[at], u->next[at], slots, u->steps);
        }
    return hits;
}

moxie_status mox_cache_best(moxie_trace *trace, int32_t layer, int32_t slots, int64_t first, int64_t *hits,
                            moxie_error *error)
{
    const moxie_trace_info *info = mox_trace_info_of(trace);
    held h = { .count = 0 };
    uses u = { .steps = info->steps };
    u.begin = mox_calloc((uint64_t)u.steps + 1, sizeof *u.begin);
    u.seen = mox_calloc((uint64_t)info->experts, sizeof *u.seen);
    moxie_status status = u.begin && u.seen ? gather(trace, layer, &u, error)
                                            : mox_fail(MOXIE_ERR_MEMORY, error, "no memory for the uses of a layer");
    if (status == MOXIE_OK) {
        u.next = mox_calloc((uint64_t)u.begin[u.steps] + 1, sizeof *u.next);
        if (!u.next)
            status = mox_fail(MOXIE_ERR_MEMORY, error, "no memory for the uses of a layer");
    }
    if (status == MOXIE_OK) {
        find_next(&u, info->experts);
        for (int64_t i = 0; i < u.steps; i++) {
            const int64_t n = replay_step(&u, i, slots, &h);
            *hits += i >= first ? n : 0;
        }
    }
    free_uses(&u);
    return status;
}
