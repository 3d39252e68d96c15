/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store_faults.c - what goes wrong with a store, and what is left of it: reads that fail, files that are cut off
 * or damaged while it is open, mirrors, budgets that are too small, arguments, allocations that fail, plans that a
 * store cannot serve.
 */
#include "test_store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/memory.h"
#include "layer/weights/layer.h"
#include "store/store.h"

enum { LAYER = 5, EXPERTS = 8 };

static char folder[64], path[128];
static test_layer t;
static moxie_options plain = MOXIE_OPTIONS_INIT;

static const test_layer_limits limits = { .tokens = 24,
                                          .experts = EXPERTS,
                                          .top_k = 4,
                                          .largest = 48,
                                          .plain_routing = true,
                                          .plain_acts = true,
                                          .no_parallel = true };

static int begin_layer(void **state)
{
    (void)state;
    test_store_folder(folder);
    snprintf(path, sizeof path, "%s/layer-%d.moxie", folder, LAYER);
    test_store_make(&t, 9900, &limits);
    plain.backend = MOXIE_BACKEND_CPU;
    test_store_write(folder, LAYER, &t, "moxie-cpu");
    return 0;
}

static int end_layer(void **state)
{
    (void)state;
    test_layer_free(&t);
    test_store_remove(folder);
    return 0;
}

typedef struct opened {
    moxie_store *store;
    moxie_layer *layer;
    moxie_plan *plan;
} opened;

static opened open_one(const moxie_store_options *options, const mox_reader_options *reader)
{
    opened o = { 0 };
    moxie_error error;
    moxie_store_options with = *options;
    with.ram_bytes = test_store_budget(folder, 2, 2);
    o.store = test_store_open(folder, &with, reader);
    assert_ok(moxie_store_layer(o.store, LAYER, NULL, &plain, &o.layer, &error), &error);
    assert_ok(moxie_plan_create(o.layer, &plain, &o.plan, &error), &error);
    test_layer_workspace(&t, o.plan);
    return o;
}

static void close_one(opened *o)
{
    moxie_plan_destroy(o->plan);
    moxie_layer_destroy(o->layer);
    moxie_store_close(o->store);
}

/* Runs with these ids for all tokens. */
static moxie_status run_experts(const opened *o, const int32_t ids[4], moxie_error *error)
{
    static int32_t all[24 * 4];
    static const float weights[24 * 4];
    moxie_run_args args = t.args;
    for (int i = 0; i < 24 * 4; i++)
        all[i] = ids[i % 4];
    args.ids = all;
    args.weights = weights;
    args.padding = NULL;
    args.bias_choice = NULL;
    return moxie_plan_run(o->plan, &args, error);
}

static void expect_whole_run(const opened *o)
{
    test_layer_plan(&t, &plain);
    void *want = test_layer_output(&t, t.plan);
    test_layer_workspace(&t, o->plan);
    void *got = test_layer_output(&t, o->plan);
    assert_memory_equal(got, want, test_layer_output_bytes(&t));
    free(want);
    free(got);
}

static uint64_t offset_of(int64_t expert)
{
    moxie_expert_file *file = NULL;
    moxie_expert_record record = MOXIE_EXPERT_RECORD_INIT;
    moxie_error error;
    assert_ok(moxie_expert_file_open(path, NULL, &file, &error), &error);
    assert_ok(moxie_expert_file_record(file, expert, &record, &error), &error);
    const uint64_t offset = record.offset;
    moxie_expert_file_close(file);
    return offset;
}

/* ---- reads that fail ------------------------------------------------------------------------------------- */

static _Atomic uint64_t failing; /* the offset whose reads fail; 0: none */

static int64_t fail_some(void *user, int32_t file, int32_t copy, uint64_t offset, int64_t result)
{
    (void)user, (void)file;
    return copy == 0 && offset == failing ? -EIO : result;
}

static const mox_reader_options faulty = { .fault = fail_some };

static void test_io_error(void **state)
{
    (void)state;
    const moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    moxie_error error = { 0 };
    opened o = open_one(&options, &faulty);
    failing = offset_of(3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(run_experts(&o, (int32_t[]) { 1, 2, 3, 4 }, &error), MOXIE_ERR_IO);
        assert_non_null(strstr(error.text, "layer 5, expert 3"));
        assert_string_equal(error.file, path);
        assert_int_equal(error.offset, (int64_t)failing);
        assert_ok(run_experts(&o, (int32_t[]) { 0, 1, 5, 7 }, &error), &error);
    }
    moxie_store_counters c = MOXIE_STORE_COUNTERS_INIT;
    assert_ok(moxie_store_get_counters(o.store, LAYER, 0, &c, &error), &error);
    assert_int_equal(c.failed_reads, 3);
    /* A guess that cannot be read is no error. */
    assert_ok(moxie_store_prefetch(o.store, LAYER, (int32_t[]) { 3 }, 1, &error), &error);
    failing = 0;
    expect_whole_run(&o);
    close_one(&o);
}

