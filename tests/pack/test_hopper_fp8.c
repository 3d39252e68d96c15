/* SPDX-License-Identifier: Apache-2.0
 *
 * test_hopper_fp8.c - layout hopper_fp8: every weight is read from a record by formulas of this file, from the text of
 * hopper.h, as the e4m3 byte that a kernel looks up and the row's factor; what lies behind the last row and column;
 * unpack(pack(w)) == w; parts; sizes; what the layout rejects. (Seals: test_record_parts.c, whose random pairs of
 * formats rarely are two that this layout holds.)
 */
#include <math.h>

#include "hopper_place.h"
#include "pack/hopper/hopper.h"
#include "packed_record.h"

enum { CHUNK = 128, GROUP = 32, GROUPS = CHUNK / GROUP, TILE = 128, WARP = 16, WINDOW = 12 };
enum { SIGN = 8, LEAST_TOP = 7, MOST_FIELD = 254 };

static const moxie_quant mxfp4 = { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_cols = GROUP };

static const mox_layout *layout(void)
{
    return mox_layout_by_name("hopper_fp8");
}

/* ---- hopper.h in formulas ---------------------------------------------------------------------------------- */

static bool is_integer(const moxie_quant *quant)
{
    return quant->element != MOXIE_F4_E2M1;
}

/* Columns of a scale of integers. */
static int64_t group_of(const place *p)
{
    return p->quant->group_cols > 0 ? p->quant->group_cols : up_to(p->cols, CHUNK);
}

/* 64 bytes of codes for every row and chunk, and 4 of scales, or 2 for every group of integers: always a multiple of
 * 128 bytes. */
static int64_t tile_bytes(const place *p, int64_t rows)
{
    const int64_t chunks = up_to(p->cols, CHUNK) / CHUNK, groups = up_to(p->cols, group_of(p)) / group_of(p);
    return rows * (chunks * (CHUNK / 2) + (is_integer(p->quant) ? groups * 2 : chunks * GROUPS));
}

static int64_t tiles_bytes(const place *p)
{
    return (tiles_of(p) - 1) * tile_bytes(p, TILE) + tile_bytes(p, rows_of_tile(p, tiles_of(p) - 1));
}

/* The code of product row n and column k: sign in bit 3, then the magnitude. */
static uint32_t read_code(const place *p, int64_t n, int64_t k)
{
    const int64_t tile = n / TILE, in = n % TILE, plane = k % CHUNK / 64;
    const int64_t lane = in % 8 * 4 + k % 16 / 4, number = k % 64 / 32 * 2 + in % WARP / 8;
    const int i = (int)(k % 4), high = (int)(k % 32 / 16);
    const uint8_t *chunk = p->tiles + tile * tile_bytes(p, TILE) + k / CHUNK * rows_of_tile(p, tile) * (CHUNK / 2);
    uint32_t word;
    memcpy(&word, chunk + in / WARP * 1024 + plane * 512 + lane * 16 + number * 4, 4);
    const uint32_t magnitude = word >> (4 * i + 16 * high) & 7, sign = word >> (8 * i + (high ? 3 : 7)) & 1;
    return sign * SIGN | magnitude;
}

/* Where block `block` of scales, of `bytes` for a row, has those of product row n. */
static const uint8_t *scales_at(const place *p, int64_t n, int64_t block, int64_t bytes)
{
    const int64_t tile = n / TILE, in = n % TILE, rows = rows_of_tile(p, tile);
    const int64_t pair = in % 64 / WARP * 8 + in % 8, second = in % WARP / 8;
    const uint8_t *blocks = p->tiles + tile * tile_bytes(p, TILE) + up_to(p->cols, CHUNK) / CHUNK * rows * (CHUNK / 2);
    return blocks + (block * rows + in / 64 * 64 + pair * 2 + second) * bytes;
}

/* The scale byte of the group with product row n and column k; of integers the multiplier's two bytes. */
static int read_scale(const place *p, int64_t n, int64_t k)
{
    uint16_t multiplier;
    if (!is_integer(p->quant))
        return scales_at(p, n, k / CHUNK, GROUPS)[k % CHUNK / GROUP];
    memcpy(&multiplier, scales_at(p, n, k / group_of(p), 2), 2);
    return multiplier;
}

