/* SPDX-License-Identifier: Apache-2.0
 *
 * test_stream.h - what a stream of the launch tables without a GPU (test_cuda_table.h, test_lazy.h) points to. The stub
 * of NCCL is a library of its own, and enqueues through it, so that its messages become parts of graphs and of streams.
 */
#ifndef TEST_STREAM_H
#define TEST_STREAM_H

#include <stddef.h>

#include "test_cuda_graph.h"

typedef struct test_stream {
    bool (*may_wait)(void); /* false: this thread's stream is captured */
    moxie_status (*enqueue)(test_cuda_work work, const void *args, size_t bytes, moxie_error *error);
    /* A lazy stream: enqueues work that answers MOXIE_ERR_TIMEOUT while it cannot be done. NULL: all is done at once.
     */
    moxie_status (*later)(const struct test_stream *stream, test_cuda_work work, const void *args, size_t bytes);
} test_stream;

#endif