/* ---- reads that fail in the middle of several runs ------------------------------------------------------- */

enum { RACERS = 4, ROUNDS = 40, SETS = 6, CHOICES = 24 * 4 };

static int32_t set_ids[SETS][CHOICES];
static float set_weights[CHOICES];
static void *set_outputs[SETS]; /* with all experts in memory */

typedef struct racer {
    pthread_t thread;
    const opened *opened;
    uint64_t seed;
    int wrong, failed;
} racer;

static _Atomic unsigned reads_begun;

static int64_t fail_now_and_then(void *user, int32_t file, int32_t copy, uint64_t offset, int64_t result)
{
    (void)user, (void)file, (void)copy, (void)offset;
    return atomic_fetch_add(&reads_begun, 1) % 9 == 8 ? -EIO : result;
}

/* Runs a set into new memory; NULL when the run failed. */
static void *run_set(moxie_plan *plan, const moxie_run_args *with, uint64_t set, moxie_status *status)
{
    void *output = malloc(test_layer_output_bytes(&t));
    const moxie_run_args args = test_store_args(with, set_ids[set], set_weights, output);
    memset(args.output, 0xee, test_layer_output_bytes(&t));
    *status = moxie_plan_run(plan, &args, NULL);
    if (*status == MOXIE_OK)
        return args.output;
    free(args.output);
    return NULL;
}

static void *race(void *user)
{
    racer *r = user;
    test_rng rng = { r->seed };
    moxie_plan *plan = NULL;
    moxie_run_args args = t.args;
    r->wrong += moxie_plan_create(r->opened->layer, &plain, &plan, NULL) != MOXIE_OK;
    args.workspace_bytes = moxie_plan_workspace_bytes(plan);
    args.workspace = aligned_alloc(64, (args.workspace_bytes + 63) / 64 * 64);
    for (int i = 0; i < ROUNDS; i++) {
        const int32_t guess = (int32_t)test_below(&rng, EXPERTS);
        const uint64_t set = test_below(&rng, SETS);
        moxie_status status;
        r->wrong += moxie_store_prefetch(r->opened->store, LAYER, &guess, 1, NULL) != MOXIE_OK;
        void *got = run_set(plan, &args, set, &status);
        r->failed += status != MOXIE_OK;
        r->wrong +=
            got != NULL ? memcmp(got, set_outputs[set], test_layer_output_bytes(&t)) != 0 : status != MOXIE_ERR_IO;
        free(got);
    }
    free(args.workspace);
    moxie_plan_destroy(plan);
    return NULL;
}

/* No run is left: each buffer is free, or holds an expert that the cache keeps, or a guess. */
static void check_buffers(moxie_store *store)
{
    int32_t n_free = 0;
    pthread_mutex_lock(&store->mutex);
    while (store->reading > 0)
        mox_store_wait(store);
    for (int32_t i = 0; i < store->n_buffers; i++) {
        const mox_buffer *b = &store->buffers[i];
        n_free += b->state == MOX_BUFFER_FREE;
        assert_int_equal(b->claims, 0);
        if (b->state != MOX_BUFFER_FREE)
            assert_true(b->state == MOX_BUFFER_READY && (b->guess || mox_store_is_kept(store, b)));
    }
    assert_int_equal(n_free, store->n_free);
    pthread_mutex_unlock(&store->mutex);
}

static void make_sets(void)
{
    test_rng rng = { test_seed(3) };
    moxie_status status;
    for (int i = 0; i < CHOICES; i++)
        set_weights[i] = test_uniform(&rng);
    test_layer_plan(&t, &plain);
    for (int s = 0; s < SETS; s++) {
        for (int i = 0; i < CHOICES; i++) /* few experts, or many */
            set_ids[s][i] = (int32_t)test_below(&rng, (uint64_t)(s % 2 == 0 ? EXPERTS : s));
        set_outputs[s] = run_set(t.plan, &t.args, (uint64_t)s, &status);
        assert_non_null(set_outputs[s]);
    }
}

static void test_errors_side_by_side(void **state)
{
    (void)state;
    static const mox_reader_options often = { .fault = fail_now_and_then };
    const moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    racer racers[RACERS];
    int failed = 0;
    make_sets();
    opened o = open_one(&options, &often);
    for (int i = 0; i < RACERS; i++) {
        racers[i] = (racer) { .opened = &o, .seed = 50 + (uint64_t)i };
        assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        pthread_join(racers[i].thread, NULL);
        assert_int_equal(racers[i].wrong, 0);
        failed += racers[i].failed;
    }
    assert_in_range(failed, 1, RACERS * ROUNDS - 1);
    check_buffers(o.store);
    close_one(&o);
    for (int s = 0; s < SETS; s++)
        free(set_outputs[s]);
}

