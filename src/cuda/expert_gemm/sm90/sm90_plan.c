/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_plan.c - from a launcher's arguments to those of the Hopper kernels, and the order in which they run (drawn in
 * sm90_plan.h). libmoxie lays out scratch memory with it; the launchers of libmoxie_cuda call it.
 */
#include "cuda/expert_gemm/sm90/sm90_plan.h"

#include <string.h>

#include "base/carver.h"
#include "cuda/expert_gemm/sm90/sm90_tiles.h"
#include "format/block_at.h"
#include "pack/hopper/hopper_matrix.h"

/* ---- scratch --------------------------------------------------------------------------------------------------- */

enum { SCRATCH_ALIGN = 256 };

int64_t mox_sm90_state_words(int64_t blocks, int64_t max_columns)
{
    return blocks * MOX_SM90_GROUPS * (max_columns / 2) * 128;
}

mox_sm90_space mox_sm90_lay_out(const mox_sm90_sizes *s)
{
    const int64_t tiled_rows = mox_sm90_tiled_rows(s->pairs, s->slots), octets = tiled_rows / 8;
    const uint64_t rows = (uint64_t)tiled_rows, chunks = (uint64_t)s->chunks;
    const uint64_t list_bytes = sizeof(mox_sm90_list) + (uint64_t)s->slots * sizeof(mox_sm90_entry);
    const int64_t state_words = mox_sm90_state_words(s->multiprocessors, MOX_SM90_MAX_COLUMNS);
    mox_carver carver = mox_offset_carver(SCRATCH_ALIGN);
    mox_sm90_space p = { .octet_count = octets };
    p.list = mox_carve_offset(&carver, 1, list_bytes);
    p.octets = mox_carve_offset(&carver, (uint64_t)octets, sizeof(mox_sm90_octet));
    p.state = mox_carve_offset(&carver, (uint64_t)state_words, sizeof(uint64_t));
    p.tiles = mox_carve_offset(&carver, rows * chunks, 128);
    p.tile_scales = mox_carve_offset(&carver, rows * chunks, (uint64_t)s->scales * sizeof(float));
    p.tile_sums = mox_carve_offset(&carver, rows * (chunks / 4), (uint64_t)s->sum_bytes);
    p.tile_factors = mox_carve_offset(&carver, rows, sizeof(float));
    p.end = carver.used;
    return p;
}

/* ---- elements -------------------------------------------------------------------------------------------------- */

const mox_sm90_weight *mox_sm90_weight_of(const moxie_quant *weight)
{
    static const mox_sm90_weight weights[] = {
#define MOX_SM90_WEIGHT(element_, scale_, group_cols_, element_16, element_8, element_sums, dequant_, to_scale_type_)  \
    { .element = element_,                                                                                             \
      .scale = scale_,                                                                                                 \
      .group_cols = group_cols_,                                                                                       \
      .kernel = { MOX_SM90_##element_16, MOX_SM90_##element_8 },                                                       \
      .sums = MOX_SM90_##element_sums,                                                                                 \
      .dequant = MOX_SM90_DEQUANT_##dequant_,                                                                          \
      .to_scale_type = to_scale_type_ },
#include "cuda/expert_gemm/sm90/sm90_weights.def"
#undef MOX_SM90_WEIGHT
    };
    static const mox_sm90_weight other = { .kernel = { MOX_SM90_BF16, MOX_SM90_BF16 }, .sums = MOX_SM90_BF16 };
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++) {
        const mox_sm90_weight *w = &weights[i];
        if (w->element == weight->element && (w->scale == MOXIE_DTYPE_NONE || w->scale == weight->scale) &&
            (w->group_cols == 0 || w->group_cols == weight->group_cols))
            return w;
    }
    return &other;
}

mox_sm90_element mox_sm90_element_of(const moxie_quant *weight, int64_t act_groups)
{
    const mox_sm90_element element = mox_sm90_weight_of(weight)->kernel[act_groups > 0];
    return element == MOX_SM90_MXFP4_FP8 && act_groups > 1 ? MOX_SM90_MXFP4_FP8_QACT : element;
}

