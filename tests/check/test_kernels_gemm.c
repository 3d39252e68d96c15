/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernels_gemm.c - every admitted row of family expert_gemm
 *     against the oracle           each element within its bound, every weight format x activation format
 *     against the rows before it   the same bytes, where class and sum are equal
 *     against itself               the same bytes for a pair alone, in a batch, on other threads
 *
 * Shapes are random around the tiles, fills random, zero, extreme and NaN; all buffers end at an inaccessible page,
 * scratch and output begin as NaN. MOXIE_TEST_SEED repeats a run, MOXIE_TEST_CONFIGS sets the shapes per pair of
 * formats.
 */
#include "check_support.h"

#include "base/sizes.h"
#include "cpu/expert_gemm/expert_gemm.h"
#include "cpu/quant_act/quant_act.h"
#include "ref/ref.h"
#include "ref/ref_bounds.h"

enum { SLOTS = 4, LAYOUTS = 4 };

typedef struct problem {
    test_expert_spec spec;
    const test_weight_quant *weight;
    const test_act_quant *act;
    mox_record_shape shape;
    mox_expert_gemm_problem asked;
    test_expert experts[SLOTS];
    const void *records[LAYOUTS][SLOTS]; /* by layout number; NULL where it cannot hold the shape */
    int64_t offsets[SLOTS + 1];
    int64_t pairs, cols, n_out;
    int64_t *operand_row; /* NULL: identity */
    mox_operand operand;
    check_buffers buffers;
} problem;

/* ---- making a problem -------------------------------------------------------------------------------------- */

static bool holds(const mox_layout *layout, const mox_record_shape *shape)
{
    char buffer[256];
    return layout->refuse(shape, buffer, sizeof buffer) == NULL;
}

/* Every expert in every layout that can hold it. */
static void pack_records(problem *p, const mox_layout *layout)
{
    moxie_error error;
    uint64_t bytes = 0;
    assert_true(layout->number < LAYOUTS);
    assert_true(layout->record_bytes(&p->shape, &bytes));
    for (int s = 0; s < SLOTS; s++) {
        char reason[256];
        const moxie_expert *expert = &p->experts[s].view;
        if (layout->takes != NULL && !layout->takes(&p->shape, expert, reason, sizeof reason)) {
            memset(p->records[layout->number], 0, sizeof p->records[0]);
            return;
        }
        void *record = check_buffer(&p->buffers, bytes);
        assert_ok(mox_record_pack(layout, &p->shape, s, expert, record, &error), &error);
        p->records[layout->number][s] = record;
    }
}

static void make_experts(problem *p, test_rng *rng)
{
    for (int s = 0; s < SLOTS; s++)
        test_expert_make(&p->experts[s], rng, &p->spec);
    for (int32_t i = 0; mox_layout_at(i) != NULL; i++)
        if (holds(mox_layout_at(i), &p->shape))
            pack_records(p, mox_layout_at(i));
}

static const void *const *records_of(const mox_expert_gemm_row *row, const problem *p)
{
    return p->records[mox_layout_by_name(row->base.layout)->number];
}

/* Tokens are shared by pairs in the first product; the second has an operand row for each pair. */
static int64_t make_pairs(problem *p, test_rng *rng)
{
    static const int64_t counts[] = { 0, 1, 2, 3, 7, 15, 16, 17, 33 };
    for (int s = 0; s < SLOTS; s++)
        p->offsets[s + 1] = p->offsets[s] + counts[test_below(rng, sizeof counts / sizeof counts[0])];
    p->pairs = p->offsets[SLOTS];
    if (p->asked.projection == MOX_W2)
        return p->pairs;
    const int64_t tokens = mox_max_i64(1, p->pairs / 2);
    p->operand_row = check_buffer(&p->buffers, (size_t)p->pairs * sizeof *p->operand_row);
    for (int64_t i = 0; i < p->pairs; i++)
        p->operand_row[i] = test_range(rng, 0, tokens - 1);
    return tokens;
}

