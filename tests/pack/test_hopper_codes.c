/* SPDX-License-Identifier: Apache-2.0
 *
 * test_hopper_codes.c - layout hopper_codes: every weight is read from a record by formulas of this file, from the text
 * of hopper.h, as the two factors that a kernel multiplies; both must be bf16. unpack(pack(w)) == w; sizes; what the
 * layout rejects. (Parts and seals: test_record_parts.c.)
 */
#include <math.h>

#include "hopper_place.h"
#include "pack/hopper/hopper.h"
#include "packed_record.h"

static const mox_layout *layout(void)
{
    return mox_layout_by_name("hopper_codes");
}

/* ---- hopper.h in formulas ---------------------------------------------------------------------------------- */

/* Bits of a word that hold the sign and the magnitude bits 4, 2, 1 of the e2m1 code in half h of register i. */
static const int float_bits[4][2][4] = { { { 15, 8, 7, 6 }, { 31, 24, 23, 22 } },
                                         { { 11, 4, 3, 2 }, { 27, 20, 19, 18 } },
                                         { { 5, 30, 29, 28 }, { 21, 14, 13, 12 } },
                                         { { 1, 26, 25, 0 }, { 17, 10, 9, 16 } } };

/* Bits of a word that hold sign and magnitude, highest first, of the 8-bit float in half h of register i of its two. */
static const int e4m3_bits[2][2][8] = { { { 15, 10, 9, 8, 7, 6, 5, 4 }, { 31, 26, 25, 24, 23, 22, 21, 20 } },
                                        { { 11, 14, 13, 12, 3, 2, 1, 0 }, { 27, 30, 29, 28, 19, 18, 17, 16 } } };
static const int e5m2_bits[2][2][8] = { { { 15, 11, 10, 9, 8, 7, 6, 5 }, { 31, 27, 26, 25, 24, 23, 22, 21 } },
                                        { { 12, 3, 2, 1, 0, 4, 30, 29 }, { 28, 19, 18, 17, 16, 20, 14, 13 } } };

static int64_t bits_of(const place *p)
{
    return mox_dtype_bits(p->quant->element);
}

static bool is_e8m0(const place *p)
{
    return p->quant->scale == MOXIE_F8_E8M0 && p->quant->group_cols == 32;
}

/* Scales of rows are row factors. */
static bool is_by_row(const place *p)
{
    return bits_of(p) == 8 && !is_e8m0(p) && (p->quant->group_cols <= 0 || p->quant->group_cols >= p->cols);
}

/* Scales of blocks are f32 in the tiles. */
static bool has_blocks(const place *p)
{
    const moxie_dtype element = p->quant->element;
    return (element == MOXIE_F8_E4M3 || element == MOXIE_F8_E5M2) && !is_e8m0(p) && !is_by_row(p);
}

/* Integers whose scales are as they are, each in a word with a zero point. */
static bool has_words(const place *p)
{
    const moxie_quant *q = p->quant;
    if (mox_format_of(q->element)->kind != MOX_KIND_INTEGER)
        return false;
    if (is_by_row(p))
        return q->has_zero;
    return q->scale == MOXIE_F16 ? bits_of(p) == 8 : q->scale == MOXIE_BF16 && q->has_zero;
}

static int64_t groups_of_chunk(const place *p)
{
    if (has_blocks(p))
        return 1;
    return bits_of(p) > 4 || p->quant->group_cols == 32 ? 2 : p->quant->group_cols == 16 ? 4 : 1;
}

static int64_t scale_size(const place *p)
{
    if (has_blocks(p) || has_words(p))
        return 4;
    return is_by_row(p) ? 1 : p->quant->scale == MOXIE_BF16 ? 2 : p->quant->scale == MOXIE_F16 ? 4 : 1;
}

static int64_t columns_of_block(const place *p)
{
    const int64_t whole = up_to(p->cols, 64), group = p->quant->group_cols;
    if (is_by_row(p))
        return whole;
    return group <= 0 || group >= p->cols ? (group == 32 || group == 16 ? 64 : whole) : group < 64 ? 64 : group;
}

