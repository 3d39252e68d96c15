/* SPDX-License-Identifier: Apache-2.0
 *
 * test_block_parts.c - every row of block_fields.def, on random blocks and on blocks of extreme bytes:
 *     join(split(block)) is the block, and every byte of it
 *     d s (level(code) - offset) -+ m t is what the type's decoder says, bit for bit, and so is mox_block_weight(),
 *     which device code calls
 */
#include <math.h>

#include "format/block_parts.h"
#include "test_support.h"

/* The formula of block_fields.def in double, rounded once: products are exact, and so is no sum. */
static float weight_of(const mox_block_fields *f, const mox_block_parts *p, int32_t i)
{
    static const int levels[16] = { 1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241 };
    const int32_t run = i / f->run, level = f->levels ? levels[p->code[i]] : p->code[i];
    double s = 1, t = 1;
    if (f->integers == MOX_BLOCK_NIBBLES) {
        s = p->s[run] & 15;
        t = p->s[run] >> 4;
    } else if (f->integers != MOX_BLOCK_NONE) {
        s = (int8_t)p->s[run];
        t = mox_block_has_minimum_integers(f->integers) ? p->t[run] : 0;
    }
    const double product = (double)mox_block_f16(p->d) * s * (level - f->offset);
    if (f->m_at < 0)
        return (float)product;
    return (float)(product + f->m_sign * (double)mox_block_f16(p->m) * t);
}

static void random_block(test_rng *rng, const mox_block_fields *f, int32_t size, uint8_t *block)
{
    static const uint16_t halves[] = { 0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0x7e01 };
    const bool extreme = test_below(rng, 4) == 0;
    for (int32_t i = 0; i < size; i++)
        block[i] = extreme ? (uint8_t)(test_below(rng, 2) ? 0xff : 0) : (uint8_t)test_below(rng, 256);
    for (int half = 0; half < 2; half++) {
        const int32_t at = half == 0 ? f->d_at : f->m_at;
        const uint16_t value = halves[test_below(rng, sizeof halves / sizeof halves[0])];
        if (at >= 0 && test_below(rng, 2) == 0)
            memcpy(block + at, &value, sizeof value);
    }
}

static void compare(const mox_block *type, int32_t i, float got, float want)
{
    if (memcmp(&got, &want, sizeof got) != 0 && !(isnan(got) && isnan(want)))
        fail_msg("%s weight %d is %a, not %a", type->format.name, (int)i, (double)got, (double)want);
}

static void each_type(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(41);
    print_message("seed %llu\n", (unsigned long long)seed);
    test_rng rng = { seed };
    for (int32_t row = 0; mox_block_fields_at(row) != NULL; row++) {
        const mox_block_fields *f = mox_block_fields_at(row);
        const mox_block *type = mox_block_of(f->dtype);
        assert_non_null(type);
        assert_ptr_equal(mox_block_fields_of(f->dtype), f);
        for (int round = 0; round < 300; round++) {
            uint8_t block[256], back[256];
            float want[MOX_BLOCK_MAX];
            mox_block_parts parts;
            random_block(&rng, f, type->bytes, block);
            memset(&parts, 0xa5, sizeof parts);
            memset(back, 0x5a, sizeof back);
            mox_block_split(f, block, &parts);
            mox_block_join(f, &parts, back);
            assert_memory_equal(block, back, (size_t)type->bytes);
            type->decode(block, want);
            for (int32_t i = 0; i < type->weights; i++) {
                compare(type, i, weight_of(f, &parts, i), want[i]);
                compare(type, i, mox_block_weight(f, block, i), want[i]);
            }
        }
    }
    assert_null(mox_block_fields_of(MOXIE_BF16));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_type) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
