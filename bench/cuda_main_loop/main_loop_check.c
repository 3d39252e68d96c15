/* SPDX-License-Identifier: Apache-2.0
 *
 * main_loop_check.c - the Hopper kernels on small and odd shapes, against double precision and against themselves.
 *
 *     first product    act(gate, up) against double precision from the same operands; the quantized operand of the
 * second against the CPU's quantizer, byte for byte second product   rows against double precision from the operand
 * that the first one made bytes            the same for every width of token tiles, every number of blocks, every batch
 * of which a token is part, and from run to run
 *
 * Bounds: a chain of n additions in fp32 with operands that the tensor cores align before they add, (n + 2) 2^-23 of
 * the sum of magnitudes; with 8-bit elements they keep about 13 bits while they add one chunk (spec: measured), 2^-12
 * of it.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "main_loop.h"
#include "pack/hopper.h"

typedef struct spec {
    mox_sm90_element element;
    int64_t hidden, intermediate;
    int gated, bias, block; /* block: scales of block x 128, 1: of rows, 0: of the tensor */
    int slots, top_k;
    int64_t tokens;
} spec;

typedef struct model {
    spec s;
    mox_record_shape shape;
    mox_hopper_record form;
    moxie_expert *experts;
    double *w[3]; /* gate, up, down: [slots][rows][cols] */
    float *b[3];  /* [slots][rows] */
    double *x;    /* [T][H] */
    uint64_t record_bytes;
    uint8_t *records;
    loop_layer layer;
    int32_t *ids;
    int64_t *pair_slot, *pair_token, pairs;
} model;

static uint64_t state = 1;

static uint32_t next_bits(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}

static float normal(void)
{
    const double u = (next_bits() + 0.5) / 4294967296.0, v = next_bits() / 4294967296.0;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static moxie_dtype dtype_of(const spec *s)
{
    return s->element == MOX_SM90_BF16 ? MOXIE_BF16 : s->element == MOX_SM90_F16 ? MOXIE_F16 : MOXIE_F8_E4M3;
}

static moxie_quant quant_of(const spec *s)
{
    if (s->element != MOX_SM90_E4M3)
        return (moxie_quant) { .element = dtype_of(s) };
    return (moxie_quant) { .element = MOXIE_F8_E4M3,
                           .scale = MOXIE_F32,
                           .group_rows = s->block == 0 ? -1 : s->block,
                           .group_cols = s->block > 1 ? 128 : -1 };
}

/* Random codes, scales and biases of one matrix, and its values. */
static void make_matrix(const moxie_quant *q, int64_t rows, int64_t cols, int bias, moxie_matrix *m, double *w,
                        float *b)
{
    const int64_t size = mox_dtype_bytes(q->element), sr = mox_scale_rows(q, rows), sc = mox_scale_cols(q, cols);
    uint8_t *codes = malloc((size_t)(rows * cols * size));
    float *scales = malloc((size_t)(sr * sc) * sizeof(float));
    const float unit = size == 1 ? 16.0f : 1.0f / sqrtf((float)cols);
    for (int64_t i = 0; i < rows * cols; i++) {
        const uint32_t code = mox_format_of(q->element)->encode(normal() * unit);
        memcpy(codes + i * size, &code, (size_t)size);
    }
    for (int64_t i = 0; i < sr * sc; i++)
        scales[i] = expf(0.5f * normal()) / (16.0f * sqrtf((float)cols));
    *m = (moxie_matrix) { .codes = mox_grid_dense(codes, q->element, rows, cols) };
    if (q->scale != MOXIE_DTYPE_NONE)
        m->scale = mox_grid_dense(scales, MOXIE_F32, sr, sc);
    for (int64_t r = 0; r < rows; r++)
        b[r] = bias ? normal() : 0.0f;
    if (bias)
        m->bias = mox_grid_dense(b, MOXIE_F32, rows, 1);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k++)
            w[r * cols + k] = mox_matrix_weight(m, q, r, k);
}

