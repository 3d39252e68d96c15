/* SPDX-License-Identifier: Apache-2.0
 *
 * test_mover.c - experts move from one slot map to another, in steps between runs:
 *
 *     schedule   each map in between is valid, no rank holds more than its slots, a step moves at most what it may, the
 *                steps end at the target, and nothing moves where nothing changes
 *     layers     random layers on local ranks: after each step the outputs have the bytes of one rank
 */
#include "test_ranks.h"

#include <pthread.h>

#include <moxie/moxie_parallel.h>

#include "route/move_schedule.h"

/* ---- the schedule -------------------------------------------------------------------------------------- */

enum { MAX_SLOTS = 160, MAX_RANKS = 6, MAX_EXPERTS = 14 };

typedef struct maps {
    moxie_slot_map now;
    int32_t expert_of[MAX_SLOTS], first_slot[MAX_RANKS + 1];
    bool wanted[MAX_RANKS * MAX_EXPERTS];
    mox_move_target target;
} maps;

/* Each expert on a rank at least, at most `most` on one. Returns the largest number on one rank. */
static int32_t any_places(test_rng *rng, int32_t ranks, int32_t experts, bool *has)
{
    int32_t count[MAX_RANKS] = { 0 }, largest = 0;
    memset(has, 0, (size_t)(ranks * experts));
    for (int32_t e = 0; e < experts; e++)
        for (int32_t n = 0, times = 1 + (test_below(rng, 3) == 0); n < times; n++) {
            const int32_t r = (int32_t)test_below(rng, (uint64_t)ranks);
            count[r] += !has[r * experts + e];
            has[r * experts + e] = true;
        }
    for (int32_t r = 0; r < ranks; r++)
        largest = count[r] > largest ? count[r] : largest;
    return largest;
}

static void make_maps(maps *m, test_rng *rng)
{
    bool has[MAX_RANKS * MAX_EXPERTS];
    const int32_t ranks = (int32_t)test_range(rng, 1, MAX_RANKS), experts = (int32_t)test_range(rng, 1, MAX_EXPERTS);
    any_places(rng, ranks, experts, has);
    any_places(rng, ranks, experts, m->wanted);
    int32_t slot = 0;
    for (int32_t r = 0; r < ranks; r++) {
        int32_t now = 0, later = 0;
        m->first_slot[r] = slot;
        for (int32_t e = 0; e < experts; e++) {
            now += has[r * experts + e];
            later += m->wanted[r * experts + e];
        }
        for (int32_t e = 0; e < experts; e++)
            if (has[r * experts + e])
                m->expert_of[slot++] = e;
        for (int32_t i = now; i < (now > later ? now : later) + 1; i++) /* one spare slot, the least that works */
            m->expert_of[slot++] = -1;
    }
    m->first_slot[ranks] = slot;
    m->now = (moxie_slot_map)MOXIE_SLOT_MAP_INIT;
    m->now.ranks = ranks;
    m->now.experts = experts;
    m->now.slots = slot;
    m->now.expert_of = m->expert_of;
    m->now.first_slot = m->first_slot;
    m->target = (mox_move_target) { ranks, experts, m->wanted };
}

static bool holds(const maps *m, int32_t r, int32_t e)
{
    int32_t times = 0;
    for (int32_t p = m->first_slot[r]; p < m->first_slot[r + 1]; p++)
        times += m->expert_of[p] == e;
    assert_true(times <= 1);
    return times == 1;
}

