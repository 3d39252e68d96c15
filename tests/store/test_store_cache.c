/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store_cache.c - what a store keeps in memory: its counters equal those of the simulation of the same trace, for
 * every policy; a prefill leaves decode its experts; pinned ones stay; a lookahead reads what the next run needs. On a
 * slow disk a run takes little more than the disk alone, and guesses halve the waits: how much exactly is printed, and
 * judged with MOXIE_TEST_TIMES=1, since it depends on what else the processors do.
 */
#include "test_faulty.h"
#include "test_slow_disk.h"
#include "test_store.h"
#include "test_traces.h"

#include "base/clock.h"

enum { LAYERS = 2, EXPERTS = 16, TOP_K = 2, MAX_TOKENS = 320 };

static char folder[64], trace_path[80];
static test_layer layers[LAYERS];

static const test_layer_limits small = { .tokens = MAX_TOKENS,
                                         .experts = EXPERTS,
                                         .top_k = TOP_K,
                                         .largest = 32,
                                         .plain_routing = true,
                                         .plain_acts = true,
                                         .no_parallel = true };

static int begin_layers(void **state)
{
    (void)state;
    test_store_folder(folder);
    snprintf(trace_path, sizeof trace_path, "%s/made.trace", folder);
    for (int l = 0; l < LAYERS; l++) {
        test_store_make(&layers[l], 9000 + 100 * (uint64_t)l, &small);
        layers[l].config.routing.zero_experts = 0;
        test_store_write(folder, 10 + l, &layers[l], "moxie-cpu");
    }
    return 0;
}

static int end_layers(void **state)
{
    (void)state;
    for (int l = 0; l < LAYERS; l++)
        test_layer_free(&layers[l]);
    test_store_remove(folder);
    return 0;
}

/* ---- an opened store: a layer and a plan for each file ---------------------------------------------------- */

typedef struct opened {
    moxie_store *store;
    moxie_layer *layer[LAYERS];
    moxie_plan *plan[LAYERS];
    float *weights; /* of any routing */
} opened;

static void open_store(opened *o, moxie_store_options *options, int64_t slots, int64_t reads,
                       const mox_reader_options *reader)
{
    moxie_options plain = MOXIE_OPTIONS_INIT;
    moxie_error error;
    plain.backend = MOXIE_BACKEND_CPU;
    plain.max_tokens = MAX_TOKENS;
    options->ram_bytes = test_store_budget(folder, slots, reads);
    options->read_buffers = (int32_t)reads;
    o->store = test_store_open(folder, options, reader);
    o->weights = calloc(MAX_TOKENS * TOP_K, sizeof *o->weights);
    for (int l = 0; l < LAYERS; l++) {
        assert_int_equal(moxie_store_layer_number(o->store, l), 10 + l);
        assert_ok(moxie_store_layer(o->store, 10 + l, NULL, &plain, &o->layer[l], &error), &error);
        assert_ok(moxie_plan_create(o->layer[l], &plain, &o->plan[l], &error), &error);
        test_layer_workspace(&layers[l], o->plan[l]);
    }
}

static void close_store(opened *o)
{
    for (int l = 0; l < LAYERS; l++) {
        moxie_plan_destroy(o->plan[l]);
        moxie_layer_destroy(o->layer[l]);
    }
    moxie_store_close(o->store);
    free(o->weights);
}

/* Runs layer l with these ids [tokens, TOP_K]. */
static void run_ids(const opened *o, int l, const int32_t *ids, int64_t tokens)
{
    moxie_run_args args = layers[l].args;
    moxie_error error;
    args.tokens = tokens;
    args.ids = ids;
    args.weights = o->weights;
    args.padding = NULL;
    args.bias_choice = NULL;
    assert_ok(moxie_plan_run(o->plan[l], &args, &error), &error);
}

static moxie_store_counters counters_of(const opened *o, int64_t number, int32_t last)
{
    moxie_store_counters c = MOXIE_STORE_COUNTERS_INIT;
    moxie_error error;
    assert_ok(moxie_store_get_counters(o->store, number, last, &c, &error), &error);
    return c;
}

