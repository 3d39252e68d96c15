/* SPDX-License-Identifier: Apache-2.0
 *
 * test_allocator.c - an allocator of the caller's: blocks are aligned as asked and released with their size; results do
 * not depend on what the memory held before; when it may be set; what happens when it has no memory.
 */
#include "test_layer.h"

#include <moxie/moxie_ckpt.h>
#include <moxie/moxie_prepare.h>

#include "base/memory.h"

/* An allocator that remembers every block, fills it with a pattern when it is allocated and released, and checks the
 * bytes around it. */
enum { MOST_BLOCKS = 4096, EDGE = 64 };

typedef struct block {
    unsigned char *memory;
    void *base;
    uint64_t bytes;
} block;

typedef struct keeper {
    moxie_allocator allocator;
    block blocks[MOST_BLOCKS];
    int64_t live, taken, most_align;
    uint64_t fail_at; /* the n-th allocation from now on fails; 0: none does */
    int broken;
    int lock;
} keeper;

static void take_lock(keeper *k)
{
    while (__atomic_exchange_n(&k->lock, 1, __ATOMIC_ACQUIRE) != 0)
        continue;
}

static void give_lock(keeper *k)
{
    __atomic_store_n(&k->lock, 0, __ATOMIC_RELEASE);
}

static void *keep(keeper *k, uint64_t bytes, uint64_t align)
{
    if (bytes == 0 || align < 16 || align > (2 << 20) || (align & (align - 1)) != 0)
        k->broken++;
    if (k->fail_at > 0 && --k->fail_at == 0)
        return NULL;
    for (int i = 0; i < MOST_BLOCKS; i++) {
        block *b = &k->blocks[i];
        if (b->memory != NULL)
            continue;
        const uint64_t before = align > EDGE ? align : EDGE;
        if (posix_memalign(&b->base, (size_t)before, (size_t)(before + bytes + EDGE)) != 0)
            return NULL;
        b->memory = (unsigned char *)b->base + before;
        b->bytes = bytes;
        memset(b->memory - EDGE, 0xe1, EDGE);
        memset(b->memory, k->allocator.zeroed ? 0 : 0xa5, (size_t)bytes);
        memset(b->memory + bytes, 0xe1, EDGE);
        k->live++;
        k->taken++;
        k->most_align = (int64_t)align > k->most_align ? (int64_t)align : k->most_align;
        return b->memory;
    }
    return NULL;
}

static void *take(void *self, uint64_t bytes, uint64_t align)
{
    keeper *k = self;
    take_lock(k);
    void *memory = keep(k, bytes, align);
    give_lock(k);
    return memory;
}

static void give(void *self, void *memory, uint64_t bytes)
{
    keeper *k = self;
    take_lock(k);
    block *b = k->blocks;
    while (b < k->blocks + MOST_BLOCKS && (memory == NULL || b->memory != memory))
        b++;
    if (b == k->blocks + MOST_BLOCKS || b->bytes != bytes) {
        k->broken++;
    } else {
        for (int i = 0; i < EDGE; i++)
            k->broken += b->memory[i - EDGE] != 0xe1 || b->memory[bytes + (uint64_t)i] != 0xe1;
        memset(b->memory, 0xdd, (size_t)bytes);
        free(b->base);
        b->memory = NULL;
        k->live--;
    }
    give_lock(k);
}

static keeper *begin(bool zeroed)
{
    static keeper k;
    moxie_error error;
    k = (keeper) { .allocator = MOXIE_ALLOCATOR_INIT };
    k.allocator.zeroed = zeroed;
    k.allocator.self = &k;
    k.allocator.allocate = take;
    k.allocator.release = give;
    assert_ok(moxie_set_allocator(&k.allocator, &error), &error);
    return &k;
}

static void end(const keeper *k)
{
    moxie_error error;
    assert_int_equal(k->live, 0);
    assert_int_equal(k->broken, 0);
    assert_ok(moxie_set_allocator(NULL, &error), &error);
}

/* ---- a layer ------------------------------------------------------------------------------------------------ */

