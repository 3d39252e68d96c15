/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernels_norm.c - every kernel of family row_norm that this machine can run: against the oracle, against the
 * portable kernel byte by byte, and each row alone against the batch. Sizes lie around lanes and segments.
 */
#include "check_support.h"

#include <math.h>

#include "cpu/row_norm/row_norm.h"
#include "ref/ref.h"

static const int64_t sizes[] = { 1, 2, 15, 16, 17, 33, 511, 512, 513, 1024, 1101, 8193 };
enum { SIZES = sizeof sizes / sizeof sizes[0], ROWS = 5 };

typedef struct norm_problem {
    check_buffers buffers;
    mox_row_norm_args args;
    float *widened; /* [ROWS, cols] */
} norm_problem;

static void make_problem(norm_problem *p, test_rng *rng, int64_t n)
{
    static const moxie_dtype dtypes[] = { MOXIE_F32, MOXIE_BF16, MOXIE_F16 };
    const int64_t cols = sizes[n % SIZES];
    *p = (norm_problem) { .args = { .max_rows = ROWS, .cols = cols, .x_dtype = dtypes[test_below(rng, 3)] } };
    void *x = check_buffer(&p->buffers, (size_t)(ROWS * cols * mox_dtype_bytes(p->args.x_dtype)));
    float *weight = check_buffer(&p->buffers, (size_t)cols * sizeof *weight);
    test_fill_activations(rng, p->args.x_dtype, x, ROWS * cols);
    for (int64_t k = 0; k < cols; k++)
        weight[k] = 1 + 0.5f * test_normal(rng);
    p->args.x = x;
    p->args.weight = n % 3 ? weight : NULL;
    p->args.weight_first = n % 2 != 0;
    p->args.eps = n % 5 ? 1e-6f : 0.5f;
    p->args.factor = n % 4 ? 1 : 0.125f;
    p->widened = check_buffer(&p->buffers, (size_t)(ROWS * cols) * sizeof *p->widened);
    mox_widen(p->args.x_dtype, x, p->widened, ROWS * cols);
}

/* Rows [first, first + rows) of the problem. `counted`: the number of rows is behind a pointer. */
static float *run(const mox_row_norm_kernel *kernel, norm_problem *p, int64_t first, int64_t rows, bool counted,
                  const moxie_executor *executor)
{
    mox_row_norm_args args = p->args;
    args.x = (const char *)args.x + first * args.cols * mox_dtype_bytes(args.x_dtype);
    args.out = check_buffer(&p->buffers, (size_t)(rows * args.cols) * sizeof *args.out);
    args.max_rows = counted ? ROWS + 3 : rows;
    args.rows = counted ? &rows : NULL;
    kernel->run(&args, executor);
    return args.out;
}

static void check_row(const norm_problem *p, int64_t row, const float *got)
{
    const mox_ref_norm norm = { p->args.weight, p->args.weight_first != 0, p->args.eps, p->args.factor };
    const float *x = p->widened + row * p->args.cols;
    double relative;
    const double scale = mox_ref_row_norm_scale(&norm, x, p->args.cols, &relative);
    for (int64_t k = 0; k < p->args.cols; k++) {
        const double want = mox_ref_row_norm_element(&norm, x, k, scale);
        const double bound = mox_ref_row_norm_bound(&norm, k, want, scale, relative);
        if (!(fabs((double)got[k] - want) <= bound))
            fail_msg("row %lld column %lld of %lld is %.9g, want %.17g, bound %g", (long long)row, (long long)k,
                     (long long)p->args.cols, (double)got[k], want, bound);
    }
}

static void every_row_norm_row(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(77);
    print_message("seed %llu\n", (unsigned long long)seed);
    test_rng rng = { seed };
    moxie_executor *pool = check_pool();
    for (int64_t n = 0; n < 60; n++)
        for (int32_t i = 0; mox_row_norm_at(i) != NULL; i++) {
            norm_problem p;
            const mox_row_norm_kernel *kernel = mox_row_norm_at(i), *last = kernel;
            if (!check_machine_has(&kernel->base))
                continue;
            for (int32_t j = i; mox_row_norm_at(j) != NULL; j++)
                last = mox_row_norm_at(j);
            make_problem(&p, &rng, n);
            const size_t row_bytes = (size_t)p.args.cols * sizeof(float);
            const float *all = run(kernel, &p, 0, ROWS, n % 2 != 0, pool);
            assert_memory_equal(all, run(last, &p, 0, ROWS, false, &mox_executor_serial), ROWS * row_bytes);
            for (int64_t row = 0; row < ROWS; row++) {
                check_row(&p, row, all + row * p.args.cols);
                assert_memory_equal(all + row * p.args.cols, run(kernel, &p, row, 1, false, &mox_executor_serial),
                                    row_bytes);
            }
            check_buffers_free(&p.buffers);
        }
    mox_executor_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_row_norm_row) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
