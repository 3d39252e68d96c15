/* SPDX-License-Identifier: Apache-2.0
 *
 * test_memory.c - the heap door (zeroing, alignment, refusal, the fuse) and the arena.
 */
#include "test_support.h"

#include "base/memory.h"

static bool all_zero(const unsigned char *bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (bytes[i])
            return false;
    }
    return true;
}

static void test_alloc(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        /* Dirtied and freed each round, so that a heap that does not clear shows it. */
        unsigned char *a = mox_alloc(1000), *b = mox_calloc(25, 40), *c = mox_alloc_aligned(1000, 256);
        assert_true(a && b && c);
        assert_true(all_zero(a, 1000) && all_zero(b, 1000) && all_zero(c, 1000));
        assert_int_equal((uintptr_t)c % 256, 0);
        memset(a, 0xff, 1000);
        memset(b, 0xff, 1000);
        memset(c, 0xff, 1000);
        mox_free(a);
        mox_free(b);
        mox_free(c);
    }
    void *empty = mox_alloc(0), *other = mox_alloc(0), *aligned = mox_alloc_aligned(0, 64);
    assert_true(empty && other && aligned && empty != other);
    mox_free(empty);
    mox_free(other);
    mox_free(aligned);
    mox_free(NULL);
}

static void test_alloc_refuses(void **state)
{
    (void)state;
    assert_null(mox_alloc(UINT64_MAX));
    assert_null(mox_alloc_aligned(UINT64_MAX - 7, 64));
    assert_null(mox_calloc(UINT64_C(1) << 32, UINT64_C(1) << 32)); /* 2^64: wraps to 0 */
    assert_null(mox_realloc(NULL, UINT64_MAX));
}

static void test_resize(void **state)
{
    (void)state;
    char *block = mox_realloc(NULL, 6);
    memcpy(block, "words", 6);
    block = mox_realloc(block, 100000);
    assert_string_equal(block, "words");
    mox_alloc_fail_at(1);
    assert_null(mox_realloc(block, 200000));
    assert_string_equal(block, "words");
    mox_free(block);
}

static void *allocate(int kind)
{
    switch (kind) {
    case 0: return mox_alloc(8);
    case 1: return mox_alloc_aligned(8, 64);
    case 2: return mox_realloc(NULL, 8);
    default: return mox_calloc(2, 4);
    }
}

static void test_fuse(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        for (uint64_t n = 0; n <= 5; n++) {
            const uint64_t before = mox_alloc_count();
            mox_alloc_fail_at(n);
            for (uint64_t i = 1; i <= 6; i++) {
                void *block = allocate(kind);
                assert_int_equal(block == NULL, i == n);
                mox_free(block);
            }
            assert_int_equal(mox_alloc_count() - before, 6);
        }
    }
    mox_alloc_fail_at(1);
    mox_alloc_fail_at(0);
    void *block = mox_alloc(1);
    assert_non_null(block);
    mox_free(block);
}

static void test_arena_objects(void **state)
{
    enum { OBJECTS = 2000 };
    static unsigned char *objects[OBJECTS];
    static uint64_t sizes[OBJECTS];
    test_rng rng = { test_seed(7) };
    mox_arena arena = { 0 };
    (void)state;
    for (int i = 0; i < OBJECTS; i++) {
        sizes[i] = test_below(&rng, i % 100 == 0 ? 100000 : 200);
        objects[i] = mox_arena_alloc(&arena, sizes[i]);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % 16, 0);
        assert_true(all_zero(objects[i], sizes[i]));
        memset(objects[i], i & 0xff, (size_t)sizes[i]);
    }
    for (int i = 0; i < OBJECTS; i++) {
        for (uint64_t b = 0; b < sizes[i]; b++)
            assert_int_equal(objects[i][b], i & 0xff); /* nobody else wrote here */
    }
    mox_arena_free(&arena);
    assert_null(arena.blocks);
    mox_arena_free(&arena);
}

static void test_arena_texts(void **state)
{
    mox_arena arena = { 0 };
    (void)state;
    assert_string_equal(mox_arena_strndup(&arena, "gate_up_proj", 7), "gate_up");
    assert_string_equal(mox_arena_strndup(&arena, NULL, 0), "");
    assert_string_equal(mox_arena_printf(&arena, "layers.%d.%s", 12, "mlp"), "layers.12.mlp");
    char *wide = mox_arena_printf(&arena, "%9000d", 1);
    assert_int_equal(strlen(wide), 9000);
    assert_int_equal(wide[8999], '1');
    mox_arena_free(&arena);
}

static void test_arena_out_of_memory(void **state)
{
    mox_arena arena = { 0 };
    (void)state;
    mox_alloc_fail_at(1);
    assert_null(mox_arena_alloc(&arena, 10));
    assert_non_null(mox_arena_alloc(&arena, 10));
    assert_null(mox_arena_alloc(&arena, UINT64_MAX));
    assert_null(mox_arena_alloc(&arena, UINT64_MAX - 40));
    assert_null(mox_arena_calloc(&arena, UINT64_C(1) << 60, 16));
    assert_null(mox_arena_strndup(&arena, "x", UINT64_MAX));
    mox_alloc_fail_at(1);
    assert_null(mox_arena_printf(&arena, "%100000d", 1));
    assert_string_equal(mox_arena_printf(&arena, "%d", 1), "1"); /* still usable */
    mox_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc),
        cmocka_unit_test(test_alloc_refuses),
        cmocka_unit_test(test_resize),
        cmocka_unit_test(test_fuse),
        cmocka_unit_test(test_arena_objects),
        cmocka_unit_test(test_arena_texts),
        cmocka_unit_test(test_arena_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
