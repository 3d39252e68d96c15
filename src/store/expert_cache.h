/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_cache.h - which experts of one layer have a slot: the decision alone, without memory or files of experts.
 *
 *     experts that a step uses --> mox_cache_step --> for each: hit in slot s | read into slot s | read, no slot
 *
 * A store asks before it reads; a simulation only counts. Experts that a step uses keep their slots during it. Policies
 * are rows of cache_policies.def. The same steps give the same decisions: ties go to the expert that was used longest
 * ago, then to the lower number.
 */
#ifndef MOX_STORE_EXPERT_CACHE_H
#define MOX_STORE_EXPERT_CACHE_H

#include <stdbool.h>

#include "base/status.h"

typedef struct mox_expert_cache mox_expert_cache;

/* How a miss gets a slot (cache_policies.def). */
typedef enum mox_cache_admission { ALWAYS, IF_WORTHIER, CENSUS, UNTIL_WARM } mox_cache_admission;

typedef struct mox_cache_policy {
    const char *name, *about;
    double (*worth)(const mox_expert_cache *cache, int32_t expert);
    mox_cache_admission admission;
} mox_cache_policy;
/* NULL after the last one. */
const mox_cache_policy *mox_cache_policy_at(int32_t i);
/* MOXIE_ERR_ARGUMENT lists the names; NULL is the first one. */
moxie_status mox_cache_policy_find(const char *name, const mox_cache_policy **out, moxie_error *error);

/* What one expert of a step gets. */
typedef struct mox_cache_place {
    int32_t slot;    /* -1: it is used once and not kept */
    int32_t evicted; /* the expert that had the slot; -1: none, or a hit */
    bool hit;
} mox_cache_place;

typedef struct mox_cache_options {
    const mox_cache_policy *policy;
    int32_t experts, slots; /* 1 <= slots <= experts */
    int32_t max_inserts;    /* a step, once all slots are filled; 0: any number */
    double half_life;       /* in steps, above 0 */
} mox_cache_options;

moxie_status mox_cache_create(const mox_cache_options *options, mox_expert_cache **out, moxie_error *error);
void mox_cache_destroy(mox_expert_cache *cache);
/* One step: `experts` [count] differ. Fills places [count]. Allocates nothing. */
void mox_cache_step(mox_expert_cache *cache, const int32_t *experts, int32_t count, mox_cache_place *places);
/* Adds to an expert's census, which counts the uses of all steps before mox_cache_end_warm() besides. */
void mox_cache_add_census(mox_expert_cache *cache, int32_t expert, double uses);
/* The warm steps are over: `pinned` fills its slots by the census, `frozen` inserts no more. */
void mox_cache_end_warm(mox_expert_cache *cache);
/* Gives an expert a slot before the first step, which no other expert gets. False when all slots are such. */
bool mox_cache_pin(mox_expert_cache *cache, int32_t expert);
/* The slot of an expert; -1: none. */
int32_t mox_cache_slot_of(const mox_expert_cache *cache, int32_t expert);
/* The expert in a slot; -1: none. */
int32_t mox_cache_expert_in(const mox_expert_cache *cache, int32_t slot);

#endif
