/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernels_glu.c - every admitted kernel of family glu,
 *     against the oracle         each element within the bound of ref_activate.c, every kind and parameter
 *     against the scalar kernel  the same bytes, where the kernel says EXACT
 *     against known values       gpt-oss's activation at four points
 *     by tile and by row         the same bytes
 *     with biases, in bf16       a tile at once against the same steps one by one
 */
#include "check_support.h"

#include "cpu/glu/glu.h"
#include "format/format.h"
#include "ref/ref.h"

enum { GLU_SLOTS = 3, GLU_EXPERTS = 5 };

static float special(test_rng *rng)
{
    static const float values[] = { 0.0f, -0.0f, NAN, 100.0f, -100.0f, 1e30f, -1e30f, 7.0f, -7.0f };
    return values[test_below(rng, sizeof values / sizeof values[0])];
}

/* An activation with the parameters of its kind, some of them per expert. */
static moxie_activation random_activation(test_rng *rng, int32_t kind, float arrays[3][GLU_EXPERTS])
{
    moxie_activation a = { .kind = kind };
    const bool per_expert = test_below(rng, 2) == 0;
    for (int e = 0; e < GLU_EXPERTS; e++) {
        arrays[0][e] = 1.0f + 0.5f * test_uniform(rng);
        arrays[1][e] = 1.0f + test_uniform(rng);
        arrays[2][e] = 2.0f + test_uniform(rng);
    }
    const uint32_t honours = mox_activation_of_kind(kind)->honours;
    if (honours & MOX_ACTIVATION_ALPHA) {
        a.alpha = test_below(rng, 2) == 0 ? 1.702f : 0.0f;
        a.beta = test_below(rng, 2) == 0 ? 1.0f : 0.0f;
        a.expert_alpha = per_expert ? arrays[0] : NULL;
        a.expert_beta = per_expert ? arrays[1] : NULL;
    }
    if (honours & MOX_ACTIVATION_GATE_LIMIT) {
        a.gate_limit = test_below(rng, 2) == 0 ? 1.5f : 0.0f;
        a.up_limit = test_below(rng, 2) == 0 ? 1.0f : 0.0f;
        a.expert_limit = per_expert ? arrays[2] : NULL;
    }
    return a;
}

/* The oracle's bound is 8 u S (ref_activate.c). */
static void check_glu_row(const mox_glu_kernel *kernel, const mox_glu_args *args, int64_t expert, int64_t p)
{
    const int64_t n = args->intermediate;
    const bool gated = mox_activation_is_gated(args->activation.kind);
    double h[2 * 521], want[521], sensitivity[521];
    for (int64_t i = 0; i < n * (gated ? 2 : 1); i++)
        h[i] = args->h[p * n * (gated ? 2 : 1) + i];
    const mox_ref_act act = mox_ref_act_resolve(&args->activation, expert);
    mox_ref_glu_row(&act, args->interleaved, h, n, want, sensitivity);
    for (int64_t i = 0; i < n; i++) {
        const double bound = 8 * 0x1p-24 * sensitivity[i];
        if (!check_within(args->out[p * n + i], want[i], fmax(fabs(want[i]), sensitivity[i]), bound))
            fail_msg("%s, kind %d, row %lld column %lld: %.9g, want %.17g, bound %g", kernel->base.name,
                     (int)args->activation.kind, (long long)p, (long long)i, (double)args->out[p * n + i], want[i],
                     bound);
    }
}

