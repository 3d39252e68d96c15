/* SPDX-License-Identifier: Apache-2.0
 *
 * test_arrays.h - arrays of numbers with axes: the reshape, permute and concatenate of Python, in C. The statements of
 * layouts use them, so that they share nothing with the library.
 *
 * Every function frees its arguments and returns a new array, so that calls nest.
 */
#ifndef TEST_ARRAYS_H
#define TEST_ARRAYS_H

#include "test_support.h"

enum { TEST_AXES = 8 };

typedef struct test_array {
    int rank;
    int64_t shape[TEST_AXES];
    uint32_t *data; /* the last axis fastest */
} test_array;

/* Zeros. */
test_array test_array_new(int rank, const int64_t *shape);
void test_array_free(test_array *array);
int64_t test_array_count(const test_array *array);
/* The codes of a grid, [rows, cols]. */
test_array test_array_of(const moxie_grid *grid);

/* TEST_RESHAPE(a, 2, 3, -1): one extent may be -1. TEST_PERMUTE(a, 1, 0, 2): axis i of the result is axis [i] of a. */
#define TEST_RESHAPE(array, ...) test_reshape(array, TEST_LIST(__VA_ARGS__))
#define TEST_PERMUTE(array, ...) test_permute(array, TEST_LIST(__VA_ARGS__))
#define TEST_LIST(...)                                                                                                 \
    (int)(sizeof((int64_t[]) { __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[])                                    \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
test_array test_reshape(test_array array, int rank, const int64_t *shape);
test_array test_permute(test_array array, int rank, const int64_t *axes);
/* Concatenates along the first axis. */
test_array test_concat(test_array first, test_array second);
/* Pads a matrix with zeros at the end of its rows and columns, up to multiples. */
test_array test_pad(test_array matrix, int64_t row_multiple, int64_t col_multiple);
/* Replaces each element by f(element). */
test_array test_map(test_array array, uint32_t (*f)(uint32_t));

/* The elements as bytes, `bits` each, low bits first; caller frees. */
uint8_t *test_array_bytes(const test_array *array, int bits, size_t *bytes);

#endif
