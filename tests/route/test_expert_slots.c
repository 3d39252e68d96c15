/* SPDX-License-Identifier: Apache-2.0
 *
 * test_expert_slots.c - slot maps: rules, maps to begin with, replicas, loads, who serves a choice; load windows.
 */
#include "test_support.h"

#include <math.h>

#include <moxie/moxie_comm.h>
#include <moxie/moxie_parallel.h>

#include "base/memory.h"

static moxie_slot_map map_of(int32_t ranks, int32_t experts, int32_t slots, const int32_t *expert_of,
                             const int32_t *first_slot)
{
    moxie_slot_map m = MOXIE_SLOT_MAP_INIT;
    m.ranks = ranks;
    m.experts = experts;
    m.slots = slots;
    m.expert_of = expert_of;
    m.first_slot = first_slot;
    return m;
}

/* ---- maps -------------------------------------------------------------------------------------------- */

static void default_maps_are_vllms(void **state)
{
    (void)state;
    static const int32_t linear[] = { 0, 1, 2, 3, 0, 1, 2 }, robin[] = { 0, 3, 2, 1, 0, 2, 1 };
    int32_t map[7], first[4];
    assert_int_equal(moxie_slot_map_default(MOXIE_MAP_LINEAR, 4, 7, 3, map, first, NULL), MOXIE_OK);
    assert_memory_equal(map, linear, sizeof linear);
    static const int32_t shares[] = { 0, 3, 5, 7 };
    assert_memory_equal(first, shares, sizeof shares);
    assert_int_equal(moxie_slot_map_default(MOXIE_MAP_ROUND_ROBIN, 4, 7, 3, map, first, NULL), MOXIE_OK);
    assert_memory_equal(map, robin, sizeof robin);
    assert_int_equal(moxie_slot_map_default((moxie_expert_map_kind)2, 4, 7, 3, map, first, NULL), MOXIE_ERR_ARGUMENT);
}

/* Without redundant experts they are moxie_expert_map()'s. */
static void default_maps_agree_with_expert_maps(void **state)
{
    (void)state;
    int32_t map[64], first[80], local[64], count;
    for (int32_t experts = 1; experts <= 64; experts += 7)
        for (int32_t ranks = 1; ranks < 79; ranks += 3)
            for (int32_t r = 0; r < 2 * ranks; r++) {
                const moxie_expert_map_kind kind = (moxie_expert_map_kind)(r % 2);
                assert_int_equal(moxie_slot_map_default(kind, experts, experts, ranks, map, first, NULL), MOXIE_OK);
                assert_int_equal(moxie_expert_map(kind, experts, ranks, r / 2, local, &count, NULL), MOXIE_OK);
                assert_int_equal(first[r / 2 + 1] - first[r / 2], count);
                for (int32_t e = 0; e < experts; e++)
                    assert_true(local[e] < 0 || map[first[r / 2] + local[e]] == e);
            }
}