static void steps_reach_the_target(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        static maps m;
        test_rng rng = { test_seed(77) + seed };
        mox_move moves[MAX_SLOTS];
        moxie_error error = { 0 };
        make_maps(&m, &rng);
        const int32_t first_left = mox_moves_left(&m.now, &m.target), max = (int32_t)test_range(&rng, 1, 5);
        int32_t moved = 0, left = first_left;
        while (left > 0) {
            const int32_t count = mox_moves_next(&m.now, &m.target, max, moves);
            assert_in_range(count, 1, max);
            for (int32_t i = 0; i < count; i++) {
                assert_true(holds(&m, moves[i].from, moves[i].expert) && !holds(&m, moves[i].to, moves[i].expert));
                assert_true(m.wanted[moves[i].to * m.now.experts + moves[i].expert]);
            }
            assert_true(mox_moves_done(&m.now, &m.target, moves, count, m.expert_of));
            assert_ok(moxie_slot_map_check(&m.now, &error), &error);
            moved += count;
            left = mox_moves_left(&m.now, &m.target);
        }
        assert_int_equal(moved, first_left); /* no record travels twice */
        assert_int_equal(mox_moves_next(&m.now, &m.target, max, moves), 0);
        mox_moves_done(&m.now, &m.target, moves, 0, m.expert_of);
        for (int32_t r = 0; r < m.now.ranks; r++)
            for (int32_t e = 0; e < m.now.experts; e++)
                assert_int_equal(holds(&m, r, e), m.wanted[r * m.now.experts + e]);
        assert_false(mox_moves_done(&m.now, &m.target, moves, 0, m.expert_of));
    }
}

/* ---- layers -------------------------------------------------------------------------------------------- */

typedef struct trial {
    test_layer layer;
    moxie_slot_map before, after;
    int32_t ranks, spare;
    bool from_views;
    int32_t records; /* that a step may move; 0: any number */
    char *one;
    int64_t first[MAX_RANKS + 1];
    uint64_t moved; /* bytes, of rank 0's reports */
    int32_t steps;
} trial;

typedef struct rank_thread {
    trial *of;
    int32_t rank;
    moxie_comm *comm;
    char failed[1024];
    pthread_t thread;
} rank_thread;

static void run_and_compare(rank_thread *self, moxie_plan *plan, int32_t step)
{
    trial *t = self->of;
    const int64_t row = t->layer.config.hidden * mox_dtype_bytes(t->layer.config.dtype);
    const int64_t first = t->first[self->rank], count = t->first[self->rank + 1] - first;
    moxie_run_args args = test_ranks_args(&t->layer, first, count);
    moxie_error error = { 0 };
    char *output = malloc((size_t)(count * row) + 1);
    args.output = output;
    test_ranks_workspace(plan, &args);
    const moxie_status status = moxie_plan_run(plan, &args, &error);
    TEST_EXPECT(self, status == MOXIE_OK, "rank %d after step %d: %s", (int)self->rank, (int)step, error.text);
    TEST_EXPECT(self, status != MOXIE_OK || memcmp(output, t->one + first * row, (size_t)(count * row)) == 0,
                "rank %d: other bytes after step %d", (int)self->rank, (int)step);
    free(args.workspace);
    free(output);
}

static void check_experts(rank_thread *self, const moxie_layer *layer)
{
    const trial *t = self->of;
    moxie_error error = { 0 };
    for (int32_t e = 0; e < t->before.experts; e++) {
        const void *data = NULL;
        uint64_t bytes = 0;
        bool want = false;
        for (int32_t p = t->after.first_slot[self->rank]; p < t->after.first_slot[self->rank + 1]; p++)
            want = want || t->after.expert_of[p] == e;
        moxie_layer_record(layer, e, &data, &bytes, NULL);
        TEST_EXPECT(self, (data != NULL) == want, "rank %d and expert %d", (int)self->rank, (int)e);
    }
    TEST_EXPECT(self, moxie_layer_verify(layer, &error) == MOXIE_OK, "rank %d: %s", (int)self->rank, error.text);
}

