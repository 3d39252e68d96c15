/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernels_gemm.c - every admitted kernel of family expert_gemm
 *     against the oracle           each element within its bound, every weight format x activation format
 *     against the referee          the same bytes, where the kernel promises a sum that gemm_referee.h restates
 *     against earlier kernels      the same bytes, where class and sum are equal
 *     against itself               the same bytes for a pair alone, in a batch, on other threads
 *
 * Problems are those of gemm_problem.h: few rows and columns around every tile, many rows of one expert, many groups.
 * Whole products; a panel kernel by itself is test_kernels_panel.c. MOXIE_TEST_SEED repeats a run, MOXIE_TEST_CONFIGS
 * sets the sizes per pair of formats.
 */
#include "gemm_referee.h"
#include "ref/ref_bounds.h"

static void fail_at(const mox_expert_gemm_kernel *row, const gemm_problem *p, int64_t pair, int64_t n, const char *text)
{
    char what[512];
    gemm_describe(p, what, sizeof what);
    fail_msg("%s, %s: row %lld column %lld %s", row->base.name, what, (long long)pair, (long long)n, text);
}

/* ---- against the oracle --------------------------------------------------------------------------------------- */

/* The activations as numbers. */
typedef struct operand_view {
    double *x;       /* [rows, cols] */
    double *weight;  /* [cols] */
    double *sum;     /* [rows] of magnitudes */
    double *minimum; /* [cols] */
} operand_view;

static double with_global(double value, int32_t kind, float global)
{
    return kind == MOXIE_GLOBAL_MULTIPLY ? value * (double)global : value / (double)global;
}

static operand_view view_operand(const gemm_problem *p, check_buffers *buffers)
{
    const mox_activations *a = &p->operand;
    const operand_view view = { check_buffer(buffers, (size_t)(a->rows * a->cols) * sizeof(double)),
                                check_buffer(buffers, (size_t)a->cols * sizeof(double)),
                                check_buffer(buffers, (size_t)a->rows * sizeof(double)),
                                check_buffer(buffers, (size_t)a->cols * sizeof(double)) };
    for (int64_t r = 0; r < a->rows; r++) {
        view.sum[r] = 0.0;
        for (int64_t k = 0; k < a->cols; k++) {
            double x = (double)a->values[r * a->stride + k];
            if (a->scales != NULL)
                x *= (double)a->scales[r * a->scale_cols + k / a->group_cols];
            if (a->global != NULL)
                x = with_global(x, a->global_kind, a->global[r]);
            view.x[r * a->cols + k] = x;
            view.sum[r] += fabs(x);
        }
    }
    return view;
}

/* The largest magnitude of a finished sum while the activations' factors are applied: it has to fit in f32. */
static double peak_of(const mox_activations *a, int64_t r, double magnitude)
{
    double peak = magnitude;
    if (a->global != NULL) {
        magnitude /= a->global_kind == MOXIE_GLOBAL_MULTIPLY ? (double)a->global[r] : 1.0 / (double)a->global[r];
        peak = fmax(peak, magnitude);
    }
    if (a->scales != NULL && a->scale_cols == 1 && a->scales[r] != 0.0f)
        peak = fmax(peak, magnitude / (double)a->scales[r]);
    return peak;
}

/* The product of an element's global factors. */
static double globals_of(const gemm_problem *p, const moxie_matrix *matrix, int64_t n, int64_t r)
{
    const mox_activations *a = &p->operand;
    const int32_t kind = p->asked.weight->global;
    const double act = a->global != NULL ? with_global(1.0, a->global_kind, a->global[r]) : 1.0;
    if (kind == MOXIE_GLOBAL_NONE)
        return act;
    return with_global(act, kind, (float)mox_grid_value(&matrix->global, matrix->global.rows == 1 ? 0 : n, 0));
}