static void make_operand(problem *p, test_rng *rng, int64_t rows)
{
    const moxie_quant *quant = &p->act->quant;
    const size_t count = (size_t)(rows * p->cols);
    float *x = check_buffer(&p->buffers, count * sizeof *x), *given = check_buffer(&p->buffers, (size_t)rows * 4);
    for (size_t i = 0; i < count; i++)
        x[i] = test_below(rng, 50) == 0 ? 0.0f : mox_round_to(MOXIE_BF16, test_normal(rng));
    for (int64_t r = 0; r < rows; r++)
        given[r] = test_act_given(quant);
    const int64_t stride = mox_ceil_div(p->cols, MOX_OPERAND_PAD) * MOX_OPERAND_PAD;
    p->operand.values = check_buffer(&p->buffers, (size_t)(rows * stride) * sizeof(float));
    p->operand.scales = check_buffer(&p->buffers, count * sizeof(float));
    p->operand.global = check_buffer(&p->buffers, (size_t)rows * sizeof(float));
    const mox_quant_act_args args = {
        .quant = quant,
        .x = x,
        .x_dtype = MOXIE_F32,
        .round_to = MOXIE_BF16,
        .rows = rows,
        .cols = p->cols,
        .row_given = given,
        .amax = mox_amax(x, (int64_t)count),
        .codes = check_buffer(&p->buffers, (size_t)p->cols),
        .row_scratch = check_buffer(&p->buffers, (size_t)p->cols * sizeof(float)),
        .out = &p->operand,
    };
    mox_quant_act_at(0)->run(&args, &mox_executor_serial);
}

/* `rows` of each matrix of the projection, `cols` summed over. */
static void make_problem(problem *p, test_rng *rng, const test_weight_quant *weight, const test_act_quant *act,
                         int64_t rows, int64_t cols)
{
    const bool first = test_below(rng, 2) == 0;
    memset(p, 0, sizeof *p);
    p->weight = weight;
    p->act = act;
    p->spec = (test_expert_spec) { .hidden = first ? cols : rows,
                                   .intermediate = first ? rows : cols,
                                   .gated = test_below(rng, 2) == 0,
                                   .bias13 = test_below(rng, 2) == 0,
                                   .bias2 = test_below(rng, 2) == 0,
                                   .w13 = weight,
                                   .w2 = weight,
                                   .fill = (test_fill)test_below(rng, TEST_FILLS) };
    p->shape = test_record_shape(&p->spec);
    p->asked = (mox_expert_gemm_problem) { .shape = &p->shape,
                                           .projection = first ? MOX_W13 : MOX_W2,
                                           .weight = &weight->quant,
                                           .act = &act->quant,
                                           .dtype = MOXIE_BF16 };
    p->cols = cols;
    p->n_out = first && p->spec.gated ? 2 * rows : rows;
    make_experts(p, rng);
    make_operand(p, rng, make_pairs(p, rng));
}

static void free_problem(problem *p)
{
    for (int s = 0; s < SLOTS; s++)
        test_expert_free(&p->experts[s]);
    check_buffers_free(&p->buffers);
}

/* ---- running a row ------------------------------------------------------------------------------------------- */

static bool admitted(const mox_expert_gemm_row *row, const problem *p)
{
    mox_refusal why = { .reason = "", .remedy = "" };
    const bool yes = check_admit(&row->base, &why) && mox_expert_gemm_admit(row, &p->asked, &why);
    if (!yes && (why.reason[0] == '\0' || why.remedy[0] == '\0'))
        fail_msg("%s refuses %s x %s without reason or remedy", row->base.name, p->weight->name, p->act->name);
    return yes && records_of(row, p)[0] != NULL;
}

/* The whole product; `out` is guarded, [pairs, n_out]. */
static float *run_row(const mox_expert_gemm_row *row, const problem *p, const moxie_executor *executor,
                      check_buffers *buffers)
{
    const uint64_t per_worker = mox_expert_gemm_scratch(row, &p->asked);
    assert_int_equal(per_worker % 64, 0);
    float *out = check_buffer(buffers, (size_t)(p->pairs * p->n_out) * sizeof *out);
    const mox_expert_gemm_args args = {
        .shape = &p->shape,
        .projection = p->asked.projection,
        .slots = SLOTS,
        .records = records_of(row, p),
        .offsets = p->offsets,
        .operand_row = p->operand_row,
        .a = &p->operand,
        .act = p->asked.act,
        .dtype = p->asked.dtype,
        .out = out,
        .n_out = p->n_out,
        .scratch = check_buffer(buffers, (size_t)executor->workers * per_worker),
    };
    mox_expert_gemm_run(row, &args, executor);
    return out;
}

