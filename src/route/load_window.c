/* SPDX-License-Identifier: Apache-2.0
 *
 * load_window.c - tokens of every expert over the last W ended steps and the current one.
 *
 *     step    | W-1 ago | ... | the last | current |        ring of W + 1 steps, u32 [layers, experts] each
 *     total     their sum, u64 [layers, experts]: kept while counting, so that reading it costs no pass over the ring
 *
 * Only this rank's own runs are counted, and no other rank is asked: a sum over ranks is needed once a rebalance, not
 * once a step (frameworks that sum each step hang together when one rank's step counter differs).
 */
#include "route/load_window.h"

#include <string.h>

#include "base/memory.h"

struct moxie_load_window {
    int32_t layers, experts;
    int32_t rows;    /* of the ring: W + 1 */
    int32_t current; /* its row of the current step */
    int32_t ended;   /* ended steps in the ring, up to W */
    uint32_t *ring;  /* [rows, layers, experts] */
    uint64_t *total; /* [layers, experts] */
    uint64_t *taken; /* [layers]: ids of the current step */
};

void mox_load_window_destroy(moxie_load_window *window)
{
    if (window == NULL)
        return;
    mox_free(window->ring);
    mox_free(window->total);
    mox_free(window->taken);
    mox_free(window);
}

moxie_status mox_load_window_create(int32_t layers, int32_t experts, int32_t steps, moxie_load_window **out,
                                    moxie_error *error)
{
    MOX_FAIL_IF(layers < 1 || layers > 1 << 20 || steps < 1 || steps > 1 << 20, MOXIE_ERR_ARGUMENT, error,
                "load window: %d layers and %d steps; each must be from 1 to %d", (int)layers, (int)steps, 1 << 20);
    MOX_FAIL_IF(experts < 1 || experts > MOXIE_MAX_EXPERTS, MOXIE_ERR_ARGUMENT, error,
                "load window: %d experts; it must be from 1 to %d", (int)experts, MOXIE_MAX_EXPERTS);
    const uint64_t counters = (uint64_t)layers * (uint64_t)experts;
    moxie_load_window *made = mox_alloc(sizeof *made);
    if (made) {
        made->layers = layers;
        made->experts = experts;
        made->rows = steps + 1;
        made->ring = mox_calloc((uint64_t)made->rows * counters, sizeof *made->ring);
        made->total = mox_calloc(counters, sizeof *made->total);
        made->taken = mox_calloc((uint64_t)layers, sizeof *made->taken);
    }
    if (made && made->ring && made->total && made->taken) {
        *out = made;
        return MOXIE_OK;
    }
    mox_load_window_destroy(made);
    return mox_fail(MOXIE_ERR_MEMORY, error,
                    "load window: no memory for %d steps of %d layers of %d experts: ask for "
                    "fewer steps",
                    (int)steps, (int)layers, (int)experts);
}

moxie_status mox_load_window_add(moxie_load_window *window, int32_t layer, const int32_t *ids, int64_t tokens,
                                 int64_t top_k, moxie_error *error)
{
    MOX_FAIL_IF(layer < 0 || layer >= window->layers, MOXIE_ERR_ARGUMENT, error,
                "load window: layer %d; it must be from 0 to %d", (int)layer, (int)window->layers - 1);
    MOX_FAIL_IF(tokens < 0 || top_k < 0 || tokens > UINT32_MAX || top_k > UINT32_MAX, MOXIE_ERR_ARGUMENT, error,
                "load window: %lld tokens of %lld choices; both must be from 0 to 2^32 - 1", (long long)tokens,
                (long long)top_k);
    const uint64_t n = (uint64_t)tokens * (uint64_t)top_k;
    MOX_FAIL_IF(n > UINT32_MAX - window->taken[layer], MOXIE_ERR_ARGUMENT, error,
                "load window: %llu ids of layer %d after %llu in one step; counters end at 2^32 - 1: end steps more "
                "often",
                (unsigned long long)n, (int)layer, (unsigned long long)window->taken[layer]);
    const int64_t at = (int64_t)layer * window->experts;
    uint32_t *now = window->ring + (int64_t)window->current * window->layers * window->experts + at;
    for (uint64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= window->experts)
            continue;
        now[ids[i]]++;
        window->total[at + ids[i]]++;
    }
    window->taken[layer] += n;
    return MOXIE_OK;
}

void mox_load_window_end_step(moxie_load_window *window)
{
    const int64_t counters = (int64_t)window->layers * window->experts;
    window->current = (window->current + 1) % window->rows;
    window->ended += window->ended < window->rows - 1;
    uint32_t *oldest = window->ring + (int64_t)window->current * counters;
    for (int64_t i = 0; i < counters; i++) {
        window->total[i] -= oldest[i];
        oldest[i] = 0;
    }
    memset(window->taken, 0, (size_t)window->layers * sizeof *window->taken);
}

void mox_load_window_counts(const moxie_load_window *window, int64_t *counts, int32_t *steps)
{
    for (int64_t i = 0; i < (int64_t)window->layers * window->experts; i++)
        counts[i] = (int64_t)window->total[i];
    if (steps != NULL)
        *steps = window->ended;
}
