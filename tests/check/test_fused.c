/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fused.c - the fused experts (cpu/fused) driven directly, with every panel kernel for both products:
 *
 *     against the chain of single steps   quant_act -> expert_gemm -> glu -> quant_act -> expert_gemm -> combine,
 *                                         the same bytes of every traced stage
 *     window by window of slots           the same rows, and no other pair is written
 *     on any executor                     workers in turn on one thread, backwards, far more of them than tasks, on
 *                                         threads that start late: a run ends, with the same bytes
 *
 * Buffers have the size that the run's rules give them, an inaccessible page behind each, and begin as NaN, so that
 * padding that was not written shows in sums.
 */
#include <unistd.h>

#include "base/sizes.h"
#include "cpu/quant_act/quant_act.h"
#include "fused_problem.h"
#include "test_executors.h"

/* ---- what a run leaves ------------------------------------------------------------------------------------- */

typedef struct stages {
    float *h, *act, *y; /* of one kind, by pair */
    mox_activations a13, a2;
} stages;

typedef struct result {
    stages kinds[2];
    void *out;
    check_buffers buffers, scratch;
} result;

static mox_activations make_operand(check_buffers *buffers, const moxie_quant *quant, int64_t rows, int64_t cols)
{
    mox_activations a = mox_activations_f32(quant, rows, cols);
    a.values = check_buffer(buffers, (size_t)(rows * a.stride) * sizeof(float));
    if (a.scale_cols > 0)
        a.scales = check_buffer(buffers, (size_t)(rows * a.scale_cols) * sizeof(float));
    if (a.global_kind != MOXIE_GLOBAL_NONE)
        a.global = check_buffer(buffers, (size_t)rows * sizeof(float));
    return a;
}

static stages make_stages(const fused_problem *f, const fused_kind *k, check_buffers *buffers)
{
    const int64_t width = f->shape.intermediate * (f->shape.gated ? 2 : 1);
    const size_t pairs = (size_t)k->pairs * sizeof(float);
    return (stages) { .h = check_buffer(buffers, pairs * (size_t)width),
                      .act = check_buffer(buffers, pairs * (size_t)f->shape.intermediate),
                      .y = check_buffer(buffers, pairs * (size_t)f->shape.hidden),
                      .a13 = make_operand(buffers, &f->act13, k->pairs, f->shape.hidden),
                      .a2 = make_operand(buffers, &f->act2, k->pairs, f->shape.intermediate) };
}

static size_t out_bytes(const fused_problem *f)
{
    return (size_t)(f->set->tokens * f->shape.hidden * mox_dtype_bytes(f->set->dtype));
}

static void free_result(result *r)
{
    check_buffers_free(&r->buffers);
    check_buffers_free(&r->scratch);
}

static mox_combine_args combine_args(const fused_problem *f, const result *r, const float *y, const float *shared)
{
    return (mox_combine_args) { .tokens = f->set->tokens,
                                .top_k = FUSED_TOP_K,
                                .hidden = f->shape.hidden,
                                .position = f->position,
                                .experts = FUSED_EXPERTS,
                                .weights = f->set->on_input ? NULL : f->weights,
                                .y = y,
                                .shared = shared,
                                .out = r->out,
                                .out_dtype = f->set->dtype };
}

/* ---- the chain of single steps -------------------------------------------------------------------------------- */

static void quantize(const fused_problem *f, const fused_kind *k, bool second, stages *s, check_buffers *buffers)
{
    const int64_t cols = second ? f->shape.intermediate : f->shape.hidden;
    const bool weighted = !second && f->set->on_input && k->position != NULL;
    float *given = check_buffer(buffers, (size_t)k->pairs * sizeof *given);
    float *weight = check_buffer(buffers, (size_t)k->pairs * sizeof *weight);
    for (int64_t slot = 0; slot < k->slots; slot++)
        for (int64_t p = k->offsets[slot]; p < k->offsets[slot + 1]; p++) {
            given[p] = second ? k->given2[slot] : k->given13[slot];
            if (weighted)
                weight[p] = f->weights[f->pair_at[p]];
        }
    const mox_quant_act_args args = {
        .quant = second ? f->act2 : f->act13,
        .x = second ? s->act : f->x,
        .x_dtype = second ? MOXIE_F32 : f->set->dtype,
        .round_to = second ? f->set->dtype : MOXIE_F32,
        .max_rows = k->pairs,
        .cols = cols,
        .source = second ? NULL : k->token_of,
        .row_weight = weighted ? weight : NULL,
        .row_scale = given,
        .codes = check_buffer(buffers, (size_t)cols),
        .row_scratch = check_buffer(buffers, (size_t)cols * sizeof(float)),
        .out = second ? s->a2 : s->a13,
    };
    mox_quant_act_at(0)->run(&args, &mox_executor_serial);
}