static float read_factor(const place *p, int64_t n)
{
    float factor;
    memcpy(&factor, p->tiles + tiles_bytes(p) + n * 4, 4);
    return factor;
}

/* The row of a matrix that product row n is, -1 behind the last; for a gated product also which matrix. */
static int64_t find_row(const place *p, int64_t n, int *half)
{
    const int64_t row = p->gated ? n / 16 * 8 + n % 8 : n;
    *half = p->gated ? (int)(n / 8 % 2) : 0;
    return row < p->rows ? row : -1;
}

/* What a kernel looks up, bit by bit: the bias of e4m3 is 7, the values of e2m1 are 2^-1 (code 1) and 2^(m / 2 - 1)
 * times 1 or 1 1/2. */
static uint32_t e4m3_of(uint32_t code, int e)
{
    const uint32_t m = code % SIGN, sign = code / SIGN << 7;
    if (m == 0)
        return sign;
    return sign | (uint32_t)(e - 5 + 7 + (int)(m / 2) - 1) << 3 | (m == 1 ? 0 : m % 2 << 2);
}

/* Which scale bytes and codes occurred: the test must see all. */
static bool met[WINDOW][16];

static double weight_of(uint32_t code, int e)
{
    const uint32_t byte = e4m3_of(code, e);
    const float value = mox_format_of(MOXIE_F8_E4M3)->decode((uint16_t)byte);
    const double want = ldexp((double)mox_format_of(MOXIE_F4_E2M1)->decode((uint16_t)code), e - 5);
    if (byte > 255 || (double)value != want)
        fail_msg("code %u, scale %d: e4m3 %02x is %g, not %g", code, e, byte, (double)value, want);
    met[e][code] = true;
    return (double)value;
}

/* Exponent fields of the scales of a row; *greatest: the largest, or the smallest that a factor can express. */
static int64_t scale_row(const moxie_matrix *from, const place *p, int64_t row, int *greatest)
{
    const int64_t r = p->quant->group_rows > 1 ? row / p->quant->group_rows : p->quant->group_rows < 0 ? 0 : row;
    *greatest = LEAST_TOP;
    for (int64_t g = 0; g < from->scale.cols; g++) {
        const int field = (int)mox_grid_code(&from->scale, r, g);
        *greatest = field > *greatest ? field : *greatest;
    }
    return r;
}

/* Every sign and magnitude of integers. */
static bool met_integer[16];

/* A row of integers: kernels look up a quarter of each, and multiply sums by a bf16. */
static void check_integers(const place *p, const moxie_matrix *from, int64_t row, int64_t n)
{
    const float factor = read_factor(p, n);
    assert_true(isnormal(factor));
    for (int64_t k = 0; k < p->cols; k++) {
        const uint16_t multiplier = (uint16_t)read_scale(p, n, k);
        const uint32_t code = read_code(p, n, k);
        const double number = code == SIGN ? -8 : code > SIGN ? -(double)(code - SIGN) : (double)code;
        const double value = number / 4 * (double)mox_format_of(MOXIE_BF16)->decode(multiplier) * (double)factor;
        if (value != mox_matrix_weight(from, p->quant, row, k))
            fail_msg("row %lld, column %lld: code %u, multiplier %04x, factor %g: %g, not %g", (long long)row,
                     (long long)k, code, multiplier, (double)factor, value, mox_matrix_weight(from, p->quant, row, k));
        met_integer[code] = true;
    }
}

