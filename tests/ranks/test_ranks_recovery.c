/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ranks_recovery.c - a rank stops, the others go on without it:
 *
 *     all ranks run -> one stops -> the others fail and name it -> comm, slot map, layer, plan without it -> run
 *
 * The outputs have the bytes of one rank, which are those of a fresh start without the dead rank.
 */
#include "test_ranks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include <moxie/moxie_parallel.h>

enum { MAX_SLOTS = 256, DEADLINE = 3000 };

typedef struct trial {
    test_layer layer;
    test_ranks_spec before, after; /* of all ranks, and of those that are left */
    moxie_slot_map map, map_after;
    int32_t expert_of[MAX_SLOTS], first_slot[TEST_MAX_RANKS];
    int32_t dead;
    bool leaves; /* destroys its comm; else it stops */
    char *one;   /* the output of one rank */
    char *recovered;
    atomic_int ended;
} trial;

typedef struct rank_thread {
    trial *of;
    int32_t rank;
    moxie_comm *comm;
    char failed[1024]; /* "": all went well */
    pthread_t thread;
} rank_thread;

/* Without the dead rank, from what its comm says; then a run on the new one. */
static void recover(rank_thread *self)
{
    trial *t = self->of;
    moxie_comm *left = NULL;
    moxie_error error = { 0 };
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    int32_t dead[TEST_MAX_RANKS], count = 0;
    for (int32_t r = 0; r < t->before.ranks; r++)
        if (moxie_comm_lost(self->comm, r))
            dead[count++] = r;
    TEST_EXPECT(self, count == 1 && dead[0] == t->dead, "rank %d finds %d dead ranks", (int)self->rank, (int)count);
    options.deadline_ms = 20000;
    moxie_status status = moxie_comm_local_without(self->comm, &t->dead, 1, &options, &left, &error);
    moxie_comm_destroy(self->comm);
    TEST_EXPECT(self, status == MOXIE_OK, "rank %d: %s", (int)self->rank, error.text);
    if (status == MOXIE_OK)
        status = test_ranks_run_one(&t->layer, &t->after, left, t->recovered, &error);
    TEST_EXPECT(self, status == MOXIE_OK, "rank %d: %s", (int)self->rank, error.text);
    moxie_comm_destroy(left);
}

static void *rank_main(void *user)
{
    rank_thread *self = user;
    trial *t = self->of;
    moxie_error error = { 0 };
    char *output = malloc(test_layer_output_bytes(&t->layer) + 1);
    moxie_status status = test_ranks_run_one(&t->layer, &t->before, self->comm, output, &error);
    TEST_EXPECT(self, status == MOXIE_OK, "rank %d: %s", (int)self->rank, error.text);
    if (self->rank != t->dead) {
        status = test_ranks_run_one(&t->layer, &t->before, self->comm, output, &error);
        TEST_EXPECT(self, status == MOXIE_ERR_TIMEOUT, "rank %d runs with rank %d", (int)self->rank, (int)t->dead);
        recover(self);
    }
    atomic_fetch_add(&t->ended, self->rank != t->dead);
    while (self->rank == t->dead && !t->leaves && atomic_load(&t->ended) < t->before.ranks - 1)
        nanosleep(&(struct timespec) { .tv_nsec = 1000000 }, NULL);
    if (self->rank == t->dead)
        moxie_comm_destroy(self->comm);
    free(output);
    return NULL;
}