static void fail_at(const mox_expert_gemm_row *row, const problem *p, int64_t pair, int64_t n, const char *text)
{
    fail_msg("%s, %s x %s, %s, hidden %lld, intermediate %lld, %s, %lld pairs: row %lld column %lld %s", row->base.name,
             p->weight->name, p->act->name, test_fill_names[p->spec.fill], (long long)p->spec.hidden,
             (long long)p->spec.intermediate, p->asked.projection == MOX_W13 ? "w13" : "w2", (long long)p->pairs,
             (long long)pair, (long long)n, text);
}

/* ---- against the oracle --------------------------------------------------------------------------------------- */

/* Row r of the operand as the numbers that it stands for. */
static void operand_row(const mox_operand *a, int64_t r, double *x)
{
    for (int64_t k = 0; k < a->cols; k++) {
        x[k] = a->values[r * a->stride + k];
        if (a->scales != NULL)
            x[k] *= a->scales[r * a->scale_cols + k / a->group_cols];
        if (a->global != NULL)
            x[k] = a->global_kind == MOXIE_GLOBAL_MULTIPLY ? x[k] * a->global[r] : x[k] / a->global[r];
    }
}

/* The largest size of a finished sum while the activations' factors are applied to it: it has to fit in f32. */
static double peak_of(const mox_operand *a, int64_t r, double magnitude)
{
    double peak = magnitude;
    if (a->global != NULL) {
        magnitude /= a->global_kind == MOXIE_GLOBAL_MULTIPLY ? a->global[r] : 1.0 / (double)a->global[r];
        peak = fmax(peak, magnitude);
    }
    if (a->scales != NULL && a->scale_cols == 1 && a->scales[r] != 0.0f)
        peak = fmax(peak, magnitude / a->scales[r]);
    return peak;
}

/* Every global factor of an element in one. */
static double globals_of(const problem *p, const moxie_matrix *matrix, int64_t n, int64_t r)
{
    const mox_operand *a = &p->operand;
    const int32_t kind = p->weight->quant.global;
    double weight = 1.0, act = 1.0;
    if (kind != MOXIE_GLOBAL_NONE)
        weight = mox_grid_value(&matrix->global, matrix->global.rows == 1 ? 0 : n, 0);
    if (a->global != NULL)
        act = a->global_kind == MOXIE_GLOBAL_MULTIPLY ? a->global[r] : 1.0 / (double)a->global[r];
    return act * (kind == MOXIE_GLOBAL_DIVIDE ? 1.0 / weight : weight);
}

static void compare_matrix(const mox_expert_gemm_row *row, const problem *p, int slot, const moxie_matrix *matrix,
                           int64_t column, const float *out)
{
    double *w = test_guarded((size_t)p->cols * sizeof *w), *x = test_guarded((size_t)p->cols * sizeof *x);
    for (int64_t n = 0; n < matrix->codes.rows; n++) {
        mox_ref_weight_row(matrix, &p->weight->quant, n, w);
        const double bias = matrix->bias.data != NULL ? mox_grid_value(&matrix->bias, n, 0) : 0.0;
        for (int64_t pair = p->offsets[slot]; pair < p->offsets[slot + 1]; pair++) {
            double want = bias, magnitude = fabs(bias), weights = 0.0, acts = 0.0;
            const int64_t r = p->operand_row != NULL ? p->operand_row[pair] : pair;
            operand_row(&p->operand, r, x);
            for (int64_t k = 0; k < p->cols; k++) {
                want += w[k] * x[k];
                magnitude += fabs(w[k] * x[k]);
                weights += fabs(w[k]);
                acts += fabs(x[k]);
            }
            const float got = out[pair * p->n_out + column + n];
            const int64_t act_group = p->operand.scales != NULL ? p->operand.group_cols : p->cols;
            const int64_t depth = mox_dot_depth(p->cols, mox_group_cols(&p->weight->quant, p->cols), act_group);
            double bound = mox_bound_dot(p->cols, depth, magnitude);
            if (mox_expert_gemm_flushes(row))
                bound += mox_bound_flush(p->cols, weights, acts, globals_of(p, matrix, n, r));
            if (check_within(got, want, peak_of(&p->operand, r, magnitude), bound))
                continue;
            char text[128];
            snprintf(text, sizeof text, "is %.9g, want %.17g, bound %g", (double)got, want, bound);
            fail_at(row, p, pair, column + n, text);
        }
    }
    test_guarded_free(w, (size_t)p->cols * sizeof *w);
    test_guarded_free(x, (size_t)p->cols * sizeof *x);
}