static int64_t tile_bytes(const place *p, int64_t rows)
{
    const int64_t blocks = up_to(p->cols, columns_of_block(p)) / columns_of_block(p);
    return up_to(up_to(p->cols, 64) * rows * bits_of(p) / 8 + blocks * rows * groups_of_chunk(p) * scale_size(p), 128);
}

/* Bytes of the tiles, and with the two arrays behind them. */
static int64_t tiles_bytes(const place *p)
{
    return (tiles_of(p) - 1) * tile_bytes(p, 128) + tile_bytes(p, rows_of_tile(p, tiles_of(p) - 1));
}

static float bf16(uint32_t code)
{
    return mox_format_of(MOXIE_BF16)->decode((uint16_t)code);
}

static double f16(uint32_t code)
{
    return (double)mox_format_of(MOXIE_F16)->decode((uint16_t)code);
}

/* The number that the 8-bit code of row n (of 64) and column k of the chunk becomes in its register. */
static double byte_value(const place *p, const uint8_t *rows, int64_t in, int64_t k)
{
    const int64_t lane = in % 8 * 4 + k % 8 / 2, i = in % 16 / 8, j = k % 64 / 16 * 2 + k % 16 / 8;
    const int half = (int)(k % 2);
    uint32_t word, code = 0;
    memcpy(&word, rows + in / 16 * 1024 + j / 4 * 512 + lane * 16 + j % 4 * 4, 4);
    if (p->quant->element == MOXIE_I8 || p->quant->element == MOXIE_U8B128)
        return (double)bf16(word >> (8 * i + 16 * half) & 255) - ldexp(128, -133);
    const bool e4m3 = p->quant->element == MOXIE_F8_E4M3;
    for (int b = 0; b < 8; b++)
        code |= (word >> (e4m3 ? e4m3_bits : e5m2_bits)[i][half][b] & 1) << (b == 0 ? 15 : (e4m3 ? 11 : 12) - b);
    return (double)bf16(code);
}

/* The same for 6-bit floats. */
static double six_value(const place *p, const uint8_t *rows, int64_t in, int64_t k)
{
    const bool e2m3 = p->quant->element == MOXIE_F6_E2M3;
    const int64_t lane = in % 8 * 4 + k % 8 / 2, j = k % 64 / 16;
    const int i = (int)(in % 16 / 8 + k % 16 / 8 * 2), turn = e2m3 ? 2 * i + 8 * (int)(j % 2) : 4 * i + (int)(j % 2);
    const uint8_t *warp = rows + in / 16 * 768;
    uint32_t four, two, code = 0;
    memcpy(&four, warp + lane * 16 + j * 4, 4);
    memcpy(&two, warp + 512 + lane * 8 + j / 2 * 4, 4);
    for (int bit = 0; bit < 16; bit++) {
        const bool first = e2m3 ? bit >= 4 && bit < 8 : bit >= 5 && bit < 9;
        const bool second = bit == 15 || bit == (e2m3 ? 8 : 9);
        const int from = bit + (int)(k % 2) * 16 + 32 - (first ? 4 * i : turn);
        if (first || second)
            code |= ((first ? four : two) >> from % 32 & 1) << bit;
    }
    return (double)bf16(code);
}