static void begin(trial *t, uint64_t seed)
{
    const test_layer_limits limits = { .tokens = 21, .experts = 10, .no_parallel = true, .plain_routing = true };
    test_rng rng = { seed };
    moxie_error error = { 0 };
    moxie_options options = MOXIE_OPTIONS_INIT;
    test_layer_make(&t->layer, &rng, &limits);
    options.max_tokens = t->layer.args.tokens + 1;
    test_layer_plan(&t->layer, &options);
    t->one = test_layer_output(&t->layer, t->layer.plan);
    t->recovered = calloc(test_layer_output_bytes(&t->layer) + 1, 1);
    t->before = (test_ranks_spec) { .ranks = (int32_t)test_range(&rng, 2, 5),
                                    .layout = (moxie_token_layout)(seed % 2 == 0 ? MOXIE_TOKENS_SHARDED
                                                                                 : MOXIE_TOKENS_SCATTERED),
                                    .options = MOXIE_OPTIONS_INIT };
    test_ranks_cut(&t->before, &rng, t->layer.args.tokens);
    t->dead = (int32_t)test_below(&rng, (uint64_t)t->before.ranks);
    t->leaves = seed % 4 != 1; /* others wait for one that stops until the deadline */
    t->map = test_ranks_map(&t->layer, &rng, t->before.ranks);
    t->before.map = &t->map;
    t->map_after = t->map;
    t->map_after.expert_of = t->expert_of;
    t->map_after.first_slot = t->first_slot;
    t->map_after.ranks--;
    t->map_after.generation++;
    assert_ok(
        moxie_slot_map_without(&t->map, &t->dead, 1, NULL, t->expert_of, t->first_slot, &t->map_after.slots, &error),
        &error);
    t->after = t->before;
    t->after.ranks--;
    t->after.map = &t->map_after;
    test_ranks_cut(&t->after, &rng, t->layer.args.tokens);
}

static void survivors_go_on(void **state)
{
    (void)state;
    const int64_t trials = test_env("MOXIE_TEST_TRIALS", test_quick() || test_sanitized() ? 4 : 20);
    const uint64_t first = test_seed(4000);
    for (int64_t i = 0; i < trials; i++) {
        static trial t;
        rank_thread threads[TEST_MAX_RANKS];
        moxie_comm *comms[TEST_MAX_RANKS];
        moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
        moxie_error error = { 0 };
        t = (trial) { .dead = 0 };
        begin(&t, first + (uint64_t)i);
        options.deadline_ms = DEADLINE;
        assert_ok(moxie_comm_local_create(t.before.ranks, &options, comms, &error), &error);
        for (int32_t r = 0; r < t.before.ranks; r++) {
            threads[r] = (rank_thread) { .of = &t, .rank = r, .comm = comms[r] };
            assert_int_equal(pthread_create(&threads[r].thread, NULL, rank_main, &threads[r]), 0);
        }
        for (int32_t r = 0; r < t.before.ranks; r++)
            pthread_join(threads[r].thread, NULL);
        for (int32_t r = 0; r < t.before.ranks; r++)
            if (threads[r].failed[0] != 0)
                fail_msg("seed %llu: %s", (unsigned long long)first + (unsigned long long)i, threads[r].failed);
        assert_memory_equal(t.one, t.recovered, test_layer_output_bytes(&t.layer));
        free(t.one);
        free(t.recovered);
        test_layer_free(&t.layer);
    }
}

/* ---- comms of the ranks that are left ------------------------------------------------------------------ */

static void wrong_lists(void **state)
{
    (void)state;
    moxie_comm *comms[3], *next[3] = { NULL };
    moxie_error error = { 0 };
    const int32_t one[] = { 1 }, two[] = { 2 }, twice[] = { 1, 1 }, self[] = { 0 }, outside[] = { 3 };
    assert_ok(moxie_comm_local_create(3, NULL, comms, &error), &error);
    assert_int_equal(moxie_comm_local_without(comms[0], twice, 2, NULL, next, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_comm_local_without(comms[0], self, 1, NULL, next, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "names itself"));
    assert_int_equal(moxie_comm_local_without(comms[0], outside, 1, NULL, next, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_comm_local_without(comms[0], NULL, 1, NULL, next, &error), MOXIE_ERR_ARGUMENT);
    assert_ok(moxie_comm_local_without(comms[0], one, 1, NULL, &next[0], &error), &error);
    assert_int_equal(moxie_comm_local_without(comms[0], one, 1, NULL, &next[1], &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_comm_local_without(comms[1], two, 1, NULL, &next[1], &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "names dead ranks 2, but the first rank that called named 1"));
    assert_int_equal(moxie_comm_ranks(next[0]), 2);
    assert_int_equal(moxie_comm_rank(next[0]), 0);
    moxie_comm_destroy(next[0]); /* rank 2's place is never taken */
    for (int r = 0; r < 3; r++)
        moxie_comm_destroy(comms[r]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(survivors_go_on), cmocka_unit_test(wrong_lists) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
