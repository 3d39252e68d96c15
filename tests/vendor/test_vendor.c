/* SPDX-License-Identifier: Apache-2.0
 *
 * test_vendor.c - every vendor layout, over every weight format it accepts, in every packing that checkpoints have:
 *
 *     tensors     equal the independent statement (test_statements.h), byte for byte; every byte is written
 *     undo        unpack(pack(w)) == w, and padding comes back as nothing
 *     limits      shapes next to a limit are rejected with the rule and the nearest size that would do
 */
#include "ckpt/safetensors/file_dtype.h"
#include "vendor/vendor.h"
#include "test_executors.h"
#include "test_problem.h"
#include "test_statements.h"
#include "test_vendor_cases.h"

enum { SHAPES = 50 };

/* ---- memory of one expert's tensors ---- */

typedef struct tensors {
    void *data[MOX_VENDOR_TENSORS];
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
    test_stated stated[MOX_VENDOR_TENSORS];
    const int count = test_statement_of(plan->layout)->state(plan, expert, stated);
    int32_t scalars = 0;
    for (int32_t i = 0; i < plan->count; i++)
        scalars += !strcmp(plan->tensors[i].name, MOX_VENDOR_SCALARS);
    if (plan->count - scalars != count)
        fail_msg("%s: %d tensors, stated %d", what, (int)(plan->count - scalars), count);
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
        assert_non_null(mox_file_dtype_name(plan->tensors[i].dtype)); /* files can hold it */
        for (size_t b = 0; b < bytes; b++)
            if (got[b] != want[b])
                fail_msg("%s %s: byte %zu of %zu is %02x, stated %02x", what, stated[s].name, b, bytes, got[b],
                         want[b]);
        free(want);
        test_array_free(&stated[s].array);
    }
}

/* ---- one case ---- */

/* A layer of one expert, and the options for its layout. */
typedef struct layer_case {
    const mox_vendor_layout *layout;
    const test_weight_quant *quant;
    int64_t hidden, intermediate;
    bool gated, bias, pad;
} layer_case;

/* False when the target cannot represent the weights. Tasks run backwards: none may depend on an earlier one. */
static bool check_case(const mox_vendor_plan *plan, const test_expert *expert, const char *what)
{
    moxie_error error = { 0 };
    tensors t;
    make_tensors(&t, plan);
    test_executor backwards;
    test_executor_init(&backwards, 3, TEST_BACKWARDS);
    const moxie_status status = mox_vendor_pack(plan, &expert->view, t.data, &backwards.executor, &error);
    if (status == MOXIE_ERR_UNSUPPORTED) {
        free_tensors(&t);
        return false;
    }
    assert_ok(status, &error);
    compare(&t, &expert->view, what);
    test_expert twin;
    test_expert_twin(&twin, expert);
    assert_ok(mox_vendor_unpack(plan, t.data, &twin.view, &backwards.executor, &error), &error);
    const char *differs = "";
    if (!test_expert_equal(&expert->view, &twin.view, &differs))
        fail_msg("%s: %s does not come back", what, differs);
    free_tensors(&t);
    test_expert_free(&twin);
    return true;
}

/* Whether making an expert of this form is worth it: a plan needs only its types. */
static bool can_plan(const layer_case *c, const mox_record_shape *shape)
{
    const moxie_dtype zero = c->quant->zero_dtype != MOXIE_DTYPE_NONE ? c->quant->zero_dtype : c->quant->quant.element;
    moxie_expert types = { 0 };
    if (shape->w13.has_zero)
        types.up.zero = types.down.zero = (moxie_grid) { .data = c, .dtype = zero };
    mox_vendor_plan plan;
    moxie_error error;
    return mox_vendor_plan_make(c->layout, shape, NULL, &types, c->pad, &plan, &error) == MOXIE_OK;
}

