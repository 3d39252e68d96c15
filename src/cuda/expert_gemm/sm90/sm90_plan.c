/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_plan.c - what a Hopper product's kernels get, and the order in which they run (sm90_plan.h). Compiled into
 * libmoxie, which lays out scratch with it, and into libmoxie_cuda, whose launchers call it.
 */
#include "cuda/expert_gemm/sm90/sm90_plan.h"

/* ---- scratch --------------------------------------------------------------------------------------------------- */

static uint64_t carve(uint64_t *at, int64_t bytes)
{
    const uint64_t from = *at;
    *at += (uint64_t)mox_sm90_round_up(bytes, 256);
    return from;
}

int64_t mox_sm90_state_words(int64_t blocks, int64_t max_columns)
{
    return blocks * MOX_SM90_GROUPS * (max_columns / 2) * 128;
}

mox_sm90_space mox_sm90_lay_out(const mox_sm90_sizes *s)
{
    mox_sm90_space p = { 0 };
    const int64_t rows = mox_sm90_tiled_rows(s->pairs, s->slots);
    p.octet_count = rows / 8;
    p.list = carve(&p.end, (int64_t)sizeof(mox_sm90_list) + s->slots * (int64_t)sizeof(mox_sm90_entry));
    p.octets = carve(&p.end, p.octet_count * (int64_t)sizeof(mox_sm90_octet));
    p.state = carve(&p.end, mox_sm90_state_words(s->multiprocessors, MOX_SM90_MAX_COLUMNS) * 8);
    p.tiles = carve(&p.end, rows * s->chunks * 128);
    p.tile_scales = carve(&p.end, rows * s->chunks * s->scales * 4);
    p.tile_factors = carve(&p.end, rows * 4);
    return p;
}

mox_sm90_element mox_sm90_element_of(const moxie_quant *weight, bool bytes)
{
    switch (weight->element) {
    case MOXIE_F8_E4M3: return bytes ? MOX_SM90_E4M3 : MOX_SM90_W8;
    case MOXIE_I8: return bytes ? MOX_SM90_INT8 : MOX_SM90_W8;
    case MOXIE_F8_E5M2:
    case MOXIE_U8B128: return MOX_SM90_W8;
    case MOXIE_F16: return MOX_SM90_F16;
    case MOXIE_F6_E2M3:
    case MOXIE_F6_E3M2: return MOX_SM90_MXFP6;
    case MOXIE_F4_E2M1:
        if (bytes)
            return MOX_SM90_MXFP4_FP8;
        return weight->scale == MOXIE_F8_E4M3 ? MOX_SM90_NVFP4 : MOX_SM90_MXFP4;
    case MOXIE_I4:
    case MOXIE_U4B8:
        if (weight->scale == MOXIE_F16)
            return weight->group_cols == 32 ? MOX_SM90_INT4_F16_SHORT : MOX_SM90_INT4_F16_LONG;
        return weight->group_cols == 32 ? MOX_SM90_INT4_SHORT : MOX_SM90_INT4_LONG;
    default: return MOX_SM90_BF16;
    }
}

/* What is quantized stays so but where kernels decode: the gather does that too. */
static bool decodes_acts(const mox_cuda_expert_gemm_args *a)
{
    return a->decoded && a->act.element != MOXIE_DTYPE_NONE;
}

static mox_sm90_element element_for(const mox_cuda_expert_gemm_args *a)
{
    return mox_sm90_element_of(&a->weight, a->act.element != MOXIE_DTYPE_NONE && !a->decoded);
}

/* What the kernel of a product of these records takes: what is not decoded to 16 bits but has 8 or fewer meets FP8 or
 * integers of 8. */
static int32_t widest_for(const mox_cuda_expert_gemm_args *a, int32_t projection)
{
    const moxie_dtype element = a->elements[projection];
    return mox_sm90_max_columns(a->decoded                 ? MOX_SM90_FIRST_CODES
                                : element == MOXIE_F8_E4M3 ? MOX_SM90_E4M3
                                : element == MOXIE_I8      ? MOX_SM90_INT8
                                : element == MOXIE_F4_E2M1 ? MOX_SM90_MXFP4_FP8
                                                           : MOX_SM90_BF16);
}