static void check_row(const place *p, const moxie_matrix *from, int64_t row, int64_t n)
{
    int greatest;
    const int64_t r = scale_row(from, p, row, &greatest);
    const float factor = read_factor(p, n);
    assert_true(factor == ldexpf(1, greatest - 133) && isnormal(factor));
    for (int64_t k = 0; k < p->cols; k++) {
        const int e = read_scale(p, n, k), field = (int)mox_grid_code(&from->scale, r, k / GROUP);
        const uint32_t code = read_code(p, n, k);
        const double want = mox_matrix_weight(from, p->quant, row, k);
        /* Outside 0 .. 11 a byte is not looked up, or does not matter: zeros stay zeros. */
        const double value = e < WINDOW ? weight_of(code, e) : code == SIGN ? -0.0 : code == 0 ? 0.0 : NAN;
        if (e != ((field - greatest + WINDOW - 1) & 255) || value * (double)factor != want ||
            signbit(value) != signbit(want))
            fail_msg("row %lld, column %lld: code %u, scale %d, field %d of %d, factor %g: %g, not %g", (long long)row,
                     (long long)k, code, e, field, greatest, (double)factor, value * (double)factor, want);
    }
}

/* Code 0 (as u4b8 has it: -8) with scale 0 behind the last column; a group that has some columns has its scale. */
static void check_nothing(const place *p, int64_t n, int64_t from)
{
    const int64_t group = is_integer(p->quant) ? group_of(p) : GROUP;
    const uint32_t nothing = p->quant->element == MOXIE_U4B8 ? SIGN : 0;
    for (int64_t k = from; k < up_to(p->cols, CHUNK); k++)
        if (read_code(p, n, k) != nothing || (k >= up_to(from, group) && read_scale(p, n, k) != 0))
            fail_msg("product row %lld, column %lld: code %u, scale %d, not nothing", (long long)n, (long long)k,
                     read_code(p, n, k), read_scale(p, n, k));
}

static void check_product(const place *p, const moxie_matrix *const *from)
{
    const int64_t tiles = tiles_of(p), stored = (tiles - 1) * TILE + rows_of_tile(p, tiles - 1);
    for (int64_t n = 0; n < stored; n++) {
        int half;
        const int64_t row = find_row(p, n, &half);
        if (row >= 0)
            (is_integer(p->quant) ? check_integers : check_row)(p, from[half], row, n);
        check_nothing(p, n, row >= 0 ? p->cols : 0);
    }
}

static const uint8_t *check_biases(const place *p, bool present, const moxie_matrix *const *from)
{
    const uint8_t *at = p->tiles + tiles_bytes(p) + tiles_of(p) * TILE * 4;
    for (int64_t n = 0; present && n < product_rows(p); n++) {
        int half;
        float bias;
        const int64_t row = find_row(p, n, &half);
        memcpy(&bias, at + n * 4, 4);
        if (row >= 0)
            assert_true((double)bias == mox_grid_value(&from[half]->bias, row, 0));
    }
    return at + (present ? tiles_of(p) * TILE * 4 : 0);
}

/* Each product begins on 128 bytes; behind its tiles factors and, with a bias, biases, 128 f32 a tile. */
static void check_weights(const mox_record_shape *shape, const moxie_expert *expert, const uint8_t *record,
                          uint64_t bytes)
{
    const moxie_matrix *const from13[] = { shape->gated ? &expert->gate : &expert->up, &expert->up };
    const moxie_matrix *const from2[] = { &expert->down };
    place p = { &shape->w13, record + 128, shape->intermediate, shape->hidden, shape->gated };
    check_product(&p, from13);
    p = (place) { &shape->w2, check_biases(&p, shape->bias13, from13), shape->hidden, shape->intermediate, false };
    check_product(&p, from2);
    assert_int_equal(bytes, check_biases(&p, shape->bias2, from2) - record);
}

static void check_expert(const mox_record_shape *shape, const test_expert *expert, const char *name)
{
    check_there_and_back(layout(), shape, expert, name, check_weights);
}

/* ---- any expert --------------------------------------------------------------------------------------------- */

static const int64_t row_sizes[] = { 1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 193 };
static const int64_t col_sizes[] = { 1, 15, 31, 32, 33, 63, 64, 65, 96, 97, 127, 128, 129, 200, 257 };

#define PICK(rng, list) (list)[test_below((rng), sizeof(list) / sizeof(list)[0])]

static int most(int a, int b)
{
    return a > b ? a : b;
}

