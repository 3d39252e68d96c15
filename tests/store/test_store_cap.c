/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store_cap.c - a model of three times its budget replays a trace of 256 tokens: a prefill, then decode steps.
 *
 * The system gives no more than the budget and a stated rest: RLIMIT_DATA counts all private memory that may be
 * written, so an allocation beyond it fails. Memory in use (RssAnon, which leaves mapped files out) is looked at after
 * each run of a layer, and compared with the same limit. Every output has the bytes of the layer in memory.
 */
#include "test_store.h"
#include "test_traces.h"

#include <pthread.h>
#include <sys/resource.h>

#include "base/memory.h"

enum { LAYERS = 3, EXPERTS = 32, TOP_K = 4, PREFILL = 64, STEPS = 193, MAX_TOKENS = 64 };
/* Tables, routers, plans, the stacks of the threads that read, what the C library keeps; blocks of whole huge pages. */
#define REST (UINT64_C(2) << 20)

static char folder[64];
static test_layer layers[LAYERS];
static moxie_options plain = MOXIE_OPTIONS_INIT;
static int32_t ids[STEPS][LAYERS][MAX_TOKENS * TOP_K];
static float weights[MAX_TOKENS * TOP_K];
static uint64_t want[STEPS][LAYERS]; /* hashes of outputs, so that these take no memory */

static int64_t tokens_of(int64_t step)
{
    return step == 0 ? PREFILL : 1;
}

static uint64_t hash_of(const void *data, size_t bytes)
{
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const uint8_t *)data)[i]) * 1099511628211u;
    return hash;
}

/* Runs a layer with the ids of a step; the hash of its output. */
static uint64_t run_step(int64_t step, int l, moxie_plan *plan)
{
    const test_layer *t = &layers[l];
    const size_t bytes = (size_t)(tokens_of(step) * t->config.hidden * (t->config.dtype == MOXIE_F32 ? 4 : 2));
    moxie_run_args args = t->args;
    moxie_error error;
    args.tokens = tokens_of(step);
    args.ids = ids[step][l];
    args.weights = weights;
    args.padding = NULL;
    args.bias_choice = NULL;
    memset(args.output, 0xee, bytes);
    assert_ok(moxie_plan_run(plan, &args, &error), &error);
    return hash_of(args.output, bytes);
}

/* ---- the model and its trace ----------------------------------------------------------------------------- */

static void make_layer(int l, uint64_t *seed)
{
    const test_layer_limits limits = { .tokens = MAX_TOKENS,
                                       .experts = EXPERTS,
                                       .top_k = TOP_K,
                                       .largest = 160,
                                       .no_parallel = true,
                                       .plain_routing = true,
                                       .plain_acts = true,
                                       .mma = true, /* such layers are mostly large */
                                       .weight = test_weight_quant_named("bf16"),
                                       .act = test_act_quant_named("none") };
    test_layer *t = &layers[l];
    for (;; test_layer_free(t)) {
        test_rng rng = { ++*seed };
        test_layer_make(t, &rng, &limits);
        if (t->config.hidden * t->config.intermediate > 10000 && test_store_fits(t))
            break;
    }
    plain.max_tokens = MAX_TOKENS;
    test_store_write(folder, l, t, "moxie-cpu");
    test_layer_plan(t, &plain);
    for (int64_t s = 0; s < STEPS; s++)
        want[s][l] = run_step(s, l, t->plan);
    test_layer_discard(t);
}

static void take_trace(void)
{
    const moxie_trace_info info = { .struct_size = sizeof info, .layers = LAYERS, .experts = EXPERTS, .top_k = TOP_K };
    char path[128];
    moxie_trace *trace = NULL;
    moxie_error error;
    snprintf(path, sizeof path, "%s/model.trace", folder);
    test_trace_write(path, TEST_TRACE_LOCAL, &info, PREFILL + STEPS, 11);
    assert_ok(moxie_trace_open(path, &trace, &error), &error);
    for (int64_t t = 0; t < PREFILL + STEPS - 1; t++) {
        moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
        const int64_t s = t < PREFILL ? 0 : t - PREFILL + 1, at = t < PREFILL ? t : 0;
        assert_ok(moxie_trace_read(trace, t, &step, &error), &error);
        for (int l = 0; l < LAYERS; l++)
            memcpy(&ids[s][l][at * TOP_K], step.ids + l * step.layer_stride, TOP_K * sizeof ids[0][0][0]);
    }
    moxie_trace_close(trace);
}

/* ---- the limit ------------------------------------------------------------------------------------------- */

static uint64_t status_bytes(const char *key)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0)
            sscanf(line + strlen(key), " %llu", &kib);
    fclose(file);
    return kib << 10;
}

/* Lets the process have so many bytes more than it has. */
static struct rlimit limit_data(uint64_t more)
{
    struct rlimit before, with;
    pthread_attr_t attributes;
    assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
    with = before;
    with.rlim_cur = status_bytes("VmData:") + more;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 << 10); /* of threads that read: the limit counts the whole stack */
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
    assert_int_equal(setrlimit(RLIMIT_DATA, &with), 0);
    return before;
}

