/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernels_lora.c - every kernel of family lora that this machine runs: the bytes of the scalar kernel, and the
 * definition in double within the bound of its sums.
 */
#include <math.h>

#include "cpu/lora/lora.h"
#include "ref/ref_bounds.h"
#include "test_support.h"

enum { ROWS = MOX_LORA_ROWS, LANES = MOX_LORA_LANES, MAX_COLS = 1040, MAX_RANK = 70 };

typedef struct problem {
    int64_t rank, cols;
    int rows;
    moxie_dtype dtype;
    float factor[MAX_RANK * MAX_COLS]; /* as values; codes: the same as the kernel reads them */
    uint16_t codes[MAX_RANK * MAX_COLS];
    float x[ROWS][MAX_COLS];
    float first[ROWS][LANES]; /* what expand adds to */
} problem;

static void make(problem *p, test_rng *rng, int64_t cols)
{
    p->rank = test_range(rng, 1, MAX_RANK);
    p->cols = cols;
    p->rows = (int)test_range(rng, 1, ROWS);
    p->dtype = test_below(rng, 2) ? MOXIE_BF16 : MOXIE_F32;
    for (int64_t i = 0; i < p->rank * cols; i++) {
        p->factor[i] = mox_round_to(p->dtype, test_normal(rng));
        mox_narrow(MOXIE_BF16, &p->factor[i], &p->codes[i], 1);
    }
    for (int j = 0; j < ROWS; j++) {
        for (int64_t k = 0; k < MAX_COLS; k++)
            p->x[j][k] = test_normal(rng);
        for (int64_t n = 0; n < LANES; n++)
            p->first[j][n] = test_normal(rng);
    }
}

static const void *factor_of(const problem *p)
{
    return p->dtype == MOXIE_BF16 ? (const void *)p->codes : p->factor;
}

static void shrink(const mox_lora_kernel *kernel, const problem *p, float out[ROWS][MAX_RANK])
{
    mox_lora_shrink_tile tile = { factor_of(p), p->dtype, p->rank, p->cols, 0.75f, p->rows, { 0 }, { 0 } };
    for (int j = 0; j < p->rows; j++)
        tile.x[j] = p->x[j], tile.u[j] = out[j];
    kernel->shrink(&tile);
}

static void expand(const mox_lora_kernel *kernel, const problem *p, float out[ROWS][LANES])
{
    mox_lora_expand_tile tile = { factor_of(p), p->dtype, p->rank, p->rows, { 0 }, { 0 } };
    memcpy(out, p->first, sizeof p->first);
    for (int j = 0; j < p->rows; j++)
        tile.u[j] = p->x[j], tile.out[j] = out[j];
    kernel->expand(&tile);
}

static const mox_lora_kernel *scalar(void)
{
    int32_t last = 0;
    while (mox_lora_at(last + 1) != NULL)
        last++;
    assert_string_equal(mox_lora_at(last)->base.name, "scalar");
    return mox_lora_at(last);
}

static void near(double got, double want, double bound)
{
    if (!(fabs(got - want) <= bound))
        fail_msg("%.9g, expected %.9g within %g", got, want, bound);
}

static void check_shrink(const mox_lora_kernel *kernel, test_rng *rng)
{
    static problem p;
    static float got[ROWS][MAX_RANK], want[ROWS][MAX_RANK];
    make(&p, rng, LANES * test_range(rng, 1, MAX_COLS / LANES));
    memset(got, 0xee, sizeof got);
    memset(want, 0xee, sizeof want);
    shrink(kernel, &p, got);
    shrink(scalar(), &p, want);
    assert_memory_equal(got, want, sizeof got);
    for (int j = 0; j < p.rows; j++)
        for (int64_t i = 0; i < p.rank; i++) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < p.cols; k++) {
                sum += 0.75 * p.factor[i * p.cols + k] * p.x[j][k];
                size += 0.75 * fabs((double)p.factor[i * p.cols + k] * p.x[j][k]);
            }
            near((double)got[j][i], sum, mox_gamma((double)p.cols / LANES + 7) * size);
        }
}

static void check_expand(const mox_lora_kernel *kernel, test_rng *rng)
{
    static problem p;
    float got[ROWS][LANES], want[ROWS][LANES];
    make(&p, rng, LANES);
    expand(kernel, &p, got);
    expand(scalar(), &p, want);
    assert_memory_equal(got, want, sizeof got);
    for (int j = 0; j < p.rows; j++)
        for (int64_t n = 0; n < LANES; n++) {
            double sum = 0, size = 0;
            for (int64_t i = 0; i < p.rank; i++) {
                sum += (double)p.factor[i * LANES + n] * p.x[j][i];
                size += fabs((double)p.factor[i * LANES + n] * p.x[j][i]);
            }
            near((double)got[j][n], p.first[j][n] + sum,
                 mox_gamma((double)p.rank + 2) * (size + fabs((double)p.first[j][n])));
        }
}

static void kernels(void **state)
{
    (void)state;
    test_rng rng = { test_seed(2931) };
    int32_t checked = 0;
    for (int32_t i = 0; mox_lora_at(i) != NULL; i++) {
        mox_rejection why;
        if (!mox_kernel_admit(&mox_lora_at(i)->base, MOX_ISA_AMX, MOXIE_MODE_EXACT, &why))
            continue;
        for (int n = 0; n < 300; n++) {
            check_shrink(mox_lora_at(i), &rng);
            check_expand(mox_lora_at(i), &rng);
        }
        checked++;
    }
    assert_true(checked >= 1);
    print_message("%d kernels\n", (int)checked);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(kernels) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