static void place_product(mox_sm90_args *args, const mox_hopper_matrix *m, const model *p)
{
    args->records = p->records;
    args->record_bytes = p->record_bytes;
    args->tiles_at = m->tiles_at;
    args->row_scale_at = m->row_scale_at;
    args->bias_at = m->bias_at;
    args->tile_bytes = m->tile_bytes;
    args->last_rows = m->last_rows;
    args->tiles = (int32_t)m->tiles;
    args->chunks = (int32_t)m->chunks;
    args->rows = (int32_t)m->rows;
}

static void make_weights(model *p)
{
    const spec *s = &p->s;
    const int64_t h = s->hidden, i = s->intermediate, rows[3] = { i, i, h }, cols[3] = { h, h, i };
    const moxie_quant q = quant_of(s);
    p->shape = (mox_record_shape) {
        .hidden = h, .intermediate = i, .gated = s->gated, .w13 = q, .w2 = q, .bias13 = s->bias, .bias2 = s->bias
    };
    mox_hopper_form(&p->shape, &p->form);
    const mox_layout *layout = mox_layout_by_name("hopper");
    layout->record_bytes(&p->shape, &p->record_bytes);
    p->records = loop_alloc(p->record_bytes * (uint64_t)s->slots);
    p->experts = calloc((size_t)s->slots, sizeof *p->experts);
    void *record = aligned_alloc(128, p->record_bytes);
    for (int m = 0; m < 3; m++) {
        p->w[m] = malloc((size_t)(s->slots * h * i) * sizeof(double));
        p->b[m] = calloc((size_t)(s->slots * rows[m]), sizeof(float));
    }
    for (int e = 0; e < s->slots; e++) {
        moxie_matrix *const to[3] = { &p->experts[e].gate, &p->experts[e].up, &p->experts[e].down };
        for (int m = s->gated ? 0 : 1; m < 3; m++)
            make_matrix(&q, rows[m], cols[m], s->bias, to[m], p->w[m] + e * h * i, p->b[m] + e * rows[m]);
        moxie_error error;
        if (mox_record_pack(layout, &p->shape, e, &p->experts[e], record, &error) != MOXIE_OK) {
            fprintf(stderr, "pack: %s\n", error.text);
            exit(1);
        }
        loop_up(p->records + (uint64_t)e * p->record_bytes, record, p->record_bytes);
        for (int m = s->gated ? 0 : 1; m < 3; m++) {
            free((void *)(uintptr_t)to[m]->codes.data);
            free((void *)(uintptr_t)to[m]->scale.data);
        }
    }
    free(record);
    place_product(&p->layer.gemm[0], &p->form.w13, p);
    place_product(&p->layer.gemm[1], &p->form.w2, p);
}

static void make_tokens(model *p)
{
    const spec *s = &p->s;
    const int64_t stride16 = p->layer.gemm[0].a_stride / (s->element == MOX_SM90_E4M3 ? 1 : 2);
    const int64_t groups = stride16 / 128;
    uint16_t *wide = calloc((size_t)(s->tokens * stride16 + 1), 2);
    uint8_t *codes = calloc((size_t)(s->tokens * stride16 + 1), 1);
    float *scales = calloc((size_t)(s->tokens * groups + 1), 4), *row = malloc((size_t)s->hidden * 4);
    p->x = malloc((size_t)(s->tokens * s->hidden + 1) * sizeof(double));
    const moxie_quant act = {
        .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_cols = 128, .group_rows = 1, .rule = MOXIE_RULE_AMAX
    };
    const mox_act_quantizer quantizer = { .quant = &act };
    for (int64_t t = 0; t < s->tokens; t++) {
        for (int64_t k = 0; k < s->hidden; k++)
            row[k] = normal() * (next_bits() % 64 == 0 ? 20.0f : 1.0f);
        if (s->element == MOX_SM90_E4M3)
            mox_act_quant_row(&quantizer, row, s->hidden, codes + t * stride16, scales + t * groups);
        for (int64_t k = 0; k < s->hidden; k++) {
            const uint32_t code =
                s->element == MOX_SM90_E4M3 ? codes[t * stride16 + k] : mox_format_of(dtype_of(s))->encode(row[k]);
            wide[t * stride16 + k] = (uint16_t)code;
            p->x[t * s->hidden + k] = (double)mox_format_of(dtype_of(s))->decode(code) *
                                      (s->element == MOX_SM90_E4M3 ? (double)scales[t * groups + k / 128] : 1.0);
        }
    }
    if (s->element == MOX_SM90_E4M3) {
        loop_up(p->layer.codes, codes, (uint64_t)(s->tokens * stride16));
        loop_up(p->layer.scales, scales, (uint64_t)(s->tokens * groups) * 4);
    } else {
        loop_up(p->layer.hidden16, wide, (uint64_t)(s->tokens * stride16) * 2);
    }
    free(wide), free(codes), free(scales), free(row);
}

