/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_threads.h - a local comm with one thread for each rank.
 */
#ifndef COMM_THREADS_H
#define COMM_THREADS_H

#include "test_support.h"

#include <moxie/moxie_comm.h>

typedef struct comm_thread {
    moxie_comm *comm;
    int32_t ranks, rank;
    void *user;         /* the same for all ranks */
    char failure[1536]; /* what is wrong; empty: nothing. Threads do not assert */
} comm_thread;

typedef void comm_thread_fn(comm_thread *self);

/* Creates the comms, runs fn on every rank, joins. fn destroys its comm. Fails the test with the first failure. */
void comm_run_threads(int32_t ranks, int32_t deadline_ms, comm_thread_fn *fn, void *user);

/* Notes a failure of this rank, unless there is one already. */
#define COMM_EXPECT(self, condition, ...)                                                                              \
    do {                                                                                                               \
        if (!(condition) && (self)->failure[0] == 0)                                                                   \
            snprintf((self)->failure, sizeof(self)->failure, __VA_ARGS__);                                             \
    } while (0)

#endif
