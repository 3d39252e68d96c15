/* SPDX-License-Identifier: Apache-2.0
 *
 * test_arrays.c - arrays with axes (test_arrays.h), element by element.
 */
#include "test_arrays.h"

#include "quant/quant.h"

test_array test_array_new(int rank, const int64_t *shape)
{
    test_array array = { .rank = rank };
    int64_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= array.shape[i] = shape[i];
    array.data = calloc((size_t)count + 1, sizeof *array.data);
    assert_non_null(array.data);
    return array;
}

void test_array_free(test_array *array)
{
    free(array->data);
    *array = (test_array) { 0 };
}

int64_t test_array_count(const test_array *array)
{
    int64_t count = 1;
    for (int i = 0; i < array->rank; i++)
        count *= array->shape[i];
    return count;
}

test_array test_array_of(const moxie_grid *grid)
{
    test_array array = test_array_new(2, (const int64_t[]) { grid->rows, grid->cols });
    for (int64_t r = 0; r < grid->rows; r++)
        for (int64_t c = 0; c < grid->cols; c++)
            array.data[r * grid->cols + c] = mox_grid_code(grid, r, c);
    return array;
}

test_array test_reshape(test_array array, int rank, const int64_t *shape)
{
    const int64_t count = test_array_count(&array);
    int64_t known = 1;
    for (int i = 0; i < rank; i++)
        known *= shape[i] == -1 ? 1 : shape[i];
    array.rank = rank;
    for (int i = 0; i < rank; i++)
        array.shape[i] = shape[i] == -1 ? count / known : shape[i];
    assert_int_equal(test_array_count(&array), count);
    return array;
}

test_array test_permute(test_array array, int rank, const int64_t *axes)
{
    int64_t shape[TEST_AXES], stride[TEST_AXES], at[TEST_AXES] = { 0 };
    assert_int_equal(rank, array.rank);
    for (int i = 0; i < rank; i++) {
        shape[i] = array.shape[axes[i]];
        stride[i] = 1;
        for (int j = (int)axes[i] + 1; j < rank; j++)
            stride[i] *= array.shape[j];
    }
    test_array out = test_array_new(rank, shape);
    for (int64_t n = 0; n < test_array_count(&out); n++) {
        int64_t from = 0;
        for (int i = 0; i < rank; i++)
            from += at[i] * stride[i];
        out.data[n] = array.data[from];
        for (int i = rank - 1; i >= 0 && ++at[i] == shape[i]; i--)
            at[i] = 0;
    }
    test_array_free(&array);
    return out;
}

test_array test_concat(test_array first, test_array second)
{
    int64_t shape[TEST_AXES];
    memcpy(shape, first.shape, sizeof shape);
    shape[0] += second.shape[0];
    test_array out = test_array_new(first.rank, shape);
    const size_t head = (size_t)test_array_count(&first), tail = (size_t)test_array_count(&second);
    memcpy(out.data, first.data, head * sizeof *out.data);
    memcpy(out.data + head, second.data, tail * sizeof *out.data);
    test_array_free(&first);
    test_array_free(&second);
    return out;
}

test_array test_pad(test_array matrix, int64_t row_multiple, int64_t col_multiple)
{
    const int64_t rows = matrix.shape[0], cols = matrix.shape[1];
    const int64_t wide = (cols + col_multiple - 1) / col_multiple * col_multiple;
    test_array out =
        test_array_new(2, (const int64_t[]) { (rows + row_multiple - 1) / row_multiple * row_multiple, wide });
    for (int64_t r = 0; r < rows; r++)
        memcpy(out.data + r * wide, matrix.data + r * cols, (size_t)cols * sizeof *out.data);
    test_array_free(&matrix);
    return out;
}

test_array test_map(test_array array, uint32_t (*f)(uint32_t))
{
    for (int64_t i = 0; i < test_array_count(&array); i++)
        array.data[i] = f(array.data[i]);
    return array;
}

uint8_t *test_array_bytes(const test_array *array, int bits, size_t *bytes)
{
    const int64_t count = test_array_count(array);
    *bytes = (size_t)((count * bits + 7) / 8);
    uint8_t *out = calloc(*bytes + 1, 1);
    assert_non_null(out);
    for (int64_t i = 0; i < count; i++)
        for (int b = 0; b < bits; b++)
            out[(i * bits + b) / 8] |= (uint8_t)((array->data[i] >> b & 1) << (i * bits + b) % 8);
    return out;
}
