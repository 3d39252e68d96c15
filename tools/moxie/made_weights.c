/* SPDX-License-Identifier: Apache-2.0
 *
 * made_weights.c - random weights of one layer for a configuration, with the right sizes and formats. For benchmarks,
 * and for runs without a checkpoint.
 *
 *     block of codes:   | ............ one matrix ............ | slack |
 *                        ^ expert 0 gate    ^ each matrix begins at a place of its own within the slack
 *
 * A kernel's time does not depend on the values as long as they are ordinary: no NaN, no infinities, nothing
 * subnormal on the way. Weights are about 1/sqrt(K), so that activations keep their size. Every word of a block is
 * splitmix64 of (seed, block, index), a counter-based generator: a seed means the same bytes everywhere.
 */
#include "made_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <moxie/moxie_quantize.h>

#include "cli.h"

enum {
    SLACK = 96 * 1024,
    STEP = 192,
    PALETTE = 4096
}; /* STEP: a multiple of 1, 2, 3 and 4 bytes, so elements stay whole */

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

typedef struct maker {
    made_weights *out;
    uint64_t seed;
    bool failed;
    moxie_status status; /* of making blocks */
    moxie_error *error;
} maker;

static void *own(maker *m, uint64_t bytes)
{
    const int max = (int)(sizeof m->out->blocks / sizeof m->out->blocks[0]);
    void *block = m->out->n_blocks < max ? malloc(bytes + 8) : NULL; /* room for the last whole word */
    m->failed = m->failed || !block;
    if (block)
        m->out->blocks[m->out->n_blocks++] = block;
    return block;
}

static uint64_t random_word(const maker *m, uint64_t index)
{
    return mix(m->seed + ((uint64_t)m->out->n_blocks << 48) + index * 0x9e3779b97f4a7c15u);
}

/* ---- grids ------------------------------------------------------------------------------------------ */

static moxie_packing dense_packing(moxie_dtype dtype)
{
    const int32_t bits = moxie_dtype_bits(dtype);
    if (bits == 4)
        return (moxie_packing) { .word_bytes = 1, .per_word = 2 };
    if (bits == 6)
        return (moxie_packing) { .word_bytes = 3, .per_word = 4 };
    return (moxie_packing) { .word_bytes = (int8_t)(bits / 8), .per_word = 1 };
}

static uint64_t dense_bytes(moxie_dtype dtype, int64_t rows, int64_t cols)
{
    const moxie_packing p = dense_packing(dtype);
    return (uint64_t)rows * (uint64_t)((cols + p.per_word - 1) / p.per_word) * (uint64_t)p.word_bytes;
}

static moxie_grid dense_grid(const void *data, moxie_dtype dtype, int64_t rows, int64_t cols)
{
    const uint64_t bytes = dense_bytes(dtype, rows, cols);
    const moxie_packing packing = dense_packing(dtype);
    return (moxie_grid) { .data = data,
                          .bytes = bytes,
                          .rows = rows,
                          .cols = cols,
                          .row_stride = rows > 0 ? (int64_t)(bytes / (uint64_t)rows) : 0,
                          .col_stride = packing.word_bytes,
                          .dtype = dtype,
                          .packing = packing };
}

/* ---- blocks of codes --------------------------------------------------------------------------------- */

/* Twelve uniforms of 5 bits: near enough to normal. */
static float random_normal(uint64_t bits)
{
    int sum = 0;
    for (int i = 0; i < 12; i++)
        sum += (int)(bits >> (5 * i) & 31);
    return ((float)sum - 186.0f) / 32.0f;
}

/* Fills elements of whole bytes with random ones of `count` codes (a power of two up to PALETTE). */
static void *fill_from(maker *m, size_t width, int64_t elements, const uint32_t *palette, uint32_t count)
{
    unsigned char *block = own(m, (uint64_t)elements * width + SLACK + 4 * width);
    const int64_t total = elements + SLACK / (int64_t)width;
    for (int64_t i = 0; block && i < total; i += 4) {
        const uint64_t word = random_word(m, (uint64_t)i);
        for (int part = 0; part < 4; part++)
            memcpy(block + (size_t)(i + part) * width, &palette[(word >> (16 * part)) & (count - 1)], width);
    }
    return block;
}

