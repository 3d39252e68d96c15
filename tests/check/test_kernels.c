/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernels.c - the kernel lists themselves, and every admitted kernel of the families that move and round:
 * permute, quant_act, combine. The other families: test_kernels_route.c, _gemm.c, _glu.c.
 *
 * permute and quant_act have one right answer, compared exactly; combine sums in a stated order without fused
 * multiply-add, so its bytes are defined too. All buffers end at an inaccessible page and begin as NaN or -1.
 */
#include "check_support.h"

#include "base/sizes.h"
#include "cpu/combine/combine.h"
#include "cpu/cpu_kernels.h"
#include "cpu/expert_gemm/expert_gemm.h"
#include "cpu/permute/permute.h"
#include "cpu/quant_act/quant_act.h"
#include "ref/ref.h"

/* ---- the lists ------------------------------------------------------------------------------------------- */

static void lists_are_sound(void **state)
{
    (void)state;
    int32_t count = 0;
    bool has_gemm = false;
    for (; mox_cpu_kernel_at(count) != NULL; count++) {
        const mox_kernel *kernel = mox_cpu_kernel_at(count);
        assert_true(kernel->layout[0] == '\0' || mox_layout_by_name(kernel->layout) != NULL);
        assert_non_null(mox_exactness_name(kernel->exactness));
        has_gemm = has_gemm || strcmp(kernel->family, "expert_gemm") == 0;
        for (int32_t i = 0; i < count; i++) {
            const mox_kernel *other = mox_cpu_kernel_at(i);
            assert_false(strcmp(kernel->family, other->family) == 0 && strcmp(kernel->name, other->name) == 0);
        }
    }
    assert_true(count >= 7 && has_gemm);
    assert_null(mox_cpu_kernel_at(-1));
    assert_null(mox_cpu_kernel_at(count + 1));
    for (int32_t i = 0; i < count; i++) /* a portable row everywhere: nothing is refused for want of an ISA */
        if (mox_cpu_kernel_at(i)->isa == MOX_ISA_SCALAR)
            assert_true(check_machine_has(mox_cpu_kernel_at(i)));
}

static void common_refusals(void **state)
{
    (void)state;
    const mox_kernel rough = { "f", "rough", MOX_ISA_SCALAR, MOX_TOL, "" };
    const mox_kernel wide = { "f", "wide", MOX_ISA_AMX, MOX_EXACT, "" };
    mox_rejection why = { .reason = "", .remedy = "" };
    assert_true(mox_kernel_admit(&rough, MOX_ISA_AMX, MOXIE_MODE_FAST, &why));
    assert_false(mox_kernel_admit(&rough, MOX_ISA_AMX, MOXIE_MODE_EXACT, &why));
    assert_non_null(strstr(why.remedy, "fast"));
    assert_false(mox_kernel_admit(&wide, MOX_ISA_AVX2, MOXIE_MODE_EXACT, &why));
    assert_non_null(strstr(why.reason, "amx"));
    assert_true(strlen(why.remedy) > 0);
}

/* ---- permute --------------------------------------------------------------------------------------------- */

static void check_permute(const mox_permute_kernel *kernel, test_rng *rng, int64_t tokens, int64_t top_k)
{
    const int64_t experts = test_range(rng, 1, 12), slots = test_range(rng, 1, experts), pairs = tokens * top_k;
    check_buffers buffers = { .count = 0 };
    int32_t *ids = check_buffer(&buffers, (size_t)pairs * sizeof *ids);
    int32_t *slot_of = check_buffer(&buffers, (size_t)experts * sizeof *slot_of);
    for (int64_t e = 0; e < experts; e++)
        slot_of[e] = (int32_t)(e < slots ? slots - 1 - e : -1);
    for (int64_t i = 0; i < pairs; i++)
        ids[i] = (int32_t)test_range(rng, -2, experts + 1);
    const mox_permutation out = { .offsets = check_buffer(&buffers, (size_t)(slots + 1) * sizeof *out.offsets),
                                  .pair_at = check_buffer(&buffers, (size_t)pairs * sizeof *out.pair_at),
                                  .position = check_buffer(&buffers, (size_t)pairs * sizeof *out.position) };
    const mox_permute_args args = { .ids = ids,
                                    .tokens = tokens,
                                    .top_k = top_k,
                                    .experts = experts,
                                    .slots = slots,
                                    .slot_of = slot_of,
                                    .offsets = out.offsets,
                                    .pair_at = out.pair_at,
                                    .position = out.position };
    kernel->run(&args, &mox_executor_serial);
    int64_t p = 0;
    for (int64_t s = 0; s < slots; s++) {
        assert_int_equal(out.offsets[s], p);
        for (int64_t i = 0; i < pairs; i++)
            if (ids[i] >= 0 && ids[i] < experts && slot_of[ids[i]] == s) {
                assert_int_equal(out.pair_at[p], i);
                assert_int_equal(out.position[i], p);
                p++;
            }
    }
    assert_int_equal(out.offsets[slots], p);
    for (int64_t i = 0; i < pairs; i++)
        if (ids[i] < 0 || ids[i] >= experts || slot_of[ids[i]] < 0)
            assert_int_equal(out.position[i], -1);
    check_buffers_free(&buffers);
}