/* Columns of a token tile, of both products: twice what a slot has on average, so that nearly every slot is one tile,
 * or as many as there are tokens. */
static int32_t tile_columns_of(const mox_cuda_expert_gemm_args *a)
{
    static const int32_t widths[] = {
        8, 16, 32, 64, 128, MOX_SM90_MAX_COLUMNS_FP8, MOX_SM90_MAX_COLUMNS_DEQUANT, MOX_SM90_MAX_COLUMNS
    };
    const int32_t w13 = widest_for(a, 0), w2 = widest_for(a, 1), limit = w13 < w2 ? w13 : w2;
    const int64_t mean = a->max_pairs / a->slots;
    int32_t i = a->tokens <= widths[0] ? 0 : 1;
    while (widths[i] < limit && widths[i] < 2 * mean && widths[i] < a->tokens)
        i++;
    return widths[i] < limit ? widths[i] : limit;
}

static mox_sm90_output output_of(const mox_cuda_expert_gemm_args *a)
{
    if (a->fuses == 0)
        return MOX_SM90_ROWS_F32;
    if (a->fuses & MOX_FUSES_ACT)
        return MOX_SM90_ACT_F32;
    if (a->next.kind == MOX_ACTIVATIONS_CODES)
        return MOX_SM90_ACT_E4M3;
    if (a->next_quant.element != MOXIE_DTYPE_NONE)
        return MOX_SM90_ACT_MX;
    return a->next.dtype == MOXIE_F16 ? MOX_SM90_ACT_F16 : MOX_SM90_ACT_BF16;
}

/* Pairs of blocks halve what tokens take of the L2's bandwidth, which only many of them fill; one row tile too many for
 * a pair is half a pair's time lost. Quantizing needs 128 outputs, of a gated product two row tiles. */
static bool in_pairs(const mox_cuda_expert_gemm_args *a, const mox_sm90_args *g)
{
    const bool needed = g->gated && g->output == MOX_SM90_ACT_E4M3;
    return needed || (a->max_pairs >= MOX_SM90_PAIR_TOKENS * a->slots && a->multiprocessors > 1);
}

/* The choices of up to `most` pairs, where they are known. Those who look at a run find their way by the list. */
static mox_sm90_routing routing_of(const mox_cuda_expert_gemm_args *a, int64_t max_pairs)
{
    const bool known = a->ids != NULL && a->max_pairs <= max_pairs && a->trace.h == NULL;
    const mox_sm90_routing routing = { a->ids, a->slot_of, (int32_t)a->max_pairs, (int32_t)a->experts };
    const mox_sm90_routing none = { NULL, NULL, 0, 0 };
    return known ? routing : none;
}

static mox_sm90_w6_format w6_format_of(moxie_dtype element)
{
    const mox_sm90_w6_format e2m3 = { 0x00f000f0, 0x81008100, { { 0, 2, 4, 6 }, { 8, 10, 12, 14 } } };
    const mox_sm90_w6_format e3m2 = { 0x01e001e0, 0x82008200, { { 0, 4, 8, 12 }, { 1, 5, 9, 13 } } };
    return element == MOXIE_F6_E2M3 ? e2m3 : e3m2;
}

/* Multipliers of groups are 16 bits each, others a byte that is the exponent of a bf16. */
static mox_sm90_w8_format w8_format_of(moxie_dtype element, int32_t scale_bytes)
{
    const mox_sm90_w8_format e4m3 = { 0x87f087f0, { 4, 28 }, { 0x80f080f0, 0x07000700 }, 0, 0, { { 0 } }, 0 };
    const mox_sm90_w8_format e5m2 = { 0x8fe08fe0, { 8, 3 }, { 0x0f600f60, 0x80808080 }, 0, 0, { { 0 } }, 0 };
    const mox_sm90_w8_format integer = { 0x00ff00ff, { 24, 0 }, { 0x00ff00ff, 0 }, 0x80808080 /* -2^-126 */, 0,
                                         { { 0 } },  0 };
    mox_sm90_w8_format b = element == MOXIE_F8_E4M3 ? e4m3 : element == MOXIE_F8_E5M2 ? e5m2 : integer;
    b.high_word = scale_bytes == 4 * 128;
    b.widen = b.high_word ? 1 : 0x00800080;
    for (int32_t row = 0; row < 2; row++)
        for (int32_t half = 0; half < 2; half++)
            b.select[row][half] = (uint32_t)(b.high_word ? (half == 0 ? 0x1010 : 0x3232) : 0x4440 + 2 * row + half);
    return b;
}