/* Scales that must not change; scales too far below the largest are raised. */
static void fit(const moxie_matrix *m)
{
    for (int64_t r = 0; r < m->scale.rows; r++) {
        int greatest = LEAST_TOP;
        for (int64_t g = 0; g < m->scale.cols; g++)
            greatest = most(greatest, (int)mox_grid_code(&m->scale, r, g));
        for (int64_t g = 0; g < m->scale.cols; g++)
            mox_grid_store(&m->scale, r, g, (uint32_t)most((int)mox_grid_code(&m->scale, r, g), greatest - WINDOW + 1));
    }
}

/* Sets the weights of one group of a scale row to zeros of either sign. */
static void clear_group(test_rng *rng, const moxie_quant *q, const moxie_matrix *m, int64_t r, int64_t g)
{
    const int64_t rows = q->group_rows < 0 ? m->codes.rows : q->group_rows > 1 ? q->group_rows : 1;
    for (int64_t row = r * rows; row < (r + 1) * rows && row < m->codes.rows; row++)
        for (int64_t k = g * GROUP; k < (g + 1) * GROUP && k < m->codes.cols; k++)
            mox_grid_store(&m->codes, row, k, (uint32_t)test_below(rng, 2) * SIGN);
}

/* Scales over the whole window, anywhere in the range of exponents and often at its ends; `far`: groups of zeros with
 * smaller scales. */
static void spread(test_rng *rng, const moxie_quant *q, const moxie_matrix *m, bool far)
{
    const int tops[] = { 0, 1, 6, LEAST_TOP, 8, WINDOW - 1, WINDOW, MOST_FIELD, (int)test_range(rng, 0, MOST_FIELD) };
    for (int64_t r = 0; r < m->scale.rows; r++) {
        const int top = PICK(rng, tops), least = most(most(top, LEAST_TOP) - WINDOW + 1, 0);
        const int64_t first = test_range(rng, 0, m->scale.cols - 1); /* has the largest */
        for (int64_t g = 0; g < m->scale.cols; g++) {
            const bool cleared = far && g != first && test_below(rng, 3) == 0;
            const int64_t any = cleared ? test_range(rng, 0, top) : test_range(rng, least, top);
            mox_grid_store(&m->scale, r, g, (uint32_t)(g == first ? top : any));
            if (cleared)
                clear_group(rng, q, m, r, g);
        }
    }
}

static void fill_scales(test_rng *rng, const moxie_quant *q, const moxie_matrix *m, int how)
{
    if (how == 0)
        fit(m);
    else
        spread(rng, q, m, how == 2);
}

static void check_quant(test_rng *rng, const moxie_quant *quant, test_packing packing)
{
    static const test_fill fills[] = { TEST_FILL_RANDOM, TEST_FILL_RANDOM, TEST_FILL_EXTREME, TEST_FILL_ZERO };
    const bool floats = !is_integer(quant); /* extreme scales of integers are too far apart */
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
                                    .a13 = &test_act_quants[1],
                                    .fill = floats ? PICK(rng, fills) : TEST_FILL_RANDOM };
    const mox_record_shape shape = test_record_shape(&spec);
    test_expert expert;
    const char *rejection = layout()->reject(&shape, reason, sizeof reason);
    if (rejection != NULL)
        fail_msg("%s is rejected: %s", name, rejection);
    test_expert_make(&expert, rng, &spec);
    const int how = (int)test_below(rng, 3);
    if (floats && spec.gated)
        fill_scales(rng, quant, &expert.view.gate, how);
    if (floats) {
        fill_scales(rng, quant, &expert.view.up, how);
        fill_scales(rng, quant, &expert.view.down, how);
    }
    check_expert(&shape, &expert, name);
    test_expert_free(&expert);
}

static void every_form(void **state)
{
    (void)state;
    static const test_packing packings[] = { TEST_DENSE, TEST_INTERLEAVED, TEST_WORDS };
    static const int32_t rows[] = { 0, 1, 3, 20, -1 };
    const uint64_t seed = test_seed(1);
    test_rng rng = { seed };
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 100; i++)
        for (size_t packing = 0; packing < sizeof packings / sizeof packings[0]; packing++) {
            moxie_quant quant = mxfp4;
            quant.group_rows = test_below(&rng, 2) == 0 ? 0 : PICK(&rng, rows);
            check_quant(&rng, &quant, packings[packing]);
        }
    for (int e = 0; e < WINDOW; e++)
        for (int code = 0; code < 16; code++)
            assert_true(met[e][code]);
}

