/* SPDX-License-Identifier: Apache-2.0
 *
 * test_stream.h - what a stream of the launch table without a GPU (test_cuda_table.h) points to. The stub of NCCL is a
 * library of its own, and enqueues through it, so that its messages become parts of graphs.
 */
#ifndef TEST_STREAM_H
#define TEST_STREAM_H

#include <stddef.h>

#include "test_cuda_graph.h"

typedef struct test_stream {
    bool (*may_wait)(void); /* false: this thread's stream is captured */
    moxie_status (*enqueue)(test_cuda_work work, const void *args, size_t bytes, moxie_error *error);
} test_stream;

#endif
