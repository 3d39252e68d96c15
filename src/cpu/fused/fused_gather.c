/* SPDX-License-Identifier: Apache-2.0
 *
 * fused_gather.c - stores activations in the order of a panel kernel: the tokens' hidden states for the first product,
 * the experts' activations for the second, quantized where the scheme says so (fused.h).
 *
 *     x[t] -> (* row weight, rounded to x's dtype) -> codes, scales -> the row of each pair of t
 *
 * The numbers are those of family quant_act; only the place where they are stored differs. A token is converted once
 * for all its experts, unless its numbers depend on the expert. Tokens that came from other ranks are codes already.
 * Where a record's columns are sorted (act order), the converted row is stored in their order.
 */
#include "base/sizes.h"
#include "cpu/expert_gemm/panel_activations.h"
#include "cpu/fused/fused.h"
#include "pack/order/column_order.h"
#include "quant/act_row.h"

/* Where the rows of a slot begin whose first pair is `first`. */
static void *rows_of_slot(const mox_fused_product *product, const mox_fused_activations *acts, int64_t first)
{
    return (uint8_t *)acts->data + (uint64_t)first * product->row_bytes;
}

/* Decodes sc->codes to sc->row. Times scales that are IN_VALUE they go to sc->scaled. A kernel that reads codes needs
 * neither, but a traced run does. */
static void decode(const mox_fused_product *product, bool traced, const mox_fused_scratch_view *sc)
{
    if (product->order == MOX_ACT_ORDER_I8 && !traced)
        return;
    const int64_t cols = product->cols, group = mox_act_group_cols(&product->act, cols);
    mox_act_quant_values(&product->act, sc->codes, cols, sc->row);
    for (int64_t k = 0; product->scaling == MOX_ACT_IN_VALUE && k < cols; k += group) {
        const int64_t end = mox_min_i64(k + group, cols);
        for (int64_t i = k; i < end; i++)
            sc->scaled[i] = sc->row[i] * sc->scales[k / group];
    }
}

/* Quantizes sc->row in place: it becomes the codes, as numbers. */
static void quantize(const mox_fused_product *product, float static_scale, bool traced,
                     const mox_fused_scratch_view *sc)
{
    const mox_act_quantizer quantizer = { .quant = &product->act, .static_scale = static_scale };
    mox_act_quant_row(&quantizer, sc->row, product->cols, sc->codes, sc->scales);
    decode(product, traced, sc);
}

/* Stores the converted row for a traced run. */
static void store_trace(const mox_fused_product *product, const mox_activations *trace, int64_t p, float static_scale,
                        const mox_fused_scratch_view *sc)
{
    memcpy(trace->values + p * trace->stride, sc->row, (size_t)product->cols * sizeof(float));
    memcpy(trace->scales + p * trace->scale_cols, sc->scales, (size_t)trace->scale_cols * sizeof(float));
    if (trace->global != NULL)
        trace->global[p] = static_scale;
}

/* The converted row in the kernel's type. */
static const void *narrow(const mox_fused_product *product, const mox_fused_scratch_view *sc)
{
    if (product->order == MOX_ACT_ORDER_I8)
        return sc->codes;
    const float *values = product->scaling == MOX_ACT_IN_VALUE ? sc->scaled : sc->row;
    if (product->order == MOX_ACT_ORDER_F32)
        return values;
    mox_act_order_narrow(product->order, values, product->cols, sc->narrow);
    return sc->narrow;
}

/* Row `from` of the kernel's type in the order of a record's columns, which is not the natural one; in sc->ordered. */
static const void *in_order(const mox_fused_product *product, const int32_t *order, const void *from,
                            const mox_fused_scratch_view *sc)
{
    const int64_t cols = product->cols;
    switch (product->order) {
    case MOX_ACT_ORDER_F32:
        for (int64_t k = 0; k < cols; k++)
            ((float *)sc->ordered)[k] = ((const float *)from)[order[k]];
        break;
    case MOX_ACT_ORDER_BF16:
        for (int64_t k = 0; k < cols; k++)
            ((uint16_t *)sc->ordered)[k] = ((const uint16_t *)from)[order[k]];
        break;
    default:
        for (int64_t k = 0; k < cols; k++)
            ((uint8_t *)sc->ordered)[k] = ((const uint8_t *)from)[order[k]];
    }
    return sc->ordered;
}

/* Stores row `from`, in the kernel's type, as pair p of a slot with pairs [first, first + rows). */
static void put_row(const mox_fused_part *part, bool second, int64_t slot, int64_t p, const void *from, bool stream,
                    const mox_fused_scratch_view *sc)
{
    const mox_fused_product *product = second ? part->second : part->first;
    const mox_fused_activations *acts = second ? &part->a2 : &part->a13;
    const int64_t first = part->offsets[slot], rows = part->offsets[slot + 1] - first;
    const int32_t *order = mox_column_order_of(part->shape, part->records[slot], second).order;
    mox_act_order_put_row(product->order, rows_of_slot(product, acts, first), rows, product->cols, p - first,
                          order != NULL ? in_order(product, order, from, sc) : from, stream);
}

/* Stores the converted row, `from` in the kernel's type, as pair p, and what belongs to it. */
static void store(const mox_fused_part *part, bool second, int64_t slot, int64_t p, const void *from, bool stream,
                  float static_scale, const mox_fused_scratch_view *sc)
{
    const mox_fused_product *product = second ? part->second : part->first;
    const mox_fused_activations *acts = second ? &part->a2 : &part->a13;
    const mox_activations *trace = second ? part->trace2 : part->trace13;
    put_row(part, second, slot, p, from, stream, sc);
    if (product->scaling == MOX_ACT_GROUPED)
        memcpy(acts->scales + p * product->groups, sc->scales, (size_t)product->groups * sizeof(float));
    if (product->scaling == MOX_ACT_BY_ROW)
        acts->row_scale[p] = sc->scales[0];
    if (acts->global != NULL)
        acts->global[p] = static_scale;
    if (trace != NULL && !mox_quant_is_none(&product->act))
        store_trace(product, trace, p, static_scale, sc);
}