static void *fill_normal(maker *m, moxie_dtype dtype, int64_t elements, float size)
{
    uint32_t palette[PALETTE];
    for (uint64_t i = 0; i < PALETTE; i++)
        palette[i] = moxie_encode(dtype, size * random_normal(mix(m->seed + i)));
    return fill_from(m, (size_t)moxie_dtype_bits(dtype) / 8, elements, palette, PALETTE);
}

/* Scales between half and twice `size`, uniform. */
static void *fill_scales(maker *m, moxie_dtype dtype, int64_t elements, double size)
{
    uint32_t palette[PALETTE];
    for (uint64_t i = 0; i < PALETTE; i++)
        palette[i] = moxie_encode(dtype, (float)(size * (0.5 + 1.5 * (double)i / PALETTE)));
    return fill_from(m, (size_t)moxie_dtype_bits(dtype) / 8, elements, palette, PALETTE);
}

/* Any bits are valid codes of 4 and 6 bits. Some 8-bit formats have NaN and infinity, which become 0. */
static void *fill_codes(maker *m, moxie_dtype dtype, int64_t rows, int64_t cols)
{
    uint32_t palette[256];
    if (moxie_dtype_bits(dtype) == 8) {
        for (uint32_t code = 0; code < 256; code++)
            palette[code] = isfinite(moxie_decode(dtype, code)) ? code : 0;
        return fill_from(m, 1, rows * cols, palette, 256);
    }
    const uint64_t bytes = dense_bytes(dtype, rows, cols) + SLACK;
    unsigned char *block = own(m, bytes);
    for (uint64_t i = 0; block && i < bytes; i += 8) {
        const uint64_t word = random_word(m, i);
        memcpy(block + i, &word, 8);
    }
    return block;
}

/* Zero points near the code of value 0. Nibbles are filled in pairs. */
static void *fill_zeros(maker *m, moxie_dtype dtype, int64_t rows, int64_t cols)
{
    uint32_t palette[16];
    const bool pairs = moxie_dtype_bits(dtype) == 4;
    for (uint32_t i = 0; i < 16; i++) {
        palette[i] = moxie_encode(dtype, (float)((int)(i & 3) - 1));
        if (pairs)
            palette[i] = (palette[i] & 15) | moxie_encode(dtype, (float)((int)(i >> 2) - 1)) << 4;
    }
    const size_t width = pairs ? 1 : (size_t)moxie_dtype_bits(dtype) / 8;
    return fill_from(m, width, (int64_t)(dense_bytes(dtype, rows, cols) / width), palette, 16);
}

enum { BLOCKS_AT_ONCE = 64, MAX_BLOCK = 256 };

/* A matrix of normal weights as blocks of a GGUF type, and blocks in the slack. */
static moxie_grid make_blocks(maker *m, moxie_dtype dtype, int64_t rows, int64_t cols, float size)
{
    float w[BLOCKS_AT_ONCE * MAX_BLOCK];
    moxie_grid grid = { 0 };
    int32_t bytes = 0;
    const int32_t weights = moxie_dtype_block(dtype, &bytes);
    const int64_t blocks = rows * (cols / weights), count = blocks + SLACK / bytes;
    unsigned char *out = own(m, (uint64_t)count * (uint64_t)bytes);
    for (int64_t b = 0; out && b < count && m->status == MOXIE_OK; b += BLOCKS_AT_ONCE) {
        const int64_t n = count - b < BLOCKS_AT_ONCE ? count - b : BLOCKS_AT_ONCE;
        for (int64_t i = 0; i < n * weights; i++)
            w[i] = size * random_normal(random_word(m, (uint64_t)(b * weights + i)));
        m->status = moxie_block_encode(dtype, w, n, weights, out + b * bytes, (uint64_t)(n * bytes), &grid, m->error);
    }
    grid.data = out;
    grid.bytes = (uint64_t)(blocks * bytes);
    grid.rows = rows, grid.cols = cols;
    grid.row_stride = cols / weights * bytes;
    return grid;
}

/* Root mean square of the finite values of a narrow format. */
static double typical_value(moxie_dtype dtype)
{
    double sum = 0, count = 0;
    for (uint32_t code = 0; code < UINT32_C(1) << moxie_dtype_bits(dtype); code++) {
        const double value = (double)moxie_decode(dtype, code);
        if (isfinite(value)) {
            sum += value * value;
            count++;
        }
    }
    return sqrt(sum / count);
}

/* ---- matrices ----------------------------------------------------------------------------------------- */