/* What the kernel computes for product row n and column k: the factor in the register, and the scale. */
static void read_weight(const place *p, int64_t n, int64_t k, double *value, double *scale)
{
    const int64_t tile = n / 128, rows = rows_of_tile(p, tile), in = n % 128;
    const uint8_t *base = p->tiles + tile * tile_bytes(p, 128);
    const int64_t thread = in % 64 / 16 * 32 + in % 8 * 4 + k % 8 / 2, i = in % 16 / 8 + k % 16 / 8 * 2;
    const int half = (int)(k % 2);
    uint32_t word, code = 0;
    const uint8_t *chunk = base + k / 64 * rows * 8 * bits_of(p);
    memcpy(&word, chunk + in / 64 * 2048 + thread * 16 + k % 64 / 16 * 4, 4);
    if (bits_of(p) == 6) {
        *value = six_value(p, chunk + in / 64 * 3072, in % 64, k);
    } else if (bits_of(p) == 8) {
        *value = byte_value(p, chunk + in / 64 * 4096, in % 64, k);
    } else if (p->quant->element == MOXIE_F4_E2M1) {
        for (int b = 0; b < 4; b++)
            code |= (word >> float_bits[i][half][b] & 1) << (b == 0 ? 15 : 9 - b);
        *value = (double)bf16(code);
    } else {
        code = (word >> (4 * i + 16 * half)) & 15;
        *value = (double)bf16(code << 4) - ldexp(8, -129);
    }
    const int64_t groups = groups_of_chunk(p), size = scale_size(p);
    const int64_t pair = in / 16 * 8 + in % 8, second = in % 16 / 8;
    const uint8_t *block =
        base + up_to(p->cols, 64) * rows * bits_of(p) / 8 + k / columns_of_block(p) * rows * groups * size;
    const uint8_t *at = block + ((pair * 2 + second) * groups + k % 64 / (64 / groups)) * size;
    const uint32_t first = at[0] | (uint32_t)at[size > 1] << 8;
    if (has_blocks(p)) { /* codes become their values */
        *value = ldexp(*value, p->quant->element == MOXIE_F8_E4M3 ? 120 : 112);
        *scale = (double)mox_load(MOXIE_F32, at);
        return;
    }
    if (has_words(p)) { /* numbers less their zero points, in units of the code's place */
        const uint32_t zero = at[2] | (uint32_t)at[3] << 8;
        *value += bits_of(p) == 8 ? ldexp(128, -133) - ldexp(zero, -133) : ldexp(8, -129) + ldexp(f16(zero), 17 - 129);
        *value = ldexp(*value, bits_of(p) == 8 ? 133 : 129);
        *scale = p->quant->scale == MOXIE_F16 ? f16(first) : (double)bf16(first);
        return;
    }
    *scale = size == 4                    ? f16(first)
             : size == 2                  ? (double)bf16(first)
             : is_e8m0(p) || is_by_row(p) ? (double)bf16((uint32_t)at[0] << 7)
                                          : ldexp((double)bf16((uint32_t)at[0] << 4), 238);
    if (size == 4) /* codes and zero points in f16 */
        *value = f16(code << 7) + f16(at[2] | (uint32_t)at[3] << 8);
}

static bool is_bf16(double x)
{
    const float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (double)f == x && (bits & 0xffff) == 0;
}

/* Nothing is rounded, except integers with scales of groups. */
static bool is_exact(const place *p)
{
    return is_by_row(p) || mox_format_of(p->quant->element)->kind == MOX_KIND_FLOAT;
}

static void check_matrix(const place *p, const moxie_matrix *from, int half)
{
    const uint8_t *factors = p->tiles + tiles_bytes(p);
    for (int64_t r = 0; r < p->rows; r++) {
        const int64_t n = p->gated ? r / 8 * 16 + half * 8 + r % 8 : r;
        float factor;
        memcpy(&factor, factors + n * 4, 4);
        for (int64_t k = 0; k < p->cols; k++) {
            double value, scale;
            read_weight(p, n, k, &value, &scale);
            const double want = mox_matrix_weight(from, p->quant, r, k);
            const double all = p->quant->global == MOXIE_GLOBAL_DIVIDE ? value * scale / (double)factor
                                                                       : value * scale * (double)factor;
            if (all != want || !isfinite(scale) || (is_exact(p) && !is_bf16(has_blocks(p) ? value : value * scale)))
                fail_msg("row %lld, column %lld: %g * %g * %g, not %g", (long long)r, (long long)k, value, scale,
                         (double)factor, want);
        }
    }
}

static void check_weights(const mox_record_shape *shape, const moxie_expert *expert, const uint8_t *record,
                          uint64_t bytes)
{
    check_products(shape, expert, record, bytes, tiles_bytes, check_matrix);
}

/* ---- every combination ------------------------------------------------------------------------------------ */

