/* SPDX-License-Identifier: Apache-2.0
 *
 * test_eplb.c - moxie_eplb_balance against the published algorithm (plain_eplb.h) and its published example; uneven
 * sizes; replicas at most once on a rank; slots kept; bounded steps.
 */
#include "test_support.h"

#include <math.h>

#include <moxie/moxie_parallel.h>

#include "plain_eplb.h"

enum { MAX_E = 256, MAX_P = 512, MAX_R = 64, MAX_L = 4 };

static double loads[MAX_L * MAX_E];
static int32_t map[MAX_L * MAX_P], other[MAX_L * MAX_P], target[MAX_L * MAX_P], start[MAX_L * MAX_P],
    first_slot[MAX_R + 1];

/* Between 0 and 1, with 53 bits: no two tie. A few experts have most of the load, as in models. */
static void draw_loads(test_rng *rng, int n)
{
    for (int i = 0; i < n; i++) {
        const double u = ((double)(test_u64(rng) >> 11) + 1) / 9007199254740993.0;
        loads[i] = test_below(rng, 3) == 0 ? u * u * u * 20 : u;
    }
}

static moxie_slot_map layer_of(const moxie_eplb_config *c, const int32_t *maps, int layer)
{
    moxie_slot_map m = MOXIE_SLOT_MAP_INIT;
    m.ranks = c->ranks;
    m.experts = c->experts;
    m.slots = c->slots;
    m.expert_of = maps + layer * c->slots;
    m.first_slot = first_slot;
    return m;
}

static void assert_valid(const moxie_eplb_config *c, const int32_t *maps)
{
    moxie_error error = { 0 };
    for (int l = 0; l < c->layers; l++) {
        const moxie_slot_map m = layer_of(c, maps, l);
        assert_ok(moxie_slot_map_check(&m, &error), &error);
    }
}

static void balance(const moxie_eplb_config *c, int32_t *hierarchical)
{
    moxie_error error = { 0 };
    assert_ok(moxie_eplb_balance(c, loads, map, first_slot, hierarchical, &error), &error);
    assert_valid(c, map);
}

/* The largest load of a rank of layer 0, written down anew. */
static double largest(const moxie_eplb_config *c, const int32_t *maps)
{
    double max = 0;
    int counts[MAX_E] = { 0 };
    for (int p = 0; p < c->slots; p++)
        if (maps[p] >= 0)
            counts[maps[p]]++;
    for (int r = 0; r < c->ranks; r++) {
        double sum = 0;
        for (int p = first_slot[r]; p < first_slot[r + 1]; p++)
            sum += maps[p] < 0 ? 0 : loads[maps[p]] / counts[maps[p]];
        max = sum > max ? sum : max;
    }
    return max;
}

/* Slots of a rank that hold an expert which a lower slot of the rank holds, too. */
static int duplicates(const moxie_eplb_config *c, const int32_t *maps)
{
    int n = 0;
    for (int r = 0; r < c->ranks; r++)
        for (int p = first_slot[r]; p < first_slot[r + 1]; p++)
            for (int q = first_slot[r]; q < p; q++)
                if (maps[q] == maps[p] && maps[p] >= 0) {
                    n++;
                    break;
                }
    return n;
}

static moxie_eplb_config config_of(int layers, int experts, int slots, int ranks, int nodes, int groups)
{
    moxie_eplb_config c = MOXIE_EPLB_CONFIG_INIT;
    c.layers = layers;
    c.experts = experts;
    c.slots = slots;
    c.ranks = ranks;
    c.nodes = nodes;
    c.groups = groups;
    return c;
}

/* ---- against the original ---------------------------------------------------------------------------- */

static void the_published_example(void **state)
{
    (void)state;
    static const double published[24] = { 90, 132, 40,  61, 104, 165, 39,  4,   73,  56, 183, 86,
                                          20, 107, 104, 64, 19,  197, 187, 157, 172, 86, 16,  27 };
    static const int32_t want[32] = { 5, 6,  5, 7, 8, 4,  3, 4, 10, 9, 10, 2, 0, 1, 11, 1,
                                      7, 10, 6, 8, 6, 11, 8, 9, 2,  4, 5,  1, 5, 0, 3,  1 };
    const moxie_eplb_config c = config_of(2, 12, 16, 8, 2, 4);
    int32_t hierarchical[2];
    memcpy(loads, published, sizeof published);
    balance(&c, hierarchical);
    assert_memory_equal(map, want, sizeof want);
    assert_int_equal(hierarchical[0] + hierarchical[1], 2);
}

