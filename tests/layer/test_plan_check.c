/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_check.c - moxie_plan_check and moxie_weights_compare find errors: damage in one place is reported at its
 * stage, expert and column, and the first difference between two sets of weights at its part.
 */
#include <math.h>

#include "layer/plan/plan.h"
#include "pack/panel/panel.h"
#include "small_layer.h"

enum { E = 4, H = 48, I = 40, T = 8, K = 4 };

/* K equals E, so every token visits every expert. `isa` NULL: the best of this machine. */
static void set_up_for(test_layer *t, const char *weights, const char *isa)
{
    const small_spec spec = { .weight = test_weight_quant_named(weights),
                              .weight2 = test_weight_quant_named("bf16"),
                              .act = test_act_quant_named("none"),
                              .dtype = MOXIE_BF16,
                              .experts = E,
                              .top_k = K,
                              .hidden = H,
                              .intermediate = I,
                              .tokens = T,
                              .bias = true,
                              .choice = SMALL_LOGITS };
    moxie_options options = MOXIE_OPTIONS_INIT;
    test_rng rng = { 9000 };
    options.isa = isa;
    small_layer_make(t, &rng, &spec);
    test_layer_plan(t, &options);
}

static void set_up(test_layer *t, const char *weights)
{
    set_up_for(t, weights, NULL);
}

static test_report check(test_layer *t)
{
    moxie_error error;
    test_report report = { 0 };
    assert_ok(test_plan_check(t->plan, &t->weights, &t->args, &report, &error), &error);
    return report;
}

static const moxie_stage_report *stage(const test_report *report, const char *name)
{
    for (int s = 0; s < report->n_stages; s++)
        if (strcmp(report->stages[s].stage, name) == 0)
            return &report->stages[s];
    fail_msg("no stage %s in the report", name);
    return NULL;
}

/* Changes a number of the checkpoint after preparation, so kernels have read another weight than the check. */
static void change(const moxie_grid *grid, int64_t r, int64_t c, float value)
{
    mox_grid_store(grid, r, c, moxie_encode(grid->dtype, value));
}

/* Fused experts trace activations a row a pair, others a row a token. */
static void counts_every_element(void **state)
{
    (void)state;
    static const char *const isas[] = { "scalar", NULL };
    for (int i = 0; i < 2; i++) {
        test_layer t;
        set_up_for(&t, "bf16", isas[i]);
        const struct {
            const char *name;
            int64_t elements;
        } stages[] = { { "topk", T + T * K },
                       { "permute", T * K },
                       { "quant13", (t.plan->experts[MOX_ROUTED].fused ? T * K : T) * H },
                       { "gemm13", T * K * 2 * I },
                       { "glu", T * K * I },
                       { "quant2", T * K * I },
                       { "gemm2", T * K * H },
                       { "combine", T * H } };
        const test_report report = check(&t);
        assert_int_equal(report.n_stages, sizeof stages / sizeof stages[0]);
        assert_true(report.worst_ratio <= 1);
        for (int s = 0; s < report.n_stages; s++) {
            assert_string_equal(report.stages[s].stage, stages[s].name);
            assert_int_equal(report.stages[s].elements, stages[s].elements);
            assert_int_equal(report.stages[s].beyond, 0);
        }
        test_layer_free(&t);
    }
}

/* With a router, a shared expert and its gate, the report has every stage. */
static void checks_every_stage_there_is(void **state)
{
    (void)state;
    static const char *const names[] = { "router",         "topk",          "permute",
                                         "quant13",        "gemm13",        "glu",
                                         "quant2",         "gemm2",         "shared gate",
                                         "shared quant13", "shared gemm13", "shared glu",
                                         "shared quant2",  "shared gemm2",  "combine" };
    const test_layer_limits limits = {
        .tokens = 5, .experts = 4, .largest = 32, .plain_routing = true, .no_parallel = true
    };
    test_layer t;
    for (uint64_t seed = 9100;; seed++) {
        test_rng rng = { seed };
        test_layer_make(&t, &rng, &limits);
        if (t.config.shared.has_gate && t.args.ids == NULL && t.args.logits == NULL)
            break;
        test_layer_free(&t);
    }
    test_layer_plan(&t, NULL);
    const test_report report = check(&t);
    assert_int_equal(report.n_stages, sizeof names / sizeof names[0]);
    for (int s = 0; s < report.n_stages; s++)
        assert_string_equal(report.stages[s].stage, names[s]);
    assert_true(report.worst_ratio <= 1);
    test_layer_free(&t);
}

