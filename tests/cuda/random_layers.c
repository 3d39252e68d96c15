/* SPDX-License-Identifier: Apache-2.0
 *
 * random_layers.c - layers through the cuda back end, and how often each kernel was chosen (random_layers.h).
 */
#include "random_layers.h"

bool few_cases(void)
{
    return test_quick() || (EMULATED && test_env("MOXIE_TEST_ALL", 0) == 0);
}

int64_t random_configs(void)
{
    const int64_t quick = test_sanitized() ? QUICK_CONFIGS / 6 : QUICK_CONFIGS;
    return test_env("MOXIE_TEST_CONFIGS", test_quick() ? quick : CONFIGS);
}

int times_chosen[MOX_CUDA_ROWS_expert_gemm];

static void count_kernels(const moxie_plan *plan)
{
    for (int32_t s = 0; s < moxie_plan_step_count(plan); s++) {
        const moxie_plan_step *step = moxie_plan_step_at(plan, s);
        for (int32_t i = 0; i < MOX_CUDA_ROWS_expert_gemm; i++)
            times_chosen[i] += step->chosen && !strcmp(step->family, "expert_gemm") &&
                               !strcmp(step->kernel, mox_cuda_expert_gemm_at(i)->cuda.base.name);
    }
}

const char *check_layer(test_layer *layer, moxie_mode mode, moxie_error *error)
{
    moxie_options options = test_layer_cuda_options(layer);
    options.mode = mode;
    test_report report = { 0 };
    const moxie_status status = test_layer_check(layer, &options, &report, error);
    if (layer->plan != NULL)
        count_kernels(layer->plan);
    if (status != MOXIE_OK)
        return error->text;
    for (int s = 0; s < report.n_stages; s++)
        if (!(report.stages[s].worst_ratio <= 1))
            return report.stages[s].stage;
    return NULL;
}

void walk_layers(const test_layer_limits *limits, uint64_t first, int64_t configs, moxie_mode mode)
{
    int wrong = 0, rejected = 0;
    for (int64_t i = 0; i < configs && wrong < 5; i++) {
        test_rng rng = { first + (uint64_t)i };
        test_layer layer;
        moxie_error error = { 0 };
        test_layer_make(&layer, &rng, limits);
        const bool custom = layer.config.routing.select == MOXIE_SELECT_CUSTOM;
        const char *what = check_layer(&layer, mode, &error);
        if (custom && what != NULL && strstr(what, "custom routing callback") != NULL) {
            rejected++;
        } else if (what != NULL || custom) {
            print_error("%s\n  %s\nrepeat with MOXIE_TEST_SEED=%llu MOXIE_TEST_CONFIGS=1\n", layer.text,
                        what != NULL ? what : "a callback was accepted",
                        (unsigned long long)first + (unsigned long long)i);
            wrong++;
        }
        test_layer_free(&layer);
    }
    assert_int_equal(wrong, 0);
    assert_true(configs < 50 || rejected > 0);
}

static uint32_t needs_of(const char *device)
{
    return strcmp(device, "sm_90") == 0 ? (uint32_t)MOX_CUDA_HOPPER : (uint32_t)MOX_CUDA_MMA_BF16;
}

const char *set_device(void **state)
{
    test_cuda_set_device(*state);
    return *state;
}

/* Of the device's kernels that read `layout` and take these kinds of activations: how often the rarest was chosen.
 * Kernels for scales of blocks count in layers of blocks, the others elsewhere. */
static int rarest_chosen(const char *device, const test_layer_limits *limits, const char *layout, uint32_t kinds)
{
    int rarest = INT32_MAX;
    for (int32_t i = 0; i < MOX_CUDA_ROWS_expert_gemm; i++) {
        const mox_cuda_expert_gemm_kernel *kernel = mox_cuda_expert_gemm_at(i);
        if (strcmp(kernel->cuda.base.layout, layout) == 0 && kernel->cuda.needs == needs_of(device) &&
            kinds >> kernel->activations & 1 && mox_sum_traits_of(kernel->sum)->chunks == limits->blocks)
            rarest = times_chosen[i] < rarest ? times_chosen[i] : rarest;
    }
    return rarest;
}

void walk_tiles(const char *device, const test_layer_limits *limits, uint64_t first, moxie_mode mode,
                const char *layout, uint32_t kinds)
{
    enum { WALKS = 8, TIMES = 6 };
    const int64_t configs = random_configs() / 2;
    const bool counts = configs >= 50;
    memset(times_chosen, 0, sizeof times_chosen);
    walk_layers(limits, first, configs, mode);
    for (int walk = 1; counts && walk < WALKS && rarest_chosen(device, limits, layout, kinds) < TIMES; walk++)
        walk_layers(limits, first + (uint64_t)(walk * configs), configs, mode);
    assert_true(!counts || rarest_chosen(device, limits, layout, kinds) >= TIMES);
}

/* How often kernels of the device's set were chosen. */
static int set_times_chosen(const char *device)
{
    int times = 0;
    for (int32_t r = 0; r < MOX_CUDA_ROWS_expert_gemm; r++)
        if (mox_cuda_expert_gemm_at(r)->cuda.needs == needs_of(device) &&
            strcmp(mox_cuda_expert_gemm_at(r)->cuda.base.layout, "rowmajor") != 0)
            times += times_chosen[r];
    return times;
}

void check_decoded(const char *device, test_layer *layer, moxie_mode mode, bool wanted, uint64_t seed)
{
    moxie_error error = { 0 };
    memset(times_chosen, 0, sizeof times_chosen);
    const char *what = check_layer(layer, mode, &error);
    if (what != NULL || (set_times_chosen(device) < 2 && wanted))
        fail_msg("%s: %s (seed %llu)", layer->text, what != NULL ? what : "simple kernels are chosen",
                 (unsigned long long)seed);
}