static void every_permute_row(void **state)
{
    (void)state;
    test_rng rng = { test_seed(30) };
    for (int32_t i = 0; mox_permute_at(i) != NULL; i++)
        for (int64_t tokens = 0; check_machine_has(&mox_permute_at(i)->base) && tokens < 40; tokens += 3)
            check_permute(mox_permute_at(i), &rng, tokens, test_range(&rng, 1, 9));
}

/* ---- quant_act -------------------------------------------------------------------------------------------- */

typedef struct act_problem {
    const test_act_quant *act;
    moxie_dtype dtype, round_to;
    int64_t rows, cols, source_rows;
    void *x;
    int64_t *source;
    float *weight, *given;
    check_buffers buffers;
} act_problem;

static void make_act_problem(act_problem *p, test_rng *rng, const test_act_quant *act, int64_t rows)
{
    static const moxie_dtype dtypes[] = { MOXIE_F32, MOXIE_F16, MOXIE_BF16 };
    *p = (act_problem) { .act = act,
                         .dtype = dtypes[test_below(rng, 3)],
                         .round_to = dtypes[test_below(rng, 3)],
                         .rows = rows,
                         .cols = check_size(rng, 257),
                         .source_rows = rows / 2 + 1 };
    const size_t element = (size_t)mox_dtype_bytes(p->dtype);
    p->x = check_buffer(&p->buffers, (size_t)(p->source_rows * p->cols) * element);
    test_fill_activations(rng, p->dtype, p->x, p->source_rows * p->cols);
    if (test_below(rng, 2) == 0)
        memset(p->x, 0, (size_t)p->cols * element); /* every quantizer has a rule of its own for a row of zeros */
    p->given = check_buffer(&p->buffers, (size_t)rows * sizeof(float));
    if (test_below(rng, 2) == 0)
        p->source = check_buffer(&p->buffers, (size_t)rows * sizeof *p->source);
    if (test_below(rng, 2) == 0)
        p->weight = check_buffer(&p->buffers, (size_t)rows * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
        p->given[r] = test_act_given(&act->quant) * (1.0f + 0.25f * (float)(r % 3));
        if (p->source != NULL)
            p->source[r] = test_range(rng, 0, p->source_rows - 1);
        if (p->weight != NULL)
            p->weight[r] = test_uniform(rng);
    }
    if (p->source == NULL)
        p->rows = mox_min_i64(p->rows, p->source_rows);
}

/* Row r of the input as the quantizer sees it. */
static void input_row(const act_problem *p, int64_t r, float *x)
{
    const int64_t from = p->source != NULL ? p->source[r] : r, bytes = mox_dtype_bytes(p->dtype);
    for (int64_t k = 0; k < p->cols; k++) {
        x[k] = mox_load(p->dtype, (const uint8_t *)p->x + (from * p->cols + k) * bytes);
        if (p->weight != NULL)
            x[k] = mox_round_to(p->dtype, x[k] * p->weight[r]);
    }
}

/* The largest magnitude of all rows, from which rules with one scale for the whole batch start. */
static float largest_input(const act_problem *p)
{
    float x[521], largest = 0;
    for (int64_t r = 0; r < p->rows; r++) {
        input_row(p, r, x);
        for (int64_t k = 0; k < p->cols; k++)
            largest = fmaxf(largest, fabsf(x[k]));
    }
    return largest;
}

