/* SPDX-License-Identifier: Apache-2.0
 *
 * test_column_order.c - layouts with sorted columns (pack/order): what lies in a record against a sort of this test's
 * own, element by element; unpack(pack(w)) == w; records whose matrices are in natural order; what is turned down; what
 * a check of a damaged record finds.
 */
#include "pack/order/column_order.h"
#include "packed_record.h"

static const char *const weights[] = { "gptq act order", "gptq 8 bit whole groups" };

static int32_t layouts(const mox_layout *out[8])
{
    const mox_layout *layout;
    int32_t n = 0;
    for (int32_t i = 0; (layout = mox_layout_at(i)) != NULL; i++)
        if (layout->base != NULL && n < 8)
            out[n++] = layout;
    return n;
}

static test_expert_spec spec_of(test_rng *rng, int64_t turn)
{
    static const int64_t sizes[] = { 32, 64, 96, 100, 160, 200, 264 };
    const test_weight_quant *which = test_weight_quant_named(weights[turn % 2]);
    return (test_expert_spec) { .hidden = sizes[test_below(rng, 7)],
                                .intermediate = sizes[test_below(rng, 7)],
                                .gated = test_below(rng, 3) != 0,
                                .bias13 = test_below(rng, 2) == 0,
                                .bias2 = test_below(rng, 2) == 0,
                                .w13 = which,
                                .w2 = which,
                                .fill = (test_fill)test_below(rng, TEST_FILLS) };
}

/* ---- what lies in a record -------------------------------------------------------------------------------- */

/* Column i of the sorted matrix, by insertion: ascending by (group, column). */
static int32_t *sorted_columns(const int32_t *group_index, int64_t cols)
{
    int32_t *order = calloc((size_t)cols, sizeof *order);
    for (int64_t k = 0; k < cols; k++) {
        int64_t at = k;
        for (; at > 0 && group_index[order[at - 1]] > group_index[k]; at--)
            order[at] = order[at - 1];
        order[at] = (int32_t)k;
    }
    return order;
}

/* `held` are the codes that the base layout unpacks from the record. */
static void check_matrix(const moxie_matrix *m, const moxie_matrix *held, const mox_column_order *o)
{
    const int64_t cols = m->codes.cols;
    assert_non_null(o->order);
    int32_t *order = sorted_columns(m->group_index, cols);
    for (int64_t i = 0; i < cols; i++) {
        assert_int_equal(o->order[i], order[i]);
        assert_int_equal(o->place[order[i]], i);
        for (int64_t r = 0; r < m->codes.rows; r++)
            assert_int_equal(mox_grid_code(&held->codes, r, i), mox_grid_code(&m->codes, r, order[i]));
    }
    free(order);
}

static const mox_layout *under_test;

/* The group index that a base layout writes is the natural one: it has no other. */
static void check_record(const mox_record_shape *shape, const moxie_expert *expert, const uint8_t *record,
                         uint64_t bytes)
{
    test_expert held, from = { .view = *expert };
    moxie_error error;
    uint64_t base;
    const mox_column_order first = mox_column_order_of(shape, record, false);
    const mox_column_order second = mox_column_order_of(shape, record, true);
    assert_true(under_test->base->record_bytes(shape, &base));
    assert_int_equal(bytes, base + mox_column_order_bytes(shape));
    assert_true(mox_column_order_is_valid(under_test, shape, record));
    test_expert_twin(&held, &from);
    assert_ok(under_test->base->unpack(shape, record, &held.view, &error), &error);
    if (shape->gated)
        check_matrix(&expert->gate, &held.view.gate, &first);
    check_matrix(&expert->up, &held.view.up, &first);
    check_matrix(&expert->down, &held.view.down, &second);
    test_expert_free(&held);
}

/* A matrix that happens to be in natural order has no order in its record; the check above wants one. */
static bool is_shuffled(const moxie_matrix *m, int64_t group)
{
    for (int64_t k = 0; k < m->codes.cols; k++)
        if (m->group_index[k] != k / group)
            return true;
    return false;
}

static void records(void **state)
{
    (void)state;
    const mox_layout *all[8];
    const int32_t n = layouts(all);
    test_rng rng = { test_seed(8810) };
    int64_t checked = 0;
    assert_true(n > 0);
    for (int64_t turn = 0; turn < (test_quick() ? 60 : 600); turn++) {
        const test_expert_spec spec = spec_of(&rng, turn);
        const mox_record_shape shape = test_record_shape(&spec);
        const int64_t group = spec.w13->quant.group_cols;
        test_expert expert;
        test_expert_make(&expert, &rng, &spec);
        under_test = all[turn / 2 % n];
        char reason[256];
        const bool shuffled = is_shuffled(&expert.view.up, group) && is_shuffled(&expert.view.down, group);
        if (under_test->reject(&shape, reason, sizeof reason) == NULL &&
            under_test->accepts(&shape, &expert.view, reason, sizeof reason)) {
            check_there_and_back(under_test, &shape, &expert, spec.w13->name, shuffled ? check_record : NULL);
            checked += shuffled;
        }
        test_expert_free(&expert);
    }
    assert_true(checked > 20);
}