static void move_all(rank_thread *self, moxie_layer *layer, moxie_plan *plan)
{
    trial *t = self->of;
    moxie_mover *mover = NULL;
    moxie_mover_options options = MOXIE_MOVER_OPTIONS_INIT;
    moxie_error error = { 0 };
    const void *data = NULL;
    uint64_t record = 0, bytes = 0;
    for (int32_t e = 0; e < t->before.experts && record == 0; e++)
        moxie_layer_record(layer, e, &data, &record, NULL);
    int64_t largest = (int64_t)record; /* ranks without experts learn it from others */
    moxie_comm_allreduce(self->comm, &largest, 1, MOXIE_COMM_MAX_I64, NULL);
    options.comm = self->comm;
    options.weights = t->from_views ? &t->layer.weights : NULL;
    options.max_bytes = (uint64_t)t->records * (uint64_t)largest;
    const moxie_status made = moxie_mover_create(layer, &t->after, &options, &mover, &error);
    TEST_EXPECT(self, made == MOXIE_OK, "rank %d: %s", (int)self->rank, error.text);
    moxie_mover_report report = MOXIE_MOVER_REPORT_INIT;
    uint64_t generation = t->before.generation;
    int32_t steps = 0;
    for (report.left = 1; made == MOXIE_OK && report.left > 0 && self->failed[0] == 0; steps++) {
        const moxie_status status = moxie_mover_step(mover, &report, &error);
        TEST_EXPECT(self, status == MOXIE_OK, "rank %d: %s", (int)self->rank, error.text);
        TEST_EXPECT(self, t->records == 0 || report.bytes <= options.max_bytes, "rank %d: a step moved too much",
                    (int)self->rank);
        TEST_EXPECT(self, report.generation == generation || report.generation == generation + 1, "generation");
        TEST_EXPECT(self, report.moves == 0 || report.generation == generation + 1, "generation stays");
        generation = report.generation;
        bytes += report.bytes;
        run_and_compare(self, plan, steps);
    }
    TEST_EXPECT(self, moxie_mover_step(mover, &report, &error) == MOXIE_OK && report.moves == 0 && report.bytes == 0,
                "rank %d moves at the target", (int)self->rank);
    check_experts(self, layer);
    run_and_compare(self, plan, steps);
    moxie_mover_destroy(mover);
    if (self->rank == 0) {
        t->moved = bytes;
        t->steps = steps;
    }
}

static void *rank_main(void *user)
{
    rank_thread *self = user;
    trial *t = self->of;
    moxie_layer_config config = t->layer.config;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    moxie_error error = { 0 };
    config.ep_size = t->ranks;
    config.ep_rank = self->rank;
    config.slot_map = &t->before;
    options.comm = self->comm;
    options.spare_slots = t->spare;
    options.max_tokens = t->layer.args.tokens + 1;
    moxie_status status = test_ranks_layer(&config, &t->layer.weights, &options, &layer, &error);
    if (status == MOXIE_OK)
        status = moxie_plan_create(layer, &options, &plan, &error);
    TEST_EXPECT(self, status == MOXIE_OK, "rank %d: %s", (int)self->rank, error.text);
    if (status == MOXIE_OK) {
        run_and_compare(self, plan, -1);
        move_all(self, layer, plan);
    }
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
    moxie_comm_destroy(self->comm);
    return NULL;
}

/* The least number of spare slots that the target needs. */
static int32_t spare_for(const moxie_slot_map *before, const moxie_slot_map *after)
{
    int32_t spare = 1;
    for (int32_t r = 0; r < before->ranks; r++) {
        const int32_t more =
            after->first_slot[r + 1] - after->first_slot[r] - (before->first_slot[r + 1] - before->first_slot[r]);
        spare = more + 1 > spare ? more + 1 : spare;
    }
    return spare;
}

static void run_trial(trial *t, uint64_t seed)
{
    rank_thread threads[MAX_RANKS];
    moxie_comm *comms[MAX_RANKS];
    const test_layer_limits limits = { .tokens = 17, .no_parallel = true, .plain_routing = true };
    test_rng rng = { seed };
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_error error = { 0 };
    test_layer_make(&t->layer, &rng, &limits);
    options.max_tokens = 18;
    test_layer_plan(&t->layer, &options);
    t->one = test_layer_output(&t->layer, t->layer.plan);
    t->ranks = (int32_t)test_range(&rng, 2, 4);
    t->before = test_ranks_map(&t->layer, &rng, t->ranks);
    t->after = seed % 5 == 0 ? t->before : test_ranks_map(&t->layer, &rng, t->ranks);
    t->spare = spare_for(&t->before, &t->after);
    t->from_views = seed % 3 == 0;
    t->records = (int32_t)test_below(&rng, 4);
    for (int32_t r = 0; r <= t->ranks; r++)
        t->first[r] = r * 17 / t->ranks;
    assert_ok(moxie_comm_local_create(t->ranks, NULL, comms, &error), &error);
    for (int32_t r = 0; r < t->ranks; r++) {
        threads[r] = (rank_thread) { .of = t, .rank = r, .comm = comms[r] };
        assert_int_equal(pthread_create(&threads[r].thread, NULL, rank_main, &threads[r]), 0);
    }
    for (int32_t r = 0; r < t->ranks; r++)
        pthread_join(threads[r].thread, NULL);
    for (int32_t r = 0; r < t->ranks; r++)
        if (threads[r].failed[0] != 0)
            fail_msg("seed %llu: %s (%s)", (unsigned long long)seed, threads[r].failed, t->layer.text);
    if (seed % 5 == 0)
        assert_int_equal(t->moved, 0);
    free(t->one);
    test_layer_free(&t->layer);
}

