/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_place.c - the kernels that place rows of an exchange and order its results (cuda_place_rows_args.h), alone.
 * Their output equals what this file finds choice by choice. The test runs on the launch table in plain C, then on a
 * GPU. test_cuda_place_emulated runs the kernels' own source on the emulator.
 */
#include "device_support.h"
#include "test_cuda_table.h"

enum { MAX_TOKENS = 1300, MAX_K = 32, MAX_GROUPS = 9, MAX_E = 40, ROWS = MAX_GROUPS * (MAX_TOKENS + 3) };

static const mox_cuda_table *table; /* NULL: the emulator */

/* Inputs, and what must come out. */
static struct {
    int64_t tokens, k, experts, capacity;
    int32_t groups, home, ids[MAX_TOKENS * MAX_K], adapters[MAX_TOKENS], first_replica[MAX_E + 1],
        replica[MAX_E * MAX_GROUPS];
    float weights[MAX_TOKENS * MAX_K];
    int64_t token[ROWS], position[MAX_TOKENS * MAX_K], counts[2 * MAX_GROUPS];
    int32_t row_ids[ROWS * MAX_K], row_adapters[ROWS];
    float row_weights[ROWS * MAX_K];
} c;

static void make(test_rng *rng, int64_t tokens, int64_t k, int32_t groups)
{
    c.tokens = tokens, c.k = k, c.groups = groups;
    c.capacity = tokens + (int64_t)test_below(rng, 4);
    c.experts = test_range(rng, 1, MAX_E);
    c.home = (int32_t)test_below(rng, (uint64_t)groups);
    c.first_replica[0] = 0;
    for (int32_t e = 0, n = 0; e < c.experts; e++) {
        const int32_t sure = (int32_t)test_below(rng, (uint64_t)groups);
        for (int32_t g = 0; g < groups; g++)
            if (g == sure || test_below(rng, 5) == 0)
                c.replica[n++] = g;
        c.first_replica[e + 1] = n;
    }
    for (int64_t i = 0; i < tokens * k; i++) {
        c.ids[i] = (int32_t)test_range(rng, -2, c.experts + 1);
        c.weights[i] = test_normal(rng);
    }
    for (int64_t t = 0; t < tokens; t++)
        c.adapters[t] = (int32_t)test_range(rng, -1, 5);
}

/* Who computes a choice; -1: nobody. */
static int32_t group_of(int64_t t, int64_t j)
{
    const int32_t id = c.ids[t * c.k + j];
    if (id < 0 || id >= c.experts)
        return -1;
    const int32_t first = c.first_replica[id], count = c.first_replica[id + 1] - first;
    for (int32_t i = 0; i < count; i++)
        if (c.replica[first + i] == c.home)
            return c.home;
    return c.replica[first + (t + j) % count];
}

/* All rows of a group, from row g * capacity on; *result: the number of its next result, where those are counted. */
static void expect_group(int32_t g, bool counted, bool adapted, int64_t *result)
{
    int64_t row = g * c.capacity - 1, pairs = 0;
    for (int64_t t = 0; t < c.tokens; t++) {
        bool begun = false;
        for (int64_t j = 0; j < c.k; j++) {
            if (group_of(t, j) != g)
                continue;
            row += !begun;
            c.token[row] = t;
            c.row_adapters[row] = adapted ? c.adapters[t] : -1;
            for (int64_t i = 0; i < c.k && !begun; i++)
                c.row_weights[row * c.k + i] = c.weights[t * c.k + i];
            begun = true;
            c.row_ids[row * c.k + j] = c.ids[t * c.k + j];
            c.position[t * c.k + j] = counted ? (*result)++ : row * c.k + j;
            pairs++;
        }
    }
    c.counts[2 * g] = row + 1 - g * c.capacity;
    c.counts[2 * g + 1] = pairs;
}

