/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_cache.c - slots, uses and the policies' worths (expert_cache.h).
 *
 * A step in order: note the uses of its experts; hits; then misses, the worthiest first, each into a free slot or that
 * of the least worthy expert which the step does not use. It ends when no slot is free and max_inserts is reached, or
 * when an admission says no: all later misses are worth less.
 */
#include "store/expert_cache.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

struct mox_expert_cache {
    mox_cache_options options;
    int64_t now; /* the current step, from 1 on */
    bool warm;
    int32_t filled;     /* slots that have an expert: the first ones */
    int32_t *slot_of;   /* [experts] -1: none */
    int32_t *expert_in; /* [slots] */
    int64_t *last;      /* [experts] step of the last use; 0: none */
    double *uses;       /* [experts] */
    double *faded;      /* [experts] log2 of the uses that fade, as they would be at step 0 */
    double *census;     /* [experts] */
    int32_t *order;     /* [experts] scratch: misses of a step, by worth */
    int32_t pinned;     /* slots whose experts stay: the first ones */
};

/* ---- worths: the functions that cache_policies.def names ------------------------------------------------ */

static double last_use(const mox_expert_cache *c, int32_t expert)
{
    return (double)c->last[expert];
}

static double all_uses(const mox_expert_cache *c, int32_t expert)
{
    return c->uses[expert];
}

/* Each use counts 1 when it happens and half as much after half_life steps: sum of 2^(-(now - step) / half_life). To
 * compare experts their sums may be taken at any time, so it is taken at step 0, where it changes with uses only. It is
 * kept as a logarithm, because 2^(step / half_life) has no bound. */
static double decayed_uses(const mox_expert_cache *c, int32_t expert)
{
    return c->faded[expert];
}

static double census(const mox_expert_cache *c, int32_t expert)
{
    return c->census[expert];
}

static const mox_cache_policy policies[] = {
#define MOX_CACHE_POLICY(name, worth, admission, about) { #name, about, worth, admission },
#include "store/cache_policies.def"
#undef MOX_CACHE_POLICY
};
enum { N_POLICIES = sizeof policies / sizeof policies[0] };

const mox_cache_policy *mox_cache_policy_at(int32_t i)
{
    return i >= 0 && i < N_POLICIES ? &policies[i] : NULL;
}

moxie_status mox_cache_policy_find(const char *name, const mox_cache_policy **out, moxie_error *error)
{
    char names[128];
    size_t length = 0;
    names[0] = '\0';
    for (int32_t i = 0; i < N_POLICIES; i++) {
        if (!name || !strcmp(name, policies[i].name)) {
            *out = &policies[i];
            return MOXIE_OK;
        }
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", i ? ", " : "", policies[i].name);
    }
    char shown[48];
    return mox_fail(MOXIE_ERR_ARGUMENT, error, "there is no cache policy \"%s\": there are %s",
                    mox_escape(shown, sizeof shown, name), names);
}

/* Whether expert a keeps a slot rather than b. */
static bool worthier(const mox_expert_cache *c, int32_t a, int32_t b)
{
    const double worth_a = c->options.policy->worth(c, a), worth_b = c->options.policy->worth(c, b);
    if (worth_a != worth_b)
        return worth_a > worth_b;
    return c->last[a] != c->last[b] ? c->last[a] > c->last[b] : a > b;
}

/* ---- a step --------------------------------------------------------------------------------------------- */

static void note_use(mox_expert_cache *c, int32_t expert)
{
    const double today = (double)c->now / c->options.half_life;
    c->faded[expert] = log2(exp2(c->faded[expert] - today) + 1) + today;
    c->last[expert] = c->now;
    c->uses[expert]++;
    if (c->warm)
        c->census[expert]++;
}

static void place(mox_expert_cache *c, int32_t expert, int32_t slot)
{
    c->slot_of[expert] = slot;
    c->expert_in[slot] = expert;
}

/* The least worthy expert that this step does not use; -1: the step uses all. */
static int32_t least_worthy(const mox_expert_cache *c)
{
    int32_t least = -1;
    for (int32_t s = c->pinned; s < c->filled; s++) {
        const int32_t expert = c->expert_in[s];
        if (c->last[expert] != c->now && (least < 0 || worthier(c, least, expert)))
            least = expert;
    }
    return least;
}