static void make_routing(model *p)
{
    const spec *s = &p->s;
    p->ids = malloc((size_t)(s->tokens * s->top_k + 1) * sizeof(int32_t));
    for (int64_t c = 0; c < s->tokens * s->top_k; c++) {
        const uint32_t r = next_bits();
        p->ids[c] = r % 16 == 0 ? -1 : r % 3 == 0 ? 0 : (int32_t)(r / 48 % (uint32_t)s->slots);
    }
}

/* ---- results, by (token, slot) ------------------------------------------------------------------------------ */

typedef struct result {
    float *rows;   /* [T * K][H] */
    float *wide;   /* [T * K][I] */
    uint8_t *next; /* [T * K][stride bytes] */
    float *scales; /* [T * K][groups] */
} result;

static int64_t next_bytes(const model *p)
{
    return p->layer.gemm[0].next_stride * (p->s.element == MOX_SM90_E4M3 ? 1 : 2);
}

/* Rows of the device's pairs to the places of their choices. */
static void *gather(const model *p, const void *device, int64_t row_bytes, int64_t tokens)
{
    const int64_t choices = tokens * p->s.top_k;
    uint8_t *host = malloc((size_t)(p->layer.max_pairs * row_bytes)),
            *out = calloc((size_t)(choices + 1), (size_t)row_bytes);
    loop_down(host, device, (uint64_t)(p->layer.max_pairs * row_bytes));
    int64_t n = 0;
    for (int slot = 0; slot < p->s.slots; slot++)
        for (int64_t c = 0; c < choices; c++)
            if (p->ids[c] == slot)
                memcpy(out + c * row_bytes, host + n++ * row_bytes, (size_t)row_bytes);
    free(host);
    return out;
}

/* `tiled`: 0 rows, 1 the second product's tokens as tiles, 2 both. */
static result run(model *p, int32_t most, int blocks, int64_t tokens, int tiled)
{
    loop_layer *l = &p->layer;
    l->tiled[0] = tiled > 1;
    l->tiled[1] = tiled > 0;
    const int64_t groups = l->gemm[0].next_scale_stride;
    l->blocks = blocks;
    loop_poison(l->rows, (uint64_t)(l->max_pairs * l->hidden) * 4);
    loop_poison(l->gemm[0].next, (uint64_t)(l->max_pairs * next_bytes(p)));
    loop_poison(l->gemm[0].next_scale, (uint64_t)(l->max_pairs * groups) * 4);
    loop_poison(l->gemm[0].wide, (uint64_t)(l->max_pairs * l->gemm[0].wide_stride) * 4);
    loop_layer_route(l, 0, p->ids, tokens);
    loop_layer_run(l, 0, LOOP_LIST | LOOP_GATHER | LOOP_FIRST | LOOP_SECOND, most, tokens, NULL);
    loop_ok((int)cudaDeviceSynchronize(), "run");
    return (result) { .rows = gather(p, l->rows, l->hidden * 4, tokens),
                      .wide = gather(p, l->gemm[0].wide, l->gemm[0].wide_stride * 4, tokens),
                      .next = gather(p, l->gemm[0].next, next_bytes(p), tokens),
                      .scales = gather(p, l->gemm[0].next_scale, groups * 4, tokens) };
}