/* The grids of a role's first matrix, from which its other matrices are made. */
static moxie_matrix make_role(maker *m, const moxie_quant *q, int64_t rows, int64_t cols, bool bias)
{
    moxie_matrix role = { 0 };
    const double size = 1 / sqrt((double)cols), block_scale = 64; /* block_scale: the typical e4m3 scale */
    const bool plain = !q->scale;
    int32_t bytes;
    if (moxie_dtype_block(q->element, &bytes) > 0)
        role.codes = make_blocks(m, q->element, rows, cols, (float)size);
    else
        role.codes = dense_grid(plain ? fill_normal(m, q->element, rows * cols, (float)size)
                                      : fill_codes(m, q->element, rows, cols),
                                q->element, rows, cols);
    if (bias)
        role.bias = dense_grid(fill_normal(m, MOXIE_BF16, rows, 0.1f), MOXIE_BF16, rows, 1);
    if (plain)
        return role;
    const double scale = size / typical_value(q->element);
    const int64_t group_rows = q->group_rows < 0 || q->group_rows > rows ? rows : q->group_rows > 0 ? q->group_rows : 1;
    const int64_t group_cols = q->group_cols <= 0 || q->group_cols > cols ? cols : q->group_cols;
    const int64_t scale_rows = (rows + group_rows - 1) / group_rows, scale_cols = (cols + group_cols - 1) / group_cols;
    const double in_block = q->global ? block_scale : scale;
    role.scale =
        dense_grid(fill_scales(m, q->scale, scale_rows * scale_cols, in_block), q->scale, scale_rows, scale_cols);
    if (q->has_zero)
        role.zero = dense_grid(fill_zeros(m, q->element, scale_rows, scale_cols), q->element, scale_rows, scale_cols);
    if (q->global) {
        const double global = q->global == MOXIE_GLOBAL_MULTIPLY ? scale / block_scale : block_scale / scale;
        role.global = dense_grid(fill_scales(m, MOXIE_F32, 1, global), MOXIE_F32, 1, 1);
    }
    return role;
}

/* By `steps` of STEP bytes, or of as few whole blocks as have so many. */
static void move_grid(moxie_grid *grid, uint64_t steps)
{
    int32_t bytes = 0;
    uint64_t step = STEP, most = SLACK / STEP;
    if (!grid->data)
        return;
    if (moxie_dtype_block(grid->dtype, &bytes) > 0) {
        step = (STEP + (uint64_t)bytes - 1) / (uint64_t)bytes * (uint64_t)bytes;
        most = SLACK / (uint64_t)bytes * (uint64_t)bytes / step;
    }
    grid->data = (const char *)grid->data + steps % most * step;
}

/* Matrix number `index` of the role. */
static moxie_matrix matrix_at(const moxie_matrix *role, uint64_t index)
{
    moxie_matrix matrix = *role;
    const uint64_t steps = mix(index) % (SLACK / STEP);
    move_grid(&matrix.codes, steps);
    move_grid(&matrix.scale, steps);
    move_grid(&matrix.zero, steps);
    move_grid(&matrix.global, steps);
    move_grid(&matrix.bias, steps);
    return matrix;
}

/* A static scale or global for activations of a few units; 0 where none is read. */
static float activation_scale(const moxie_quant *a)
{
    const double largest = 4;
    if (!a->element || (!a->is_static && !a->global))
        return 0;
    const double max = (double)moxie_decode(a->element, moxie_encode(a->element, 3e38f));
    if (!a->global)
        return (float)(largest / max);
    const double global = largest / (448.0 * max);
    return (float)(a->global == MOXIE_GLOBAL_MULTIPLY ? global : 1 / global);
}

static moxie_expert make_expert(const moxie_matrix *w13, const moxie_matrix *w2, bool gated, const moxie_quant *a13,
                                const moxie_quant *a2, uint64_t index)
{
    moxie_expert expert = { .up = matrix_at(w13, 3 * index), .down = matrix_at(w2, 3 * index + 1) };
    if (gated)
        expert.gate = matrix_at(w13, 3 * index + 2);
    expert.a13_scale = activation_scale(a13);
    expert.a2_scale = activation_scale(a2);
    return expert;
}

