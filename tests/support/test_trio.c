/* SPDX-License-Identifier: Apache-2.0
 *
 * test_trio.c - a layer on the GPU, on the CPU and on both (test_trio.h).
 */
#include "test_trio.h"

#include "layer/plan/plan_fetch.h"
#include "layer/weights/layer.h"

char test_trio_gpu[64], test_trio_cpu[64]; /* folders */

int test_trio_begin(void **state, const char *preset)
{
    test_store_folder(test_trio_gpu);
    test_store_folder(test_trio_cpu);
    if (test_store_on_gpu() != NULL)
        return 0;
    test_cuda_begin(state);
    test_cuda_set_device(preset);
    return 0;
}

int test_trio_end(void **state)
{
    test_store_remove(test_trio_gpu);
    test_store_remove(test_trio_cpu);
    return test_store_on_gpu() != NULL ? 0 : test_cuda_end(state);
}

moxie_options test_trio_options(int32_t backend)
{
    moxie_options options = test_store_gpu_options();
    options.backend = backend;
    options.device = backend == MOXIE_BACKEND_CUDA ? options.device : NULL;
    return options;
}

void test_trio_free(test_trio *x)
{
    moxie_plan_destroy(x->plan);
    moxie_layer_destroy(x->layer);
    moxie_store_close(x->store);
    moxie_plan_destroy(x->cpu);
    moxie_layer_destroy(x->cpu_layer);
    moxie_expert_file_close(x->file);
    test_layer_free(&x->t);
}

/* False for a layer that a store on a GPU cannot have. */
bool test_trio_make(test_trio *x, uint64_t seed, const test_layer_limits *limits, const char *target)
{
    test_rng rng = { seed };
    const moxie_options gpu = test_trio_options(MOXIE_BACKEND_CUDA), cpu = test_trio_options(MOXIE_BACKEND_CPU);
    moxie_layer *same = NULL;
    moxie_expert_file *file = NULL;
    moxie_error error;
    char path[128];
    *x = (test_trio) { 0 };
    test_layer_make(&x->t, &rng, limits);
    const moxie_layer_config *c = &x->t.config;
    if (!test_store_fits(&x->t) || mox_act_quant_needs_amax(&c->a13) || mox_act_quant_needs_amax(&c->a2))
        return false;
    test_store_write(test_trio_gpu, 7, &x->t, target);
    test_store_write(test_trio_cpu, 7, &x->t, "moxie-cpu");
    test_layer_plan(&x->t, &gpu);
    x->gpu_space = x->t.args.workspace;
    x->gpu_bytes = x->t.args.workspace_bytes;
    snprintf(path, sizeof path, "%s/layer-7.moxie", test_trio_gpu);
    assert_ok(moxie_expert_file_open(path, NULL, &file, &error), &error);
    const bool fits = moxie_layer_open_file(file, NULL, &gpu, &same, &error) == MOXIE_OK &&
                      same->layouts[MOX_ROUTED] == x->t.built->layouts[MOX_ROUTED];
    moxie_layer_destroy(same);
    moxie_expert_file_close(file);
    if (!fits)
        return false;
    snprintf(path, sizeof path, "%s/layer-7.moxie", test_trio_cpu);
    assert_ok(moxie_expert_file_open(path, NULL, &x->file, &error), &error);
    assert_ok(moxie_layer_open_file(x->file, NULL, &cpu, &x->cpu_layer, &error), &error);
    assert_ok(moxie_plan_create(x->cpu_layer, &cpu, &x->cpu, &error), &error);
    test_layer_workspace(&x->t, x->cpu);
    x->cpu_space = x->t.args.workspace;
    x->cpu_bytes = x->t.args.workspace_bytes;
    x->ids = test_store_choose(&x->t, seed);
    return true;
}

uint64_t test_trio_record(const char *folder, uint64_t align)
{
    moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
    moxie_expert_file *file = NULL;
    moxie_error error;
    char path[128];
    snprintf(path, sizeof path, "%s/layer-7.moxie", folder);
    assert_ok(moxie_expert_file_open(path, NULL, &file, &error), &error);
    assert_ok(moxie_expert_file_get_info(file, &info, &error), &error);
    moxie_expert_file_close(file);
    return (info.record_bytes + align - 1) / align * align;
}

/* So many slots on the GPU, and in RAM for the CPU. */
moxie_store_options test_trio_store(const test_trio *x, int64_t slots, int64_t ram_slots)
{
    moxie_store_options o = MOXIE_STORE_OPTIONS_INIT;
    o.device_buffers = 2;
    o.device = test_trio_options(MOXIE_BACKEND_CUDA).device;
    o.device_bytes = (uint64_t)(slots + 2) * test_trio_record(test_trio_gpu, 256);
    if (x->t.built->shared_bytes > 0)
        o.device_bytes += (x->t.built->shared_bytes + 255) / 256 * 256;
    o.read_buffers = 3;
    o.ram_bytes =
        3 * test_trio_record(test_trio_gpu, 4096) + (uint64_t)(ram_slots + 2) * test_trio_record(test_trio_cpu, 4096);
    o.verify = 1;
    o.compute_where_it_lies = test_trio_cpu;
    return o;
}

void test_trio_open(test_trio *x, const moxie_store_options *o)
{
    const moxie_options gpu = test_trio_options(MOXIE_BACKEND_CUDA);
    moxie_error error;
    x->store = test_store_open(test_trio_gpu, o, NULL);
    assert_ok(moxie_store_layer(x->store, 7, NULL, &gpu, &x->layer, &error), &error);
    assert_ok(moxie_plan_create(x->layer, &gpu, &x->plan, &error), &error);
    assert_non_null(x->plan->fetch->beside);
    test_layer_workspace(&x->t, x->plan);
}

void test_trio_close(test_trio *x)
{
    moxie_plan_destroy(x->plan);
    moxie_layer_destroy(x->layer);
    moxie_store_close(x->store);
    x->plan = NULL;
    x->layer = NULL;
    x->store = NULL;
}

void *test_trio_output(test_trio *x, int64_t tokens)
{
    x->t.args.tokens = tokens;
    return test_layer_output(&x->t, x->plan);
}
