/* SPDX-License-Identifier: Apache-2.0
 *
 * fused_gather.c - from activations to operands: the tokens' hidden states for the first product, the experts'
 * activations for the second (fused.h).
 *
 *     x[t] -> (* row weight, rounded to x's dtype) -> codes, scales -> operand row of each pair of t
 *
 * The numbers are those of family quant_act; only the place where they are stored differs. A token is converted once
 * for all its experts unless its numbers depend on the expert.
 */
#include "base/sizes.h"
#include "cpu/expert_gemm/panel_activations.h"
#include "cpu/fused/fused.h"

/* Where the rows of one slot begin. */
static void *operand_of(const mox_fused_product *product, const mox_fused_activations *operand, int64_t first)
{
    return (uint8_t *)operand->data + (uint64_t)first * product->row_bytes;
}

/* Quantizes sc->row: its codes as numbers stay there, with the folded scales they go to sc->folded. */
static void quantize(const mox_fused_product *product, float given, const mox_fused_scratch_view *sc)
{
    const mox_act_quantizer quantizer = { .quant = &product->act, .static_scale = given };
    const int64_t cols = product->cols, group = mox_act_group_cols(&product->act, cols);
    mox_act_quant_row(&quantizer, sc->row, cols, sc->codes, sc->scales);
    mox_act_quant_values(&product->act, sc->codes, cols, sc->row);
    for (int64_t k = 0; product->scaling == MOX_ACT_FOLDED && k < cols; k += group) {
        const int64_t end = mox_min_i64(k + group, cols);
        for (int64_t i = k; i < end; i++)
            sc->folded[i] = sc->row[i] * sc->scales[k / group];
    }
}

/* Keeps pair p for whoever looks at the stages. */
static void keep(const mox_fused_product *product, const mox_activations *look, int64_t p, float given,
                 const mox_fused_scratch_view *sc)
{
    memcpy(look->values + p * look->stride, sc->row, (size_t)product->cols * sizeof(float));
    memcpy(look->scales + p * look->scale_cols, sc->scales, (size_t)look->scale_cols * sizeof(float));
    if (look->global != NULL)
        look->global[p] = given;
}

/* Stores the converted row as pair p of a slot with pairs [first, first + rows). */
static void store(const mox_fused_product *product, const mox_fused_activations *operand, const mox_activations *look,
                  int64_t first, int64_t rows, int64_t p, float given, const mox_fused_scratch_view *sc)
{
    const float *values = product->scaling == MOX_ACT_FOLDED ? sc->folded : sc->row;
    mox_act_order_put(product->kind, operand_of(product, operand, first), rows, product->cols, p - first, values);
    if (product->scaling == MOX_ACT_GROUPED)
        memcpy(operand->scales + p * product->groups, sc->scales, (size_t)product->groups * sizeof(float));
    if (product->scaling == MOX_ACT_BY_ROW)
        operand->row_scale[p] = sc->scales[0];
    if (operand->global != NULL)
        operand->global[p] = given;
    if (look != NULL && !mox_quant_is_none(&product->act))
        keep(product, look, p, given, sc);
}

/* The slot of pair p: the last s with offsets[s] <= p. */
static int64_t slot_of(const mox_fused_part *side, int64_t p)
{
    int64_t low = 0, high = side->slots;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (side->offsets[middle] <= p)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int64_t pair_of(const mox_fused_part *side, int64_t token, int64_t j)
{
    return side->position != NULL ? side->position[token * side->per_token + j] : token;
}

static void read_token(const mox_fused_args *args, const mox_fused_product *product, int64_t token, const float *weight,
                       float *values)
{
    const int64_t cols = product->cols, bytes = mox_dtype_bytes(args->dtype);
    mox_widen(args->dtype, (const uint8_t *)args->x + token * cols * bytes, values, cols);
    for (int64_t k = 0; weight != NULL && k < cols; k++)
        values[k] = mox_round_to(args->dtype, values[k] * *weight);
}

static void gather_converted(const mox_fused_args *args, const mox_fused_part *side, int64_t token,
                             const mox_fused_scratch_view *sc)
{
    const mox_fused_product *product = side->first;
    const bool quantized = !mox_quant_is_none(&product->act);
    bool ready = false;
    for (int64_t j = 0; j < side->per_token; j++) {
        const int64_t p = pair_of(side, token, j);
        if (p < 0)
            continue;
        const int64_t slot = slot_of(side, p), first = side->offsets[slot];
        const float given = side->given13 != NULL ? side->given13[slot] : 0.0f;
        if (!ready || side->by_pair) {
            const float *weight = side->row_weight != NULL ? &side->row_weight[token * side->per_token + j] : NULL;
            read_token(args, product, token, weight, sc->row);
            if (quantized)
                quantize(product, given, sc);
            ready = true;
        }
        store(product, &side->a13, side->look13, first, side->offsets[slot + 1] - first, p, given, sc);
    }
}

void mox_fused_gather(const mox_fused_args *args, const mox_fused_part *side, int64_t token,
                      const mox_fused_scratch_view *sc)
{
    const mox_fused_product *product = side->first;
    const bool as_is = mox_quant_is_none(&product->act) && side->row_weight == NULL && args->dtype == MOXIE_BF16 &&
                       product->kind == MOX_ACT_ORDER_BF16;
    if (!as_is) {
        gather_converted(args, side, token, sc);
        return;
    }
    const uint16_t *x = (const uint16_t *)args->x + token * product->cols;
    for (int64_t j = 0; j < side->per_token; j++) {
        const int64_t p = pair_of(side, token, j);
        if (p < 0)
            continue;
        const int64_t slot = slot_of(side, p), first = side->offsets[slot];
        mox_operand_put_bf16(operand_of(product, &side->a13, first), side->offsets[slot + 1] - first, product->cols,
                             p - first, x);
    }
}

void mox_fused_requantize(const mox_fused_part *side, const mox_fused_item *item, const mox_fused_scratch_view *sc)
{
    const mox_fused_product *product = side->second;
    const float given = side->given2 != NULL ? side->given2[item->slot] : 0.0f;
    for (int64_t p = item->first; p < item->first + item->rows; p++) {
        memcpy(sc->row, side->act + p * product->cols, (size_t)product->cols * sizeof *sc->row);
        quantize(product, given, sc);
        store(product, &side->a2, side->look2, item->first, item->rows, p, given, sc);
    }
}

void mox_fused_activations_row(const mox_fused_part *side, bool second, int64_t p, float *values)
{
    const mox_fused_product *product = second ? side->second : side->first;
    const mox_fused_activations *operand = second ? &side->a2 : &side->a13;
    const int64_t slot = slot_of(side, p), first = side->offsets[slot];
    mox_act_order_get(product->kind, operand_of(product, operand, first), side->offsets[slot + 1] - first,
                      product->cols, p - first, values);
}