static void check_glu(const mox_glu_kernel *kernel, test_rng *rng, int32_t kind, const moxie_executor *pool)
{
    check_buffers buffers = { .count = 0 };
    float arrays[3][GLU_EXPERTS];
    const moxie_activation activation = random_activation(rng, kind, arrays);
    int64_t offsets[GLU_SLOTS + 1] = { 0 }, expert_of[GLU_SLOTS] = { 4, 0, 2 };
    for (int s = 0; s < GLU_SLOTS; s++)
        offsets[s + 1] = offsets[s] + test_range(rng, 0, 5);
    const int64_t pairs = offsets[GLU_SLOTS], n = check_size(rng, 129);
    const int64_t width = n * (mox_activation_is_gated(kind) ? 2 : 1);
    float *h = check_buffer(&buffers, (size_t)(pairs * width) * sizeof *h);
    for (int64_t i = 0; i < pairs * width; i++)
        h[i] = test_below(rng, 20) == 0 ? special(rng) : 3.0f * test_normal(rng);
    const mox_glu_args args = { .activation = activation,
                                .slots = GLU_SLOTS,
                                .offsets = offsets,
                                .expert_of = test_below(rng, 4) > 0 ? expert_of : NULL,
                                .h = h,
                                .intermediate = n,
                                .interleaved = test_below(rng, 2) == 0,
                                .out = check_buffer(&buffers, (size_t)(pairs * n) * sizeof(float)) };
    kernel->run(&args, pool);
    for (int s = 0; s < GLU_SLOTS; s++)
        for (int64_t p = offsets[s]; p < offsets[s + 1]; p++)
            check_glu_row(kernel, &args, args.expert_of != NULL ? expert_of[s] : -1, p);
    const mox_glu_kernel *last = kernel;
    for (int32_t i = 0; mox_glu_at(i) != NULL; i++)
        last = mox_glu_at(i);
    if (kernel->base.exactness == MOX_EXACT && last->base.isa == MOX_ISA_SCALAR) {
        mox_glu_args scalar = args;
        scalar.out = check_buffer(&buffers, (size_t)(pairs * n) * sizeof(float));
        last->run(&scalar, &mox_executor_serial);
        for (int64_t i = 0; i < pairs * n; i++)
            assert_true(memcmp(&args.out[i], &scalar.out[i], sizeof(float)) == 0 ||
                        (isnan(args.out[i]) && isnan(scalar.out[i])));
    }
    check_buffers_free(&buffers);
}

static void every_glu_row(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(34);
    print_message("seed %llu\n", (unsigned long long)seed);
    test_rng rng = { seed };
    moxie_executor *pool = check_pool();
    for (int32_t i = 0; mox_glu_at(i) != NULL; i++)
        for (size_t k = 0; k < TEST_ACT_KINDS; k++)
            for (int n = 0; check_machine_has(&mox_glu_at(i)->base) && n < 20; n++) {
                mox_rejection why;
                const moxie_activation plain = { .kind = test_act_kinds[k] };
                if (mox_glu_at(i)->admit(&plain, &why))
                    check_glu(mox_glu_at(i), &rng, test_act_kinds[k], pool);
            }
    mox_executor_destroy(pool);
}

/* Ten checks of each kernel and kind. */
static void every_tile(uint64_t seed, void (*check)(const mox_glu_kernel *kernel, test_rng *rng, int32_t kind))
{
    test_rng rng = { test_seed(seed) };
    for (int32_t i = 0; mox_glu_at(i) != NULL; i++)
        for (size_t k = 0; k < TEST_ACT_KINDS; k++)
            for (int n = 0; check_machine_has(&mox_glu_at(i)->base) && n < 10; n++)
                check(mox_glu_at(i), &rng, test_act_kinds[k]);
}

/* A tile as a panel product leaves it, gate next to up, against the same numbers as rows. */
static void check_tile(const mox_glu_kernel *kernel, test_rng *rng, int32_t kind)
{
    enum { MOST = 5 };
    float arrays[3][GLU_EXPERTS], side[MOST * 32], h[MOST * 32], by_row[MOST * 16], by_tile[MOST * 17];
    const moxie_activation activation = random_activation(rng, kind, arrays);
    const int64_t rows = test_range(rng, 0, MOST), offsets[] = { 0, rows }, expert = 3;
    const bool gated = mox_activation_is_gated(kind);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < 32; i++) {
            side[32 * r + i] = 3.0f * test_normal(rng);
            if (gated || i < 16)
                h[(gated ? 32 : 16) * r + i] = side[32 * r + i];
        }
    const mox_glu_args args = { .activation = activation,
                                .slots = 1,
                                .offsets = offsets,
                                .expert_of = &expert,
                                .h = h,
                                .intermediate = 16,
                                .out = by_row };
    kernel->run(&args, &mox_executor_serial);
    memset(by_tile, 0xff, sizeof by_tile);
    const mox_glu_tile tile = { .kind = kind,
                                .parameters = mox_glu_resolve(&activation, expert),
                                .rows = rows,
                                .gate = side,
                                .up = gated ? side + 16 : NULL,
                                .stride = 32,
                                .out = by_tile,
                                .out_stride = 17 };
    kernel->tile(&tile);
    for (int64_t r = 0; r < MOST; r++) {
        if (r < rows)
            assert_memory_equal(by_tile + 17 * r, by_row + 16 * r, 16 * sizeof(float));
        assert_true(isnan(by_tile[17 * r + 16])); /* untouched */
    }
}

