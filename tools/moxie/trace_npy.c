/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_npy.c - arrays of ids as NumPy files: vLLM's routed_experts, int16 [tokens, layers, top_k].
 *
 *     "\x93NUMPY" major minor | length of the text u16 (version 1) or u32 | {'descr': '<i2', 'fortran_order': False,
 *     'shape': (T, L, K), } padded with blanks to 64 bytes, newline | the numbers
 *
 * Read: whole numbers of 1, 2, 4 or 8 bytes, little-endian, in C order. The format is NumPy's (numpy.lib.format).
 */
#include "trace_tool.h"

#include <stdlib.h>
#include <string.h>

typedef struct npy {
    char kind; /* 'i' or 'u' */
    int bytes;
    int64_t shape[3];
    const unsigned char *data;
} npy;

static moxie_status bad(const char *path, moxie_error *error)
{
    return cli_error(MOXIE_ERR_FORMAT, error, path,
                     "it is no array of ids: give a *.npy of whole numbers [tokens, layers, top_k] in C order, as "
                     "numpy.save(FILE, routed_experts) writes it");
}

/* Text behind a key of the header; NULL: not there. */
static const char *value_of(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    return at ? at + strlen(key) + strspn(at + strlen(key), " :") : NULL;
}

/* Not the text's end, which strchr() finds, too. */
static bool is_one_of(char letter, const char *letters)
{
    return letter && strchr(letters, letter);
}

/* The dictionary: its three keys. */
static bool parse_header(const char *text, npy *out)
{
    const char *descr = value_of(text, "'descr'"), *order = value_of(text, "'fortran_order'"),
               *shape = value_of(text, "'shape'");
    if (!descr || !order || !shape || strncmp(order, "False", 5) || *shape != '(')
        return false;
    const size_t quotes = strspn(descr, "'");
    if (quotes != 1 || !is_one_of(descr[1], "<|") || !is_one_of(descr[2], "iu") || !is_one_of(descr[3], "1248") ||
        descr[4] != '\'')
        return false;
    out->kind = descr[2];
    out->bytes = descr[3] - '0';
    const char *at = shape + 1;
    for (int d = 0; d < 3; d++) {
        char *end;
        const long long n = strtoll(at, &end, 10);
        if (end == at || n < 0 || n > INT64_MAX >> 24)
            return false;
        out->shape[d] = n;
        at = end + strspn(end, d < 2 ? " ," : " ");
    }
    return *at == ')' || (*at == ',' && at[1 + strspn(at + 1, " ")] == ')');
}

/* `data` ends with a zero byte. */
static moxie_status parse(const char *path, char *data, uint64_t size, npy *out, moxie_error *error)
{
    if (size < 12 || memcmp(data, "\x93NUMPY", 6) || data[6] < 1 || data[6] > 3)
        return bad(path, error);
    const unsigned char *length = (const unsigned char *)data + 8;
    const uint64_t head = data[6] == 1 ? 10 : 12;
    const uint64_t text =
        data[6] == 1 ? length[0] | (uint64_t)length[1] << 8
                     : length[0] | (uint64_t)length[1] << 8 | (uint64_t)length[2] << 16 | (uint64_t)length[3] << 24;
    if (text == 0 || head + text > size)
        return bad(path, error);
    data[head + text - 1] = '\0'; /* in place of the newline */
    uint64_t bytes = 0;
    if (!parse_header(data + head, out) || __builtin_mul_overflow((uint64_t)out->shape[0], out->shape[1], &bytes) ||
        __builtin_mul_overflow(bytes, (uint64_t)out->shape[2], &bytes) ||
        __builtin_mul_overflow(bytes, (uint64_t)out->bytes, &bytes))
        return bad(path, error);
    if (bytes != size - head - text)
        return cli_error(MOXIE_ERR_FORMAT, error, path, "its shape needs %llu bytes of numbers, and %llu are there",
                         (unsigned long long)bytes, (unsigned long long)(size - head - text));
    out->data = (const unsigned char *)data + head + text;
    return MOXIE_OK;
}

/* Element i, as a number that fits: what is too large stays too large. */
static int32_t element(const npy *a, int64_t i)
{
    uint64_t bits = 0;
    memcpy(&bits, a->data + i * a->bytes, (size_t)a->bytes);
    const int unused = 64 - 8 * a->bytes;
    const int64_t value = a->kind == 'i'     ? (int64_t)(bits << unused) >> unused
                          : bits > INT32_MAX ? INT32_MAX
                                             : (int64_t)bits;
    return value > INT32_MAX ? INT32_MAX : value < 0 ? -1 : (int32_t)value;
}

moxie_status trace_npy_read(const char *path, const trace_arguments *args, trace_table *table, moxie_error *error)
{
    char *data = NULL;
    uint64_t size = 0;
    npy array = { 0 };
    moxie_status status = moxie_file_read(path, TRACE_MAX_BYTES, &data, &size, error);
    if (status == MOXIE_OK)
        status = parse(path, data, size, &array, error);
    if (status == MOXIE_OK)
        status = trace_set_sizes(table, array.shape[1], array.shape[2], path, error);
    const int64_t row = (int64_t)table->layers * table->top_k, first = table->tokens * row;
    if (status == MOXIE_OK)
        status = trace_table_grow(table, array.shape[0], path, error);
    for (int64_t i = 0; status == MOXIE_OK && i < array.shape[0] * row; i++)
        table->ids[first + i] = element(&array, i);
    if (status == MOXIE_OK)
        trace_table_number(table, table->tokens - array.shape[0], args);
    moxie_file_free(data);
    return status;
}

moxie_status trace_npy_write(const char *path, const trace_table *t, moxie_error *error)
{
    const int64_t count = t->tokens * t->layers * t->top_k;
    char text[128];
    const int length =
        snprintf(text, sizeof text, "{'descr': '<i2', 'fortran_order': False, 'shape': (%lld, %d, %d), }",
                 (long long)t->tokens, t->layers, t->top_k);
    const size_t head = ((size_t)length + 11 + 63) / 64 * 64;
    unsigned char *file = malloc(head + 2 * (size_t)count);
    if (!file)
        return cli_error(MOXIE_ERR_MEMORY, error, path, "no memory for %lld %s", CLI_COUNT(t->tokens, "token"));
    memset(file, ' ', head);
    memcpy(file, "\x93NUMPY\x01", 8); /* version 1, 0: the string's end */
    file[8] = (unsigned char)(head - 10);
    file[9] = (unsigned char)((head - 10) >> 8);
    memcpy(file + 10, text, (size_t)length);
    file[head - 1] = '\n';
    for (int64_t i = 0; i < count; i++) {
        const int16_t id = (int16_t)t->ids[i];
        memcpy(file + head + 2 * i, &id, sizeof id);
    }
    const moxie_status status = moxie_file_write(path, file, head + 2 * (uint64_t)count, error);
    free(file);
    return status;
}
