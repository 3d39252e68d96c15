/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_rows_table.c - rows for other ranks without a GPU (test_cuda_rows_table.h), as their argument structs say.
 */
#include "test_cuda_rows_table.h"

#include <string.h>

#include "base/sizes.h"
#include "format/format.h"
#include "test_cuda_graph.h"
#include "test_support.h"

static moxie_status (*record)(const char *name, moxie_error *error);

static moxie_status copy_rows(const mox_cuda_copy_rows_args *a, mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    MOX_TRY(record("copy_rows", error));
    const int64_t from_bytes = mox_dtype_bytes(a->from_dtype), to_bytes = mox_dtype_bytes(a->to_dtype);
    assert_true(a->to_cols >= a->cols);
    for (int64_t i = 0; i < a->rows; i++) {
        const int64_t row = a->row != NULL ? a->row[i] : i, cols = row < 0 ? 0 : a->cols;
        const char *from = cols > 0 ? (const char *)a->from + row * a->from_stride : NULL;
        char *to = (char *)a->to + i * a->to_stride;
        for (int64_t c = 0; c < cols; c++) {
            const float value = mox_load(a->from_dtype, from + c * from_bytes);
            if (a->from_dtype == a->to_dtype)
                memcpy(to + c * to_bytes, from + c * from_bytes, (size_t)to_bytes);
            else
                mox_narrow(a->to_dtype, &value, to + c * to_bytes, 1);
        }
        memset(to + cols * to_bytes, 0, (size_t)((a->to_cols - cols) * to_bytes));
    }
    return MOXIE_OK;
}

/* Who computes a choice: the token's own group if it can, else groups in turn. */
static int32_t place_choice(const mox_cuda_place_rows_args *a, int32_t home, int64_t t, int64_t j)
{
    const int32_t id = a->ids[t * a->top_k + j];
    if (id < 0 || id >= a->experts)
        return -1;
    const int32_t *begin = a->replica + a->first_replica[id], *end = a->replica + a->first_replica[id + 1];
    for (const int32_t *g = begin; g < end; g++)
        if (*g == home)
            return home;
    return begin[(t + j) % (end - begin)];
}

/* The number of a choice's result; with counts, those of this group and of the groups before it are known so far. */
static int64_t next_result(const mox_cuda_place_rows_args *a, int32_t g, int64_t row, int64_t j)
{
    int64_t result = 0;
    if (a->counts == NULL)
        return row * a->top_k + j;
    for (int32_t i = 0; i <= g; i++)
        result += a->counts[2 * i + 1];
    a->counts[2 * g + 1]++;
    return result;
}

/* A row of a used or unused token has an adapter, too. */
static void place_adapters(const mox_cuda_place_rows_args *a, int64_t first, int64_t end)
{
    for (int64_t row = first; row < end && a->row_adapters != NULL; row++) {
        const int64_t token = a->token[row];
        a->row_adapters[row] = token >= 0 && a->adapters != NULL ? a->adapters[token] : -1;
    }
}

/* Rows of source s for group g: from `first` on. */
static void place_group(const mox_cuda_place_rows_args *a, int64_t s, int32_t g, int64_t first)
{
    const int64_t k = a->top_k, begin = a->ranks > 0 ? s * a->tokens / a->ranks : 0;
    const int64_t all = a->ranks > 0 ? (s + 1) * a->tokens / a->ranks : a->tokens;
    const int64_t end = mox_min_i64(all, begin + a->capacity);
    int64_t row = first;
    if (a->counts != NULL)
        a->counts[2 * g] = a->counts[2 * g + 1] = 0;
    for (int64_t i = first; i < first + a->capacity; i++) {
        if (a->token != NULL)
            a->token[i] = -1;
        for (int64_t j = 0; j < k && a->row_ids != NULL; j++)
            a->row_ids[i * k + j] = -1;
    }
    for (int64_t t = begin; t < end; t++) {
        bool any = false;
        for (int64_t j = 0; j < k; j++) {
            const int32_t group = place_choice(a, (int32_t)s / a->tp_size, t, j);
            if (group < 0 && a->position != NULL)
                a->position[(t - begin) * k + j] = -1;
            if (group != g)
                continue;
            any = true;
            if (a->row_ids != NULL)
                a->row_ids[row * k + j] = a->ids[t * k + j];
            if (a->position != NULL)
                a->position[(t - begin) * k + j] = next_result(a, g, row, j);
        }
        assert_true(!any || row < first + a->capacity);
        if (any && a->token != NULL)
            a->token[row] = t;
        for (int64_t j = 0; any && j < k && a->row_weights != NULL; j++)
            a->row_weights[row * k + j] = a->weights[t * k + j];
        row += any;
    }
    if (a->counts != NULL)
        a->counts[2 * g] = row - first;
    place_adapters(a, first, first + a->capacity);
    if (a->own_offsets != NULL) {
        a->own_offsets[0] = 0;
        a->own_offsets[1] = end - begin;
    }
}

static moxie_status place_rows(const mox_cuda_place_rows_args *a, mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    MOX_TRY(record("place_rows", error));
    for (int32_t s = 0; s < a->sources; s++)
        for (int32_t g = 0; g < a->groups; g++)
            place_group(a, a->first_source + s, a->first_group + g, (s * a->groups + g) * a->capacity);
    return MOXIE_OK;
}

static moxie_status order_rows(const mox_cuda_order_rows_args *a, mox_cuda_stream stream, moxie_error *error)
{
    int64_t at = 0;
    (void)stream;
    MOX_TRY(record("order_rows", error));
    for (int64_t p = 0; p < a->pairs; p++)
        if (a->position[p] >= 0 && at < a->count)
            a->order[at++] = a->position[p];
    while (at < a->count)
        a->order[at++] = -1;
    return MOXIE_OK;
}

/* ---- now, or in a graph -------------------------------------------------------------------------------- */

#define ROWS(name)                                                                                                     \
    static moxie_status name##_work(const void *args, moxie_error *error)                                              \
    {                                                                                                                  \
        return name(args, NULL, error);                                                                                \
    }                                                                                                                  \
    static moxie_status name##_enqueue(const mox_cuda_##name##_args *args, mox_cuda_stream stream, moxie_error *error) \
    {                                                                                                                  \
        (void)stream;                                                                                                  \
        return test_cuda_enqueue(name##_work, args, sizeof *args, error);                                              \
    }
ROWS(copy_rows)
ROWS(place_rows)
ROWS(order_rows)
#undef ROWS

void test_cuda_rows_fill(mox_cuda_table *table, moxie_status (*tell)(const char *name, moxie_error *error))
{
    record = tell;
    table->copy_rows = copy_rows_enqueue;
    table->place_rows = place_rows_enqueue;
    table->order_rows = order_rows_enqueue;
}
