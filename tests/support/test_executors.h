/* SPDX-License-Identifier: Apache-2.0
 *
 * test_executors.h - executors such as a host engine may have: legal, but unlike the library's pool. They also count
 * their loops.
 */
#ifndef TEST_EXECUTORS_H
#define TEST_EXECUTORS_H

#include "test_support.h"

typedef enum test_order {
    TEST_IN_TURN,     /* on the calling thread, task i as worker i mod workers */
    TEST_BACKWARDS,   /* the same, last task first */
    TEST_THREADS,     /* a new thread for each worker; each takes the next task */
    TEST_LATE_THREADS /* the same, each sleeping a different time before it begins */
} test_order;

/* For tests in which only one loop runs at a time. */
typedef struct test_executor {
    moxie_executor executor; /* executor.self is this */
    test_order order;
    int64_t regions;       /* loops so far */
    void (*after)(void *); /* called after every task, on its thread; NULL: nothing. It must not fail the test there */
    void *after_user;
} test_executor;

void test_executor_init(test_executor *out, int32_t workers, test_order order);

/* Skips the test, with the reason, where a forked child cannot start threads. */
void test_skip_where_children_start_no_threads(void);

#endif
