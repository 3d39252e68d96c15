/* SPDX-License-Identifier: Apache-2.0
 *
 * test_grid.c - packed views. Every packing stores and reads back each element and changes no other. Published layouts
 * (GPTQ, AWQ, MX FP6, nibbles) agree with their definitions. The check accepts exactly the views that fit their memory.
 */
#include "test_support.h"

#include "quant/quant.h"

/* ---- every packing ------------------------------------------------------------------------------- */

typedef struct layout {
    moxie_dtype dtype;
    moxie_packing packing;
} layout;

static int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* A grid over exactly the bytes that it needs, followed by an inaccessible page. Rows may be padded; nothing is
 * aligned.
 */
static moxie_grid random_grid(const layout *l, test_rng *rng, int64_t rows, int64_t cols)
{
    const int64_t word_rows = l->packing.along_rows ? div_up(rows, l->packing.per_word) : rows;
    const int64_t word_cols = l->packing.along_rows ? cols : div_up(cols, l->packing.per_word);
    moxie_grid grid = { .rows = rows, .cols = cols, .dtype = l->dtype, .packing = l->packing };
    if (test_below(rng, 2)) {
        grid.col_stride = l->packing.word_bytes + (int64_t)test_below(rng, 3);
        grid.row_stride = grid.col_stride * word_cols + (int64_t)test_below(rng, 5);
    } else { /* transposed */
        grid.row_stride = l->packing.word_bytes + (int64_t)test_below(rng, 3);
        grid.col_stride = grid.row_stride * word_rows + (int64_t)test_below(rng, 5);
    }
    grid.bytes =
        (uint64_t)((word_rows - 1) * grid.row_stride + (word_cols - 1) * grid.col_stride + l->packing.word_bytes);
    grid.data = test_guarded(grid.bytes);
    return grid;
}

static void round_trip(const layout *l, test_rng *rng)
{
    const int64_t rows = test_range(rng, 1, 19), cols = test_range(rng, 1, 19);
    const uint32_t mask = (uint32_t)(((uint64_t)1 << mox_dtype_bits(l->dtype)) - 1);
    moxie_grid grid = random_grid(l, rng, rows, cols);
    uint32_t *want = calloc((size_t)(rows * cols), sizeof *want);
    moxie_error error = { 0 };
    assert_ok(mox_grid_check(&grid, "grid", &error), &error);

    /* All elements twice, in an order that visits neighbours late: a store must replace its element and no other. */
    for (int64_t i = 0; i < 3 * rows * cols; i++) {
        const int64_t at = (int64_t)test_below(rng, (uint64_t)(rows * cols));
        const uint32_t code = (uint32_t)test_u64(rng);
        want[at] = code & mask;
        mox_grid_store(&grid, at / cols, at % cols, code);
    }
    for (int64_t at = 0; at < rows * cols; at++)
        assert_int_equal(mox_grid_code(&grid, at / cols, at % cols), want[at]);

    grid.bytes--;
    assert_int_equal(mox_grid_check(&grid, "grid", &error), MOXIE_ERR_ARGUMENT);
    grid.bytes++;
    test_guarded_free((void *)(uintptr_t)grid.data, grid.bytes);
    free(want);
}

static void every_packing_round_trips(void **state)
{
    static const moxie_dtype dtypes[] = { MOXIE_F32,     MOXIE_F16,     MOXIE_BF16,    MOXIE_F8_E4M3, MOXIE_F8_E5M2,
                                          MOXIE_F8_E8M0, MOXIE_F6_E3M2, MOXIE_F6_E2M3, MOXIE_F4_E2M1, MOXIE_I8,
                                          MOXIE_I4,      MOXIE_U4B8,    MOXIE_U8B128 };
    static const int8_t word_bytes[] = { 1, 2, 3, 4, 8 };
    test_rng rng = { test_seed(11) };
    int tried = 0;
    (void)state;
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
        for (size_t w = 0; w < sizeof word_bytes; w++)
            for (int per_word = 1; per_word <= 8; per_word *= 2)
                for (int variant = 0; variant < 4; variant++) {
                    const int bits = mox_dtype_bits(dtypes[d]);
                    const bool awq = variant / 2;
                    if (bits * per_word > 8 * word_bytes[w] || (awq && (bits != 4 || per_word != 8)))
                        continue;
                    const layout l = { dtypes[d],
                                       { word_bytes[w], (int8_t)per_word, (int8_t)(variant % 2), (int8_t)awq } };
                    for (int i = 0; i < 4; i++, tried++)
                        round_trip(&l, &rng);
                }
    assert_true(tried > 500);
}

