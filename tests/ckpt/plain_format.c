/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_format.c - numbers of plain_format.h, and the tensors that hold them.
 */
#include "plain_format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is drawn for a matrix beside its codes: salts of the draw. */
enum { CODE = 32, SCALE = 64, ZERO = 96, GLOBAL = 128 };

static const plain_format formats[] = {
#define PLAIN_FORMAT(...) { __VA_ARGS__ },
#include "plain_formats.def"
#undef PLAIN_FORMAT
};

const plain_format *plain_format_named(const char *what)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i].what, what) == 0)
            return &formats[i];
    abort();
}

bool plain_is_quantized(plain_role role)
{
    return role == PLAIN_GATE || role == PLAIN_UP || role == PLAIN_DOWN || role == PLAIN_SHARED_GATE ||
           role == PLAIN_SHARED_UP || role == PLAIN_SHARED_DOWN;
}

/* ---- numbers ---- */

static int bits_of(const plain_format *q)
{
    static const int bits[] = {
        [PLAIN_E4M3] = 8, [PLAIN_E2M1] = 4,  [PLAIN_E3M2] = 6,  [PLAIN_E2M3] = 6,  [PLAIN_INT4] = 4,
        [PLAIN_INT8] = 8, [PLAIN_UINT2] = 2, [PLAIN_UINT3] = 3, [PLAIN_UINT4] = 4, [PLAIN_UINT8] = 8
    };
    return bits[q->number];
}

static unsigned draw(int salt, plain_role role, int e, int r, int c)
{
    return (unsigned)(plain_hash(salt + (int)role, e, r, c) >> 20);
}

/* A code of a sign, an exponent and `bits` bits of mantissa. */
static double small_float(unsigned code, int width, int bits, int bias)
{
    const int exponent = (int)(code >> bits) & ((1 << (width - 1 - bits)) - 1),
              mantissa = (int)code & ((1 << bits) - 1);
    const double value =
        exponent ? ldexp((1 << bits) + mantissa, exponent - bias - bits) : ldexp(mantissa, 1 - bias - bits);
    return code >> (width - 1) & 1 ? -value : value;
}

static double e4m3(unsigned code)
{
    return small_float(code, 8, 3, 7);
}

static double e2m1(unsigned code)
{
    static const double values[8] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
    return code & 8 ? -values[code & 7] : values[code & 7];
}

/* 0x7f and 0xff of e4m3 are no numbers. */
static unsigned code_at(const plain_format *q, plain_role role, int e, int r, int c)
{
    const unsigned x = draw(CODE, role, e, r, c);
    if (q->number == PLAIN_E4M3)
        return x % 127 | (x >> 16 & 1) << 7;
    return x & ((1u << bits_of(q)) - 1);
}

static double number(const plain_format *q, unsigned code)
{
    switch (q->number) {
    case PLAIN_E4M3: return e4m3(code);
    case PLAIN_E2M1: return e2m1(code);
    case PLAIN_E3M2: return small_float(code, 6, 2, 3);
    case PLAIN_E2M3: return small_float(code, 6, 3, 1);
    case PLAIN_INT4: return (int)(code ^ 8) - 8;
    case PLAIN_INT8: return (int8_t)code;
    default: return code;
    }
}

/* 1 to 2 times 2^power, in 7 bits: the value is exact in each of the three types */
static unsigned drawn_bits(plain_scale_type type, int power, unsigned x)
{
    switch (type) {
    case PLAIN_E8M0: return (unsigned)(127 + power) + x % 3;
    case PLAIN_SCALE_E4M3: return 0x30 + x % 24;
    case PLAIN_F32: return (unsigned)(127 + power) << 23 | (x & 127) << 16;
    case PLAIN_BF16: return (unsigned)(127 + power) << 7 | (x & 127);
    default: return (unsigned)(15 + power) << 10 | (x & 127) << 3;
    }
}

static double drawn(plain_scale_type type, int power, unsigned x)
{
    if (type == PLAIN_SCALE_E4M3)
        return e4m3(0x30 + x % 24);
    return type == PLAIN_E8M0 ? ldexp(1, power + (int)(x % 3)) : ldexp(128 + (x & 127), power - 7);
}