/* Sizes: experts, slots, ranks, nodes, groups. With 4 nodes, 6 groups are balanced globally. */
static const int even_sizes[][5] = {
    { 256, 288, 8, 2, 8 },    { 256, 288, 16, 4, 8 }, { 256, 288, 32, 4, 8 }, { 256, 288, 32, 2, 8 },
    { 256, 288, 24, 1, 1 },   { 256, 320, 32, 4, 8 }, { 256, 256, 32, 4, 8 }, { 256, 288, 36, 4, 8 },
    { 12, 16, 8, 2, 4 },      { 12, 16, 4, 4, 6 },    { 128, 144, 16, 2, 2 }, { 60, 64, 8, 4, 4 },
    { 8, 32, 16, 2, 4 },      { 16, 16, 16, 4, 4 },   { 128, 192, 64, 8, 8 }, { 8, 64, 8, 1, 1 },
    { 160, 192, 24, 3, 160 }, { 64, 72, 8, 3, 8 },
};
enum { EVEN_SIZES = sizeof even_sizes / sizeof even_sizes[0] };

static void equals_the_original(void **state)
{
    (void)state;
    test_rng rng = { test_seed(26) };
    const int trials = (int)test_env("MOXIE_TEST_CONFIGS", 2000);
    int twice = 0;
    for (int i = 0; i < trials; i++) {
        const int *s = even_sizes[i % EVEN_SIZES];
        const moxie_eplb_config c = config_of(1, s[0], s[1], s[2], s[3], s[4]);
        int32_t hierarchical;
        draw_loads(&rng, c.experts);
        balance(&c, &hierarchical);
        plain_eplb(loads, s[0], s[1], s[4], s[3], s[2], other);
        if (memcmp(map, other, (size_t)c.slots * sizeof *map) != 0)
            fail_msg("trial %d: %d experts, %d slots, %d ranks, %d nodes, %d groups: not the original's map", i, s[0],
                     s[1], s[2], s[3], s[4]);
        assert_int_equal(hierarchical, s[4] % s[3] == 0);
        twice += duplicates(&c, map) > 0;
    }
    /* The original does put replicas of an expert on one rank; the rule for slot maps allows it. */
    assert_true(twice > 0);
}

/* Ties: the same map in any surroundings, and the lowest ones first. */
static void ties_are_defined(void **state)
{
    (void)state;
    const moxie_eplb_config c = config_of(1, 4, 6, 2, 0, 0);
    for (int e = 0; e < 4; e++)
        loads[e] = 7;
    balance(&c, NULL);
    /* Replicas of 0 and 1 at half the load; packed 2, 3 (7), then 0, 1, 0, 1 (3.5). */
    static const int32_t packed[6] = { 2, 0, 0, 3, 1, 1 };
    assert_memory_equal(map, packed, sizeof packed);
    memset(loads, 0, sizeof loads);
    balance(&c, NULL);
}

/* ---- other sizes ------------------------------------------------------------------------------------- */

/* Sizes that the original refuses: no worse than it is at the next smaller number of slots that it takes. */
static void uneven_slots_are_no_worse(void **state)
{
    (void)state;
    test_rng rng = { test_seed(27) };
    const int trials = (int)test_env("MOXIE_TEST_CONFIGS", 2000);
    double sum = 0, even_sum = 0;
    for (int i = 0; i < trials; i++) {
        const int ranks = (int)test_range(&rng, 2, 24), experts = (int)test_range(&rng, ranks, 96);
        const int even = (experts + ranks - 1 + (int)test_below(&rng, 32)) / ranks * ranks;
        const int slots = even + (int)test_range(&rng, 1, ranks - 1);
        const moxie_eplb_config c = config_of(1, experts, slots, ranks, 1, 1);
        draw_loads(&rng, experts);
        plain_eplb(loads, experts, even, 1, 1, ranks, other);
        const moxie_eplb_config even_config = config_of(1, experts, even, ranks, 1, 1);
        assert_ok(moxie_slot_map_first_slots(even, ranks, first_slot, NULL), &(moxie_error) { 0 });
        const double before = largest(&even_config, other);
        balance(&c, NULL);
        sum += largest(&c, map);
        even_sum += before;
        if (largest(&c, map) > before * (1 + 1e-9))
            fail_msg("trial %d: %d experts, %d slots, %d ranks: largest load %g, %g with %d slots", i, experts, slots,
                     ranks, largest(&c, map), before, even);
    }
    assert_true(sum < even_sum);
}