/* ---- counters and simulation ----------------------------------------------------------------------------- */

enum { WARM = 40 };

/* Replays the trace; the counters after the warm steps in *warm. */
static void replay(const opened *o, moxie_store_counters *warm)
{
    moxie_trace *trace = NULL;
    moxie_trace_info info = MOXIE_TRACE_INFO_INIT;
    moxie_error error;
    static int32_t ids[MAX_TOKENS * TOP_K];
    assert_ok(moxie_trace_open(trace_path, &trace, &error), &error);
    assert_ok(moxie_trace_get_info(trace, &info, &error), &error);
    for (int64_t i = 0; i < info.steps; i++) {
        moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
        if (i == WARM)
            *warm = counters_of(o, -1, 0);
        assert_ok(moxie_trace_read(trace, i, &step, &error), &error);
        for (int l = 0; l < LAYERS; l++) {
            for (int64_t t = 0; t < step.tokens; t++)
                memcpy(&ids[t * TOP_K], step.ids + t * step.token_stride + l * step.layer_stride, TOP_K * sizeof *ids);
            run_ids(o, l, ids, step.tokens);
        }
    }
    moxie_trace_close(trace);
}

static void compare_counters(const char *policy, int32_t slots, int32_t max_inserts)
{
    moxie_cache_config config = MOXIE_CACHE_CONFIG_INIT;
    moxie_cache_hits want = MOXIE_CACHE_HITS_INIT;
    moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    moxie_store_counters warm = MOXIE_STORE_COUNTERS_INIT;
    moxie_trace *trace = NULL;
    moxie_error error;
    opened o;
    config.slots = slots;
    config.policy = options.policy = policy;
    config.max_inserts = max_inserts;
    options.max_inserts = max_inserts == 0 ? -1 : max_inserts;
    config.warm_steps = WARM;
    options.warm_runs = WARM;
    assert_ok(moxie_trace_open(trace_path, &trace, &error), &error);
    assert_ok(moxie_trace_simulate(trace, &config, &want, NULL, &error), &error);
    moxie_trace_close(trace);
    open_store(&o, &options, slots, 2, NULL);
    replay(&o, &warm);
    const moxie_store_counters got = counters_of(&o, -1, 0);
    assert_int_equal(got.uses - warm.uses, want.uses);
    assert_int_equal(got.hits - warm.hits, want.hits);
    if (strcmp(policy, "pinned") != 0) /* whose experts are read when they are chosen */
        assert_int_equal(got.inserts - warm.inserts, want.inserts);
    assert_int_equal(got.reads, got.uses - got.hits + (strcmp(policy, "pinned") == 0 ? slots * LAYERS : 0));
    assert_int_equal(counters_of(&o, 10, 0).uses + counters_of(&o, 11, 0).uses, got.uses);
    close_store(&o);
}

static void test_simulation(void **state)
{
    (void)state;
    const moxie_trace_info info = { .struct_size = sizeof info, .layers = LAYERS, .experts = EXPERTS, .top_k = TOP_K };
    for (int kind = TEST_TRACE_LOCAL; kind <= TEST_TRACE_REQUESTS; kind += 2) {
        test_trace_write(trace_path, (test_trace_kind)kind, &info, 160, 3);
        const char *name;
        for (int32_t p = 0; (name = moxie_cache_policy_at(p, NULL)) != NULL; p++) {
            compare_counters(name, 4, p % 2 == 0 ? 0 : 1);
            compare_counters(name, 1, 0);
        }
    }
}

/* ---- prefill and decode ---------------------------------------------------------------------------------- */