static void every_form_of_integers(void **state)
{
    (void)state;
    static const test_packing packings[] = { TEST_DENSE, TEST_INTERLEAVED, TEST_WORDS };
    static const int32_t groups[] = { 128, 256, -1 };
    test_rng rng = { test_seed(4) };
    for (int i = 0; i < 90; i++) {
        const moxie_quant quant = { .element = i / 3 % 2 == 0 ? MOXIE_I4 : MOXIE_U4B8,
                                    .scale = MOXIE_BF16,
                                    .group_rows = (int32_t)test_below(&rng, 3),
                                    .group_cols = PICK(&rng, groups) };
        check_quant(&rng, &quant, packings[i % 3]);
    }
    for (int code = 0; code < 16; code++)
        assert_true(met_integer[code]);
}

/* ---- parts ------------------------------------------------------------------------------------------------ */

/* Packing from the last part to the first, over other bytes, gives the same record. */
static void check_parts(const mox_record_shape *shape, const test_expert *expert)
{
    enum { MOST = 16 };
    moxie_error error;
    uint64_t bytes = 0, sums[MOST];
    const int64_t parts = mox_record_parts(layout(), shape);
    assert_true(parts > 3 && parts <= MOST);
    assert_true(layout()->record_bytes(shape, &bytes));
    assert_int_equal(layout()->part_at(shape, 0), sizeof(mox_record_header));
    assert_int_equal(layout()->part_at(shape, parts), bytes);
    uint8_t *whole = test_guarded(bytes), *apart = test_guarded(bytes);
    memset(whole, 0x55, bytes);
    memset(apart, 0xaa, bytes);
    assert_ok(mox_record_pack(layout(), shape, 7, &expert->view, whole, &error), &error);
    for (int64_t i = parts - 1; i >= 0; i--)
        assert_ok(mox_record_pack_part(layout(), shape, &expert->view, i, apart, &sums[i], &error), &error);
    mox_record_seal(layout(), shape, 7, &expert->view, apart, sums);
    assert_memory_equal(whole, apart, bytes);
    test_guarded_free(whole, bytes);
    test_guarded_free(apart, bytes);
}

/* Tiles of 200 KB, two of them in a part, and tiles of 26 KB. */
static void parts_come_in_any_order(void **state)
{
    (void)state;
    test_rng rng = { test_seed(3) };
    const test_weight_quant quant = { .name = "mxfp4", .quant = mxfp4 };
    const test_expert_spec spec = {
        .hidden = 3000, .intermediate = 300, .gated = true, .bias2 = true, .w13 = &quant, .w2 = &quant
    };
    const mox_record_shape shape = test_record_shape(&spec);
    test_expert expert;
    test_expert_make(&expert, &rng, &spec);
    fill_scales(&rng, &mxfp4, &expert.view.gate, 2);
    fill_scales(&rng, &mxfp4, &expert.view.up, 1);
    fill_scales(&rng, &mxfp4, &expert.view.down, 2);
    check_expert(&shape, &expert, "mxfp4");
    check_parts(&shape, &expert);
    test_expert_free(&expert);
}

/* ---- sizes ------------------------------------------------------------------------------------------------ */

