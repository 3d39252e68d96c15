/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernels_exact.c - kernels that multiply 4-bit codes in integers where no sum of floats would round
 * (int_dot_avx2.h), on activations at the edges of that: every step of 32 columns, or of 16, is one of
 *
 *     edge      magnitudes of its even columns, and of its odd ones, are integers of a fixed sum: what 24 bits just
 *               hold under the largest weight (6 = 12 halves, 8, 16), one more, and up to 32 times as much
 *     bytes     integers whose two bytes, or three, are extreme
 *     normal    bf16, with nothing special; with one column 2^20 larger; with one 2^20 smaller
 *     far       normal times a power of two at the ends of f32
 *     special   some zeros, negative zeros, subnormals; now and then a NaN or an infinity
 *
 * A row has steps of all kinds, or of one. Sums are compared with the referee's byte by byte, for every kernel that
 * this machine runs and that reads f32 or, from rounded activations, bf16. Kernels that use AVX-VNNI also run without
 * it.
 */
#include "gemm_referee.h"

enum { SMALLEST_STEP = 16 };

typedef enum step_kind { EDGE, BYTES, NORMAL, LARGE, SMALL, FAR, SPECIAL, STEP_KINDS } step_kind;

/* ---- activations ------------------------------------------------------------------------------------------ */

static float either_sign(test_rng *rng, float x)
{
    return test_below(rng, 2) == 0 ? x : -x;
}

/* Every other of `count` columns: integers that add up to `sum`, one of them 1, so that nothing larger divides them
 * all. Either at random, or 1 but for the first: under a large weight that one takes the sum to its end, where those
 * after it are rounded if anything is. */
static void fill_sum(test_rng *rng, float *x, int64_t count, int64_t sum)
{
    const int64_t parts = count / 2;
    const bool first = test_below(rng, 2) == 0;
    int64_t left = sum - (parts - 1);
    for (int64_t i = parts - 1; i >= 0; i--) {
        const int64_t more = first || i == parts - 1 ? 0 : test_range(rng, 0, left / 2);
        x[2 * i] = either_sign(rng, (float)(i == 0 ? left : 1 + more));
        left -= more;
    }
}

static void fill_edge(test_rng *rng, float *x, int64_t count)
{
    static const int64_t most[] = { 8, 12, 16 };
    static const int64_t times[] = { 2, 2, 2, 3, 4, 8, 16, 64 }; /* halves of the limit */
    const int64_t limit = (1 << 24) / most[test_below(rng, 3)];
    const float unit = ldexpf(1.0f, (int)test_range(rng, -60, 60));
    for (int parity = 0; parity < 2; parity++)
        fill_sum(rng, x + parity, count, limit * times[test_below(rng, 8)] / 2 + (int64_t)test_below(rng, 2));
    for (int64_t k = 0; k < count; k++)
        x[k] *= unit;
}

static void fill_bytes(test_rng *rng, float *x, int64_t count)
{
    static const int32_t values[] = { 1,      127,     128,     129,     255,     256,    0x7f7f,
                                      0x7f80, 0x7fff,  0x8000,  0x8080,  0x8081,  0xff7f, 0xff80,
                                      0xffff, 0x1007f, 0x17f7f, 0x17f80, 0x18080, 0x1ffff };
    const uint64_t kinds = 1 + test_below(rng, sizeof values / sizeof values[0]); /* up to the largest of these */
    for (int64_t k = 0; k < count; k++)
        x[k] = either_sign(rng, (float)values[test_below(rng, kinds)]);
}

static void fill_special(test_rng *rng, float *x, int64_t count, bool finite)
{
    const float values[] = { 0.0f, -0.0f, 0x1p-130f, -0x1p-149f, 0x1p-126f, NAN, INFINITY };
    const uint64_t often = test_below(rng, 3), kinds = finite || test_below(rng, 4) != 0 ? 5 : 7;
    for (int64_t k = 0; k < count; k++)
        if (test_below(rng, 3) <= often)
            x[k] = values[test_below(rng, kinds)];
}

static void fill_step(test_rng *rng, step_kind kind, float *x, int64_t count, bool finite)
{
    static const int ends[] = { -126, -124, -118, -110, 80, 91, 100, 124 };
    const uint64_t one = test_below(rng, (uint64_t)count);
    for (int64_t k = 0; k < count; k++)
        x[k] = mox_round_to(MOXIE_BF16, test_normal(rng));
    switch (kind) {
    case EDGE: fill_edge(rng, x, count); break;
    case BYTES: fill_bytes(rng, x, count); break;
    case LARGE: x[one] *= 0x1p20f; break;
    case SMALL: x[one] *= 0x1p-20f; break;
    case FAR: {
        const int end = ends[test_below(rng, sizeof ends / sizeof ends[0])];
        for (int64_t k = 0; k < count; k++)
            x[k] = ldexpf(x[k], finite && end > 0 ? end - 60 : end);
        break;
    }
    case SPECIAL: fill_special(rng, x, count, finite); break;
    default: break;
    }
}