static void make_shared(maker *m, const moxie_layer_config *c, bool gated)
{
    const moxie_shared_config *s = &c->shared;
    const moxie_matrix w13 = make_role(m, &s->w13, s->intermediate, c->hidden, s->bias13 != 0);
    const moxie_matrix w2 = make_role(m, &s->w2, c->hidden, s->intermediate, s->bias2 != 0);
    m->out->shared = make_expert(&w13, &w2, gated, &s->a13, &s->a2, 0);
    m->out->views.shared = &m->out->shared;
    if (s->has_gate)
        m->out->views.shared_gate.codes =
            dense_grid(fill_normal(m, MOXIE_BF16, c->hidden, 0.01f), MOXIE_BF16, 1, c->hidden);
}

/* Logits of about unit variance, whatever the width. */
static void make_router(maker *m, const moxie_layer_config *c)
{
    const float size = (float)(1 / sqrt((double)c->router_width));
    moxie_matrix *router = &m->out->views.router;
    const int64_t rows = cli_candidates(c);
    router->codes =
        dense_grid(fill_normal(m, MOXIE_BF16, rows * c->router_width, size), MOXIE_BF16, rows, c->router_width);
    if (c->router_has_bias)
        router->bias = dense_grid(fill_normal(m, MOXIE_BF16, rows, 0.1f), MOXIE_BF16, rows, 1);
}

/* The weight of a norm, with small numbers where it is stored less 1. */
static moxie_matrix make_norm(maker *m, const moxie_row_norm *norm, int64_t cols)
{
    moxie_matrix weight = { 0 };
    if (norm->has_weight)
        weight.codes =
            dense_grid(fill_normal(m, MOXIE_BF16, cols, norm->weight_add != 0 ? 0.1f : 1), MOXIE_BF16, 1, cols);
    return weight;
}

moxie_status made_weights_make(const moxie_layer_config *config, uint64_t seed, made_weights *out, moxie_error *error)
{
    maker m = { .out = out, .seed = mix(seed + 1), .error = error };
    const moxie_layer_config *c = config;
    const bool gated = moxie_act_is_gated(c->activation.kind);
    *out = (made_weights) { .views = MOXIE_WEIGHTS_INIT };
    out->experts = calloc((size_t)c->experts, sizeof *out->experts);
    const moxie_matrix w13 = make_role(&m, &c->w13, c->intermediate, c->hidden, c->bias13 != 0);
    const moxie_matrix w2 = make_role(&m, &c->w2, c->hidden, c->intermediate, c->bias2 != 0);
    for (int64_t e = 0; out->experts && e < c->experts; e++)
        out->experts[e] = make_expert(&w13, &w2, gated, &c->a13, &c->a2, (uint64_t)e + 1);
    if (c->shared.intermediate > 0)
        make_shared(&m, c, c->has_shared_activation ? moxie_act_is_gated(c->shared_activation.kind) : gated);
    if (c->router_width > 0)
        make_router(&m, c);
    out->views.router_norm = make_norm(&m, &c->router_norm, c->router_width);
    out->views.expert_norm = make_norm(&m, &c->expert_norm, c->hidden);
    out->views.n_experts = c->experts;
    out->views.experts = out->experts;
    if (m.status != MOXIE_OK)
        return m.status;
    if (!m.failed && out->experts)
        return MOXIE_OK;
    return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory to make up the weights of one expert of %lld x %lld",
                     (long long)c->hidden, (long long)c->intermediate);
}

void made_weights_free(made_weights *weights)
{
    for (int i = 0; i < weights->n_blocks; i++)
        free(weights->blocks[i]);
    free(weights->experts);
    *weights = (made_weights) { 0 };
}

static uint64_t grid_bytes(const moxie_grid *grid)
{
    int32_t block_bytes = 0;
    if (!grid->data)
        return 0;
    const int32_t weights = moxie_dtype_block(grid->dtype, &block_bytes);
    if (weights > 0)
        return (uint64_t)(grid->rows * (grid->cols / weights) * block_bytes);
    return (uint64_t)(grid->rows * grid->cols * moxie_dtype_bits(grid->dtype) + 7) / 8;
}

uint64_t made_expert_bytes(const moxie_expert *expert)
{
    const moxie_matrix *const all[] = { &expert->gate, &expert->up, &expert->down };
    uint64_t bytes = 0;
    for (int i = 0; i < 3; i++)
        bytes += grid_bytes(&all[i]->codes) + grid_bytes(&all[i]->scale) + grid_bytes(&all[i]->zero) +
                 grid_bytes(&all[i]->global) + grid_bytes(&all[i]->bias);
    return bytes;
}
