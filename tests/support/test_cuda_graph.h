/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_graph.h - graphs, timers and probes of the launch table without a GPU (test_cuda_table.h): what is enqueued
 * while a graph is captured is stored with its arguments, and done at every launch. Time comes from a clock that
 * advances by a microsecond a launch. In probes it advances as on a machine that reads 4000 GB/s by loads and 4500 by
 * bulk copies, and multiplies bf16 at 400 and 800, FP8 at 700 and 1500 TFLOP/s by mma.sync and wgmma.
 */
#ifndef TEST_CUDA_GRAPH_H
#define TEST_CUDA_GRAPH_H

#include "cuda/cuda_table.h"

typedef moxie_status (*test_cuda_work)(const void *args, moxie_error *error);

/* Does the work now, or stores it with its `bytes` of arguments for the graph that is being captured. */
moxie_status test_cuda_enqueue(test_cuda_work work, const void *args, size_t bytes, moxie_error *error);
/* False while a stream is captured, which must neither allocate nor wait. */
bool test_cuda_may_wait(void);
/* Advances the clock. */
void test_cuda_pass(double milliseconds);

/* Adds graphs, timers and probes to a table; `record` is called for every call, and may make it fail. */
void test_cuda_graph_fill(mox_cuda_table *table, moxie_status (*record)(const char *name, moxie_error *error));
/* The number of graphs and timers that exist. */
int test_cuda_graphs_alive(void);

#endif