static void broken_maps_are_named(void **state)
{
    (void)state;
    moxie_error error = { 0 };
    int32_t map[] = { 0, 1, 2, -1, 0 }, first[] = { 0, 3, 3, 5 };
    moxie_slot_map m = map_of(3, 3, 5, map, first);
    assert_ok(moxie_slot_map_check(&m, &error), &error);
    const struct {
        int32_t *at, value;
        const char *text;
    } bad[] = {
        { &map[2], 3, "slot 2 holds expert 3" },
        { &map[2], -2, "slot 2 holds expert -2" },
        { &map[1], 2, "expert 1 is in none" },
        { &first[0], 1, "begins with 1" },
        { &first[3], 4, "ends with 4" },
        { &first[1], 4, "rank 1 begins at slot 4" },
        { &m.ranks, 0, "0 ranks" },
        { &m.experts, 6, "5 slots for 6 experts" },
        { &m.slots, 70000, "70000 slots" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const int32_t kept = *bad[i].at;
        *bad[i].at = bad[i].value;
        assert_int_equal(moxie_slot_map_check(&m, &error), MOXIE_ERR_ARGUMENT);
        if (!strstr(error.text, bad[i].text))
            fail_msg("\"%s\" is not in \"%s\"", bad[i].text, error.text);
        *bad[i].at = kept;
    }
    m.expert_of = NULL;
    assert_int_equal(moxie_slot_map_check(&m, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_slot_map_check(NULL, &error), MOXIE_ERR_ARGUMENT);
    m = map_of(3, 3, 5, map, first);
    m.struct_size--;
    assert_int_equal(moxie_slot_map_check(&m, &error), MOXIE_ERR_ARGUMENT);
}

/* Rank 0: experts 0, 1; rank 1 none; rank 2: 2, 0, 2, empty. */
static const int32_t some_map[] = { 0, 1, 2, 0, 2, -1 }, some_first[] = { 0, 2, 2, 6 };

static void replicas_and_loads(void **state)
{
    (void)state;
    moxie_error error = { 0 };
    const moxie_slot_map m = map_of(3, 3, 6, some_map, some_first);
    int32_t counts[3], slots[9];
    static const int32_t want_counts[] = { 2, 1, 2 }, want_slots[] = { 0, 3, -1, 1, -1, -1, 2, 4, -1 };
    assert_ok(moxie_slot_map_replicas(&m, 3, counts, slots, &error), &error);
    assert_memory_equal(counts, want_counts, sizeof counts);
    assert_memory_equal(slots, want_slots, sizeof slots);
    assert_ok(moxie_slot_map_replicas(&m, 0, counts, NULL, &error), &error);
    assert_int_equal(moxie_slot_map_replicas(&m, 1, NULL, slots, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "2 replicas"));

    static const double loads[] = { 6, 1, 10 };
    double ranks[3];
    assert_ok(moxie_slot_map_loads(&m, loads, ranks, &error), &error);
    assert_true(ranks[0] == 4 && ranks[1] == 0 && ranks[2] == 13);
    assert_true(moxie_balancedness(ranks, 3) == 17.0 / 3 / 13);
    const double bad[] = { 1, -1, 0 };
    assert_int_equal(moxie_slot_map_loads(&m, bad, ranks, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "expert 1"));
    const double none[] = { 0, 0 };
    assert_true(moxie_balancedness(none, 2) == 1);
    assert_true(isnan(moxie_balancedness(NULL, 2)) && isnan(moxie_balancedness(none, 0)));
}

/* ---- without dead ranks ------------------------------------------------------------------------------ */

static void maps_without_ranks(void **state)
{
    (void)state;
    moxie_error error = { 0 };
    /* Rank 0: 0 1; rank 1: 2 3; rank 2: 4 0. Only expert 0 has a replica to replace. */
    static const int32_t map[] = { 0, 1, 2, 3, 4, 0 }, first[] = { 0, 2, 4, 6 }, dead[] = { 1 };
    static const double loads[] = { 4, 1, 5, 9, 3 };
    const moxie_slot_map m = map_of(3, 5, 6, map, first);
    int32_t out[6], out_first[3], slots = 0;
    /* Loads without rank 1: rank 0 has 2 + 1, rank 2 has 3 + 2. 3 goes first, to rank 0's slot of expert 0, which
     * leaves 1 there; now 0 is on rank 2 alone. 2 goes to the lighter rank, which is rank 2 (3 + 4 against 9 + 1). */
    static const int32_t want[] = { 3, 1, 4, 0, 2 }, want_first[] = { 0, 2, 5 };
    assert_ok(moxie_slot_map_without(&m, dead, 1, loads, out, out_first, &slots, &error), &error);
    assert_int_equal(slots, 5);
    assert_memory_equal(out, want, sizeof want);
    assert_memory_equal(out_first, want_first, sizeof want_first);
    /* An empty slot is taken before a replica; a second slot of the same rank counts as empty. */
    static const int32_t spare[] = { 0, 0, 1, -1, 2, 3, 0 }, spare_first[] = { 0, 2, 4, 7 }, last[] = { 2 };
    const moxie_slot_map s = map_of(3, 4, 7, spare, spare_first);
    static const int32_t want_spare[] = { 0, 2, 1, 3 };
    int32_t left[7];
    const double even[] = { 1, 2, 1, 0.5 };
    assert_ok(moxie_slot_map_without(&s, last, 1, even, left, out_first, &slots, &error), &error);
    assert_int_equal(slots, 4);
    assert_memory_equal(left, want_spare, sizeof want_spare);
    const int32_t all[] = { 0, 1, 2 }, twice[] = { 1, 1 };
    assert_int_equal(moxie_slot_map_without(&m, all, 3, NULL, out, out_first, &slots, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_slot_map_without(&m, twice, 2, NULL, out, out_first, &slots, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "dead[1]"));
}

/* Random maps: the ranks that are left keep all experts but replicas that made room, and every expert is somewhere. */
static void random_maps_without_ranks(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++) {
        enum { MAX = 64 };
        test_rng rng = { test_seed(31) + seed };
        const int32_t ranks = (int32_t)test_range(&rng, 2, 6), experts = (int32_t)test_range(&rng, 1, 12);
        const int32_t slots = experts + (int32_t)test_below(&rng, 20), count = (int32_t)test_range(&rng, 1, ranks - 1);
        int32_t map[MAX], first[8], dead[8], out[MAX], out_first[8], used = 0, replaced = 0;
        double loads[MAX];
        moxie_error error = { 0 };
        assert_ok(moxie_slot_map_default(MOXIE_MAP_LINEAR, experts, slots, ranks, map, first, &error), &error);
        for (int32_t p = slots - 1; p > 0; p--) {
            const int32_t q = (int32_t)test_below(&rng, (uint64_t)p + 1), e = map[p];
            map[p] = map[q];
            map[q] = e;
        }
        for (int32_t e = 0; e < experts; e++)
            loads[e] = (double)test_below(&rng, 100);
        for (int32_t i = 0; i < count; i++)
            dead[i] = i;
        const moxie_slot_map m = map_of(ranks, experts, slots, map, first);
        assert_ok(moxie_slot_map_without(&m, dead, count, loads, out, out_first, &used, &error), &error);
        const moxie_slot_map left = map_of(ranks - count, experts, used, out, out_first);
        assert_ok(moxie_slot_map_check(&left, &error), &error);
        assert_true(used <= slots);
        for (int32_t r = 0; r < ranks - count; r++)
            for (int32_t i = 0; i < first[r + count + 1] - first[r + count]; i++)
                replaced += out[out_first[r] + i] != map[first[r + count] + i];
        int32_t lost = 0;
        for (int32_t e = 0; e < experts; e++) {
            bool there = false;
            for (int32_t p = first[count]; p < slots; p++)
                there = there || map[p] == e;
            lost += !there;
        }
        assert_int_equal(replaced + used - (slots - first[count]), lost); /* as many changes as lost experts */
    }
}

/* ---- who serves a choice ----------------------------------------------------------------------------- */

static void the_nearest_replica_serves(void **state)
{
    (void)state;
    moxie_error error = { 0 };
    const moxie_slot_map m = map_of(3, 3, 6, some_map, some_first);
    static const int32_t ids[] = { 0, 2, 1, 0, -1, 3 }; /* three tokens, two choices each, from token 5 on */
    int32_t slots[6];
    /* Rank 0 has 0 and 1. Expert 2 has two replicas on rank 2: its lowest slot serves both. */
    static const int32_t rank0[] = { 0, 2, 1, 0, -1, -1 };
    assert_ok(moxie_slot_map_serve(&m, 0, 5, ids, 3, 2, slots, &error), &error);
    assert_memory_equal(slots, rank0, sizeof slots);
    /* Rank 1 has none: expert 0 is served by replica (5 + 0 + 0) % 2 = 1, then (5 + 1 + 1) % 2 = 1. */
    static const int32_t rank1[] = { 3, 2, 1, 3, -1, -1 };
    assert_ok(moxie_slot_map_serve(&m, 1, 5, ids, 3, 2, slots, &error), &error);
    assert_memory_equal(slots, rank1, sizeof slots);
    assert_ok(moxie_slot_map_serve(&m, -1, 4, ids, 3, 2, slots, &error), &error);
    assert_int_equal(slots[0], 0);
    assert_int_equal(slots[1], 2); /* one rank has expert 2, twice */
    static const int32_t rank2[] = { 3, 2, 1, 3, -1, -1 };
    memcpy(slots, ids, sizeof slots);
    assert_ok(moxie_slot_map_serve(&m, 2, 4, slots, 3, 2, slots, &error), &error);
    assert_memory_equal(slots, rank2, sizeof slots);
    assert_int_equal(moxie_slot_map_serve(&m, 3, 0, ids, 3, 2, slots, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_slot_map_serve(&m, 1, INT64_MAX, ids, 3, 2, slots, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_slot_map_serve(&m, 0, -1, ids, 3, 2, slots, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_slot_map_serve(&m, 0, 0, NULL, 3, 2, slots, &error), MOXIE_ERR_ARGUMENT);
    assert_ok(moxie_slot_map_serve(&m, 0, 0, NULL, 0, 2, NULL, &error), &error);
}

/* Without a near rank, tokens in turn load replicas equally. */
static void served_loads_are_shared(void **state)
{
    (void)state;
    moxie_error error = { 0 };
    int32_t map[24], first[9], ids[480], slots[480];
    double counted[24] = { 0 };
    assert_int_equal(moxie_slot_map_default(MOXIE_MAP_LINEAR, 8, 24, 8, map, first, NULL), MOXIE_OK);
    const moxie_slot_map m = map_of(8, 8, 24, map, first);
    for (int i = 0; i < 480; i++)
        ids[i] = i % 8;
    assert_ok(moxie_slot_map_serve(&m, -1, 0, ids, 60, 8, slots, &error), &error);
    for (int i = 0; i < 480; i++) {
        assert_int_equal(map[slots[i]], ids[i]);
        counted[slots[i]]++;
    }
    for (int p = 0; p < 24; p++)
        assert_true(counted[p] == 20);
}

/* ---- load windows ------------------------------------------------------------------------------------ */

static void a_window_forgets(void **state)
{
    (void)state;
    moxie_error error = { 0 };
    moxie_load_window *window = NULL;
    int64_t counts[6];
    int32_t steps = -1;
    assert_ok(moxie_load_window_create(2, 3, 2, &window, &error), &error);
    /* Step s counts expert 0 of layer 0 s + 1 times, expert 2 of layer 1 once. */
    static const int32_t zeros[] = { 0, 0, 0, 0, 0, 0 }, last[] = { 2, -1, 3, 1 << 30 };
    for (int s = 0; s < 6; s++) {
        assert_ok(moxie_load_window_add(window, 0, zeros, s + 1, 1, &error), &error);
        assert_ok(moxie_load_window_add(window, 1, last, 2, 2, &error), &error);
        assert_ok(moxie_load_window_counts(window, counts, &steps, &error), &error);
        /* This step and the two before. */
        assert_int_equal(counts[0], s == 0 ? 1 : s == 1 ? 3 : 3 * s);
        assert_int_equal(counts[5], s < 2 ? s + 1 : 3);
        assert_int_equal(counts[1] + counts[2] + counts[3] + counts[4], 0);
        assert_int_equal(steps, s < 2 ? s : 2);
        assert_ok(moxie_load_window_end_step(window, &error), &error);
    }
    for (int s = 0; s < 2; s++)
        assert_ok(moxie_load_window_end_step(window, &error), &error);
    assert_ok(moxie_load_window_counts(window, counts, NULL, &error), &error);
    assert_int_equal(counts[0] + counts[5], 0);
    moxie_load_window_destroy(window);
    moxie_load_window_destroy(NULL);
}

static void windows_allocate_once_and_check(void **state)
{
    (void)state;
    moxie_error error = { 0 };
    moxie_load_window *window = NULL;
    static const int32_t ids[] = { 0, 1 };
    assert_int_equal(moxie_load_window_create(0, 3, 2, &window, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_load_window_create(1, 0, 2, &window, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_load_window_create(1, 3, 0, &window, &error), MOXIE_ERR_ARGUMENT);
    for (uint64_t n = 1; n <= 4; n++) {
        mox_alloc_fail_at(n);
        assert_int_equal(moxie_load_window_create(1, 3, 2, &window, &error), MOXIE_ERR_MEMORY);
        mox_alloc_fail_at(0);
        assert_null(window);
    }
    assert_ok(moxie_load_window_create(1, 3, 2, &window, &error), &error);
    const uint64_t before = mox_alloc_count();
    assert_ok(moxie_load_window_add(window, 0, ids, 1, 2, &error), &error);
    assert_ok(moxie_load_window_end_step(window, &error), &error);
    assert_int_equal(mox_alloc_count(), before);
    assert_int_equal(moxie_load_window_add(window, 1, ids, 1, 2, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_load_window_add(window, 0, ids, 1 << 20, 1 << 20, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "end steps more often"));
    assert_int_equal(moxie_load_window_add(window, 0, NULL, 1, 2, &error), MOXIE_ERR_ARGUMENT);
    moxie_load_window_destroy(window);
}

/* Every allocation of the balancer fails once: no leak, and the caller's arrays stay as they are. */
static void without_memory(void **state)
{
    (void)state;
    moxie_error error = { 0 };
    static const double loads[] = { 1, 2, 3, 4 };
    int32_t map[6], target[6] = { 3, 2, 1, 0, 3, 2 }, first[4];
    moxie_eplb_config c = MOXIE_EPLB_CONFIG_INIT;
    c.layers = 1;
    c.experts = 4;
    c.slots = 6;
    c.ranks = 3;
    moxie_status status = MOXIE_ERR_MEMORY;
    int failures = 0;
    for (uint64_t n = 1; status != MOXIE_OK; n++, failures++) {
        map[0] = 77;
        mox_alloc_fail_at(n);
        status = moxie_eplb_balance(&c, loads, map, first, NULL, &error);
        mox_alloc_fail_at(0);
        assert_true(status == MOXIE_OK || (status == MOXIE_ERR_MEMORY && map[0] == 77));
    }
    status = MOXIE_ERR_MEMORY;
    for (uint64_t n = 1; status != MOXIE_OK; n++, failures++) {
        int32_t now[6];
        memcpy(now, map, sizeof now);
        mox_alloc_fail_at(n);
        status = moxie_eplb_step(&c, loads, target, 2, now, NULL, &error);
        mox_alloc_fail_at(0);
        assert_true(status == MOXIE_OK || memcmp(now, map, sizeof now) == 0);
    }
    assert_true(failures > 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_maps_are_vllms),
        cmocka_unit_test(default_maps_agree_with_expert_maps),
        cmocka_unit_test(broken_maps_are_named),
        cmocka_unit_test(replicas_and_loads),
        cmocka_unit_test(maps_without_ranks),
        cmocka_unit_test(random_maps_without_ranks),
        cmocka_unit_test(the_nearest_replica_serves),
        cmocka_unit_test(served_loads_are_shared),
        cmocka_unit_test(a_window_forgets),
        cmocka_unit_test(windows_allocate_once_and_check),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