static void names_the_stage_expert_and_column(void **state)
{
    (void)state;
    test_layer t;
    set_up(&t, "bf16");
    const moxie_grid up = t.experts[2].up.codes, down = t.experts[1].down.codes, bias = t.experts[3].gate.bias;
    const double old_up = mox_grid_value(&up, 35, 7), old_down = mox_grid_value(&down, 11, 0);

    change(&up, 35, 7, (float)old_up + 1);
    test_report report = check(&t);
    const moxie_stage_report *r = stage(&report, "gemm13");
    assert_true(r->worst_ratio > 1 && report.worst_ratio == r->worst_ratio);
    assert_int_equal(r->expert, 2);
    assert_int_equal(r->column, I + 35);
    assert_int_equal(r->column_block, (I + 35) / 32);
    assert_int_equal(r->beyond, T);
    assert_true(stage(&report, "gemm2")->worst_ratio <= 1);
    change(&up, 35, 7, (float)old_up);

    change(&down, 11, 0, (float)old_down + 1);
    report = check(&t);
    r = stage(&report, "gemm2");
    assert_true(r->worst_ratio > 1);
    assert_int_equal(r->expert, 1);
    assert_int_equal(r->column, 11);
    assert_true(stage(&report, "gemm13")->worst_ratio <= 1);
    change(&down, 11, 0, (float)old_down);

    change(&bias, 3, 0, 64);
    report = check(&t);
    r = stage(&report, "gemm13");
    assert_int_equal(r->expert, 3);
    assert_int_equal(r->column, 3);
    assert_true(r->worst_ratio > 1);
    test_layer_free(&t);
}

/* A weight with an error d gives its row's product an error d x for each token; other elements are far more exact. */
static void measures_the_error_of_a_stage(void **state)
{
    (void)state;
    test_layer t;
    set_up(&t, "bf16");
    const moxie_grid up = t.experts[2].up.codes;
    const double old = mox_grid_value(&up, 35, 7);
    test_report report = check(&t);
    for (int s = 0; s < report.n_stages; s++) {
        const moxie_stage_report *r = &report.stages[s];
        assert_true(r->rms_error <= r->worst_ratio * r->rms_bound);
        assert_true(r->rms_want > 0);
    }
    change(&up, 35, 7, (float)old + 1);
    const double off = mox_grid_value(&up, 35, 7) - old;
    double squares = 0;
    for (int n = 0; n < T; n++) {
        const double x = mox_load(MOXIE_BF16, (const char *)t.args.hidden + (n * H + 7) * 2);
        squares += off * x * (off * x);
    }
    report = check(&t);
    const double rms = sqrt(squares / (T * K * 2 * I));
    assert_true(rms > 0 && fabs(stage(&report, "gemm13")->rms_error - rms) < 1e-4 * rms);
    test_layer_free(&t);
}

/* The high byte of the first weight of row `row` of a projection, in a record of bf16 weights: its exponent. */
static uint8_t *code_of(const test_layer *t, const void *data, mox_projection projection, int64_t row)
{
    const bool first = projection == MOX_W13;
    if (t->built->layouts[MOX_ROUTED] == &mox_layout_rowmajor) {
        mox_rowmajor_record record;
        mox_rowmajor_open(&t->built->routed_shape, data, &record);
        const mox_rowmajor_matrix *m = first ? &record.up : &record.down;
        return (uint8_t *)(uintptr_t)m->codes + (uint64_t)row * m->row_bytes + 1;
    }
    mox_panel_record record;
    assert_ptr_equal(t->built->layouts[MOX_ROUTED], &mox_layout_panel16);
    mox_panel_open(&t->built->routed_shape, data, &record);
    const mox_panel_matrix *m = first ? &record.w13 : &record.w2;
    const int64_t panel = row / MOX_PANEL_ROWS, lane = row % MOX_PANEL_ROWS;
    return (uint8_t *)(uintptr_t)m->panels + (uint64_t)(m->gated ? 2 * panel + 1 : panel) * m->panel_bytes + lane * 4 +
           1;
}

