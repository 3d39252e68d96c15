/* SPDX-License-Identifier: Apache-2.0
 *
 * test_layer_formats.c - which formats of weights and activations a random layer gets, within its limits
 * (test_layer.h): some limits allow only what certain GPU kernels accept.
 */
#include "test_layer.h"

/* Weights that tensor cores multiply by activations of the same format: FP8, and integers. */
static bool is_of_bytes(const moxie_quant *quant)
{
    return quant->element == MOXIE_F8_E4M3 || quant->element == MOXIE_I8;
}

/* The same, and weights that they multiply by numbers of `dtype`. */
static bool is_for_mma(const moxie_quant *quant, moxie_dtype dtype)
{
    if (!is_of_bytes(quant))
        return quant->element == dtype;
    return !quant->has_zero &&
           (quant->group_cols == -1 || (quant->group_cols == 128 && quant->element == MOXIE_F8_E4M3));
}

/* FP8 with scales of blocks of whole chunks. */
static bool is_fp8_of_blocks(const moxie_quant *q)
{
    return (q->element == MOXIE_F8_E4M3 || q->element == MOXIE_F8_E5M2) && q->group_cols >= 64 &&
           (q->group_cols & (q->group_cols - 1)) == 0;
}

/* Integers with scales that are f16, or have zero points: with tokens of bf16 those multiply sums. A scale of a row of
 * bytes is its factor, of any type; then only zero points ask for that. */
static bool is_int_of_sums(const moxie_quant *q)
{
    const bool scales = q->scale == MOXIE_F16 || (q->scale == MOXIE_BF16 && q->has_zero);
    if (q->element == MOXIE_I8 || q->element == MOXIE_U8B128)
        return q->group_cols == -1 ? q->has_zero != 0 : scales;
    return scales && (q->element == MOXIE_I4 || q->element == MOXIE_U4B8);
}

/* Block types that kernels on tiles decode. */
static bool is_block_of_sums(const moxie_quant *q)
{
    return (q->element >= MOX_BLOCK_DTYPE + 12 && q->element <= MOX_BLOCK_DTYPE + 14) ||
           q->element == MOX_BLOCK_DTYPE + 23; /* q4_k, q5_k, q6_k, iq4_xs */
}

bool test_layer_decodes_to(const moxie_quant *q, moxie_dtype dtype)
{
    if (is_block_of_sums(q))
        return dtype == MOXIE_BF16;
    const bool by_row = q->group_cols == -1, mx = q->scale == MOXIE_F8_E8M0 && q->group_cols == 32;
    if (q->element == MOXIE_F6_E2M3 || q->element == MOXIE_F6_E3M2)
        return dtype == MOXIE_BF16;
    if (q->element == MOXIE_F8_E4M3 || q->element == MOXIE_F8_E5M2)
        return dtype == MOXIE_BF16 && (by_row || mx || is_fp8_of_blocks(q));
    if (q->element == MOXIE_I8 || q->element == MOXIE_U8B128)
        return dtype == MOXIE_BF16 && (is_int_of_sums(q) || ((by_row || q->scale == MOXIE_BF16) && !q->has_zero));
    if (q->element == MOXIE_F4_E2M1)
        return dtype == MOXIE_BF16 && (q->scale == MOXIE_F8_E8M0 || q->scale == MOXIE_F8_E4M3);
    if (is_int_of_sums(q))
        return dtype == MOXIE_BF16 || dtype == q->scale;
    return (q->element == MOXIE_I4 || q->element == MOXIE_U4B8) && q->scale == dtype && !q->has_zero;
}

static bool is_mxfp4(const moxie_quant *q)
{
    return q->element == MOXIE_F4_E2M1 && q->scale == MOXIE_F8_E8M0;
}

/* 4-bit integers that become FP8: their scales multiply sums of whole chunks. */
static bool is_int4_of_chunks(const moxie_quant *q)
{
    return (q->element == MOXIE_I4 || q->element == MOXIE_U4B8) && q->scale == MOXIE_BF16 && !q->has_zero &&
           (q->group_cols == -1 || q->group_cols == 128);
}

static bool is_fp8_of_rows(const moxie_quant *q)
{
    return q->element == MOXIE_F8_E4M3 && q->scale == MOXIE_F32 && q->group_cols == -1;
}

static bool is_fp8_of_chunks(const moxie_quant *q)
{
    return q->element == MOXIE_F8_E4M3 && q->scale == MOXIE_F32 && q->group_cols == 128;
}

bool test_layer_decodes(const moxie_quant *weight)
{
    return test_layer_decodes_to(weight, MOXIE_BF16) || test_layer_decodes_to(weight, MOXIE_F16);
}

const test_weight_quant *test_layer_any_weight(test_rng *rng, const test_layer_limits *limits, moxie_dtype dtype)
{
    const test_weight_quant *weight;
    if (limits->weight != NULL)
        return limits->weight;
    do
        weight = &test_weight_quants[test_below(rng, (uint64_t)test_weight_quant_count)];
    while ((limits->mma && !is_for_mma(&weight->quant, dtype)) ||
           (limits->decoded && !test_layer_decodes_to(&weight->quant, dtype)) ||
           (limits->decoded_acts &&
            (!test_layer_decodes_to(&weight->quant, MOXIE_BF16) || is_int_of_sums(&weight->quant))) ||
           (limits->to_fp8 && !is_mxfp4(&weight->quant) && !is_int4_of_chunks(&weight->quant)) ||
           (limits->blocks && !is_fp8_of_blocks(&weight->quant) && !is_int_of_sums(&weight->quant)) ||
           (limits->short_groups && weight->quant.element != MOXIE_F4_E2M1));
    return weight;
}

bool test_layer_decodes_acts(const moxie_quant *act)
{
    return act->element != MOXIE_DTYPE_NONE &&
           (act->group_cols == -1 || (act->scale != MOXIE_F32 && act->scale != MOXIE_F16) ||
            act->rule == MOXIE_RULE_UE8M0);
}

/* Half of the layers do not quantize activations, like half of all checkpoints. */
const test_act_quant *test_layer_any_act(test_rng *rng, const test_layer_limits *limits,
                                         const test_weight_quant *weight)
{
    const test_act_quant *act = &test_act_quants[0];
    const bool bytes = is_of_bytes(&weight->quant);
    const bool any = limits->decoded_acts && test_below(rng, 8) == 0;
    if (limits->act != NULL)
        return limits->act;
    const bool quantized = limits->decoded_acts || limits->to_fp8;
    if (limits->decoded || (limits->mma ? !bytes : !quantized && test_below(rng, 2) == 0))
        return act;
    do
        act = &test_act_quants[test_below(rng, (uint64_t)test_act_quant_count)];
    while ((limits->plain_acts && mox_act_quant_needs_amax(&act->quant)) ||
           (limits->decoded_acts && !any && !test_layer_decodes_acts(&act->quant) &&
            !(is_fp8_of_blocks(&weight->quant) && is_fp8_of_blocks(&act->quant))) ||
           (limits->to_fp8 && !is_fp8_of_rows(&act->quant) &&
            !(is_mxfp4(&weight->quant) && is_fp8_of_chunks(&act->quant))) ||
           (limits->blocks && !is_fp8_of_blocks(&act->quant) && !test_layer_decodes_acts(&act->quant)) ||
           (limits->mma && (act->quant.element != weight->quant.element || act->quant.scale != MOXIE_F32 ||
                            !is_for_mma(&act->quant, MOXIE_DTYPE_NONE))));
    return act;
}
