/* SPDX-License-Identifier: Apache-2.0
 *
 * test_adapters_plain.c - LoRA adapters against their definition, evaluated plainly here in double from the caller's
 * factors; and the calls that add, replace, disable and remove them.
 *
 *     y = sum_j w_j norm( W2 a + s B2 A2 a ),   a = silu(gate) up,   [gate; up] = W13 x + s B13 A13 x
 *
 * Weights and hidden states are f32, so only the roundings of fp32 sums are between the two.
 */
#include <moxie/moxie_adapters.h>
#include <moxie/moxie_comm.h>

#include "plain_layer.h"

enum { R = 5, R2 = 3, N_ADAPTERS = 3 };

/* Factors of one adapter: a13 is common to gate and up, b13 [E, 2 I, R] has gate and up in turn, a2 is shared. */
typedef struct plain_adapter {
    float *a13, *b13, *a2, *b2; /* [E, R, H], [E, 2 I, R], [R2, I], [E, H, R2] */
    float scale;
    moxie_lora lora;
} plain_adapter;

static moxie_tensor view(float *data, int64_t rows, int64_t cols)
{
    return (moxie_tensor) { .data = data, .dtype = MOXIE_F32, .rank = 3, .shape = { E, rows, cols } };
}

static void make_adapter(plain_adapter *a, test_rng *rng)
{
    a->a13 = plain_numbers(rng, (int64_t)E * R * H, 0, 0.03f);
    a->b13 = plain_numbers(rng, (int64_t)E * 2 * I * R, 0, 0.5f);
    a->a2 = plain_numbers(rng, (int64_t)R2 * I, 0, 0.4f);
    a->b2 = plain_numbers(rng, (int64_t)E * H * R2, 0, 0.5f);
    a->scale = 0.5f + test_uniform(rng);
    a->lora = (moxie_lora)MOXIE_LORA_INIT;
    a->lora.gate_scale = a->lora.up_scale = a->lora.down_scale = a->scale;
    a->lora.gate_a = a->lora.up_a = view(a->a13, R, H);
    a->lora.gate_b = view(a->b13, I, R);
    a->lora.up_b = view(a->b13 + R, I, R);
    a->lora.gate_b.strides[0] = a->lora.up_b.strides[0] = 2 * I * R;
    a->lora.gate_b.strides[1] = a->lora.up_b.strides[1] = 2 * R;
    a->lora.gate_b.strides[2] = a->lora.up_b.strides[2] = 1;
    a->lora.down_a = (moxie_tensor) { .data = a->a2, .dtype = MOXIE_F32, .rank = 2, .shape = { R2, I } };
    a->lora.down_b = view(a->b2, H, R2);
}

static void free_adapter(plain_adapter *a)
{
    free(a->a13);
    free(a->b13);
    free(a->a2);
    free(a->b2);
}

/* (W + s B A) x of one row: w [n], b [r], a [r, n]. */
static double changed_row(const float *w, const double *x, int64_t n, const float *b, const float *a, int64_t r,
                          double scale)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++) {
        double weight = w[k];
        for (int64_t i = 0; b != NULL && i < r; i++)
            weight += scale * b[i] * a[i * n + k];
        sum += weight * x[k];
    }
    return sum;
}

/* Expert e of token x with the adapter, or none. */
static void changed_expert(const plain_layer *p, const plain_adapter *l, int64_t e, const float *x, double *y)
{
    double act[I], wide[H];
    for (int64_t k = 0; k < H; k++)
        wide[k] = x[k];
    for (int64_t i = 0; i < I; i++) {
        const float *b = l != NULL ? l->b13 + (e * 2 * I + 2 * i) * R : NULL;
        const float *a = l != NULL ? l->a13 + e * R * H : NULL;
        const double scale = l != NULL ? l->scale : 0;
        const double gate = changed_row(p->gate + (e * I + i) * H, wide, H, b, a, R, scale);
        const double up = changed_row(p->up + (e * I + i) * H, wide, H, b != NULL ? b + R : NULL, a, R, scale);
        act[i] = gate / (1 + exp(-gate)) * up;
    }
    for (int64_t n = 0; n < H; n++)
        y[n] = changed_row(p->down + (e * H + n) * I, act, I, l != NULL ? l->b2 + (e * H + n) * R2 : NULL,
                           l != NULL ? l->a2 : NULL, R2, l != NULL ? l->scale : 0);
}

/* ---- a layer with adapters --------------------------------------------------------------------------------- */

typedef struct fixture {
    plain_layer p;
    plain_adapter l[N_ADAPTERS];
    moxie_layer *layer;
    moxie_plan *plan;
    moxie_adapters *adapters;
    moxie_run_args args;
    int32_t ids[T];
    float output[T * H];
} fixture;

