/* SPDX-License-Identifier: Apache-2.0
 *
 * test_block_panels.c - block types in layout panel16: every weight found in the record where block_panel.h says, for
 * each row of block_fields.def and block_levels.def; unpack(pack(w)) == w, byte by byte; at most 5 % more bytes than
 * the file; rows that are no whole blocks are rejected.
 */
#include <math.h>

#include "format/block_levels.h"
#include "format/block_parts.h"
#include "packed_record.h"
#include "pack/panel/panel.h"

static float half_at(const uint8_t *at)
{
    return mox_f16_decode((uint32_t)at[0] | (uint32_t)at[1] << 8);
}

/* The bits of row n, column k of a step in a plane, from the drawing. */
static int plane_bits(const uint8_t *plane, int bits, int n, int k)
{
    const int fields = 8 / bits, u = k / (4 * fields), f = k / 4 % fields, v = k % 4;
    const int h = n / 8, half_row = n % 8, lane = half_row / 4, r = half_row % 4;
    return plane[(2 * u + h) * 32 + 16 * lane + 4 * v + r] >> f * bits & ((1 << bits) - 1);
}

/* The weight in row n of a panel, column k. */
static float weight_at(const mox_block_fields *f, const uint8_t *panel, int n, int64_t k)
{
    static const int levels[16] = { 1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241 };
    const int weights = mox_block_of(f->dtype)->weights, runs = f->integers == MOX_BLOCK_NONE ? 0 : weights / f->run;
    const int bits = f->low.bits + f->high.bits, halves = f->m_at >= 0 ? 2 : 1;
    const int minimums = f->integers == MOX_BLOCK_SIX_AND_SIX ? runs : 0;
    const int step_bytes = 64 * bits, block_bytes = 32 * halves + 16 * (runs + minimums) + weights / 32 * step_bytes;
    const uint8_t *blocks = panel + k / weights * block_bytes, *s_at = blocks + 32 * halves;
    const uint8_t *step = s_at + 16 * (runs + minimums) + k % weights / 32 * step_bytes;
    int code = plane_bits(step, f->low.bits, n, (int)(k % 32));
    double s = 1, t = 1;
    if (f->high.bits > 0)
        code |= plane_bits(step + 64 * f->low.bits, f->high.bits, n, (int)(k % 32)) << f->low.bits;
    if (runs > 0) {
        const int64_t at = k % weights / f->run * 16 + n;
        s = f->integers == MOX_BLOCK_NIBBLES ? s_at[at] & 15 : (int8_t)s_at[at];
        t = f->integers == MOX_BLOCK_NIBBLES ? s_at[at] >> 4 : s_at[16 * runs + at];
    }
    const double product = (double)half_at(blocks + 2 * n) * s * ((f->levels ? levels[code] : code) - f->offset);
    return (float)(f->m_at < 0 ? product : product + f->m_sign * (double)half_at(blocks + 32 + 2 * n) * t);
}

/* The same for blocks that lie as in the file. */
static float weight_in_block(const mox_block *type, const uint8_t *panel, int n, int64_t k)
{
    float values[MOX_BLOCK_MAX];
    type->decode(panel + (k / type->weights * 16 + n) * type->bytes, values);
    return values[k % type->weights];
}

static void check_matrix(const mox_panel_matrix *m, const moxie_matrix *from, int64_t panel, int64_t row)
{
    const mox_block_fields *f = mox_block_fields_of(from->codes.dtype);
    for (int64_t n = 0; n < 16 && row + n < from->codes.rows; n++)
        for (int64_t k = 0; k < from->codes.cols; k++) {
            const float want = (float)mox_grid_value(&from->codes, row + n, k);
            const uint8_t *at = m->panels + (uint64_t)panel * m->panel_bytes;
            const float got = f != NULL ? weight_at(f, at, (int)n, k)
                                        : weight_in_block(mox_block_of(from->codes.dtype), at, (int)n, k);
            if (memcmp(&got, &want, sizeof got) != 0 && !(isnan(got) && isnan(want)))
                fail_msg("%s row %d column %d is %a, not %a", moxie_dtype_name(from->codes.dtype), (int)(row + n),
                         (int)k, (double)got, (double)want);
        }
}

static void check_weights(const mox_record_shape *shape, const moxie_expert *expert, const uint8_t *record,
                          uint64_t bytes)
{
    mox_panel_record open;
    (void)bytes;
    mox_panel_open(shape, record, &open);
    for (int64_t p = 0; p < open.w13.count; p++)
        check_matrix(&open.w13, p % 2 == 0 ? &expert->gate : &expert->up, p, p / 2 * 16);
    for (int64_t p = 0; p < open.w2.count; p++)
        check_matrix(&open.w2, &expert->down, p, p * 16);
}

static void each_type(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(51);
    test_rng rng = { seed };
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < test_block_quant_count; i++) {
        const test_weight_quant *which = &test_block_quants[i];
        const mox_block *type = mox_block_of(which->quant.element);
        const int64_t unit = type->weights;
        const test_expert_spec spec = { .hidden = unit * test_range(&rng, 1, 2),
                                        .intermediate = unit < 128 ? unit * test_range(&rng, 1, 3) : unit,
                                        .gated = true,
                                        .bias2 = true,
                                        .w13 = which,
                                        .w2 = which,
                                        .fill = (test_fill)(i % TEST_FILLS == TEST_FILL_ZERO ? 0 : i % TEST_FILLS) };
        const mox_record_shape shape = test_record_shape(&spec);
        test_expert expert;
        test_expert_make(&expert, &rng, &spec);
        check_there_and_back(&mox_layout_panel16, &shape, &expert, which->name, check_weights);
        test_expert_free(&expert);
    }
}

static void sizes(void **state)
{
    (void)state;
    char reason[256];
    for (int i = 0; i < test_block_quant_count; i++) {
        const moxie_quant *q = &test_block_quants[i].quant;
        const mox_block *type = mox_block_of(q->element);
        const mox_record_shape shape = { .hidden = 2048, .intermediate = 768, .gated = true, .w13 = *q, .w2 = *q };
        const mox_record_shape odd = { .hidden = 2048 + 16, .intermediate = 768, .gated = true, .w13 = *q, .w2 = *q };
        uint64_t bytes = 0;
        assert_null(mox_layout_panel16.reject(&shape, reason, sizeof reason));
        assert_true(mox_layout_panel16.record_bytes(&shape, &bytes));
        const double file = 3.0 * 2048 * 768 / type->weights * type->bytes;
        assert_in_range(bytes, (uint64_t)file, (uint64_t)(1.05 * file));
        const char *why = mox_layout_panel16.reject(&odd, reason, sizeof reason);
        assert_non_null(why);
        assert_non_null(strstr(why, "2064"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_type), cmocka_unit_test(sizes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