bool mox_sm90_has_token_scales(const moxie_quant *act, int64_t groups)
{
    return act->element != MOXIE_DTYPE_NONE && groups > 1 && act->scale != MOXIE_F8_E8M0 &&
           act->scale != MOXIE_F8_E4M3 && act->rule != MOXIE_RULE_UE8M0;
}

mox_sm90_element mox_sm90_blocks_element(const moxie_quant *weight, const moxie_quant *act, int64_t groups)
{
    const mox_sm90_element element = mox_sm90_weight_of(weight)->sums;
    const bool token_scales = element == MOX_SM90_W8_BLOCKS && mox_sm90_has_token_scales(act, groups);
    return token_scales ? MOX_SM90_W8_BLOCKS_QACT : element;
}

/* Dequantizing kernels read activations as bf16: the gather dequantizes them. All other kernels read codes. */
static bool decodes_acts(const mox_cuda_expert_gemm_args *a)
{
    return a->decoded && a->act.element != MOXIE_DTYPE_NONE;
}

static mox_sm90_element element_for(const mox_cuda_expert_gemm_args *a)
{
    if (a->decoded && a->block_scales[a->projection])
        return mox_sm90_blocks_element(&a->weight, &a->act, a->a.scale_cols);
    return mox_sm90_element_of(&a->weight, a->act.element != MOXIE_DTYPE_NONE && !a->decoded ? a->a.scale_cols : 0);
}

/* An element whose kernels have the token tiles of a product of these records. */
static mox_sm90_element any_element_for(const mox_cuda_expert_gemm_args *a, int32_t projection)
{
    moxie_quant weight = a->weight;
    weight.element = a->elements[projection];
    weight.group_cols = a->group_cols[projection];
    return !a->decoded                   ? mox_sm90_element_of(&weight, 1)
           : a->block_scales[projection] ? mox_sm90_weight_of(&weight)->sums
                                         : MOX_SM90_FIRST_CODES;
}

static mox_sm90_output output_of(const mox_cuda_expert_gemm_args *a)
{
    if (a->fuses == 0)
        return MOX_SM90_OUT_F32;
    if (a->fuses & MOX_FUSES_ACT)
        return MOX_SM90_ACT_F32;
    if (a->next.kind == MOX_ACTIVATIONS_CODES)
        return MOX_SM90_ACT_E4M3;
    if (a->next_quant.element != MOXIE_DTYPE_NONE)
        return MOX_SM90_ACT_MX;
    return a->next.dtype == MOXIE_F16 ? MOX_SM90_ACT_F16 : MOX_SM90_ACT_BF16;
}

/* Do blocks work in pairs? A pair reads its tokens from L2 once, which pays only when many tokens fill L2's bandwidth;
 * an odd number of row tiles wastes half a pair. Quantizing to e4m3 needs 128 outputs, which are two gated row tiles.
 */
static bool in_pairs(const mox_cuda_expert_gemm_args *a, const mox_sm90_args *g)
{
    const bool needed = g->gated && g->output == MOX_SM90_ACT_E4M3;
    if (a->mma_sync)
        return false;
    return needed || (a->max_pairs >= MOX_SM90_PAIR_TOKENS * a->slots && a->multiprocessors > 1);
}

static bool knows_routing(const mox_cuda_expert_gemm_args *a, int64_t max_pairs)
{
    return a->ids != NULL && a->max_pairs <= max_pairs;
}

/* The routing of up to `max_pairs` pairs, where it is known. A trace reads the list, so a traced run always makes one.
 */
static mox_sm90_routing routing_of(const mox_cuda_expert_gemm_args *a, int64_t max_pairs)
{
    const mox_sm90_routing routing = { a->ids, a->slot_of, (int32_t)a->max_pairs, (int32_t)a->experts };
    const mox_sm90_routing none = { NULL, NULL, 0, 0 };
    return knows_routing(a, max_pairs) && a->trace.h == NULL ? routing : none;
}