static void multiply(const fused_problem *f, const fused_kind *k, bool second, stages *s, check_buffers *buffers)
{
    const mox_expert_gemm_problem problem = fused_product_problem(f, second ? MOX_W2 : MOX_W13);
    const mox_expert_gemm_args args = { .shape = &f->shape,
                                        .projection = problem.projection,
                                        .slots = k->slots,
                                        .records = k->records,
                                        .offsets = k->offsets,
                                        .a = second ? &s->a2 : &s->a13,
                                        .act = problem.act,
                                        .dtype = problem.dtype,
                                        .out = second ? s->y : s->h,
                                        .n_out = second           ? f->shape.hidden
                                                 : f->shape.gated ? 2 * f->shape.intermediate
                                                                  : f->shape.intermediate,
                                        .scratch = check_buffer(buffers, mox_expert_gemm_scratch(f->row, &problem)) };
    mox_expert_gemm_run(f->row, &args, &mox_executor_serial);
}

static void run_chain(const fused_problem *f, result *r)
{
    memset(r, 0, sizeof *r);
    r->out = check_buffer(&r->buffers, out_bytes(f));
    for (int i = 0; i < f->n_kinds; i++) {
        const fused_kind *k = &f->kinds[i];
        stages *s = &r->kinds[i];
        *s = make_stages(f, k, &r->buffers);
        quantize(f, k, false, s, &r->scratch);
        multiply(f, k, false, s, &r->scratch);
        const mox_glu_args glu = { .activation = f->activation,
                                   .slots = k->slots,
                                   .offsets = k->offsets,
                                   .expert_of = k->expert_of,
                                   .h = s->h,
                                   .intermediate = f->shape.intermediate,
                                   .out = s->act };
        f->glu->run(&glu, &mox_executor_serial);
        quantize(f, k, true, s, &r->scratch);
        multiply(f, k, true, s, &r->scratch);
    }
    const mox_combine_args args = combine_args(f, r, r->kinds[0].y, f->n_kinds == 2 ? r->kinds[1].y : NULL);
    mox_combine_at(0)->run(&args, &mox_executor_serial);
}

/* ---- fused ------------------------------------------------------------------------------------------------- */

static mox_fused_activations fused_operand(const mox_fused_product *product, int64_t pairs, check_buffers *buffers)
{
    mox_fused_activations a = { .data = check_buffer(buffers,
                                                     (size_t)pairs * product->row_bytes + MOX_PANEL_OVERREAD_BYTES) };
    if (product->scaling == MOX_ACT_GROUPED)
        a.scales = check_buffer(buffers, (size_t)(pairs * product->groups) * sizeof(float));
    if (product->scaling == MOX_ACT_BY_ROW)
        a.row_scale = check_buffer(buffers, (size_t)pairs * sizeof(float));
    if (product->act.global != MOXIE_GLOBAL_NONE)
        a.global = check_buffer(buffers, (size_t)pairs * sizeof(float));
    return a;
}

/* `look`: keep every stage in `s`; otherwise only y. */
static mox_fused_part fused_part(const fused_problem *f, const fused_kind *k, bool look, stages *s, result *r)
{
    const bool routed = k->position != NULL, quantized = !mox_quant_is_none(&f->act2);
    return (mox_fused_part) { .shape = &f->shape,
                              .activation = &f->activation,
                              .glu = f->glu,
                              .first = &k->first,
                              .second = &k->second,
                              .slots = k->slots,
                              .pairs = k->pairs,
                              .records = k->records,
                              .offsets = k->offsets,
                              .expert_of = k->expert_of,
                              .per_token = k->per_token,
                              .position = k->position,
                              .row_weight = routed && f->set->on_input ? f->weights : NULL,
                              .static_scale13 = k->given13,
                              .static_scale2 = k->given2,
                              .by_pair = routed && (f->set->on_input || f->set->given_differ),
                              .a13 = fused_operand(&k->first, k->pairs, &r->scratch),
                              .a2 = fused_operand(&k->second, k->pairs, &r->scratch),
                              .act = look || quantized ? s->act : NULL,
                              .y = s->y,
                              .h = look ? s->h : NULL,
                              .trace13 = look ? &s->a13 : NULL,
                              .trace2 = look ? &s->a2 : NULL };
}