static void tiles_are_rows(void **state)
{
    (void)state;
    every_tile(35, check_tile);
}

/* Scales of rows, biases and rounding inside the tile against the same done outside of it. */
static void check_at_once(const mox_glu_kernel *kernel, test_rng *rng, int32_t kind)
{
    enum { MOST = 5, APART = 19 };
    float arrays[3][GLU_EXPERTS], side[MOST * 32], sums[MOST * 32], bias[32], apart[MOST * 16], want[MOST * 16];
    float scale[MOST];
    uint16_t halves[MOST * APART], wanted[MOST * 16];
    const moxie_activation activation = random_activation(rng, kind, arrays);
    const int64_t rows = test_range(rng, 1, MOST);
    /* Without biases some kinds do not change numbers: these lie halfway between two of bf16. */
    const bool ties = test_below(rng, 2) == 0;
    for (int i = 0; i < 32; i++)
        bias[i] = ties ? 0.0f : test_normal(rng);
    for (int r = 0; r < MOST; r++)
        scale[r] = ties ? 1.0f : test_normal(rng);
    for (int i = 0; i < MOST * 32; i++) {
        const float tie = (float)(257 + 2 * (int)test_below(rng, 127)) / 256.0f;
        side[i] = test_below(rng, 8) == 0 ? special(rng) : ties ? tie : 3.0f * test_normal(rng);
        sums[i] = side[i] * scale[i / 32] + bias[i % 32];
    }
    mox_glu_tile tile = { .kind = kind,
                          .parameters = mox_glu_resolve(&activation, 3),
                          .rows = rows,
                          .gate = sums,
                          .up = sums + 16,
                          .stride = 32,
                          .out = want,
                          .out_stride = 16 };
    kernel->tile(&tile);
    mox_narrow(MOXIE_BF16, want, wanted, rows * 16);
    memset(halves, 0xff, sizeof halves);
    tile.gate = side, tile.up = side + 16, tile.row_scale = scale, tile.gate_bias = bias, tile.up_bias = bias + 16;
    tile.out = apart, tile.narrow = halves, tile.narrow_stride = APART;
    kernel->tile(&tile);
    for (int64_t r = 0; r < rows; r++) {
        assert_memory_equal(apart + 16 * r, want + 16 * r, 16 * sizeof(float));
        assert_memory_equal(halves + APART * r, wanted + 16 * r, 16 * sizeof *halves);
        assert_int_equal(halves[APART * r + 16], 0xffff); /* untouched */
    }
    tile.out = NULL;
    memset(halves, 0xff, sizeof halves);
    kernel->tile(&tile);
    assert_memory_equal(halves, wanted, 16 * sizeof *halves);
}

static void tiles_at_once(void **state)
{
    (void)state;
    every_tile(36, check_at_once);
}

/* gpt-oss's swigluoai, alpha 1.702, beta 1, limits 7, at four points computed beforehand. */
static void known_swiglu(void **state)
{
    (void)state;
    const moxie_activation oai = {
        .kind = MOXIE_ACT_SILU, .alpha = 1.702f, .beta = 1.0f, .gate_limit = 7.0f, .up_limit = 7.0f
    };
    const float h[] = { 8.0f, 0.5f, -8.0f, 1.0f, -9.0f, 0.25f, 3.0f, -1.0f };
    const double want[] = { -41.99971877, 0.43798555, -3.9065715e-05, 0.0 };
    const int64_t offsets[] = { 0, 1 };
    float out[4];
    const mox_glu_args args = {
        .activation = oai, .slots = 1, .offsets = offsets, .h = h, .intermediate = 4, .out = out
    };
    for (int32_t i = 0; mox_glu_at(i) != NULL; i++) {
        if (!check_machine_has(&mox_glu_at(i)->base))
            continue;
        mox_glu_at(i)->run(&args, &mox_executor_serial);
        for (int n = 0; n < 4; n++)
            assert_close((double)out[n], want[n], 4e-7 * fabs(want[n]));
    }
}

static void unknown_activation(void **state)
{
    (void)state;
    const moxie_activation odd = { .kind = 99 };
    mox_rejection why = { .reason = "", .remedy = "" };
    assert_false(mox_glu_at(0)->admit(&odd, &why));
    assert_non_null(strstr(why.reason, "99"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_glu_row), cmocka_unit_test(tiles_are_rows),     cmocka_unit_test(tiles_at_once),
        cmocka_unit_test(known_swiglu),  cmocka_unit_test(unknown_activation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