static const int64_t row_sizes[] = { 1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 193 };
static const int64_t col_sizes[] = { 1, 15, 31, 32, 33, 63, 64, 65, 128, 129, 200, 257 };

#define PICK(rng, list) (list)[test_below((rng), sizeof(list) / sizeof(list)[0])]

/* Scales whose exponents are as far apart as the format allows, near either end of its range. */
static uint32_t any_e8m0(test_rng *rng, moxie_dtype element, bool high)
{
    const int least = element == MOXIE_F8_E4M3 ? 3 : element == MOXIE_F8_E5M2 ? 10 : 0;
    const int to_end = element == MOXIE_F8_E4M3 || element == MOXIE_F6_E2M3   ? 131
                       : element == MOXIE_F8_E5M2 || element == MOXIE_F6_E3M2 ? 132
                                                                              : 133;
    return (uint32_t)(high ? test_range(rng, 254 - to_end, 254) : test_range(rng, least, 128));
}

static void stretch(test_rng *rng, const moxie_quant *q, const moxie_matrix *m)
{
    const moxie_grid *s = &m->scale;
    const place p = { .quant = q, .cols = m->codes.cols };
    for (int64_t r = 0; r < s->rows; r++) {
        const bool high = test_below(rng, 2) == 0;
        for (int64_t c = 0; c < s->cols; c++) {
            const bool moderate = is_by_row(&p) || has_blocks(&p);
            const uint32_t e8m0 = moderate ? (uint32_t)test_range(rng, 27, 227) : any_e8m0(rng, q->element, high);
            const uint32_t mantissa = (uint32_t)test_below(rng, 128), sign = (uint32_t)test_below(rng, 2) << 15;
            const int least = moderate ? 27 : bits_of(&p) == 8 ? 5 : 1;
            const uint32_t field = (uint32_t)(high ? test_range(rng, 130,
                                                                moderate           ? 227
                                                                : bits_of(&p) == 8 ? 248
                                                                                   : 250)
                                                   : test_range(rng, least, 125));
            mox_grid_store(s, r, c,
                           s->dtype == MOXIE_F32       ? (sign | field << 7 | mantissa) << 16 | mantissa
                           : s->dtype == MOXIE_BF16    ? sign | field << 7 | mantissa
                           : s->dtype == MOXIE_F8_E4M3 ? (uint32_t)test_below(rng, 0x7f)
                                                       : e8m0);
        }
    }
}

static void check_quant(test_rng *rng, const moxie_quant *quant, test_packing packing)
{
    char name[160], text[128], reason[256];
    const test_weight_quant which = { .name = name, .quant = *quant, .packing = packing };
    snprintf(name, sizeof name, "%s, packing %d", mox_quant_describe(quant, text, sizeof text), (int)packing);
    const bool tall = test_below(rng, 2) == 0;
    const test_expert_spec spec = { .hidden = tall ? PICK(rng, row_sizes) : PICK(rng, col_sizes),
                                    .intermediate = tall ? PICK(rng, col_sizes) : PICK(rng, row_sizes),
                                    .gated = test_below(rng, 2) == 0,
                                    .bias13 = test_below(rng, 2) == 0,
                                    .bias2 = test_below(rng, 2) == 0,
                                    .w13 = &which,
                                    .w2 = &which,
                                    .a13 = &test_act_quants[1] };
    const mox_record_shape shape = test_record_shape(&spec);
    test_expert expert;
    const char *rejection = layout()->reject(&shape, reason, sizeof reason);
    if (rejection != NULL)
        fail_msg("%s is rejected: %s", name, rejection);
    test_expert_make(&expert, rng, &spec);
    if (test_below(rng, 2) == 0)
        stretch(rng, quant, &expert.view.up), stretch(rng, quant, &expert.view.down);
    check_there_and_back(layout(), &shape, &expert, name, check_weights);
    test_expert_free(&expert);
}