static void run_fused(const fused_problem *f, const moxie_executor *executor, int32_t nodes, bool traced, result *r)
{
    mox_fused_part sides[2];
    const mox_fused_product *products[4];
    memset(r, 0, sizeof *r);
    r->out = check_buffer(&r->buffers, out_bytes(f));
    for (int i = 0; i < f->n_kinds; i++) {
        r->kinds[i] = make_stages(f, &f->kinds[i], &r->buffers);
        sides[i] = fused_part(f, &f->kinds[i], traced, &r->kinds[i], r);
        products[2 * i] = sides[i].first;
        products[2 * i + 1] = sides[i].second;
    }
    const mox_combine_args combine = combine_args(f, r, sides[0].y, f->n_kinds == 2 ? sides[1].y : NULL);
    const uint64_t bytes = mox_fused_scratch(products, 2 * f->n_kinds);
    assert_int_equal(bytes % 64, 0);
    const mox_fused_args args = {
        .parts = sides,
        .n_parts = f->n_kinds,
        .tokens = f->set->tokens,
        .x = f->x,
        .dtype = f->set->dtype,
        .items = check_buffer(&r->scratch, (FUSED_SLOTS + 1) * sizeof(mox_fused_item)),
        .nodes = nodes,
        .scratch = check_buffer(&r->scratch, (size_t)executor->workers * bytes),
        .scratch_bytes = bytes,
        .combine = mox_combine_at(0),
        .combine_args = &combine,
    };
    mox_fused_run(&args, executor);
    for (int i = 0; traced && i < f->n_kinds; i++)
        for (int second = 0; second < 2; second++) {
            const mox_activations *a = second ? sides[i].trace2 : sides[i].trace13;
            for (int64_t p = 0; a->scales == NULL && p < f->kinds[i].pairs; p++)
                mox_fused_activations_row(&sides[i], second, p, a->values + p * a->stride);
        }
}

/* ---- comparing ---------------------------------------------------------------------------------------------- */

static void same(const fused_problem *f, const char *what, const void *got, const void *want, size_t bytes)
{
    if (bytes > 0 && memcmp(got, want, bytes) != 0)
        fail_msg("%s, %s: %s differs", f->set->name, f->row->base.name, what);
}

static void same_operands(const fused_problem *f, const char *what, const mox_activations *got,
                          const mox_activations *want)
{
    for (int64_t p = 0; p < want->rows; p++) {
        same(f, what, got->values + p * got->stride, want->values + p * want->stride,
             (size_t)want->cols * sizeof(float));
        if (want->scales != NULL)
            same(f, what, got->scales + p * got->scale_cols, want->scales + p * want->scale_cols,
                 (size_t)want->scale_cols * sizeof(float));
        if (want->global != NULL)
            same(f, what, got->global + p, want->global + p, sizeof(float));
    }
}

static void same_results(const fused_problem *f, const result *got, const result *want, bool traced)
{
    for (int i = 0; i < f->n_kinds; i++) {
        const stages *a = &got->kinds[i], *b = &want->kinds[i];
        const size_t pairs = (size_t)f->kinds[i].pairs * sizeof(float);
        if (traced) {
            same_operands(f, "first operand", &a->a13, &b->a13);
            same(f, "h", a->h, b->h, pairs * (size_t)(f->shape.intermediate * (f->shape.gated ? 2 : 1)));
            same(f, "act", a->act, b->act, pairs * (size_t)f->shape.intermediate);
            same_operands(f, "second operand", &a->a2, &b->a2);
        }
        same(f, "y", a->y, b->y, pairs * (size_t)f->shape.hidden);
    }
    same(f, "output", got->out, want->out, out_bytes(f));
}

