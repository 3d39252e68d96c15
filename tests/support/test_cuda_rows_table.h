/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_rows_table.h - copy_rows and place_rows of the launch table without a GPU (test_cuda_table.h).
 */
#ifndef TEST_CUDA_ROWS_TABLE_H
#define TEST_CUDA_ROWS_TABLE_H

#include "cuda/cuda_table.h"

/* Adds both to a table; `record` is called for every call, and may make it fail. */
void test_cuda_rows_fill(mox_cuda_table *table, moxie_status (*record)(const char *name, moxie_error *error));

#endif