/* Flips one bit of a record, as a bad transfer would: checksum and check both name the expert. */
static void finds_a_damaged_record(void **state)
{
    (void)state;
    static const char *const isas[] = { "scalar", NULL };
    static const struct {
        mox_projection projection;
        const char *stage, *sound;
        int64_t row, column;
    } places[] = { { MOX_W13, "gemm13", "gemm2", 35, I + 35 }, { MOX_W2, "gemm2", "gemm13", 5, 5 } };
    for (int i = 0; i < 4; i++) {
        test_layer t;
        moxie_error error;
        const void *data;
        uint64_t bytes;
        set_up_for(&t, "bf16", isas[i / 2]);
        assert_ok(moxie_layer_record(t.built, 2, &data, &bytes, &error), &error);
        *code_of(&t, data, places[i % 2].projection, places[i % 2].row) ^= 0x40;
        assert_int_equal(moxie_layer_verify(t.built, &error), MOXIE_ERR_MISMATCH);
        assert_non_null(strstr(error.text, "expert 2"));
        const test_report report = check(&t);
        const moxie_stage_report *r = stage(&report, places[i % 2].stage);
        assert_true(r->worst_ratio > 1);
        assert_int_equal(r->expert, 2);
        assert_int_equal(r->column, places[i % 2].column);
        assert_true(stage(&report, places[i % 2].sound)->worst_ratio <= 1);
        test_layer_free(&t);
    }
}

/* ---- two sets of weights --------------------------------------------------------------------------------- */

static moxie_weights_difference compare(const test_layer *t, const moxie_weights *other)
{
    moxie_error error;
    moxie_weights_difference d = MOXIE_WEIGHTS_DIFFERENCE_INIT;
    assert_ok(moxie_weights_compare(&t->config, &t->weights, other, &d, &error), &error);
    return d;
}

/* A second set of the same weights: experts copied element by element. */
static moxie_weights copy_of(const test_layer *t, test_expert *twins, moxie_expert *experts)
{
    moxie_weights other = t->weights;
    const mox_record_shape shape = mox_config_routed_shape(&t->config);
    for (int e = 0; e < E; e++) {
        const void *data;
        uint64_t bytes;
        moxie_error error;
        test_expert_twin(&twins[e], &t->owners[e]);
        assert_ok(moxie_layer_record(t->built, e, &data, &bytes, &error), &error);
        assert_ok(t->built->layouts[MOX_ROUTED]->unpack(&shape, data, &twins[e].view, &error), &error);
        twins[e].view.a13_scale = twins[e].view.a2_scale = 0;
        experts[e] = twins[e].view;
    }
    other.experts = experts;
    return other;
}

