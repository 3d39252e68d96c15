/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_codes.c - the elements that layouts of codes hold, and which weights have words or blocks (hopper_codes.h).
 */
#include "pack/hopper/hopper_codes.h"

#include "pack/hopper/hopper_moves.h"

static const mox_hopper_element *element_of(const mox_hopper_product *p)
{
    static const mox_hopper_element elements[] = {
        { MOXIE_F4_E2M1, false, 126, 1 }, { MOXIE_F8_E4M3, false, 120, 9 }, { MOXIE_F8_E5M2, false, 112, 16 },
        { MOXIE_F6_E2M3, false, 126, 3 }, { MOXIE_F6_E3M2, false, 124, 4 }, { MOXIE_I4, true, 129, 0 },
        { MOXIE_U4B8, true, 129, 0 },     { MOXIE_I8, true, 133, 0 },       { MOXIE_U8B128, true, 133, 0 },
    };
    for (size_t i = 0; i < sizeof elements / sizeof elements[0]; i++)
        if (elements[i].dtype == p->quant->element)
            return &elements[i];
    return NULL;
}

/* 8-bit floats with a scale for blocks of columns that no multiplier holds: kernels multiply sums by it. */
bool mox_hopper_has_block_scales(const moxie_quant *q, int64_t cols)
{
    const bool floats = q->element == MOXIE_F8_E4M3 || q->element == MOXIE_F8_E5M2;
    const bool scales = q->scale == MOXIE_F32 || q->scale == MOXIE_BF16 || q->scale == MOXIE_F8_E8M0;
    const int32_t group = q->group_cols;
    return floats && scales && q->global == MOXIE_GLOBAL_NONE && group >= MOX_HOPPER_CODE_COLS && group < cols &&
           (group & (group - 1)) == 0;
}

bool mox_hopper_has_words(const moxie_quant *q, int64_t cols)
{
    const int bits = mox_dtype_bits(q->element);
    if (mox_format_of(q->element) == NULL || mox_format_of(q->element)->kind != MOX_KIND_INTEGER)
        return false;
    if (bits == 4)
        return q->has_zero && q->scale == MOXIE_BF16;
    if (mox_group_cols(q, cols) >= cols)
        return q->has_zero && (q->scale == MOXIE_F32 || q->scale == MOXIE_BF16 || q->scale == MOXIE_F16);
    return q->scale == MOXIE_F16 || (q->scale == MOXIE_BF16 && q->has_zero);
}

void mox_hopper_classify(mox_hopper_product *p)
{
    const moxie_quant *q = p->quant;
    p->super = mox_hopper_block_of(q->element);
    p->bits = p->super.bits > 0 ? p->super.bits : mox_dtype_bits(q->element);
    p->words = p->to_fp8           ? (mox_hopper_words) { mox_hopper_fp8_order((int)q->element), 8 }
               : p->super.bits > 0 ? (mox_hopper_words) { p->super.order, p->bits }
                                   : (mox_hopper_words) { (int32_t)q->element, p->bits };
    p->element = element_of(p);
    p->is_mx = q->scale == MOXIE_F8_E8M0 && q->group_cols == 32 && p->element != NULL && !p->element->integer;
    p->is_by_row = p->bits == 8 && !p->is_mx && mox_group_cols(q, p->cols) >= p->cols;
    p->has_window = p->to_fp8 && q->element == MOXIE_F4_E2M1;
    p->has_words = !p->to_fp8 && mox_hopper_has_words(q, p->cols);
    p->has_blocks = !p->to_fp8 && mox_hopper_has_block_scales(q, p->cols);
}