/* Without an order the record begins with the base layout's bytes, and no flag is set. */
static void natural_order(void **state)
{
    (void)state;
    const mox_layout *all[8];
    const int32_t n = layouts(all);
    test_rng rng = { test_seed(8811) };
    const test_weight_quant *which = test_weight_quant_named("gptq");
    for (int32_t i = 0; i < n; i++) {
        const test_expert_spec spec = { .hidden = 96, .intermediate = 64, .gated = true, .w13 = which, .w2 = which };
        const mox_record_shape shape = test_record_shape(&spec);
        test_expert expert;
        moxie_error error;
        uint64_t bytes = 0, base = 0;
        test_expert_make(&expert, &rng, &spec);
        assert_true(all[i]->record_bytes(&shape, &bytes) && all[i]->base->record_bytes(&shape, &base));
        uint8_t *record = test_guarded(bytes), *plain = test_guarded(base);
        assert_ok(mox_record_pack(all[i], &shape, 3, &expert.view, record, &error), &error);
        assert_ok(mox_record_pack(all[i]->base, &shape, 3, &expert.view, plain, &error), &error);
        check_same_bytes(&shape, record, plain, base, "the base layout");
        assert_null(mox_column_order_of(&shape, record, false).order);
        assert_null(mox_column_order_of(&shape, record, true).order);
        assert_int_equal(mox_record_act_order(all[i], record), 0);
        test_guarded_free(record, bytes);
        test_guarded_free(plain, base);
        test_expert_free(&expert);
    }
}

/* ---- what is turned down, what is damaged ----------------------------------------------------------------- */

static void turned_down(void **state)
{
    (void)state;
    test_rng rng = { test_seed(8812) };
    const test_weight_quant *which = test_weight_quant_named("gptq act order");
    const test_expert_spec spec = { .hidden = 96, .intermediate = 64, .gated = true, .w13 = which, .w2 = which };
    const mox_record_shape shape = test_record_shape(&spec);
    const mox_layout *layout = mox_layout_by_name("panel16_order");
    char reason[256] = "";
    test_expert expert;
    test_expert_make(&expert, &rng, &spec);
    int32_t other[96], down[64];
    memcpy(other, expert.view.up.group_index, sizeof other);
    memcpy(down, expert.view.down.group_index, sizeof down);
    assert_true(layout->accepts(&shape, &expert.view, reason, sizeof reason));
    for (int i = 0; i < 95; i++)
        if (other[i] != other[i + 1]) {
            const int32_t kept = other[i];
            other[i] = other[i + 1], other[i + 1] = kept;
            break;
        }
    expert.view.up.group_index = other;
    assert_false(layout->accepts(&shape, &expert.view, reason, sizeof reason));
    assert_non_null(strstr(reason, "another act order"));
    expert.view.gate.group_index = other;
    assert_true(layout->accepts(&shape, &expert.view, reason, sizeof reason));
    down[7] ^= 1; /* two groups */
    expert.view.down.group_index = down;
    assert_false(layout->accepts(&shape, &expert.view, reason, sizeof reason));
    assert_non_null(strstr(reason, "group index of down gives group 0"));
    test_expert_free(&expert);
}

static void damaged(void **state)
{
    (void)state;
    test_rng rng = { test_seed(8813) };
    const test_weight_quant *which = test_weight_quant_named("gptq act order");
    const test_expert_spec spec = { .hidden = 96, .intermediate = 64, .gated = true, .w13 = which, .w2 = which };
    const mox_record_shape shape = test_record_shape(&spec);
    const mox_layout *layout = mox_layout_by_name("panel16_order");
    test_expert expert, back;
    moxie_error error;
    uint64_t bytes;
    test_expert_make(&expert, &rng, &spec);
    assert_true(layout->record_bytes(&shape, &bytes));
    uint8_t *record = test_guarded(bytes);
    assert_ok(mox_record_pack(layout, &shape, 3, &expert.view, record, &error), &error);
    assert_true(mox_column_order_is_valid(layout, &shape, record));
    assert_false(mox_column_order_is_valid(layout->base, &shape, record)); /* flags where there is no order */
    test_expert_twin(&back, &expert);
    static const int32_t bad[] = { -1, 96, INT32_MAX, 5 };
    for (int second = 0; second < 2; second++)
        for (int i = 0; i < 4; i++) {
            int32_t *order = (int32_t *)(uintptr_t)mox_column_order_of(&shape, record, second).order;
            const int32_t kept = order[2];
            order[2] = bad[i] != kept ? bad[i] : kept + 1;
            assert_false(mox_column_order_is_valid(layout, &shape, record));
            assert_int_equal(layout->unpack(&shape, record, &back.view, &error), MOXIE_ERR_FORMAT);
            order[2] = kept;
        }
    test_guarded_free(record, bytes);
    test_expert_free(&back);
    test_expert_free(&expert);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records),
        cmocka_unit_test(natural_order),
        cmocka_unit_test(turned_down),
        cmocka_unit_test(damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