/* The error that kernels which round activations to 8 bits may have in row r with these weights. */
static double bytes_bound(const gemm_problem *p, const operand_view *view, int64_t r)
{
    const int64_t step = mox_group_cols(p->asked.weight, p->cols) == 16 && p->cols > 16 ? 16 : 32;
    double steps = 0.0;
    for (int64_t first = 0; first < p->cols; first += step) {
        double most = 0.0, weights = 0.0;
        for (int64_t k = first; k < mox_min_i64(first + step, p->cols); k++) {
            most = fmax(most, fabs(view->x[r * p->cols + k]));
            weights += fabs(view->weight[k]);
        }
        steps += isfinite(most) ? most * weights : 0.0;
    }
    return mox_bound_bytes(steps);
}

/* That of kernels which also subtract the minimums of block types after the sum. */
static double minimums_bound(const gemm_problem *p, const operand_view *view, int64_t r, double magnitude)
{
    double minimums = 0.0;
    for (int64_t k = 0; k < p->cols; k++)
        minimums += fabs(view->minimum[k] * view->x[r * p->cols + k]);
    return minimums > 0.0 ? mox_bound_minimums(magnitude, minimums) : 0.0;
}

static void compare_element(const mox_expert_gemm_kernel *row, const gemm_problem *p, const operand_view *view,
                            const moxie_matrix *matrix, int64_t n, double weights, int64_t pair, int64_t column,
                            const float *out)
{
    const double bias = matrix->bias.data != NULL ? mox_grid_value(&matrix->bias, n, 0) : 0.0;
    const int64_t r = gemm_operand_row(p, pair);
    const double *x = view->x + r * p->cols;
    double want = bias, magnitude = fabs(bias);
    for (int64_t k = 0; k < p->cols; k++) {
        want += view->weight[k] * x[k];
        magnitude += fabs(view->weight[k] * x[k]);
    }
    const float got = out[pair * p->n_out + column + n];
    const int64_t act_group = p->operand.scales != NULL ? p->operand.group_cols : p->cols;
    const int64_t depth = mox_dot_depth(p->cols, mox_group_cols(p->asked.weight, p->cols), act_group);
    double bound = mox_bound_dot(p->cols, depth, magnitude);
    if (mox_sum_traits_of(row->sum)->flushes)
        bound += mox_bound_flush(p->cols, weights, view->sum[r], globals_of(p, matrix, n, r));
    if (mox_sum_traits_of(row->sum)->bytes)
        bound += bytes_bound(p, view, r) + minimums_bound(p, view, r, magnitude);
    if (check_within(got, want, peak_of(&p->operand, r, magnitude), bound))
        return;
    char text[128];
    snprintf(text, sizeof text, "is %.9g, want %.17g, bound %g", (double)got, want, bound);
    fail_at(row, p, pair, column + n, text);
}

static void compare_oracle(const mox_expert_gemm_kernel *row, const gemm_problem *p, const float *out)
{
    check_buffers buffers = { .count = 0 };
    const operand_view view = view_operand(p, &buffers);
    for (int s = 0; s < GEMM_SLOTS; s++) {
        const moxie_matrix *matrix[2];
        int64_t column[2];
        const int count = gemm_matrices(p, s, matrix, column);
        for (int i = 0; i < count; i++)
            for (int64_t n = 0; n < matrix[i]->codes.rows && p->offsets[s] < p->offsets[s + 1]; n++) {
                double weights = 0.0;
                mox_ref_weight_row(matrix[i], p->asked.weight, n, view.weight);
                mox_ref_minimum_row(matrix[i], n, view.minimum);
                for (int64_t k = 0; k < p->cols; k++)
                    weights += fabs(view.weight[k]);
                for (int64_t pair = p->offsets[s]; pair < p->offsets[s + 1]; pair++)
                    compare_element(row, p, &view, matrix[i], n, weights, pair, column[i], out);
            }
    }
    check_buffers_free(&buffers);
}

/* ---- against other rows, and against itself -------------------------------------------------------------- */

static void compare_bytes(const mox_expert_gemm_kernel *row, const gemm_problem *p, const float *out, const float *want,
                          const char *text)
{
    for (int64_t i = 0; i < p->pairs * p->n_out; i++)
        if (!referee_agrees(out[i], want[i])) {
            char whole[160];
            snprintf(whole, sizeof whole, "is %a, not %a: %s", (double)out[i], (double)want[i], text);
            fail_at(row, p, i / p->n_out, i % p->n_out, whole);
        }
}