/* What codes of an operand become as bf16. What a bf16 holds of a scale is that of a group: a power of two, or an E4M3
 * that E2M1 is multiplied by; the scale of a row it does not. */
static mox_sm90_acts acts_of(const moxie_quant *act, const mox_activations *operand)
{
    const mox_sm90_acts e4m3 = { 8, 20, 0x1p120f, 0x7e, 0, 1, 1, 0, NULL, 0 };
    mox_sm90_acts c = e4m3;
    switch (act->element) {
    case MOXIE_F8_E5M2: c.shift = 21, c.rebias = 0x1p112f, c.max_code = 0x7b; break;
    case MOXIE_F6_E2M3: c.bits = 6, c.shift = 20, c.rebias = 0x1p126f, c.max_code = 0x1f; break;
    case MOXIE_F6_E3M2: c.bits = 6, c.shift = 21, c.rebias = 0x1p124f, c.max_code = 0x1f; break;
    case MOXIE_F4_E2M1: c.bits = 4, c.shift = 22, c.rebias = 0x1p126f, c.max_code = 0x7; break;
    case MOXIE_I8: c.integer = 1; break;
    default: break;
    }
    c.group = operand->scale_cols > 1 ? (int32_t)operand->group_cols : 0;
    if (act->scale != MOXIE_F8_E4M3) {
        c.scale_factor = act->rule == MOXIE_RULE_VLLM_FLOOR ? 0x1p-8f : 0x1p-1f;
        c.row_factor = 1 / c.scale_factor;
    }
    c.global = operand->global;
    c.global_divides = operand->global_kind == MOXIE_GLOBAL_DIVIDE;
    return c;
}

static void fill_gemm(const mox_cuda_expert_gemm_args *a, const mox_sm90_space *space, mox_sm90_args *g)
{
    const bool first = a->projection == 0;
    uint8_t *scratch = (uint8_t *)a->scratch;
    g->inline_routing = routing_of(a, MOX_SM90_INLINE_PAIRS);
    g->list = (const mox_sm90_list *)(const void *)(scratch + space->list);
    g->records = a->records;
    g->record_bytes = a->record_bytes;
    g->tiles_at = a->tiles.tiles;
    g->tile_bytes = a->tiles.tile_bytes;
    g->row_scale_at = a->tiles.row_scale;
    g->bias_at = a->tiles.bias;
    g->tiles = a->tiles.count;
    g->chunks = a->tiles.chunks;
    g->last_rows = a->tiles.last_rows;
    g->scale_bytes = a->tiles.scale_bytes;
    g->scale_shift = a->tiles.scale_shift;
    g->factor_divides = a->weight.global == MOXIE_GLOBAL_DIVIDE;
    g->w6 = w6_format_of(a->weight.element);
    g->w8 = w8_format_of(a->weight.element, g->scale_bytes);
    g->rows = (int32_t)(first ? a->intermediate : a->hidden);
    g->gated = first && a->gated;
    g->a = (const uint8_t *)a->a.data;
    g->a_scale = a->a.scales;
    g->a_uniform_factor = decodes_acts(a) ? acts_of(&a->act, &a->a).row_factor : 1;
    g->state = (uint64_t *)(void *)(scratch + space->state);
    g->tag = first ? MOX_SM90_TAG_W13 : MOX_SM90_TAG_W2;
    g->output = (int32_t)output_of(a);
    g->out = a->out;
    g->out_stride = a->n_out;
    g->paired = in_pairs(a, g);
    if (a->fuses == 0)
        return;
    const moxie_activation *activation = &a->glu.activation;
    const bool by_expert =
        activation->expert_alpha != NULL || activation->expert_beta != NULL || activation->expert_limit != NULL;
    g->activation = *activation;
    g->expert_of = by_expert ? a->glu.expert_of : NULL;
    g->next_rule = a->next_quant.rule;
    g->next_acts = acts_of(&a->next_quant, &a->next);
    g->next = a->next.data;
    g->next_stride = a->next.stride;
    g->next_scale = a->next.kind == MOX_ACTIVATIONS_CODES ? a->next.scales : NULL;
}