/* gpt-oss: 2880 columns are 23 chunks, the last with 64 columns of padding; 45 tiles and 22 1/2, and the factors. */
static void sizes_are_known(void **state)
{
    (void)state;
    const mox_record_shape shape = { .hidden = 2880, .intermediate = 2880, .gated = true, .w13 = mxfp4, .w2 = mxfp4 };
    const int64_t chunk_row = CHUNK / 2 + GROUPS;
    mox_hopper_record form;
    uint64_t bytes = 0;
    assert_true(layout()->record_bytes(&shape, &bytes));
    assert_int_equal(bytes, 128 + INT64_C(3) * 2880 * 23 * chunk_row + (45 + 23) * 512);
    assert_true(mox_hopper_form(layout(), &shape, &form));
    assert_int_equal(form.w13.chunks, 23);
    assert_int_equal(form.w13.chunk_cols, CHUNK);
    assert_int_equal(form.w13.chunk_row_bytes, CHUNK / 2);
    assert_int_equal(form.w13.tile_bytes, TILE * 23 * chunk_row);
    assert_int_equal(form.w13.scale_bytes, TILE * GROUPS);
    assert_int_equal(form.w13.scale_shift, 0);
    assert_int_equal(form.w13.scale_blocks, 23);
    assert_int_equal(form.w2.tiles_at, 128 + 45 * TILE * (23 * chunk_row + 4));
    assert_int_equal(form.w2.last_rows, 64);
    assert_int_equal(form.w2.end, bytes);
}

/* ---- what cannot be held ---------------------------------------------------------------------------------- */

static void rejects(const moxie_quant *quant, const char *word)
{
    for (int first = 0; first < 2; first++) {
        char reason[256];
        const mox_record_shape shape = {
            .hidden = 300, .intermediate = 300, .w13 = first ? *quant : mxfp4, .w2 = first ? mxfp4 : *quant
        };
        const char *rejection = layout()->reject(&shape, reason, sizeof reason), *name = first ? "w13" : "w2";
        if (rejection == NULL || strstr(rejection, word) == NULL || strstr(rejection, name) == NULL)
            fail_msg("wanted a rejection of %s with \"%s\", got %s", name, word, rejection ? rejection : "none");
    }
}

static void shapes_are_refused(void **state)
{
    (void)state;
    static const moxie_dtype others[] = { MOXIE_F6_E2M3, MOXIE_F6_E3M2, MOXIE_F8_E4M3, MOXIE_F8_E5M2 };
    static const moxie_dtype scales[] = { MOXIE_F32, MOXIE_BF16, MOXIE_F16, MOXIE_F8_E4M3 };
    static const int32_t groups[] = { 16, 64, 96, 128, -1 };
    moxie_quant q;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        q = mxfp4, q.element = others[i], rejects(&q, "the chunks hold f4_e2m1 with");
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++)
        q = mxfp4, q.scale = scales[i], rejects(&q, "with scales of f8_e8m0 of 32 columns");
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        q = mxfp4, q.group_cols = groups[i], rejects(&q, "those of 32 columns");
    for (int global = MOXIE_GLOBAL_NONE; global <= MOXIE_GLOBAL_DIVIDE; global++)
        rejects(&(moxie_quant) { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E4M3, .group_cols = 16, .global = global },
                "f8_e4m3"); /* NVFP4 */
    q = mxfp4, q.global = MOXIE_GLOBAL_MULTIPLY, rejects(&q, "f4_e2m1");
    q = mxfp4, q.global = MOXIE_GLOBAL_DIVIDE, rejects(&q, "f4_e2m1");
    q = mxfp4, q.has_zero = 1, rejects(&q, "f4_e2m1");
    rejects(&(moxie_quant) { .element = MOXIE_BF16 }, "bf16");
    for (int32_t group = 32; group <= 96; group += 32)
        rejects(&(moxie_quant) { .element = MOXIE_I4, .scale = MOXIE_BF16, .group_cols = group },
                "those of 128, 256, ... or all");
    q = (moxie_quant) { .element = MOXIE_I4, .scale = MOXIE_BF16, .group_cols = 128, .has_zero = 1 };
    rejects(&q, "i4");
    rejects(&(moxie_quant) { .element = MOXIE_U4B8, .scale = MOXIE_F16, .group_cols = 128 }, "u4b8");
    rejects(&(moxie_quant) { .element = MOXIE_I4, .scale = MOXIE_F32, .group_cols = 128 }, "i4");
    rejects(&(moxie_quant) { .element = MOXIE_I8, .scale = MOXIE_F32, .group_cols = -1 }, "i8");
}

/* ---- what is not taken ------------------------------------------------------------------------------------ */

