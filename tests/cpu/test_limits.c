/* SPDX-License-Identifier: Apache-2.0
 *
 * test_limits.c - the measured limits of a processor: positive and plausible under every cap, under MOXIE_MAX_ISA, and
 * on an executor that runs its tasks one after the other. The tile registers are released. Every allocation fails once.
 *
 * Test machines are busy or slow, so only ratios of measurements are checked. In an emulator, where wide instructions
 * are slower than narrow ones, ratios are not checked either.
 */
#include "test_support.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/executor.h"
#include "base/memory.h"
#include "cpu/limits/limits.h"

static moxie_limits measure(const moxie_executor *executor, const char *cap)
{
    moxie_limits limits = MOXIE_LIMITS_INIT;
    moxie_error error;
    assert_ok(moxie_measure_limits(executor, cap, &limits, &error), &error);
    return limits;
}

static void check_plausible(const moxie_limits *l)
{
    assert_true(l->read_gb_s > 0.01 && l->read_gb_s < 1e5);
    assert_true(l->copy_gb_s > 0.01 && l->copy_gb_s < 1e5);
    assert_true(l->l2_read_gb_s > 0.01 && l->l2_read_gb_s < 1e6);
    assert_true(l->f32_tflop_s > 1e-6 && l->f32_tflop_s < 1e4);
    assert_true(l->bf16_tflop_s >= l->f32_tflop_s && l->bf16_tflop_s < 1e5);
    assert_true(l->int8_top_s >= 0 && l->int8_top_s < 1e5);
    assert_true(l->l2_bytes >= 1 << 16 && l->cache_bytes >= l->l2_bytes);
    assert_true(l->disturbed >= 0 && l->disturbed <= MOX_LIMITS);
    assert_true(*l->read_how && *l->copy_how && *l->l2_read_how && *l->f32_how && *l->bf16_how);
    assert_int_equal(l->int8_top_s > 0, *l->int8_how != '\0');
}

/* Measures in a child, because features are found once per process. Runs before this process finds its own. */
static void test_cap_of_the_process(void **state)
{
    int ends[2], status;
    struct {
        char isa[16], bf16_how[64];
        double int8;
    } seen = { 0 };
    (void)state;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        setenv("MOXIE_MAX_ISA", "scalar", 1);
        moxie_limits limits = MOXIE_LIMITS_INIT;
        if (moxie_measure_limits(NULL, "amx", &limits, NULL) != MOXIE_OK)
            _exit(1);
        snprintf(seen.isa, sizeof seen.isa, "%s", limits.isa);
        snprintf(seen.bf16_how, sizeof seen.bf16_how, "%s", limits.bf16_how);
        seen.int8 = limits.int8_top_s;
        _exit(write(ends[1], &seen, sizeof seen) == sizeof seen ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read(ends[0], &seen, sizeof seen), sizeof seen);
    close(ends[0]);
    close(ends[1]);
    assert_string_equal(seen.isa, "scalar");
    assert_string_equal(seen.bf16_how, "f32 multiply-add");
    assert_true(seen.int8 == 0);
}

/* 8 or 16 lanes with fused multiply-add against 4 lanes without: a factor of four. Tiles: a factor of ten. */
static bool is_faster(const moxie_limits *l, mox_isa cap, const moxie_limits *scalar)
{
    const bool wide = cap >= MOX_ISA_AVX2 && mox_cpu()->allowed >= MOX_ISA_AVX2;
    const bool tiles = strcmp(l->isa, "amx") == 0;
    return (!wide || l->f32_tflop_s > 1.3 * scalar->f32_tflop_s) &&
           (!tiles || (l->bf16_tflop_s > 2 * l->f32_tflop_s && l->int8_top_s > 2 * l->f32_tflop_s));
}

static moxie_limits check_cap(const moxie_executor *executor, const char *name, mox_isa cap)
{
    const moxie_limits l = measure(executor, name);
    check_plausible(&l);
    assert_int_equal(l.workers, 2);
    assert_string_equal(l.isa, cap < mox_cpu()->allowed ? name : mox_isa_name(mox_cpu()->allowed));
    const bool tiles = strcmp(l.isa, "amx") == 0;
    assert_int_equal(tiles, strcmp(l.bf16_how, "tdpbf16ps") == 0);
    assert_int_equal(tiles, strcmp(l.int8_how, "tdpbssd") == 0);
    return l;
}

/* Other programs may slow down one measurement, but not every one of twenty. */
static void test_every_cap(void **state)
{
    static const char *const caps[] = { "scalar", "neon", "avx2", "avx512", "amx" };
    moxie_limits scalar = { 0 };
    moxie_executor *executor = NULL;
    moxie_error error;
    (void)state;
    assert_ok(mox_executor_create(2, &executor, &error), &error);
    for (int i = 0; i < 5; i++) {
        mox_isa cap;
        if (mox_isa_from_name(caps[i], &cap, &error) != MOXIE_OK) {
            moxie_limits none = MOXIE_LIMITS_INIT;
            assert_int_equal(moxie_measure_limits(executor, caps[i], &none, &error), MOXIE_ERR_ARGUMENT);
            continue;
        }
        bool fast = false;
        for (int n = 0; n < 20 && !fast; n++) {
            const moxie_limits l = check_cap(executor, caps[i], cap);
            if (i == 0)
                scalar = l;
            fast = test_emulated() || test_sanitized() || is_faster(&l, cap, &scalar);
        }
        assert_true(fast);
    }
    mox_executor_destroy(executor);
}

/* A plain loop over much memory cannot be much faster than the measured limit, and the limit cannot be a thousand times
 * as fast as the loop. */