/* From rows to the tiled operand that the gemm then reads. */
static void fill_gather(const mox_cuda_expert_gemm_args *a, const mox_sm90_space *space, mox_sm90_product *p)
{
    const int64_t bytes = mox_sm90_token_bytes(p->element);
    const bool decodes = decodes_acts(a);
    uint8_t *scratch = (uint8_t *)a->scratch;
    mox_sm90_gather_args *g = &p->gather;
    p->gathers = !a->a.tiled;
    p->gemm.l2_prefetch = p->gathers ? 0 : MOX_SM90_L2_PREFETCH_CHUNKS;
    if (!p->gathers)
        return;
    g->inline_routing = p->gemm.inline_routing;
    g->max_columns = p->max_columns;
    g->blocks = a->multiprocessors * (mox_sm90_blocks(p->element, p->max_columns) > 1 ? 2 : 4);
    g->streams = a->max_pairs * p->gemm.chunks * 128 > MOX_SM90_L2_BYTES;
    g->octets = p->list.octets;
    g->octet_count = space->octet_count;
    g->a = (const uint8_t *)a->a.data;
    g->a_stride = a->a.stride * (decodes ? 1 : bytes);
    g->a_bytes = (int32_t)(a->a.cols * bytes);
    g->chunks = p->gemm.chunks;
    g->a_row = a->act_row;
    g->a_scale = a->a.scales;
    g->a_scale_stride = a->a.scale_cols;
    g->scales = mox_sm90_token_scales(p->element);
    g->scale_cols = (int32_t)a->a.scale_cols;
    g->to = scratch + space->tiles;
    g->to_scale = (float *)(void *)(scratch + space->tile_scales);
    g->state = p->gemm.state;
    g->state_words = g->inline_routing.ids != NULL ? p->list.state_words : 0;
    p->gemm.a = g->to;
    p->gemm.a_scale = g->to_scale;
    if (a->act.element == MOXIE_DTYPE_NONE || g->scales > 0)
        return;
    g->acts = acts_of(&a->act, &a->a);
    g->acts.bits = decodes ? g->acts.bits : 0;
    g->to_factor = (float *)(void *)(scratch + space->tile_factors);
    p->gemm.a_factor = g->to_factor;
}

static void fill_list(const mox_cuda_expert_gemm_args *a, const mox_sm90_space *space, mox_sm90_product *p)
{
    uint8_t *scratch = (uint8_t *)a->scratch;
    p->list.routing = routing_of(a, INT32_MAX);
    p->list.offsets = a->offsets;
    p->list.slots = a->slots;
    p->list.max_columns = p->max_columns;
    p->list.list = (mox_sm90_list *)(void *)(scratch + space->list);
    p->list.octets = (mox_sm90_octet *)(void *)(scratch + space->octets);
    p->list.octet_count = space->octet_count;
    p->list.state = p->gemm.state;
    p->list.state_words = mox_sm90_state_words(p->blocks, p->max_columns);
    p->list.multiprocessors = a->multiprocessors;
}

/* Where W2 has no more jobs than there are multiprocessors. Stages of up to 16 columns are small enough for both
 * blocks, and large enough for W13's to be more than half: two of those must not meet. */
static mox_sm90_co_residency co_residency_of(const mox_cuda_expert_gemm_args *a, const mox_sm90_product *p)
{
    const bool fits = p->gemm.inline_routing.ids != NULL &&
                      a->max_pairs * mox_sm90_round_up(a->hidden, 128) / 128 <= a->multiprocessors;
    if (!fits || p->max_columns > 16 || mox_sm90_blocks(p->element, p->max_columns) < 2)
        return MOX_SM90_EXCLUSIVE;
    return a->projection == 0 ? MOX_SM90_CO_RESIDENT_W13 : MOX_SM90_CO_RESIDENT_W2;
}

