/* SPDX-License-Identifier: Apache-2.0
 *
 * adapted_layers.h - random layers whose tokens have adapters, on the cuda back end: every stage is within its bound of
 * the oracle. Bytes of a token depend on its own adapter alone. A token without one has those of a plan without
 * adapters, also where that plan fuses the activation.
 */
#ifndef ADAPTED_LAYERS_H
#define ADAPTED_LAYERS_H

#include <stdlib.h>
#include <string.h>

#include "test_adapted.h"

static inline moxie_options adapted_options(const test_adapted *a, moxie_mode mode)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.backend = MOXIE_BACKEND_CUDA;
    options.mode = mode;
    options.device = getenv("MOXIE_TEST_DEVICE"); /* "0:sm80" */
    options.max_tokens = a->layer.args.tokens + 1;
    return options;
}

/* Whether W13's kernel adds what adapters change, and goes on to the activation. */
static inline int adapted_is_fused(const moxie_plan *plan)
{
    int fused = 0;
    for (int32_t i = 0; i < moxie_plan_step_count(plan); i++)
        fused = fused || strstr(moxie_plan_step_at(plan, i)->reason, "W13, which adds the change") != NULL;
    return fused;
}

static inline void adapted_check_bounds(test_adapted *a)
{
    moxie_error error = { 0 };
    test_report report = { 0 };
    assert_ok(test_plan_check(a->layer.plan, &a->layer.weights, &a->layer.args, &report, &error), &error);
    if (!(report.worst_ratio <= 1)) {
        test_report_print(&a->layer, &report);
        fail_msg("a stage is beyond its bound");
    }
}

/* Returns whether W13 fuses the activation. */
static inline int adapted_check_layer(const test_layer_limits *limits, uint64_t seed, moxie_mode mode)
{
    test_rng rng = { seed };
    test_adapted a = { 0 };
    moxie_error error = { 0 };
    test_layer_make(&a.layer, &rng, limits);
    moxie_options options = adapted_options(&a, mode);
    assert_ok(test_layer_try(&a.layer, &options, &error), &error);
    test_adapted_fix_choices(&a);
    char *without = test_adapted_run(&a);
    options.max_adapter_rank = a.max_rank = test_adapted_rank(&rng);
    assert_ok(test_layer_try(&a.layer, &options, &error), &error);
    const int fused = adapted_is_fused(a.layer.plan);
    test_adapted_set(&a, &rng, 1 + (int32_t)test_below(&rng, 3));
    adapted_check_bounds(&a);
    test_adapted_compare(&a, without);
    free(without);
    test_adapted_free(&a);
    return fused;
}

/* Layers for the simple kernels, for Hopper's and for those of every card, `configs` of each kind. `set_device`:
 * chooses the table's device; NULL: a GPU is what it is, and a kind of layers comes once. Returns in how many
 * plans W13 fuses the activation. */
static inline int adapted_walk(int64_t configs, uint64_t first, int64_t largest, void (*set_device)(const char *preset))
{
    const struct {
        const char *device;
        test_layer_limits limits;
    } kinds[] = { { "sm_80", { .tokens = -1, .largest = largest } },
                  { "sm_90", { .tokens = -1, .largest = largest, .mma = true } },
                  { "sm_90", { .tokens = -1, .largest = largest, .decoded = true } },
                  { "sm_90", { .tokens = -1, .largest = largest, .decoded_acts = true } },
                  { "sm_90", { .tokens = -1, .largest = largest, .blocks = true } },
                  { "sm_90", { .tokens = -1, .largest = largest, .to_fp8 = true } },
                  { "sm_80", { .tokens = -1, .experts = 3, .largest = 40, .hidden = 1100 } }, /* long sums */
                  { "sm_80", { .tokens = -1, .experts = 3, .largest = 40, .intermediate = 1304 } },
                  { "sm_80", { .tokens = -1, .largest = largest, .mma = true } },
                  { "sm_80", { .tokens = -1, .largest = largest, .decoded = true } } };
    const size_t count = sizeof kinds / sizeof kinds[0] - (set_device == NULL ? 2 : 0);
    int fused = 0;
    for (size_t kind = 0; kind < count; kind++) {
        test_layer_limits limits = kinds[kind].limits;
        limits.plain_routing = limits.plain_acts = true;
        const bool is_long = limits.hidden + limits.intermediate > 0; /* slow: fewer of them */
        if (set_device != NULL)
            set_device(kinds[kind].device);
        for (int64_t i = 0; i < (is_long ? (configs + 3) / 4 : configs); i++)
            fused += adapted_check_layer(&limits, first + (uint64_t)i, i % 2 == 0 ? MOXIE_MODE_EXACT : MOXIE_MODE_FAST);
    }
    return fused;
}

#endif
