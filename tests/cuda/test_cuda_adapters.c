/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_adapters.c - LoRA adapters on the cuda back end, on a launch table without a GPU (test_cuda_table.h).
 * Random layers for the simple kernels and for Hopper's:
 *
 *     layers     every stage within its bound of the oracle; bytes of tokens depend on their own adapter alone, and
 *                are those of a layer without where they have none, also where that fuses the activation
 *     table      adapters are added, replaced, disabled and removed while a captured run stays as it is; ids out of
 *                range are none
 *     failures   the n-th call of the table fails
 *
 * test_cuda_adapters_emulated runs the kernels' own sources on the emulator, and compares lora's bytes with the host's.
 * MOXIE_TEST_CONFIGS sets the number of layers of each kind, MOXIE_TEST_SEED repeats one.
 */
#include <moxie/moxie_cuda.h>

#include "test_adapted.h"
#include "test_cuda_table.h"

#ifdef MOX_TEST_EMULATED
enum { CONFIGS = 4, QUICK_CONFIGS = 1, LARGEST = 70 };
#else
enum { CONFIGS = 40, QUICK_CONFIGS = 12, LARGEST = 130 };
#endif

static int split; /* plans whose W13 does not fuse the activation because of adapters */

static moxie_options cuda_options(const test_adapted *a, moxie_mode mode)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.backend = MOXIE_BACKEND_CUDA;
    options.mode = mode;
    options.max_tokens = a->layer.args.tokens + 1;
    return options;
}

static void count_split(const moxie_plan *plan)
{
    for (int32_t i = 0; i < moxie_plan_step_count(plan); i++)
        split += strstr(moxie_plan_step_at(plan, i)->reason, "before which adapters change the result") != NULL;
}

static void check_bounds(test_adapted *a)
{
    moxie_error error = { 0 };
    test_report report = { 0 };
    assert_ok(test_plan_check(a->layer.plan, &a->layer.weights, &a->layer.args, &report, &error), &error);
    if (!(report.worst_ratio <= 1)) {
        test_adapted_print(&a->layer, &report);
        fail_msg("a stage is beyond its bound");
    }
}

static void check_layer(const test_layer_limits *limits, uint64_t seed, moxie_mode mode)
{
    test_rng rng = { seed };
    test_adapted a = { 0 };
    moxie_error error = { 0 };
    test_layer_make(&a.layer, &rng, limits);
    moxie_options options = cuda_options(&a, mode);
    assert_ok(test_layer_try(&a.layer, &options, &error), &error);
    test_adapted_fix_choices(&a);
    char *without = test_adapted_run(&a);
    options.max_adapter_rank = a.max_rank = test_adapted_rank(&rng);
    assert_ok(test_layer_try(&a.layer, &options, &error), &error);
    count_split(a.layer.plan);
    test_adapted_set(&a, &rng, 1 + (int32_t)test_below(&rng, 3));
    check_bounds(&a);
    test_adapted_compare(&a, without);
    free(without);
    test_adapted_free(&a);
}

static void layers(void **state)
{
    (void)state;
    const struct {
        const char *device;
        test_layer_limits limits;
    } kinds[] = { { "sm_80", { .tokens = -1, .largest = LARGEST } },
                  { "sm_90", { .tokens = -1, .largest = LARGEST, .mma = true } },
                  { "sm_90", { .tokens = -1, .largest = LARGEST, .decoded = true } },
                  { "sm_90", { .tokens = -1, .largest = LARGEST, .decoded_acts = true } },
                  { "sm_90", { .tokens = -1, .largest = LARGEST, .blocks = true } },
                  { "sm_90", { .tokens = -1, .largest = LARGEST, .to_fp8 = true } } };
    const int64_t configs = test_env("MOXIE_TEST_CONFIGS", test_quick() ? QUICK_CONFIGS : CONFIGS);
    const uint64_t first = test_seed(29601);
    split = 0;
    for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
        test_layer_limits limits = kinds[kind].limits;
        limits.plain_routing = limits.plain_acts = true;
        test_cuda_set_device(kinds[kind].device);
        for (int64_t i = 0; i < configs; i++) {
            check_layer(&limits, first + (uint64_t)i, i % 2 == 0 ? MOXIE_MODE_EXACT : MOXIE_MODE_FAST);
        }
    }
    assert_true(configs < 2 || split > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(layers, test_cuda_begin, test_cuda_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
