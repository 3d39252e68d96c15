/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_graph.h - graphs, timers and probes of the launch table without a GPU (test_cuda_table.h): what is enqueued
 * while a graph is captured is kept with its arguments, and done at every launch; time is what a clock says that
 * advances by a microsecond a launch, and in probes as a machine would take that reads 4000 GB/s by loads and 4500 by
 * bulk copies, and multiplies bf16 at 400 and 800, FP8 at 700 and 1500 TFLOP/s by mma.sync and wgmma.
 */
#ifndef TEST_CUDA_GRAPH_H
#define TEST_CUDA_GRAPH_H

#include "cuda/cuda_table.h"

typedef moxie_status (*test_cuda_work)(const void *args, moxie_error *error);

/* Does the work now, or keeps it with its `bytes` of arguments for the graph that is being captured. */
moxie_status test_cuda_enqueue(test_cuda_work work, const void *args, size_t bytes, moxie_error *error);
/* What a stream that is captured must not do: allocate, wait. False then. */
bool test_cuda_may_wait(void);
/* Time goes by. */
void test_cuda_pass(double milliseconds);

/* Puts graphs, timers and probes into a table; `record` is told of every call, and may fail it. */
void test_cuda_graph_fill(mox_cuda_table *table, moxie_status (*record)(const char *name, moxie_error *error));
/* Graphs and timers that are alive. */
int test_cuda_graphs_alive(void);

#endif