/* False when the layout does not accept these weights. */
static bool run_case(const layer_case *c, test_rng *rng)
{
    const test_expert_spec spec = { .hidden = c->hidden,
                                    .intermediate = c->intermediate,
                                    .gated = c->gated,
                                    .bias13 = c->bias,
                                    .bias2 = c->bias,
                                    .w13 = c->quant,
                                    .w2 = c->quant };
    const mox_record_shape shape = test_record_shape(&spec);
    const mox_vendor_use use = test_vendor_use(rng);
    if (!can_plan(c, &shape))
        return false;
    test_expert expert;
    test_expert_make(&expert, rng, &spec);
    test_vendor_settle(&expert.view, c->layout, &shape, rng);
    moxie_error error = { 0 };
    mox_vendor_plan plan;
    moxie_status status = mox_vendor_plan_make(c->layout, &shape, &use, &expert.view, c->pad, &plan, &error);
    if (status == MOXIE_OK && c->layout->surveys)
        status = mox_vendor_survey(&plan, &expert.view, &error);
    if (status == MOXIE_OK)
        status = mox_vendor_check(&plan, &expert.view, &error);
    if (status == MOXIE_OK) {
        char what[160];
        snprintf(what, sizeof what, "%s of %s, hidden %lld, intermediate %lld", c->layout->name, c->quant->name,
                 (long long)c->hidden, (long long)c->intermediate);
        if (!check_case(&plan, &expert, what))
            status = MOXIE_ERR_UNSUPPORTED;
    } else if (status != MOXIE_ERR_UNSUPPORTED) {
        fail_msg("%s: %s", c->layout->name, error.text);
    }
    test_expert_free(&expert);
    return status == MOXIE_OK;
}

static bool pads(const mox_vendor_layout *layout, mox_vendor_extent extent)
{
    bool found = false, all = true;
    for (const mox_vendor_limit *l = layout->limits; l < layout->limits + MOX_VENDOR_LIMITS && l->multiple; l++)
        if (l->extent == extent) {
            found = true;
            all = all && l->pads;
        }
    return found && all;
}

/* Small multiples of the unit: edges of tiles occur often, and the oracle of bytes is slow. Large units seldom more
 * than once. Where the layout pads, sometimes short of a multiple by an even number. */
static int64_t random_extent(const mox_vendor_layout *layout, mox_vendor_extent extent, bool pad, test_rng *rng)
{
    const int64_t unit = test_vendor_unit(layout, extent);
    const int64_t most = unit < 128 ? 1 + 256 / unit : unit < 256 || test_below(rng, 4) == 0 ? 2 : 1;
    const int64_t whole = unit * test_range(rng, 1, most);
    return pad && pads(layout, extent) ? whole - 2 * (int64_t)test_below(rng, (uint32_t)(unit / 2)) : whole;
}

static void every_layout_matches_its_statement_and_comes_back(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(4);
    print_message("seed %llu\n", (unsigned long long)seed);
    const int shapes = SHAPES / (int)test_quick_one_in(5, "shapes of each layout");
    for (int32_t i = 0; mox_vendor_at(i) != NULL; i++) {
        const mox_vendor_layout *layout = mox_vendor_at(i);
        if (test_statement_of(layout)->layout == NULL)
            fail_msg("%s has no second statement", layout->name);
        test_rng rng = { seed + (uint64_t)i };
        int accepted = 0, quants = 0;
        while (test_vendor_quant_at(quants) != NULL)
            quants++;
        /* Every format at least once. */
        for (int tries = 0; tries < quants || (accepted < shapes && tries < 100 * SHAPES); tries++) {
            layer_case c = { .layout = layout,
                             .quant = test_vendor_quant_at(tries % quants),
                             .gated = layout->accepts.ungated ? test_below(&rng, 2) : true,
                             .bias = layout->accepts.bias ? test_below(&rng, 2) : false,
                             .pad = test_below(&rng, 2) };
            if (!test_vendor_takes(layout, &c.quant->quant))
                continue;
            c.hidden = random_extent(layout, MOX_VENDOR_HIDDEN, c.pad, &rng);
            c.intermediate = random_extent(layout, MOX_VENDOR_INTERMEDIATE, c.pad, &rng);
            accepted += run_case(&c, &rng);
        }
        if (accepted < shapes)
            fail_msg("%s took %d of the wanted %d cases", layout->name, accepted, shapes);
    }
}

