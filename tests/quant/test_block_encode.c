/* SPDX-License-Identifier: Apache-2.0
 *
 * test_block_encode.c - encoding to block types. tests/python/gguf_written.py compares plain blocks with gguf-py's
 * byte for byte; here, for every type:
 *     each code is the nearest under the scale that the block holds: no other code of a field has a smaller error
 *     the search is not worse than the plain scale, and weighted it is not worse by the weights than without them
 *     blocks that decode to numbers of the type are kept; zeros, one weight alone and tiny and huge ones are
 *     the loops of every instruction set give the same bits
 */
#include <math.h>

#include <moxie/moxie_quantize.h>

#include "format/block_parts.h"
#include "quant/block_books.h"
#include "quant/block_encode.h"
#include "quant/block_fit.h"
#include "quant/quant.h"
#include "test_support.h"

enum { COUNT = 4 * MOX_BLOCK_MAX, MAX_BYTES = 4 * 512 };

static void decode(const mox_block *type, const uint8_t *bytes, float *out)
{
    mox_block_decode_run(type, bytes, 0, COUNT, out);
}

static double error_of(const float *w, const float *q, const float *p)
{
    double sum = 0;
    for (int i = 0; i < COUNT; i++)
        sum += (p ? (double)p[i] : 1) * ((double)q[i] - (double)w[i]) * ((double)q[i] - (double)w[i]);
    return sum;
}

static void random_weights(test_rng *rng, float *w, float *p)
{
    const float shift = test_below(rng, 2) ? 0.02f : 0;
    for (int i = 0; i < COUNT; i++) {
        const float z = test_normal(rng);
        w[i] = 0.02f * z * (test_below(rng, 50) == 0 ? 4 : 1) + shift;
        p[i] = expf(test_normal(rng));
    }
}

/* Encodes and decodes. The bytes behind the row must stay. */
static void through(const mox_block *type, const float *w, const float *p, bool search, uint8_t *bytes, float *out)
{
    const uint64_t size = mox_block_row_bytes(type->format.dtype, COUNT);
    assert_true(size + 1 < MAX_BYTES);
    memset(bytes, 0xa5, MAX_BYTES);
    mox_block_encode_row(type->format.dtype, w, p, COUNT, search, bytes);
    assert_int_equal(bytes[size], 0xa5);
    decode(type, bytes, out);
}

/* No weight of a block gets nearer when its code changes. Of plain blocks with one scale codes follow from the scale
 * before it is rounded, so those are left out. */
static void check_nearest(const mox_block *type, const float *w, uint8_t *bytes)
{
    const mox_block_fields *f = mox_block_fields_of(type->format.dtype);
    for (int b = 0; f && b < COUNT / type->weights; b++) {
        uint8_t *block = bytes + b * type->bytes;
        mox_block_parts parts;
        mox_block_split(f, block, &parts);
        float best[MOX_BLOCK_MAX], other[MOX_BLOCK_MAX];
        uint8_t changed[256];
        type->decode(block, best);
        const int codes = type->type == 35 ? 3 : 1 << (f->low.bits + f->high.bits); /* tq2_0 has three levels */
        for (int code = 0; code < codes; code++) {
            mox_block_parts all = parts;
            memset(all.code, code, sizeof all.code);
            mox_block_join(f, &all, changed);
            type->decode(changed, other);
            for (int i = 0; i < type->weights; i++) {
                const float at = fabsf(best[i] - w[b * type->weights + i]);
                const float there = fabsf(other[i] - w[b * type->weights + i]);
                if (there < at * (1 - 1e-5f) - 1e-9f)
                    fail_msg("%s, weight %d: code %d is %g away, %d only %g", type->format.name, i, parts.code[i],
                             (double)at, code, (double)there);
            }
        }
    }
}

