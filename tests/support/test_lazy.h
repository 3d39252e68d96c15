/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lazy.h - a launch table whose streams really are streams: what is enqueued is done later, in an order that only
 * streams and events fix. So an absent wait gives other bytes. It wraps the table of test_cuda_table.h, which does
 * everything at once.
 *
 *     stream 0 | copy | kernel | record e |
 *     stream 1 | wait e | group of NCCL | kernel |
 *
 * A step does the first of one stream, chosen by the seed among those that can be done: not a wait whose event is not
 * done, nor a group of NCCL whose other ranks have not come to theirs.
 *
 * Steps are made while the host waits (stream, event, blocking copy), or asks whether an event is done. Streams of all
 * devices share them, so any thread that waits works for all.
 *
 * As CUDA does: arguments are copied at the launch; a copy from pageable memory (allocated by neither allocate nor
 * allocate_pinned) reads it at once; a copy to it returns when it is done; streams do not wait for the default stream;
 * a stream that waits for an event of a captured stream is captured, too, and must be joined before the capture ends;
 * destroying a stream does not wait; releasing memory does.
 *
 * MOXIE_TEST_LAZY=seed: test_cuda_begin() installs this table.
 */
#ifndef TEST_LAZY_H
#define TEST_LAZY_H

#include "cuda/cuda_table.h"

/* The wrapped table. NCCL's stub (MOXIE_NCCL_LIBRARY) learns of the default stream. */
const mox_cuda_table *test_lazy_wrap(const mox_cuda_table *inner, uint64_t seed);
/* Another order from now on. */
void test_lazy_seed(uint64_t seed);
/* Does what is left. Returns the number of streams and events that exist. */
int test_lazy_end(void);

#endif