typedef struct opened {
    moxie_store *store;
    moxie_layer *layer[LAYERS];
    moxie_plan *plan[LAYERS];
} opened;

static void open_all(opened *o, const moxie_store_options *options)
{
    moxie_error error;
    o->store = test_store_open(folder, options, NULL);
    for (int l = 0; l < LAYERS; l++) {
        assert_ok(moxie_store_layer(o->store, l, NULL, &plain, &o->layer[l], &error), &error);
        assert_ok(moxie_plan_create(o->layer[l], &plain, &o->plan[l], &error), &error);
    }
}

static void replay(const opened *o, uint64_t anonymous, uint64_t cap)
{
    uint64_t most = 0;
    for (int64_t s = 0; s < STEPS; s++)
        for (int l = 0; l < LAYERS; l++) {
            const uint64_t count = mox_alloc_count();
            assert_true(run_step(s, l, o->plan[l]) == want[s][l]);
            assert_int_equal(mox_alloc_count(), count); /* a run allocates nothing */
            const uint64_t used = status_bytes("RssAnon:") - anonymous;
            most = used > most ? used : most;
        }
    print_message("most memory in use %.2f MB, allowed %.2f MB\n", 1e-6 * (double)most, 1e-6 * (double)cap);
    if (!test_sanitized() && !test_emulated())
        assert_true(most <= cap);
}

/* A budget of a third of the experts. */
static uint64_t third_of_model(void)
{
    const char *path = folder;
    moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    moxie_store_info info = MOXIE_STORE_INFO_INIT;
    moxie_error error;
    options.ram_bytes = test_store_budget(folder, EXPERTS, 6);
    assert_ok(moxie_store_describe(&path, 1, &options, &info, &error), &error);
    return info.file_bytes / 3;
}

/* The caller's memory, before the limit. A store's plans need a little more than others. */
static void reserve_workspace(test_layer *t)
{
    t->args.workspace_bytes += 16 << 10;
    t->args.workspace = test_layer_own(t, t->args.workspace_bytes);
    memset(t->args.workspace, 0xee, t->args.workspace_bytes);
}

static void test_cap(void **state)
{
    (void)state;
    moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    moxie_store_info info = MOXIE_STORE_INFO_INIT;
    moxie_store_counters counters = MOXIE_STORE_COUNTERS_INIT;
    moxie_error error;
    opened o = { NULL };
    struct rlimit before = { 0 };
    const bool limits = !test_sanitized() && !test_emulated(); /* a sanitizer's own memory has no bound */
    options.ram_bytes = third_of_model();
    options.read_buffers = 6;
    options.read_depth = 2;
    for (int l = 0; l < LAYERS; l++)
        reserve_workspace(&layers[l]);
    const uint64_t anonymous = status_bytes("RssAnon:"), cap = options.ram_bytes + REST;
    if (limits)
        before = limit_data(options.ram_bytes + REST);
    open_all(&o, &options);
    for (int l = 0; l < LAYERS; l++)
        assert_true(layers[l].args.workspace_bytes >= moxie_plan_workspace_bytes(o.plan[l]));
    assert_ok(moxie_store_get_info(o.store, &info, &error), &error);
    assert_true(info.buffer_bytes + info.shared_bytes <= options.ram_bytes);
    replay(&o, anonymous, cap);
    if (limits)
        assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
    assert_ok(moxie_store_get_counters(o.store, -1, 0, &counters, &error), &error);
    assert_int_equal(counters.runs, STEPS * LAYERS);
    assert_true(counters.hits > counters.uses / 4 && counters.hits < counters.uses);
    for (int l = 0; l < LAYERS; l++) {
        moxie_plan_destroy(o.plan[l]);
        moxie_layer_destroy(o.layer[l]);
    }
    moxie_store_close(o.store);
}

/* The limit is one: a store of all experts does not fit under it. */
static void test_limit(void **state)
{
    (void)state;
    const char *path = folder;
    moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    moxie_store *store = NULL;
    moxie_error error = { 0 };
    if (test_sanitized() || test_emulated())
        return;
    const struct rlimit before = limit_data(third_of_model() + REST);
    options.ram_bytes = test_store_budget(folder, EXPERTS, 6);
    assert_int_equal(moxie_store_open(&path, 1, &options, &store, &error), MOXIE_ERR_MEMORY);
    assert_non_null(strstr(error.text, "lower the budget"));
    assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
}

static int begin_model(void **state)
{
    (void)state;
    uint64_t seed = test_seed(9700);
    test_store_folder(folder);
    plain.backend = MOXIE_BACKEND_CPU;
    for (int i = 0; i < MAX_TOKENS * TOP_K; i++)
        weights[i] = 1.0f / (float)(1 + i % 7);
    take_trace();
    for (int l = 0; l < LAYERS; l++)
        make_layer(l, &seed);
    return 0;
}

static int end_model(void **state)
{
    (void)state;
    for (int l = 0; l < LAYERS; l++)
        test_layer_free(&layers[l]);
    test_store_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_limit), cmocka_unit_test(test_cap) };
    return cmocka_run_group_tests(tests, begin_model, end_model);
}
