/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_simulate.c - a cache for each layer, and the steps of a trace (trace_simulate.h).
 *
 *     step -> the experts that each layer uses -> mox_cache_step -> hits, inserts
 *
 * This is what a store does, without its reads: so its counters on the same trace are these.
 */
#include "store/trace_simulate.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/sizes.h"
#include "store/cache_best.h"
#include "store/expert_cache.h"
#include "store/trace_uses.h"

typedef struct replay {
    const moxie_trace_info *info;
    mox_expert_cache **caches; /* [layers] */
    int64_t *seen;             /* [experts] scratch */
    int32_t *experts;          /* [experts] of a step */
    mox_cache_place *places;   /* [experts] */
    int64_t *by_layer;         /* [layers, 2] uses, hits */
    bool census;               /* the cache is filled by a census that was given, before the first step */
    moxie_cache_hits hits;
} replay;

static void free_replay(replay *r)
{
    for (int32_t l = 0; r->caches && l < r->info->layers; l++)
        mox_cache_destroy(r->caches[l]);
    mox_free(r->caches);
    mox_free(r->seen);
    mox_free(r->experts);
    mox_free(r->places);
    mox_free(r->by_layer);
}

static moxie_status check_config(const moxie_cache_config *config, const moxie_trace_info *info, moxie_error *error)
{
    MOX_FAIL_IF(config->slots < 1, MOXIE_ERR_ARGUMENT, error, "a cache of %d slots: give at least 1", config->slots);
    MOX_FAIL_IF(config->max_inserts < 0 || config->warm_steps < 0, MOXIE_ERR_ARGUMENT, error,
                "max_inserts %d and warm_steps %d: neither is below 0", config->max_inserts, config->warm_steps);
    MOX_FAIL_IF(!isfinite(config->half_life) || config->half_life < 0, MOXIE_ERR_ARGUMENT, error,
                "a half-life of %g steps: it is above 0, or 0 for %g", config->half_life, MOXIE_CACHE_HALF_LIFE);
    for (int64_t i = 0; config->census && i < (int64_t)info->layers * info->experts; i++)
        MOX_FAIL_IF(!isfinite(config->census[i]) || config->census[i] < 0, MOXIE_ERR_ARGUMENT, error,
                    "the census of layer %lld, expert %lld is %g: uses are numbers from 0 on",
                    (long long)(i / info->experts), (long long)(i % info->experts), config->census[i]);
    return MOXIE_OK;
}

/* A cache for each layer, with the census that was given. */
static moxie_status create_caches(replay *r, const moxie_cache_config *config, moxie_error *error)
{
    const moxie_trace_info *info = r->info;
    mox_cache_options options = { .experts = info->experts,
                                  .slots = config->slots < info->experts ? config->slots : info->experts,
                                  .max_inserts = config->max_inserts,
                                  .half_life = config->half_life > 0 ? config->half_life : MOXIE_CACHE_HALF_LIFE };
    MOX_TRY(mox_cache_policy_find(config->policy, &options.policy, error));
    const mox_cache_admission admission = options.policy->admission;
    r->census = config->census && admission == CENSUS;
    MOX_FAIL_IF(admission >= CENSUS && config->warm_steps == 0 && !r->census, MOXIE_ERR_ARGUMENT, error,
                "policy %s learns in warm steps, and there are none: give some (--warm)%s", options.policy->name,
                admission == CENSUS ? ", or a census (--census)" : "");
    r->hits.slots = options.slots;
    r->caches = mox_calloc((uint64_t)info->layers, sizeof *r->caches);
    MOX_FAIL_IF(!r->caches, MOXIE_ERR_MEMORY, error, "no memory for %d caches", info->layers);
    for (int32_t l = 0; l < info->layers; l++) {
        MOX_TRY(mox_cache_create(&options, &r->caches[l], error));
        for (int32_t e = 0; r->census && e < info->experts; e++)
            mox_cache_add_census(r->caches[l], e, config->census[(int64_t)l * info->experts + e]);
        if (r->census || config->warm_steps == 0)
            mox_cache_end_warm(r->caches[l]);
    }
    return MOXIE_OK;
}

static moxie_status begin(replay *r, moxie_error *error)
{
    const uint64_t n = (uint64_t)r->info->experts;
    r->seen = mox_calloc(n, sizeof *r->seen);
    r->experts = mox_calloc(n, sizeof *r->experts);
    r->places = mox_calloc(n, sizeof *r->places);
    r->by_layer = mox_calloc(2 * (uint64_t)r->info->layers, sizeof *r->by_layer);
    MOX_FAIL_IF(!r->seen || !r->experts || !r->places || !r->by_layer, MOXIE_ERR_MEMORY, error,
                "no memory to replay a trace of %d layers and %d experts", r->info->layers, r->info->experts);
    return MOXIE_OK;
}

static void replay_layer(replay *r, const moxie_trace_step *step, int64_t mark, int32_t layer, bool counts)
{
    const int32_t uses = mox_trace_uses(r->info, step, layer, mark, r->seen, r->experts);
    int32_t hits = 0, inserts = 0;
    mox_cache_step(r->caches[layer], r->experts, uses, r->places);
    for (int32_t i = 0; i < uses; i++) {
        hits += r->places[i].hit;
        inserts += !r->places[i].hit && r->places[i].slot >= 0;
    }
    if (!counts)
        return;
    r->by_layer[2 * layer] += uses;
    r->by_layer[2 * layer + 1] += hits;
    r->hits.uses += uses;
    r->hits.hits += hits;
    r->hits.inserts += inserts;
    if (step->phase != MOXIE_TRACE_PREFILL) {
        r->hits.decode_uses += uses;
        r->hits.decode_hits += hits;
    }
}

static moxie_status replay_all(replay *r, moxie_trace *trace, const moxie_cache_config *config, moxie_error *error)
{
    const int64_t layers = r->info->layers;
    moxie_trace_step step;
    for (int64_t i = 0; i < r->info->steps; i++) {
        const bool counts = i >= config->warm_steps;
        MOX_TRY(mox_trace_read(trace, i, &step, error));
        for (int32_t l = 0; l < layers && i == config->warm_steps; l++)
            if (i > 0 && !r->census)
                mox_cache_end_warm(r->caches[l]);
        for (int32_t l = 0; l < layers; l++)
            replay_layer(r, &step, i * layers + l + 1, l, counts);
        r->hits.steps += counts;
        r->hits.tokens += counts ? step.tokens : 0;
    }
    return MOXIE_OK;
}

moxie_status mox_trace_simulate(moxie_trace *trace, const moxie_cache_config *config, moxie_cache_hits *hits,
                                int64_t *by_layer, moxie_error *error)
{
    replay r = { .info = mox_trace_info_of(trace), .hits = MOXIE_CACHE_HITS_INIT };
    MOX_TRY(check_config(config, r.info, error));
    moxie_status status = begin(&r, error);
    if (status == MOXIE_OK)
        status = create_caches(&r, config, error);
    if (status == MOXIE_OK)
        status = replay_all(&r, trace, config, error);
    r.hits.best_hits = config->with_best ? 0 : -1;
    for (int32_t l = 0; status == MOXIE_OK && config->with_best && l < r.info->layers; l++)
        status = mox_cache_best(trace, l, r.hits.slots, config->warm_steps, &r.hits.best_hits, error);
    if (status == MOXIE_OK) {
        *hits = r.hits;
        if (by_layer)
            memcpy(by_layer, r.by_layer, 2 * (size_t)r.info->layers * sizeof *by_layer);
    }
    free_replay(&r);
    return status;
}
