/* SPDX-License-Identifier: Apache-2.0
 *
 * test_vendor.c - every vendor layout, over every weight format it takes, in every packing that checkpoints have:
 *
 *     tensors     equal the second statement (test_statements.h), byte for byte; every byte is written
 *     undo        unpack(pack(w)) == w, and what is padded came back as nothing
 *     limits      shapes beside a limit are refused with the rule and the nearest that would do
 */
#include "pack/vendor/vendor.h"
#include "test_problem.h"
#include "test_statements.h"

enum { SHAPES = 50 };

static const test_statement *statement_of(const mox_vendor_layout *layout)
{
    const test_statement *s = test_statements;
    while (s->layout != NULL && strcmp(s->layout, layout->name) != 0)
        s++;
    return s;
}

/* The least common multiple of what a layout asks of an extent. */
static int64_t unit_of(const mox_vendor_layout *layout, mox_vendor_extent extent)
{
    int64_t unit = 1;
    for (const mox_vendor_limit *l = layout->limits; l < layout->limits + MOX_VENDOR_LIMITS && l->multiple; l++) {
        int64_t next = unit;
        while (l->extent == extent && next % l->multiple != 0)
            next += unit;
        unit = next;
    }
    return unit;
}

/* ---- memory of one expert's tensors ---- */

typedef struct tensors {
    void *data[MOX_VENDOR_PARTS + MOX_VENDOR_CONSTANTS + 1];
    const mox_vendor_plan *plan;
} tensors;

static void make_tensors(tensors *t, const mox_vendor_plan *plan)
{
    t->plan = plan;
    for (int32_t i = 0; i < plan->count; i++) {
        t->data[i] = test_guarded((size_t)plan->tensors[i].bytes);
        memset(t->data[i], 0xa5, (size_t)plan->tensors[i].bytes);
    }
}

static void free_tensors(tensors *t)
{
    for (int32_t i = 0; i < t->plan->count; i++)
        test_guarded_free(t->data[i], (size_t)t->plan->tensors[i].bytes);
}

static void compare(const tensors *t, const moxie_expert *expert, const char *what)
{
    const mox_vendor_plan *plan = t->plan;
    test_stated stated[MOX_VENDOR_PARTS + MOX_VENDOR_CONSTANTS];
    const int count = statement_of(plan->layout)->state(plan, expert, stated);
    for (int s = 0; s < count; s++) {
        int32_t i = 0;
        while (i < plan->count && strcmp(plan->tensors[i].name, stated[s].name) != 0)
            i++;
        if (i == plan->count)
            fail_msg("%s: no tensor %s", what, stated[s].name);
        size_t bytes;
        uint8_t *want = test_array_bytes(&stated[s].array, stated[s].bits, &bytes);
        const uint8_t *got = t->data[i];
        assert_int_equal(plan->tensors[i].bytes, bytes);
        for (size_t b = 0; b < bytes; b++)
            if (got[b] != want[b])
                fail_msg("%s %s: byte %zu of %zu is %02x, stated %02x", what, stated[s].name, b, bytes, got[b],
                         want[b]);
        free(want);
        test_array_free(&stated[s].array);
    }
}

/* ---- one case ---- */

/* False when the layout does not take these weights. */
static bool run_case(const mox_vendor_layout *layout, const test_weight_quant *quant, int64_t hidden,
                     int64_t intermediate, bool gated, bool bias, bool pad, test_rng *rng)
{
    const test_expert_spec spec = { .hidden = hidden,
                                    .intermediate = intermediate,
                                    .gated = gated,
                                    .bias13 = bias,
                                    .bias2 = bias,
                                    .w13 = quant,
                                    .w2 = quant };
    const mox_record_shape shape = test_record_shape(&spec);
    test_expert expert, twin;
    test_expert_make(&expert, rng, &spec);
    moxie_error error = { 0 };
    mox_vendor_plan plan;
    if (mox_vendor_plan_make(layout, &shape, &expert.view, pad, &plan, &error) != MOXIE_OK) {
        test_expert_free(&expert);
        return false;
    }
    char what[160];
    snprintf(what, sizeof what, "%s of %s, hidden %lld, intermediate %lld", layout->name, quant->name,
             (long long)hidden, (long long)intermediate);
    if (layout->surveys)
        assert_ok(mox_vendor_survey(&plan, &expert.view, &error), &error);
    tensors t;
    make_tensors(&t, &plan);
    assert_ok(mox_vendor_pack(&plan, &expert.view, t.data, &mox_executor_serial, &error), &error);
    compare(&t, &expert.view, what);
    test_expert_twin(&twin, &expert);
    assert_ok(mox_vendor_unpack(&plan, t.data, &twin.view, &mox_executor_serial, &error), &error);
    const char *differs = "";
    if (!test_expert_equal(&expert.view, &twin.view, &differs))
        fail_msg("%s: %s does not come back", what, differs);
    free_tensors(&t);
    test_expert_free(&twin);
    test_expert_free(&expert);
    return true;
}

static void every_layout_matches_its_statement_and_comes_back(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(4);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int32_t i = 0; mox_vendor_at(i) != NULL; i++) {
        const mox_vendor_layout *layout = mox_vendor_at(i);
        if (statement_of(layout)->layout == NULL)
            fail_msg("%s has no second statement", layout->name);
        const int64_t h = unit_of(layout, MOX_VENDOR_HIDDEN), in = unit_of(layout, MOX_VENDOR_INTERMEDIATE);
        test_rng rng = { seed + (uint64_t)i };
        int taken = 0;
        for (int tries = 0; taken < SHAPES && tries < 100 * SHAPES; tries++) {
            const test_weight_quant *quant = &test_weight_quants[tries % test_weight_quant_count];
            /* Small multiples: edges of tiles come up often, and the oracle of bytes is slow. */
            const int64_t hidden = h * test_range(&rng, 1, h < 128 ? 1 + 256 / h : 2);
            const int64_t intermediate = in * test_range(&rng, 1, in < 128 ? 1 + 256 / in : 2);
            taken += run_case(layout, quant, hidden, intermediate, layout->takes.ungated ? test_below(&rng, 2) : true,
                              layout->takes.bias ? test_below(&rng, 2) : false, false, &rng);
        }
        if (taken < SHAPES)
            fail_msg("%s took %d of the wanted %d cases", layout->name, taken, SHAPES);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_matches_its_statement_and_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
