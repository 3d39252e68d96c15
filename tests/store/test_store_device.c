/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store_device.c - the GPU's tier of a store, without a GPU (test_cuda_table.h): a run whose experts are copied
 * when they are needed equals the run of the same layer with all of them in device memory, byte for byte. Random
 * layers, all numbers of tokens, budgets from one slot on. Copies may come late: then each happens when something waits
 * for it. test_store_device_emulated is the same with emulated kernels of sm_90.
 * MOXIE_TEST_GPU=sm90 or sm80: on the GPU that is there, with the kernels of such cards.
 */
#include "test_adapter_set.h"
#include "test_cuda_table.h"
#include "test_store.h"

#include <unistd.h>

#include <moxie/moxie_cuda.h>

#include "layer/weights/layer.h"
#include "store/store.h"

#ifdef MOX_TEST_EMULATED
enum { CONFIGS = 6, SANITIZED = 1 };
#define PRESET "sm_90"
static const int64_t token_counts[] = { 40, 0, 1, 7 };
#else
enum { CONFIGS = 10, SANITIZED = 6 };
#define PRESET "sm_80"
static const int64_t token_counts[] = { 300, 0, 1, 7, 1, 300 };
#endif
enum { COUNTS = sizeof token_counts / sizeof token_counts[0] };

static char folder[64];

static const char *on_gpu(void)
{
    return getenv("MOXIE_TEST_GPU");
}

/* ---- copies that come late ------------------------------------------------------------------------------ */

/* A stream whose copies wait until an event behind them, or the stream, is waited for. */
enum { LATE = 4096 };
typedef struct late_stream {
    struct {
        void *to;
        const void *from;
        uint64_t bytes;
    } copies[LATE];
    int begun, done;
} late_stream;

typedef struct late_event {
    void *real;
    late_stream *stream; /* NULL: nothing of a late stream was recorded */
    int mark;
} late_event;

static const mox_cuda_table *real;
static mox_cuda_table late;
static late_stream the_stream;
static bool makes_late;
static int came_late;

static void catch_up(late_stream *s, int mark)
{
    for (; s->done < mark; s->done++, came_late++)
        memcpy(s->copies[s->done % LATE].to, s->copies[s->done % LATE].from, s->copies[s->done % LATE].bytes);
}

static moxie_status late_stream_create(mox_cuda_stream *out, moxie_error *error)
{
    if (!makes_late)
        return real->stream_create(out, error);
    *out = &the_stream;
    return MOXIE_OK;
}

static void late_stream_destroy(mox_cuda_stream stream)
{
    if (stream != &the_stream)
        real->stream_destroy(stream);
}

static moxie_status late_stream_wait(mox_cuda_stream stream, moxie_error *error)
{
    if (stream == &the_stream)
        catch_up(&the_stream, the_stream.begun);
    return stream == &the_stream ? MOXIE_OK : real->stream_wait(stream, error);
}

static moxie_status late_copy(void *to, const void *from, uint64_t bytes, mox_cuda_stream stream, moxie_error *error)
{
    if (stream != &the_stream)
        return real->copy(to, from, bytes, stream, error);
    assert_true(the_stream.begun - the_stream.done < LATE);
    the_stream.copies[the_stream.begun % LATE].to = to;
    the_stream.copies[the_stream.begun % LATE].from = from;
    the_stream.copies[the_stream.begun++ % LATE].bytes = bytes;
    return MOXIE_OK;
}

static moxie_status late_event_create(mox_cuda_event *out, moxie_error *error)
{
    late_event *event = calloc(1, sizeof *event);
    *out = event;
    return real->event_create(&event->real, error);
}

static void late_event_destroy(mox_cuda_event event)
{
    if (event != NULL)
        real->event_destroy(((late_event *)event)->real);
    free(event);
}

static moxie_status late_event_record(mox_cuda_event event, mox_cuda_stream stream, moxie_error *error)
{
    late_event *e = event;
    e->stream = stream == &the_stream ? &the_stream : NULL;
    e->mark = the_stream.begun;
    return real->event_record(e->real, stream, error);
}

static moxie_status late_event_wait(mox_cuda_event event, moxie_error *error)
{
    late_event *e = event;
    if (e->stream != NULL)
        catch_up(e->stream, e->mark);
    return real->event_wait(e->real, error);
}