/* Hits of two decode steps after a prefill of other experts. */
static int64_t hits_after_prefill(const char *policy, int32_t max_inserts)
{
    static const int32_t decode[2][TOP_K] = { { 0, 1 }, { 2, 3 } };
    int32_t prefill[MAX_TOKENS * TOP_K];
    moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    opened o;
    options.policy = policy;
    options.max_inserts = max_inserts;
    for (int i = 0; i < MAX_TOKENS * TOP_K; i++)
        prefill[i] = 4 + i % (EXPERTS - 4);
    open_store(&o, &options, 4, 4, NULL);
    for (int i = 0; i < 8; i++)
        run_ids(&o, 0, decode[i % 2], 1);
    const int64_t before = counters_of(&o, 10, 0).hits;
    assert_in_range(before, 10, 12); /* all but the first steps */
    run_ids(&o, 0, prefill, MAX_TOKENS);
    run_ids(&o, 0, decode[0], 1);
    run_ids(&o, 0, decode[1], 1);
    const int64_t hits = counters_of(&o, 10, 0).hits - before;
    close_store(&o);
    return hits;
}

static void test_prefill(void **state)
{
    (void)state;
    assert_int_equal(hits_after_prefill(NULL, 0), 4);
    assert_int_equal(hits_after_prefill("lru", -1), 0);
    assert_true(hits_after_prefill("lru", 1) >= 2); /* the step that misses may evict another one */
}

static void test_pinned(void **state)
{
    (void)state;
    static const int64_t pinned[] = { 10, 15, 10, 3, 11, 0 }, too_many[] = { 10, 1, 10, 2, 10, 3 };
    moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    moxie_store *store = NULL;
    moxie_error error;
    opened o;
    options.policy = "lru";
    options.max_inserts = -1;
    options.pinned = pinned;
    options.n_pinned = 3;
    open_store(&o, &options, 2, 2, NULL);
    for (int i = 0; i < 20; i++)
        run_ids(&o, 0, (int32_t[]) { (i * 2) % 14, (i * 2 + 1) % 14 }, 1);
    const int64_t before = counters_of(&o, 10, 0).hits;
    run_ids(&o, 0, (int32_t[]) { 3, 15 }, 1);
    assert_int_equal(counters_of(&o, 10, 0).hits, before + 2);
    assert_int_equal(counters_of(&o, 10, 1).hits, 2);
    close_store(&o);
    const char *path = folder;
    options.pinned = too_many;
    assert_int_equal(moxie_store_open(&path, 1, &options, &store, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "expert 3 of layer 10"));
}

/* ---- lookahead ------------------------------------------------------------------------------------------- */

static void test_lookahead(void **state)
{
    (void)state;
    moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    moxie_error error;
    opened o;
    open_store(&o, &options, 1, 8, NULL);
    moxie_run_args args = layers[0].args;
    args.tokens = 1;
    args.ids_out = NULL;
    args.weights_out = NULL;
    args.logits_out = NULL;
    assert_ok(moxie_store_lookahead(o.plan[0], &args, &error), &error);
    const moxie_store_counters guessed = counters_of(&o, 10, 0);
    assert_in_range(guessed.prefetches, 1, TOP_K);
    assert_ok(moxie_plan_run(o.plan[0], &args, &error), &error);
    moxie_store_counters c = counters_of(&o, 10, 0);
    assert_int_equal(c.reads, guessed.prefetches); /* none but these */
    assert_int_equal(c.prefetches_used, c.uses);
    assert_int_equal(c.prefetches_wasted, 0);
    /* Guesses that the run does without; those that repeat, and numbers that are no experts. */
    assert_ok(moxie_store_prefetch(o.store, 11, (int32_t[]) { 4, 5, 5, -1, 99 }, 5, &error), &error);
    run_ids(&o, 1, (int32_t[]) { 4, 6 }, 1);
    c = counters_of(&o, 11, 0);
    assert_int_equal(c.prefetches, 2);
    assert_int_equal(c.prefetches_used, 1);
    assert_int_equal(c.prefetches_wasted, 1);
    assert_int_equal(moxie_store_prefetch(o.store, 12, (int32_t[]) { 1 }, 1, &error), MOXIE_ERR_ARGUMENT);
    close_store(&o);
}

/* ---- a slow disk ----------------------------------------------------------------------------------------- */

/* The trace: Zipf popularity, half of the choices repeat one of the last 16 tokens'. A third of the experts fit. */
enum { PREFILL = 64, DECODE = 192, STEPS = 40, KEPT = 3, READS = 2 * TOP_K };

typedef struct decoding {
    moxie_store_counters counters;
    double seconds, disk_seconds; /* of all of it; what the disk alone takes for the bytes that were read */
} decoding;

