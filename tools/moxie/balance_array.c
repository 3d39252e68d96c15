/* SPDX-License-Identifier: Apache-2.0
 *
 * balance_array.c - JSON arrays of numbers as tables, for loads and maps.
 *
 *     [1, 2, 3]                one row
 *     [[1, 2, 3], ...]         a row for each layer
 *     [[[1, 2, 3], ...], ...]  the sum over the first dimension: [steps, layers, experts] of SGLang's recorder
 */
#include "balance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

moxie_status balance_refuse_pickle(const char *path, const char *text, uint64_t size, moxie_error *error)
{
    const size_t n = strlen(path);
    const bool named = (n > 3 && !strcmp(path + n - 3, ".pt")) || (n > 4 && !strcmp(path + n - 4, ".pkl"));
    if (!named && !(size > 4 && (!memcmp(text, "PK\003\004", 4) || (unsigned char)text[0] == 0x80)))
        return MOXIE_OK;
    return cli_error(MOXIE_ERR_UNSUPPORTED, error, path,
                     "it is a pickle of Python, which is a program and is not run here: write it as JSON with python3: "
                     "json.dump({k: v.tolist() for k, v in torch.load(\"FILE.pt\").items() if hasattr(v, \"tolist\")}, "
                     "open(\"FILE.json\", \"w\"))");
}

/* Nesting of arrays: 1 to 3; 0: no array of numbers. */
static int depth_of(const json_t *value)
{
    int depth = 0;
    for (; json_is_array(value); value = json_array_get(value, 0))
        depth++;
    return depth <= 3 && json_is_number(value) ? depth : 0;
}

static moxie_status bad_row(const char *path, const char *what, int64_t row, const json_t *value, int64_t columns,
                            moxie_error *error)
{
    return json_is_array(value) ? cli_error(MOXIE_ERR_FORMAT, error, path,
                                            "row %lld of %s has %zu numbers, the first one %lld: all rows need as many",
                                            (long long)row, what, json_array_size(value), (long long)columns)
                                : cli_error(MOXIE_ERR_FORMAT, error, path, "row %lld of %s is no array of numbers",
                                            (long long)row, what);
}

/* Adds one row. */
static moxie_status add_row(const json_t *value, const char *path, const char *what, int64_t row, balance_table *t,
                            moxie_error *error)
{
    if (!json_is_array(value) || (int64_t)json_array_size(value) != t->columns)
        return bad_row(path, what, row, value, t->columns, error);
    for (int64_t i = 0; i < t->columns; i++) {
        const json_t *number = json_array_get(value, (size_t)i);
        if (!json_is_number(number))
            return cli_error(MOXIE_ERR_FORMAT, error, path, "row %lld, column %lld of %s is no number", (long long)row,
                             (long long)i, what);
        t->at[row * t->columns + i] += json_number_value(number);
        if (!isfinite(t->at[row * t->columns + i]))
            return cli_error(MOXIE_ERR_FORMAT, error, path, "row %lld, column %lld of %s is too large a number",
                             (long long)row, (long long)i, what);
    }
    return MOXIE_OK;
}

static moxie_status add_rows(const json_t *value, const char *path, const char *what, balance_table *t,
                             moxie_error *error)
{
    if (!json_is_array(value) || (int64_t)json_array_size(value) != t->rows)
        return cli_error(MOXIE_ERR_FORMAT, error, path,
                         "%s: a step has %zu layers, the first one %lld: all need as many", what,
                         json_array_size(value), (long long)t->rows);
    moxie_status status = MOXIE_OK;
    for (int64_t row = 0; status == MOXIE_OK && row < t->rows; row++)
        status = add_row(json_array_get(value, (size_t)row), path, what, row, t, error);
    return status;
}

moxie_status balance_table_read(const json_t *value, const char *path, const char *what, balance_table *out,
                                moxie_error *error)
{
    const int depth = depth_of(value);
    if (!depth)
        return cli_error(MOXIE_ERR_FORMAT, error, path,
                         "%s is no array of numbers: give [layers, numbers], as [[1, 2], [3, 4]]", what);
    const json_t *row = value;
    for (int i = 1; i < depth; i++)
        row = json_array_get(row, 0);
    balance_table t = { .rows = 1, .columns = (int64_t)json_array_size(row) };
    if (depth > 1)
        t.rows = (int64_t)json_array_size(depth == 2 ? value : json_array_get(value, 0));
    if (t.rows > BALANCE_MAX_LAYERS || t.columns > MOXIE_MAX_SLOTS)
        return cli_error(MOXIE_ERR_FORMAT, error, path, "%s is [%lld, %lld]; the limit is [%d, %d]", what,
                         (long long)t.rows, (long long)t.columns, BALANCE_MAX_LAYERS, MOXIE_MAX_SLOTS);
    t.at = calloc((size_t)(t.rows * t.columns), sizeof *t.at);
    if (!t.at)
        return cli_error(MOXIE_ERR_MEMORY, error, path, "no memory for %s", what);
    moxie_status status = MOXIE_OK;
    if (depth == 1)
        status = add_row(value, path, what, 0, &t, error);
    else if (depth == 2)
        status = add_rows(value, path, what, &t, error);
    for (size_t i = 0; depth == 3 && status == MOXIE_OK && i < json_array_size(value); i++)
        status = add_rows(json_array_get(value, i), path, what, &t, error);
    if (status == MOXIE_OK)
        *out = t;
    else
        free(t.at);
    return status;
}
