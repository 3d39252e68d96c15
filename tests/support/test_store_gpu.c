/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store_gpu.c - layers of a store on a GPU (test_store_gpu.h).
 */
#include "test_store_gpu.h"

#include "test_late.h"

char test_store_gpu_folder[64];

const char *test_store_on_gpu(void)
{
    return getenv("MOXIE_TEST_GPU");
}

int test_store_gpu_begin(void **state, const char *preset)
{
    test_store_folder(test_store_gpu_folder);
    if (test_store_on_gpu() != NULL)
        return 0;
    test_cuda_begin(state);
    test_cuda_set_device(preset);
    return 0;
}

int test_store_gpu_end(void **state)
{
    test_store_remove(test_store_gpu_folder);
    return test_store_on_gpu() != NULL ? 0 : test_cuda_end(state);
}

const char *test_store_gpu_target(const char *preset)
{
    const char *gpu = test_store_on_gpu();
    return strcmp(gpu != NULL ? gpu : preset, gpu != NULL ? "sm80" : "sm_80") == 0 ? "moxie-sm80" : "moxie-sm90";
}

moxie_options test_store_gpu_options(void)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.backend = MOXIE_BACKEND_CUDA;
    options.mode = MOXIE_MODE_FAST;
    options.device = test_store_on_gpu() != NULL && !strcmp(test_store_on_gpu(), "sm80") ? "0:sm80" : NULL;
    return options;
}

static uint64_t device_budget(int64_t records)
{
    moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
    moxie_expert_file *file = NULL;
    moxie_error error;
    char path[128];
    snprintf(path, sizeof path, "%s/layer-7.moxie", test_store_gpu_folder);
    assert_ok(moxie_expert_file_open(path, NULL, &file, &error), &error);
    assert_ok(moxie_expert_file_get_info(file, &info, &error), &error);
    moxie_expert_file_close(file);
    return (info.shared_bytes + 255) / 256 * 256 + (uint64_t)records * ((info.record_bytes + 255) / 256 * 256);
}

moxie_store_options test_store_gpu_store(int64_t slots, int32_t buffers, int64_t ram_slots)
{
    moxie_store_options o = MOXIE_STORE_OPTIONS_INIT;
    o.device_bytes = device_budget(slots + buffers);
    o.device_buffers = buffers;
    o.device = test_store_gpu_options().device;
    o.ram_bytes = test_store_budget(test_store_gpu_folder, ram_slots, 3);
    o.read_buffers = 3;
    o.verify = 1;
    return o;
}

bool test_store_gpu_fits(test_layer *t, const moxie_options *options, const char *target)
{
    const moxie_layer_config *c = &t->config;
    if (!test_store_fits(t) || mox_act_quant_needs_amax(&c->a13) || mox_act_quant_needs_amax(&c->a2))
        return false;
    test_store_write(test_store_gpu_folder, 7, t, target);
    test_layer_plan(t, options);
    return test_store_has_layouts(test_store_gpu_folder, 7, t, options);
}

void test_store_gpu_open(test_layer *t, const moxie_store_options *store, const moxie_options *options,
                         test_store_opened *out)
{
    moxie_error error;
    *out = (test_store_opened) { .store = test_store_open(test_store_gpu_folder, store, NULL) };
    const bool was = test_late_set(false);
    assert_ok(moxie_store_layer(out->store, 7, NULL, options, &out->layer, &error), &error);
    assert_ok(moxie_plan_create(out->layer, options, &out->plan, &error), &error);
    test_layer_workspace(t, out->plan);
    test_late_set(was);
}

void test_store_gpu_close(test_store_opened *o)
{
    moxie_plan_destroy(o->plan);
    moxie_layer_destroy(o->layer);
    moxie_store_close(o->store);
}

void *test_store_gpu_output(test_layer *t, moxie_plan *plan, int64_t tokens)
{
    const bool was = test_late_set(false);
    t->args.tokens = tokens;
    void *out = test_layer_output(t, plan);
    test_late_set(was);
    return out;
}

void test_store_gpu_check(test_layer *t, moxie_plan *plan)
{
    const bool was = test_late_set(false);
    test_report report;
    moxie_error error;
    t->args.tokens = 7;
    assert_ok(test_plan_check(plan, &t->weights, &t->args, &report, &error), &error);
    if (!(report.worst_ratio <= 1))
        test_report_print_beyond(&report);
    assert_true(report.worst_ratio <= 1);
    assert_true(report.n_stages > 3);
    assert_string_equal(report.stages[report.n_stages - 1].stage, "store");
    assert_int_equal(report.stages[report.n_stages - 1].elements, 7 * t->config.hidden);
    test_late_set(was);
}