/* ---- windows of slots --------------------------------------------------------------------------------------- */

/* Memory of all pairs, and what was there before the run. */
typedef struct watched {
    const char *what;
    const void *data;
    void *before;
    size_t each; /* bytes of a pair */
} watched;

static watched watch(const fused_problem *f, const char *what, const void *data, size_t each)
{
    watched w = { what, data, NULL, data != NULL ? each : 0 };
    const size_t bytes = w.each * (size_t)f->kinds[0].pairs;
    w.before = malloc(bytes + 1);
    if (bytes > 0)
        memcpy(w.before, data, bytes);
    return w;
}

/* Nothing but pairs [first, end) was written. */
static void check_watched(const fused_problem *f, watched *w, int64_t first, int64_t end)
{
    const size_t from = (size_t)first * w->each, to = (size_t)end * w->each;
    same(f, w->what, w->data, w->before, from);
    same(f, w->what, (const char *)w->data + to, (const char *)w->before + to,
         (size_t)f->kinds[0].pairs * w->each - to);
    free(w->before);
}

static mox_fused_part window_part(const fused_problem *f, int64_t first, int64_t end, result *r)
{
    mox_fused_part part = fused_part(f, &f->kinds[0], false, &r->kinds[0], r);
    part.slots = end - first;
    part.pairs = part.offsets[end];
    part.records += first;
    part.offsets += first;
    part.expert_of += first;
    part.static_scale13 += first;
    part.static_scale2 += first;
    return part;
}

/* Slots [first, end) of the pass alone. */
static void run_window(const fused_problem *f, int64_t first, int64_t end, const result *want)
{
    const fused_kind *k = &f->kinds[0];
    const int64_t from = k->offsets[first], to = k->offsets[end];
    result r;
    memset(&r, 0, sizeof r);
    r.kinds[0] = make_stages(f, k, &r.buffers);
    const mox_fused_part part = window_part(f, first, end, &r);
    const mox_fused_product *products[] = { part.first, part.second };
    const size_t row = (size_t)f->shape.hidden * sizeof(float);
    const uint64_t bytes = mox_fused_scratch(products, 2);
    watched seen[] = { watch(f, "first operand", part.a13.data, part.first->row_bytes),
                       watch(f, "its scales", part.a13.scales, (size_t)part.first->groups * sizeof(float)),
                       watch(f, "its scales of rows", part.a13.row_scale, sizeof(float)),
                       watch(f, "its global scales", part.a13.global, sizeof(float)),
                       watch(f, "second operand", part.a2.data, part.second->row_bytes),
                       watch(f, "y", part.y, row) };
    const mox_fused_args args = { .parts = &part,
                                  .n_parts = 1,
                                  .tokens = f->set->tokens,
                                  .x = f->x,
                                  .dtype = f->set->dtype,
                                  .items = check_buffer(&r.scratch, FUSED_SLOTS * sizeof(mox_fused_item)),
                                  .scratch = check_buffer(&r.scratch, bytes),
                                  .scratch_bytes = bytes };
    mox_fused_run(&args, &mox_executor_serial);
    same(f, "y of a window", part.y + from * f->shape.hidden, want->kinds[0].y + from * f->shape.hidden,
         (size_t)(to - from) * row);
    for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++)
        check_watched(f, &seen[i], from, to);
    free_result(&r);
}

/* As a layer runs whose records come a few at a time (layer/run/run_fetch.h). */
static void run_windows(const fused_problem *f, const result *want)
{
    static const int64_t windows[][2] = { { 0, 1 }, { 1, 3 }, { 3, 4 }, { 0, 3 }, { 2, 4 } };
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++)
        run_window(f, windows[i][0], windows[i][1], want);
}

/* ---- executors ---------------------------------------------------------------------------------------------- */

static void on_executor(const fused_problem *f, const moxie_executor *executor, int32_t nodes, const result *want)
{
    result r;
    run_fused(f, executor, nodes, false, &r);
    same_results(f, &r, want, false);
    free_result(&r);
}

