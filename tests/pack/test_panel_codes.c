/* SPDX-License-Identifier: Apache-2.0
 *
 * test_panel_codes.c - the orders of codes in panels: single codes at places computed by hand, and equal bytes from
 * vectors of every width.
 */
#include "base/cpu_features.h"
#include "pack/layout.h"
#include "pack/panel/panel_codes.h"
#include "pack/panel/panel_codes_tmpl.h"
#include "test_support.h"

/* ---- places worked out by hand ---------------------------------------------------------------------------- */

typedef struct known_place {
    moxie_dtype element;
    int row, col;
    uint32_t code;
    int byte;       /* behind the header: one panel, its steps, then scales */
    uint32_t bytes; /* little-endian, from there */
} known_place;

/* Row 17 is in the second panel of an ungated matrix of 20 rows and 40 columns: two steps a panel. */
static const known_place known_places[] = {
    { MOXIE_BF16, 0, 1, 0x3f80, 2, 0x3f80 },
    { MOXIE_BF16, 3, 2, 0x4049, 64 + 12, 0x4049 },
    { MOXIE_BF16, 15, 31, 0xbeef, 15 * 64 + 62, 0xbeef },
    { MOXIE_BF16, 17, 33, 0x1234, 2048 + 1024 + 6, 0x1234 },
    { MOXIE_F16, 1, 0, 0x3c00, 2, 0x3c00 },
    { MOXIE_F16, 0, 1, 0x3c00, 32, 0x3c00 },
    { MOXIE_F16, 15, 31, 0xabcd, 15 * 64 + 62, 0xabcd },
    { MOXIE_F16, 17, 34, 0x1234, 2048 + 1024 + 64 + 2, 0x1234 },
    { MOXIE_I8, 0, 3, 0x7f, 3, 0x7f },
    { MOXIE_I8, 2, 5, 0x81, 64 + 8 + 1, 0x81 },
    { MOXIE_I8, 17, 39, 0x42, 2 * 512 + 64 + 512 + 64 + 4 + 3, 0x42 },
    { MOXIE_F8_E4M3, 0, 1, 0x38, 1, 0x38 },
    { MOXIE_F8_E4M3, 1, 0, 0x38, 2, 0x38 },
    { MOXIE_F8_E4M3, 0, 2, 0x38, 8, 0x38 },
    { MOXIE_F8_E4M3, 6, 7, 0x38, 64 + 16 + 8 + 4 + 1, 0x38 },
    { MOXIE_F4_E2M1, 0, 0, 0x5, 0, 0x05 },
    { MOXIE_F4_E2M1, 0, 1, 0x5, 2, 0x05 },
    { MOXIE_F4_E2M1, 0, 2, 0x5, 0, 0x50 },
    { MOXIE_F4_E2M1, 1, 7, 0xa, 4 + 3, 0xa0 },
    { MOXIE_F4_E2M1, 15, 31, 0xa, 3 * 64 + 63, 0xa0 },
    { MOXIE_F4_E2M1, 17, 36, 0x9, 2 * 256 + 64 + 256 + 4 + 1, 0x09 },
    { MOXIE_F6_E3M2, 0, 4, 0x0f, 1, 0x0f },
    { MOXIE_F6_E3M2, 0, 0, 0x30, 256, 0x03 },
    { MOXIE_F6_E3M2, 0, 1, 0x30, 256 + 2, 0x03 },
    { MOXIE_F6_E3M2, 2, 31, 0x20, 256 + 64 + 8 + 3, 0x80 },
};

static void known_places_hold(void **state)
{
    (void)state;
    const mox_layout *layout = mox_layout_by_name("panel16");
    for (size_t i = 0; i < sizeof known_places / sizeof known_places[0]; i++) {
        const known_place *p = &known_places[i];
        const bool plain = mox_dtype_bits(p->element) == 16;
        const moxie_quant quant = { .element = p->element, .scale = plain ? MOXIE_DTYPE_NONE : MOXIE_F8_E8M0 };
        const mox_record_shape shape = { .hidden = 40, .intermediate = 20, .w13 = quant, .w2 = quant };
        uint8_t codes[20 * 40 * 2] = { 0 }, down[40 * 20 * 2] = { 0 }, scales[40] = { 0 }, record[20 * 1024];
        moxie_expert expert = { .up.codes = mox_grid_dense(codes, p->element, 20, 40),
                                .down.codes = mox_grid_dense(down, p->element, 40, 20) };
        if (!plain) {
            expert.up.scale = mox_grid_dense(scales, MOXIE_F8_E8M0, 20, 1);
            expert.down.scale = mox_grid_dense(scales, MOXIE_F8_E8M0, 40, 1);
        }
        mox_grid_store(&expert.up.codes, p->row, p->col, p->code);
        uint64_t bytes = 0;
        moxie_error error;
        assert_true(layout->record_bytes(&shape, &bytes));
        assert_true(bytes <= sizeof record);
        assert_ok(mox_record_pack(layout, &shape, 0, &expert, record, &error), &error);
        const int count = plain ? 2 : 1;
        for (uint64_t b = 64; b < bytes; b++) {
            const int64_t into = (int64_t)b - 64 - p->byte;
            const uint8_t want = into >= 0 && into < count ? (uint8_t)(p->bytes >> 8 * into) : 0;
            if (record[b] != want)
                fail_msg("%s row %d column %d: byte %d is 0x%02x, not 0x%02x", mox_dtype_name(p->element), p->row,
                         p->col, (int)b - 64, record[b], want);
        }
    }
}

/* ---- vectors of other widths ------------------------------------------------------------------------------ */

/* The template as this file compiles it (baseline), against the functions of panel_codes_avx2.c. */
static void widths_agree(void **state)
{
    (void)state;
    enum { STEPS = 3, BYTES = STEPS * 1024, STRIDE = 64 * STEPS + 4 };
    test_rng rng = { 6 };
    static uint8_t from[16 * 1024], a[BYTES], b[BYTES];
    if (mox_cpu()->best < MOX_ISA_AVX2) {
        print_message("skipped: this processor has no AVX2\n");
        skip();
    }
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)test_u64(&rng);
    for (mox_panel_order order = MOX_PANEL_PAIRS; order <= MOX_PANEL_PLANES; order++) {
        static uint8_t rows[16 * STRIDE], other[16 * STRIDE];
        pack_order(order, from, STRIDE, STEPS, a);
        mox_panel_codes_pack_avx2(order, from, STRIDE, STEPS, b);
        assert_memory_equal(a, b, STEPS * mox_panel_step_bytes(order));
        unpack_order(order, a, STEPS, rows, STRIDE);
        mox_panel_codes_unpack_avx2(order, a, STEPS, other, STRIDE);
        assert_memory_equal(rows, other, sizeof rows);
        pack_columns_order(order, from, 68, STEPS, a);
        mox_panel_codes_pack_columns_avx2(order, from, 68, STEPS, b);
        assert_memory_equal(a, b, STEPS * 256);
    }
    for (int awq = 0; awq < 2; awq++)
        for (int apart = 4; apart <= 8; apart += 4) {
            pack_rows_order(awq, from, apart, 20, STEPS, a);
            mox_panel_codes_pack_rows_avx2(awq, from, apart, 20, STEPS, b);
            assert_memory_equal(a, b, STEPS * 256);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_places_hold),
        cmocka_unit_test(widths_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