static mox_sm90_w6_format w6_format_of(moxie_dtype element)
{
    const mox_sm90_w6_format e2m3 = { 0x00f000f0, 0x81008100, { { 0, 2, 4, 6 }, { 8, 10, 12, 14 } } };
    const mox_sm90_w6_format e3m2 = { 0x01e001e0, 0x82008200, { { 0, 4, 8, 12 }, { 1, 5, 9, 13 } } };
    return element == MOXIE_F6_E2M3 ? e2m3 : e3m2;
}

/* How a pair of rows gets its multipliers: scales of groups are 16 bits each; others are bytes, the exponents of a
 * bf16. */
static mox_sm90_w8_format w8_format_of(moxie_dtype element, int32_t scale_bytes)
{
    const mox_sm90_w8_format e4m3 = { 0x87f087f0, { 4, 28 }, { 0x80f080f0, 0x07000700 }, 0, 0, { { 0 } },
                                      0,          0x7b807b80 /* 2^120 */ };
    const mox_sm90_w8_format e5m2 = { 0x8fe08fe0, { 8, 3 },  { 0x0f600f60, 0x80808080 }, 0, 0, { { 0 } },
                                      0,          0x77807780 /* 2^112 */ };
    const mox_sm90_w8_format integer = {
        0x00ff00ff, { 24, 0 }, { 0x00ff00ff, 0 }, 0x80808080 /* -2^-126 */, 0, { { 0 } }, 0, 0
    };
    mox_sm90_w8_format b = element == MOXIE_F8_E4M3 ? e4m3 : element == MOXIE_F8_E5M2 ? e5m2 : integer;
    b.high_word = scale_bytes == 4 * 128;
    b.widen = b.high_word ? 1 : 0x00800080;
    for (int32_t row = 0; row < 2; row++)
        for (int32_t half = 0; half < 2; half++)
            b.select[row][half] = (uint32_t)(b.high_word ? (half == 0 ? 0x1010 : 0x3232) : 0x4440 + 2 * row + half);
    return b;
}

/* f16 scales of 4-bit integers are 2^17 times too large, as kernels for f16 tokens need them; others are as they are.
 * Decoded codes are 2^-11 or (8 bits) 2^-15 times their numbers. An f16 moved to an f32's places is 2^-112 times
 * itself. */
static mox_sm90_int_format int_format_of(const moxie_quant *weight, int32_t bits)
{
    const mox_sm90_int_format four = { 3, 0x8fffe000, 0x1p106f },
                              bf16 = { 0, 0xffff0000, bits == 4 ? 0x1p11f : 0x1p15f };
    const mox_sm90_int_format eight = { 3, 0x8fffe000, 0x1p127f };
    return weight->scale != MOXIE_F16 ? bf16 : bits == 4 ? four : eight;
}

/* Decoded codes of 4, 5 and 6 bits are 2^-9, 2^-10 and 2^-11 times their numbers; levels that are looked up, and
 * minimums, 2^-13. */
static mox_sm90_block_format block_format_of(const mox_cuda_block *block)
{
    const float places = 0x1p112f, unit = block->levels ? 0x1p13f : (float)(1 << (5 + block->bits));
    const float offset = -(float)block->offset / unit;
    uint32_t bits;
    memcpy(&bits, &offset, sizeof bits);
    mox_sm90_block_format format = { 0 };
    format.row_bytes = block->row_bytes;
    format.chunk_shift = block->row_bytes > 12 ? 2 : 1;
    format.offset = bits >> 16 | (bits & 0xffff0000);
    format.unit = places * unit;
    format.minimum_unit = (float)block->minimum_sign * places * 0x1p13f;
    return format;
}

/* How the gather dequantizes codes of activations to bf16. It multiplies by the scale of a group: a power of two, or an
 * e4m3 that multiplies e2m1. bf16 does not hold the scale of a row exactly, so that goes to the row's factor. */
