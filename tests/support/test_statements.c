/* SPDX-License-Identifier: Apache-2.0
 *
 * test_statements.c - the list of statements (test_statements.h).
 */
#include "test_statements.h"

test_array test_stack(const moxie_grid *gate, const moxie_grid *up, int64_t half_rows)
{
    const int64_t multiple = half_rows > 0 ? half_rows : up->rows;
    test_array below = test_pad(test_array_of(up), multiple, 1);
    return gate->data == NULL ? below : test_concat(test_pad(test_array_of(gate), multiple, 1), below);
}

test_array test_float(float value)
{
    test_array array = test_array_new(1, (const int64_t[]) { 1 });
    memcpy(array.data, &value, sizeof value);
    return array;
}

#define STATEMENT(layout, function) { layout, function },
const test_statement test_statements[] = {
#include "test_statements.def"
    { NULL, NULL }
};
