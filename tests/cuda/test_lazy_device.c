/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lazy_device.c - the lazy launch table itself (test_lazy.h): work that is ordered gives its bytes with every
 * seed, and each kind of absent wait gives others with some.
 */
#include "test_cuda_table.h"
#include "test_lazy.h"
#include "test_support.h"

enum { SEEDS = 64, BYTES = 4096 };

static const mox_cuda_table *table;
static mox_cuda_stream stream[2];
static mox_cuda_event event[2];
static uint8_t *a, *b, *c; /* device, device, pinned */

static int begin(void **state)
{
    const mox_cuda_table *plain;
    void *memory[3];
    (void)test_cuda_begin(state);
    assert_int_equal(mox_cuda_open(&plain, NULL), MOXIE_OK);
    table = test_lazy_wrap(plain, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(table->stream_create(&stream[i], NULL), MOXIE_OK);
        assert_int_equal(table->event_create(&event[i], NULL), MOXIE_OK);
        assert_int_equal(table->allocate(BYTES, &memory[i], NULL), MOXIE_OK);
    }
    assert_int_equal(table->allocate_pinned(BYTES, &memory[2], NULL), MOXIE_OK);
    a = memory[0];
    b = memory[1];
    c = memory[2];
    return 0;
}

static int end(void **state)
{
    for (int i = 0; i < 2; i++) {
        table->stream_destroy(stream[i]);
        table->event_destroy(event[i]);
    }
    table->release(a);
    table->release(b);
    table->release_pinned(c);
    assert_int_equal(test_lazy_end(), 0);
    return test_cuda_end(state);
}

static void fill(uint8_t *to, int byte, int on)
{
    assert_int_equal(table->fill(to, byte, BYTES, stream[on], NULL), MOXIE_OK);
}

static void copy(void *to, const void *from, int on)
{
    assert_int_equal(table->copy(to, from, BYTES, stream[on], NULL), MOXIE_OK);
}

static void wait_for(int on)
{
    assert_int_equal(table->stream_wait(stream[on], NULL), MOXIE_OK);
}

/* What comes next on stream `on` waits for what is on the other so far. */
static void follow(int on)
{
    assert_int_equal(table->event_record(event[on], stream[1 - on], NULL), MOXIE_OK);
    assert_int_equal(table->stream_follow(stream[on], event[on], NULL), MOXIE_OK);
}

static void clear(void)
{
    fill(a, 0, 0);
    fill(b, 0, 0);
    fill(c, 0, 0);
    wait_for(0);
}

/* ---- two streams ----------------------------------------------------------------------------------------- */

enum { READ = 1, OVERWRITE = 2, JOIN = 4, ALL = 7 };

/* a = 1 on stream 0; b = a on 1; a = 2 on 0; b + 0 comes to c on 0. `waits`: which of the three waits are there. */
static void enqueue_chain(int waits)
{
    fill(a, 1, 0);
    if (waits & READ)
        follow(1);
    copy(b, a, 1);
    if (waits & OVERWRITE)
        follow(0);
    fill(a, 2, 0);
    if (waits & JOIN)
        follow(0);
    copy(c, b, 0);
}

/* In how many of the seeds c is what it must be. */
static int right_chains(int waits)
{
    int right = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        test_lazy_seed((uint64_t)seed);
        clear();
        enqueue_chain(waits);
        wait_for(0);
        right += c[0] == 1 && c[BYTES - 1] == 1;
        wait_for(1);
    }
    return right;
}

static void an_absent_wait_is_found(void **state)
{
    (void)state;
    assert_int_equal(right_chains(ALL), SEEDS);
    assert_true(right_chains(ALL - READ) < SEEDS);
    assert_int_equal(right_chains(ALL - JOIN), SEEDS); /* the wait before covers it */
    assert_true(right_chains(READ | JOIN) < SEEDS);
    assert_true(right_chains(READ) < SEEDS);
}

/* ---- the host -------------------------------------------------------------------------------------------- */

