/* SPDX-License-Identifier: Apache-2.0
 *
 * test_element_traits.c - the rows of element_traits.def agree with what the number formats' own functions say.
 */
#include "pack/panel/element_traits.h"

#include "format/format.h"
#include "test_support.h"

static const moxie_dtype listed[] = {
#define MOX_ELEMENT(dtype, ...) dtype,
#include "pack/panel/element_traits.def"
#undef MOX_ELEMENT
};
enum { LISTED = sizeof listed / sizeof listed[0] };

static void orders_are_as_wide_as_the_codes(void **state)
{
    (void)state;
    static const int32_t bits[] = { [MOX_PANEL_PAIRS] = 16, [MOX_PANEL_HALVES] = 16, [MOX_PANEL_QUADS] = 8,
                                    [MOX_PANEL_ZIPPED] = 8, [MOX_PANEL_NIBBLES] = 4, [MOX_PANEL_PLANES] = 6 };
    for (int i = 0; i < LISTED; i++) {
        const mox_element_traits traits = mox_element_traits_of(listed[i]);
        assert_int_equal(bits[traits.order], mox_format_of(listed[i])->bits);
        assert_int_equal(traits.order, mox_panel_order_of(listed[i]));
        assert_int_equal(traits.order, mox_element_traits_of(traits.like).order);
    }
}

/* Without its sign bit a code of an integer format counts from the least value. */
static void codes_count_from_the_least_value(void **state)
{
    (void)state;
    for (int i = 0; i < LISTED; i++) {
        const mox_format *format = mox_format_of(listed[i]);
        const mox_element_traits traits = mox_element_traits_of(listed[i]);
        for (uint32_t code = 0; format->kind == MOX_KIND_INTEGER && code < 1u << format->bits; code++) {
            const float least = -(float)(1 << (format->bits - 1));
            assert_true(format->decode(code) - least == (float)(code ^ traits.sign_bit));
        }
    }
}

static void values_are_integers_times_the_unit(void **state)
{
    (void)state;
    for (int i = 0; i < LISTED; i++) {
        const mox_format *format = mox_format_of(listed[i]);
        const mox_element_traits traits = mox_element_traits_of(listed[i]);
        int32_t min = 0, max = 0;
        for (uint32_t code = 0; traits.unit != 0 && code < 16; code++) {
            const float count = format->decode(code) / traits.unit;
            assert_true(count == (float)(int32_t)count);
            min = (int32_t)count < min ? (int32_t)count : min;
            max = (int32_t)count > max ? (int32_t)count : max;
        }
        assert_int_equal(min, traits.min);
        assert_int_equal(max, traits.max);
        assert_in_range(max - min, 0, 24);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_are_as_wide_as_the_codes),
        cmocka_unit_test(codes_count_from_the_least_value),
        cmocka_unit_test(values_are_integers_times_the_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