/* Tries one in `step` of the executors, others at each call. */
static void on_any_executor(const fused_problem *f, const moxie_executor *pool, const result *want, int64_t turn,
                            int64_t step)
{
    static const int32_t workers[] = { 1, 2, 3, 5, 8, 64 };
    enum { ORDERS = TEST_LATE_THREADS + 1, EXECUTORS = (int)(sizeof workers / sizeof workers[0]) * ORDERS };
    for (int64_t i = turn % step; i < EXECUTORS; i += step) {
        const test_order order = (test_order)(i % ORDERS);
        test_executor own;
        test_executor_init(&own, workers[i / ORDERS], order);
        if (order <= TEST_BACKWARDS || workers[i / ORDERS] <= 8)
            on_executor(f, &own.executor, (int32_t)(1 + (turn + i) % 4), want);
    }
    on_executor(f, pool, mox_executor_nodes(pool), want);
}

/* False when the kernel does not accept both products. */
static bool check_row(fused_problem *f, const mox_expert_gemm_kernel *row, const moxie_executor *pool, int64_t turn,
                      int64_t step)
{
    const mox_expert_gemm_problem first = fused_product_problem(f, MOX_W13), second = fused_product_problem(f, MOX_W2);
    mox_rejection why;
    result want, got;
    f->row = row;
    if (mox_panel_kernel_of(row) == NULL || !check_admit(&row->base, &why) ||
        !mox_expert_gemm_admit(row, &first, &why) || !mox_expert_gemm_admit(row, &second, &why))
        return false;
    for (int i = 0; i < f->n_kinds; i++) {
        assert_true(mox_fused_product_init(&f->kinds[i].first, row, &first));
        assert_true(mox_fused_product_init(&f->kinds[i].second, row, &second));
    }
    run_chain(f, &want);
    run_fused(f, &mox_executor_serial, 1, true, &got);
    same_results(f, &got, &want, true);
    free_result(&got);
    run_windows(f, &want);
    on_any_executor(f, pool, &want, turn, step);
    free_result(&want);
    return true;
}

/* A pool on four nodes of a machine that is made up, where libhwloc makes it up. */
static moxie_executor *pool_on_nodes(void)
{
    moxie_executor *pool = NULL;
    moxie_error error = { 0 };
    setenv("HWLOC_SYNTHETIC", "numa:4 core:2 pu:1", 1);
    assert_int_equal(mox_executor_create_on(4, "auto", &pool, &error), MOXIE_OK);
    unsetenv("HWLOC_SYNTHETIC");
    return pool;
}

static void fused_and_step_by_step(void **state)
{
    (void)state;
    int64_t checked = 0;
    const int64_t step = test_one_in(12, "executors for each setting");
    moxie_executor *pool = pool_on_nodes();
    if (!test_emulated())
        alarm(600); /* a run that never ends fails the test */
    for (int i = 0; i < FUSED_SETTINGS; i++) {
        fused_problem f;
        fused_set_up(&f, &fused_settings[i]);
        for (int32_t r = 0; mox_expert_gemm_at(r) != NULL; r++)
            checked += check_row(&f, mox_expert_gemm_at(r), pool, i, step);
        fused_tear_down(&f);
    }
    alarm(0);
    mox_executor_destroy(pool);
    print_message("%lld combinations of kernel and setting\n", (long long)checked);
    if (checked == 0) {
        print_message("no panel kernel runs on this machine, or under MOXIE_MAX_ISA\n");
        skip();
    }
}

/* One scale for the whole batch cannot be known before the batch is done. */
static void batch_wide_scales_do_not_fuse(void **state)
{
    (void)state;
    static const char *const acts[] = { "fp8 tensor", "int8 tensor" };
    for (int a = 0; a < 2; a++) {
        const moxie_quant act = test_act_quant_named(acts[a])->quant;
        const test_expert_spec spec = { .hidden = 64,
                                        .intermediate = 64,
                                        .w13 = test_weight_quant_named("mxfp4"),
                                        .w2 = test_weight_quant_named("mxfp4") };
        const mox_record_shape shape = test_record_shape(&spec);
        const mox_expert_gemm_problem problem = { &shape, MOX_W2, &shape.w2, &act, MOXIE_BF16 };
        mox_fused_product product;
        for (int32_t r = 0; mox_expert_gemm_at(r) != NULL; r++)
            assert_false(mox_fused_product_init(&product, mox_expert_gemm_at(r), &problem));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_and_step_by_step),
        cmocka_unit_test(batch_wide_scales_do_not_fuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
