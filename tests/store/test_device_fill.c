/* SPDX-License-Identifier: Apache-2.0
 *
 * test_device_fill.c - records of an expert file on their way to a GPU: they arrive, by any executor and beside fills
 * of other threads; the ring of pinned memory is made once and freed with the last layer; failures are errors and leave
 * nothing.
 */
#include "test_layer.h"

#include <fcntl.h>
#include <moxie/moxie_store.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "activation/activation.h"
#include "layer/weights/layer.h"
#include "layer/weights/pinned_ring.h"
#include "store/expert_file.h"
#include "test_cuda_table.h"

enum { RING = MOX_RING_CHUNK * MOX_RING_CHUNKS };

static char folder[] = "/tmp/moxie-test-XXXXXX", large[64], small[64];

/* ---- files --------------------------------------------------------------------------------------------- */

static void write_file(const char *path, int64_t experts)
{
    const test_layer_limits limits = { .weight = test_weight_quant_named("bf16"),
                                       .act = &test_act_quants[0],
                                       .no_parallel = true,
                                       .experts = experts,
                                       .top_k = 2,
                                       .hidden = 900,
                                       .intermediate = 700 };
    moxie_expert_writer_options options = MOXIE_EXPERT_WRITER_OPTIONS_INIT;
    moxie_expert_writer *writer = NULL;
    moxie_error error;
    test_layer t;
    uint64_t seed = 4100;
    for (;; test_layer_free(&t)) {
        test_rng rng = { test_seed(seed++) };
        test_layer_make(&t, &rng, &limits);
        if (t.config.shared.intermediate > 0 && t.config.routing.select != MOXIE_SELECT_CUSTOM &&
            t.config.tp_size <= 1 && mox_activation_is_gated(t.config.activation.kind))
            break;
    }
    options.target = "moxie-sm80";
    assert_ok(moxie_expert_writer_open(path, &t.config, &t.weights, &options, &writer, &error), &error);
    for (int64_t e = 0; e < experts; e++)
        assert_ok(moxie_expert_writer_put(writer, e, 0, &error), &error);
    assert_ok(moxie_expert_writer_finish(writer, &error), &error);
    test_layer_free(&t);
}

static int begin_files(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(large, sizeof large, "%s/large.moxie", folder);
    snprintf(small, sizeof small, "%s/small.moxie", folder);
    write_file(large, 10);
    write_file(small, 2);
    return 0;
}

static int end_files(void **state)
{
    (void)state;
    unlink(large);
    unlink(small);
    return rmdir(folder);
}

static moxie_expert_file *open_file(const char *path, int32_t access)
{
    moxie_expert_file_options options = MOXIE_EXPERT_FILE_OPTIONS_INIT;
    moxie_expert_file *file = NULL;
    moxie_error error;
    options.access = access;
    assert_ok(moxie_expert_file_open(path, &options, &file, &error), &error);
    return file;
}

/* ---- layers -------------------------------------------------------------------------------------------- */

static moxie_options options_of(const moxie_executor *executor)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.backend = MOXIE_BACKEND_CUDA;
    options.executor = executor;
    return options;
}

static void compare_records(const moxie_layer *layer, const moxie_expert_file *file)
{
    const mox_expert_entry *shared = &file->index[layer->config.experts];
    for (int32_t s = 0; s < layer->slots; s++)
        assert_memory_equal(layer->records[s], file->data + file->index[layer->expert_of[s]].range.offset,
                            layer->record_bytes);
    assert_non_null(layer->shared_record);
    assert_memory_equal(layer->shared_record, file->data + shared->range.offset, layer->shared_bytes);
}

static moxie_layer *open_layer(const moxie_expert_file *file, const moxie_executor *executor)
{
    const moxie_options options = options_of(executor);
    moxie_layer *layer = NULL;
    moxie_error error;
    assert_ok(moxie_layer_open_file(file, NULL, &options, &layer, &error), &error);
    compare_records(layer, file);
    return layer;
}

static moxie_cuda_fill fill_of(const moxie_layer *layer)
{
    moxie_cuda_fill fill = MOXIE_CUDA_FILL_INIT;
    assert_int_equal(moxie_cuda_layer_fill(layer, &fill), 1);
    assert_int_equal(fill.bytes, (uint64_t)layer->slots * layer->record_bytes + layer->shared_bytes);
    assert_true(fill.fill_seconds > 0 && fill.allocate_seconds > 0 && fill.pin_seconds >= 0);
    return fill;
}