void mox_sm90_product_of(const mox_cuda_expert_gemm_args *a, mox_sm90_product *p)
{
    const mox_sm90_product zero = { MOX_SM90_BF16 };
    *p = zero;
    p->element = element_for(a);
    p->max_columns = tile_columns_of(a);
    const mox_sm90_sizes sizes = { a->slots, a->max_pairs, a->multiprocessors, a->tiles.chunks,
                                   mox_sm90_token_scales(p->element) };
    const mox_sm90_space space = mox_sm90_lay_out(&sizes);
    fill_gemm(a, &space, &p->gemm);
    p->gemm.max_columns = p->max_columns;
    p->gemm.co_resident = co_residency_of(a, p);
    p->blocks = a->multiprocessors * mox_sm90_blocks_of(p->element, &p->gemm);
    fill_list(a, &space, p);
    fill_gather(a, &space, p);
}

/* ---- in order -------------------------------------------------------------------------------------------------- */

/* h and act as a fused row's W13 has them on its way: the same product, stopped earlier. */
static moxie_status enqueue_trace(const mox_cuda_expert_gemm_args *a, const mox_sm90_product *p,
                                  const mox_sm90_ops *ops, void *context)
{
    mox_sm90_args g = p->gemm;
    g.tag = MOX_SM90_TAG_H;
    g.output = MOX_SM90_ROWS_F32;
    g.out = a->trace.h;
    g.out_stride = a->gated ? 2 * a->intermediate : a->intermediate;
    MOX_TRY(ops->gemm(context, p->element, &g, p->blocks, false));
    if (p->gemm.output == MOX_SM90_ACT_F32)
        return MOXIE_OK;
    g.tag = MOX_SM90_TAG_ACT;
    g.output = MOX_SM90_ACT_F32;
    g.out = a->trace.act;
    g.out_stride = a->intermediate;
    return ops->gemm(context, p->element, &g, p->blocks, false);
}

static moxie_status enqueue_trace_next(const mox_cuda_expert_gemm_args *a, const mox_sm90_product *p,
                                       const mox_sm90_ops *ops, void *context)
{
    const bool codes = a->next.kind == MOX_ACTIVATIONS_CODES, mx = p->gemm.output == MOX_SM90_ACT_MX;
    mox_sm90_trace_args s;
    s.list = p->gemm.list;
    s.max_pairs = a->max_pairs;
    s.element = codes ? MOXIE_F8_E4M3 : mx ? MOXIE_BF16 : a->next.dtype;
    s.cols = (int32_t)a->intermediate;
    s.chunks = (int32_t)(a->next.stride * (codes ? 1 : 2) / 128);
    s.scale_count = (int32_t)a->next.scale_cols;
    s.quant = a->next_quant;
    s.scale_factor = p->gemm.next_acts.scale_factor;
    s.act = mx ? a->trace.act : NULL;
    s.tiles = (const uint8_t *)a->next.data;
    s.tile_scales = codes ? a->next.scales : NULL;
    s.to = a->trace.next;
    s.to_scales = codes || mx ? a->trace.next_scales : NULL;
    s.stride = a->trace.next_stride;
    return ops->show(context, &s);
}

moxie_status mox_sm90_enqueue(const mox_cuda_expert_gemm_args *a, const mox_sm90_ops *ops, void *context)
{
    mox_sm90_product p;
    const bool first = a->projection == 0, traced = a->fuses != 0 && a->trace.h != NULL;
    if (a->max_pairs == 0 || a->slots == 0)
        return MOXIE_OK;
    mox_sm90_product_of(a, &p);
    if (first && p.gemm.inline_routing.ids == NULL)
        MOX_TRY(ops->list(context, &p.list, !traced));
    if (p.gathers)
        MOX_TRY(ops->gather(context, &p.gather, !traced));
    if (traced)
        MOX_TRY(enqueue_trace(a, &p, ops, context));
    MOX_TRY(ops->gemm(context, p.element, &p.gemm, p.blocks, !traced));
    return traced && a->fuses & MOX_FUSES_GLU ? enqueue_trace_next(a, &p, ops, context) : MOXIE_OK;
}