static void check_bytes(test_rng *rng, test_packing packing, int32_t group)
{
    static const moxie_dtype floats[] = { MOXIE_F8_E4M3, MOXIE_F8_E5M2 }, ints[] = { MOXIE_I8, MOXIE_U8B128 },
                             scales[] = { MOXIE_F32, MOXIE_BF16, MOXIE_F16 };
    const int32_t rows[] = { 1, 1, 3, -1 };
    const moxie_quant mx = {
        .element = PICK(rng, floats), .scale = MOXIE_F8_E8M0, .group_rows = PICK(rng, rows), .group_cols = 32
    };
    const moxie_quant by_row = { .element = test_below(rng, 2) == 0 ? PICK(rng, floats) : PICK(rng, ints),
                                 .scale = PICK(rng, scales),
                                 .group_rows = PICK(rng, rows),
                                 .group_cols = -1 };
    const moxie_quant with_zeros = { .element = PICK(rng, ints),
                                     .scale = PICK(rng, scales),
                                     .group_rows = PICK(rng, rows),
                                     .group_cols = -1,
                                     .has_zero = 1 };
    static const moxie_dtype block_scales[] = { MOXIE_F32, MOXIE_BF16, MOXIE_F8_E8M0 };
    const int32_t block_rows[] = { 1, 128, 5 };
    const moxie_quant blocks = { .element = PICK(rng, floats),
                                 .scale = PICK(rng, block_scales),
                                 .group_rows = PICK(rng, block_rows),
                                 .group_cols = 64 << test_below(rng, 3) };
    const moxie_quant grouped = { .element = PICK(rng, ints), .scale = MOXIE_BF16, .group_cols = group };
    const moxie_quant words = { .element = PICK(rng, ints), .scale = MOXIE_F16, .group_cols = group };
    moxie_quant six = mx;
    six.element = test_below(rng, 2) == 0 ? MOXIE_F6_E2M3 : MOXIE_F6_E3M2;
    if (packing != TEST_WORDS) /* no 6-bit code is one */
        check_quant(rng, &six, packing);
    check_quant(rng, &mx, packing);
    check_quant(rng, &by_row, packing);
    check_quant(rng, &with_zeros, packing);
    check_quant(rng, &blocks, packing);
    check_quant(rng, &grouped, packing);
    check_quant(rng, &words, packing);
}

static void every_quant(void **state)
{
    (void)state;
    static const test_packing packings[] = { TEST_DENSE, TEST_INTERLEAVED, TEST_WORDS };
    static const int32_t groups[] = { -1, 32, 64, 128, 256 };
    const uint64_t seed = test_seed(1);
    test_rng rng = { seed };
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 60; i++) {
        const moxie_quant mxfp4 = { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_cols = 32 };
        moxie_quant ints = { .element = MOXIE_I4, .scale = MOXIE_BF16, .group_cols = PICK(&rng, groups) };
        const moxie_quant nvfp4 = {
            .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E4M3, .group_cols = 16, .global = (int32_t)test_below(&rng, 3)
        };
        check_quant(&rng, &mxfp4, PICK(&rng, packings));
        check_quant(&rng, &nvfp4, PICK(&rng, packings));
        check_quant(&rng, &ints, PICK(&rng, packings));
        ints.element = MOXIE_U4B8;
        check_quant(&rng, &ints, PICK(&rng, packings));
        ints.has_zero = 1;
        check_quant(&rng, &ints, PICK(&rng, packings));
        ints.scale = MOXIE_F16;
        ints.has_zero = (int32_t)test_below(&rng, 2);
        check_quant(&rng, &ints, PICK(&rng, packings));
        check_bytes(&rng, PICK(&rng, packings), PICK(&rng, groups));
    }
}

/* ---- sizes ------------------------------------------------------------------------------------------------ */

/* gpt-oss: 3 x 2880 x 2880 codes of 4.25 bits, in 45 tiles and 22 1/2, each filled up to 128 bytes, and the factors. */
static void sizes_are_minimal(void **state)
{
    (void)state;
    const moxie_quant q = { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_cols = 32 };
    const mox_record_shape shape = { .hidden = 2880, .intermediate = 2880, .gated = true, .w13 = q, .w2 = q };
    uint64_t bytes = 0;
    assert_true(layout()->record_bytes(&shape, &bytes));
    assert_int_equal(bytes, 128 + INT64_C(3) * 2880 * 2880 / 32 * 17 + (45 + 23) * 512);
}