static moxie_status late_stream_follow(mox_cuda_stream stream, mox_cuda_event event, moxie_error *error)
{
    late_event *e = event;
    (void)error;
    if (e->stream != NULL && stream != &the_stream)
        catch_up(e->stream, e->mark);
    return MOXIE_OK;
}

static int begin(void **state)
{
    test_store_folder(folder);
    if (on_gpu() != NULL)
        return 0;
    test_cuda_begin(state);
    test_cuda_set_device(PRESET);
    return 0;
}

static int end(void **state)
{
    test_store_remove(folder);
    return on_gpu() != NULL ? 0 : test_cuda_end(state);
}

static int begin_late(void **state)
{
    begin(state);
    if (on_gpu() != NULL)
        return 0;
    assert_int_equal(mox_cuda_open(&real, NULL), MOXIE_OK);
    late = *real;
    late.stream_create = late_stream_create;
    late.stream_destroy = late_stream_destroy;
    late.stream_wait = late_stream_wait;
    late.copy = late_copy;
    late.event_create = late_event_create;
    late.event_destroy = late_event_destroy;
    late.event_record = late_event_record;
    late.event_wait = late_event_wait;
    late.stream_follow = late_stream_follow;
    mox_cuda_replace(&late);
    makes_late = true;
    return 0;
}

static int end_late(void **state)
{
    makes_late = false;
    return end(state);
}

/* ---- a layer and its store ------------------------------------------------------------------------------- */

static moxie_options cuda_options(void)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.backend = MOXIE_BACKEND_CUDA;
    options.mode = MOXIE_MODE_FAST;
    options.device = on_gpu() != NULL && !strcmp(on_gpu(), "sm80") ? "0:sm80" : NULL;
    return options;
}

static uint64_t device_budget(int64_t number, int64_t records)
{
    moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
    moxie_expert_file *file = NULL;
    moxie_error error;
    char path[128];
    snprintf(path, sizeof path, "%s/layer-%lld.moxie", folder, (long long)number);
    assert_ok(moxie_expert_file_open(path, NULL, &file, &error), &error);
    assert_ok(moxie_expert_file_get_info(file, &info, &error), &error);
    moxie_expert_file_close(file);
    return (info.shared_bytes + 255) / 256 * 256 + (uint64_t)records * ((info.record_bytes + 255) / 256 * 256);
}

/* So many slots and buffers on the GPU, and slots in RAM. */
static moxie_store_options store_options(int64_t slots, int32_t buffers, int64_t ram_slots)
{
    moxie_store_options o = MOXIE_STORE_OPTIONS_INIT;
    o.device_bytes = device_budget(7, slots + buffers);
    o.device_buffers = buffers;
    o.device = cuda_options().device;
    o.ram_bytes = test_store_budget(folder, ram_slots, 3);
    o.read_buffers = 3;
    o.verify = 1;
    return o;
}

typedef struct opened {
    moxie_store *store;
    moxie_layer *layer;
    moxie_plan *plan;
} opened;

static void open_plan(test_layer *t, const moxie_store_options *o, const moxie_options *options, opened *out)
{
    const bool was = makes_late;
    moxie_error error;
    *out = (opened) { .store = test_store_open(folder, o, NULL) };
    makes_late = false; /* the streams of runs are not */
    assert_ok(moxie_store_layer(out->store, 7, NULL, options, &out->layer, &error), &error);
    assert_ok(moxie_plan_create(out->layer, options, &out->plan, &error), &error);
    test_layer_workspace(t, out->plan);
    makes_late = was;
}

static void close_plan(opened *o)
{
    moxie_plan_destroy(o->plan);
    moxie_layer_destroy(o->layer);
    moxie_store_close(o->store);
}

static void *output_of(test_layer *t, moxie_plan *plan, int64_t tokens)
{
    const bool was = makes_late;
    makes_late = false;
    t->args.tokens = tokens;
    void *out = test_layer_output(t, plan);
    makes_late = was;
    return out;
}

static moxie_store_counters counters_of(moxie_store *store)
{
    moxie_store_counters c = MOXIE_STORE_COUNTERS_INIT;
    assert_int_equal(moxie_store_get_counters(store, -1, 0, &c, NULL), MOXIE_OK);
    return c;
}

static moxie_adapters *given;

/* Runs have the adapters; NULL: none. */
static void give(test_layer *t, const moxie_layer *layer, const test_adapter_set *adapters)
{
    const bool was = makes_late;
    moxie_error error;
    makes_late = false;
    if (adapters != NULL)
        assert_ok(test_adapter_set_give(adapters, layer, &given, &error), &error);
    t->args.adapters = given;
    makes_late = was;
}