/* Gives a miss a slot, if the policy admits it. */
static bool insert(mox_expert_cache *c, int32_t expert, mox_cache_place *out)
{
    const mox_cache_admission admission = c->options.policy->admission;
    if (admission == CENSUS || (admission == UNTIL_WARM && !c->warm))
        return false;
    if (c->filled < c->options.slots) {
        place(c, expert, c->filled++);
    } else {
        const int32_t least = least_worthy(c);
        if (least < 0 || (admission != ALWAYS && !worthier(c, expert, least)))
            return false;
        out->evicted = least;
        place(c, expert, c->slot_of[least]);
        c->slot_of[least] = -1;
    }
    out->slot = c->slot_of[expert];
    return true;
}

/* Places of misses in c->order, the worthiest first. */
static int32_t order_misses(mox_expert_cache *c, const int32_t *experts, int32_t count)
{
    int32_t n = 0;
    for (int32_t i = 0; i < count; i++) {
        if (c->slot_of[experts[i]] >= 0)
            continue;
        int32_t at = n++;
        for (; at > 0 && worthier(c, experts[i], experts[c->order[at - 1]]); at--)
            c->order[at] = c->order[at - 1];
        c->order[at] = i;
    }
    return n;
}

void mox_cache_step(mox_expert_cache *c, const int32_t *experts, int32_t count, mox_cache_place *places)
{
    c->now++;
    for (int32_t i = 0; i < count; i++) {
        note_use(c, experts[i]);
        const int32_t slot = c->slot_of[experts[i]];
        places[i] = (mox_cache_place) { .slot = slot, .evicted = -1, .hit = slot >= 0 };
    }
    const int32_t misses = order_misses(c, experts, count), most = c->options.max_inserts;
    for (int32_t m = 0; m < misses && (most == 0 || m < most || c->filled < c->options.slots); m++)
        if (!insert(c, experts[c->order[m]], &places[c->order[m]]))
            break;
}

/* ---- the census ----------------------------------------------------------------------------------------- */

void mox_cache_add_census(mox_expert_cache *c, int32_t expert, double uses)
{
    c->census[expert] += uses;
}

void mox_cache_end_warm(mox_expert_cache *c)
{
    c->warm = false;
    if (c->options.policy->admission != CENSUS)
        return;
    for (; c->filled < c->options.slots; c->filled++) {
        int32_t best = -1;
        for (int32_t e = 0; e < c->options.experts; e++)
            if (c->slot_of[e] < 0 && (best < 0 || c->census[e] > c->census[best]))
                best = e;
        place(c, best, c->filled);
    }
}

bool mox_cache_pin(mox_expert_cache *c, int32_t expert)
{
    if (c->slot_of[expert] >= 0)
        return true;
    if (c->pinned == c->options.slots)
        return false;
    place(c, expert, c->pinned++);
    c->filled = c->pinned;
    return true;
}

int32_t mox_cache_slot_of(const mox_expert_cache *c, int32_t expert)
{
    return c->slot_of[expert];
}

int32_t mox_cache_expert_in(const mox_expert_cache *c, int32_t slot)
{
    return c->expert_in[slot];
}

/* ---- life ----------------------------------------------------------------------------------------------- */

moxie_status mox_cache_create(const mox_cache_options *options, mox_expert_cache **out, moxie_error *error)
{
    const uint64_t n = (uint64_t)options->experts;
    mox_expert_cache *c = mox_alloc(sizeof *c);
    MOX_FAIL_IF(!c, MOXIE_ERR_MEMORY, error, "no memory for a cache of experts");
    c->options = *options;
    c->warm = true;
    c->slot_of = mox_calloc(n, sizeof *c->slot_of);
    c->expert_in = mox_calloc((uint64_t)options->slots, sizeof *c->expert_in);
    c->last = mox_calloc(n, sizeof *c->last);
    c->uses = mox_calloc(n, sizeof *c->uses);
    c->faded = mox_calloc(n, sizeof *c->faded);
    c->census = mox_calloc(n, sizeof *c->census);
    c->order = mox_calloc(n, sizeof *c->order);
    if (!c->slot_of || !c->expert_in || !c->last || !c->uses || !c->faded || !c->census || !c->order) {
        mox_cache_destroy(c);
        return mox_fail(MOXIE_ERR_MEMORY, error, "no memory for a cache of %d experts", options->experts);
    }
    for (int32_t e = 0; e < options->experts; e++)
        c->slot_of[e] = -1, c->faded[e] = -INFINITY;
    for (int32_t s = 0; s < options->slots; s++)
        c->expert_in[s] = -1;
    *out = c;
    return MOXIE_OK;
}

void mox_cache_destroy(mox_expert_cache *c)
{
    if (!c)
        return;
    mox_free(c->slot_of);
    mox_free(c->expert_in);
    mox_free(c->last);
    mox_free(c->uses);
    mox_free(c->faded);
    mox_free(c->census);
    mox_free(c->order);
    mox_free(c);
}