static void finds_differences_of_weights(void **state)
{
    (void)state;
    test_layer t;
    test_expert twins[E];
    moxie_expert experts[E];
    set_up(&t, "gptq act order");
    const moxie_weights other = copy_of(&t, twins, experts);
    moxie_weights_difference d = compare(&t, &other);
    assert_int_equal(d.expert, -1);
    assert_int_equal(d.count, 0);
    assert_string_equal(d.projection, "");

    const moxie_grid codes = experts[3].up.codes, scale = experts[1].gate.scale;
    const uint32_t code = mox_grid_code(&codes, 9, 33), old_scale = mox_grid_code(&scale, 4, 1);
    mox_grid_store(&codes, 9, 33, code ^ 8);
    d = compare(&t, &other);
    assert_int_equal(d.expert, 3);
    assert_string_equal(d.projection, "up");
    assert_string_equal(d.part, "codes");
    assert_int_equal(d.row, 9);
    assert_int_equal(d.column, 33);
    assert_int_equal(d.row_block, 9);
    assert_int_equal(d.column_block, experts[3].up.group_index[33]);
    assert_int_equal(d.count, 1);
    assert_int_equal(d.experts, 1);

    mox_grid_store(&scale, 4, 1, old_scale ^ 1);
    d = compare(&t, &other);
    assert_int_equal(d.expert, 1);
    assert_string_equal(d.projection, "gate");
    assert_string_equal(d.part, "scale");
    assert_int_equal(d.row, 4);
    assert_int_equal(d.column_block, 1);
    assert_int_equal(d.count, 2);
    assert_int_equal(d.experts, 2);

    experts[1].up.zero_add += 1;
    mox_grid_store(&scale, 4, 1, old_scale);
    d = compare(&t, &other);
    assert_int_equal(d.expert, 1);
    assert_string_equal(d.projection, "up");
    assert_string_equal(d.part, "zero");
    assert_int_equal(d.count, 1 + experts[1].up.zero.rows * experts[1].up.zero.cols);

    experts[0].down.bias = t.experts[1].down.bias;
    d = compare(&t, &other);
    assert_int_equal(d.expert, 0);
    assert_string_equal(d.projection, "down");
    assert_string_equal(d.part, "bias");
    assert_int_equal(d.experts, 3);
    for (int e = 0; e < E; e++)
        test_expert_free(&twins[e]);
    test_layer_free(&t);
}

/* Zero points of equal bytes differ when one of the files stores them minus one. */
static void compares_zero_points_by_value(void **state)
{
    (void)state;
    test_layer t;
    moxie_expert experts[E];
    set_up(&t, "int4 words zero");
    memcpy(experts, t.experts, sizeof experts);
    experts[2].gate.zero_add += 1;
    moxie_weights weights = t.weights;
    weights.experts = experts;
    const moxie_weights_difference d = compare(&t, &weights);
    assert_int_equal(d.count, experts[2].gate.zero.rows * experts[2].gate.zero.cols);
    assert_int_equal(d.expert, 2);
    assert_string_equal(d.part, "zero");
    test_layer_free(&t);
}

/* The same numbers in another order of memory are equal. */
static void compares_numbers_not_bytes(void **state)
{
    (void)state;
    test_layer t;
    set_up(&t, "bf16");
    moxie_expert experts[E];
    static uint16_t transposed[I * H];
    memcpy(experts, t.experts, sizeof experts);
    moxie_grid *codes = &experts[2].gate.codes;
    moxie_grid other = mox_grid_dense(transposed, MOXIE_BF16, I, H);
    other.row_stride = 2;
    other.col_stride = 2 * I;
    for (int64_t r = 0; r < I; r++)
        for (int64_t c = 0; c < H; c++)
            mox_grid_store(&other, r, c, mox_grid_code(codes, r, c));
    *codes = other;
    moxie_weights weights = t.weights;
    weights.experts = experts;
    assert_int_equal(compare(&t, &weights).count, 0);
    mox_grid_store(&other, 1, 2, mox_grid_code(&other, 1, 2) ^ 1);
    const moxie_weights_difference d = compare(&t, &weights);
    assert_int_equal(d.count, 1);
    assert_int_equal(d.row, 1);
    assert_int_equal(d.column, 2);
    test_layer_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_every_element),
        cmocka_unit_test(checks_every_stage_there_is),
        cmocka_unit_test(names_the_stage_expert_and_column),
        cmocka_unit_test(measures_the_error_of_a_stage),
        cmocka_unit_test(finds_a_damaged_record),
        cmocka_unit_test(finds_differences_of_weights),
        cmocka_unit_test(compares_zero_points_by_value),
        cmocka_unit_test(compares_numbers_not_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
