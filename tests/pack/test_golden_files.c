/* SPDX-License-Identifier: Apache-2.0
 *
 * test_golden_files.c - every vendor layout against its golden file: the tensors' names, dtypes, shapes and bytes, and
 * the checkpoint's weights back from them. A layout without a file fails.
 */
#include "test_golden.h"

#define GOLDEN "tests/golden" /* tests run in the root of the source tree */

static const mox_vendor_tensor *planned(const mox_vendor_plan *plan, const char *name)
{
    for (int32_t i = 0; i < plan->count; i++)
        if (strcmp(plan->tensors[i].name, name) == 0)
            return &plan->tensors[i];
    fail_msg("layout %s has no tensor %s, which its golden file has", plan->layout->name, name);
    return NULL;
}

static void compare(const mox_vendor_plan *plan, void *const *tensors, const test_golden *golden)
{
    int32_t public = 0;
    for (int32_t i = 0; i < plan->count; i++)
    public += strcmp(plan->tensors[i].name, MOX_VENDOR_SCALARS) != 0;
    assert_int_equal(public, golden->count);
    for (int o = 0; o < golden->count; o++) {
        const moxie_tensor *want = &golden->outputs[o].tensor;
        const mox_vendor_tensor *t = planned(plan, golden->outputs[o].name);
        assert_int_equal(t->dtype, want->dtype);
        assert_int_equal(t->rank, want->rank);
        for (int32_t d = 0; d < t->rank; d++)
            assert_int_equal(t->shape[d], want->shape[d]);
        const uint8_t *got = tensors[t - plan->tensors], *stated = want->data;
        for (uint64_t b = 0; b < t->bytes; b++)
            if (got[b] != stated[b])
                fail_msg("%s %s: byte %llu is %02x, golden %02x", plan->layout->name, t->name, (unsigned long long)b,
                         got[b], stated[b]);
    }
}

enum { BLOCKS = 18 };

/* Separate memory for every grid and group index, to unpack into; it ends in `blocks`. */
static moxie_expert writable(const moxie_expert *from, void *blocks[BLOCKS])
{
    moxie_expert out = *from;
    moxie_matrix *const matrices[3] = { &out.gate, &out.up, &out.down };
    for (int i = 0; i < 15; i++) {
        moxie_matrix *m = matrices[i / 5];
        moxie_grid *const grids[5] = { &m->codes, &m->scale, &m->zero, &m->global, &m->bias };
        blocks[i] = NULL;
        if (grids[i % 5]->data != NULL)
            grids[i % 5]->data = blocks[i] = calloc(1, (size_t)grids[i % 5]->bytes);
    }
    for (int i = 0; i < 3; i++) {
        blocks[15 + i] = NULL;
        if (matrices[i]->group_index != NULL)
            matrices[i]->group_index = blocks[15 + i] = calloc((size_t)matrices[i]->codes.cols, sizeof(int32_t));
    }
    return out;
}

static void check(const mox_vendor_layout *layout, test_golden_kind kind)
{
    test_golden golden;
    moxie_error error = { 0 };
    mox_vendor_plan plan;
    test_golden_read(layout, kind, GOLDEN, &golden);
    assert_ok(mox_vendor_plan_make(layout, &golden.shape, &golden.use, &golden.expert, kind == TEST_GOLDEN_HALVED,
                                   &plan, &error),
              &error);
    if (layout->surveys)
        assert_ok(mox_vendor_survey(&plan, &golden.expert, &error), &error);
    void *tensors[TEST_GOLDEN_TENSORS + 1], *blocks[BLOCKS];
    for (int32_t i = 0; i < plan.count; i++)
        tensors[i] = malloc((size_t)plan.tensors[i].bytes);
    assert_ok(mox_vendor_pack(&plan, &golden.expert, tensors, &mox_executor_serial, &error), &error);
    compare(&plan, tensors, &golden);
    moxie_expert back = writable(&golden.expert, blocks);
    assert_ok(mox_vendor_unpack(&plan, tensors, &back, &mox_executor_serial, &error), &error);
    const char *differs = "";
    if (!test_expert_equal(&golden.expert, &back, &differs))
        fail_msg("%s: %s does not come back", layout->name, differs);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    for (int32_t i = 0; i < plan.count; i++)
        free(tensors[i]);
    test_golden_close(&golden);
}

static int check_all(test_golden_kind kind)
{
    int found = 0;
    for (int32_t i = 0; mox_vendor_at(i) != NULL; i++)
        if (test_golden_has(mox_vendor_at(i), kind)) {
            check(mox_vendor_at(i), kind);
            found++;
        }
    return found;
}

static void every_layout_makes_the_tensors_of_its_file(void **state)
{
    (void)state;
    check_all(TEST_GOLDEN_PLAIN);
}

static void layouts_that_take_act_order_make_the_tensors_of_its_file(void **state)
{
    (void)state;
    assert_int_equal(check_all(TEST_GOLDEN_ACT_ORDER), 2);
}

static void layouts_that_halve_groups_make_the_tensors_of_their_file(void **state)
{
    (void)state;
    assert_int_equal(check_all(TEST_GOLDEN_HALVED), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_makes_the_tensors_of_its_file),
        cmocka_unit_test(layouts_that_take_act_order_make_the_tensors_of_its_file),
        cmocka_unit_test(layouts_that_halve_groups_make_the_tensors_of_their_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