/* Reads the ids of `tokens` steps from *at on as those of one. */
static void take_ids(moxie_trace *trace, int64_t at, int64_t tokens, int32_t *ids)
{
    moxie_error error;
    for (int64_t t = 0; t < tokens; t++) {
        moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
        assert_ok(moxie_trace_read(trace, at + t, &step, &error), &error);
        for (int l = 0; l < LAYERS; l++)
            memcpy(&ids[(l * MAX_TOKENS + t) * TOP_K], step.ids + l * step.layer_stride, TOP_K * sizeof *ids);
    }
}

/* The next layer's experts, of which one in five is a wrong one: routers of real models guess 81 to 89 % when they read
 * the input of the layer before. */
static void guess(const opened *o, test_rng *rng, int l, const int32_t *ids)
{
    int32_t guessed[TOP_K];
    moxie_error error;
    for (int j = 0; j < TOP_K; j++)
        guessed[j] = test_below(rng, 5) == 0 ? (int32_t)test_below(rng, EXPERTS) : ids[j];
    assert_ok(moxie_store_prefetch(o->store, 10 + l, guessed, TOP_K, &error), &error);
}

/* A prefill, and decode steps. Between layers the model has other work, such as attention, for `other_ms`. */
static void run_steps(const opened *o, bool guesses, int64_t decode_steps, int64_t other_ms)
{
    static int32_t ids[LAYERS * MAX_TOKENS * TOP_K];
    moxie_trace *trace = NULL;
    moxie_error error;
    test_rng rng = { 9 };
    assert_ok(moxie_trace_open(trace_path, &trace, &error), &error);
    for (int64_t s = 0; s <= decode_steps; s++) {
        const int64_t tokens = s == 0 ? PREFILL : 1;
        take_ids(trace, s == 0 ? 0 : PREFILL + s - 1, tokens, ids);
        for (int l = 0; l < LAYERS; l++) {
            if (guesses && s > 0)
                guess(o, &rng, l, &ids[l * MAX_TOKENS * TOP_K]);
            if (other_ms > 0)
                test_sleep_ms(other_ms);
            run_ids(o, l, &ids[l * MAX_TOKENS * TOP_K], tokens);
        }
    }
    moxie_trace_close(trace);
}

/* The disk takes `record_ms` for a record of the layer with the larger ones. */
static decoding decode(bool guesses, int64_t decode_steps, int64_t record_ms, int64_t other_ms)
{
    const uint64_t record = test_store_budget(folder, 1, 0) / LAYERS;
    test_slow_disk disk = test_slow_disk_of(record, (double)record_ms);
    const mox_reader_options slow = test_slow_reader(&disk);
    moxie_store_options options = MOXIE_STORE_OPTIONS_INIT;
    decoding out;
    opened o;
    open_store(&o, &options, KEPT, READS, &slow);
    const uint64_t start = mox_clock_now();
    run_steps(&o, guesses, decode_steps, other_ms);
    out.seconds = 1e-9 * (double)(mox_clock_now() - start);
    out.counters = counters_of(&o, -1, 0);
    out.disk_seconds = 1e-9 * disk.ns_per_byte * (double)out.counters.read_bytes;
    close_store(&o);
    return out;
}

static void make_recorded(void)
{
    const moxie_trace_info info = { .struct_size = sizeof info, .layers = LAYERS, .experts = EXPERTS, .top_k = TOP_K };
    test_trace_write(trace_path, TEST_TRACE_LOCAL, &info, PREFILL + DECODE, 5);
}

enum { ROUNDS = 5 }; /* at most: the machine may be busy with something else in some of them */

/* Whether the machine is known to have nothing else to do: without that, times say little of the library. */
static bool judges_times(void)
{
    return test_env("MOXIE_TEST_TIMES", 0) != 0;
}