static void each_type(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(77);
    print_message("seed %llu\n", (unsigned long long)seed);
    test_rng rng = { seed };
    int types = 0;
    for (int32_t t = 0; mox_block_at(t); t++) {
        const mox_block *type = mox_block_at(t);
        static float w[COUNT], p[COUNT], plain[COUNT], searched[COUNT], weighted[COUNT];
        static uint8_t bytes[MAX_BYTES];
        types++;
        double sums[4] = { 0 };
        for (int round = 0; round < 8; round++) {
            random_weights(&rng, w, p);
            through(type, w, p, true, bytes, weighted);
            through(type, w, NULL, false, bytes, plain);
            through(type, w, NULL, true, bytes, searched);
            check_nearest(type, w, bytes);
            sums[0] += error_of(w, plain, NULL), sums[1] += error_of(w, searched, NULL);
            sums[2] += error_of(w, searched, p), sums[3] += error_of(w, weighted, p);
        }
        if (sums[1] > sums[0] || sums[3] > sums[2])
            fail_msg("%s: plain %g, searched %g; by importance %g, weighted %g", type->format.name, sums[0], sums[1],
                     sums[2], sums[3]);
    }
    assert_int_equal(types, 25);
}

/* Types with minimums, where one importance of a run is ten million times the others: sums in f32 keep little of the
 * others. The search is not worse than the plain scale. */
static void unlike_importances(void **state)
{
    (void)state;
    test_rng rng = { test_seed(84) };
    for (int32_t t = 0; mox_block_at(t); t++) {
        const mox_block *type = mox_block_at(t);
        const mox_block_fields *f = mox_block_fields_of(type->format.dtype);
        for (int round = 0; f && f->m_at >= 0 && round < 300; round++) {
            float w[COUNT], p[COUNT], q[2][COUNT];
            uint8_t bytes[MAX_BYTES];
            for (int i = 0; i < COUNT; i++)
                w[i] = 0.02f * test_normal(&rng), p[i] = 1;
            for (int i = 0; i < COUNT; i += 32)
                p[i + (int)test_below(&rng, 32)] = 1e7f;
            for (int search = 0; search < 2; search++)
                through(type, w, p, search, bytes, q[search]);
            const double plain = error_of(w, q[0], p), searched = error_of(w, q[1], p);
            if (searched > plain)
                fail_msg("%s: plain %g, searched %g", type->format.name, plain, searched);
        }
    }
}

/* Weights that a block holds exactly come back: multiples of a power of two, the lowest as low as codes go. */
static void representable(void **state)
{
    (void)state;
    static const int32_t types[] = { 2, 6, 39 }; /* q4_0, q5_0, mxfp4 */
    test_rng rng = { test_seed(78) };
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        const mox_block *type = mox_block_of(MOX_BLOCK_DTYPE + types[t]);
        float w[COUNT], q[COUNT];
        uint8_t bytes[MAX_BYTES];
        for (int i = 0; i < COUNT; i++)
            w[i] = i % 32 == 0 ? -0.25f : 0.0625f * (float)test_range(&rng, -4, 3);
        for (int search = 0; search < 2; search++) {
            through(type, w, NULL, search, bytes, q);
            for (int i = 0; i < COUNT; i++)
                if (q[i] != w[i])
                    fail_msg("%s: %g became %g", type->format.name, (double)w[i], (double)q[i]);
        }
    }
}

static void extremes(void **state)
{
    (void)state;
    static const float scales[] = { 0, 1e-40f, 1e-30f, 1e-7f, 60000.0f };
    test_rng rng = { test_seed(79) };
    for (int32_t t = 0; mox_block_at(t); t++) {
        const mox_block *type = mox_block_at(t);
        const bool coarse = type->type == 41 || type->type == 19 || type->type == 29; /* q1_0, iq1_s, iq1_m */
        for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++)
            for (int alone = 0; alone < 3; alone++) {
                const float scale = fminf(scales[s], mox_block_largest(type->format.dtype));
                float w[COUNT] = { 0 }, q[COUNT];
                uint8_t bytes[MAX_BYTES];
                for (int i = alone ? 5 : 0; i < (alone ? 6 : COUNT); i++)
                    w[i] = scale * (alone ? (float)(2 * alone - 3) : 0.0009765625f * (float)test_below(&rng, 2048) - 1);
                for (int search = 0; search < 2; search++) {
                    through(type, w, NULL, search, bytes, q);
                    for (int i = 0; i < COUNT; i++)
                        if (!(fabsf(q[i] - w[i]) <= scale * (coarse ? 1 : 0.7f) + 1e-6f))
                            fail_msg("%s: %g became %g", type->format.name, (double)w[i], (double)q[i]);
                }
            }
    }
}

