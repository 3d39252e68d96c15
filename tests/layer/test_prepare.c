/* SPDX-License-Identifier: Apache-2.0
 *
 * test_prepare.c - preparation by parts and threads makes the same records as one thread. Its peak memory is the layer
 * and one expert. Pages of a mapped checkpoint do not stay in memory after they were read.
 */
#include "test_layer.h"

#include <moxie/moxie_ckpt.h>

#include "base/memory.h"
#include "base/sizes.h"
#include "layer/weights/layer.h"

/* ---- parts and threads ----------------------------------------------------------------------------------- */

enum { CUT = 192 }; /* bytes of a part */

/* The rowmajor layout cut into parts of CUT bytes. */
static int64_t cut_parts(const mox_record_shape *shape)
{
    uint64_t bytes;
    mox_layout_rowmajor.record_bytes(shape, &bytes);
    return mox_max_i64(mox_ceil_div((int64_t)(bytes - sizeof(mox_record_header)), CUT), 1);
}

static uint64_t cut_at(const mox_record_shape *shape, int64_t part)
{
    uint64_t bytes;
    mox_layout_rowmajor.record_bytes(shape, &bytes);
    return part == cut_parts(shape) ? bytes : sizeof(mox_record_header) + (uint64_t)part * CUT;
}

static moxie_status cut_pack_part(const mox_record_shape *shape, const moxie_expert *expert, int64_t part, void *record,
                                  moxie_error *error)
{
    const uint64_t begin = cut_at(shape, part), end = cut_at(shape, part + 1), bytes = cut_at(shape, cut_parts(shape));
    uint8_t *whole = calloc(1, bytes);
    const moxie_status status = mox_layout_rowmajor.pack(shape, expert, whole, error);
    memcpy((uint8_t *)record + begin, whole + begin, end - begin);
    if (part == 0)
        memcpy(record, whole, sizeof(mox_record_header));
    free(whole);
    return status;
}

static mox_layout cut_layout(void)
{
    mox_layout cut = mox_layout_rowmajor;
    cut.pack = NULL;
    cut.parts = cut_parts;
    cut.part_at = cut_at;
    cut.pack_part = cut_pack_part;
    return cut;
}

static int never_backwards(void *user, int64_t done, int64_t total)
{
    int64_t *last = user;
    assert_true(done > *last && done <= total);
    *last = done;
    return 0;
}

typedef struct done_counts {
    const test_layer *layer;
    int64_t times[16]; /* by expert */
    int64_t shared;
} done_counts;

static void note_done(void *user, const moxie_expert *expert)
{
    done_counts *t = user;
    if (expert == t->layer->weights.shared)
        t->shared++;
    else
        t->times[expert - t->layer->experts]++;
}

/* Gives the layer another layout and records full of 0x5a, as an earlier preparation might have left them. */
static void use_layout(moxie_layer *layer, const mox_layout *layout)
{
    const bool shared = layer->layouts[MOX_SHARED_EXPERT] != NULL;
    layer->layouts[MOX_ROUTED] = layout;
    assert_true(layout->record_bytes(&layer->routed_shape, &layer->record_bytes));
    if (shared)
        assert_true(layout->record_bytes(&layer->shared_shape, &layer->shared_bytes));
    const uint64_t routed = (uint64_t)layer->slots * layer->record_bytes, all = routed + layer->shared_bytes;
    mox_free_pages(layer->slab);
    layer->slab = mox_alloc_pages(all);
    memset(layer->slab, 0x5a, all);
    for (int32_t s = 0; s < layer->slots; s++)
        layer->records[s] = (uint8_t *)layer->slab + (uint64_t)s * layer->record_bytes;
    if (shared) {
        layer->layouts[MOX_SHARED_EXPERT] = layout;
        layer->shared_record = (uint8_t *)layer->slab + routed;
    }
}

/* Every record equals what mox_record_pack() makes of the expert. */
static void check_records(const moxie_layer *layer, const test_layer *t)
{
    moxie_error error;
    void *want = malloc(layer->record_bytes);
    for (int32_t s = 0; s < layer->slots; s++) {
        memset(want, 0x33, layer->record_bytes);
        assert_ok(mox_record_pack(layer->layouts[MOX_ROUTED], &layer->routed_shape, layer->expert_of[s],
                                  &t->experts[layer->expert_of[s]], want, &error),
                  &error);
        if (memcmp(want, layer->records[s], layer->record_bytes) != 0)
            fail_msg("the record of slot %d differs: %s", s, t->text);
    }
    free(want);
}