static void begin(fixture *f, int32_t backend, bool normed, bool on_input)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_error error = { 0 };
    test_rng rng = { test_seed(2907) };
    memset(f, 0, sizeof *f);
    plain_make(&f->p, test_seed(2905));
    if (normed)
        f->p.config.expert_norm = (moxie_row_norm) { .kind = MOXIE_ROW_NORM_RMS, .eps = 0.125f };
    f->p.config.routing.on_input = on_input;
    for (int i = 0; i < N_ADAPTERS; i++)
        make_adapter(&f->l[i], &rng);
    options.backend = backend;
    options.max_tokens = T;
    options.max_adapter_rank = R;
    assert_ok(moxie_layer_create(&f->p.config, &options, &f->layer, &error), &error);
    assert_ok(moxie_layer_prepare(f->layer, &f->p.weights, NULL, &error), &error);
    assert_ok(moxie_plan_create(f->layer, &options, &f->plan, &error), &error);
    assert_ok(moxie_adapters_create(f->layer, N_ADAPTERS, &f->adapters, &error), &error);
    for (int32_t t = 0; t < T; t++)
        f->ids[t] = t % (N_ADAPTERS + 1) - 1;
    f->args = (moxie_run_args)MOXIE_RUN_ARGS_INIT;
    f->args.tokens = T, f->args.hidden = f->p.x, f->args.output = f->output;
    f->args.ids = f->p.ids, f->args.weights = f->p.choice;
    f->args.adapters = f->adapters, f->args.adapter_ids = f->ids;
    f->args.workspace_bytes = moxie_plan_workspace_bytes(f->plan);
    f->args.workspace = aligned_alloc(64, f->args.workspace_bytes);
    memset(f->args.workspace, 0xee, f->args.workspace_bytes);
}

static void end(fixture *f)
{
    free(f->args.workspace);
    moxie_adapters_destroy(f->adapters);
    moxie_plan_destroy(f->plan);
    moxie_layer_destroy(f->layer);
    for (int i = 0; i < N_ADAPTERS; i++)
        free_adapter(&f->l[i]);
    plain_free(&f->p);
}

static void set(fixture *f, int32_t number, int32_t factors)
{
    moxie_error error = { 0 };
    assert_ok(moxie_adapters_set(f->adapters, number, &f->l[factors].lora, &error), &error);
}

/* The run's output against the definition; of_number[i]: the factors that adapter i has now, or -1. */
static void check(fixture *f, const int32_t *of_number)
{
    moxie_error error = { 0 };
    const moxie_layer_config *c = &f->p.config;
    double *y = malloc(sizeof *y * H), *sum = malloc(sizeof *sum * H);
    float *x = malloc(sizeof *x * H);
    memset(f->output, 0xee, sizeof f->output);
    assert_ok(moxie_plan_run(f->plan, &f->args, &error), &error);
    for (int64_t t = 0; t < T; t++) {
        const int32_t factors = f->ids[t] >= 0 ? of_number[f->ids[t]] : -1;
        memset(sum, 0, sizeof *sum * H);
        for (int64_t j = 0; j < K; j++) {
            const float w = f->p.choice[t * K + j];
            double squares = 0;
            for (int64_t k = 0; k < H; k++)
                x[k] = c->routing.on_input ? f->p.x[t * H + k] * w : f->p.x[t * H + k];
            changed_expert(&f->p, factors >= 0 ? &f->l[factors] : NULL, f->p.ids[t * K + j], x, y);
            for (int64_t n = 0; n < H; n++)
                squares += y[n] * y[n];
            const double norm = c->expert_norm.kind != 0 ? pow(squares / H + (double)0.125f, -0.5) : 1;
            for (int64_t n = 0; n < H; n++)
                sum[n] += (c->routing.on_input ? 1 : (double)w) * norm * y[n];
        }
        for (int64_t n = 0; n < H; n++)
            plain_near((double)f->output[t * H + n], sum[n], 4);
    }
    free(y);
    free(sum);
    free(x);
}

static void definition(void **state)
{
    (void)state;
    const int32_t backends[] = { MOXIE_BACKEND_REF, MOXIE_BACKEND_CPU };
    for (int b = 0; b < 8; b++) {
        fixture *f = malloc(sizeof *f);
        begin(f, backends[b % 2], b & 2, b & 4);
        for (int32_t i = 0; i < N_ADAPTERS; i++)
            set(f, i, i);
        check(f, (const int32_t[]) { 0, 1, 2 });
        end(f);
        free(f);
    }
}

/* ---- adding, replacing, removing --------------------------------------------------------------------------- */