static void test_cut_off(void **state)
{
    (void)state;
    const moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    moxie_error error = { 0 };
    opened o = open_one(&options, NULL);
    expect_whole_run(&o);
    const uint64_t last = offset_of(EXPERTS - 1);
    for (int i = 0; i < 12; i++) /* so that the last one has no slot */
        assert_ok(run_experts(&o, (int32_t[]) { 0, 1, 0, 1 }, &error), &error);
    assert_int_equal(truncate(path, (off_t)last + 64), 0);
    assert_int_equal(run_experts(&o, (int32_t[]) { 0, 1, 2, EXPERTS - 1 }, &error), MOXIE_ERR_FORMAT);
    assert_non_null(strstr(error.text, "layer 5, expert 7"));
    assert_non_null(strstr(error.text, "cut short"));
    assert_ok(run_experts(&o, (int32_t[]) { 0, 1, 2, 3 }, &error), &error);
    close_one(&o);
    assert_int_equal(unlink(path), 0);
    test_store_write(folder, LAYER, &t, "moxie-cpu");
}

static void test_damage(void **state)
{
    (void)state;
    moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    moxie_error error = { 0 };
    uint8_t byte;
    options.verify = 1;
    opened o = open_one(&options, NULL);
    const off_t at = (off_t)offset_of(6) + 100;
    const int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    fsync(fd);
    assert_int_equal(run_experts(&o, (int32_t[]) { 5, 6, 7, 0 }, &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "layer 5, expert 6"));
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
    expect_whole_run(&o);
    close_one(&o);
}

/* The shared expert is read when the store opens. */
static void test_damaged_shared(void **state)
{
    (void)state;
    test_layer with;
    moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    moxie_expert_file *file = NULL;
    moxie_expert_record record = MOXIE_EXPERT_RECORD_INIT;
    moxie_store *store = NULL;
    moxie_error error = { 0 };
    char other[64], at[128];
    const char *paths[] = { other };
    test_rng rng = { test_seed(9901) };
    test_layer_make(&with, &rng, &limits);
    while (with.config.shared.intermediate == 0 || !test_store_fits(&with)) {
        test_layer_free(&with);
        test_layer_make(&with, &rng, &limits);
    }
    test_store_folder(other);
    snprintf(at, sizeof at, "%s/layer-1.moxie", other);
    test_store_write(other, 1, &with, "moxie-cpu");
    assert_ok(moxie_expert_file_open(at, NULL, &file, &error), &error);
    assert_ok(moxie_expert_file_record(file, -1, &record, &error), &error);
    const uint8_t wrong = (uint8_t)(((const uint8_t *)record.data)[100] ^ 4);
    const int fd = open(at, O_RDWR);
    assert_int_equal(pwrite(fd, &wrong, 1, (off_t)record.offset + 100), 1);
    fsync(fd);
    close(fd);
    moxie_expert_file_close(file);
    options.ram_bytes = test_store_budget(other, 1, 2);
    options.verify = 1;
    assert_int_equal(moxie_store_open(paths, 1, &options, &store, &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "shared expert of layer 1"));
    test_store_remove(other);
    test_layer_free(&with);
}

static void test_mirror(void **state)
{
    (void)state;
    moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    moxie_error error = { 0 };
    char other[64];
    test_store_folder(other);
    test_store_write(other, LAYER, &t, "moxie-cpu");
    options.mirror = other;
    failing = offset_of(3);
    opened o = open_one(&options, &faulty);
    assert_ok(run_experts(&o, (int32_t[]) { 1, 2, 3, 4 }, &error), &error);
    expect_whole_run(&o);
    failing = 0;
    close_one(&o);
    test_store_remove(other);
}

/* Records of other weights, of the same sizes: half of the reads would get them. */
static void test_stale_mirror(void **state)
{
    (void)state;
    const char *paths[] = { folder };
    moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    moxie_store *store = NULL;
    moxie_error error = { 0 };
    char other[64], stale[128];
    test_store_folder(other);
    snprintf(stale, sizeof stale, "%s/layer-%d.moxie", other, LAYER);
    test_store_write(other, LAYER, &t, "moxie-cpu");
    assert_ok(moxie_expert_file_replace(stale, 2, &t.weights.experts[1], 1, NULL, &error), &error);
    options.mirror = other;
    options.ram_bytes = test_store_budget(folder, 2, 2);
    assert_int_equal(moxie_store_open(paths, 1, &options, &store, &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "it is no mirror of"));
    assert_null(store);
    assert_int_equal(unlink(stale), 0);
    assert_int_equal(moxie_store_open(paths, 1, &options, &store, &error), MOXIE_ERR_IO);
    test_store_remove(other);
}