static void parts_and_threads_make_the_same_records(void **state)
{
    (void)state;
    static const int32_t threads[] = { 1, 2, 3, 7 };
    const test_layer_limits limits = { .tokens = 1, .experts = 11, .largest = 40 };
    const mox_layout cut = cut_layout();
    const uint64_t step = (uint64_t)test_one_in(5, "layers");
    for (uint64_t seed = 0; seed < 24; seed += step) {
        test_rng rng = { test_seed(8100) + seed };
        test_layer t;
        moxie_layer *layer;
        moxie_error error;
        moxie_executor *pool;
        moxie_options options = MOXIE_OPTIONS_INIT;
        test_layer_make(&t, &rng, &limits);
        assert_ok(moxie_executor_create(threads[seed % 4], &pool, &error), &error);
        int64_t last = 0;
        done_counts seen = { .layer = &t };
        t.weights.done = note_done;
        t.weights.done_user = &seen;
        options.executor = pool;
        options.progress = never_backwards;
        options.progress_user = &last;
        assert_ok(moxie_layer_create(&t.config, &options, &layer, &error), &error);
        use_layout(layer, seed % 3 == 0 ? &mox_layout_rowmajor : &cut);
        assert_ok(moxie_layer_prepare(layer, &t.weights, &options, &error), &error);
        assert_ok(moxie_layer_verify(layer, &error), &error);
        check_records(layer, &t);
        assert_int_equal(last, layer->slots);
        for (int64_t e = 0; e < t.config.experts; e++)
            assert_int_equal(seen.times[e], layer->slot_of[e] >= 0);
        assert_int_equal(seen.shared, layer->layouts[MOX_SHARED_EXPERT] != NULL);
        moxie_layer_destroy(layer);
        moxie_executor_destroy(pool);
        test_layer_free(&t);
    }
}

/* Expert 3 fails when it is packed, expert 5 when its views are checked: the error names expert 3. */
static int32_t failing_part;

static moxie_status fail_late(const mox_record_shape *shape, const moxie_expert *expert, int64_t part, void *record,
                              moxie_error *error)
{
    if (expert->a13_scale == 3.0f && part == failing_part)
        return mox_fail(MOXIE_ERR_UNSUPPORTED, error, "part %d of this expert cannot be packed", (int)part);
    return cut_pack_part(shape, expert, part, record, error);
}