static void drop(result *r)
{
    free(r->rows), free(r->wide), free(r->next), free(r->scales);
}

/* ---- against double precision ----------------------------------------------------------------------------- */

typedef struct worst {
    double ratio, got, want;
    int64_t choice, column;
} worst;

static void note(worst *w, double got, double want, double bound, int64_t choice, int64_t column)
{
    const double ratio = fabs(got - want) / bound;
    if (!(ratio <= w->ratio))
        *w = (worst) { isnan(ratio) ? INFINITY : ratio, got, want, choice, column };
}

/* sum w x + b and its bound. */
static double dot(const spec *s, const double *w, const double *x, int64_t cols, float b, double *bound)
{
    double sum = 0, magnitude = 0, aligned = 0;
    for (int64_t k = 0; k < cols; k += 32) {
        double most = 0;
        const double before = k % 128 == 0 ? 0 : sum;
        for (int64_t i = k; i < k + 32 && i < cols; i++) {
            sum += w[i] * x[i];
            magnitude += fabs(w[i] * x[i]);
            most = fmax(most, fabs(w[i] * x[i]));
        }
        aligned += fmax(most, k % 128 == 0 ? 0 : fabs(before));
    }
    const bool bytes = s->element == MOX_SM90_E4M3;
    const double steps = bytes ? (double)cols / 128 + 6 : (double)cols / 16 + 2;
    *bound = magnitude * steps * 0x1p-23 + (bytes ? aligned * 33 * 0x1p-13 : 0) + fabs(b) * 0x1p-23 + 1e-30;
    return sum + (double)b;
}

static double silu(double g)
{
    return g / (1 + exp(-g));
}

/* act(gate, up) of one choice and its bound, before it is rounded. */
static double activated(const model *p, int64_t c, int64_t i, double *bound)
{
    const spec *s = &p->s;
    const int64_t e = p->ids[c], size = s->hidden * s->intermediate;
    const double *x = p->x + c / s->top_k * s->hidden;
    double bg = 0, bu = 0, g = 0;
    const double u = dot(s, p->w[1] + e * size + i * s->hidden, x, s->hidden, p->b[1][e * s->intermediate + i], &bu);
    if (!s->gated) {
        *bound = 1.1 * bu + 1e-6 * fabs(silu(u)) + 1e-30;
        return silu(u);
    }
    g = dot(s, p->w[0] + e * size + i * s->hidden, x, s->hidden, p->b[0][e * s->intermediate + i], &bg);
    *bound = 1.1 * bg * (fabs(u) + bu) + fabs(silu(g)) * bu + 1e-6 * fabs(silu(g) * u) + 1e-30;
    return silu(g) * u;
}