/* ---- they arrive ---------------------------------------------------------------------------------------- */

static void run_backwards(void *self, int64_t tasks, moxie_task_fn fn, void *context)
{
    (void)self;
    for (int64_t task = tasks - 1; task >= 0; task--)
        fn(context, task, 0);
}

static void test_executors_of_all_kinds(void **state)
{
    static const moxie_executor backwards = { .workers = 4, .run = run_backwards };
    moxie_executor *pool = NULL;
    moxie_error error;
    (void)state;
    assert_ok(moxie_executor_create(5, &pool, &error), &error);
    const moxie_executor *const executors[] = { NULL, &backwards, pool };
    for (int32_t access = MOXIE_EXPERT_MAP; access <= MOXIE_EXPERT_READ; access++)
        for (size_t i = 0; i < sizeof executors / sizeof executors[0]; i++) {
            moxie_expert_file *file = open_file(large, access);
            moxie_layer *layer = open_layer(file, executors[i]);
            const moxie_cuda_fill fill = fill_of(layer);
            assert_int_equal(fill.workers, executors[i] != NULL ? executors[i]->workers : 1);
            assert_int_equal(fill.pinned_bytes, RING);
            assert_true(fill.bytes > RING); /* chunks are used again */
            moxie_layer_destroy(layer);
            moxie_expert_file_close(file);
        }
    moxie_executor_destroy(pool);
}

static void test_layers_without_a_fill(void **state)
{
    moxie_expert_file *file = open_file(small, MOXIE_EXPERT_MAP);
    moxie_cuda_fill fill = MOXIE_CUDA_FILL_INIT;
    moxie_layer *layer = open_layer(file, NULL);
    (void)state;
    fill.struct_size = 0;
    assert_int_equal(moxie_cuda_layer_fill(layer, &fill), 0);
    assert_int_equal(moxie_cuda_layer_fill(layer, NULL), 0);
    assert_int_equal(moxie_cuda_layer_fill(NULL, &fill), 0);
    moxie_layer_destroy(layer);
    moxie_expert_file_close(file);
}

/* ---- pinned memory -------------------------------------------------------------------------------------- */

static const mox_cuda_table *real;
static mox_cuda_table counting;
static _Atomic int made, freed;

static moxie_status allocate_pinned(uint64_t bytes, void **out, moxie_error *error)
{
    made++;
    return real->allocate_pinned(bytes, out, error);
}

static void release_pinned(void *memory)
{
    freed += memory != NULL;
    real->release_pinned(memory);
}

static void count_pinned(void)
{
    assert_int_equal(mox_cuda_open(&real, NULL), MOXIE_OK);
    counting = *real;
    counting.allocate_pinned = allocate_pinned;
    counting.release_pinned = release_pinned;
    mox_cuda_replace(&counting);
    made = freed = 0;
}

/* The ring outlives the layer that made it. */
static void test_ring_is_made_once(void **state)
{
    enum { LAYERS = 3 };
    moxie_expert_file *file = open_file(large, MOXIE_EXPERT_MAP);
    moxie_layer *layers[LAYERS];
    (void)state;
    count_pinned();
    for (int i = 0; i < LAYERS; i++) {
        layers[i] = open_layer(file, NULL);
        assert_true((fill_of(layers[i]).pin_seconds > 0) == (i == 0));
        assert_int_equal(made, 1);
        if (i == 1)
            moxie_layer_destroy(layers[0]);
    }
    for (int i = 1; i < LAYERS; i++) {
        assert_int_equal(freed, 0);
        moxie_layer_destroy(layers[i]);
    }
    assert_int_equal(freed, 1);
    moxie_layer_destroy(open_layer(file, NULL)); /* and once more from the beginning */
    assert_int_equal(made, 2);
    assert_int_equal(freed, 2);
    moxie_expert_file_close(file);
}