/* ---- what cannot be held ---------------------------------------------------------------------------------- */

static void rejects(const moxie_quant *quant, const char *word)
{
    char reason[256];
    const moxie_quant held = { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_cols = 32 };
    const mox_record_shape shape = { .hidden = 300, .intermediate = 300, .w13 = held, .w2 = *quant };
    const char *rejection = layout()->reject(&shape, reason, sizeof reason);
    if (rejection == NULL || strstr(rejection, word) == NULL || strstr(rejection, "w2") == NULL)
        fail_msg("wanted a rejection of w2 with \"%s\", got %s", word, rejection ? rejection : "none");
}

static void shapes_are_refused(void **state)
{
    (void)state;
    rejects(&(moxie_quant) { .element = MOXIE_BF16 }, "bf16");
    rejects(&(moxie_quant) { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_cols = 64 }, "64");
    rejects(&(moxie_quant) { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E4M3, .group_cols = 32 }, "those of 16");
    rejects(
        &(moxie_quant) {
            .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_cols = 32, .global = MOXIE_GLOBAL_MULTIPLY },
        "f4_e2m1");
    rejects(&(moxie_quant) { .element = MOXIE_I4, .scale = MOXIE_F32, .group_cols = 32 }, "f32");
    rejects(&(moxie_quant) { .element = MOXIE_I4, .scale = MOXIE_BF16, .group_cols = 96 }, "96");
    rejects(&(moxie_quant) { .element = MOXIE_I4, .scale = MOXIE_F32, .group_cols = 32, .has_zero = 1 }, "zero points");
    rejects(&(moxie_quant) { .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = 128, .group_cols = 96 },
            "f32");
    rejects(&(moxie_quant) { .element = MOXIE_F8_E4M3, .scale = MOXIE_F8_E8M0, .group_cols = 16 }, "32, 64");
    rejects(&(moxie_quant) { .element = MOXIE_I8, .scale = MOXIE_F32, .group_cols = 64, .has_zero = 1 }, "zero points");
}

static void check_scales(moxie_dtype scale, const uint16_t *codes, int count, bool accepted)
{
    const bool ints = scale == MOXIE_BF16 || scale == MOXIE_F16;
    const moxie_quant q = { .element = ints ? MOXIE_I4 : MOXIE_F4_E2M1,
                            .scale = scale,
                            .group_cols = scale == MOXIE_F8_E4M3 ? 16 : 32 };
    const mox_record_shape shape = { .hidden = 2 * q.group_cols, .intermediate = 1, .w13 = q, .w2 = q };
    static const uint8_t zeros[64];
    static const uint16_t plain[64];
    uint8_t bytes[2] = { (uint8_t)codes[0], (uint8_t)codes[1] };
    const void *of_up = ints ? (const void *)codes : bytes;
    const moxie_expert expert = { .up = { .codes = mox_grid_dense(zeros, q.element, 1, shape.hidden),
                                          .scale = mox_grid_dense(of_up, scale, 1, count) },
                                  .down = { .codes = mox_grid_dense(zeros, q.element, shape.hidden, 1),
                                            .scale = mox_grid_dense(plain, scale, shape.hidden, 1) } };
    char reason[256] = "";
    assert_int_equal(layout()->accepts(&shape, &expert, reason, sizeof reason), accepted);
    assert_true(accepted || strstr(reason, "row 0 of up") != NULL);
}