static void compare_referee(const mox_expert_gemm_kernel *row, const gemm_problem *p, const float *out)
{
    check_buffers buffers = { .count = 0 };
    if (referee_knows_products(row))
        compare_bytes(row, p, out, referee_product(referee_sum_of(row), p, &buffers), "differs from the sum it names");
    check_buffers_free(&buffers);
}

/* The first kernel that promises the same bits. */
static const mox_expert_gemm_kernel *twin_of(const mox_expert_gemm_kernel *row, const gemm_problem *p)
{
    for (int32_t i = 0; mox_expert_gemm_at(i) != row; i++) {
        const mox_expert_gemm_kernel *other = mox_expert_gemm_at(i);
        if (other->base.exactness == row->base.exactness && other->sum == row->sum && gemm_admitted(other, p))
            return other;
    }
    return NULL;
}

/* Each pair alone, on the calling thread, gives the same row as in the batch. With many pairs, some of them. */
static void compare_alone(const mox_expert_gemm_kernel *row, const gemm_problem *p, const float *out)
{
    for (int s = 0; s < GEMM_SLOTS; s++)
        for (int64_t pair = p->offsets[s]; pair < p->offsets[s + 1]; pair++) {
            const int64_t place = pair - p->offsets[s];
            if (place > 33 && place % 16 != 15 && place % 29 != 0 && pair + 1 < p->offsets[s + 1])
                continue;
            gemm_problem alone = *p;
            check_buffers buffers = { .count = 0 };
            int64_t operand = gemm_operand_row(p, pair);
            for (int i = 0; i <= GEMM_SLOTS; i++)
                alone.offsets[i] = i > s;
            alone.pairs = 1;
            alone.act_row = &operand;
            const float *got = gemm_run(row, &alone, &mox_executor_serial, &buffers);
            compare_bytes(row, &alone, got, out + pair * p->n_out, "depends on its neighbours or threads");
            check_buffers_free(&buffers);
        }
}

static void check_row(const mox_expert_gemm_kernel *row, const gemm_problem *p, const moxie_executor *executor,
                      bool alone)
{
    check_buffers buffers = { .count = 0 };
    const mox_expert_gemm_kernel *twin = twin_of(row, p);
    const float *out = gemm_run(row, p, executor, &buffers);
    compare_oracle(row, p, out);
    compare_referee(row, p, out);
    if (twin != NULL)
        compare_bytes(row, p, out, gemm_run(twin, p, &mox_executor_serial, &buffers), "differs from the row before it");
    if (alone)
        compare_alone(row, p, out);
    check_buffers_free(&buffers);
}

/* `alone`: also each pair by itself and on threads, which takes longer than the products. */
static void check_problem(const gemm_problem *p, const moxie_executor *pool, bool alone)
{
    const moxie_executor *executor = alone ? pool : &mox_executor_serial;
    int64_t rows = 0;
    for (int32_t i = 0; mox_expert_gemm_at(i) != NULL; i++)
        if (gemm_admitted(mox_expert_gemm_at(i), p)) {
            check_row(mox_expert_gemm_at(i), p, executor, alone);
            rows++;
        }
    assert_true(rows > 0);
}

/* ---- the problems ------------------------------------------------------------------------------------------- */

static void every_format_and_shape(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(20);
    const int64_t configs = test_env("MOXIE_TEST_CONFIGS", 1);
    print_message("seed %llu\n", (unsigned long long)seed);
    test_rng rng = { seed };
    const int64_t fewer = test_quick_one_in(5, "formats of activations for each of weights");
    moxie_executor *pool = check_pool();
    gemm_problem p;
    for (int w = 0; gemm_weight_at(w) != NULL; w++)
        for (int64_t a = w % fewer; a < test_act_quant_count; a += fewer)
            for (int64_t i = 0; i < configs; i++) {
                const gemm_size size = { .rows = check_size(&rng, 65), .cols = check_size(&rng, 257) };
                gemm_problem_make(&p, &rng, gemm_weight_at(w), &test_act_quants[a], size);
                check_problem(&p, pool, test_below(&rng, 4) == 0);
                gemm_problem_free(&p);
            }
    mox_executor_destroy(pool);
}