/* A small layer makes a small ring, which a larger one replaces. */
static void test_ring_grows(void **state)
{
    moxie_expert_file *files[] = { open_file(small, MOXIE_EXPERT_MAP), open_file(large, MOXIE_EXPERT_MAP) };
    moxie_layer *layers[3];
    (void)state;
    count_pinned();
    layers[0] = open_layer(files[0], NULL);
    assert_int_equal(fill_of(layers[0]).pinned_bytes, fill_of(layers[0]).bytes);
    layers[1] = open_layer(files[1], NULL);
    assert_int_equal(fill_of(layers[1]).pinned_bytes, RING);
    assert_true(made == 2 && freed == 1);
    layers[2] = open_layer(files[0], NULL);
    assert_int_equal(fill_of(layers[2]).pinned_bytes, RING);
    assert_true(made == 2 && freed == 1);
    for (int i = 0; i < 3; i++)
        moxie_layer_destroy(layers[i]);
    assert_int_equal(freed, 2);
    moxie_expert_file_close(files[0]);
    moxie_expert_file_close(files[1]);
}

/* ---- several threads ------------------------------------------------------------------------------------ */

enum { THREADS = 4, ROUNDS = 2 };

static void *open_layers(void *context)
{
    const int *number = context;
    moxie_expert_file *file = open_file(*number % 2 == 0 ? large : small, MOXIE_EXPERT_MAP);
    moxie_executor *executor = NULL;
    moxie_error error;
    assert_ok(moxie_executor_create(2, &executor, &error), &error);
    for (int i = 0; i < ROUNDS; i++)
        moxie_layer_destroy(open_layer(file, executor));
    moxie_executor_destroy(executor);
    moxie_expert_file_close(file);
    return NULL;
}

static void test_fills_at_the_same_time(void **state)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    moxie_expert_file *file = open_file(small, MOXIE_EXPERT_MAP);
    (void)state;
    count_pinned();
    moxie_layer *layer = open_layer(file, NULL); /* keeps the rings */
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, open_layers, &numbers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_in_range(made - freed, 1, THREADS); /* a ring for each fill at a time, at most */
    moxie_layer_destroy(layer);
    assert_int_equal(made, freed);
    moxie_expert_file_close(file);
}

/* ---- failures ------------------------------------------------------------------------------------------- */

/* Opens it with call 1, 1 + step, ... of the launch table failing, then with none: a failure is an error, and leaves
 * nothing (test_cuda_end() looks). */
static int open_despite_failures(const char *path, int step, const moxie_executor *executor)
{
    moxie_expert_file *file = open_file(path, MOXIE_EXPERT_MAP);
    const moxie_options options = options_of(executor);
    moxie_layer *layer = NULL;
    moxie_error error;
    bool failed = true;
    int n = 1;
    for (; failed; n += step) {
        test_cuda_fail_at(n);
        const moxie_status status = moxie_layer_open_file(file, NULL, &options, &layer, &error);
        failed = test_cuda_fail_at(0);
        assert_int_equal(status == MOXIE_OK, !failed);
        if (failed)
            assert_non_null(strstr(error.text, "told to fail"));
    }
    compare_records(layer, file);
    moxie_layer_destroy(layer);
    moxie_expert_file_close(file);
    return n;
}

static void test_failing_calls(void **state)
{
    moxie_executor *executor = NULL;
    moxie_error error;
    (void)state;
    if (test_cuda_is_lazy())
        skip();
    assert_ok(moxie_executor_create(3, &executor, &error), &error);
    assert_true(open_despite_failures(small, 1, executor) > 12); /* some failed while records were copied */
    assert_true(open_despite_failures(large, 9, executor) > 20);
    moxie_executor_destroy(executor);
}

/* A mapped file is read: when it has become shorter, that is an error. */
static void test_file_cut_short(void **state)
{
    moxie_expert_file *file = open_file(large, MOXIE_EXPERT_MAP);
    const moxie_options options = options_of(NULL);
    moxie_layer *layer = NULL;
    moxie_error error;
    const int empty = open("/dev/null", O_RDONLY);
    (void)state;
    assert_true(dup2(empty, file->fd) == file->fd);
    close(empty);
    assert_int_equal(moxie_layer_open_file(file, NULL, &options, &layer, &error), MOXIE_ERR_FORMAT);
    assert_non_null(strstr(error.text, "cut short"));
    moxie_expert_file_close(file);
}

#define ON_GPU(test) cmocka_unit_test_setup_teardown(test, test_cuda_begin, test_cuda_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_GPU(test_executors_of_all_kinds), ON_GPU(test_layers_without_a_fill),
        ON_GPU(test_ring_is_made_once),      ON_GPU(test_ring_grows),
        ON_GPU(test_fills_at_the_same_time), ON_GPU(test_failing_calls),
        ON_GPU(test_file_cut_short),
    };
    return cmocka_run_group_tests(tests, begin_files, end_files);
}