/* The largest distance that bf16 bridges, and the smallest that it does not. */
static void scales_are_bounded(void **state)
{
    (void)state;
    check_scales(MOXIE_F8_E8M0, (const uint16_t[]) { 254, 121 }, 2, true);
    check_scales(MOXIE_F8_E8M0, (const uint16_t[]) { 254, 120 }, 2, false);
    check_scales(MOXIE_F8_E8M0, (const uint16_t[]) { 128, 0 }, 2, true);
    check_scales(MOXIE_F8_E8M0, (const uint16_t[]) { 120, 255 }, 2, false);
    check_scales(MOXIE_F8_E4M3, (const uint16_t[]) { 0, 0x7e }, 2, true);
    check_scales(MOXIE_F8_E4M3, (const uint16_t[]) { 0, 0x7f }, 2, false);
    check_scales(MOXIE_F8_E4M3, (const uint16_t[]) { 0x81, 0 }, 2, false);
    check_scales(MOXIE_BF16, (const uint16_t[]) { 0, 0x8000 }, 2, true);
    check_scales(MOXIE_BF16, (const uint16_t[]) { 0x7e7f, 128 << 7 }, 2, true);
    check_scales(MOXIE_BF16, (const uint16_t[]) { 0x7e7f, 127 << 7 }, 2, false);
    check_scales(MOXIE_BF16, (const uint16_t[]) { 0x7e80, 0x7e80 }, 2, false);
    check_scales(MOXIE_BF16, (const uint16_t[]) { 1 << 7, 0x3f80 }, 2, false);
    check_scales(MOXIE_BF16, (const uint16_t[]) { 0x7f80, 0x3f80 }, 2, false);
    check_scales(MOXIE_F16, (const uint16_t[]) { 0x7bff, 18 << 10 }, 2, true);
    check_scales(MOXIE_F16, (const uint16_t[]) { 0x7bff, 17 << 10 }, 2, false);
    check_scales(MOXIE_F16, (const uint16_t[]) { 1, 0x800 }, 2, true);
    check_scales(MOXIE_F16, (const uint16_t[]) { 0x7c00, 0 }, 2, false);
}

/* Codes that would become finite bf16 numbers, and factors that cannot be inverted exactly. */
static void numbers_are_bounded(void **state)
{
    (void)state;
    static const struct {
        moxie_dtype element;
        uint8_t code;
        float scale;
        const char *word;
    } cases[] = {
        { MOXIE_F8_E4M3, 0x7e, 1.0f, NULL },
        { MOXIE_F8_E4M3, 0xff, 1.0f, "row 17 of down has a weight" },
        { MOXIE_F8_E5M2, 0x7b, 1.0f, NULL },
        { MOXIE_F8_E5M2, 0xfc, 1.0f, "row 17 of down has a weight" },
        { MOXIE_I8, 0xff, 0x1p-100f, NULL },
        { MOXIE_I8, 0xff, 0.0f, NULL },
        { MOXIE_I8, 0xff, 0x1p-101f, "row scale 17 of down" },
        { MOXIE_F8_E4M3, 0, NAN, "row scale 17 of down" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const moxie_quant q = { .element = cases[i].element, .scale = MOXIE_F32, .group_rows = 1, .group_cols = -1 };
        const mox_record_shape shape = { .hidden = 20, .intermediate = 150, .w13 = q, .w2 = q };
        static const uint8_t plain[20 * 150];
        uint8_t codes[20 * 150] = { 0 };
        static const float ones[150] = { 1.0f };
        float scales[20] = { 0 };
        codes[17 * 150 + 149] = cases[i].code;
        scales[17] = cases[i].scale;
        const moxie_expert expert = { .up = { .codes = mox_grid_dense(plain, q.element, 150, 20),
                                              .scale = mox_grid_dense(ones, MOXIE_F32, 150, 1) },
                                      .down = { .codes = mox_grid_dense(codes, q.element, 20, 150),
                                                .scale = mox_grid_dense(scales, MOXIE_F32, 20, 1) } };
        char reason[256] = "";
        assert_int_equal(layout()->accepts(&shape, &expert, reason, sizeof reason), cases[i].word == NULL);
        assert_true(cases[i].word == NULL || strstr(reason, cases[i].word) != NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_quant), cmocka_unit_test(sizes_are_minimal),
                                        cmocka_unit_test(shapes_are_refused), cmocka_unit_test(scales_are_bounded),
                                        cmocka_unit_test(numbers_are_bounded) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