/* `finite`: no infinity or NaN, so that a row's other steps show in its sum. */
static void fill_row(test_rng *rng, float *x, int64_t cols)
{
    const step_kind only = (step_kind)test_below(rng, 2 * STEP_KINDS);
    const bool finite = test_below(rng, 2) != 0;
    float step[SMALLEST_STEP * 2];
    for (int64_t k = 0; k < cols;) {
        const int64_t count = SMALLEST_STEP << test_below(rng, 2);
        fill_step(rng, only < STEP_KINDS ? only : (step_kind)test_below(rng, STEP_KINDS), step, count, finite);
        for (int64_t i = 0; i < count && k < cols; i++, k++)
            x[k] = step[i];
    }
}

/* ---- products --------------------------------------------------------------------------------------------- */

static void compare(const mox_expert_gemm_kernel *row, const gemm_problem *p, const char *how)
{
    check_buffers buffers = { .count = 0 };
    const float *out = gemm_run(row, p, &mox_executor_serial, &buffers);
    const float *want = referee_product(referee_sum_of(row), p, &buffers);
    for (int64_t i = 0; i < p->pairs * p->n_out; i++)
        if (!referee_agrees(out[i], want[i])) {
            char what[512];
            gemm_describe(p, what, sizeof what);
            fail_msg("%s%s, %s: pair %lld column %lld is %a, not %a", row->base.name, how, what,
                     (long long)(i / p->n_out), (long long)(i % p->n_out), (double)out[i], (double)want[i]);
        }
    check_buffers_free(&buffers);
}

/* Kernels that read such activations. */
static int64_t check_rows(mox_act_order operand, const gemm_problem *p)
{
    int64_t products = 0;
    for (int32_t i = 0; mox_expert_gemm_at(i) != NULL; i++) {
        const mox_expert_gemm_kernel *row = mox_expert_gemm_at(i);
        if (mox_panel_kernel_of(row) == NULL || mox_panel_kernel_of(row)->order != operand ||
            !referee_knows_products(row) || !gemm_admitted(row, p))
            continue;
        compare(row, p, "");
        products++;
        const mox_cpu_features *found = mox_cpu();
        mox_cpu_features less = *found;
        if (!found->avx_vnni)
            continue;
        less.avx_vnni = false;
        mox_cpu_replace(&less);
        compare(row, p, " without AVX-VNNI");
        mox_cpu_replace(found);
    }
    return products;
}

/* Rounds to what bf16 activations can hold. */
static void round_rows(gemm_problem *p)
{
    for (int64_t r = 0; r < p->operand.rows; r++)
        for (int64_t k = 0; k < p->cols; k++) {
            float *x = &p->operand.values[r * p->operand.stride + k];
            *x = mox_round_to(MOXIE_BF16, *x);
        }
}

/* Few columns, so that a single wrong step shows in the sum; one panel of weights or more. */
static void steps_at_the_edge(void **state)
{
    (void)state;
    static const int64_t cols[] = { 16, 31, 32, 33, 64, 96, 128, 160, 320 };
    static const int64_t rows[] = { 1, 16, 17, 40 };
    const uint64_t seed = test_seed(24);
    const int64_t configs = 12 * test_env("MOXIE_TEST_CONFIGS", 1) / test_one_in(4, "problems of each format");
    print_message("seed %llu\n", (unsigned long long)seed);
    test_rng rng = { seed };
    int64_t products = 0;
    for (int w = 0; w < test_weight_quant_count; w++) {
        const test_weight_quant *weight = &test_weight_quants[w];
        if (mox_dtype_bits(weight->quant.element) != 4)
            continue;
        for (int64_t i = 0; i < configs; i++) {
            const gemm_size size = { .rows = rows[test_below(&rng, sizeof rows / sizeof rows[0])],
                                     .cols = cols[test_below(&rng, sizeof cols / sizeof cols[0])] };
            gemm_problem p;
            gemm_problem_make(&p, &rng, weight, &test_act_quants[0], size);
            for (int64_t r = 0; r < p.operand.rows; r++)
                fill_row(&rng, p.operand.values + r * p.operand.stride, p.cols);
            products += check_rows(MOX_ACT_ORDER_F32, &p);
            round_rows(&p);
            products += check_rows(MOX_ACT_ORDER_BF16, &p);
            gemm_problem_free(&p);
        }
    }
    print_message("%lld products\n", (long long)products);
    if (products == 0) {
        print_message("no kernel that reads f32 or bf16 runs on this machine, or under MOXIE_MAX_ISA\n");
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(steps_at_the_edge) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
