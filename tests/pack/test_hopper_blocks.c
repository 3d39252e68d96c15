/* SPDX-License-Identifier: Apache-2.0
 *
 * test_hopper_blocks.c - block types in layout hopper_codes: every weight is read from a record by formulas of this
 * file, from the text of hopper.h and hopper_blocks.h, and must be the f32 that the type's decoder gives.
 * unpack(pack(w)) == w; records keep the file's bytes within 5 %; what the layout rejects.
 */
#include <math.h>

#include "format/block.h"
#include "hopper_place.h"
#include "pack/hopper/hopper.h"
#include "packed_record.h"

static const mox_layout *layout(void)
{
    return mox_layout_by_name("hopper_codes");
}

/* ---- the text in formulas ---------------------------------------------------------------------------------- */

enum {
    Q4_K = MOX_BLOCK_DTYPE + 12,
    Q5_K = MOX_BLOCK_DTYPE + 13,
    Q6_K = MOX_BLOCK_DTYPE + 14,
    IQ4_XS = MOX_BLOCK_DTYPE + 23
};

static int64_t bits_of(const place *p)
{
    return p->quant->element == Q6_K ? 6 : p->quant->element == Q5_K ? 5 : 4;
}

static int64_t integers_of_chunk(const place *p)
{
    return p->quant->element == IQ4_XS ? 2 : 4;
}

static int64_t scale_row(const place *p)
{
    return 4 + 4 * integers_of_chunk(p);
}

static int64_t tile_bytes(const place *p, int64_t rows)
{
    return up_to(p->cols / 64 * rows * 8 * bits_of(p) + p->cols / 256 * rows * scale_row(p), 128);
}

static int64_t tiles_bytes(const place *p)
{
    return (tiles_of(p) - 1) * tile_bytes(p, 128) + tile_bytes(p, rows_of_tile(p, tiles_of(p) - 1));
}

static uint32_t turned(uint32_t word, int64_t by)
{
    return (uint32_t)((uint64_t)word << by | (uint64_t)word >> (32 - by));
}

/* The code of row `in` of a tile and column k. */
static uint32_t code_of(const place *p, const uint8_t *chunks, int64_t rows, int64_t in, int64_t k)
{
    const int64_t lane = in % 8 * 4 + k % 8 / 2, i = in % 16 / 8 + k % 16 / 8 * 2, j = k % 64 / 16, half = k % 2;
    const uint8_t *warp = chunks + k / 64 * rows * 8 * bits_of(p) + in / 16 * 128 * bits_of(p);
    uint32_t four, two;
    memcpy(&four, warp + lane * 16 + j * 4, 4);
    if (p->quant->element == IQ4_XS)
        return four >> (4 * (i % 2 + 2 * half) + 16 * (i / 2)) & 15;
    if (p->quant->element == Q4_K)
        return four >> (4 * i + 16 * half) & 15;
    if (p->quant->element == Q5_K) {
        memcpy(&two, warp + 512 + lane * 4, 4);
        return (turned(four, 4 * i) >> (4 + 16 * half) & 15) << 1 | (turned(two, i + 4 * j) >> (3 + 16 * half) & 1);
    }
    memcpy(&two, warp + 512 + lane * 8 + j / 2 * 4, 4);
    return (turned(four, 4 * i) >> (4 + 16 * half) & 15) << 2 |
           (turned(two, 2 * i + 8 * (j % 2)) >> (2 + 16 * half) & 3);
}