static void any_sizes_give_valid_maps(void **state)
{
    (void)state;
    test_rng rng = { test_seed(28) };
    int grouped = 0;
    for (int i = 0; i < 3000; i++) {
        const int experts = (int)test_range(&rng, 1, 48), ranks = (int)test_range(&rng, 1, MAX_R);
        const int slots = experts + (int)test_below(&rng, 40), nodes = (int)test_range(&rng, 1, ranks < 6 ? ranks : 6);
        moxie_eplb_config c = config_of(2, experts, slots, ranks, nodes, (int)test_range(&rng, 1, experts));
        int32_t hierarchical[2];
        c.distinct = (int32_t)test_below(&rng, 2);
        draw_loads(&rng, 2 * experts);
        if (test_below(&rng, 4) == 0)
            memset(loads, 0, (size_t)experts * sizeof *loads);
        balance(&c, hierarchical);
        grouped += hierarchical[1];
        assert_true(c.groups % nodes == 0 || !hierarchical[1]);
    }
    assert_true(grouped > 500);
}

/* In a hierarchical layer an expert's group lies on one node, uneven or not. */
static void groups_stay_on_a_node(void **state)
{
    (void)state;
    test_rng rng = { test_seed(29) };
    int seen = 0;
    for (int i = 0; i < 500; i++) {
        const int nodes = (int)test_range(&rng, 2, 4), ranks = nodes + (int)test_below(&rng, 9);
        const int groups = nodes * (int)test_range(&rng, 1, 4), experts = groups * 4 + (int)test_below(&rng, 4);
        const moxie_eplb_config c = config_of(1, experts, experts + (int)test_below(&rng, 20), ranks, nodes, groups);
        int32_t hierarchical, node_first[8], group_first[64], node_of[64];
        draw_loads(&rng, experts);
        balance(&c, &hierarchical);
        if (!hierarchical)
            continue;
        seen++;
        assert_ok(moxie_slot_map_first_slots(ranks, nodes, node_first, NULL), &(moxie_error) { 0 });
        assert_ok(moxie_slot_map_first_slots(experts, groups, group_first, NULL), &(moxie_error) { 0 });
        memset(node_of, -1, sizeof node_of);
        for (int k = 0; k < nodes; k++)
            for (int p = first_slot[node_first[k]]; p < first_slot[node_first[k + 1]]; p++) {
                int g = 0;
                if (map[p] < 0)
                    continue;
                while (group_first[g + 1] <= map[p])
                    g++;
                assert_true(node_of[g] < 0 || node_of[g] == k);
                node_of[g] = k;
            }
    }
    assert_true(seen > 100);
}

static void distinct_maps_have_no_duplicates(void **state)
{
    (void)state;
    test_rng rng = { test_seed(30) };
    double sum = 0, plain_sum = 0;
    int left = 0;
    for (int i = 0; i < 1000; i++) {
        const int *s = even_sizes[i % EVEN_SIZES];
        moxie_eplb_config c = config_of(1, s[0], s[1], s[2], 1, 1);
        draw_loads(&rng, c.experts);
        balance(&c, NULL);
        plain_sum += largest(&c, map);
        c.distinct = 1;
        balance(&c, NULL);
        sum += largest(&c, map);
        left += duplicates(&c, map) > 0;
    }
    assert_int_equal(left, 0);
    assert_true(sum <= plain_sum * 1.02);
}

/* Hotter experts have no fewer replicas. */
static void replicas_follow_loads(void **state)
{
    (void)state;
    test_rng rng = { test_seed(31) };
    for (int i = 0; i < 300; i++) {
        const int experts = (int)test_range(&rng, 2, 40), ranks = (int)test_range(&rng, 1, 16);
        const int slots = (experts + ranks - 1 + (int)test_below(&rng, 60)) / ranks * ranks;
        const moxie_eplb_config c = config_of(1, experts, slots, ranks, 0, 0);
        int32_t counts[MAX_E];
        draw_loads(&rng, experts);
        balance(&c, NULL);
        const moxie_slot_map m = layer_of(&c, map, 0);
        assert_int_equal(moxie_slot_map_replicas(&m, 0, counts, NULL, NULL), MOXIE_OK);
        for (int a = 0; a < experts; a++)
            for (int b = 0; b < experts; b++)
                assert_true(loads[a] < loads[b] || counts[a] >= counts[b]);
    }
}