static void compare_oracle(const mox_expert_gemm_row *row, const problem *p, const float *out)
{
    for (int s = 0; s < SLOTS; s++) {
        const moxie_expert *expert = &p->experts[s].view;
        if (p->asked.projection == MOX_W2) {
            compare_matrix(row, p, s, &expert->down, 0, out);
            continue;
        }
        if (p->spec.gated)
            compare_matrix(row, p, s, &expert->gate, 0, out);
        compare_matrix(row, p, s, &expert->up, p->spec.gated ? p->spec.intermediate : 0, out);
    }
}

/* ---- against other rows, and against itself -------------------------------------------------------------- */

static void compare_bytes(const mox_expert_gemm_row *row, const problem *p, const float *out, const float *want,
                          const char *text)
{
    for (int64_t i = 0; i < p->pairs * p->n_out; i++)
        if (memcmp(&out[i], &want[i], sizeof *out) != 0 && !(isnan(out[i]) && isnan(want[i])))
            fail_at(row, p, i / p->n_out, i % p->n_out, text);
}

/* The first row that promises the same bits. */
static const mox_expert_gemm_row *twin_of(const mox_expert_gemm_row *row, const problem *p)
{
    for (int32_t i = 0; mox_expert_gemm_at(i) != row; i++) {
        const mox_expert_gemm_row *other = mox_expert_gemm_at(i);
        if (other->base.exactness == row->base.exactness && strcmp(other->sum, row->sum) == 0 && admitted(other, p))
            return other;
    }
    return NULL;
}

/* Each pair alone, on the calling thread, gives the row it gave in company. */
static void compare_alone(const mox_expert_gemm_row *row, const problem *p, const float *out)
{
    for (int s = 0; s < SLOTS; s++)
        for (int64_t pair = p->offsets[s]; pair < p->offsets[s + 1]; pair++) {
            problem alone = *p;
            check_buffers buffers = { .count = 0 };
            int64_t operand = p->operand_row != NULL ? p->operand_row[pair] : pair;
            for (int i = 0; i <= SLOTS; i++)
                alone.offsets[i] = i > s;
            alone.pairs = 1;
            alone.operand_row = &operand;
            const float *got = run_row(row, &alone, &mox_executor_serial, &buffers);
            compare_bytes(row, &alone, got, out + pair * p->n_out, "depends on its neighbours or threads");
            check_buffers_free(&buffers);
        }
}

static void check_row(const mox_expert_gemm_row *row, const problem *p, const moxie_executor *pool, bool alone)
{
    check_buffers buffers = { .count = 0 };
    const mox_expert_gemm_row *twin = twin_of(row, p);
    const float *out = run_row(row, p, pool, &buffers);
    compare_oracle(row, p, out);
    if (twin != NULL)
        compare_bytes(row, p, out, run_row(twin, p, &mox_executor_serial, &buffers), "differs from the row before it");
    if (row->base.exactness != MOX_TOL && alone)
        compare_alone(row, p, out);
    check_buffers_free(&buffers);
}

static void check_problem(const problem *p, const moxie_executor *pool, bool alone)
{
    int64_t rows = 0;
    for (int32_t i = 0; mox_expert_gemm_at(i) != NULL; i++)
        if (admitted(mox_expert_gemm_at(i), p)) {
            check_row(mox_expert_gemm_at(i), p, pool, alone);
            rows++;
        }
    assert_true(rows > 0);
}

static void every_format_and_shape(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(20);
    const int64_t configs = test_env("MOXIE_TEST_CONFIGS", 1);
    print_message("seed %llu\n", (unsigned long long)seed);
    test_rng rng = { seed };
    moxie_executor *pool = check_pool();
    problem p;
    for (int w = 0; w < test_weight_quant_count; w++)
        for (int a = 0; a < test_act_quant_count; a++)
            for (int64_t i = 0; i < configs; i++) {
                make_problem(&p, &rng, &test_weight_quants[w], &test_act_quants[a], check_size(&rng, 65),
                             check_size(&rng, 257));
                check_problem(&p, pool, test_below(&rng, 4) == 0);
                free_problem(&p);
            }
    mox_executor_destroy(pool);
}