static void expect(bool counted, bool adapted)
{
    int64_t result = 0;
    memset(c.token, 0xff, sizeof c.token);
    memset(c.position, 0xff, sizeof c.position);
    memset(c.row_ids, 0xff, sizeof c.row_ids);
    memset(c.row_adapters, 0xff, sizeof c.row_adapters);
    memset(c.row_weights, 0, sizeof c.row_weights);
    for (int32_t g = 0; g < c.groups; g++)
        expect_group(g, counted, adapted, &result);
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

static device_guards guards;

/* `bytes` where the kernels run, with the content of `host`, or all 0xff. */
static void *put(const void *host, size_t bytes)
{
    void *block =
        table != NULL ? device_guard_allocate(&guards, bytes + 1) : memset(malloc(bytes + 1), 0xff, bytes + 1);
    assert_non_null(block);
    if (table == NULL && host != NULL)
        memcpy(block, host, bytes);
    else if (host != NULL)
        assert_int_equal(table->copy(block, host, bytes, NULL, NULL), MOXIE_OK);
    if (table != NULL)
        assert_int_equal(table->stream_wait(NULL, NULL), MOXIE_OK);
    return block;
}

/* Compares and frees. */
static void same(void *block, const void *want, size_t bytes, const char *what)
{
    char *got = malloc(bytes + 1);
    if (table == NULL)
        memcpy(got, block, bytes);
    else
        assert_int_equal(table->copy(got, block, bytes, NULL, NULL), MOXIE_OK);
    if (table != NULL)
        assert_int_equal(table->stream_wait(NULL, NULL), MOXIE_OK);
    if (want != NULL && memcmp(got, want, bytes) != 0)
        fail_msg("%lld tokens, K %lld, %d groups: %s differ", (long long)c.tokens, (long long)c.k, (int)c.groups, what);
    free(got);
    if (table != NULL)
        device_guard_release(&guards, block);
    else
        free(block);
}

static void release(const void *block)
{
    same((void *)(uintptr_t)block, NULL, 0, "");
}

/* ---- place ----------------------------------------------------------------------------------------------- */

static void place(const mox_cuda_place_rows_args *args)
{
    moxie_error error = { 0 };
#ifdef MOX_TEST_EMULATED
    assert_ok(mox_cuda_place_rows_launch(args, NULL, &error), &error);
#else
    assert_ok(table->place_rows(args, NULL, &error), &error);
#endif
}

static void check_place(bool counted, bool adapted)
{
    const size_t choices = (size_t)(c.tokens * c.k), rows = (size_t)(c.groups * c.capacity), k = (size_t)c.k;
    const int64_t offsets[] = { 0, c.tokens };
    expect(counted, adapted);
    const mox_cuda_place_rows_args a = {
        .ids = put(c.ids, choices * sizeof *c.ids),
        .weights = put(c.weights, choices * sizeof *c.weights),
        .adapters = adapted ? put(c.adapters, (size_t)c.tokens * sizeof *c.adapters) : NULL,
        .tokens = c.tokens,
        .top_k = c.k,
        .experts = c.experts,
        .capacity = c.capacity,
        .first_source = c.home * 2 + 1, /* the second rank of a group */
        .sources = 1,
        .groups = c.groups,
        .tp_size = 2,
        .first_replica = put(c.first_replica, sizeof c.first_replica),
        .replica = put(c.replica, sizeof c.replica),
        .token = put(NULL, rows * sizeof *c.token),
        .row_ids = put(NULL, rows * k * sizeof *c.row_ids),
        .row_weights = put(NULL, rows * k * sizeof *c.row_weights),
        .row_adapters = put(NULL, rows * sizeof *c.row_adapters),
        .position = put(NULL, choices * sizeof *c.position),
        .counts = counted ? put(NULL, 2 * (size_t)c.groups * sizeof *c.counts) : NULL,
        .own_offsets = put(NULL, sizeof offsets),
    };
    place(&a);
    same(a.token, c.token, rows * sizeof *c.token, "tokens");
    same(a.row_ids, c.row_ids, rows * k * sizeof *c.row_ids, "ids");
    same(a.row_adapters, c.row_adapters, rows * sizeof *c.row_adapters, "adapters");
    same(a.position, c.position, choices * sizeof *c.position, "positions");
    same(a.own_offsets, offsets, sizeof offsets, "offsets");
    if (counted)
        same(a.counts, c.counts, 2 * (size_t)c.groups * sizeof *c.counts, "counts");
    release(a.row_weights);
    release(a.ids);
    release(a.weights);
    release(a.first_replica);
    release(a.replica);
    if (adapted)
        release(a.adapters);
    assert_int_equal(guards.broken, 0);
}

static void places(void **state)
{
    (void)state;
    static const int64_t tokens[] = { 0, 1, 31, 33, 255, 256, 257, MAX_TOKENS }, top_k[] = { 1, 3, 8, MAX_K };
    static const int32_t groups[] = { 1, 2, MAX_GROUPS };
    test_rng rng = { test_seed(27001) };
    guards.table = table;
    for (int i = 0; i < 8 * 4 * 3; i++) {
        if (test_quick() && i % 5 != 0)
            continue;
        make(&rng, tokens[i % 8], top_k[i / 8 % 4], groups[i / 32]);
        check_place(true, i % 2 == 0);
        check_place(false, i % 3 == 0);
    }
}

/* ---- order ----------------------------------------------------------------------------------------------- */

static void order(const mox_cuda_order_rows_args *args)
{
    moxie_error error = { 0 };
#ifdef MOX_TEST_EMULATED
    assert_ok(mox_cuda_order_rows_launch(args, NULL, &error), &error);
#else
    assert_ok(table->order_rows(args, NULL, &error), &error);
#endif
}

/* `more`: results that are expected and do not come, or, below 0, come and are not expected. */
static void check_order(test_rng *rng, int64_t pairs, uint64_t one_in, int64_t more)
{
    int64_t position[2600], want[2700], count = 0;
    for (int64_t p = 0; p < pairs; p++) {
        position[p] = test_below(rng, one_in) == 0 ? (int64_t)test_below(rng, 100000) : -1;
        if (position[p] >= 0)
            want[count++] = position[p];
    }
    for (int64_t i = count; i < count + more; i++)
        want[i] = -1;
    count = count + more > 0 ? count + more : 0;
    c.tokens = pairs;
    const mox_cuda_order_rows_args a = { .position = put(position, (size_t)pairs * sizeof *position),
                                         .pairs = pairs,
                                         .count = count,
                                         .order = put(NULL, (size_t)count * sizeof *want) };
    order(&a);
    same(a.order, want, (size_t)count * sizeof *want, "orders");
    release(a.position);
    assert_int_equal(guards.broken, 0);
}

static void orders(void **state)
{
    (void)state;
    static const int64_t pairs[] = { 0, 1, 255, 256, 257, 1000, 2600 };
    test_rng rng = { test_seed(27002) };
    for (int i = 0; i < 7 * 9; i++)
        check_order(&rng, pairs[i % 7], (uint64_t[]) { 1, 2, 9 }[i / 7 % 3], (int64_t[]) { 0, 5, -3 }[i / 21]);
}

/* ---- without and with a GPU ------------------------------------------------------------------------------ */

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(places), cmocka_unit_test(orders) };
#ifdef MOX_TEST_EMULATED
    return cmocka_run_group_tests_name("emulator", tests, NULL, NULL);
#else
    moxie_error error = { 0 };
    test_cuda_begin(NULL);
    assert_ok(mox_cuda_open(&table, &error), &error);
    const int wrong = cmocka_run_group_tests_name("plain table", tests, NULL, test_cuda_end);
    if (wrong != 0)
        return wrong;
    table = device_or_skip();
    return table != NULL ? cmocka_run_group_tests_name("device", tests, NULL, NULL) : 77;
#endif
}
