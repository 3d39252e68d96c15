/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_api_layer.c - small layers from fuzz bytes (fuzz_api.h).
 */
#include <math.h>
#include <string.h>

#include "base/checksum.h"
#include "base/sizes.h"
#include "fuzz_api.h"
#include "quant/quant.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

/* ---- numbers and memory --------------------------------------------------------------------------------- */

uint32_t fuzz_layer_next(fuzz_layer *l)
{
    l->state = l->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(l->state >> 33);
}

float fuzz_layer_number(fuzz_layer *l)
{
    static const float odd[] = { 0, -0.0f, NAN, INFINITY, -INFINITY, 3e38f, 1e-40f, 65504 };
    const uint32_t random = fuzz_layer_next(l);
    if (l->tame)
        return (float)(int32_t)(random % 2001) / 1000 - 1;
    if (random % 4 == 0)
        return odd[random / 4 % COUNT(odd)];
    float value;
    const uint32_t bits = fuzz_layer_next(l) << 1 ^ random;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void *fuzz_layer_own(fuzz_layer *l, size_t bytes)
{
    void *data = calloc(1, bytes > 0 ? bytes : 1);
    FUZZ_CHECK(data && l->n_blocks < FUZZ_BLOCKS);
    l->blocks[l->n_blocks].data = data;
    l->blocks[l->n_blocks++].bytes = bytes;
    return data;
}

void fuzz_layer_free(fuzz_layer *l)
{
    for (int i = 0; i < l->n_blocks; i++)
        free(l->blocks[i].data);
    l->n_blocks = 0;
}

uint64_t fuzz_layer_sum(const fuzz_layer *l)
{
    uint64_t sum = 0;
    for (int i = 0; i < l->n_blocks; i++)
        sum = sum * 31 + mox_checksum(l->blocks[i].data, l->blocks[i].bytes);
    return sum;
}

/* ---- views ------------------------------------------------------------------------------------------------ */

typedef enum part { CODES, SCALE, ZERO, PLAIN } part;

static uint32_t code_of(fuzz_layer *l, moxie_dtype dtype, part kind)
{
    if (!l->tame)
        return fuzz_layer_next(l);
    const bool integer = dtype == MOXIE_I8 || dtype == MOXIE_I4 || dtype == MOXIE_U4B8 || dtype == MOXIE_U8B128;
    if (integer || kind == ZERO)
        return moxie_encode(dtype, (float)(fuzz_layer_next(l) % 7) - 3);
    const float number = fuzz_layer_number(l);
    return moxie_encode(dtype, kind == SCALE ? 0.0625f + 0.25f * fabsf(number) : 0.5f * number);
}

static moxie_packing packing_of(fuzz_bytes *b, moxie_dtype dtype)
{
    static const moxie_packing nibbles[] = { { 1, 2, 0, 0 }, { 4, 8, 0, 0 }, { 4, 8, 1, 0 }, { 4, 8, 1, 1 } },
                               bytes[] = { { 1, 1, 0, 0 }, { 1, 1, 0, 0 }, { 4, 4, 0, 0 }, { 4, 4, 1, 0 } };
    const int32_t bits = moxie_dtype_bits(dtype);
    if (bits == 4)
        return nibbles[fuzz_below(b, COUNT(nibbles))];
    if (bits == 8)
        return bytes[fuzz_below(b, COUNT(bytes))];
    if (bits == 6)
        return (moxie_packing) { .word_bytes = 3, .per_word = 4 };
    return (moxie_packing) { .word_bytes = (int8_t)(bits / 8), .per_word = 1 };
}

/* Breaks one rule of a view. */
static void spoil(fuzz_bytes *b, moxie_grid *grid)
{
    switch (fuzz_below(b, 6)) {
    case 0: grid->bytes -= grid->bytes > 0; break;
    case 1: grid->rows += (int64_t)fuzz_byte(b) - 100; break;
    case 2: grid->dtype = (moxie_dtype)fuzz_byte(b); break;
    case 3: grid->row_stride = INT64_MAX - (int64_t)fuzz_byte(b); break;
    case 4: grid->packing.per_word = (int8_t)fuzz_byte(b); break;
    default: grid->data = NULL; break;
    }
}

/* Row-major or column-major, with some bytes of padding between rows or columns. */
static moxie_grid make_grid(fuzz_layer *l, fuzz_bytes *b, moxie_dtype dtype, int64_t rows, int64_t cols, part kind)
{
    const moxie_packing p = packing_of(b, dtype);
    const uint32_t how = fuzz_byte(b);
    const int64_t word_rows = p.along_rows ? mox_ceil_div(rows, p.per_word) : rows,
                  word_cols = p.along_rows ? cols : mox_ceil_div(cols, p.per_word), gap = how % 8 == 1;
    moxie_grid grid = { .rows = rows, .cols = cols, .dtype = dtype, .packing = p };
    grid.row_stride = how & 8 ? p.word_bytes : word_cols * p.word_bytes + gap;
    grid.col_stride = how & 8 ? word_rows * p.word_bytes + gap : p.word_bytes;
    if (word_rows > 0 && word_cols > 0)
        grid.bytes = (uint64_t)((word_rows - 1) * grid.row_stride + (word_cols - 1) * grid.col_stride + p.word_bytes);
    grid.data = fuzz_layer_own(l, grid.bytes);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            mox_grid_store(&grid, r, c, code_of(l, dtype, kind));
    if (!l->tame && how == 0xff)
        spoil(b, &grid);
    return grid;
}

static moxie_dtype float_of(fuzz_bytes *b)
{
    return (moxie_dtype)(MOXIE_F32 + (int)fuzz_below(b, 3));
}

static moxie_matrix make_matrix(fuzz_layer *l, fuzz_bytes *b, const moxie_quant *q, int64_t rows, int64_t cols,
                                bool bias)
{
    moxie_matrix m = { .codes = make_grid(l, b, q->element, rows, cols, CODES) };
    const int64_t scale_rows = mox_scale_rows(q, rows), scale_cols = mox_scale_cols(q, cols);
    if (q->scale != MOXIE_DTYPE_NONE)
        m.scale = make_grid(l, b, q->scale, scale_rows, scale_cols, SCALE);
    if (q->has_zero) {
        m.zero = make_grid(l, b, fuzz_below(b, 4) ? q->element : MOXIE_F16, scale_rows, scale_cols, ZERO);
        m.zero_add = l->tame ? (float)fuzz_below(b, 2) : fuzz_below(b, 8) ? 1 : fuzz_layer_number(l);
    }
    if (q->global)
        m.global = make_grid(l, b, MOXIE_F32, fuzz_below(b, 4) ? 1 : rows, 1, SCALE);
    if (bias)
        m.bias = make_grid(l, b, float_of(b), rows, 1, PLAIN);
    if (q->scale != MOXIE_DTYPE_NONE && fuzz_below(b, 8) == 1) { /* act order */
        int32_t *index = fuzz_layer_own(l, (size_t)cols * sizeof *index);
        for (int64_t k = 0; k < cols; k++)
            index[k] = (int32_t)(fuzz_layer_next(l) % (uint32_t)scale_cols) - (!l->tame && fuzz_below(b, 256) == 7);
        m.group_index = index;
    }
    return m;
}

static moxie_expert make_expert(fuzz_layer *l, fuzz_bytes *b, const moxie_quant *w13, const moxie_quant *w2,
                                int64_t intermediate, bool bias13, bool bias2)
{
    const moxie_layer_config *c = &l->config;
    moxie_expert e = { .up = make_matrix(l, b, w13, intermediate, c->hidden, bias13),
                       .down = make_matrix(l, b, w2, c->hidden, intermediate, bias2) };
    if (moxie_act_is_gated(c->activation.kind))
        e.gate = make_matrix(l, b, w13, intermediate, c->hidden, bias13);
    const bool odd = !l->tame && fuzz_below(b, 64) == 1;
    e.a13_scale = odd ? fuzz_layer_number(l) : 0.125f;
    e.a2_scale = odd ? fuzz_layer_number(l) : 0.25f;
    return e;
}

/* ---- configurations ---------------------------------------------------------------------------------------- */

#define Q(element_, scale_, rows_, cols_, ...)                                                                         \
    {                                                                                                                  \
        .element = (element_), .scale = (scale_), .group_rows = (rows_), .group_cols = (cols_), __VA_ARGS__            \
    }
static const moxie_quant weight_quants[] = {
    { .element = MOXIE_BF16 },
    { .element = MOXIE_F16 },
    { .element = MOXIE_F32 },
    Q(MOXIE_F8_E4M3, MOXIE_F32, 16, 16, .has_zero = 0),
    Q(MOXIE_F8_E4M3, MOXIE_F32, 1, -1, .has_zero = 0),
    Q(MOXIE_F8_E5M2, MOXIE_F32, -1, -1, .has_zero = 0),
    Q(MOXIE_F4_E2M1, MOXIE_F8_E8M0, 1, 32, .has_zero = 0),
    Q(MOXIE_F6_E3M2, MOXIE_F8_E8M0, 1, 32, .has_zero = 0),
    Q(MOXIE_F6_E2M3, MOXIE_F8_E8M0, 1, 32, .has_zero = 0),
    Q(MOXIE_F8_E4M3, MOXIE_F8_E8M0, 1, 32, .has_zero = 0),
    Q(MOXIE_F4_E2M1, MOXIE_F8_E4M3, 1, 16, .global = MOXIE_GLOBAL_MULTIPLY),
    Q(MOXIE_F4_E2M1, MOXIE_F8_E4M3, 1, 16, .global = MOXIE_GLOBAL_DIVIDE),
    Q(MOXIE_U4B8, MOXIE_BF16, 1, 32, .has_zero = 0),
    Q(MOXIE_U4B8, MOXIE_F16, 1, 32, .has_zero = 1),
    Q(MOXIE_I4, MOXIE_F32, 1, 16, .has_zero = 0),
    Q(MOXIE_I4, MOXIE_BF16, 1, 64, .has_zero = 1),
    Q(MOXIE_I8, MOXIE_F32, 1, -1, .has_zero = 0),
    Q(MOXIE_U8B128, MOXIE_F16, 1, 32, .has_zero = 1),
    Q(MOXIE_U8B128, MOXIE_BF16, 1, 128, .has_zero = 0),
};
static const moxie_quant act_quants[] = {
    { 0 },
    { 0 },
    { 0 },
    Q(MOXIE_F8_E4M3, MOXIE_F32, -1, -1, .is_static = 1),
    Q(MOXIE_F8_E4M3, MOXIE_F32, -1, -1, .is_static = 0),
    Q(MOXIE_F8_E4M3, MOXIE_F32, 1, -1, .is_static = 0),
    Q(MOXIE_F8_E4M3, MOXIE_F32, 1, 128, .rule = MOXIE_RULE_UE8M0),
    Q(MOXIE_I8, MOXIE_F32, 1, -1, .rounding = MOXIE_ROUND_AWAY),
    Q(MOXIE_I8, MOXIE_F32, 1, 24, .is_static = 0),
    Q(MOXIE_F8_E4M3, MOXIE_F8_E8M0, 1, 32, .is_static = 0),
    Q(MOXIE_F4_E2M1, MOXIE_F8_E8M0, 1, 32, .is_static = 0),
    Q(MOXIE_F4_E2M1, MOXIE_F8_E4M3, 1, 16, .global = MOXIE_GLOBAL_DIVIDE, .is_static = 1),
};

static moxie_quant pick_quant(fuzz_layer *l, fuzz_bytes *b, const moxie_quant *list, uint32_t count)
{
    const uint32_t which = fuzz_byte(b);
    moxie_quant q = list[which % count];
    if (!l->tame && which == 0xff) { /* one field gets any value */
        int32_t *field = (int32_t *)&q + fuzz_below(b, sizeof q / sizeof(int32_t));
        *field = (int32_t)fuzz_byte(b) - 3;
    }
    return q;
}

static float *make_floats(fuzz_layer *l, int64_t count, float add)
{
    float *floats = fuzz_layer_own(l, (size_t)count * sizeof *floats);
    for (int64_t i = 0; i < count; i++)
        floats[i] = fuzz_layer_number(l) + add;
    return floats;
}

static int turn(void *user, int64_t tokens, const float *logits, int32_t *ids, float *weights)
{
    const moxie_layer_config *c = user;
    (void)logits;
    for (int64_t i = 0; i < tokens * c->top_k; i++) {
        ids[i] = (int32_t)(i % (c->experts + 1)) - 1;
        weights[i] = 0.5f;
    }
    return 0;
}

static void make_routing(fuzz_layer *l, fuzz_bytes *b)
{
    static const char *const methods[] = {
        "default",  "renormalize", "deepseek_v3", "llama4", "topk",        "sigmoid", "sigmoid_renorm", "topk_sigmoid",
        "minimax2", "deepseek_v4", "hash",        "custom", "sim_uniform", "default", "sim_normal",     "sparsemixer",
    };
    moxie_layer_config *c = &l->config;
    moxie_routing *r = &c->routing;
    FUZZ_CHECK(moxie_routing_by_name(methods[fuzz_below(b, COUNT(methods))], r, NULL) == MOXIE_OK);
    const uint32_t with = fuzz_byte(b);
    if (r->select == MOXIE_SELECT_CUSTOM) {
        r->custom = turn;
        r->custom_user = c;
        return;
    }
    r->seed = with;
    if (r->select == MOXIE_SELECT_TABLE) {
        r->table_rows = 3;
        int32_t *table = fuzz_layer_own(l, (size_t)(r->table_rows * c->top_k) * sizeof *table);
        for (int64_t i = 0; i < r->table_rows * c->top_k; i++)
            table[i] = (int32_t)(fuzz_layer_next(l) % (uint32_t)c->experts);
        r->table = table;
    }
    if (with & 1 && r->select == MOXIE_SELECT_TOPK)
        r->bias = make_floats(l, c->experts, 0);
    if (with & 2)
        r->per_expert_scale = make_floats(l, c->experts, 0);
    if (with & 4)
        r->on_input = 1;
    if (r->select == MOXIE_SELECT_SPARSEMIXER)
        c->top_k = mox_min_i64(2, c->experts);
    if (with & 8 && c->experts % 2 == 0 && r->select == MOXIE_SELECT_TOPK) {
        r->n_group = 2;
        r->topk_group = c->top_k > c->experts / 2 ? 2 : 1;
    }
    if (with & 16)
        r->round_weights_bf16 = 1;
    if ((with & 0x60) == 0x60)
        r->scale = l->tame ? 2.5f : fuzz_layer_number(l);
}

static void make_activation(fuzz_layer *l, fuzz_bytes *b)
{
    moxie_activation *a = &l->config.activation;
    const uint32_t kind = fuzz_below(b, 12), with = fuzz_byte(b);
    a->kind = (int32_t)(kind < 6 ? kind : kind + 10);
    if (with & 1)
        a->alpha = 1.702f;
    if (with & 2)
        a->beta = 1;
    if (with & 4)
        a->gate_limit = a->up_limit = l->tame || !(with & 0x80) ? 0.75f : fabsf(fuzz_layer_number(l));
    if (with & 8)
        a->expert_alpha = make_floats(l, l->config.experts, 2);
    if (with & 16)
        a->expert_limit = make_floats(l, l->config.experts, 2);
}

static void make_shared(fuzz_layer *l, fuzz_bytes *b)
{
    moxie_shared_config *s = &l->config.shared;
    s->intermediate = 1 + fuzz_below(b, 48);
    s->w13 = pick_quant(l, b, weight_quants, COUNT(weight_quants));
    s->w2 = pick_quant(l, b, weight_quants, COUNT(weight_quants));
    s->a13 = pick_quant(l, b, act_quants, COUNT(act_quants));
    s->a2 = pick_quant(l, b, act_quants, COUNT(act_quants));
    s->has_gate = (int32_t)fuzz_below(b, 2);
    s->scale = s->has_gate ? 0.5f : 0.0f;
}

static void make_config(fuzz_layer *l, fuzz_bytes *b)
{
    static const int64_t sizes[] = { 1, 3, 16, 32, 33, 32, 64, 16, 70, 64, 40, 128 };
    moxie_layer_config *c = &l->config;
    const uint32_t with = fuzz_byte(b);
    *c = (moxie_layer_config)MOXIE_LAYER_CONFIG_INIT;
    c->dtype = float_of(b);
    c->hidden = sizes[fuzz_below(b, COUNT(sizes))];
    c->intermediate = sizes[fuzz_below(b, COUNT(sizes))];
    if (fuzz_below(b, 4) == 3) /* as layouts of other engines need it */
        c->hidden = c->intermediate = 128;
    c->experts = 1 + fuzz_below(b, c->hidden * c->intermediate > 4096 ? 2 : FUZZ_EXPERTS);
    c->top_k = 1 + fuzz_below(b, (uint32_t)mox_min_i64(c->experts, 4));
    make_activation(l, b);
    make_routing(l, b);
    c->w13 = pick_quant(l, b, weight_quants, COUNT(weight_quants));
    c->w2 = with & 1 || c->hidden == 128 ? c->w13 : pick_quant(l, b, weight_quants, COUNT(weight_quants));
    c->a13 = pick_quant(l, b, act_quants, COUNT(act_quants));
    c->a2 = with & 2 ? c->a13 : pick_quant(l, b, act_quants, COUNT(act_quants));
    c->bias13 = (with & 4) != 0;
    c->bias2 = (with & 8) != 0;
    if (with & 16)
        make_shared(l, b);
    if (with & 32)
        c->router_width = with & 64 ? c->hidden : 1 + fuzz_below(b, 40);
    c->router_has_bias = c->router_width > 0 && with & 128;
    if (fuzz_below(b, 8) == 1) {
        c->ep_size = 1 + (int32_t)fuzz_below(b, 3);
        c->ep_rank = (int32_t)fuzz_below(b, (uint32_t)c->ep_size);
        c->ep_map = (int32_t)fuzz_below(b, 2);
    }
}

void fuzz_layer_make(fuzz_layer *l, fuzz_bytes *b)
{
    const uint32_t first = fuzz_byte(b);
    memset(l, 0, sizeof *l);
    l->tame = first % 2 == 0;
    l->state = first;
    make_config(l, b);
    moxie_layer_config *c = &l->config;
    l->weights = (moxie_weights)MOXIE_WEIGHTS_INIT;
    l->weights.n_experts = c->experts;
    l->weights.experts = l->experts;
    l->has_weights = moxie_layer_config_check(c, NULL) == MOXIE_OK;
    if (!l->has_weights) /* a configuration that is rejected before its weights are read */
        return;
    for (int64_t e = 0; e < c->experts; e++)
        l->experts[e] = make_expert(l, b, &c->w13, &c->w2, c->intermediate, c->bias13 != 0, c->bias2 != 0);
    const moxie_quant plain = { .element = float_of(b) };
    if (c->router_width > 0)
        l->weights.router = make_matrix(l, b, &plain, c->experts, c->router_width, c->router_has_bias != 0);
    if (c->shared.intermediate == 0)
        return;
    l->experts[FUZZ_EXPERTS] = make_expert(l, b, &c->shared.w13, &c->shared.w2, c->shared.intermediate, false, false);
    l->weights.shared = &l->experts[FUZZ_EXPERTS];
    if (c->shared.has_gate)
        l->weights.shared_gate = make_matrix(l, b, &plain, 1, c->hidden, false);
}