static mox_sm90_acts acts_of(const moxie_quant *act, const mox_activations *codes)
{
    static const struct {
        moxie_dtype element;
        mox_sm90_acts acts;
    } formats[] = {
        { MOXIE_F8_E4M3, { 8, 20, 0x1p120f, 0x7e, 0, 1, 1, 0, NULL, 0 } },
        { MOXIE_F8_E5M2, { 8, 21, 0x1p112f, 0x7b, 0, 1, 1, 0, NULL, 0 } },
        { MOXIE_F6_E2M3, { 6, 20, 0x1p126f, 0x1f, 0, 1, 1, 0, NULL, 0 } },
        { MOXIE_F6_E3M2, { 6, 21, 0x1p124f, 0x1f, 0, 1, 1, 0, NULL, 0 } },
        { MOXIE_F4_E2M1, { 4, 22, 0x1p126f, 0x07, 0, 1, 1, 0, NULL, 0 } },
        { MOXIE_I8, { 8, 20, 0x1p120f, 0x7e, 0, 1, 1, 0, NULL, 1 } },
    };
    mox_sm90_acts c = formats[0].acts;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i].element == act->element)
            c = formats[i].acts;
    const bool token_scales = mox_sm90_has_token_scales(act, codes->scale_cols);
    c.group = codes->scale_cols > 1 && !token_scales ? (int32_t)codes->group_cols : 0;
    if (act->scale != MOXIE_F8_E4M3 && !token_scales) {
        c.scale_factor = act->rule == MOXIE_RULE_VLLM_FLOOR ? 0x1p-8f : 0x1p-1f;
        c.row_factor = 1 / c.scale_factor;
    }
    c.global = codes->global;
    c.global_divides = codes->global_kind == MOXIE_GLOBAL_DIVIDE;
    return c;
}

/* Rows of the matrix that the record has: of gate, of W2. A tensor parallel rank has some; then nothing is fused. */
static int64_t rows_of(const mox_cuda_expert_gemm_args *a)
{
    const bool first = a->projection == 0;
    if (a->fuses != 0)
        return a->intermediate;
    return first && a->gated ? a->n_out / 2 : a->n_out;
}

/* The sums of two chunks are added as one where one scale of the weights covers both, and one of each token. The
 * kernels for every card add each chunk by itself. */
static int32_t sum_shift_of(const mox_cuda_expert_gemm_args *a, mox_sm90_element element)
{
    const bool tokens_share = mox_sm90_token_scales(element) == 0 || a->a.group_cols >= 2 * MOX_HOPPER_CODE_COLS;
    return !a->mma_sync && MOX_SM90_SUMS_PAIRS(element) && a->tiles.scale_shift > 0 && tokens_share ? 1 : 0;
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
    g->ints = int_format_of(&a->weight, a->element_bits);
    g->block = block_format_of(&a->block);
    g->rows = (int32_t)rows_of(a);
    g->gated = first && a->gated;
    g->mma_sync = a->mma_sync;
    g->shared_bytes = (uint32_t)a->shared_bytes;
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
    g->change = a->change;
    g->kept_act = g->output == MOX_SM90_ACT_F32 ? NULL : a->kept_act;
    g->next_rule = a->next_quant.rule;
    g->next_acts = acts_of(&a->next_quant, &a->next);
    g->next = a->next.data;
    g->next_stride = a->next.stride;
    g->next_scale = a->next.kind == MOX_ACTIVATIONS_CODES ? a->next.scales : NULL;
}

/* Bytes of the sums that a gather makes of a token in four chunks. The kernels for every card make none. */
static int32_t sum_bytes_of(const mox_cuda_expert_gemm_args *a, mox_sm90_element element)
{
    return a->mma_sync ? 0 : mox_sm90_token_sum_bytes(element);
}