/* Makes, checks and destroys a layer; returns its output. */
static void run_layer(test_layer *t, int32_t threads, void *output)
{
    moxie_error error;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_executor *pool;
    moxie_layer *layer;
    moxie_plan *plan;
    test_report report = { 0 };
    assert_ok(moxie_executor_create(threads, &pool, &error), &error);
    options.executor = pool;
    assert_ok(moxie_layer_create(&t->config, &options, &layer, &error), &error);
    assert_ok(moxie_layer_prepare(layer, &t->weights, &options, &error), &error);
    assert_ok(moxie_layer_update_expert(layer, 0, &t->experts[0], &error), &error);
    assert_ok(moxie_layer_verify(layer, &error), &error);
    assert_ok(moxie_plan_create(layer, &options, &plan, &error), &error);
    test_layer_workspace(t, plan);
    assert_ok(test_plan_check(plan, &t->weights, &t->args, &report, &error), &error);
    const uint64_t before = mox_alloc_count();
    assert_ok(moxie_plan_run(plan, &t->args, &error), &error);
    assert_int_equal(mox_alloc_count(), before);
    memcpy(output, t->args.output, test_layer_output_bytes(t));
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
    moxie_executor_destroy(pool);
}

static void a_layer_lives_in_it(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 5, .experts = 5, .largest = 90, .no_parallel = true };
    for (uint64_t seed = 0; seed < 12; seed++) {
        test_rng rng = { test_seed(9300) + seed };
        test_layer t;
        test_layer_make(&t, &rng, &limits);
        const size_t bytes = test_layer_output_bytes(&t);
        void *want = malloc(bytes), *got = malloc(bytes);
        run_layer(&t, 1, want);
        keeper *k = begin(seed % 2);
        run_layer(&t, 1 + (int32_t)(seed % 3), got);
        assert_true(k->taken > 10 && k->most_align >= 4096);
        end(k);
        if (memcmp(got, want, bytes) != 0)
            fail_msg("another allocator changed the output: %s", t.text);
        free(want);
        free(got);
        test_layer_free(&t);
    }
}

/* ---- everything else that takes memory ------------------------------------------------------------------------ */

static void checkpoints_live_in_it(void **state)
{
    (void)state;
    moxie_error error;
    char *dir = test_tmpdir(), path[600];
    moxie_synth_options synth = MOXIE_SYNTH_OPTIONS_INIT;
    moxie_model *model;
    moxie_model_layer *loaded;
    moxie_preparation *preparation;
    moxie_preparation_options how = MOXIE_PREPARATION_OPTIONS_INIT;
    moxie_preparation_info info = MOXIE_PREPARATION_INFO_INIT;
    moxie_prepared_tensor tensor = MOXIE_PREPARED_TENSOR_INIT;
    void *tensors[64];
    synth.layers = 1;
    synth.experts = 8;
    synth.hidden = 256;
    synth.intermediate = 128;
    synth.format = "gptq";
    snprintf(path, sizeof path, "%s/model", dir);
    keeper *k = begin(false);
    assert_ok(moxie_synth_write("qwen3-30b-a3b", path, &synth, &error), &error);
    assert_ok(moxie_model_open(path, NULL, &model, &error), &error);
    assert_ok(moxie_model_load_layer(model, 0, &loaded, &error), &error);
    how.layout = "marlin-gptq";
    const moxie_expert *expert = &moxie_model_layer_weights(loaded)->experts[3];
    assert_ok(moxie_preparation_create(moxie_model_layer_config(loaded), &how, expert, &preparation, &error), &error);
    assert_ok(moxie_preparation_get_info(preparation, &info, &error), &error);
    for (int32_t i = 0; i < info.n_tensors; i++) {
        assert_true(moxie_preparation_tensor_at(preparation, i, &tensor));
        tensors[i] = malloc((size_t)tensor.bytes);
    }
    assert_ok(moxie_preparation_pack(preparation, expert, tensors, NULL, &error), &error);
    for (int32_t i = 0; i < info.n_tensors; i++)
        free(tensors[i]);
    moxie_preparation_destroy(preparation);
    moxie_model_layer_free(loaded);
    moxie_model_close(model);
    assert_true(k->taken > 20);
    end(k);
    test_rmdir(dir);
}

/* ---- rules ------------------------------------------------------------------------------------------------------ */