/* ---- pairs ---- */

/* Both grids in one tensor, rows in turn, as gpt-oss's files have them. */
static void interleave(test_expert *expert, moxie_grid *gate, moxie_grid *up)
{
    const int64_t bytes = (gate->cols * mox_dtype_bits(gate->dtype) + 7) / 8;
    const size_t size = (size_t)(2 * gate->rows * bytes);
    uint8_t *both = test_guarded(size);
    assert_true(expert->n_blocks < TEST_MAX_BLOCKS);
    expert->blocks[expert->n_blocks].data = both;
    expert->blocks[expert->n_blocks++].bytes = size;
    for (int64_t r = 0; r < gate->rows; r++) {
        memcpy(both + 2 * r * bytes, (const uint8_t *)gate->data + r * gate->row_stride, (size_t)bytes);
        memcpy(both + (2 * r + 1) * bytes, (const uint8_t *)up->data + r * up->row_stride, (size_t)bytes);
    }
    gate->data = both;
    up->data = both + bytes;
    gate->row_stride = up->row_stride = 2 * bytes;
    gate->bytes = (uint64_t)((2 * gate->rows - 1) * bytes);
    up->bytes = gate->bytes;
}

/* vLLM leaves gpt-oss's rows as they lie, and its activation for gpt-oss reads pairs. With another activation, or with
 * gate and up apart, it reads halves. */
static void gpt_oss_stays_in_pairs_for_marlin(void **state)
{
    (void)state;
    static const char *const layouts[] = { "marlin-mxfp4", "marlin-mxfp4-fp8" };
    const test_weight_quant *quant = test_weight_quant_named("mxfp4");
    const test_expert_spec spec = {
        .hidden = 288, .intermediate = 96, .gated = true, .bias13 = true, .bias2 = true, .w13 = quant, .w2 = quant
    };
    const mox_record_shape shape = test_record_shape(&spec);
    const mox_vendor_use oai = { .activation = { MOXIE_ACT_SILU, 1.702f, 1, 7, 7, NULL, NULL, NULL } };
    const mox_vendor_use plain = { .activation.kind = MOXIE_ACT_SILU };
    moxie_error error = { 0 };
    mox_vendor_plan plan;
    for (int l = 0; l < 2; l++) {
        const mox_vendor_layout *layout = mox_vendor_by_name(layouts[l]);
        test_rng rng = { test_seed(7) };
        test_expert expert;
        test_expert_make(&expert, &rng, &spec);
        while (expert.view.gate.bias.dtype != MOXIE_BF16 || expert.view.up.bias.dtype != MOXIE_BF16 ||
               expert.view.down.bias.dtype != MOXIE_BF16) {
            test_expert_free(&expert);
            test_expert_make(&expert, &rng, &spec);
        }
        moxie_matrix *gate = &expert.view.gate, *up = &expert.view.up;
        for (int64_t r = 0; l == 1 && r < gate->scale.rows; r++) /* at most 249 */
            for (int64_t c = 0; c < gate->scale.cols; c++) {
                mox_grid_store(&gate->scale, r, c, mox_grid_code(&gate->scale, r, c) & 127);
                mox_grid_store(&up->scale, r, c, mox_grid_code(&up->scale, r, c) & 127);
            }
        assert_ok(mox_vendor_plan_make(layout, &shape, &oai, &expert.view, true, &plan, &error), &error);
        assert_false(plan.pairs);
        interleave(&expert, &gate->codes, &up->codes);
        interleave(&expert, &gate->scale, &up->scale);
        interleave(&expert, &gate->bias, &up->bias);
        assert_ok(mox_vendor_plan_make(layout, &shape, &plain, &expert.view, true, &plan, &error), &error);
        assert_false(plan.pairs);
        assert_ok(mox_vendor_plan_make(layout, &shape, &oai, &expert.view, true, &plan, &error), &error);
        assert_true(plan.pairs);
        assert_true(check_case(&plan, &expert, layouts[l]));
        test_expert_free(&expert);
    }
}