/* ---- from map to map --------------------------------------------------------------------------------- */

static void unchanged_loads_move_nothing(void **state)
{
    (void)state;
    test_rng rng = { test_seed(32) };
    moxie_error error = { 0 };
    for (int i = 0; i < 200; i++) {
        const int *s = even_sizes[i % EVEN_SIZES];
        const moxie_eplb_config c = config_of(1, s[0], s[1] + i % 3, s[2], s[3], s[4]);
        const size_t bytes = (size_t)c.slots * sizeof *map;
        moxie_eplb_moves moves = MOXIE_EPLB_MOVES_INIT;
        draw_loads(&rng, c.experts);
        balance(&c, NULL);
        memcpy(other, map, bytes);
        balance(&c, NULL);
        assert_ok(moxie_eplb_keep_slots(1, c.slots, c.ranks, first_slot, other, map, &error), &error);
        for (int64_t most = 0; most < 9; most += 4) {
            assert_ok(moxie_eplb_step(&c, loads, map, most, other, &moves, &error), &error);
            assert_true(moves.moves == 0 && moves.remote == 0 && moves.left == 0);
        }
        assert_memory_equal(map, other, bytes);
    }
}

/* Also with a rank's experts in another order. */
static void experts_keep_their_slots(void **state)
{
    (void)state;
    moxie_error error = { 0 };
    static const int32_t first[] = { 0, 4, 7 }, old[] = { 5, 1, 1, 2, 0, -1, 3 };
    int32_t now[] = { 1, 2, 7, 5, 3, 4, 0 };
    static const int32_t want[] = { 5, 1, 7, 2, 0, 4, 3 };
    assert_ok(moxie_eplb_keep_slots(1, 7, 2, first, old, now, &error), &error);
    assert_memory_equal(now, want, sizeof want);
}

static int differences(const int32_t *a, const int32_t *b, int n)
{
    int different = 0;
    for (int i = 0; i < n; i++)
        different += a[i] != b[i];
    return different;
}

/* Steps from the default maps, or from maps of other loads, to the target: each bounded and valid. */
static void walk(const moxie_eplb_config *c, int64_t most)
{
    moxie_error error = { 0 };
    const int all = c->layers * c->slots;
    moxie_eplb_moves moves = MOXIE_EPLB_MOVES_INIT;
    int left = differences(map, target, all);
    for (int steps = 0; left > 0; steps++) {
        memcpy(other, map, (size_t)all * sizeof *map);
        assert_ok(moxie_eplb_step(c, loads, target, most, map, &moves, &error), &error);
        assert_valid(c, map);
        assert_true(moves.moves <= most && moves.moves <= differences(map, other, all));
        assert_true(moves.remote <= moves.moves);
        assert_int_equal(moves.left, differences(map, target, all));
        assert_true(moves.left < left);
        left = (int)moves.left;
        assert_true(steps < all);
    }
}

static void bounded_steps_reach_the_target(void **state)
{
    (void)state;
    test_rng rng = { test_seed(33) };
    moxie_error error = { 0 };
    for (int i = 0; i < 150; i++) {
        const int experts = (int)test_range(&rng, 2, 32), ranks = (int)test_range(&rng, 1, 9);
        const int slots = experts + (i % 3 == 0 ? 0 : (int)test_below(&rng, 20));
        const moxie_eplb_config c = config_of((int)test_range(&rng, 1, MAX_L), experts, slots, ranks, 0, 0);
        const int all = c.layers * slots;
        draw_loads(&rng, c.layers * experts);
        balance(&c, NULL);
        memcpy(target, map, (size_t)all * sizeof *map);
        for (int l = 0; l < c.layers; l++)
            assert_ok(
                moxie_slot_map_default(MOXIE_MAP_LINEAR, experts, slots, ranks, map + l * slots, first_slot, &error),
                &error);
        /* Empty slots in the maps: of experts with replicas. */
        for (int p = experts; p < slots; p++)
            if (test_below(&rng, 3) == 0)
                map[p] = -1;
        assert_ok(moxie_eplb_keep_slots(c.layers, slots, ranks, first_slot, map, target, &error), &error);
        memcpy(start, map, (size_t)all * sizeof *map);
        walk(&c, test_range(&rng, 2, 7));
        /* And back to maps with empty slots. */
        memcpy(target, start, (size_t)all * sizeof *map);
        walk(&c, 2);
    }
}