/* Sums of more than one MOX_SEGMENT, each weight format with some activation format. */
static void long_rows(void **state)
{
    (void)state;
    static const int64_t cols[] = { MOX_SEGMENT - 1, MOX_SEGMENT, MOX_SEGMENT + 1, 521, 1031, 2 * MOX_SEGMENT + 32 };
    const uint64_t seed = test_seed(21);
    print_message("seed %llu\n", (unsigned long long)seed);
    test_rng rng = { seed };
    moxie_executor *pool = check_pool();
    problem p;
    for (int w = 0; w < test_weight_quant_count; w++)
        for (int i = 0; i < 2; i++) {
            const uint64_t act = i == 0 ? 0 : test_below(&rng, (uint64_t)test_act_quant_count);
            make_problem(&p, &rng, &test_weight_quants[w], &test_act_quants[act], check_size(&rng, 17),
                         cols[test_below(&rng, sizeof cols / sizeof cols[0])]);
            check_problem(&p, pool, i == 0);
            free_problem(&p);
        }
    mox_executor_destroy(pool);
}

/* The row that a plan would take for int8 x int8 makes the exact sum of 2000 products 127 * 127 and one 126 * 127,
 * far beyond the 2^24 up to which every integer is an f32; the sum is even and just below 2^25, so it is one too. */
static void integers_are_exact(void **state)
{
    (void)state;
    enum { K = 2001 };
    const moxie_quant quant = { .element = MOXIE_I8, .scale = MOXIE_F32, .group_rows = 1, .group_cols = -1 };
    problem p = { .pairs = 1, .cols = K, .n_out = 1, .weight = &test_weight_quants[0], .act = &test_act_quants[0] };
    p.shape = (mox_record_shape) { .hidden = K, .intermediate = 1, .w13 = quant, .w2 = quant };
    p.asked = (mox_expert_gemm_problem) {
        .shape = &p.shape, .projection = MOX_W13, .weight = &p.shape.w13, .act = &p.shape.w13, .dtype = MOXIE_BF16
    };
    int8_t codes[K];
    float ones[K], values[K + MOX_OPERAND_PAD] = { 0 };
    for (int k = 0; k < K; k++) {
        codes[k] = k == 1000 ? 126 : 127;
        ones[k] = 1.0f;
        values[k] = 127.0f;
    }
    const moxie_expert expert = {
        .up = { .codes = mox_grid_dense(codes, MOXIE_I8, 1, K), .scale = mox_grid_dense(ones, MOXIE_F32, 1, 1) },
        .down = { .codes = mox_grid_dense(codes, MOXIE_I8, K, 1), .scale = mox_grid_dense(ones, MOXIE_F32, K, 1) }
    };
    moxie_error error;
    uint64_t bytes = 0;
    assert_true(mox_layout_rowmajor.record_bytes(&p.shape, &bytes));
    void *record = check_buffer(&p.buffers, bytes);
    assert_ok(mox_record_pack(&mox_layout_rowmajor, &p.shape, 0, &expert, record, &error), &error);
    p.records[mox_layout_rowmajor.number][0] = record;
    p.offsets[1] = p.offsets[2] = p.offsets[3] = p.offsets[4] = 1;
    p.operand = (mox_operand) { .rows = 1,
                                .cols = K,
                                .stride = mox_ceil_div(K, MOX_OPERAND_PAD) * MOX_OPERAND_PAD,
                                .values = values,
                                .scales = ones,
                                .group_cols = K,
                                .scale_cols = 1,
                                .integer = 1 };
    int32_t i = 0;
    while (!admitted(mox_expert_gemm_at(i), &p))
        i++;
    const float *out = run_row(mox_expert_gemm_at(i), &p, &mox_executor_serial, &p.buffers);
    assert_true(out[0] == 32274002.0f);
    check_buffers_free(&p.buffers);
}

/* What the integer row does not take, it says; the other one takes everything. */
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
    mox_refusal why = { .reason = "", .remedy = "" };
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
        cmocka_unit_test(every_format_and_shape),
        cmocka_unit_test(long_rows),
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(integer_row_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
