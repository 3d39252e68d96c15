/* SPDX-License-Identifier: Apache-2.0
 *
 * test_dispatch.c - what follows the choice of experts: packed choices, expert maps, the permutation of pairs by slot.
 */
#include "test_support.h"

#include <math.h>

#include "route/route.h"

/* ---- packed choices ------------------------------------------------------------------------------ */

static void test_packed_values(void **state)
{
    (void)state;
    assert_int_equal(mox_pack_choice(5, 0.5f), 0x00053f00u);
    assert_int_equal(mox_pack_choice(5, -0.5f), 0x0005bf00u); /* a negative weight keeps its id */
    assert_int_equal(mox_pack_choice(-1, 1.0f), 0xffff3f80u);
    assert_int_equal(mox_pack_choice(1023, 0.0f), 0x03ff0000u);
    assert_int_equal(mox_pack_choice(2, 1.00390625f), 0x00023f80u); /* half an ulp above 1: to even */
    assert_int_equal(mox_pack_choice(2, (float)NAN), 0x00027fc0u);
}

static void test_packed_both_ways(void **state)
{
    (void)state;
    for (int32_t id = -1; id < MOXIE_MAX_EXPERTS; id++) {
        for (uint32_t weight = 0; weight < 0x10000; weight += id % 16 == 0 ? 257 : 4099) {
            int32_t got;
            float value;
            const uint32_t packed = (uint32_t)id << 16 | weight;
            mox_unpack_choice(packed, &got, &value);
            assert_int_equal(got, id);
            if (!isnan(value))
                assert_int_equal(mox_pack_choice(got, value), packed);
        }
    }
}

/* ---- expert maps --------------------------------------------------------------------------------- */

/* E = 10 over 4 ranks: 3, 3, 2, 2 experts. */
static void test_maps_by_hand(void **state)
{
    (void)state;
    static const int32_t linear[4][10] = { { 0, 1, 2, -1, -1, -1, -1, -1, -1, -1 },
                                           { -1, -1, -1, 0, 1, 2, -1, -1, -1, -1 },
                                           { -1, -1, -1, -1, -1, -1, 0, 1, -1, -1 },
                                           { -1, -1, -1, -1, -1, -1, -1, -1, 0, 1 } };
    static const int32_t robin[4][10] = { { 0, -1, -1, -1, 1, -1, -1, -1, 2, -1 },
                                          { -1, 0, -1, -1, -1, 1, -1, -1, -1, 2 },
                                          { -1, -1, 0, -1, -1, -1, 1, -1, -1, -1 },
                                          { -1, -1, -1, 0, -1, -1, -1, 1, -1, -1 } };
    static const int32_t counts[4] = { 3, 3, 2, 2 };
    for (int32_t rank = 0; rank < 4; rank++) {
        int32_t local[10], count;
        moxie_error error;
        assert_ok(mox_expert_map(MOXIE_MAP_LINEAR, 10, 4, rank, local, &count, &error), &error);
        assert_int_equal(count, counts[rank]);
        assert_memory_equal(local, linear[rank], sizeof local);
        assert_ok(mox_expert_map(MOXIE_MAP_ROUND_ROBIN, 10, 4, rank, local, &count, &error), &error);
        assert_int_equal(count, counts[rank]);
        assert_memory_equal(local, robin[rank], sizeof local);
    }
}

/* Every expert has one owner. A rank's slots are 0 .. count - 1 in the order of experts. Counts differ by at most one.
 */
static void test_maps_partition(void **state)
{
    (void)state;
    for (int32_t experts = 1; experts <= MOXIE_MAX_EXPERTS; experts = experts * 2 + 1) {
        for (int32_t ranks = 1; ranks <= 70; ranks += 3) {
            for (int32_t kind = 0; kind < 2; kind++) {
                int32_t local[MOXIE_MAX_EXPERTS], owners[MOXIE_MAX_EXPERTS] = { 0 }, total = 0;
                for (int32_t rank = 0; rank < ranks; rank++) {
                    int32_t count = -1, next = 0;
                    moxie_error error;
                    assert_ok(mox_expert_map((moxie_expert_map_kind)kind, experts, ranks, rank, local, &count, &error),
                              &error);
                    for (int32_t e = 0; e < experts; e++) {
                        owners[e] += local[e] >= 0;
                        if (local[e] >= 0)
                            assert_int_equal(local[e], next++);
                    }
                    assert_int_equal(count, next);
                    assert_int_equal(count, experts / ranks + (rank < experts % ranks));
                    total += count;
                }
                assert_int_equal(total, experts);
                for (int32_t e = 0; e < experts; e++)
                    assert_int_equal(owners[e], 1);
            }
        }
    }
}

