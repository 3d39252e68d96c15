/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shared_forms.c - shared experts in the forms that moxie.h states, against
 *
 *     y = sum_j w_j expert_j(x) + sum_s g_s shared_s(x)
 *
 * Of the layer's six experts the last two are shared: as one wide expert, or as slots of the routing.
 */
#include "plain_layer.h"

enum { ROUTED = 4, SHARED = E - ROUTED };

static void run(const moxie_layer_config *config, const moxie_weights *weights, int32_t backend, moxie_run_args *args)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_error error = { 0 };
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    options.backend = backend;
    options.max_tokens = T;
    assert_ok(moxie_layer_create(config, &options, &layer, &error), &error);
    assert_ok(moxie_layer_prepare(layer, weights, NULL, &error), &error);
    assert_ok(moxie_plan_create(layer, &options, &plan, &error), &error);
    args->workspace_bytes = moxie_plan_workspace_bytes(plan);
    args->workspace = aligned_alloc(64, args->workspace_bytes);
    assert_ok(moxie_plan_run(plan, args, &error), &error);
    free(args->workspace);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
}

/* `gate`: [T, SHARED], or NULL for `scale`. */
static void check(const plain_layer *p, const float *gate, double scale, const float *output)
{
    double *y = malloc(sizeof *y * H), *sum = malloc(sizeof *sum * H);
    for (int64_t t = 0; t < T; t++) {
        memset(sum, 0, sizeof *sum * H);
        for (int64_t j = 0; j < K + SHARED; j++) {
            const int64_t e = j < K ? p->ids[t * K + j] : ROUTED + j - K;
            const double weight = j < K          ? (double)p->choice[t * K + j]
                                  : gate != NULL ? (double)gate[t * SHARED + j - K]
                                                 : scale;
            plain_expert(p, e, p->x + t * H, y);
            for (int64_t n = 0; n < H; n++)
                sum[n] += weight * y[n];
        }
        for (int64_t n = 0; n < H; n++)
            plain_near((double)output[t * H + n], sum[n], 20);
    }
    free(y);
    free(sum);
}

static void begin(plain_layer *p, uint64_t seed, moxie_run_args *args)
{
    plain_make(p, seed);
    for (int64_t i = 0; i < (int64_t)T * K; i++)
        p->ids[i] %= ROUTED;
    *args = (moxie_run_args)MOXIE_RUN_ARGS_INIT;
    args->tokens = T, args->hidden = p->x, args->ids = p->ids, args->weights = p->choice;
    args->output = malloc(sizeof(float) * T * H);
}

/* The rows of both experts' gate and up lie one after the other already; down's columns are put side by side. */
static void one_wide(void **state)
{
    (void)state;
    plain_layer p;
    moxie_run_args args;
    begin(&p, test_seed(7701), &args);
    float *down = malloc(sizeof *down * H * SHARED * I);
    for (int64_t n = 0; n < H; n++)
        for (int64_t i = 0; i < (int64_t)SHARED * I; i++)
            down[n * SHARED * I + i] = p.down[((ROUTED + i / I) * H + n) * I + i % I];
    const moxie_expert wide = { .gate = plain_matrix(p.gate + (int64_t)ROUTED * I * H, SHARED * I, H),
                                .up = plain_matrix(p.up + (int64_t)ROUTED * I * H, SHARED * I, H),
                                .down = plain_matrix(down, H, SHARED * I) };
    p.config.experts = p.weights.n_experts = ROUTED;
    p.config.shared.intermediate = SHARED * I;
    p.config.shared.w13 = p.config.shared.w2 = p.config.w13;
    p.weights.shared = &wide;
    for (int b = 0; b < 2; b++) {
        run(&p.config, &p.weights, b ? MOXIE_BACKEND_CPU : MOXIE_BACKEND_REF, &args);
        check(&p, NULL, 1, args.output);
        p.config.shared.scale = -0.375f;
        run(&p.config, &p.weights, b ? MOXIE_BACKEND_CPU : MOXIE_BACKEND_REF, &args);
        check(&p, NULL, -0.375, args.output);
        p.config.shared.scale = 0;
    }
    moxie_layer *layer = NULL;
    moxie_error error = { 0 };
    p.config.shared.scale = INFINITY;
    assert_int_equal(moxie_layer_create(&p.config, NULL, &layer, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "shared.scale is inf"));
    free(down);
    free(args.output);
    plain_free(&p);
}

/* Ids ROUTED.. with the weights that the caller gives. */
static void slots_of_the_routing(void **state)
{
    (void)state;
    plain_layer p;
    moxie_run_args args;
    begin(&p, test_seed(7702), &args);
    int32_t ids[T * (K + SHARED)];
    float weights[T * (K + SHARED)], gate[T * SHARED];
    for (int64_t t = 0; t < T; t++)
        for (int64_t j = 0; j < K + SHARED; j++) {
            const int64_t at = t * (K + SHARED) + j;
            ids[at] = j < K ? p.ids[t * K + j] : (int32_t)(ROUTED + j - K);
            weights[at] = j < K ? p.choice[t * K + j] : 0.25f * (float)(1 + t % 3 + j);
            if (j >= K)
                gate[t * SHARED + j - K] = weights[at];
        }
    p.config.top_k = K + SHARED;
    args.ids = ids;
    args.weights = weights;
    for (int b = 0; b < 2; b++) {
        run(&p.config, &p.weights, b ? MOXIE_BACKEND_CPU : MOXIE_BACKEND_REF, &args);
        check(&p, gate, 1, args.output);
    }
    free(args.output);
    plain_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(one_wide), cmocka_unit_test(slots_of_the_routing) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
