/* SPDX-License-Identifier: Apache-2.0
 *
 * test_vendor_triton.c - what Triton's MXFP4 kernels read, by literal examples of the published layouts, and decoded
 * as the kernels decode it. Rows, limits and undo of whole experts are compared in test_vendor.c.
 */
#include "pack/vendor/vendor_twiddle.h"
#include "test_support.h"

static void four_bytes_are_twiddled_as_published(void **state)
{
    (void)state;
    static const struct {
        uint32_t bytes, word;
    } examples[] = {
        { 0x0000000f, 0x000081c0 }, { 0x000000f0, 0x81c00000 }, { 0x00000f00, 0x00001038 },
        { 0x000f0000, 0x00000207 }, { 0x0f000000, 0x00006c00 }, { 0x87654321, 0x40a62c5d },
    };
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        assert_int_equal(mox_twiddle4(examples[i].bytes), examples[i].word);
        assert_int_equal(mox_untwiddle4(examples[i].word), examples[i].bytes);
    }
}

/* The kernel's way to slot `slot`: a pair of bf16, low nibble in the low half, each 2^-126 of its value. */
static uint32_t decode_slot(uint32_t word, int slot)
{
    const uint32_t mask = 0x81c081c0u;
    switch (slot) {
    case 0: return word & mask;
    case 1: return word << 3 & mask;
    case 2: return word << 6 & mask;
    default: return (word << 1 & 0x80008000u) | (word >> 3 & 0x01800180u) | (word >> 7 & 0x00400040u);
    }
}

static void a_kernel_decodes_every_code_in_every_place(void **state)
{
    (void)state;
    test_rng rng = { test_seed(1) };
    for (int tries = 0; tries < 20000; tries++) {
        const uint32_t bytes = (uint32_t)test_u64(&rng), word = mox_twiddle4(bytes);
        assert_int_equal(mox_untwiddle4(word), bytes);
        for (int nibble = 0; nibble < 8; nibble++) {
            const uint32_t half = decode_slot(word, nibble / 2) >> (nibble % 2 * 16) & 0xffff;
            const float want = moxie_decode(MOXIE_F4_E2M1, bytes >> (4 * nibble) & 15);
            assert_true(moxie_decode(MOXIE_BF16, half) * 0x1p126f == want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_bytes_are_twiddled_as_published),
        cmocka_unit_test(a_kernel_decodes_every_code_in_every_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
