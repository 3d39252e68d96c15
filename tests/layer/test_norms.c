/* SPDX-License-Identifier: Apache-2.0
 *
 * test_norms.c - norms inside a layer, against the definitions in the models' code, evaluated plainly here:
 *
 *     the router's input    gemma4: logits = (x / sqrt(mean(x^2) + eps) * scale * H^-1/2) . W^T
 *     experts' results      y = sum_j w_j norm(expert_j(x)); muse_spark: the norm's weight multiplies first, as 1 + w
 *
 * Weights and hidden states are f32, so only the roundings of fp32 sums are between the two.
 */
#include "plain_layer.h"

/* Runs the layer; `check` also compares every stage with the oracle. */
static void run(const plain_layer *p, int32_t backend, moxie_run_args *args)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_error error = { 0 };
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    test_report report = { 0 };
    options.backend = backend;
    options.max_tokens = MAX_T;
    assert_ok(moxie_layer_create(&p->config, &options, &layer, &error), &error);
    assert_ok(moxie_layer_prepare(layer, &p->weights, NULL, &error), &error);
    assert_ok(moxie_plan_create(layer, &options, &plan, &error), &error);
    args->workspace_bytes = moxie_plan_workspace_bytes(plan);
    args->workspace = aligned_alloc(64, args->workspace_bytes);
    assert_ok(moxie_plan_run(plan, args, &error), &error);
    assert_ok(test_plan_check(plan, &p->weights, args, &report, &error), &error);
    assert_true(report.worst_ratio <= 1);
    bool found = false;
    for (int32_t s = 0; s < report.n_stages; s++)
        found = found || strstr(report.stages[s].stage, "norm") != NULL;
    assert_true(found);
    free(args->workspace);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
}

/* ---- the router's input -------------------------------------------------------------------------------- */

/* Gemma4TextRouter, up to the scores. */
static double gemma_score(const plain_layer *p, const float *x, int64_t e, double eps, double *size)
{
    double squares = 0, sum = 0;
    *size = 0;
    for (int64_t k = 0; k < H; k++)
        squares += (double)x[k] * x[k];
    for (int64_t k = 0; k < H; k++) {
        const double normed = x[k] * pow(squares / H + eps, -0.5) * p->scale[k] * pow(H, -0.5);
        sum += normed * p->router[e * H + k];
        *size += fabs(normed * p->router[e * H + k]);
    }
    return sum;
}

static void routers(void **state)
{
    (void)state;
    plain_layer p;
    plain_make(&p, test_seed(4401));
    p.config.router_width = H;
    p.config.router_norm =
        (moxie_row_norm) { .kind = MOXIE_ROW_NORM_RMS, .has_weight = 1, .eps = 0.01f, .factor = (float)pow(H, -0.5) };
    p.weights.router_norm = plain_matrix(p.scale, 1, H);
    float *logits = malloc(sizeof *logits * MAX_T * E), *output = malloc(sizeof *output * MAX_T * H);
    const int32_t backends[] = { MOXIE_BACKEND_REF, MOXIE_BACKEND_CPU };
    for (int b = 0; b < 4; b++) {
        const int64_t tokens = b < 2 ? T : MAX_T; /* one span on a thread, and in parallel */
        moxie_run_args args = MOXIE_RUN_ARGS_INIT;
        args.tokens = tokens, args.hidden = p.x, args.output = output, args.logits_out = logits;
        args.router_hidden = b % 2 ? p.router_x : NULL;
        run(&p, backends[b % 2], &args);
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t e = 0; e < E; e++) {
                double size;
                const double want = gemma_score(&p, (b % 2 ? p.router_x : p.x) + t * H, e, (double)0.01f, &size);
                plain_near((double)logits[t * E + e], want, size);
            }
    }
    free(logits);
    free(output);
    plain_free(&p);
}

/* ---- experts' results ---------------------------------------------------------------------------------- */

/* `first`: MuseSparkTextInputScaledRMSNorm; else the usual RMS norm. */
static void norm(const plain_layer *p, bool first, double eps, double *y)
{
    double squares = 0;
    for (int64_t n = 0; n < H; n++) {
        y[n] *= first ? 1 + (double)p->scale[n] : 1;
        squares += y[n] * y[n];
    }
    for (int64_t n = 0; n < H; n++)
        y[n] *= pow(squares / H + eps, -0.5) * (first ? 1 : (double)p->scale[n]);
}

static void check_output(const plain_layer *p, bool first, const float *output, int64_t tokens)
{
    double *y = malloc(sizeof *y * H), *sum = malloc(sizeof *sum * H);
    for (int64_t t = 0; t < tokens; t++) {
        memset(sum, 0, sizeof *sum * H);
        for (int64_t j = 0; j < K; j++) {
            plain_expert(p, p->ids[t * K + j], p->x + t * H, y);
            norm(p, first, (double)0.125f, y);
            for (int64_t n = 0; n < H; n++)
                sum[n] += (double)p->choice[t * K + j] * y[n];
        }
        for (int64_t n = 0; n < H; n++)
            plain_near((double)output[t * H + n], sum[n], 2);
    }
    free(y);
    free(sum);
}

static void experts(void **state)
{
    (void)state;
    plain_layer p;
    plain_make(&p, test_seed(4402));
    p.weights.expert_norm = plain_matrix(p.scale, 1, H);
    float *output = malloc(sizeof *output * MAX_T * H);
    const int32_t backends[] = { MOXIE_BACKEND_REF, MOXIE_BACKEND_CPU };
    for (int b = 0; b < 4; b++) {
        const bool first = b >= 2;
        moxie_run_args args = MOXIE_RUN_ARGS_INIT;
        p.config.expert_norm = (moxie_row_norm) { .kind = first ? MOXIE_ROW_NORM_RMS_WEIGHTED : MOXIE_ROW_NORM_RMS,
                                                  .has_weight = 1,
                                                  .eps = 0.125f,
                                                  .weight_add = first ? 1 : 0 };
        args.tokens = T, args.hidden = p.x, args.output = output, args.ids = p.ids, args.weights = p.choice;
        run(&p, backends[b % 2], &args);
        check_output(&p, first, output, T);
    }
    free(output);
    plain_free(&p);
}

/* ---- what is refused ----------------------------------------------------------------------------------- */

static void refusals(void **state)
{
    (void)state;
    moxie_error error = { 0 };
    moxie_layer_config c = test_config();
    c.router_norm.kind = MOXIE_ROW_NORM_RMS;
    assert_ok(moxie_layer_config_check(&c, &error), &error); /* there is no router: ignored */
    c = test_config();
    c.expert_norm = (moxie_row_norm) { .kind = 3 };
    assert_int_equal(moxie_layer_config_check(&c, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "expert_norm.kind is 3"));
    c.expert_norm = (moxie_row_norm) { .kind = MOXIE_ROW_NORM_RMS, .eps = -1 };
    assert_int_equal(moxie_layer_config_check(&c, &error), MOXIE_ERR_ARGUMENT);
    c.expert_norm = (moxie_row_norm) { .has_weight = 1 };
    assert_int_equal(moxie_layer_config_check(&c, &error), MOXIE_ERR_ARGUMENT);
    c.expert_norm = (moxie_row_norm) { .reserved = { 1 } };
    assert_int_equal(moxie_layer_config_check(&c, &error), MOXIE_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(routers), cmocka_unit_test(experts),
                                        cmocka_unit_test(refusals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
