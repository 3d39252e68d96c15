/* SPDX-License-Identifier: Apache-2.0
 *
 * test_expert_file.c - expert files of random layers: a run from the file equals a run from the checkpoint, byte for
 * byte; its weights equal the checkpoint's; a file for other kernels is refused with the remedy; one expert is replaced
 * and updated; shares of ranks.
 */
#include "test_layer.h"

#include <math.h>
#include <moxie/moxie_store.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/memory.h"
#include "layer/weights/layer.h"
#include "store/expert_file.h"
#include "test_cuda_table.h"

static char folder[] = "/tmp/moxie-test-XXXXXX", path[64];

static int begin_files(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/layer.moxie", folder);
    return 0;
}

static int end_files(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static moxie_status write_file(const test_layer *t, const char *target, moxie_error *error)
{
    moxie_expert_writer_options options = MOXIE_EXPERT_WRITER_OPTIONS_INIT;
    const moxie_expert_extra extra = { .name = "x.note", .data = "a note", .bytes = 6 };
    moxie_expert_writer *writer = NULL;
    options.target = target;
    options.layer = 7;
    options.extras = &extra;
    options.n_extras = 1;
    moxie_status status = moxie_expert_writer_open(path, &t->config, &t->weights, &options, &writer, error);
    if (status != MOXIE_OK)
        return status;
    int32_t local[MOXIE_MAX_EXPERTS], count;
    const moxie_layer_config *c = &t->config;
    assert_ok(moxie_expert_map((moxie_expert_map_kind)c->ep_map, (int32_t)c->experts, c->ep_size > 1 ? c->ep_size : 1,
                               c->ep_rank, local, &count, error),
              error);
    for (int64_t e = c->experts - 1; status == MOXIE_OK && e >= 0; e--) /* in any order */
        if (local[e] >= 0)
            status = moxie_expert_writer_put(writer, e, 1000 + (uint64_t)e, error);
    if (status == MOXIE_OK)
        return moxie_expert_writer_finish(writer, error);
    moxie_expert_writer_abandon(writer);
    return status;
}

static moxie_expert_file *open_file(int32_t access)
{
    moxie_expert_file_options options = MOXIE_EXPERT_FILE_OPTIONS_INIT;
    moxie_expert_file *file = NULL;
    moxie_error error;
    options.access = access;
    options.verify = 1;
    assert_ok(moxie_expert_file_open(path, &options, &file, &error), &error);
    return file;
}

static bool fits(const test_layer *t)
{
    return t->config.routing.select != MOXIE_SELECT_CUSTOM && t->config.tp_size <= 1;
}

static void make(test_layer *t, uint64_t seed, const test_layer_limits *limits)
{
    test_rng rng = { test_seed(seed) };
    test_layer_make(t, &rng, limits);
}

/* The first layer from `seed` on that a file can hold. */
static void make_fitting(test_layer *t, uint64_t seed, const test_layer_limits *limits)
{
    make(t, seed, limits);
    while (!fits(t)) {
        test_layer_free(t);
        make(t, ++seed, limits);
    }
}

static void compare_weights(const test_layer *t, moxie_expert_file *file)
{
    const moxie_weights *back = NULL;
    moxie_weights_difference d = MOXIE_WEIGHTS_DIFFERENCE_INIT;
    moxie_error error;
    assert_ok(moxie_expert_file_weights(file, NULL, &back, &error), &error);
    assert_ok(moxie_weights_compare(&t->config, &t->weights, back, &d, &error), &error);
    if (d.count != 0)
        fail_msg("expert %lld %s %s differs at %lld, %lld: %s", (long long)d.expert, d.projection, d.part,
                 (long long)d.row, (long long)d.column, t->text);
    for (int64_t e = 0; e < t->config.experts; e++) { /* once more into the same memory: the scales are given back */
        moxie_expert views = back->experts[e];
        views.a13_scale = views.a2_scale = -7;
        assert_ok(moxie_expert_file_unpack(file, e, &views, &error), &error);
        assert_true(views.a13_scale == t->weights.experts[e].a13_scale);
        assert_true(views.a2_scale == t->weights.experts[e].a2_scale);
    }
}

/* Runs a layer of the file, and compares with a layer prepared from the checkpoint. False when these options choose
 * other layouts than the file has, as on a processor without vector units. */
static bool compare_run(test_layer *t, const moxie_expert_file *file, const moxie_options *options)
{
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    moxie_error error;
    moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
    test_layer_plan(t, options);
    assert_ok(moxie_expert_file_get_info(file, &info, &error), &error);
    const mox_layout *const *layouts = t->built->layouts;
    if (strcmp(layouts[MOX_ROUTED]->name, info.layout) != 0 ||
        (layouts[MOX_SHARED_EXPERT] != NULL && strcmp(layouts[MOX_SHARED_EXPERT]->name, info.shared_layout) != 0))
        return false;
    void *want = test_layer_output(t, t->plan);
    assert_ok(moxie_layer_open_file(file, NULL, options, &layer, &error), &error);
    assert_ok(moxie_layer_verify(layer, &error), &error);
    assert_ok(moxie_plan_create(layer, options, &plan, &error), &error);
    test_layer_workspace(t, plan);
    void *got = test_layer_output(t, plan);
    if (options->backend != MOXIE_BACKEND_CUDA)
        assert_true(layer->slab == NULL); /* slots are views of the file */
    if (memcmp(got, want, test_layer_output_bytes(t)) != 0)
        fail_msg("a run from the file differs: %s", t->text);
    free(got);
    free(want);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
    return true;
}

static int compared; /* runs */

static void one_layer(uint64_t seed, const test_layer_limits *limits)
{
    static const char *const targets[] = { "moxie-cpu", "moxie-rowmajor", "moxie-sm90", "moxie-sm80" };
    test_layer t;
    moxie_error error;
    make(&t, seed, limits);
    for (size_t i = 0; fits(&t) && i < sizeof targets / sizeof targets[0]; i++) {
        moxie_options options = MOXIE_OPTIONS_INIT;
        moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
        assert_ok(write_file(&t, targets[i], &error), &error);
        moxie_expert_file *file = open_file((int32_t)(seed % 3));
        assert_ok(moxie_expert_file_get_info(file, &info, &error), &error);
        assert_int_equal(info.layer, 7);
        assert_string_equal(info.target, targets[i]);
        if (t.config.ep_size <= 1)
            compare_weights(&t, file);
        options.isa = i == 1 ? "scalar" : NULL;
        compared += i < 2 && compare_run(&t, file, &options);
        moxie_expert_file_close(file);
    }
    test_layer_free(&t);
}

static void test_random_layers(void **state)
{
    (void)state;
    const uint64_t count = test_quick() ? 40 : 300;
    for (uint64_t seed = 0; seed < count; seed++)
        one_layer(seed, &(test_layer_limits) { .features = seed % 2 == 1, .largest = 100 });
    assert_true(compared >= (int)count / 2); /* rowmajor at least, except of layers with callbacks */
}

/* Every format of weights. */
static void test_every_format(void **state)
{
    (void)state;
    for (int w = 0; w < test_weight_quant_count; w++)
        one_layer(500 + (uint64_t)w, &(test_layer_limits) { .weight = &test_weight_quants[w],
                                                            .act = &test_act_quants[0],
                                                            .experts = 3,
                                                            .top_k = 2,
                                                            .largest = 150 });
}

/* On a GPU (test_cuda_table.h stands for one): records are copied to its memory. */
static void test_device(void **state)
{
    (void)state;
    static const char *const devices[][2] = { { "sm_80", "moxie-sm80" }, { "sm_90", "moxie-sm90" } };
    int ran = 0;
    for (uint64_t seed = 0; seed < 24; seed++) {
        const test_layer_limits limits = { .decoded = true, .no_parallel = true, .largest = 150 };
        test_layer t;
        moxie_error error;
        moxie_options options = MOXIE_OPTIONS_INIT;
        moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
        make_fitting(&t, 4000 + 100 * seed, &limits);
        test_cuda_set_device(devices[seed % 2][0]);
        options.backend = MOXIE_BACKEND_CUDA;
        assert_ok(write_file(&t, "moxie-auto", &error), &error);
        moxie_expert_file *file = open_file(MOXIE_EXPERT_MAP);
        assert_ok(moxie_expert_file_get_info(file, &info, &error), &error);
        assert_string_equal(info.target, devices[seed % 2][1]);
        ran += compare_run(&t, file, &options);
        moxie_expert_file_close(file);
        test_layer_free(&t);
    }
    assert_int_equal(ran, 24);
}

/* ---- refused ------------------------------------------------------------------------------------------ */

/* What is wrong with the options is said, and no other file is recommended. */
static void test_wrong_options(void **state)
{
    (void)state;
    const test_layer_limits limits = { .weight = test_weight_quant_named("mxfp4"), .no_parallel = true, .mma = false };
    test_layer t;
    moxie_error error = { 0 };
    moxie_layer *layer = NULL;
    moxie_options options = MOXIE_OPTIONS_INIT;
    make_fitting(&t, 900, &limits);
    assert_ok(write_file(&t, "moxie-cpu", &error), &error);
    moxie_expert_file *file = open_file(MOXIE_EXPERT_MAP);
    options.spare_slots = 1;
    assert_int_equal(moxie_layer_open_file(file, NULL, &options, &layer, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "options.spare_slots is 1"));
    assert_null(strstr(error.text, "moxie prepare"));
    options.spare_slots = 0;
    options.backend = MOXIE_BACKEND_CUDA;
    options.device = "5";
    assert_int_equal(moxie_layer_open_file(file, NULL, &options, &layer, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "CUDA device 5 was asked for"));
    moxie_expert_file_close(file);
    test_layer_free(&t);
}

static void test_other_kernels(void **state)
{
    (void)state;
    const test_layer_limits limits = { .weight = test_weight_quant_named("mxfp4"), .no_parallel = true, .mma = false };
    test_layer t;
    moxie_error error = { 0 };
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    moxie_options options = MOXIE_OPTIONS_INIT;
    make_fitting(&t, 900, &limits);
    assert_ok(write_file(&t, "moxie-sm80", &error), &error);
    moxie_expert_file *file = open_file(MOXIE_EXPERT_MAP);
    assert_int_equal(moxie_layer_open_file(file, NULL, &options, &layer, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "moxie prepare DIR --layout moxie-cpu"));
    assert_int_equal(moxie_expert_file_explain(file, NULL, &options, &plan, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "moxie prepare DIR --layout moxie-cpu"));
    options.backend = MOXIE_BACKEND_CUDA;
    options.device = "sm_80";
    assert_ok(moxie_expert_file_explain(file, NULL, &options, &plan, &error), &error);
    moxie_plan_destroy(plan);
    moxie_expert_file_close(file);
    test_layer_free(&t);
}

/* ---- one expert anew ---------------------------------------------------------------------------------- */

static const test_layer_limits replaceable = { .weight = NULL, .no_parallel = true, .experts = 4, .top_k = 2 };

static void test_replace(void **state)
{
    (void)state;
    test_layer t;
    moxie_error error;
    make_fitting(&t, 1003, &replaceable);
    assert_ok(write_file(&t, "moxie-cpu", &error), &error);
    moxie_expert_file *before = open_file(MOXIE_EXPERT_MAP);
    /* Expert 1 becomes a copy of expert 2, twice over. */
    for (uint64_t generation = 2; generation <= 4; generation++) {
        moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
        moxie_expert_record record = MOXIE_EXPERT_RECORD_INIT, old = MOXIE_EXPERT_RECORD_INIT;
        assert_ok(moxie_expert_file_replace(path, 1, &t.weights.experts[2], 4711, NULL, &error), &error);
        moxie_expert_file *after = open_file((int32_t)(generation % 3));
        assert_ok(moxie_expert_file_get_info(after, &info, &error), &error);
        assert_int_equal(info.generation, generation);
        assert_ok(moxie_expert_file_record(after, 1, &record, &error), &error);
        assert_int_equal(record.generation, generation);
        assert_int_equal(record.source_hash, 4711);
        moxie_expert *experts = test_layer_own(&t, (size_t)t.config.experts * sizeof *experts);
        memcpy(experts, t.weights.experts, (size_t)t.config.experts * sizeof *experts);
        experts[1] = experts[2];
        const moxie_expert *own = t.weights.experts;
        t.weights.experts = experts;
        compare_weights(&t, after);
        t.weights.experts = own;
        moxie_expert_file_close(after);
        /* Whoever had it open keeps what was there. */
        assert_ok(moxie_expert_file_verify(before, NULL, &error), &error);
        assert_ok(moxie_expert_file_record(before, 1, &old, &error), &error);
        assert_int_equal(old.generation, 1);
    }
    moxie_expert_file_close(before);
    test_layer_free(&t);
}

/* Kernels have room for one run of columns of each group, so an order that lies in range is not enough. */
static void test_scattered_order(void **state)
{
    (void)state;
    const test_layer_limits limits = { .weight = test_weight_quant_named("gptq act order"), .no_parallel = true };
    test_layer t;
    moxie_error error;
    mox_rowmajor_record open;
    uint64_t seed = 1300;
    for (make_fitting(&t, seed, &limits); t.config.intermediate <= 64; make_fitting(&t, ++seed, &limits))
        test_layer_free(&t); /* too few groups for an order */
    assert_ok(write_file(&t, "moxie-rowmajor", &error), &error);
    moxie_expert_file *file = open_file(MOXIE_EXPERT_READ);
    const mox_record_shape *shape = &file->shapes.mine[MOX_ROUTED];
    mox_expert_entry *entry = (mox_expert_entry *)(uintptr_t)&file->index[0]; /* in memory: not the file's */
    uint8_t *record = file->data + entry->range.offset;
    mox_rowmajor_open(shape, record, &open);
    assert_non_null(open.down.visit);
    int32_t *visit = (int32_t *)(uintptr_t)open.down.visit, last = visit[open.down.cols - 1];
    visit[open.down.cols - 1] = visit[0];
    visit[0] = last;
    const uint64_t head = sizeof(mox_record_header), sum = mox_checksum(record + head, entry->range.bytes - head);
    mox_record_seal(&mox_layout_rowmajor, shape, 0, &t.weights.experts[0], record, &sum);
    entry->range.checksum = mox_checksum(record, mox_expert_padded(entry->range.bytes));
    assert_int_equal(moxie_expert_file_verify(file, NULL, &error), MOXIE_ERR_FORMAT);
    assert_non_null(strstr(error.text, "out of order"));
    moxie_expert_file_close(file);
    test_layer_free(&t);
}

/* A scale that a layer refuses does not get into a file, whether anew or in the place of another. */
static void test_wrong_scale(void **state)
{
    (void)state;
    const test_layer_limits limits = { .act = test_act_quant_named("fp8 tensor static"), .no_parallel = true };
    test_layer t;
    moxie_error error;
    make_fitting(&t, 1200, &limits);
    assert_ok(write_file(&t, "moxie-rowmajor", &error), &error);
    moxie_expert *wrong = test_layer_own(&t, (size_t)t.config.experts * sizeof *wrong);
    memcpy(wrong, t.weights.experts, (size_t)t.config.experts * sizeof *wrong);
    wrong[0].a2_scale = NAN;
    assert_int_equal(moxie_expert_file_replace(path, 0, &wrong[0], 0, NULL, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "expert 0 a2_scale"));
    moxie_expert_file_close(open_file(MOXIE_EXPERT_READ));
    t.weights.experts = wrong;
    assert_int_equal(write_file(&t, "moxie-rowmajor", &error), MOXIE_ERR_ARGUMENT);
    test_layer_free(&t);
}

/* A layer of a file takes updates; neither the file nor another layer of it changes. */
static void test_update(void **state)
{
    (void)state;
    test_layer t;
    moxie_error error;
    make_fitting(&t, 1003, &replaceable);
    assert_ok(write_file(&t, "moxie-cpu", &error), &error);
    for (int32_t access = MOXIE_EXPERT_MAP; access <= MOXIE_EXPERT_READ; access++) {
        moxie_layer *layer = NULL, *other = NULL;
        const void *now = NULL, *before = NULL;
        uint64_t bytes = 0;
        moxie_expert_file *file = open_file(access);
        assert_ok(moxie_layer_open_file(file, NULL, NULL, &layer, &error), &error);
        assert_ok(moxie_layer_open_file(file, NULL, NULL, &other, &error), &error);
        for (int from = 3; from >= 2; from--) { /* the second time in the place of the layer's own */
            assert_ok(moxie_layer_update_expert(layer, 1, &t.weights.experts[from], &error), &error);
            assert_ok(moxie_layer_verify(layer, &error), &error);
        }
        assert_ok(moxie_layer_record(layer, 1, &now, &bytes, &error), &error);
        assert_ok(moxie_layer_record(other, 1, &before, &bytes, &error), &error);
        assert_memory_not_equal(now, before, bytes);
        assert_ok(moxie_expert_file_verify(file, NULL, &error), &error);
        compare_weights(&t, file);
        assert_ok(moxie_layer_prepare(layer, &t.weights, NULL, &error), &error); /* leaves the file */
        assert_ok(moxie_layer_record(layer, 1, &now, &bytes, &error), &error);
        assert_memory_equal(now, before, bytes);
        moxie_layer_destroy(layer);
        moxie_layer_destroy(other);
        moxie_expert_file_close(file);
    }
    test_layer_free(&t);
}

/* ---- without memory -------------------------------------------------------------------------------- */

static moxie_status use_file(moxie_error *error)
{
    moxie_expert_file *file = NULL;
    moxie_layer *layer = NULL;
    const moxie_weights *weights = NULL;
    moxie_status status = moxie_expert_file_open(path, NULL, &file, error);
    if (status == MOXIE_OK)
        status = moxie_layer_open_file(file, NULL, NULL, &layer, error);
    if (status == MOXIE_OK)
        status = moxie_expert_file_weights(file, NULL, &weights, error);
    moxie_layer_destroy(layer);
    moxie_expert_file_close(file);
    return status;
}

/* Each allocation fails in turn: of writing, of opening. */
static void test_no_memory(void **state)
{
    (void)state;
    test_layer t;
    moxie_error error = { 0 };
    moxie_status status = MOXIE_ERR_MEMORY;
    make_fitting(&t, 1003, &replaceable);
    uint64_t n = 1;
    for (; status != MOXIE_OK; n++) {
        mox_alloc_fail_at(n);
        status = write_file(&t, "moxie-cpu", &error);
        mox_alloc_fail_at(0);
        if (status != MOXIE_OK)
            assert_int_equal(status, MOXIE_ERR_MEMORY);
    }
    assert_true(n > 10);
    for (n = 1, status = MOXIE_ERR_MEMORY; status != MOXIE_OK; n++) {
        mox_alloc_fail_at(n);
        status = use_file(&error);
        mox_alloc_fail_at(0);
        if (status != MOXIE_OK)
            assert_int_equal(status, MOXIE_ERR_MEMORY);
    }
    assert_true(n > 10);
    test_layer_free(&t);
}

/* ---- shares ------------------------------------------------------------------------------------------- */

static void test_share(void **state)
{
    (void)state;
    const test_layer_limits limits = { .no_parallel = true, .experts = 7, .top_k = 2, .plain_routing = true };
    test_layer t;
    moxie_error error;
    moxie_layer *layer = NULL;
    make_fitting(&t, 3000, &limits);
    t.config.ep_size = 3;
    t.config.ep_rank = 1;
    assert_ok(write_file(&t, "moxie-cpu", &error), &error);
    moxie_expert_file *file = open_file(MOXIE_EXPERT_MAP);
    moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
    assert_ok(moxie_expert_file_get_info(file, &info, &error), &error);
    assert_int_equal(info.held, 2);
    moxie_options options = MOXIE_OPTIONS_INIT;
    compare_run(&t, file, &options);
    /* The share of another rank is not there. */
    moxie_layer_config other = *moxie_expert_file_config(file);
    other.ep_rank = 2;
    assert_int_equal(moxie_layer_open_file(file, &other, NULL, &layer, &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "the file of that share"));
    moxie_expert_file_close(file);
    test_layer_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_layers),
        cmocka_unit_test(test_every_format),
        cmocka_unit_test_setup_teardown(test_device, test_cuda_begin, test_cuda_end),
        cmocka_unit_test_setup_teardown(test_wrong_options, test_cuda_begin, test_cuda_end),
        cmocka_unit_test(test_other_kernels),
        cmocka_unit_test(test_replace),
        cmocka_unit_test(test_scattered_order),
        cmocka_unit_test(test_wrong_scale),
        cmocka_unit_test(test_update),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_share),
    };
    return cmocka_run_group_tests(tests, begin_files, end_files);
}