/* The gather from rows to the tiled activations that the gemm then reads, or from those to their sums. */
static void fill_gather(const mox_cuda_expert_gemm_args *a, const mox_sm90_space *space, mox_sm90_product *p)
{
    const int64_t bytes = mox_sm90_token_bytes(p->element);
    const bool decodes = decodes_acts(a), sums = sum_bytes_of(a, p->element) > 0;
    uint8_t *scratch = (uint8_t *)a->scratch;
    mox_sm90_gather_args *g = &p->gather;
    p->gathers = !a->a.tiled || sums;
    p->gemm.l2_prefetch = p->gathers || a->mma_sync ? 0 : MOX_SM90_L2_PREFETCH_CHUNKS;
    if (!p->gathers)
        return;
    g->inline_routing = p->gemm.inline_routing;
    g->max_columns = p->max_columns;
    g->clear = p->list.clear;
    g->blocks = a->multiprocessors * (!a->mma_sync && mox_sm90_blocks_per_sm(p->element, p->max_columns) > 1 ? 2 : 4);
    g->streams = a->max_pairs * p->gemm.chunks * 128 > MOX_SM90_L2_BYTES;
    g->octets = p->list.octets;
    g->octet_count = space->octet_count;
    g->list = p->gemm.list;
    g->chunks = p->gemm.chunks;
    g->to_sums = sums ? scratch + space->tile_sums : NULL;
    p->gemm.a_sums = g->to_sums;
    g->a = (const uint8_t *)a->a.data;
    g->a_tiled = a->a.tiled;
    if (g->a_tiled)
        return;
    g->a_stride = a->a.stride * (decodes ? 1 : bytes);
    g->a_bytes = (int32_t)(a->a.cols * bytes);
    g->a_row = a->act_row;
    g->a_scale = a->a.scales;
    g->a_scale_stride = a->a.scale_cols;
    g->scales = mox_sm90_token_scales(p->element);
    g->scale_shift = a->a.scale_cols > 1 ? 0 : MOX_SM90_ONE_SCALE;
    while (128 / bytes << g->scale_shift < a->a.group_cols && a->a.scale_cols > 1)
        g->scale_shift++;
    g->to = scratch + space->tiles;
    g->to_scale = (float *)(void *)(scratch + space->tile_scales);
    g->records = a->records;
    g->record_bytes = a->record_bytes;
    g->order_at = a->order_at;
    g->order_flag = a->order_flag;
    p->gemm.a = g->to;
    p->gemm.a_scale = g->to_scale;
    if (a->act.element == MOXIE_DTYPE_NONE || (g->scales > 0 && !decodes))
        return;
    g->acts = acts_of(&a->act, &a->a);
    g->acts.bits = decodes ? g->acts.bits : 0;
    if (g->scales > 0)
        return;
    g->to_factor = (float *)(void *)(scratch + space->tile_factors);
    p->gemm.a_factor = g->to_factor;
}

/* Blocks of a multiprocessor that the other product may have where this one has fewer. */
static int32_t most_blocks_of(const mox_cuda_expert_gemm_args *a, const mox_sm90_product *p)
{
    /* Kernels that scale sums differ even for one type of weights: in groups of 32 columns, and in longer ones. */
    const bool scaled = a->block_scales[0] || a->block_scales[1];
    const bool alike = a->elements[0] == a->elements[1] && !scaled; /* so are blocks */
    if (a->mma_sync)
        return MOX_SM80_BLOCKS;
    return a->decoded && !alike && p->max_columns <= MOX_SM90_NARROW_COLUMNS_DEQUANT ? 2 : 1;
}

/* The list and W13's gather zero the words of both products. A word that a run before left would be taken for this
 * run's. */
static mox_sm90_clear clear_of(const mox_cuda_expert_gemm_args *a, const mox_sm90_product *p)
{
    const int32_t most = a->multiprocessors * most_blocks_of(a, p);
    const mox_sm90_clear clear = { p->gemm.state, (p->blocks > most ? p->blocks : most) * MOX_SM90_GROUPS,
                                   p->usual_columns, p->max_columns };
    return clear;
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
    p->list.clear = clear_of(a, p);
    p->list.multiprocessors = a->multiprocessors;
}

