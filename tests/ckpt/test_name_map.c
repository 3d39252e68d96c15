/* SPDX-License-Identifier: Apache-2.0
 *
 * test_name_map.c - every name has its value at every fill, absent names are not found, and running out of memory is an
 * error.
 */
#include "test_support.h"

#include "base/memory.h"
#include "ckpt/name_map.h"

#define NAMES 3000

static const char *name_of(int i)
{
    static char names[NAMES + 1][16];
    snprintf(names[i], sizeof names[i], "n.%d", i);
    return names[i];
}

static void test_every_fill(void **state)
{
    (void)state;
    mox_name_map map = { 0 };
    moxie_error error;
    assert_int_equal(mox_name_map_find(&map, "n.0"), -1);
    for (int i = 0; i < NAMES; i++) {
        int64_t existing = 7;
        assert_int_equal(mox_name_map_find(&map, name_of(i)), -1); /* would loop for ever in a full table */
        assert_ok(mox_name_map_put(&map, name_of(i), 2 * i, &existing, &error), &error);
        assert_int_equal(existing, -1);
        assert_int_equal(mox_name_map_find(&map, name_of(i)), 2 * i);
        assert_int_equal(mox_name_map_find(&map, name_of(i / 2)), i / 2 * 2);
    }
    for (int i = 0; i < NAMES; i++) {
        int64_t existing = -1;
        char copy[16];
        strcpy(copy, name_of(i));
        assert_ok(mox_name_map_put(&map, copy, 1, &existing, &error), &error);
        assert_int_equal(existing, 2 * i);
        assert_int_equal(mox_name_map_find(&map, copy), 2 * i);
    }
    mox_name_map_free(&map);
    assert_int_equal(mox_name_map_find(&map, "n.0"), -1);
}

static void test_no_memory(void **state)
{
    (void)state;
    mox_name_map map = { 0 };
    moxie_error error;
    int64_t existing = 7;
    for (int i = 0; i < 200; i++) {
        mox_alloc_fail_at(1);
        const moxie_status status = mox_name_map_put(&map, name_of(i), i, &existing, &error);
        mox_alloc_fail_at(0);
        assert_true(status == MOXIE_OK || status == MOXIE_ERR_MEMORY);
        if (status == MOXIE_ERR_MEMORY)
            assert_ok(mox_name_map_put(&map, name_of(i), i, &existing, &error), &error);
    }
    for (int i = 0; i < 200; i++)
        assert_int_equal(mox_name_map_find(&map, name_of(i)), i);
    mox_name_map_free(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_fill),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