static void it_is_set_while_nothing_is_held(void **state)
{
    (void)state;
    moxie_error error = { 0 };
    moxie_executor *executor;
    assert_ok(moxie_executor_create(1, &executor, &error), &error);
    moxie_allocator a = MOXIE_ALLOCATOR_INIT;
    a.allocate = take;
    a.release = give;
    assert_int_equal(moxie_set_allocator(&a, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "holds 1 blocks"));
    assert_int_equal(moxie_set_allocator(NULL, &error), MOXIE_ERR_ARGUMENT);
    moxie_executor_destroy(executor);
    a.release = NULL;
    assert_int_equal(moxie_set_allocator(&a, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "release is NULL"));
    a.struct_size = 0;
    assert_int_equal(moxie_set_allocator(&a, &error), MOXIE_ERR_ARGUMENT);
    keeper *k = begin(false);
    assert_ok(moxie_executor_create(1, &executor, &error), &error);
    assert_int_equal(moxie_set_allocator(NULL, &error), MOXIE_ERR_ARGUMENT);
    moxie_executor_destroy(executor);
    end(k);
}

/* Each allocation fails once: that is an error as with the heap, and no block is lost. */
static void it_may_have_none(void **state)
{
    (void)state;
    const test_layer_limits limits = { .tokens = 2, .experts = 3, .largest = 24, .no_parallel = true };
    test_rng rng = { test_seed(9400) };
    test_layer t;
    test_layer_make(&t, &rng, &limits);
    keeper *k = begin(false);
    moxie_status status = MOXIE_ERR_MEMORY;
    uint64_t n = 0;
    while (status == MOXIE_ERR_MEMORY) {
        moxie_error error = { 0 };
        moxie_layer *layer = NULL;
        moxie_plan *plan = NULL;
        k->fail_at = ++n;
        status = moxie_layer_create(&t.config, NULL, &layer, &error);
        if (status == MOXIE_OK)
            status = moxie_layer_prepare(layer, &t.weights, NULL, &error);
        if (status == MOXIE_OK)
            status = moxie_plan_create(layer, NULL, &plan, &error);
        k->fail_at = 0;
        moxie_plan_destroy(plan);
        moxie_layer_destroy(layer);
        assert_int_equal(k->live, 0);
        assert_true(status == MOXIE_OK || error.text[0] != '\0');
    }
    assert_int_equal(status, MOXIE_OK);
    assert_true(n > 10);
    end(k);
    test_layer_free(&t);
}

/* Blocks that grow keep their bytes. The hook by which tests make the n-th allocation fail still works. */
static void blocks_of_every_kind(void **state)
{
    (void)state;
    keeper *k = begin(false);
    unsigned char *a = mox_alloc(100), *b = mox_alloc_aligned(1000, 256), *c = mox_alloc_pages(3 << 20),
                  *d = mox_realloc(NULL, 10), *none = mox_alloc(0);
    assert_int_equal((uintptr_t)a % 16, 0);
    assert_int_equal((uintptr_t)b % 256, 0);
    assert_int_equal((uintptr_t)c % (2 << 20), 0);
    assert_non_null(none);
    for (int i = 0; i < 100; i++)
        assert_true(a[i] == 0 && b[10 * i] == 0 && c[30000 * i] == 0);
    memset(d, 7, 10);
    d = mox_realloc(d, 5000);
    for (int i = 0; i < 10; i++)
        assert_int_equal(d[i], 7);
    d = mox_realloc(d, 4);
    assert_int_equal(d[3], 7);
    mox_alloc_fail_at(1);
    assert_null(mox_realloc(d, 100));
    assert_int_equal(d[3], 7);
    assert_null(mox_alloc(UINT64_MAX));
    mox_free(a);
    mox_free(b);
    mox_free_pages(c);
    mox_free(d);
    mox_free(none);
    mox_free(NULL);
    mox_free_pages(NULL);
    end(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_lives_in_it),
        cmocka_unit_test(checkpoints_live_in_it),
        cmocka_unit_test(it_is_set_while_nothing_is_held),
        cmocka_unit_test(it_may_have_none),
        cmocka_unit_test(blocks_of_every_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