/* The slot of pair p: the last s with offsets[s] <= p. */
static int64_t slot_of(const mox_fused_part *part, int64_t p)
{
    int64_t low = 0, high = part->slots;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (part->offsets[middle] <= p)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The token's pair of its choice j; -1: none, or one of a slot that is not of the part. */
static int64_t pair_of(const mox_fused_part *part, int64_t token, int64_t j)
{
    const int64_t p = part->position != NULL ? part->position[token * part->per_token + j] : token;
    return p >= part->offsets[0] && p < part->offsets[part->slots] ? p : -1;
}

static void read_token(const mox_fused_args *args, const mox_fused_product *product, int64_t token, const float *weight,
                       float *values)
{
    const int64_t cols = product->cols, bytes = mox_dtype_bytes(args->dtype);
    mox_widen(args->dtype, (const uint8_t *)args->x + token * cols * bytes, values, cols);
    for (int64_t k = 0; weight != NULL && k < cols; k++)
        values[k] = mox_round_to(args->dtype, values[k] * *weight);
}

/* The token's row, converted, in sc->row. `weight`: NULL or what multiplies it. */
static void convert_token(const mox_fused_args *args, const mox_fused_part *part, int64_t token, const float *weight,
                          float static_scale, const mox_fused_scratch_view *sc)
{
    const mox_fused_product *product = part->first;
    const bool traced = part->trace13 != NULL;
    if (args->coded) {
        const int64_t bytes = mox_act_row_bytes(&product->act, product->cols);
        mox_act_row_load(&product->act, (const uint8_t *)args->x + token * bytes, product->cols, sc->codes, sc->scales);
        decode(product, traced, sc);
        return;
    }
    read_token(args, product, token, weight, sc->row);
    if (!mox_quant_is_none(&product->act))
        quantize(product, static_scale, traced, sc);
}

static void gather_converted(const mox_fused_args *args, const mox_fused_part *part, int64_t token, bool stream,
                             const mox_fused_scratch_view *sc)
{
    const mox_fused_product *product = part->first;
    const void *row = NULL;
    for (int64_t j = 0; j < part->per_token; j++) {
        const int64_t p = pair_of(part, token, j);
        if (p < 0)
            continue;
        const int64_t slot = slot_of(part, p);
        const float static_scale = part->static_scale13 != NULL ? part->static_scale13[slot] : 0.0f;
        if (row == NULL || part->by_pair) {
            const float *weight = part->row_weight != NULL ? &part->row_weight[token * part->per_token + j] : NULL;
            convert_token(args, part, token, weight, static_scale, sc);
            row = narrow(product, sc);
        }
        store(part, false, slot, p, row, stream, static_scale, sc);
    }
}

void mox_fused_gather(const mox_fused_args *args, const mox_fused_part *part, int64_t token, bool stream,
                      const mox_fused_scratch_view *sc)
{
    const mox_fused_product *product = part->first;
    const bool as_is = mox_quant_is_none(&product->act) && part->row_weight == NULL && args->dtype == MOXIE_BF16 &&
                       product->order == MOX_ACT_ORDER_BF16;
    if (!as_is) {
        gather_converted(args, part, token, stream, sc);
        return;
    }
    for (int64_t j = 0; j < part->per_token; j++) {
        const int64_t p = pair_of(part, token, j);
        if (p >= 0)
            put_row(part, false, slot_of(part, p), p, (const uint16_t *)args->x + token * product->cols, stream, sc);
    }
}

/* Row p of act, of a slot, for the second product. */
static void take_act(const mox_fused_part *part, int64_t slot, int64_t p, const mox_fused_scratch_view *sc)
{
    const mox_fused_product *product = part->second;
    const float static_scale = part->static_scale2 != NULL ? part->static_scale2[slot] : 0.0f;
    memcpy(sc->row, part->act + p * product->cols, (size_t)product->cols * sizeof *sc->row);
    if (!mox_quant_is_none(&product->act))
        quantize(product, static_scale, part->trace2 != NULL, sc);
    for (int64_t k = 0; mox_quant_is_none(&product->act) && k < product->cols; k++)
        sc->row[k] = mox_round_to(product->dtype, sc->row[k]);
    store(part, true, slot, p, narrow(product, sc), false, static_scale, sc);
}

void mox_fused_requantize(const mox_fused_part *part, const mox_fused_item *item, const mox_fused_scratch_view *sc)
{
    for (int64_t p = item->first; p < item->first + item->rows; p++)
        take_act(part, item->slot, p, sc);
}

void mox_fused_refill(const mox_fused_part *part, int64_t p, const mox_fused_scratch_view *sc)
{
    take_act(part, slot_of(part, p), p, sc);
}

void mox_fused_activations_row(const mox_fused_part *part, bool second, int64_t p, float *values)
{
    const mox_fused_product *product = second ? part->second : part->first;
    const mox_fused_activations *acts = second ? &part->a2 : &part->a13;
    const int64_t slot = slot_of(part, p), first = part->offsets[slot];
    mox_act_order_get(product->order, rows_of_slot(product, acts, first), part->offsets[slot + 1] - first,
                      product->cols, p - first, mox_column_order_of(part->shape, part->records[slot], second).place,
                      values);
}