static void check_activation_row(const mox_quant_act_kernel *kernel, const act_problem *p, float amax,
                                 const mox_activations *out, int64_t r)
{
    const moxie_quant *quant = &p->act->quant;
    float x[521];
    uint8_t codes[521];
    double scales[521];
    input_row(p, r, x);
    const float *values = out->values + r * out->stride;
    if (!mox_quant_is_none(quant))
        mox_ref_act_quant_row(quant, p->given[r], amax, x, p->cols, codes, scales);
    for (int64_t k = 0; k < p->cols; k++) {
        const float want =
            mox_quant_is_none(quant) ? mox_round_to(p->round_to, x[k]) : mox_format_table(quant->element)[codes[k]];
        if (values[k] != want)
            fail_msg("%s, %s: row %lld column %lld of %lld is %g, want %g", kernel->base.name, p->act->name,
                     (long long)r, (long long)k, (long long)p->cols, (double)values[k], (double)want);
    }
    for (int64_t k = p->cols; k < out->stride; k++)
        assert_true(values[k] == 0.0f);
    for (int64_t g = 0; g < out->scale_cols; g++)
        if ((double)out->scales[r * out->scale_cols + g] != scales[g])
            fail_msg("%s, %s: row %lld group %lld has scale %.9g, want %.17g", kernel->base.name, p->act->name,
                     (long long)r, (long long)g, (double)out->scales[r * out->scale_cols + g], scales[g]);
    if (quant->global != MOXIE_GLOBAL_NONE)
        assert_true(out->global[r] == p->given[r]);
}

static void check_quant_act(const mox_quant_act_kernel *kernel, const act_problem *p, const moxie_executor *pool)
{
    check_buffers buffers = { .count = 0 };
    const moxie_quant *quant = &p->act->quant;
    mox_activations out = mox_activations_f32(quant, p->rows, p->cols);
    out.values = check_buffer(&buffers, (size_t)(p->rows * out.stride) * sizeof(float));
    out.scales = check_buffer(&buffers, (size_t)(p->rows * out.scale_cols) * sizeof(float));
    if (quant->global != MOXIE_GLOBAL_NONE)
        out.global = check_buffer(&buffers, (size_t)p->rows * sizeof(float));
    const mox_quant_act_args args = {
        .quant = *quant,
        .x = p->x,
        .x_dtype = p->dtype,
        .round_to = p->round_to,
        .max_rows = p->rows,
        .cols = p->cols,
        .source = p->source,
        .row_weight = p->weight,
        .row_scale = p->given,
        .codes = check_buffer(&buffers, (size_t)(pool->workers * p->cols)),
        .row_scratch = check_buffer(&buffers, (size_t)(pool->workers * p->cols) * sizeof(float)),
        .out = out,
    };
    const float amax = largest_input(p);
    kernel->run(&args, pool);
    for (int64_t r = 0; r < p->rows; r++)
        check_activation_row(kernel, p, amax, &out, r);
    check_buffers_free(&buffers);
}

static void every_quant_act_row(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(31);
    print_message("seed %llu\n", (unsigned long long)seed);
    test_rng rng = { seed };
    moxie_executor *pool = check_pool();
    for (int32_t i = 0; mox_quant_act_at(i) != NULL; i++)
        for (int a = 0; a < test_act_quant_count; a++)
            for (int64_t n = 0; n < 12; n++) {
                const mox_quant_act_kernel *kernel = mox_quant_act_at(i);
                act_problem p;
                mox_rejection why;
                make_act_problem(&p, &rng, &test_act_quants[a], n);
                if (check_machine_has(&kernel->base) && kernel->admit(&test_act_quants[a].quant, &why))
                    check_quant_act(kernel, &p, pool);
                check_buffers_free(&p.buffers);
            }
    mox_executor_destroy(pool);
}

/* ---- combine ---------------------------------------------------------------------------------------------- */

static void make_floats(test_rng *rng, float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = test_normal(rng);
}