/* Tries `each` problems of every weight format, or one in `fewer` of the formats. The first problem has unquantized
 * activations; number `pooled` also runs on a pool. */
static void check_each_format(uint64_t seed, int64_t each, int64_t fewer, int64_t pooled,
                              gemm_size (*size)(test_rng *rng))
{
    print_message("seed %llu\n", (unsigned long long)seed);
    test_rng rng = { seed };
    moxie_executor *pool = check_pool();
    gemm_problem p;
    for (int w = 0; gemm_weight_at(w) != NULL; w++)
        for (int64_t i = w % fewer; i < each; i += fewer) {
            const uint64_t act = i == 0 ? 0 : test_below(&rng, (uint64_t)test_act_quant_count);
            gemm_problem_make(&p, &rng, gemm_weight_at(w), &test_act_quants[act], size(&rng));
            check_problem(&p, pool, i == pooled);
            gemm_problem_free(&p);
        }
    mox_executor_destroy(pool);
}

static gemm_size long_size(test_rng *rng)
{
    static const int64_t cols[] = { MOX_SEGMENT - 1, MOX_SEGMENT, MOX_SEGMENT + 1, 521, 833, 1031, 1056, 1088, 1100 };
    const int64_t rows = check_size(rng, 33);
    return (gemm_size) { .rows = rows, .cols = cols[test_below(rng, sizeof cols / sizeof cols[0])] };
}

/* Sums of more than one MOX_SEGMENT and of many groups, each weight format with some activation formats. */
static void long_rows(void **state)
{
    (void)state;
    const int64_t each = 2 + 2 * test_env("MOXIE_TEST_CONFIGS", 1);
    check_each_format(test_seed(21), each, test_quick_one_in(4, "problems of each format"), 0, long_size);
}

static gemm_size size_of_many(test_rng *rng)
{
    static const int64_t most[] = { 47, 63, 64, 65, 96, 112, 127, 128, 129, 143, 144, 145, 160, 255, 256, 257, 300 };
    const int64_t rows = check_size(rng, 33), cols = check_size(rng, 257);
    return (gemm_size) { .rows = rows, .cols = cols, .most = most[test_below(rng, sizeof most / sizeof most[0])] };
}

/* Experts with more pairs than a tile, two tiles, a block of MOX_PANEL_BLOCK, two blocks. */
static void many_pairs(void **state)
{
    (void)state;
    const int64_t each = 1 + 2 * test_env("MOXIE_TEST_CONFIGS", 1);
    check_each_format(test_seed(22), each, test_quick_one_in(3, "problems of each format"), 1, size_of_many);
}

/* Kernels for int8 x int8 must sum 2000 products 127 * 127 and one 126 * 127 exactly. The sum is far beyond 2^24, up to
 * which every integer is an f32; it is even and just below 2^25, so it is an f32, too. The kernel that a plan chooses
 * for int8 x int8 is such a kernel. */
