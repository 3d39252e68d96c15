/* SPDX-License-Identifier: Apache-2.0
 *
 * element_traits.h - the rows of element_traits.def as a function. With a constant `element` the result is a constant,
 * too. So an instance of a kernel that is written for all formats keeps only the code of its format.
 *
 *     mox_element_traits_of(MOXIE_I4).sign_bit     8
 *
 * A number format without a row has no traits: order NONE. Panels hold it all the same (mox_panel_order_of), and
 * kernels that decode any format of its order multiply it.
 */
#ifndef MOX_PACK_ELEMENT_TRAITS_H
#define MOX_PACK_ELEMENT_TRAITS_H

#include "pack/panel/panel.h"

/* Meanings: element_traits.def. */
typedef struct mox_element_traits {
    mox_panel_order order;
    moxie_dtype like, like_zeros;
    uint8_t sign_bit;
    float unit;
    int32_t min, max;
} mox_element_traits;

static inline __attribute__((always_inline)) mox_element_traits mox_element_traits_of(moxie_dtype element)
{
    switch (element) {
#define MOX_ELEMENT(dtype, order_, like_, like_zeros_, sign_bit_, unit_, min_, max_)                                   \
    case dtype:                                                                                                        \
        return (mox_element_traits) { .order = order_,                                                                 \
                                      .like = like_,                                                                   \
                                      .like_zeros = like_zeros_,                                                       \
                                      .sign_bit = sign_bit_,                                                           \
                                      .unit = unit_,                                                                   \
                                      .min = min_,                                                                     \
                                      .max = max_ };
#include "pack/panel/element_traits.def"
#undef MOX_ELEMENT
    default: return (mox_element_traits) { .order = MOX_PANEL_NONE };
    }
}

/* sign_bit in every code of a byte. */
static inline __attribute__((always_inline)) uint8_t mox_element_sign_bits(moxie_dtype element)
{
    const mox_element_traits traits = mox_element_traits_of(element);
    return (uint8_t)(traits.order == MOX_PANEL_NIBBLES ? traits.sign_bit * 0x11 : traits.sign_bit);
}

/* True when the decoder of `decoded` is written for `element`, or serves it, too. */
static inline bool mox_element_decodes_as(moxie_dtype element, bool zeros, moxie_dtype decoded)
{
    const mox_element_traits traits = mox_element_traits_of(element);
    return element == decoded || (zeros ? traits.like_zeros : traits.like) == decoded;
}

#endif