/* One element's sum by combine.h; volatile keeps the compiler from fusing two roundings into one. */
static float combined(const mox_combine_args *a, int64_t t, int64_t h)
{
    volatile float acc = 0.0f, product;
    for (int64_t j = 0; j < a->top_k; j++) {
        const int64_t choice = t * a->top_k + j;
        const bool counts =
            a->position != NULL ? a->position[choice] >= 0 : a->ids[choice] >= 0 && a->ids[choice] < a->experts;
        if (!counts)
            continue;
        const int64_t row = a->position != NULL ? a->position[choice] : choice;
        product = (a->weights != NULL ? a->weights[choice] : 1.0f) * a->y[row * a->hidden + h];
        acc = acc + product;
    }
    if (a->shared != NULL) {
        const float scale = a->shared_scale != 0 ? a->shared_scale : 1.0f;
        const float weight = a->shared_weight != NULL ? a->shared_weight[t] * scale : scale;
        product = weight * a->shared[t * a->hidden + h];
        acc = acc + product;
    }
    return mox_round_to(a->out_dtype, acc);
}

static void check_combine(const mox_combine_kernel *kernel, test_rng *rng, const moxie_executor *pool, int64_t tokens)
{
    static const moxie_dtype dtypes[] = { MOXIE_F32, MOXIE_F16, MOXIE_BF16 };
    const int64_t top_k = test_range(rng, 1, 9), hidden = check_size(rng, 521), pairs = tokens * top_k, experts = 5;
    check_buffers buffers = { .count = 0 };
    float *weights = check_buffer(&buffers, (size_t)pairs * sizeof(float));
    float *y = check_buffer(&buffers, (size_t)(pairs * hidden) * sizeof(float));
    float *shared = check_buffer(&buffers, (size_t)(tokens * hidden) * sizeof(float));
    float *shared_weight = check_buffer(&buffers, (size_t)tokens * sizeof(float));
    int64_t *position = check_buffer(&buffers, (size_t)pairs * sizeof *position);
    int32_t *ids = check_buffer(&buffers, (size_t)pairs * sizeof *ids);
    make_floats(rng, weights, pairs);
    make_floats(rng, y, pairs * hidden);
    make_floats(rng, shared, tokens * hidden);
    make_floats(rng, shared_weight, tokens);
    for (int64_t i = 0; i < pairs; i++) {
        position[i] = test_range(rng, -1, pairs - 1);
        ids[i] = (int32_t)test_range(rng, -1, experts);
    }
    const bool placed = test_below(rng, 2) == 0, shares = test_below(rng, 2) == 0;
    mox_combine_args args = { .tokens = tokens,
                              .top_k = top_k,
                              .hidden = hidden,
                              .position = placed ? position : NULL,
                              .ids = placed ? NULL : ids,
                              .experts = experts,
                              .weights = test_below(rng, 4) > 0 ? weights : NULL,
                              .y = y,
                              .shared = shares ? shared : NULL,
                              .shared_weight = test_below(rng, 2) == 0 ? shared_weight : NULL,
                              .shared_scale = test_below(rng, 2) == 0 ? 0.0f : 0.7f,
                              .out_dtype = dtypes[test_below(rng, 3)] };
    const int64_t bytes = mox_dtype_bytes(args.out_dtype);
    args.out = check_buffer(&buffers, (size_t)(tokens * hidden * bytes));
    kernel->run(&args, pool);
    for (int64_t i = 0; i < tokens * hidden; i++) {
        const float got = mox_load(args.out_dtype, (const uint8_t *)args.out + i * bytes);
        const float want = combined(&args, i / hidden, i % hidden);
        if (memcmp(&got, &want, sizeof got) != 0)
            fail_msg("%s: token %lld column %lld of %lld is %.9g, want %.9g", kernel->base.name,
                     (long long)(i / hidden), (long long)(i % hidden), (long long)hidden, (double)got, (double)want);
    }
    check_buffers_free(&buffers);
}

static void every_combine_row(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(32);
    print_message("seed %llu\n", (unsigned long long)seed);
    test_rng rng = { seed };
    moxie_executor *pool = check_pool();
    for (int32_t i = 0; mox_combine_at(i) != NULL; i++)
        for (int64_t n = 0; check_machine_has(&mox_combine_at(i)->base) && n < 60; n++)
            check_combine(mox_combine_at(i), &rng, pool, n % 9);
    mox_executor_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_sound),     cmocka_unit_test(common_refusals),   cmocka_unit_test(every_permute_row),
        cmocka_unit_test(every_quant_act_row), cmocka_unit_test(every_combine_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
