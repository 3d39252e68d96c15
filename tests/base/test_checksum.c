/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checksum.c - the scalar and the AVX2 checksum give the same numbers, which are those that the authors of XXH3
 * publish.
 */
#include "test_support.h"

#include "base/checksum.h"
#include "base/cpu_features.h"

typedef struct published {
    uint64_t bytes, sum;
} published;

/* From the self-test of xxHash's command-line tool (cli/xsum_sanity_check.c), seed 0. */
static const published sums[] = {
    { 0, 0x2d06800538d394c2u },   { 1, 0xc44bdff4074eecdbu },    { 403, 0xcdeb804d65c6dea4u },
    { 512, 0x617e49599013cb6bu }, { 2048, 0xdd59e2c3a5f038e0u }, { 2367, 0xcb37aeb9e5d361edu },
};

static void published_numbers(void **state)
{
    (void)state;
    unsigned char text[2367];
    uint64_t generator = 2654435761u;
    for (size_t i = 0; i < sizeof text; i++, generator *= 11400714785074694797u)
        text[i] = (unsigned char)(generator >> 56);
    for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) {
        assert_true(mox_checksum(text, sums[i].bytes) == sums[i].sum);
        if (mox_cpu()->best >= MOX_ISA_AVX2)
            assert_true(mox_checksum_avx2(text, sums[i].bytes) == sums[i].sum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(published_numbers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