static void test_maps_rejected(void **state)
{
    (void)state;
    static const int32_t cases[][4] = { { 2, 8, 1, 0 }, { 0, 0, 1, 0 }, { 0, 1025, 1, 0 },
                                        { 0, 8, 0, 0 }, { 0, 8, 2, 2 }, { 1, 8, 2, -1 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int32_t local[1] = { 77 }, count = 77;
        moxie_error error = { 0 };
        assert_int_equal(mox_expert_map((moxie_expert_map_kind)cases[i][0], cases[i][1], cases[i][2], cases[i][3],
                                        local, &count, &error),
                         MOXIE_ERR_ARGUMENT);
        assert_true(local[0] == 77 && count == 77 && error.text[0] != '\0');
    }
}

/* ---- permutation --------------------------------------------------------------------------------- */

static void test_permutation_by_hand(void **state)
{
    (void)state;
    /* Experts 0 .. 3: expert 2 is in slot 0, expert 0 in slot 1. 9 and -1 are no experts; one token repeats an id. */
    static const int32_t ids[8] = { 2, 0, 0, 1, 9, 2, -1, 0 }, slot_of[4] = { 1, -1, 0, -1 };
    static const int64_t offsets[3] = { 0, 2, 5 }, pair_at[5] = { 0, 5, 1, 2, 7 };
    static const int64_t position[8] = { 0, 2, 3, -1, -1, 1, -1, 4 };
    int64_t got_offsets[3], got_pairs[8], got_positions[8];
    mox_permutation out = { got_offsets, got_pairs, got_positions };
    mox_permute(ids, 4, 2, 4, slot_of, 2, &out);
    assert_memory_equal(got_offsets, offsets, sizeof offsets);
    assert_memory_equal(got_pairs, pair_at, sizeof pair_at);
    assert_memory_equal(got_positions, position, sizeof position);
}

static void test_nothing_to_permute(void **state)
{
    (void)state;
    int64_t offsets[4] = { 9, 9, 9, 9 }, pairs[2] = { 9, 9 }, positions[2] = { 9, 9 };
    const int32_t ids[2] = { 0, 1 }, none[2] = { -1, -1 };
    mox_permutation out = { offsets, pairs, positions };
    mox_permute(NULL, 0, 4, 2, none, 3, &out); /* no token */
    for (int s = 0; s < 4; s++)
        assert_int_equal(offsets[s], 0);
    mox_permute(ids, 1, 2, 2, none, 0, &out); /* no local expert */
    assert_int_equal(offsets[0], 0);
    assert_true(positions[0] == -1 && positions[1] == -1 && pairs[0] == 9);
}

/* Each local pair occurs once, in the slot of its expert, and the pairs of a slot ascend. */
static void test_permutation_properties(void **state)
{
    (void)state;
    test_rng rng = { test_seed(7) };
    for (int round = 0; round < 300; round++) {
        const int64_t tokens = test_range(&rng, 0, 60), k = test_range(&rng, 1, 8), experts = test_range(&rng, 1, 40);
        const int64_t pairs = tokens * k;
        int32_t slot_of[40], ids[480];
        int64_t offsets[41], pair_at[480], position[480], slots = 0, local = 0;
        for (int64_t e = 0; e < experts; e++)
            slot_of[e] = test_below(&rng, 3) ? (int32_t)slots++ : -1;
        const bool one_expert = round % 5 == 0;
        for (int64_t p = 0; p < pairs; p++)
            ids[p] = one_expert ? 0 : (int32_t)test_range(&rng, -2, experts + 1);
        mox_permutation out = { offsets, pair_at, position };
        mox_permute(ids, tokens, k, experts, slot_of, slots, &out);
        assert_int_equal(offsets[0], 0);
        for (int64_t p = 0; p < pairs; p++) {
            const bool is_local = ids[p] >= 0 && ids[p] < experts && slot_of[ids[p]] >= 0;
            assert_int_equal(position[p] >= 0, is_local);
            if (!is_local)
                continue;
            const int64_t slot = slot_of[ids[p]];
            assert_in_range(position[p], offsets[slot], offsets[slot + 1] - 1);
            assert_int_equal(pair_at[position[p]], p);
            local++;
        }
        assert_int_equal(offsets[slots], local);
        for (int64_t s = 0; s < slots; s++)
            for (int64_t p = offsets[s] + 1; p < offsets[s + 1]; p++)
                assert_true(pair_at[p - 1] < pair_at[p]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed_values),      cmocka_unit_test(test_packed_both_ways),
        cmocka_unit_test(test_maps_by_hand),       cmocka_unit_test(test_maps_partition),
        cmocka_unit_test(test_maps_rejected),      cmocka_unit_test(test_permutation_by_hand),
        cmocka_unit_test(test_nothing_to_permute), cmocka_unit_test(test_permutation_properties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