/* 32 weights, their signs taken off and searched in a code book of each kind. */
static void compare_books(const mox_fit_loops *a, const mox_fit_loops *b, const float *x, const float *p)
{
    static const int32_t types[] = { 16, 17, 18, 19, 21, 22 };
    float magnitude[2][32];
    uint8_t signs[2][4];
    a->signs(x, p, 32, true, magnitude[0], signs[0]), b->signs(x, p, 32, true, magnitude[1], signs[1]);
    assert_memory_equal(signs[0], signs[1], 4);
    assert_memory_equal(magnitude[0], magnitude[1], sizeof magnitude[0]);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        const mox_book_type *type = mox_book_type_of(MOX_BLOCK_DTYPE + types[t]);
        const mox_book_run run = { mox_code_book_of(type->book), type->levels,
                                   type->signs == MOX_BOOK_NO_SIGNS ? x : magnitude[0], p, 32 };
        uint32_t words[2][8] = { { 0 } };
        const mox_book_sums one = a->book(&run, 0.05f, words[0]), two = b->book(&run, 0.05f, words[1]);
        assert_memory_equal(&one, &two, sizeof one);
        assert_memory_equal(words[0], words[1], sizeof words[0]);
    }
    const mox_book_type *type = mox_book_type_of(MOX_BLOCK_DTYPE + 29);
    const mox_book_run run = { mox_code_book_of(type->book), type->levels, x, p, 32 };
    const uint8_t known[4] = { 1, 0, 0, 1 };
    for (int k = 0; k < 2; k++) {
        uint32_t words[2][4];
        uint8_t down[2][4];
        const mox_book_sums one = a->shifted(&run, 0.05f, k ? known : NULL, words[0], down[0]);
        const mox_book_sums two = b->shifted(&run, 0.05f, k ? known : NULL, words[1], down[1]);
        assert_memory_equal(&one, &two, sizeof one);
        assert_memory_equal(words[0], words[1], sizeof words[0]);
        assert_memory_equal(down[0], down[1], sizeof down[0]);
        assert_true(k == 0 || memcmp(down[0], known, 4) == 0);
    }
}

/* Normal numbers, and some that lie in the middle between two levels; importances, or none. */
static void compare_loops(const mox_fit_loops *a, const mox_fit_loops *b, test_rng *rng)
{
    float x[32], p[32], inverse[MOX_FIT_TRIES], d[MOX_FIT_TRIES], m[MOX_FIT_TRIES];
    uint8_t code[2][32];
    for (int i = 0; i < 32; i++)
        x[i] = test_below(rng, 8) ? test_normal(rng) : 0.125f * (float)test_range(rng, -24, 24),
        p[i] = expf(test_normal(rng));
    const float *weights = test_below(rng, 2) ? p : NULL;
    for (int t = 0; t < MOX_FIT_TRIES; t++)
        inverse[t] = 3 + 0.001f * (float)test_below(rng, 2048),
        d[t] = t ? 0.0003f * (float)(1 + test_below(rng, 1000)) : 0, m[t] = -0.001f * (float)test_below(rng, 1000);
    const mox_fit_run run = { x, weights, test_below(rng, 2) ? 16 : 32, -8, 7 }, whole = { x, weights, 32, -8, 7 };
    mox_fit one = a->symmetric(&run, inverse), two = b->symmetric(&run, inverse);
    assert_memory_equal(&one, &two, sizeof one);
    one = a->minimum(&run, inverse, -3, true), two = b->minimum(&run, inverse, -3, true);
    assert_memory_equal(&one, &two, sizeof one);
    one = a->minimum(&run, inverse, -3, false), two = b->minimum(&run, inverse, -3, false);
    assert_memory_equal(&one, &two, sizeof one);
    one = a->levels(&whole, inverse), two = b->levels(&whole, inverse);
    assert_memory_equal(&one, &two, sizeof one);
    assert_int_equal(a->choose(&run, d, m), b->choose(&run, d, m));
    a->codes(&whole, 4, 0.125f, code[0]), b->codes(&whole, 4, 0.125f, code[1]);
    assert_memory_equal(code[0], code[1], 32);
    a->level_codes(&whole, 60, code[0]), b->level_codes(&whole, 60, code[1]);
    assert_memory_equal(code[0], code[1], 32);
    a->level_codes(&whole, 76, code[0]), b->level_codes(&whole, 76, code[1]); /* 0.125 times 76: 9.5 */
    assert_memory_equal(code[0], code[1], 32);
    float ends[2][2];
    a->extent(x, run.count, &ends[0][0], &ends[0][1]), b->extent(x, run.count, &ends[1][0], &ends[1][1]);
    assert_memory_equal(ends[0], ends[1], sizeof ends[0]);
    const float errors[] = { a->f4(&whole, 0.2f, 5, code[0]), b->f4(&whole, 0.2f, 5, code[1]) };
    assert_true(errors[0] == errors[1]);
    assert_memory_equal(code[0], code[1], 32);
    compare_books(a, b, x, p);
}