/* Do blocks of both products share a multiprocessor? They do where W2 has no more jobs than there are multiprocessors.
 * Stages of up to 16 columns are small enough for two blocks, and large enough that W13's block takes more than half of
 * the shared memory: two blocks of W13 must not meet. */
static mox_sm90_co_residency co_residency_of(const mox_cuda_expert_gemm_args *a, const mox_sm90_product *p)
{
    const bool fits = p->gemm.inline_routing.ids != NULL &&
                      a->max_pairs * mox_sm90_round_up(a->hidden, 128) / 128 <= a->multiprocessors;
    if (!fits || a->mma_sync || p->max_columns > 16 || mox_sm90_blocks_per_sm(p->element, p->max_columns) < 2)
        return MOX_SM90_EXCLUSIVE;
    return a->projection == 0 ? MOX_SM90_CO_RESIDENT_W13 : MOX_SM90_CO_RESIDENT_W2;
}

void mox_sm90_product_of(const mox_cuda_expert_gemm_args *a, mox_sm90_product *p)
{
    const mox_sm90_product zero = { MOX_SM90_BF16 };
    *p = zero;
    p->element = element_for(a);
    const mox_sm90_sizes sizes = { a->slots,
                                   a->max_pairs,
                                   a->multiprocessors,
                                   a->tiles.chunks,
                                   mox_sm90_token_scales(p->element),
                                   sum_bytes_of(a, p->element) };
    const mox_sm90_space space = mox_sm90_lay_out(&sizes);
    fill_gemm(a, &space, &p->gemm);
    const mox_sm90_element elements[2] = { any_element_for(a, 0), any_element_for(a, 1) };
    /* In a traced run of few pairs W13 has a list, and W2 makes its own: of the same tiles. */
    const mox_sm90_tile_columns columns =
        mox_sm90_tile_columns_of(a, elements, knows_routing(a, MOX_SM90_INLINE_PAIRS));
    p->usual_columns = columns.usual;
    p->max_columns = columns.max;
    p->list.even_columns = columns.even;
    p->gemm.max_columns = p->max_columns;
    p->gemm.usual_columns = p->usual_columns;
    p->gemm.co_resident = co_residency_of(a, p);
    p->gemm.sum_shift = sum_shift_of(a, p->element);
    p->blocks = a->multiprocessors * mox_gemm_resident_blocks(p->element, &p->gemm);
    fill_list(a, &space, p);
    fill_gather(a, &space, p);
}

/* ---- the kernels of a launch, in order -------------------------------------------------------------------------- */

/* h and act, which a fused kernel does not keep: the same product with an earlier output. */
static moxie_status enqueue_trace(const mox_cuda_expert_gemm_args *a, const mox_sm90_product *p,
                                  const mox_sm90_ops *ops, void *context)
{
    mox_sm90_args g = p->gemm;
    g.tag = MOX_SM90_TAG_H;
    g.kept_act = NULL;
    g.output = MOX_SM90_OUT_F32;
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
    if (first && p.gemm.inline_routing.ids == NULL && a->part != MOX_PRODUCT_SUMS)
        MOX_TRY(ops->list(context, &p.list, !traced));
    if (p.gathers && a->part != MOX_PRODUCT_SUMS)
        MOX_TRY(ops->gather(context, &p.gather, !traced));
    if (a->part == MOX_PRODUCT_TOKENS)
        return MOXIE_OK;
    if (traced)
        MOX_TRY(enqueue_trace(a, &p, ops, context));
    MOX_TRY(ops->gemm(context, p.element, &p.gemm, p.blocks, !traced));
    return traced && a->fuses & MOX_FUSES_GLU ? enqueue_trace_next(a, &p, ops, context) : MOXIE_OK;
}