/* The first bounded step takes the move that helps most: the hot expert's second replica. */
static void the_best_move_comes_first(void **state)
{
    (void)state;
    moxie_error error = { 0 };
    static const double hot[] = { 100, 1, 2, 3 };
    static const int32_t to[] = { 3, 1, 0, 2, 0, 2 };
    const moxie_eplb_config c = config_of(1, 4, 6, 3, 0, 0);
    moxie_eplb_moves moves = MOXIE_EPLB_MOVES_INIT;
    memcpy(loads, hot, sizeof hot);
    memcpy(target, to, sizeof to);
    const int32_t from[] = { 0, 1, 3, 2, 1, 2 };
    memcpy(map, from, sizeof from);
    assert_ok(moxie_eplb_step(&c, loads, target, 2, map, &moves, &error), &error);
    assert_int_equal(map[4], 0);
    assert_int_equal(moves.moves, 2);
    assert_int_equal(moxie_eplb_step(&c, loads, target, 1, map, &moves, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "exchange"));
}

/* ---- bad arguments ----------------------------------------------------------------------------------- */

static void bad_arguments_are_named(void **state)
{
    (void)state;
    const struct {
        int layers, experts, slots, ranks, nodes, groups;
        const char *text;
    } bad[] = {
        { -1, 4, 4, 2, 0, 0, "-1 layers" }, { 1, 0, 4, 2, 0, 0, "0 experts" }, { 1, 4, 3, 2, 0, 0, "3 slots" },
        { 1, 4, 4, 0, 0, 0, "0 ranks" },    { 1, 4, 4, 2, 3, 0, "3 nodes" },   { 1, 4, 4, 2, 0, 5, "5 groups" },
        { 1, 1025, 2000, 2, 0, 0, "1025" }, { 1, 4, 70000, 2, 0, 0, "70000" }, { 1, 4, 4, 2000, 0, 0, "2000 ranks" },
    };
    moxie_error error = { 0 };
    memset(loads, 0, sizeof loads);
    map[0] = 77;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const moxie_eplb_config c =
            config_of(bad[i].layers, bad[i].experts, bad[i].slots, bad[i].ranks, bad[i].nodes, bad[i].groups);
        assert_int_equal(moxie_eplb_balance(&c, loads, map, first_slot, NULL, &error), MOXIE_ERR_ARGUMENT);
        if (!strstr(error.text, bad[i].text))
            fail_msg("\"%s\" is not in \"%s\"", bad[i].text, error.text);
    }
    const moxie_eplb_config c = config_of(2, 4, 4, 2, 0, 0);
    loads[6] = (double)NAN;
    assert_int_equal(moxie_eplb_balance(&c, loads, map, first_slot, NULL, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "layer 1, expert 2"));
    loads[6] = 1e101; /* whose square has no sum with others */
    assert_int_equal(moxie_eplb_balance(&c, loads, map, first_slot, NULL, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "from 0 to 1e+100"));
    loads[6] = -1;
    assert_int_equal(moxie_eplb_balance(&c, loads, map, first_slot, NULL, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_eplb_balance(NULL, loads, map, first_slot, NULL, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(map[0], 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_example),
        cmocka_unit_test(equals_the_original),
        cmocka_unit_test(ties_are_defined),
        cmocka_unit_test(uneven_slots_are_no_worse),
        cmocka_unit_test(any_sizes_give_valid_maps),
        cmocka_unit_test(groups_stay_on_a_node),
        cmocka_unit_test(distinct_maps_have_no_duplicates),
        cmocka_unit_test(replicas_follow_loads),
        cmocka_unit_test(unchanged_loads_move_nothing),
        cmocka_unit_test(experts_keep_their_slots),
        cmocka_unit_test(bounded_steps_reach_the_target),
        cmocka_unit_test(the_best_move_comes_first),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