/* Where the disk is what takes the time, a run takes little more than the disk alone. */
static void test_rate(void **state)
{
    (void)state;
    make_recorded();
    bool fast = false;
    for (int i = 0; i < ROUNDS && !fast; i++) {
        const decoding d = decode(false, DECODE, judges_times() ? 10 : 2, 0);
        print_message("%d tokens: %.3f s; the disk alone %.3f s for %.2f MB: %.0f %% of its rate\n", PREFILL + DECODE,
                      d.seconds, d.disk_seconds, 1e-6 * (double)d.counters.read_bytes,
                      100 * d.disk_seconds / d.seconds);
        assert_true(d.counters.reads > DECODE && d.counters.hits > d.counters.uses / 4);
        fast = !judges_times() || d.disk_seconds >= 0.85 * d.seconds;
    }
    assert_true(fast);
}

/* Guesses halve the waits, where the other work between two layers takes as long as two reads. */
static void test_waits(void **state)
{
    (void)state;
    make_recorded();
    bool shorter = false;
    for (int i = 0; i < ROUNDS && !shorter; i++) {
        const decoding without = decode(false, STEPS, 5, 10), with = decode(true, STEPS, 5, 10);
        const moxie_store_counters *a = &without.counters, *b = &with.counters;
        print_message("%d steps: %lld waits of %.3f s without guesses; %lld of %.3f s with %lld guesses, used %lld\n",
                      STEPS, (long long)a->waits, a->wait_seconds, (long long)b->waits, b->wait_seconds,
                      (long long)b->prefetches, (long long)b->prefetches_used);
        assert_true(a->waits > STEPS / 2 && b->prefetches_wasted > 0);
        assert_true(b->prefetches_used > b->prefetches / 3 && b->prefetches_used > STEPS / 4);
        shorter = !judges_times() || b->wait_seconds <= 0.5 * a->wait_seconds;
    }
    assert_true(shorter);
}

/* ---- shares ------------------------------------------------------------------------------------------------ */

/* A fixed set of a rank's share is made of experts that its file has, though the warm runs used few of them. */
static void test_share(void **state)
{
    (void)state;
    enum { OWN = EXPERTS / 2, RUNS = 3 };
    static const int32_t ids[RUNS][TOP_K] = { { 8, 9 }, { 10, 11 }, { 14, 15 } };
    static const float weights[TOP_K] = { 1, 1 };
    test_layer t;
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    moxie_store_options o = MOXIE_STORE_OPTIONS_INIT;
    moxie_options plain = MOXIE_OPTIONS_INIT;
    moxie_store_counters last = MOXIE_STORE_COUNTERS_INIT;
    moxie_error error;
    char own[64];
    test_store_folder(own);
    test_store_make(&t, 9400, &small);
    t.config.ep_size = 2;
    t.config.ep_rank = 1;
    t.config.ep_map = MOXIE_MAP_LINEAR;
    test_store_write(own, 3, &t, "moxie-cpu");
    o.ram_bytes = test_store_budget(own, OWN, 2);
    o.read_buffers = 2;
    o.policy = "pinned";
    o.warm_runs = 1;
    plain.backend = MOXIE_BACKEND_CPU;
    moxie_store *store = test_store_open(own, &o, NULL);
    assert_ok(moxie_store_layer(store, 3, NULL, &plain, &layer, &error), &error);
    assert_ok(moxie_plan_create(layer, &plain, &plan, &error), &error);
    test_layer_workspace(&t, plan);
    t.args.tokens = 1;
    for (int i = 0; i < RUNS; i++) {
        const moxie_run_args args = test_store_args(&t.args, ids[i], weights, t.args.output);
        assert_ok(moxie_plan_run(plan, &args, &error), &error);
    }
    assert_ok(moxie_store_get_counters(store, 3, 1, &last, &error), &error);
    assert_int_equal(last.uses, TOP_K);
    assert_int_equal(last.hits, TOP_K);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
    moxie_store_close(store);
    test_layer_free(&t);
    test_store_remove(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_simulation), cmocka_unit_test(test_prefill), cmocka_unit_test(test_pinned),
        cmocka_unit_test(test_lookahead),  cmocka_unit_test(test_rate),    cmocka_unit_test(test_waits),
        cmocka_unit_test(test_share),
    };
    return cmocka_run_group_tests(tests, begin_layers, end_layers);
}
