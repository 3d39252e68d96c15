/* SPDX-License-Identifier: Apache-2.0
 *
 * test_late.h - a launch table on which copies come late: one that is enqueued on a late stream happens when an event
 * behind it, or the stream, is waited for. It wraps the table of test_cuda_table.h, which does everything at once.
 */
#ifndef TEST_LATE_H
#define TEST_LATE_H

#include <stdbool.h>

/* After test_cuda_begin(); test_late_end() before test_cuda_end(). */
void test_late_begin(void);
void test_late_end(void);
/* Between the two: whether streams made from now on are late. Returns what it was; elsewhere false. */
bool test_late_set(bool on);
/* Copies that came late so far. */
int test_late_copies(void);

#endif