static int compare(const model *p, const result *r)
{
    const spec *s = &p->s;
    const bool bytes = s->element == MOX_SM90_E4M3;
    const int64_t size = s->hidden * s->intermediate, stride = p->layer.gemm[0].next_stride;
    const int64_t groups = p->layer.gemm[0].next_scale_stride;
    const moxie_quant act = {
        .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_cols = 128, .group_rows = 1, .rule = MOXIE_RULE_AMAX
    };
    const mox_act_quantizer quantizer = { .quant = &act };
    uint8_t *codes = calloc((size_t)stride, 1);
    float *scales = calloc((size_t)groups, 4);
    double *h = calloc((size_t)s->intermediate, sizeof(double));
    worst first = { 0 }, second = { 0 };
    int64_t codes_differ = 0;
    for (int64_t c = 0; c < s->tokens * s->top_k; c++) {
        if (p->ids[c] < 0)
            continue;
        const uint8_t *next = r->next + c * next_bytes(p);
        for (int64_t i = 0; i < s->intermediate; i++) {
            double bound;
            const double want = activated(p, c, i, &bound);
            double got = (double)r->wide[c * p->layer.gemm[0].wide_stride + i];
            if (bytes) {
                h[i] = (double)mox_format_of(MOXIE_F8_E4M3)->decode(next[i]) * (double)r->scales[c * groups + i / 128];
            } else {
                uint16_t code;
                memcpy(&code, next + 2 * i, 2);
                h[i] = got = (double)mox_format_of(dtype_of(s))->decode(code);
                bound += fabs(want) * 0x1p-8 + 0x1p-24;
            }
            note(&first, got, want, bound, c, i);
        }
        if (bytes) {
            mox_act_quant_row(&quantizer, r->wide + c * p->layer.gemm[0].wide_stride, s->intermediate, codes, scales);
            codes_differ += memcmp(codes, next, (size_t)s->intermediate) != 0 ||
                            memcmp(scales, r->scales + c * groups, (size_t)((s->intermediate + 127) / 128) * 4) != 0;
        }
        for (int64_t n = 0; n < s->hidden; n++) {
            double bound;
            const int64_t e = p->ids[c];
            const double want = dot(s, p->w[2] + e * size + n * s->intermediate, h, s->intermediate,
                                    p->b[2][e * s->hidden + n], &bound);
            note(&second, (double)r->rows[c * s->hidden + n], want, bound, c, n);
        }
    }
    free(codes), free(scales), free(h);
    const int bad = !(first.ratio <= 1) + !(second.ratio <= 1) + (codes_differ > 0);
    printf("  first %.3f of its bound, second %.3f, rows quantized otherwise %lld%s\n", first.ratio, second.ratio,
           (long long)codes_differ, bad ? "  FAILED" : "");
    if (!(first.ratio <= 1))
        printf("    first: choice %lld column %lld is %g, not %g\n", (long long)first.choice, (long long)first.column,
               first.got, first.want);
    if (!(second.ratio <= 1))
        printf("    second: choice %lld column %lld is %g, not %g\n", (long long)second.choice,
               (long long)second.column, second.got, second.want);
    return bad;
}

/* ---- against itself ------------------------------------------------------------------------------------------ */

/* Rows alone where the operand between the products lies otherwise. */
static int same(const model *p, const result *a, const result *b, bool rows_alone, int64_t tokens, const char *what,
                int64_t number)
{
    const int64_t choices = tokens * p->s.top_k, h = p->s.hidden * 4;
    int64_t differ = 0;
    for (int64_t c = 0; c < choices; c++)
        differ += p->ids[c] >= 0 &&
                  (memcmp((const uint8_t *)a->rows + c * h, (const uint8_t *)b->rows + c * h, (size_t)h) ||
                   (!rows_alone && memcmp(a->next + c * next_bytes(p), b->next + c * next_bytes(p),
                                          (size_t)(p->s.intermediate * (p->s.element == MOX_SM90_E4M3 ? 1 : 2)))));
    if (differ > 0)
        printf("  %lld of %lld rows differ with %s %lld  FAILED\n", (long long)differ, (long long)choices, what,
               (long long)number);
    return differ > 0;
}

static int invariant(model *p, const result *base)
{
    static const int32_t mosts[] = { 8, 16, 32, 64, 96, 128, 192 };
    static const int cuts[] = { 1, 2, 3, 5, 7, 13, 31, 64, 100, 131, 132 };
    const int64_t all = p->s.tokens;
    int bad = 0;
    for (int i = 0; i < 7; i++) {
        result r = run(p, mosts[i], 132, all, i % 3);
        bad += same(p, base, &r, i % 3 > 0, all, "token tiles of", mosts[i]);
        drop(&r);
    }
    for (int i = 0; i < 11; i++) {
        result r = run(p, 64, cuts[i], all, i % 3);
        bad += same(p, base, &r, i % 3 > 0, all, "blocks", cuts[i]);
        drop(&r);
    }
    for (int64_t t = 1; t <= all; t += t < 20 ? 1 : 9) {
        result r = run(p, 64, 132, t, (int)(t % 3));
        bad += same(p, base, &r, t % 3 > 0, t, "batches of", t);
        drop(&r);
    }
    return bad;
}

