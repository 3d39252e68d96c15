/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_checkpoint.c - writes the checkpoint of a case.
 *
 *     safetensors: 8 bytes N, little endian | N bytes of JSON: name -> dtype, shape, [begin, end] | data
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plain_file.h"
#include "plain_format.h"

#define MAX_HEADER 80000
#define MAX_DATA   (16 << 20)

void plain_put(plain_file *f, uint64_t value, int bytes)
{
    if (f->data_bytes + 8 > MAX_DATA)
        abort();
    for (int i = 0; i < bytes; i++)
        f->data[f->data_bytes++] = (uint8_t)(value >> 8 * i);
}

static void put(plain_file *f, double value)
{
    const float number = (float)value;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    if (bits & 0xffff)
        abort(); /* every value is one that bf16 holds */
    plain_put(f, bits >> 16, 2);
}

plain_role plain_row(const plain_tensor *t, int *r)
{
    if (t->second == PLAIN_NONE)
        return t->role;
    const bool second = t->alternate ? *r % 2 : *r >= t->rows;
    *r = t->alternate ? *r / 2 : *r % t->rows;
    return second ? t->second : t->role;
}

static double element(const plain_tensor *t, int e, int r, int c)
{
    const plain_role role = plain_row(t, &r);
    return plain_value(role, e, r, c);
}

static void put_matrix(plain_file *f, const plain_tensor *t, int e, int rows)
{
    const int outer = t->swapped ? t->cols : rows, inner = t->swapped ? rows : t->cols;
    for (int a = 0; a < outer; a++)
        for (int b = 0; b < inner; b++)
            put(f, element(t, e, t->swapped ? b : a, t->swapped ? a : b));
}