static void layers_keep_their_bytes(void **state)
{
    (void)state;
    const int64_t trials = test_env("MOXIE_TEST_TRIALS", test_quick() || test_sanitized() ? 20 : 60);
    const uint64_t first = test_seed(8800);
    for (int64_t i = 0; i < trials; i++) {
        static trial t;
        t = (trial) { .ranks = 0 };
        run_trial(&t, first + (uint64_t)i);
    }
}

static void what_is_refused(void **state)
{
    (void)state;
    static test_layer layer;
    const test_layer_limits limits = { .tokens = 1, .experts = 4, .top_k = 2, .no_parallel = true };
    test_rng rng = { 5 };
    test_layer_make(&layer, &rng, &limits);
    const int32_t expert_of[] = { 0, 1, 2, 3 }, first[] = { 0, 2, 4 }, all[] = { 0, 1, 2, 3, 0, 1, 2, 3 };
    const int32_t first_all[] = { 0, 4, 8 };
    moxie_slot_map map = MOXIE_SLOT_MAP_INIT, wide = MOXIE_SLOT_MAP_INIT;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_mover_options how = MOXIE_MOVER_OPTIONS_INIT;
    moxie_mover *mover = NULL;
    moxie_layer *made = NULL;
    moxie_error error = { 0 };
    map.ranks = wide.ranks = 2;
    map.experts = wide.experts = 4;
    map.slots = 4;
    wide.slots = 8;
    map.expert_of = expert_of;
    map.first_slot = first;
    wide.expert_of = all;
    wide.first_slot = first_all;
    layer.config.ep_size = 2;
    options.spare_slots = 1;
    assert_int_equal(moxie_layer_create(&layer.config, &options, &made, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "config.slot_map is NULL"));
    layer.config.slot_map = &map;
    assert_ok(moxie_layer_create(&layer.config, &options, &made, &error), &error);
    how.weights = &layer.weights;
    assert_int_equal(moxie_mover_create(made, &map, &how, &mover, &error), MOXIE_ERR_ARGUMENT); /* not prepared */
    assert_ok(moxie_layer_prepare(made, &layer.weights, &options, &error), &error);
    assert_int_equal(moxie_mover_create(made, &wide, &how, &mover, &error), MOXIE_ERR_MEMORY);
    assert_non_null(strstr(error.text, "4 experts on rank 0, whose layer has 3 slots"));
    how.max_bytes = 1;
    assert_int_equal(moxie_mover_create(made, &map, &how, &mover, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "max_bytes is 1"));
    how.weights = NULL;
    how.max_bytes = 0;
    assert_int_equal(moxie_mover_create(made, &map, &how, &mover, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "neither weights nor comm"));
    moxie_layer_destroy(made);
    options.spare_slots = 0;
    assert_ok(moxie_layer_create(&layer.config, &options, &made, &error), &error);
    assert_ok(moxie_layer_prepare(made, &layer.weights, &options, &error), &error);
    how.weights = &layer.weights;
    assert_int_equal(moxie_mover_create(made, &map, &how, &mover, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "spare_slots"));
    moxie_layer_destroy(made);
    layer.config.slot_map = NULL;
    test_layer_free(&layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(steps_reach_the_target),
                                        cmocka_unit_test(layers_keep_their_bytes), cmocka_unit_test(what_is_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