/* A store changes no byte outside its word, and no other element of the word. */
static void a_store_touches_its_element_only(void **state)
{
    uint8_t bytes[9];
    (void)state;
    memset(bytes, 0xa5, sizeof bytes);
    moxie_grid grid = { bytes, 9, 1, 8, 9, 3, MOXIE_F6_E3M2, { 3, 4, 0, 0 } };
    mox_grid_store(&grid, 0, 5, 0xffffffffu);
    /* Element 5 is element 1 of word 1: bits 6..11 of bytes 3..5, that is 0xc0 and 0x0f. */
    const uint8_t want[9] = { 0xa5, 0xa5, 0xa5, 0xe5, 0xaf, 0xa5, 0xa5, 0xa5, 0xa5 };
    assert_memory_equal(bytes, want, 9);
}

/* ---- published layouts ---------------------------------------------------------------------------- */

static void write_u32(uint8_t *at, uint32_t word)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(word >> (8 * i));
}

/* GPTQ: qweight int32 [K/8, N], nibble j of word (r, n) is w[n, 8r + j]. */
static void gptq_words(void **state)
{
    enum { N = 5, K = 24 };
    uint8_t words[K / 8 * N * 4], codes[N][K];
    test_rng rng = { test_seed(12) };
    (void)state;
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++)
            codes[n][k] = (uint8_t)test_below(&rng, 16);
    for (int r = 0; r < K / 8; r++)
        for (int n = 0; n < N; n++) {
            uint32_t word = 0;
            for (int j = 0; j < 8; j++)
                word += (uint32_t)codes[n][8 * r + j] << (4 * j);
            write_u32(words + (r * N + n) * 4, word);
        }
    const moxie_grid grid = { words, sizeof words, N, K, 4, N * 4, MOXIE_U4B8, { 4, 8, 0, 0 } };
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++) {
            assert_int_equal(mox_grid_code(&grid, n, k), codes[n][k]);
            assert_true(mox_grid_value(&grid, n, k) == codes[n][k] - 8);
        }
}

/* AWQ: qweight int32 [K, N/8], nibble i of word (k, m) is w[8m + order[i], k]. */
static void awq_words(void **state)
{
    enum { N = 16, K = 6 };
    static const int order[8] = { 0, 2, 4, 6, 1, 3, 5, 7 };
    uint8_t words[K * N / 8 * 4], codes[N][K];
    test_rng rng = { test_seed(13) };
    (void)state;
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++)
            codes[n][k] = (uint8_t)test_below(&rng, 16);
    for (int k = 0; k < K; k++)
        for (int m = 0; m < N / 8; m++) {
            uint32_t word = 0;
            for (int i = 0; i < 8; i++)
                word += (uint32_t)codes[8 * m + order[i]][k] << (4 * i);
            write_u32(words + (k * (N / 8) + m) * 4, word);
        }
    const moxie_grid grid = { words, sizeof words, N, K, 4, N / 8 * 4, MOXIE_U4B8, { 4, 8, 1, MOXIE_ORDER_AWQ } };
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++)
            assert_int_equal(mox_grid_code(&grid, n, k), codes[n][k]);
}