static void take_back(test_layer *t)
{
    moxie_adapters_destroy(given);
    t->args.adapters = given = NULL;
}

/* A check follows the stages of the layer with all experts on the GPU, then compares a run of the store. */
static void check_plan(test_layer *t, moxie_plan *plan)
{
    const bool was = makes_late;
    test_report report;
    moxie_error error;
    makes_late = false;
    t->args.tokens = 7;
    assert_ok(test_plan_check(plan, &t->weights, &t->args, &report, &error), &error);
    if (!(report.worst_ratio <= 1))
        test_report_print_beyond(&report);
    assert_true(report.worst_ratio <= 1);
    assert_true(report.n_stages > 3);
    assert_string_equal(report.stages[report.n_stages - 1].stage, "store");
    assert_int_equal(report.stages[report.n_stages - 1].elements, 7 * t->config.hidden);
    makes_late = was;
}

static void compare(test_layer *t, const moxie_store_options *o, const moxie_options *options,
                    const test_adapter_set *adapters, void *const want[COUNTS])
{
    opened s;
    open_plan(t, o, options, &s);
    give(t, s.layer, adapters);
    for (int i = 0; i < COUNTS; i++) {
        void *got = output_of(t, s.plan, token_counts[i]);
        if (memcmp(got, want[i], test_layer_output_bytes(t)) != 0)
            fail_msg("a run of %lld tokens differs, with %llu bytes on the GPU: %s", (long long)token_counts[i],
                     (unsigned long long)o->device_bytes, t->text);
        free(got);
    }
    const moxie_store_counters c = counters_of(s.store);
    assert_int_equal(c.runs, COUNTS - 1); /* a run of no tokens has nothing to fetch */
    assert_int_equal(c.id_waits, COUNTS - 1);
    assert_int_equal(c.uses, c.device_uses - c.device_hits); /* RAM was asked for the others */
    assert_true(c.copies >= c.uses);                         /* once a pass */
    assert_true(c.device_inserts <= c.device_uses - c.device_hits);
    assert_int_equal(c.failed_reads, 0);
    check_plan(t, s.plan);
    take_back(t);
    close_plan(&s);
}

static int compared, changed;

/* Not for a layer that a file or a store cannot have. */
static bool fits(test_layer *t, const moxie_options *options)
{
    const moxie_layer_config *c = &t->config;
    char target[32];
    if (!test_store_fits(t) || mox_act_quant_needs_amax(&c->a13) || mox_act_quant_needs_amax(&c->a2))
        return false;
    snprintf(target, sizeof target, "moxie-%s",
             on_gpu() != NULL          ? on_gpu()
             : strcmp(PRESET, "sm_90") ? "sm80"
                                       : "sm90");
    test_store_write(folder, 7, t, target);
    test_layer_plan(t, options);
    return test_store_has_layouts(folder, 7, t, options);
}

/* The outputs of the layer that is all on the GPU. Counts the runs that its adapters change. */
static void run_resident(test_layer *t, const test_adapter_set *adapters, void *want[COUNTS])
{
    const int32_t *ids = t->args.adapter_ids;
    t->args.adapter_ids = NULL;
    for (int i = 0; i < COUNTS; i++)
        want[i] = output_of(t, t->plan, token_counts[i]);
    t->args.adapter_ids = ids;
    give(t, t->built, adapters);
    for (int i = 0; i < COUNTS && adapters != NULL; i++) {
        void *without = want[i];
        want[i] = output_of(t, t->plan, token_counts[i]);
        changed += memcmp(without, want[i], test_layer_output_bytes(t)) != 0;
        free(without);
    }
    take_back(t);
}

static void compare_all(test_layer *t, const moxie_options *options, const test_adapter_set *adapters)
{
    const int64_t experts = t->config.experts;
    const bool was = makes_late;
    void *want[COUNTS];
    makes_late = false;
    run_resident(t, adapters, want);
    makes_late = was;
    const moxie_store_options smallest = store_options(1, 2, 1), usual = store_options(experts / 4 + 1, 4, experts);
    compare(t, &smallest, options, adapters, want);
    compare(t, &usual, options, adapters, want);
    compared++;
    for (int i = 0; i < COUNTS; i++)
        free(want[i]);
}