/* Largest weights are near 1/2. */
static int scale_power(const plain_format *q)
{
    static const int powers[] = {
        [PLAIN_E4M3] = -11, [PLAIN_E2M1] = -5,  [PLAIN_E3M2] = -8,  [PLAIN_E2M3] = -5,  [PLAIN_INT4] = -5,
        [PLAIN_INT8] = -9,  [PLAIN_UINT2] = -3, [PLAIN_UINT3] = -4, [PLAIN_UINT4] = -5, [PLAIN_UINT8] = -9
    };
    return powers[q->number];
}

static int global_power(const plain_format *q)
{
    return q->divides ? 5 : -6;
}

static unsigned zero_at(const plain_format *q, plain_role role, int e, int r, int c)
{
    return draw(ZERO, role, e, r, c) & ((1u << bits_of(q)) - 1);
}

double plain_decoded(const plain_format *q, plain_role role, int e, int r, int c)
{
    const int gr = q->rows ? r / q->rows : 0, gc = q->cols ? c / q->cols : 0;
    const double zero = q->number < PLAIN_UINT2 ? 0
                        : q->zero.suffix        ? zero_at(q, role, e, gr, gc)
                                                : 1u << (bits_of(q) - 1);
    const double global = q->global.suffix ? drawn(PLAIN_F32, global_power(q), draw(GLOBAL, role, e, 0, 0)) : 1;
    const double scale = drawn(q->scale_type, scale_power(q), draw(SCALE, role, e, gr, gc));
    const double value = (number(q, code_at(q, role, e, r, c)) - zero) * scale;
    return q->divides ? value / global : value * global;
}

/* ---- tensors ---- */

typedef unsigned (*plain_element)(const plain_format *q, plain_role role, int e, int r, int c);

static unsigned scale_bits(const plain_format *q, plain_role role, int e, int r, int c)
{
    return drawn_bits(q->scale_type, scale_power(q), draw(SCALE, role, e, r, c));
}

static unsigned global_bits(const plain_format *q, plain_role role, int e, int r, int c)
{
    return drawn_bits(PLAIN_F32, global_power(q), draw(GLOBAL, role, e, r, c));
}

/* A grid of elements: element (r, c) is at (r, c) of its matrix's own grid. */
typedef struct plain_grid {
    const plain_part *part;
    plain_element at;
    int rows, cols; /* of the grid of one matrix */
    int bits;       /* of an element */
    bool less_one;  /* a one for each element is subtracted from each word */
} plain_grid;

static int word_bits(const plain_grid *g)
{
    return g->part->word ? g->part->word : g->bits;
}

/* 3 bits do not fill a word: there GPTQ subtracts one from each element, else from the words. */
static bool less_words(const plain_grid *g)
{
    return g->less_one && word_bits(g) % g->bits == 0;
}

/* Bit `at` of the elements that follow each other from element 0 of a row, or column, on. */
static unsigned bit_at(const plain_format *q, const plain_tensor *t, const plain_grid *g, int e, int line, int at)
{
    static const int awq[8] = { 0, 2, 4, 6, 1, 3, 5, 7 };
    const int index = at / g->bits, element = g->part->awq ? index / 8 * 8 + awq[index % 8] : index;
    plain_tensor rows = *t;
    int r = g->part->along_rows ? element : line;
    rows.rows = g->rows;
    const plain_role role = plain_row(&rows, &r);
    const unsigned code = g->at(q, role, e, r, g->part->along_rows ? line : element);
    return (code - (g->less_one && !less_words(g))) >> at % g->bits & 1;
}

/* Word `w` of a line: its bits, less those of a line of ones. */
static unsigned word_at(const plain_format *q, const plain_tensor *t, const plain_grid *g, int e, int line, int w)
{
    const int bits = word_bits(g);
    unsigned word = 0, ones = 0;
    for (int b = 0; b < bits; b++) {
        word |= bit_at(q, t, g, e, line, w * bits + b) << b;
        ones |= (unsigned)((w * bits + b) % g->bits == 0) << b;
    }
    return less_words(g) ? word - ones : word;
}

