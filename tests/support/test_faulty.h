/* SPDX-License-Identifier: Apache-2.0
 *
 * test_faulty.h - a transport that passes every call on to another one, but first, at the n-th call, does what a test
 * wants: kills the process, sleeps, leaves.
 */
#ifndef TEST_FAULTY_H
#define TEST_FAULTY_H

#include "test_support.h"

#include <moxie/moxie_comm.h>

typedef struct test_fault {
    moxie_transport inner;
    int64_t calls_left; /* the hook runs in the call in which this is 0; negative: never. For the rank's own thread */
    void (*hook)(struct test_fault *fault);
    void *user;
    void (*first)(struct test_fault *fault); /* runs in the first call; NULL: nothing does */
    bool begun;
    int64_t done_ms; /* when an operation was last done, by test_now_ms; 0: none was */
    bool left;       /* test_fault_leave was called: every further call fails */
} test_fault;

/* Takes over `inner`. The fault's memory outlives the transport. */
moxie_transport test_faulty(moxie_transport inner, test_fault *fault);
/* A hook: the rank is cancelled. */
void test_fault_leave(test_fault *fault);

/* Of a clock that only goes on. */
int64_t test_now_ms(void);
void test_sleep_ms(int64_t ms);

#endif