static int check(const spec *s, bool with_bytes)
{
    static const char *const names[] = { "bf16", "f16", "e4m3" };
    model p = { .s = *s };
    const loop_sizes sizes = { .hidden = s->hidden,
                               .intermediate = s->intermediate,
                               .max_tokens = s->tokens > 0 ? s->tokens : 1,
                               .slots = s->slots,
                               .top_k = s->top_k,
                               .routings = 1,
                               .blocks = 132,
                               .element = s->element,
                               .gated = s->gated,
                               .bias = s->bias };
    printf("%s H %lld I %lld%s%s scales %d, %d slots, %lld tokens x %d\n", names[s->element], (long long)s->hidden,
           (long long)s->intermediate, s->gated ? " gated" : "", s->bias ? " bias" : "", s->block, s->slots,
           (long long)s->tokens, s->top_k);
    fflush(stdout);
    loop_layer_open(&p.layer, &sizes);
    make_weights(&p);
    make_tokens(&p);
    make_routing(&p);
    result base = run(&p, 128, 132, s->tokens, 0);
    int bad = compare(&p, &base);
    if (with_bytes)
        bad += invariant(&p, &base);
    drop(&base);
    loop_layer_close(&p.layer);
    loop_free(p.records);
    for (int m = 0; m < 3; m++)
        free(p.w[m]), free(p.b[m]);
    free(p.x), free(p.ids), free(p.experts);
    return bad;
}

int main_loop_check(int argc, char **argv)
{
    (void)argc, (void)argv;
    static const spec specs[] = {
        { MOX_SM90_BF16, 128, 128, 1, 0, 0, 2, 1, 8 },   { MOX_SM90_E4M3, 128, 128, 1, 0, 128, 2, 1, 8 },
        { MOX_SM90_BF16, 264, 136, 1, 1, 0, 5, 2, 33 },  { MOX_SM90_E4M3, 272, 144, 1, 1, 128, 5, 2, 33 },
        { MOX_SM90_F16, 200, 72, 1, 1, 0, 3, 2, 17 },    { MOX_SM90_BF16, 72, 200, 0, 1, 0, 4, 3, 65 },
        { MOX_SM90_E4M3, 144, 208, 0, 0, 1, 4, 3, 65 },  { MOX_SM90_E4M3, 640, 320, 1, 1, 0, 4, 2, 65 },
        { MOX_SM90_E4M3, 320, 192, 1, 0, 1, 4, 2, 64 },  { MOX_SM90_E4M3, 512, 256, 1, 0, 16, 6, 2, 65 },
        { MOX_SM90_BF16, 2880, 96, 1, 1, 0, 3, 2, 65 },  { MOX_SM90_E4M3, 7168, 128, 1, 0, 128, 2, 2, 16 },
        { MOX_SM90_BF16, 512, 256, 1, 0, 0, 2, 2, 300 }, { MOX_SM90_E4M3, 512, 256, 1, 0, 128, 2, 2, 300 },
        { MOX_SM90_BF16, 1024, 1536, 1, 0, 0, 8, 2, 4 }, { MOX_SM90_E4M3, 1024, 2048, 1, 0, 128, 8, 2, 4 },
    };
    int bad = 0;
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        bad += check(&specs[i], specs[i].tokens == 65 || specs[i].tokens == 33 || specs[i].tokens == 300);
    printf("main loop: %d shapes, %d failed\n", (int)(sizeof specs / sizeof specs[0]), bad);
    return bad > 0;
}