static void one_layer(uint64_t seed, const test_layer_limits *limits, bool adapted)
{
    test_layer t;
    test_adapter_set adapters;
    test_rng rng = { test_seed(seed) };
    moxie_options options = cuda_options();
    const bool was = makes_late;
    makes_late = false;
    test_layer_make(&t, &rng, limits);
    if (adapted)
        test_adapter_set_assign(&adapters, &t, &rng);
    options.max_adapter_rank = adapted ? adapters.max_rank : 0;
    const bool takes = fits(&t, &options);
    makes_late = was;
    if (takes)
        compare_all(&t, &options, adapted ? &adapters : NULL);
    if (adapted)
        test_adapter_set_free(&adapters);
    test_layer_free(&t);
}

static void random_layers(uint64_t first, int64_t count, bool adapted)
{
    compared = changed = 0;
    for (uint64_t seed = 0; seed < (uint64_t)count || compared == 0 || (adapted && changed == 0); seed++)
        one_layer(first + seed,
                  &(test_layer_limits) { .tokens = 300, .features = seed % 2 == 1, .rounds = true, .largest = 60 },
                  adapted);
}

static int64_t layer_count(void)
{
    return test_env("MOXIE_TEST_CONFIGS", test_sanitized() || test_quick() ? SANITIZED : CONFIGS);
}

static void test_random_layers(void **state)
{
    (void)state;
    random_layers(9000, layer_count(), false);
}

/* Each token has one of three LoRA adapters, a disabled one, or none. */
static void test_random_layers_adapted(void **state)
{
    (void)state;
    random_layers(9200, layer_count(), true);
}

static void test_late_copies(void **state)
{
    if (on_gpu() != NULL || test_cuda_is_lazy())
        skip();
    test_random_layers(state);
    assert_true(came_late > 0);
}

static const test_layer_limits usual = { .tokens = 300, TEST_STORE_USUAL };

static void make(test_layer *t, const moxie_options *options)
{
    for (uint64_t seed = 9500;; seed++) {
        test_store_make(t, seed, &usual);
        if (fits(t, options))
            return;
        test_layer_free(t);
    }
}

/* ---- single cases ---------------------------------------------------------------------------------------- */

/* With a slot for every expert nothing is copied twice. */
static void test_counters(void **state)
{
    (void)state;
    test_layer t;
    opened s;
    moxie_options options = cuda_options();
    make(&t, &options);
    const moxie_store_options o = store_options(12, 4, 12);
    open_plan(&t, &o, &options, &s);
    for (int i = 0; i < 3; i++)
        free(output_of(&t, s.plan, 300));
    const moxie_store_counters c = counters_of(s.store);
    moxie_store_info info = MOXIE_STORE_INFO_INIT;
    assert_int_equal(moxie_store_get_info(s.store, &info, NULL), MOXIE_OK);
    assert_int_equal(info.device_slots, 12);
    assert_int_equal(info.device_buffers, 4);
    assert_int_equal(c.copies, c.device_uses / 3);
    assert_int_equal(c.copied_bytes, (uint64_t)c.copies * s.layer->record_bytes);
    assert_int_equal(c.device_hits, c.device_uses / 3 * 2);
    assert_int_equal(c.reads, c.copies);
    close_plan(&s);
    test_layer_free(&t);
}

/* Pinned experts, and a set that stays: bytes do not change, and what is pinned is copied once. */
static void test_policies(void **state)
{
    (void)state;
    static const int64_t pinned[] = { 7, 3, 7, 5 };
    test_layer t;
    moxie_options options = cuda_options();
    make(&t, &options);
    void *want = output_of(&t, t.plan, 300);
    for (int i = 0; i < 3; i++) {
        moxie_store_options o = store_options(3, 2, 12);
        opened s;
        o.policy = i == 1 ? "frozen" : i == 2 ? "pinned" : NULL;
        o.warm_runs = i > 0 ? 2 : 0;
        o.pinned = i == 0 ? pinned : NULL;
        o.n_pinned = i == 0 ? 2 : 0;
        open_plan(&t, &o, &options, &s);
        for (int run = 0; run < 6; run++) {
            void *got = output_of(&t, s.plan, 300);
            assert_memory_equal(got, want, test_layer_output_bytes(&t));
            free(got);
        }
        assert_true(counters_of(s.store).device_hits > 0);
        close_plan(&s);
    }
    free(want);
    test_layer_free(&t);
}