static void pinned_memory_is_read_and_written_later(void **state)
{
    (void)state;
    clear();
    fill(a, 3, 0);
    copy(c, a, 0);
    assert_int_equal(c[0], 0);
    assert_int_equal(table->event_record(event[0], stream[0], NULL), MOXIE_OK);
    assert_int_equal(table->event_wait(event[0], NULL), MOXIE_OK);
    assert_int_equal(c[0], 3);
    copy(b, c, 0);
    memset(c, 4, BYTES); /* too early */
    copy(c, b, 0);
    wait_for(0);
    assert_int_equal(c[0], 4);
}

static void pageable_memory_is_read_and_written_at_once(void **state)
{
    uint8_t from[BYTES], to[BYTES] = { 0 };
    (void)state;
    memset(from, 5, sizeof from);
    copy(a, from, 0);
    memset(from, 6, sizeof from);
    copy(to, a, 0);
    assert_int_equal(to[BYTES - 1], 5);
}

static void arguments_are_copied_at_the_launch(void **state)
{
    mox_cuda_copy_rows_args args = { .rows = 1,
                                     .cols = BYTES / 4,
                                     .to_cols = BYTES / 4,
                                     .from = a,
                                     .to = b,
                                     .from_stride = BYTES,
                                     .to_stride = BYTES,
                                     .from_dtype = MOXIE_F32,
                                     .to_dtype = MOXIE_F32 };
    (void)state;
    clear();
    fill(a, 7, 0);
    assert_int_equal(table->copy_rows(&args, stream[0], NULL), MOXIE_OK);
    memset(&args, 0xee, sizeof args);
    copy(c, b, 0);
    wait_for(0);
    assert_int_equal(c[BYTES - 1], 7);
}

/* A stream that waits keeps what was recorded when it began to; one that waits for nothing goes on. */
static void events_are_recorded_again(void **state)
{
    int32_t done = 0;
    (void)state;
    clear();
    assert_int_equal(table->event_done(event[1], &done, NULL), MOXIE_OK);
    assert_int_equal(done, 1);
    assert_int_equal(table->stream_follow(stream[1], event[1], NULL), MOXIE_OK);
    fill(a, 8, 0);
    follow(1);
    copy(b, a, 1);
    assert_int_equal(table->event_record(event[1], stream[1], NULL), MOXIE_OK); /* behind the wait for itself */
    assert_int_equal(table->event_wait(event[1], NULL), MOXIE_OK);
    copy(c, b, 0);
    wait_for(0);
    assert_int_equal(c[0], 8);
}

/* ---- graphs ---------------------------------------------------------------------------------------------- */

static void *capture(int waits, moxie_status want)
{
    void *graph = NULL;
    assert_int_equal(table->capture_begin(stream[0], NULL), MOXIE_OK);
    enqueue_chain(waits);
    assert_int_equal(table->capture_end(stream[0], &graph, NULL), want);
    return graph;
}

static void graphs_fork_and_join(void **state)
{
    void *graph = capture(ALL, MOXIE_OK);
    int32_t captured = 1;
    (void)state;
    assert_int_equal(table->capturing(stream[1], &captured, NULL), MOXIE_OK);
    assert_int_equal(captured, 0);
    for (int seed = 0; seed < SEEDS; seed++) {
        test_lazy_seed((uint64_t)seed);
        clear();
        assert_int_equal(c[0], 0);
        for (int launch = 0; launch < 2; launch++)
            assert_int_equal(table->graph_launch(graph, stream[0], NULL), MOXIE_OK);
        wait_for(0);
        assert_int_equal(c[0], 1);
    }
    table->graph_destroy(graph);
    (void)capture(READ, MOXIE_ERR_IO); /* not joined */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_absent_wait_is_found, begin, end),
        cmocka_unit_test_setup_teardown(pinned_memory_is_read_and_written_later, begin, end),
        cmocka_unit_test_setup_teardown(pageable_memory_is_read_and_written_at_once, begin, end),
        cmocka_unit_test_setup_teardown(arguments_are_copied_at_the_launch, begin, end),
        cmocka_unit_test_setup_teardown(events_are_recorded_again, begin, end),
        cmocka_unit_test_setup_teardown(graphs_fork_and_join, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
