/* SPDX-License-Identifier: Apache-2.0
 *
 * word_slot.h - which place in a word of a packing an element has (grid.c draws them).
 */
#ifndef MOX_QUANT_WORD_SLOT_H
#define MOX_QUANT_WORD_SLOT_H

#include <moxie/moxie.h>

/* Element i of the word lies in the `slot`-th lowest bits. */
static inline int64_t mox_word_slot(const moxie_packing *packing, int64_t i)
{
    static const uint8_t awq_nibble[8] = { 0, 4, 1, 5, 2, 6, 3, 7 };
    return packing->order == MOXIE_ORDER_AWQ ? awq_nibble[i] : i;
}

#endif