static void changes(void **state)
{
    (void)state;
    moxie_error error = { 0 };
    fixture *f = malloc(sizeof *f);
    begin(f, MOXIE_BACKEND_CPU, false, false);
    assert_int_equal(moxie_plan_run(f->plan, &f->args, &error), MOXIE_ERR_ARGUMENT); /* no adapter is there */
    assert_non_null(strstr(error.text, "no such adapter"));
    assert_int_equal(moxie_adapters_bytes(f->adapters), 0);
    for (int32_t i = 0; i < N_ADAPTERS; i++)
        set(f, i, i);
    assert_int_equal(moxie_adapters_rank(f->adapters, 1), R);
    const uint64_t all = moxie_adapters_bytes(f->adapters);
    assert_true(all >= 3 * sizeof(float) * (R * H + 2 * I * R + R2 * I + H * R2));
    set(f, 0, 2);
    set(f, 2, 1);
    check(f, (const int32_t[]) { 2, 1, 1 });
    assert_ok(moxie_adapters_enable(f->adapters, 1, 0, &error), &error);
    check(f, (const int32_t[]) { 2, -1, 1 });
    assert_ok(moxie_adapters_enable(f->adapters, 1, 1, &error), &error);
    check(f, (const int32_t[]) { 2, 1, 1 });
    assert_ok(moxie_adapters_remove(f->adapters, 1, &error), &error);
    assert_int_equal(moxie_plan_run(f->plan, &f->args, &error), MOXIE_ERR_ARGUMENT);
    assert_true(moxie_adapters_bytes(f->adapters) < all && moxie_adapters_rank(f->adapters, 1) == 0);
    assert_int_equal(moxie_adapters_enable(f->adapters, 1, 1, &error), MOXIE_ERR_ARGUMENT);
    set(f, 1, 0);
    check(f, (const int32_t[]) { 2, 0, 1 });
    end(f);
    free(f);
}

/* ---- what is refused --------------------------------------------------------------------------------------- */

static void refuse(const fixture *f, const moxie_lora *lora, moxie_status status, const char *word)
{
    moxie_error error = { 0 };
    assert_int_equal(moxie_adapters_set(f->adapters, 0, lora, &error), status);
    if (strstr(error.text, word) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", error.text, word);
}

static void refusals(void **state)
{
    (void)state;
    fixture *f = malloc(sizeof *f);
    begin(f, MOXIE_BACKEND_CPU, false, false);
    const moxie_lora good = f->l[0].lora;
    moxie_lora bad = MOXIE_LORA_INIT;
    refuse(f, &bad, MOXIE_ERR_ARGUMENT, "no factors");
    bad = good, bad.down_b.data = NULL;
    refuse(f, &bad, MOXIE_ERR_ARGUMENT, "down has an A but no B");
    bad = good, bad.up_a.shape[2] = H - 1;
    refuse(f, &bad, MOXIE_ERR_MISMATCH, "layer's matrix");
    bad = good, bad.up_a.shape[0] = E - 1;
    refuse(f, &bad, MOXIE_ERR_MISMATCH, "experts");
    bad = good, bad.gate_b.shape[2] = R - 1;
    refuse(f, &bad, MOXIE_ERR_MISMATCH, "rank");
    bad = good, bad.gate_a.dtype = MOXIE_F8_E4M3;
    refuse(f, &bad, MOXIE_ERR_UNSUPPORTED, "f8_e4m3");
    bad = good, bad.gate_a.rank = 1;
    refuse(f, &bad, MOXIE_ERR_ARGUMENT, "axes");
    bad = good, bad.gate_scale = INFINITY;
    refuse(f, &bad, MOXIE_ERR_ARGUMENT, "finite");
    bad = good, bad.down_a.reserved[0] = 1;
    refuse(f, &bad, MOXIE_ERR_ARGUMENT, "reserved");
    end(f);
    free(f);
}

static void run_refusals(void **state)
{
    (void)state;
    moxie_error error = { 0 };
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_plan *plan = NULL;
    fixture *f = malloc(sizeof *f);
    begin(f, MOXIE_BACKEND_CPU, false, false);
    for (int32_t i = 0; i < N_ADAPTERS; i++)
        set(f, i, i);
    f->args.adapter_ids = NULL;
    assert_int_equal(moxie_plan_run(f->plan, &f->args, &error), MOXIE_ERR_ARGUMENT);
    f->args.adapter_ids = f->ids;
    options.max_tokens = T;
    assert_ok(moxie_plan_create(f->layer, &options, &plan, &error), &error);
    assert_int_equal(moxie_plan_run(plan, &f->args, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "max_adapter_rank"));
    moxie_plan_destroy(plan);
    options.max_adapter_rank = R - 1;
    assert_ok(moxie_plan_create(f->layer, &options, &plan, &error), &error);
    assert_int_equal(moxie_plan_run(plan, &f->args, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "rank 5"));
    moxie_plan_destroy(plan);
    options.max_adapter_rank = MOXIE_MAX_ADAPTER_RANK + 1;
    assert_int_equal(moxie_plan_create(f->layer, &options, &plan, &error), MOXIE_ERR_ARGUMENT);
    moxie_comm *comm = NULL;
    assert_ok(moxie_comm_local_create(1, NULL, &comm, &error), &error);
    options = (moxie_options)MOXIE_OPTIONS_INIT;
    options.max_adapter_rank = 8, options.comm = comm;
    options.backend = MOXIE_BACKEND_CUDA, options.device = "sm_90";
    assert_ok(moxie_plan_explain(&f->p.config, &options, &plan, &error), &error);
    moxie_plan_destroy(plan);
    moxie_comm_destroy(comm);
    f->args.tokens = 0;
    assert_ok(moxie_plan_run(f->plan, &f->args, &error), &error);
    end(f);
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(definition), cmocka_unit_test(changes),
                                        cmocka_unit_test(refusals), cmocka_unit_test(run_refusals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