static void test_units(void **state)
{
    const uint64_t words = UINT64_C(1) << 25;
    struct timespec start, end;
    volatile uint64_t *data = mox_alloc_pages(words * 8);
    uint64_t sum = 0;
    (void)state;
    assert_non_null(data);
    for (uint64_t i = 0; i < words; i++)
        data[i] = i;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (uint64_t i = 0; i < words; i++)
        sum += data[i];
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(sum == words / 2 * (words - 1));
    mox_free_pages((void *)(uintptr_t)data);
    const double time = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    const double plain = (double)words * 8e-9 / time;
    bool fits = test_emulated();
    for (int i = 0; i < 20 && !fits; i++) { /* somebody else may have the machine in some of them */
        const moxie_limits l = measure(NULL, NULL);
        fits = l.read_gb_s > plain / 4 && l.read_gb_s < plain * 200 && l.copy_gb_s < l.read_gb_s * 4 &&
               l.l2_read_gb_s > l.read_gb_s / 4;
    }
    assert_true(fits);
}

#if defined(__x86_64__)
static void test_tiles_are_released(void **state)
{
    unsigned char config[64] = { 0xff };
    (void)state;
    if (!mox_cpu()->amx_tile) {
        print_message("this processor has no AMX\n");
        skip();
    }
    measure(NULL, NULL); /* NULL: on this thread */
    __asm__ volatile("sttilecfg %0" : "=m"(config));
    assert_int_equal(config[0], 0);
}
#endif

static void one_after_the_other(void *self, int64_t tasks, moxie_task_fn fn, void *context)
{
    (void)self;
    for (int64_t task = 0; task < tasks; task++)
        fn(context, task, 0);
}

/* An executor that claims three workers but runs on one thread: the limits are those of one thread. */
static void test_serial_host_executor(void **state)
{
    const moxie_executor host = { .workers = 3, .run = one_after_the_other };
    (void)state;
    bool fits = false; /* another program may disturb either measurement: up to five tries */
    for (int attempt = 0; attempt < 5 && !fits; attempt++) {
        const moxie_limits one = measure(NULL, "scalar"), three = measure(&host, "scalar");
        check_plausible(&three);
        assert_int_equal(three.disturbed, 5); /* every measurement of scalar code */
        fits = test_emulated() || three.f32_tflop_s < 2 * one.f32_tflop_s;
    }
    assert_true(fits);
}

static void in_turns(void *self, int64_t tasks, moxie_task_fn fn, void *context)
{
    (void)self;
    for (int64_t task = 0; task < tasks; task++)
        fn(context, task, (int32_t)task);
}

static bool is_near(const moxie_limits *eight, const moxie_limits *one)
{
    return eight->f32_tflop_s < 3 * one->f32_tflop_s && eight->read_gb_s < 3 * one->read_gb_s &&
           eight->l2_read_gb_s < 3 * one->l2_read_gb_s;
}

/* Eight workers that run one after the other are as fast as one: the time is that of all their work. Other programs may
 * slow down one measurement, but not every measurement by a factor of three. */
static void test_workers_that_take_turns(void **state)
{
    const moxie_executor turns = { .workers = 8, .run = in_turns };
    (void)state;
    bool near = false;
    for (int i = 0; i < 5 && !near; i++) {
        const moxie_limits one = measure(NULL, "scalar"), eight = measure(&turns, "scalar");
        check_plausible(&eight);
        assert_int_equal(eight.disturbed, 5); /* every measurement of scalar code */
        near = test_emulated() || is_near(&eight, &one);
    }
    assert_true(near);
}

static void test_rejections(void **state)
{
    moxie_error error = { 0 };
    moxie_limits limits = { .struct_size = 0 }, older = { .struct_size = 24, .copy_gb_s = -1 };
    const moxie_executor none = { .workers = 0, .run = one_after_the_other };
    (void)state;
    assert_int_equal(moxie_measure_limits(NULL, NULL, &limits, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "INIT"));
    limits.struct_size = sizeof limits;
    assert_int_equal(moxie_measure_limits(NULL, "sse9", &limits, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "sse9"));
    assert_int_equal(moxie_measure_limits(&none, NULL, &limits, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "0 workers"));
    assert_true(limits.read_gb_s == 0);
    assert_ok(moxie_measure_limits(NULL, "scalar", &older, &error), &error);
    assert_true(older.read_gb_s > 0 && older.copy_gb_s == -1); /* a struct of 24 bytes: the later fields stay */
    assert_int_equal(older.struct_size, 24);
}

static void test_no_memory(void **state)
{
    (void)state;
    mox_cpu(); /* not counted below */
    const uint64_t before = mox_alloc_count();
    measure(NULL, "scalar");
    const uint64_t allocations = mox_alloc_count() - before;
    assert_true(allocations >= 2);
    for (uint64_t n = 1; n <= allocations; n++) {
        moxie_limits limits = MOXIE_LIMITS_INIT;
        moxie_error error = { 0 };
        mox_alloc_fail_at(n);
        assert_int_equal(moxie_measure_limits(NULL, "scalar", &limits, &error), MOXIE_ERR_MEMORY);
        mox_alloc_fail_at(0);
        assert_non_null(strstr(error.text, "bytes"));
        assert_true(limits.read_gb_s == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cap_of_the_process),
        cmocka_unit_test(test_every_cap),
        cmocka_unit_test(test_units),
#if defined(__x86_64__)
        cmocka_unit_test(test_tiles_are_released),
#endif
        cmocka_unit_test(test_serial_host_executor),
        cmocka_unit_test(test_workers_that_take_turns),
        cmocka_unit_test(test_rejections),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