/* ---- limits ---- */

static moxie_status plan_of(const mox_vendor_layout *layout, const test_weight_quant *quant, int64_t hidden,
                            int64_t intermediate, moxie_error *error)
{
    const test_expert_spec spec = {
        .hidden = hidden, .intermediate = intermediate, .gated = true, .w13 = quant, .w2 = quant
    };
    const mox_record_shape shape = test_record_shape(&spec);
    test_rng rng = { 1 };
    test_expert expert;
    mox_vendor_plan plan;
    test_expert_make(&expert, &rng, &spec);
    const moxie_status status = mox_vendor_plan_make(layout, &shape, NULL, &expert.view, false, &plan, error);
    test_expert_free(&expert);
    return status;
}

/* The smallest extent that meets the limits before `limit` and breaks this one; 0: none. */
static int64_t breaking(const mox_vendor_layout *layout, const mox_vendor_limit *limit)
{
    mox_vendor_layout before = *layout;
    memset(&before.limits[limit - layout->limits], 0,
           sizeof before.limits - (size_t)(limit - layout->limits) * sizeof before.limits[0]);
    const int64_t unit = test_vendor_unit(&before, limit->extent);
    for (int64_t extent = limit->multiple / unit * unit + unit; extent < 3 * limit->multiple; extent += unit)
        if (extent % limit->multiple != 0)
            return extent;
    return 0;
}

static void shapes_beside_a_limit_are_refused_with_the_nearest(void **state)
{
    (void)state;
    for (int32_t i = 0; mox_vendor_at(i) != NULL; i++) {
        const mox_vendor_layout *layout = mox_vendor_at(i);
        const int64_t good[2] = { test_vendor_unit(layout, MOX_VENDOR_HIDDEN),
                                  test_vendor_unit(layout, MOX_VENDOR_INTERMEDIATE) };
        const test_weight_quant *quant = test_weight_quants;
        moxie_error error = { 0 };
        /* Larger than a block of 128 x 128, which would be the whole of a small matrix. */
        while (quant < test_weight_quants + test_weight_quant_count &&
               (!test_vendor_takes(layout, &quant->quant) ||
                plan_of(layout, quant, 9 * good[0], 9 * good[1], &error) != MOXIE_OK))
            quant++;
        if (quant == test_weight_quants + test_weight_quant_count)
            fail_msg("%s: accepts no format of the tests; the last rejection: %s", layout->name, error.text);
        for (const mox_vendor_limit *l = layout->limits; l < layout->limits + MOX_VENDOR_LIMITS && l->multiple; l++) {
            const int64_t wrong = breaking(layout, l), below = wrong / l->multiple * l->multiple;
            if (wrong == 0)
                continue;
            char nearest[64];
            snprintf(nearest, sizeof nearest, "%lld or %lld", (long long)below, (long long)(below + l->multiple));
            assert_int_equal(l->extent == MOX_VENDOR_HIDDEN ? plan_of(layout, quant, wrong, good[1], &error)
                                                            : plan_of(layout, quant, good[0], wrong, &error),
                             MOXIE_ERR_UNSUPPORTED);
            if (strstr(error.text, nearest) == NULL || strstr(error.text, l->why) == NULL)
                fail_msg("%s: the rejection names neither %s nor that %s: %s", layout->name, nearest, l->why,
                         error.text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_matches_its_statement_and_comes_back),
        cmocka_unit_test(gpt_oss_stays_in_pairs_for_marlin),
        cmocka_unit_test(shapes_beside_a_limit_are_refused_with_the_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