/* Runs of one number, and of the same number under all tries: sums that are equal, and 0. */
static void compare_flat(const mox_fit_loops *a, const mox_fit_loops *b)
{
    static const float numbers[] = { 0, -0.0f, 1, -3 };
    float inverse[MOX_FIT_TRIES], x[32];
    for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; n++) {
        for (int i = 0; i < 32; i++)
            x[i] = numbers[n];
        for (int t = 0; t < MOX_FIT_TRIES; t++)
            inverse[t] = 2;
        const mox_fit_run run = { x, NULL, 32, -8, 7 };
        mox_fit one = a->symmetric(&run, inverse), two = b->symmetric(&run, inverse);
        assert_memory_equal(&one, &two, sizeof one);
        one = a->minimum(&run, inverse, -3, n % 2), two = b->minimum(&run, inverse, -3, n % 2);
        assert_memory_equal(&one, &two, sizeof one);
        one = a->levels(&run, inverse), two = b->levels(&run, inverse);
        assert_memory_equal(&one, &two, sizeof one);
    }
}

/* The call for users makes the same blocks, and a view of them. */
static void public_call(void **state)
{
    (void)state;
    test_rng rng = { test_seed(81) };
    float w[3 * COUNT];
    for (int i = 0; i < 3 * COUNT; i++)
        w[i] = test_normal(&rng);
    for (int32_t t = 0; mox_block_at(t); t++) {
        const mox_block *type = mox_block_at(t);
        const moxie_dtype dtype = type->format.dtype;
        uint8_t want[3 * MAX_BYTES], got[3 * MAX_BYTES];
        moxie_grid grid;
        moxie_error error = { 0 };
        const uint64_t row = mox_block_row_bytes(dtype, COUNT);
        const moxie_status status = moxie_block_encode(dtype, w, 3, COUNT, got, 3 * row, &grid, &error);
        if (!mox_block_can_encode(dtype)) {
            assert_int_equal(status, MOXIE_ERR_UNSUPPORTED);
            continue;
        }
        assert_ok(status, &error);
        for (int r = 0; r < 3; r++) {
            float decoded[COUNT];
            through(type, w + r * COUNT, NULL, false, want, decoded);
            assert_memory_equal(got + (uint64_t)r * row, want, row);
            for (int i = 0; i < COUNT; i++)
                assert_true(mox_grid_value(&grid, r, i) == (double)decoded[i]);
        }
        assert_int_equal(moxie_block_encode(dtype, w, 3, COUNT, got, 3 * row - 1, &grid, &error), MOXIE_ERR_ARGUMENT);
        assert_int_equal(moxie_block_encode(dtype, w, 1, COUNT - 1, got, row, &grid, &error), MOXIE_ERR_ARGUMENT);
    }
    assert_int_equal(moxie_block_encode(MOXIE_F32, w, 1, 32, w, 128, NULL, NULL), MOXIE_ERR_UNSUPPORTED);
}

static void same_bits(void **state)
{
    (void)state;
    test_rng rng = { test_seed(80) };
    const mox_fit_loops *best = mox_fit_loops_best();
    if (best == &mox_fit_loops_any)
        skip();
    compare_flat(best, &mox_fit_loops_any);
    for (int i = 0; i < 2000; i++) {
        compare_loops(best, &mox_fit_loops_any, &rng);
        if (mox_fit_loops_avx2.codes)
            compare_loops(&mox_fit_loops_avx2, &mox_fit_loops_any, &rng);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_type), cmocka_unit_test(representable), cmocka_unit_test(extremes),
        cmocka_unit_test(same_bits), cmocka_unit_test(public_call),   cmocka_unit_test(unlike_importances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