static void the_first_failure_is_reported(void **state)
{
    (void)state;
    const test_layer_limits limits = {
        .tokens = 1, .experts = 9, .largest = 16, .plain_acts = true, .no_parallel = true
    };
    mox_layout late = cut_layout();
    late.pack_part = fail_late;
    for (int32_t round = 0; round < 6; round++) {
        test_rng rng = { 8200 };
        test_layer t;
        moxie_layer *layer;
        moxie_error error;
        moxie_executor *pool;
        moxie_options options = MOXIE_OPTIONS_INIT;
        test_layer_make(&t, &rng, &limits);
        assert_ok(moxie_executor_create(4, &pool, &error), &error);
        options.executor = pool;
        t.config.a13 = (moxie_quant) { 0 };
        for (int64_t e = 0; e < 9; e++)
            t.experts[e].a13_scale = (float)e;
        if (round % 2)
            t.experts[5].up.codes.rows++;
        assert_ok(moxie_layer_create(&t.config, &options, &layer, &error), &error);
        use_layout(layer, &late);
        failing_part = round % (int32_t)cut_parts(&layer->routed_shape);
        assert_int_equal(moxie_layer_prepare(layer, &t.weights, &options, &error), MOXIE_ERR_UNSUPPORTED);
        assert_non_null(strstr(error.text, "cannot be packed"));
        assert_int_equal(moxie_layer_verify(layer, &error), MOXIE_ERR_ARGUMENT);
        moxie_layer_destroy(layer);
        moxie_executor_destroy(pool);
        test_layer_free(&t);
    }
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

enum { EXPERTS = 8 };

/* A layer of 11 MB as its file holds it. */
static char *make_checkpoint(char *path, size_t size)
{
    char *dir = test_tmpdir();
    moxie_error error;
    moxie_synth_options options = MOXIE_SYNTH_OPTIONS_INIT;
    options.layers = 1;
    options.experts = EXPERTS;
    options.hidden = 1024;
    options.intermediate = 832;
    snprintf(path, size, "%s/model", dir);
    assert_ok(moxie_synth_write("gpt-oss-20b", path, &options, &error), &error);
    return dir;
}

typedef struct opened {
    moxie_model *model;
    moxie_model_layer *loaded;
    moxie_executor *pool;
    moxie_options options;
} opened;

static opened open_checkpoint(const char *path, bool no_mmap)
{
    opened o = { .options = MOXIE_OPTIONS_INIT };
    moxie_error error;
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    options.no_mmap = no_mmap;
    assert_ok(moxie_model_open(path, &options, &o.model, &error), &error);
    assert_ok(moxie_model_load_layer(o.model, 0, &o.loaded, &error), &error);
    assert_ok(moxie_executor_create(2, &o.pool, &error), &error);
    o.options.executor = o.pool;
    return o;
}

static void close_checkpoint(opened *o)
{
    moxie_executor_destroy(o->pool);
    moxie_model_layer_free(o->loaded);
    moxie_model_close(o->model);
}

static moxie_layer *prepared(const opened *o)
{
    moxie_layer *layer;
    moxie_error error;
    assert_ok(moxie_layer_create(moxie_model_layer_config(o->loaded), &o->options, &layer, &error), &error);
    assert_ok(moxie_layer_prepare(layer, moxie_model_layer_weights(o->loaded), &o->options, &error), &error);
    return layer;
}

/* The records, the router and small lists; replacing an expert takes one record more. */
static void no_more_than_the_result_and_one_expert(void **state)
{
    opened o = open_checkpoint(*state, false);
    moxie_error error;
    const uint64_t lists = 64 << 10, before = mox_alloc_bytes();
    moxie_layer *layer = prepared(&o);
    const uint64_t asked = mox_alloc_bytes() - before, result = moxie_layer_bytes(layer);
    assert_true(result > 8 << 20);
    assert_true(asked >= result);
    if (asked > result + lists)
        fail_msg("preparation asked for %llu bytes, the layer has %llu", (unsigned long long)asked,
                 (unsigned long long)result);
    const uint64_t held = mox_alloc_bytes();
    assert_ok(moxie_layer_update_expert(layer, 3, &moxie_model_layer_weights(o.loaded)->experts[3], &error), &error);
    assert_true(mox_alloc_bytes() - held <= layer->record_bytes + lists);
    assert_int_equal((uintptr_t)layer->slab % (2 << 20), 0);
    moxie_layer_destroy(layer);
    close_checkpoint(&o);
}

/* Resident bytes of this process's file mappings, with files of memory file systems. */
static uint64_t file_memory(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    unsigned long file = 0, shared = 0;
    while (status && fgets(line, sizeof line, status)) {
        sscanf(line, "RssFile: %lu", &file);
        sscanf(line, "RssShmem: %lu", &shared);
    }
    if (status)
        fclose(status);
    return (uint64_t)(file + shared) * 1024;
}

static void read_files_do_not_stay_in_memory(void **state)
{
    opened o = open_checkpoint(*state, false);
    const uint64_t before = file_memory();
    moxie_layer *layer = prepared(&o);
    const uint64_t after = file_memory();

    /* Without the callback that releases views, the pages stay. */
    moxie_weights kept = *moxie_model_layer_weights(o.loaded);
    moxie_error error;
    kept.done = NULL;
    assert_ok(moxie_layer_prepare(layer, &kept, &o.options, &error), &error);
    const uint64_t all = file_memory();
    moxie_layer_destroy(layer);
    close_checkpoint(&o);
    if (all < before + (8 << 20)) {
        print_message("this system does not tell how much of a file is in memory\n");
        skip();
    }
    if (after > before + (1 << 20))
        fail_msg("%llu bytes of the file stayed in memory", (unsigned long long)(after - before));
}

/* Pages that were dropped are read again when they are touched; a file that was not mapped is not dropped. */
static void the_same_records_again(void **state)
{
    opened mapped = open_checkpoint(*state, false), read = open_checkpoint(*state, true);
    moxie_layer *layers[4] = { prepared(&mapped), prepared(&mapped), prepared(&read), prepared(&read) };
    for (int i = 1; i < 4; i++)
        for (int64_t e = 0; e < EXPERTS; e++)
            assert_memory_equal(layers[i]->records[e], layers[0]->records[e], layers[0]->record_bytes);
    for (int i = 0; i < 4; i++)
        moxie_layer_destroy(layers[i]);
    close_checkpoint(&mapped);
    close_checkpoint(&read);
}

static char *folder, checkpoint[600];

static int set_up(void **state)
{
    folder = make_checkpoint(checkpoint, sizeof checkpoint);
    *state = checkpoint;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_rmdir(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_and_threads_make_the_same_records),
        cmocka_unit_test(the_first_failure_is_reported),
        cmocka_unit_test(no_more_than_the_result_and_one_expert),
        cmocka_unit_test(read_files_do_not_stay_in_memory),
        cmocka_unit_test(the_same_records_again),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