/* Sets the scales of the first groups of a row and of its last, and one code in each; all other codes are 0. */
typedef struct far_case {
    uint32_t first, last, first_code, last_code;
    bool accepted;
} far_case;

static void set_row(const moxie_matrix *m, int64_t scale_row, int64_t row, const far_case *c)
{
    for (int64_t g = 0; g < m->scale.cols; g++)
        mox_grid_store(&m->scale, scale_row, g, g < m->scale.cols - 1 ? c->first : c->last);
    mox_grid_store(&m->codes, row, 5, c->first_code);
    mox_grid_store(&m->codes, row, m->codes.cols - 1, c->last_code);
}

/* Row 16 of one matrix. When three rows share a scale, that is the second row of the group that begins with row 15. */
static void check_taken(test_rng *rng, const far_case *c, int which, int32_t group_rows)
{
    static const char *const names[] = { "gate", "up", "down" };
    test_weight_quant quant = { .name = "mxfp4", .quant = mxfp4 };
    quant.quant.group_rows = group_rows;
    const test_expert_spec spec = {
        .hidden = 150, .intermediate = 150, .gated = true, .w13 = &quant, .w2 = &quant, .fill = TEST_FILL_ZERO
    };
    const mox_record_shape shape = test_record_shape(&spec);
    char reason[256] = "", row[64];
    test_expert expert;
    test_expert_make(&expert, rng, &spec);
    const moxie_matrix *const matrices[] = { &expert.view.gate, &expert.view.up, &expert.view.down };
    for (int i = 0; i < 3; i++)
        fit(matrices[i]);
    set_row(matrices[which], group_rows == 3 ? 5 : 16, 16, c);
    const bool accepted = layout()->accepts(&shape, &expert.view, reason, sizeof reason);
    snprintf(row, sizeof row, "row %d of %s has", group_rows == 3 ? 15 : 16, names[which]);
    if (accepted != c->accepted)
        fail_msg("scales %u and %u of %s, codes %u and %u: %s", c->first, c->last, names[which], c->first_code,
                 c->last_code, accepted ? "taken" : reason);
    if (accepted)
        check_expert(&shape, &expert, "mxfp4");
    else if (strstr(reason, row) == NULL || strstr(reason, "not within 12 powers of two") == NULL)
        fail_msg("wanted \"%s\", got \"%s\"", row, reason);
    test_expert_free(&expert);
}

/* The largest distance that e4m3 bridges, and the smallest that it does not, unless the weights there are zeros. */
static void scales_are_bounded(void **state)
{
    (void)state;
    static const far_case cases[] = {
        { 254, 243, 7, 1, true },  { 254, 242, 7, 1, false }, { 242, 254, 7, 1, false }, { 243, 254, 15, 9, true },
        { 254, 242, 7, 0, true },  { 254, 242, 7, 8, true },  { 254, 242, 7, 9, false }, { 254, 0, 7, 8, true },
        { 254, 0, 0, 1, false },   { 0, 254, 8, 1, true },    { 11, 0, 7, 1, true },     { 12, 0, 7, 1, false },
        { 12, 1, 7, 1, true },     { 12, 0, 7, 8, true },     { 0, 0, 7, 1, true },      { 6, 0, 7, 15, true },
        { 7, 0, 7, 1, true },      { 8, 0, 7, 1, true },      { 255, 254, 1, 1, false }, { 255, 255, 0, 0, false },
        { 120, 255, 0, 0, false }, { 255, 0, 0, 0, false },
    };
    static const int32_t group_rows[] = { 0, 1, 3 };
    test_rng rng = { test_seed(2) };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t j = 0; j < sizeof group_rows / sizeof group_rows[0]; j++)
            check_taken(&rng, &cases[i], (int)test_below(&rng, 3), group_rows[j]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_form),
                                        cmocka_unit_test(every_form_of_integers),
                                        cmocka_unit_test(parts_come_in_any_order),
                                        cmocka_unit_test(sizes_are_known),
                                        cmocka_unit_test(shapes_are_refused),
                                        cmocka_unit_test(scales_are_bounded) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