/* What the router of a layer would choose is read into RAM, and a run copies it from there. */
static void test_lookahead(void **state)
{
    (void)state;
    test_layer t;
    opened s;
    moxie_error error;
    moxie_options options = cuda_options();
    make(&t, &options);
    const moxie_store_options o = store_options(3, 2, 12);
    open_plan(&t, &o, &options, &s);
    t.args.tokens = 1;
    assert_ok(moxie_store_lookahead(s.plan, &t.args, &error), &error);
    const moxie_store_counters guessed = counters_of(s.store);
    assert_in_range(guessed.prefetches, 1, t.config.top_k);
    void *got = output_of(&t, s.plan, 1);
    const moxie_store_counters c = counters_of(s.store);
    assert_int_equal(c.reads, guessed.prefetches); /* none but these */
    assert_int_equal(c.prefetches_used, c.copies);
    assert_int_equal(c.prefetches_wasted, 0);
    close_plan(&s);
    void *want = output_of(&t, t.plan, 1);
    assert_memory_equal(got, want, (size_t)t.config.hidden * (size_t)mox_dtype_bytes(t.config.dtype));
    free(got);
    free(want);
    test_layer_free(&t);
}

/* A run in which any call of the table fails says so, and the next one is right. */
static void test_failures(void **state)
{
    (void)state;
    if (test_cuda_is_lazy())
        skip();
    if (on_gpu() != NULL)
        skip();
    test_layer t;
    opened s;
    moxie_options options = cuda_options();
    make(&t, &options);
    void *want = output_of(&t, t.plan, 7);
    const moxie_store_options o = store_options(3, 2, 4);
    open_plan(&t, &o, &options, &s);
    t.args.tokens = 7;
    int failed = 0;
    for (int n = 1; n < 2000; n++) {
        moxie_run_args args = t.args;
        moxie_error error = { 0 };
        args.output = malloc(test_layer_output_bytes(&t));
        args.ids_out = NULL;
        args.weights_out = NULL;
        args.logits_out = NULL;
        test_cuda_fail_at(n);
        const moxie_status status = moxie_plan_run(s.plan, &args, &error);
        const bool did = test_cuda_fail_at(0);
        free(args.output);
        failed += did;
        assert_true(status == MOXIE_OK || error.text[0] != '\0');
        if (!did)
            break;
        void *got = output_of(&t, s.plan, 7);
        assert_memory_equal(got, want, test_layer_output_bytes(&t));
        free(got);
    }
    assert_true(failed > 20);
    close_plan(&s);
    free(want);
    test_layer_free(&t);
}

/* Checks of which one call of the table, or one allocation, fails. Returns how many do. */
static int fail_checks(test_layer *t, moxie_plan *plan, bool of_table, int step)
{
    int failed = 0;
    for (bool did = true; did; failed += did) {
        moxie_check_report *report = NULL;
        moxie_error error = { 0 };
        if (of_table)
            (void)test_cuda_fail_at(1 + failed * step);
        else
            mox_alloc_fail_at((uint64_t)(1 + failed * step));
        const moxie_status status = moxie_plan_check(plan, &t->weights, &t->args, &report, &error);
        did = of_table ? test_cuda_fail_at(0) : status != MOXIE_OK;
        mox_alloc_fail_at(0);
        assert_int_equal(status, !did ? MOXIE_OK : of_table ? MOXIE_ERR_IO : MOXIE_ERR_MEMORY);
        assert_true(!did || (error.text[0] != '\0' && report == NULL));
        moxie_check_report_destroy(report);
    }
    return failed;
}

/* A check that fails says so, leaves nothing behind (end), and the next one is right. */
static void test_checks_that_fail(void **state)
{
    (void)state;
    if (test_cuda_is_lazy() || on_gpu() != NULL)
        skip();
    test_layer t;
    opened s;
    moxie_options options = cuda_options();
    make(&t, &options);
    const moxie_store_options o = store_options(3, 2, 4);
    open_plan(&t, &o, &options, &s);
    t.args.tokens = 2;
    assert_true(fail_checks(&t, s.plan, true, test_sanitized() ? 31 : 17) > 5);
    assert_true(fail_checks(&t, s.plan, false, test_sanitized() ? 7 : 5) > 5);
    check_plan(&t, s.plan);
    close_plan(&s);
    test_layer_free(&t);
}

