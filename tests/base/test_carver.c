/* SPDX-License-Identifier: Apache-2.0
 *
 * test_carver.c - base/carver.h: the measured size is the size that the arrays take; arrays are aligned and do not
 * overlap.
 */
#include "test_support.h"

#include "base/carver.h"

enum { ARRAYS = 6 };
static const uint64_t counts[ARRAYS] = { 1, 63, 64, 0, 65, 7 }, sizes[ARRAYS] = { 1, 1, 1, 8, 1, 24 };

static void lay_out(mox_carver *carver, uint8_t *arrays[ARRAYS])
{
    for (int i = 0; i < ARRAYS; i++)
        arrays[i] = mox_carve(carver, counts[i], sizes[i]);
}

static void measures_what_it_hands_out(void **state)
{
    (void)state;
    static _Alignas(MOX_CARVE_ALIGN) uint8_t memory[1024];
    uint8_t *arrays[ARRAYS];
    mox_carver measuring = mox_carver_of(NULL), carver = mox_carver_of(memory);
    lay_out(&measuring, arrays);
    for (int i = 0; i < ARRAYS; i++)
        assert_null(arrays[i]);
    assert_int_equal(measuring.used, 64 + 64 + 64 + 0 + 128 + 192);
    lay_out(&carver, arrays);
    assert_int_equal(carver.used, measuring.used);
    for (int i = 0; i < ARRAYS; i++) {
        const uint8_t *end = i + 1 < ARRAYS ? arrays[i + 1] : memory + carver.used;
        assert_int_equal((uintptr_t)arrays[i] % MOX_CARVE_ALIGN, 0);
        assert_true(arrays[i] + counts[i] * sizes[i] <= end);
    }
}

/* Offsets are multiples of the carver's own alignment, which may exceed that of memory. */
static void hands_out_offsets(void **state)
{
    (void)state;
    const uint64_t expected[ARRAYS] = { 0, 256, 512, 768, 768, 1024 };
    mox_carver carver = mox_offset_carver(256);
    for (int i = 0; i < ARRAYS; i++)
        assert_int_equal(mox_carve_offset(&carver, counts[i], sizes[i]), expected[i]);
    assert_int_equal(carver.used, 1280);
}

/* A size that overflows 64 bits stays larger than any buffer. */
static void sizes_do_not_wrap(void **state)
{
    (void)state;
    const uint64_t too_many[][2] = { { UINT64_MAX, 2 }, { UINT64_MAX, 1 }, { UINT64_C(1) << 40, UINT64_C(1) << 40 } };
    for (size_t i = 0; i < sizeof too_many / sizeof too_many[0]; i++) {
        mox_carver carver = mox_carver_of(NULL);
        mox_carve(&carver, 100, 1);
        mox_carve(&carver, too_many[i][0], too_many[i][1]);
        mox_carve(&carver, 100, 1);
        assert_true(carver.used == MOX_CARVED_TOO_MUCH);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measures_what_it_hands_out),
        cmocka_unit_test(hands_out_offsets),
        cmocka_unit_test(sizes_do_not_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