/* ---- refused --------------------------------------------------------------------------------------------- */

static void refused(moxie_store_options *options, moxie_status status, const char *text)
{
    const char *paths[] = { folder };
    moxie_store *store = NULL;
    moxie_error error = { 0 };
    assert_int_equal(moxie_store_open(paths, 1, options, &store, &error), status);
    assert_null(store);
    if (strstr(error.text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
}

static void test_refusals(void **state)
{
    (void)state;
    moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    const uint64_t least = test_store_budget(folder, 1, 2);
    char bytes[32];
    options.ram_bytes = least - 1;
    snprintf(bytes, sizeof bytes, "at least %llu", (unsigned long long)least);
    refused(&options, MOXIE_ERR_MEMORY, bytes);
    options.ram_bytes = least;
    options.policy = "best";
    refused(&options, MOXIE_ERR_ARGUMENT, "lfru");
    options.policy = "frozen";
    refused(&options, MOXIE_ERR_ARGUMENT, "warm_runs");
    options.policy = NULL;
    options.reader = "tape";
    refused(&options, MOXIE_ERR_ARGUMENT, "tape");
    options.reader = NULL;
    options.max_inserts = -2;
    refused(&options, MOXIE_ERR_ARGUMENT, "max_inserts");
    options.max_inserts = 0;
    const char *missing[] = { "/nonexistent/layer-1.moxie" }, *twice[] = { folder, path };
    moxie_store *store = NULL;
    moxie_error error = { 0 };
    assert_int_equal(moxie_store_open(missing, 1, &options, &store, &error), MOXIE_ERR_IO);
    assert_int_equal(moxie_store_open(twice, 2, &options, &store, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "layer 5"));
    assert_int_equal(moxie_store_open(twice, 0, &options, &store, &error), MOXIE_ERR_ARGUMENT);
}

static void test_refused_plans(void **state)
{
    (void)state;
    const moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    moxie_error error = { 0 };
    opened o = open_one(&options, NULL);
    assert_int_equal(moxie_layer_update_expert(o.layer, 0, &t.weights.experts[1], &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "moxie_expert_file_replace"));
    assert_int_equal(moxie_layer_prepare(o.layer, &t.weights, NULL, &error), MOXIE_ERR_UNSUPPORTED);
    assert_int_equal(moxie_store_layer(o.store, 6, NULL, &plain, &(moxie_layer *) { NULL }, &error),
                     MOXIE_ERR_ARGUMENT);
    /* A check reads through the mapped file, then through the store. */
    test_report report;
    assert_ok(test_plan_check(o.plan, &t.weights, &t.args, &report, &error), &error);
    test_report_print_beyond(&report);
    assert_true(report.worst_ratio <= 1);
    assert_string_equal(report.stages[report.n_stages - 1].stage, "store");
    assert_int_equal(report.stages[report.n_stages - 1].elements, t.args.tokens * t.config.hidden);
    test_layer_plan(&t, &plain);
    assert_int_equal(moxie_store_lookahead(t.plan, &t.args, &error), MOXIE_ERR_ARGUMENT);
    close_one(&o);
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

/* Opens the store and its layer with allocation n failing; false when it was not reached. */
static bool open_failing(uint64_t n)
{
    const char *paths[] = { folder };
    moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    moxie_store *store = NULL;
    moxie_layer *layer = NULL;
    moxie_error error = { 0 };
    const int64_t pinned[] = { LAYER, 2 };
    options.ram_bytes = test_store_budget(folder, 2, 2);
    options.pinned = pinned;
    options.n_pinned = 1;
    const uint64_t before = mox_alloc_count();
    mox_alloc_fail_at(n);
    moxie_status status = moxie_store_open(paths, 1, &options, &store, &error);
    if (status == MOXIE_OK)
        status = moxie_store_layer(store, LAYER, NULL, &plain, &layer, &error);
    mox_alloc_fail_at(0);
    const bool reached = mox_alloc_count() - before >= n;
    if (reached && status != MOXIE_OK)
        assert_int_equal(status, MOXIE_ERR_MEMORY);
    if (!reached)
        assert_ok(status, &error);
    moxie_layer_destroy(layer);
    moxie_store_close(store);
    return reached;
}

static void test_allocations(void **state)
{
    (void)state;
    uint64_t n = 1;
    while (open_failing(n))
        n++;
    assert_in_range(n, 20, 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_io_error),       cmocka_unit_test(test_errors_side_by_side),
        cmocka_unit_test(test_cut_off),        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_damaged_shared), cmocka_unit_test(test_mirror),
        cmocka_unit_test(test_stale_mirror),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refused_plans),  cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, begin_layer, end_layer);
}