static void dense_views(void **state)
{
    /* Four 6-bit codes 1, 2, 3, 63 in one 24-bit word: 1 + 2 * 2^6 + 3 * 2^12 + 63 * 2^18 = 0xfc3081. */
    static const uint8_t six[3] = { 0x81, 0x30, 0xfc };
    static const uint8_t nibbles[4] = { 0x21, 0x03, 0x54, 0x06 };
    static const uint8_t bf16[4] = { 0x80, 0x3f, 0x20, 0xc0 };
    (void)state;
    moxie_grid grid = mox_grid_dense(six, MOXIE_F6_E2M3, 1, 4);
    const uint32_t want[4] = { 1, 2, 3, 63 };
    for (int c = 0; c < 4; c++)
        assert_int_equal(mox_grid_code(&grid, 0, c), want[c]);
    grid = mox_grid_dense(nibbles, MOXIE_F4_E2M1, 2, 3); /* rows of 3 nibbles start on a byte */
    for (int i = 0; i < 6; i++)
        assert_int_equal(mox_grid_code(&grid, i / 3, i % 3), i + 1);
    grid = mox_grid_dense(bf16, MOXIE_BF16, 1, 2);
    assert_true(mox_grid_value(&grid, 0, 0) == 1.0);
    assert_true(mox_grid_value(&grid, 0, 1) == -2.5);

    assert_int_equal(mox_dense_row_bytes(MOXIE_F4_E2M1, 5), 3);
    assert_int_equal(mox_dense_row_bytes(MOXIE_F6_E3M2, 33), 27);
    assert_int_equal(mox_dense_row_bytes(MOXIE_F32, 0), 0);
    assert_int_equal(mox_dense_bytes(MOXIE_F8_E4M3, 7, 9), 63);
    assert_true(mox_dense_row_bytes(MOXIE_F32, INT64_MAX) == UINT64_MAX);
    assert_true(mox_dense_bytes(MOXIE_I8, INT64_MAX, 4) == UINT64_MAX);
}

/* ---- checks ----------------------------------------------------------------------------------------- */

static void rejected(const moxie_grid *grid, const char *because)
{
    moxie_error error = { 0 };
    assert_int_equal(mox_grid_check(grid, "expert 3 down codes", &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "expert 3 down codes"));
    if (!strstr(error.text, because))
        fail_msg("\"%s\" does not say \"%s\"", error.text, because);
}

static void checks_reject_what_cannot_be_read(void **state)
{
    static const uint8_t data[64];
    const moxie_grid good = { data, 64, 4, 16, 16, 1, MOXIE_F8_E4M3, { 1, 1, 0, 0 } };
    moxie_error error = { 0 };
    moxie_grid bad;
    (void)state;
    assert_ok(mox_grid_check(&good, "good", &error), &error);
#define BAD(change, because)                                                                                           \
    bad = good;                                                                                                        \
    bad.change;                                                                                                        \
    rejected(&bad, because)
    BAD(bytes = 63, "takes 64 bytes, but only 63");
    BAD(data = NULL, "no data");
    BAD(rows = -1, "negative");
    BAD(row_stride = -16, "not negative");
    BAD(dtype = MOXIE_I64, "container");
    BAD(dtype = 999, "container");
    BAD(packing.word_bytes = 0, "word_bytes is 0");
    BAD(packing.word_bytes = 5, "word_bytes is 5");
    BAD(packing.per_word = 3, "per_word is 3");
    BAD(packing.per_word = 2, "do not fit a word of 1");
    BAD(packing.along_rows = 2, "along_rows is 2");
    BAD(packing.order = 2, "order 2");
    BAD(packing.order = MOXIE_ORDER_AWQ, "8 elements of 4 bits");
    BAD(row_stride = INT64_MAX, "2^63");
    BAD(rows = INT64_MAX, "2^63");
    bad = good;
    bad.rows = 3;
    bad.cols = 1;
    bad.row_stride = INT64_MAX; /* below 2^64, but above the largest offset */
    bad.bytes = UINT64_MAX;
    rejected(&bad, "2^63");
    bad = good;
    bad.rows = INT64_MAX;
    bad.row_stride = 0; /* a broadcast stays within the first row */
    assert_ok(mox_grid_check(&bad, "broadcast", &error), &error);
    bad = (moxie_grid) { .dtype = MOXIE_F32, .packing = { 4, 1, 0, 0 }, .cols = 5 };
    assert_ok(mox_grid_check(&bad, "empty", &error), &error);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_packing_round_trips),
        cmocka_unit_test(a_store_touches_its_element_only),
        cmocka_unit_test(gptq_words),
        cmocka_unit_test(awq_words),
        cmocka_unit_test(dense_views),
        cmocka_unit_test(checks_reject_what_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