static void write_shape(const plain_format *q, const plain_tensor *t, const plain_grid *g, int a, int b, char out[64])
{
    char experts[16] = "";
    if (t->expert < 0)
        snprintf(experts, sizeof experts, "%d%s", PLAIN_E, g->part->flat && a * b == 1 ? "" : ",");
    if (q->blocks && g->part == &q->codes)
        snprintf(out, 64, "%s%d,%d,16", experts, a, b / 16);
    else if (!g->part->flat)
        snprintf(out, 64, "%s%d,%d", experts, a, b);
    else if (a * b == 1)
        snprintf(out, 64, "%s", g->part->vector ? "1" : experts);
    else
        snprintf(out, 64, "%s%d", experts, a);
}

static void tensor_name(const plain_tensor *t, const char *suffix, char out[200])
{
    char root[200];
    snprintf(root, sizeof root, t->name, t->expert);
    const size_t n = strlen(root), tail = strlen(".weight");
    if (suffix[0] == '.' && n > tail && strcmp(root + n - tail, ".weight") == 0)
        root[n - tail] = 0;
    if (snprintf(out, 200, "%s%s", root, suffix) >= 200)
        abort();
}

static void add_grid(plain_file *f, const plain_format *q, const plain_tensor *t, const plain_grid *g)
{
    char name[200], shape[64];
    const int per = word_bits(g), all_rows = (t->second ? 2 : 1) * g->rows;
    const int rows = g->part->along_rows ? all_rows * g->bits / per : all_rows;
    const int cols = g->part->along_rows ? g->cols : g->cols * g->bits / per;
    const int outer = g->part->swapped ? cols : rows, inner = g->part->swapped ? rows : cols;
    const size_t begin = f->data_bytes;
    if (!g->part->suffix)
        return;
    for (int e = t->expert < 0 ? 0 : t->expert; e <= (t->expert < 0 ? PLAIN_E - 1 : t->expert); e++)
        for (int a = 0; a < outer; a++)
            for (int b = 0; b < inner; b++)
                plain_put(f,
                          word_at(q, t, g, e, g->part->swapped != g->part->along_rows ? b : a,
                                  g->part->swapped != g->part->along_rows ? a : b),
                          per / 8);
    write_shape(q, t, g, outer, inner, shape);
    tensor_name(t, g->part->suffix, name);
    plain_end_tensor(f, name, g->part->dtype, shape, begin);
}

/* Tensors of one matrix that are no grids. */
static void add_records(plain_file *f, const plain_format *q, const plain_tensor *t)
{
    char name[200], shape[64];
    size_t begin = f->data_bytes;
    if (q->shape) {
        plain_put(f, (uint64_t)t->rows, 8);
        plain_put(f, (uint64_t)t->cols, 8);
        tensor_name(t, q->shape, name);
        plain_end_tensor(f, name, "I64", "2", begin);
    }
    begin = f->data_bytes;
    if (q->groups) {
        for (int c = 0; c < t->cols; c++)
            plain_put(f, (uint64_t)(c / q->cols), 4);
        snprintf(shape, sizeof shape, "%d", t->cols);
        tensor_name(t, q->groups, name);
        plain_end_tensor(f, name, "I32", shape, begin);
    }
    begin = f->data_bytes;
    if (q->inputs) {
        plain_put(f, 0x3d800000, 4);
        tensor_name(t, q->inputs, name);
        plain_end_tensor(f, name, "F32", "", begin);
    }
}

static int groups_of(int size, int group)
{
    return group ? (size + group - 1) / group : 1;
}

void plain_add_quantized(plain_file *f, const plain_format *q, const plain_tensor *t)
{
    static const int scale_bytes[] = { 4, 2, 2, 1, 1 };
    const int bits = bits_of(q), rows = groups_of(t->rows, q->rows), cols = groups_of(t->cols, q->cols);
    add_grid(f, q, t, &(plain_grid) { &q->codes, code_at, t->rows, t->cols, bits, false });
    add_grid(f, q, t, &(plain_grid) { &q->scale, scale_bits, rows, cols, 8 * scale_bytes[q->scale_type], false });
    add_grid(f, q, t, &(plain_grid) { &q->zero, zero_at, rows, cols, bits, q->zero_less_one });
    add_grid(f, q, t, &(plain_grid) { &q->global, global_bits, 1, 1, 32, false });
    add_records(f, q, t);
}