/* Rows of moxie_plan_experts. */
static void test_rows(void **state)
{
    (void)state;
    test_layer t;
    opened s;
    moxie_error error;
    moxie_options options = cuda_options();
    make(&t, &options);
    const size_t choices = (size_t)(t.args.tokens * t.config.top_k), n = choices * (size_t)t.config.hidden;
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    test_store_choose(&t, 5);
    memset(want, 0xee, n * sizeof *want);
    memset(got, 0xdd, n * sizeof *got);
    assert_ok(moxie_plan_experts(t.plan, &t.args, want, &error), &error);
    const moxie_store_options o = store_options(2, 2, 2);
    open_plan(&t, &o, &options, &s);
    assert_ok(moxie_plan_experts(s.plan, &t.args, got, &error), &error);
    assert_memory_equal(got, want, n * sizeof *want);
    memset((void *)(uintptr_t)t.args.ids, 0xff, choices * sizeof *t.args.ids); /* -1: nothing to compute */
    assert_ok(moxie_plan_experts(s.plan, &t.args, got, &error), &error);
    for (size_t i = 0; i < n; i++)
        assert_true(got[i] == 0);
    close_plan(&s);
    free(want);
    free(got);
    test_layer_free(&t);
}

/* ---- refusals ------------------------------------------------------------------------------------------- */

static void refuse_open(const moxie_store_options *o, moxie_status status, const char *words)
{
    const char *const path = folder;
    moxie_store *store = NULL;
    moxie_error error = { 0 };
    assert_int_equal(moxie_store_open(&path, 1, o, &store, &error), status);
    assert_null(store);
    if (strstr(error.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static void test_refusals(void **state)
{
    (void)state;
    test_layer t;
    opened s;
    moxie_error error = { 0 };
    moxie_options options = cuda_options(), cpu = MOXIE_OPTIONS_INIT;
    moxie_layer *layer = NULL;
    make(&t, &options);
    moxie_store_options o = store_options(1, 2, 2);
    o.device_bytes -= 1;
    refuse_open(&o, MOXIE_ERR_MEMORY, "bytes on the GPU: 1 layers need at least");
    o = store_options(1, 2, 2);
    o.device_bytes = 0;
    refuse_open(&o, MOXIE_ERR_ARGUMENT, "device_bytes is 0");
    o = store_options(1, 2, 2);
    o.device = "first";
    refuse_open(&o, MOXIE_ERR_ARGUMENT, "options.device is \"first\"");
    o = store_options(1, 2, 2);
    o.ram_bytes = 4096;
    refuse_open(&o, MOXIE_ERR_MEMORY, "a budget of 4096 bytes");
    o = store_options(2, 2, 2);
    open_plan(&t, &o, &options, &s);
    assert_int_equal(moxie_store_layer(s.store, 7, NULL, &cpu, &layer, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "--backend cuda"));
    assert_int_equal(moxie_layer_verify(s.layer, &error), MOXIE_ERR_UNSUPPORTED);
    moxie_plan *plans[] = { s.plan };
    const moxie_run_args *args[] = { &t.args };
    void *graph = NULL;
    assert_int_equal(moxie_cuda_plan_capture(plans, args, 1, &graph, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "outside of graphs"));
    close_plan(&s);
    o = (moxie_store_options)MOXIE_STORE_OPTIONS_INIT;
    o.ram_bytes = test_store_budget(folder, 2, 2);
    s.store = test_store_open(folder, &o, NULL);
    assert_int_equal(moxie_store_layer(s.store, 7, NULL, &options, &layer, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "--budget-gpu"));
    moxie_store_close(s.store);
    test_layer_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random_layers, begin, end),
        cmocka_unit_test_setup_teardown(test_random_layers_adapted, begin, end),
        cmocka_unit_test_setup_teardown(test_late_copies, begin_late, end_late),
        cmocka_unit_test_setup_teardown(test_counters, begin, end),
        cmocka_unit_test_setup_teardown(test_policies, begin, end),
        cmocka_unit_test_setup_teardown(test_lookahead, begin, end),
        cmocka_unit_test_setup_teardown(test_failures, begin, end),
        cmocka_unit_test_setup_teardown(test_checks_that_fail, begin, end),
        cmocka_unit_test_setup_teardown(test_rows, begin, end),
        cmocka_unit_test_setup_teardown(test_refusals, begin, end),
    };
#ifdef MOX_TEST_EMULATED
    cmocka_set_test_filter("test_random_layers*"); /* the others do not depend on kernels */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