static float weight_of(const place *p, int64_t n, int64_t k)
{
    static const float levels[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
    const int64_t tile = n / 128, rows = rows_of_tile(p, tile), in = n % 128;
    const uint8_t *chunks = p->tiles + tile * tile_bytes(p, 128),
                  *blocks = chunks + p->cols / 64 * rows * 8 * bits_of(p);
    const uint8_t *scales =
        blocks + k / 256 * rows * scale_row(p) + ((in / 16 * 8 + in % 8) * 2 + in % 16 / 8) * scale_row(p);
    const uint8_t *integers = scales + 4 + k % 256 / 64 * integers_of_chunk(p);
    const float d = mox_block_f16(scales), m = mox_block_f16(scales + 2);
    const uint32_t code = code_of(p, chunks, rows, in, k);
    const int64_t run = k % 64 / (p->quant->element == Q6_K ? 16 : 32);
    const float s = (float)(int8_t)integers[run];
    if (p->quant->element == Q4_K || p->quant->element == Q5_K)
        return d * s * (float)code - m * (float)integers[2 + run];
    return d * s * (p->quant->element == Q6_K ? (float)code - 32.0f : levels[code]);
}

/* What all weights of row r are multiplied by. */
static double global_of(const moxie_matrix *from, const moxie_quant *q, int64_t r)
{
    return q->global == MOXIE_GLOBAL_NONE ? 1 : mox_grid_value(&from->global, from->global.rows == 1 ? 0 : r, 0);
}

static void check_matrix(const place *p, const moxie_matrix *from, int half)
{
    const uint8_t *factors = p->tiles + tiles_bytes(p);
    for (int64_t r = 0; r < p->rows; r++) {
        const int64_t n = p->gated ? r / 8 * 16 + half * 8 + r % 8 : r;
        float factor;
        memcpy(&factor, factors + n * 4, 4);
        assert_true((double)factor == global_of(from, p->quant, r));
        for (int64_t k = 0; k < p->cols; k++) {
            const double want = mox_matrix_weight(from, p->quant, r, k),
                         got = (double)weight_of(p, n, k) * (double)factor;
            if (got != want)
                fail_msg("row %lld, column %lld: %g, not %g", (long long)r, (long long)k, got, want);
        }
    }
}

static void check_weights(const mox_record_shape *shape, const moxie_expert *expert, const uint8_t *record,
                          uint64_t bytes)
{
    check_products(shape, expert, record, bytes, tiles_bytes, check_matrix);
}

/* ---- tests ------------------------------------------------------------------------------------------------- */

static const test_weight_quant types[] = {
    { "q4_k", { .element = Q4_K }, .packing = TEST_DENSE },
    { "q5_k", { .element = Q5_K }, .packing = TEST_DENSE },
    { "q6_k", { .element = Q6_K }, .packing = TEST_DENSE },
    { "iq4_xs", { .element = IQ4_XS }, .packing = TEST_DENSE },
};
enum { TYPES = sizeof types / sizeof types[0] };

static test_expert_spec spec_of(test_rng *rng, const test_weight_quant *w13, const test_weight_quant *w2)
{
    return (test_expert_spec) { .hidden = 256 * test_range(rng, 1, 3),
                                .intermediate = 256 * test_range(rng, 1, 2),
                                .gated = test_below(rng, 2) == 0,
                                .bias13 = test_below(rng, 2) == 0,
                                .bias2 = test_below(rng, 2) == 0,
                                .w13 = w13,
                                .w2 = w2,
                                .a13 = &test_act_quants[0] };
}

/* Both projections of every pair of types; every second W13 has a factor for each expert, as `.scale` of a file. */
static void every_pair(void **state)
{
    (void)state;
    test_rng rng = { test_seed(7300) };
    for (int i = 0; i < TYPES * TYPES; i++) {
        test_weight_quant w13 = types[i / TYPES];
        w13.quant.global = i % 2 == 0 ? MOXIE_GLOBAL_NONE : MOXIE_GLOBAL_MULTIPLY;
        const test_expert_spec spec = spec_of(&rng, &w13, &types[i % TYPES]);
        const mox_record_shape shape = test_record_shape(&spec);
        test_expert expert;
        char reason[256];
        const char *rejection = layout()->reject(&shape, reason, sizeof reason);
        if (rejection != NULL)
            fail_msg("%s is rejected: %s", spec.w13->name, rejection);
        test_expert_make(&expert, &rng, &spec);
        assert_true(layout()->accepts(&shape, &expert.view, reason, sizeof reason));
        check_there_and_back(layout(), &shape, &expert, spec.w13->name, check_weights);
        test_expert_free(&expert);
    }
}

/* Shapes of qwen3-30b-a3b: codes and both levels of scales take at most 5 % more than the file. */
static void records_are_small(void **state)
{
    (void)state;
    for (int i = 0; i < TYPES; i++) {
        const mox_record_shape shape = {
            .hidden = 2048, .intermediate = 768, .gated = true, .w13 = types[i].quant, .w2 = types[i].quant
        };
        const mox_block *type = mox_block_of(types[i].quant.element);
        uint64_t bytes = 0;
        assert_true(layout()->record_bytes(&shape, &bytes));
        const double file = 3.0 * 2048 * 768 / type->weights * type->bytes;
        if ((double)bytes < file || (double)bytes > 1.05 * file)
            fail_msg("%s: a record has %llu bytes, the file %g", types[i].name, (unsigned long long)bytes, file);
    }
}

/* A factor for each expert must be a number of moderate size, too. */
static void refuses_factors(const mox_record_shape *plain, const moxie_expert *expert)
{
    static const float factors[] = { NAN, INFINITY, 0.0f, 0x1p-140f, 0.75f };
    mox_record_shape shape = *plain;
    char reason[256];
    shape.w2.global = MOXIE_GLOBAL_MULTIPLY;
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        moxie_expert scaled = *expert;
        scaled.down.global = mox_grid_dense(&factors[i], MOXIE_F32, 1, 1);
        assert_int_equal(layout()->accepts(&shape, &scaled, reason, sizeof reason), factors[i] == 0.75f);
    }
}

/* Scales that are no numbers are left to kernels that read whole blocks; other types are refused. */
static void others_are_refused(void **state)
{
    (void)state;
    static const int32_t scale_at[TYPES] = { 2, 0, 208, 0 }; /* m of q4_k; d */
    test_rng rng = { test_seed(7400) };
    char reason[256];
    for (int i = 0; i < TYPES; i++) {
        const test_expert_spec spec = spec_of(&rng, &types[i], &types[i]);
        const mox_record_shape shape = test_record_shape(&spec);
        test_expert expert;
        test_expert_make(&expert, &rng, &spec);
        const moxie_grid *codes = &expert.view.down.codes;
        uint8_t *block = (uint8_t *)(uintptr_t)codes->data + (codes->rows - 1) * codes->row_stride + scale_at[i];
        block[0] = 0;
        block[1] = i == 0 ? 0x7c : 0xfe;
        assert_false(layout()->accepts(&shape, &expert.view, reason, sizeof reason));
        assert_non_null(strstr(reason, "down"));
        block[1] = 0x7b;
        assert_true(layout()->accepts(&shape, &expert.view, reason, sizeof reason));
        refuses_factors(&shape, &expert.view);
        test_expert_free(&expert);
    }
    for (int i = 0; i < test_block_quant_count; i++) {
        const moxie_quant *q = &test_block_quants[i].quant;
        const mox_record_shape shape = { .hidden = 512, .intermediate = 256, .gated = true, .w13 = *q, .w2 = *q };
        const bool held = (q->element >= Q4_K && q->element <= Q6_K) || q->element == IQ4_XS;
        assert_int_equal(layout()->reject(&shape, reason, sizeof reason) == NULL, held);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_pair), cmocka_unit_test(records_are_small),
                                        cmocka_unit_test(others_are_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