void plain_end_tensor(plain_file *f, const char *name, const char *dtype, const char *shape, size_t begin)
{
    f->header_bytes +=
        (size_t)snprintf(f->header + f->header_bytes, MAX_HEADER - f->header_bytes,
                         "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                         f->header_bytes > 1 ? "," : "", f->c->names.prefix, name, dtype, shape, begin, f->data_bytes);
    if (f->header_bytes >= MAX_HEADER)
        abort();
}

static void add(plain_file *f, const plain_tensor *t)
{
    char name[200], shape[64];
    if (!t->name)
        return;
    if (f->c->format && plain_is_quantized(t->role)) {
        plain_add_quantized(f, f->c->format, t);
        return;
    }
    snprintf(name, sizeof name, t->name, t->expert);
    const int experts = t->expert < 0 ? PLAIN_E : 1, rows = t->second == PLAIN_NONE ? t->rows : 2 * t->rows;
    const size_t begin = f->data_bytes;
    for (int e = 0; e < experts; e++)
        put_matrix(f, t, t->expert < 0 ? e : t->expert, rows);
    const int outer = t->swapped ? t->cols : rows, inner = t->swapped ? rows : t->cols;
    if (t->merged)
        snprintf(shape, sizeof shape, "%d,%d", experts * outer, inner);
    else if (t->expert < 0)
        snprintf(shape, sizeof shape, t->flat ? "%d,%d" : "%d,%d,%d", experts, outer, inner);
    else
        snprintf(shape, sizeof shape, t->flat ? "%d" : "%d,%d", outer, inner);
    plain_end_tensor(f, name, "BF16", shape, begin);
}

static void add_table(plain_file *f)
{
    const size_t begin = f->data_bytes;
    char shape[32];
    if (!f->c->names.table)
        return;
    for (int token = 0; token < PLAIN_VOCAB; token++)
        for (int k = 0; k < PLAIN_K; k++)
            plain_put(f, (uint64_t)plain_listed(token, k), 8);
    snprintf(shape, sizeof shape, "%d,%d", PLAIN_VOCAB, PLAIN_K);
    plain_end_tensor(f, f->c->names.table, "I64", shape, begin);
}

static void add_router(plain_file *f)
{
    const plain_names *n = &f->c->names;
    const int h = plain_h(f->c), x = plain_x(f->c);
    add(f, &(plain_tensor) { .name = n->router, .role = PLAIN_ROUTER, .rows = PLAIN_E, .cols = h });
    add(f, &(plain_tensor) {
               .name = n->router_bias, .role = PLAIN_ROUTER_BIAS, .rows = PLAIN_E, .cols = 1, .flat = true });
    add(f, &(plain_tensor) { .name = n->correction,
                             .role = PLAIN_CORRECTION,
                             .rows = PLAIN_E,
                             .cols = 1,
                             .swapped = n->correction_row,
                             .flat = !n->correction_row });
    add(f, &(plain_tensor) { n->correction_alt, PLAIN_CORRECTION_ALT, 0, PLAIN_E, 1, .flat = true });
    add_table(f);
    add(f, &(plain_tensor) { n->router_scale, PLAIN_ROUTER_SCALE, 0, h, 1, .flat = true });
    add(f, &(plain_tensor) { n->expert_scale, PLAIN_EXPERT_SCALE, 0, PLAIN_E, 1, .flat = true });
    add(f, &(plain_tensor) { n->expert_norm, PLAIN_EXPERT_NORM, 0, x, 1, .flat = true });
    add(f, &(plain_tensor) { n->latent_in, PLAIN_LATENT_IN, 0, x, h });
    add(f, &(plain_tensor) { n->latent_out, PLAIN_LATENT_OUT, 0, h, x });
    add(f, &(plain_tensor) { n->latent_norm, PLAIN_LATENT_NORM, 0, x, 1, .flat = true });
}

static void add_each(plain_file *f)
{
    const plain_names *n = &f->c->names;
    const int width = plain_i(f->c), x = plain_x(f->c);
    for (int e = 0; e < PLAIN_E - f->c->rules.zero; e++) {
        add(f, &(plain_tensor) { n->gate, PLAIN_GATE, e, width, x, .second = PLAIN_NONE });
        add(f, &(plain_tensor) { n->up, PLAIN_UP, e, width, x, .second = PLAIN_NONE });
        add(f, &(plain_tensor) { n->down, PLAIN_DOWN, e, x, width, .second = PLAIN_NONE });
    }
}

static void add_stacks(plain_file *f, bool merged)
{
    const plain_names *n = &f->c->names;
    const int width = plain_i(f->c), x = plain_x(f->c);
    add(f, &(plain_tensor) { n->gate, PLAIN_GATE, -1, width, x, .merged = merged });
    add(f, &(plain_tensor) { n->up, PLAIN_UP, -1, width, x, .merged = merged });
    add(f, &(plain_tensor) { n->down, PLAIN_DOWN, -1, x, width, .merged = merged, .swapped = merged });
}

static void add_pair(plain_file *f, bool swapped, bool alternate)
{
    const plain_names *n = &f->c->names;
    const int width = plain_i(f->c), x = plain_x(f->c);
    add(f, &(plain_tensor) { n->pair, PLAIN_GATE, -1, width, x, swapped, PLAIN_UP, alternate });
    add(f, &(plain_tensor) { n->pair_down, PLAIN_DOWN, -1, x, width, swapped });
    add(f,
        &(plain_tensor) { n->pair_bias, PLAIN_GATE_BIAS, -1, width, 1, false, PLAIN_UP_BIAS, alternate, false, true });
    add(f, &(plain_tensor) { n->pair_down_bias, PLAIN_DOWN_BIAS, -1, x, 1, .flat = true });
}

static void add_shared(plain_file *f)
{
    const plain_names *n = &f->c->names;
    const int width = plain_i(f->c) * f->c->rules.shared, h = plain_h(f->c);
    if (width == 0)
        return;
    add(f, &(plain_tensor) { n->shared_pair, PLAIN_SHARED_GATE, 0, width, h, false, PLAIN_SHARED_UP });
    add(f, &(plain_tensor) { n->shared_gate, PLAIN_SHARED_GATE, 0, width, h });
    add(f, &(plain_tensor) { n->shared_up, PLAIN_SHARED_UP, 0, width, h });
    add(f, &(plain_tensor) { n->shared_down, PLAIN_SHARED_DOWN, 0, h, width });
    add(f, &(plain_tensor) { n->shared_scale, PLAIN_SHARED_SCALE, 0, 1, h });
}

static void save(const char *dir, const char *file, const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(a, 1, a_bytes, out) != a_bytes || fwrite(b, 1, b_bytes, out) != b_bytes || fclose(out) != 0)
        abort();
}

void plain_write(const plain_case *c, const char *dir)
{
    char config[2000];
    plain_file f = { .c = c, .header = calloc(1, MAX_HEADER + 16), .data = malloc(MAX_DATA) };
    if (!f.header || !f.data)
        abort();
    const int length = snprintf(config, sizeof config,
                                "{\"hidden_size\":%d,\"torch_dtype\":\"float32\",\"num_hidden_layers\":2,%s%s%s%s}",
                                plain_h(c), c->config, c->format ? ",\"quantization_config\":{" : "",
                                c->format ? c->format->config : "", c->format ? "}" : "");
    save(dir, "config.json", config, (size_t)length, "\n", 1);
    f.header += 8;
    f.header[f.header_bytes++] = '{';
    add_router(&f);
    if (c->order == PLAIN_EACH)
        add_each(&f);
    else if (c->order == PLAIN_STACKS || c->order == PLAIN_ROWS)
        add_stacks(&f, c->order == PLAIN_ROWS);
    else
        add_pair(&f, c->order != PLAIN_OUT_IN, c->order == PLAIN_INTERLEAVED);
    add_shared(&f);
    f.header[f.header_bytes++] = '}';
    while (f.header_bytes % 8)
        f.header[f.header_bytes++] = ' ';
    f.header -= 8;
    const uint64_t n = f.header_bytes;
    memcpy(f.header, &n, sizeof n);
    save(dir, "model.safetensors", f.header, f.header_bytes + 8, f.data, f.data_bytes);
    free(f.header);
    free(f.data);
}
