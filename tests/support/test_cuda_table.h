/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_table.h - a launch table without a GPU: it records its calls, keeps "device" memory on the host
 * between guards, and computes every stage in plain C, so that everything above the table can be tested where there is
 * no GPU.
 *
 *     test_cuda_begin(NULL);               from now on the cuda back end is this table
 *     ... moxie_layer_create with MOXIE_BACKEND_CUDA ...
 *     test_cuda_log()                      "permute quant_act expert_gemm glu ..." since test_cuda_clear()
 *     test_cuda_end(NULL);                 fails the test when device memory, streams or events are not freed
 */
#ifndef TEST_CUDA_TABLE_H
#define TEST_CUDA_TABLE_H

#include "cuda/cuda_loader.h"

/* For a test's setup and teardown; `state` is not read. */
int test_cuda_begin(void **state);
int test_cuda_end(void **state);
/* Whether MOXIE_TEST_LAZY makes it lazy (test_lazy.h). For tests that make calls fail, or tables of their own. */
bool test_cuda_is_lazy(void);
/* The features of its one device. */
void test_cuda_set_device(const char *preset);
/* How many such devices there are; one, if not called. */
void test_cuda_set_devices(int count);
/* Sets a smaller L2, for tests that would otherwise allocate much memory. */
void test_cuda_set_l2(uint64_t bytes);
void test_cuda_set_multiprocessors(int32_t count);
/* While set, no event is done: as of a stream on which another rank's rows are awaited. */
void test_cuda_set_stuck(bool value);

/* Names of launches, copies ("copy") and waits ("wait"), space separated. */
const char *test_cuda_log(void);
void test_cuda_clear(void);
/* Makes the n-th call from now on that can fail do so (1: the next); 0: none. Returns whether the call set before has
 * failed. */
bool test_cuda_fail_at(int n);
/* Events recorded since test_cuda_clear(): one for each time that the host waits for the stream (but "wait"). */
int test_cuda_events(void);
/* The number of device allocations so far. */
int test_cuda_allocations(void);
/* Blocks of device and pinned memory that are not released. */
int test_cuda_alive(void);

#endif