static void integers_are_exact(void **state)
{
    (void)state;
    enum { K = 2001 };
    const moxie_quant quant = { .element = MOXIE_I8, .scale = MOXIE_F32, .group_rows = 1, .group_cols = -1 };
    gemm_problem p = {
        .pairs = 1, .cols = K, .n_out = 1, .weight = &test_weight_quants[0], .act = &test_act_quants[0]
    };
    p.shape = (mox_record_shape) { .hidden = K, .intermediate = 1, .w13 = quant, .w2 = quant };
    p.asked = (mox_expert_gemm_problem) {
        .shape = &p.shape, .projection = MOX_W13, .weight = &p.shape.w13, .act = &p.shape.w13, .dtype = MOXIE_BF16
    };
    int8_t codes[K];
    float ones[K], values[K + MOX_ACTIVATIONS_PAD] = { 0 };
    for (int k = 0; k < K; k++) {
        codes[k] = k == 1000 ? 126 : 127;
        ones[k] = 1.0f;
        values[k] = 127.0f;
    }
    const moxie_expert expert = {
        .up = { .codes = mox_grid_dense(codes, MOXIE_I8, 1, K), .scale = mox_grid_dense(ones, MOXIE_F32, 1, 1) },
        .down = { .codes = mox_grid_dense(codes, MOXIE_I8, K, 1), .scale = mox_grid_dense(ones, MOXIE_F32, K, 1) }
    };
    for (int s = 0; s < GEMM_SLOTS; s++)
        p.experts[s].view = expert;
    for (int32_t i = 0; mox_layout_at(i) != NULL; i++)
        gemm_pack_records(&p, mox_layout_at(i));
    p.offsets[1] = p.offsets[2] = p.offsets[3] = p.offsets[4] = 1;
    p.operand = (mox_activations) { .rows = 1,
                                    .cols = K,
                                    .stride = mox_ceil_div(K, MOX_ACTIVATIONS_PAD) * MOX_ACTIVATIONS_PAD,
                                    .values = values,
                                    .scales = ones,
                                    .group_cols = K,
                                    .scale_cols = 1,
                                    .integer = 1 };
    bool first = true;
    for (int32_t i = 0; mox_expert_gemm_at(i) != NULL; i++) {
        const mox_expert_gemm_kernel *row = mox_expert_gemm_at(i);
        if (!gemm_admitted(row, &p))
            continue;
        check_buffers buffers = { .count = 0 };
        const float *out = gemm_run(row, &p, &mox_executor_serial, &buffers);
        if ((first || row->sum == MOX_SUM_INT32_STEPS || row->sum == MOX_SUM_INT32_GROUPS) && out[0] != 32274002.0f)
            fail_msg("%s sums to %.9g", row->base.name, (double)out[0]);
        first = false;
        check_buffers_free(&buffers);
    }
    assert_false(first);
    check_buffers_free(&p.buffers);
}

/* The integer kernel gives a reason for what it rejects; the other one accepts everything. */
static void integer_row_refuses(void **state)
{
    (void)state;
    const moxie_quant i8 = { .element = MOXIE_I8, .scale = MOXIE_F32, .group_rows = 1, .group_cols = -1 };
    const moxie_quant fp8 = { .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = 1, .group_cols = -1 };
    const mox_record_shape shape = { .hidden = 131072, .intermediate = 64, .w13 = i8, .w2 = i8 };
    const mox_record_shape floats = { .hidden = 64, .intermediate = 64, .w13 = fp8, .w2 = fp8 };
    const mox_expert_gemm_problem longest = { &shape, MOX_W13, &i8, &i8, MOXIE_BF16 },
                                  fits = { &shape, MOX_W2, &i8, &i8, MOXIE_BF16 };
    const mox_expert_gemm_problem fp8_weights = { &floats, MOX_W13, &fp8, &i8, MOXIE_BF16 },
                                  fp8_acts = { &shape, MOX_W2, &i8, &fp8, MOXIE_BF16 };
    mox_rejection why = { .reason = "", .remedy = "" };
    assert_true(mox_expert_gemm_scalar_int_admit(&fits, &why));
    assert_false(mox_expert_gemm_scalar_int_admit(&longest, &why));
    assert_non_null(strstr(why.reason, "131072"));
    assert_false(mox_expert_gemm_scalar_int_admit(&fp8_weights, &why));
    assert_non_null(strstr(why.reason, "f8_e4m3"));
    assert_false(mox_expert_gemm_scalar_int_admit(&fp8_acts, &why));
    assert_non_null(strstr(why.remedy, "i8"));
    assert_true(mox_expert_gemm_scalar_any_admit(&longest, &why));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_and_shape), cmocka_unit_test(long_rows),           cmocka_unit_test(many_pairs),
        cmocka_unit_test(integers_are_exact),     cmocka_unit_test(integer_row_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
