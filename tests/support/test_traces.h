/* SPDX-License-Identifier: Apache-2.0
 *
 * test_traces.h - made-up routing traces, of the kinds that papers and issues describe.
 *
 *     LOCAL      Zipf popularity, the same for ever; half of the choices repeat one of the last 16 tokens'
 *     DOMAINS    Zipf popularity, whose order of experts changes every 300 steps
 *     REQUESTS   one request after another: a prefill step of 64 to 320 tokens, then 50 to 200 decode steps; half of
 *                the choices by the request's own popularity, half by one for all
 *     UNIFORM    all experts alike
 */
#ifndef TEST_TRACES_H
#define TEST_TRACES_H

#include "test_support.h"

#include <moxie/moxie_trace.h>

typedef enum test_trace_kind {
    TEST_TRACE_LOCAL,
    TEST_TRACE_DOMAINS,
    TEST_TRACE_REQUESTS,
    TEST_TRACE_UNIFORM,
    TEST_TRACE_KINDS
} test_trace_kind;
extern const char *const test_trace_names[TEST_TRACE_KINDS];

/* Writes `steps` steps to a file: decode steps of one token but for REQUESTS. */
void test_trace_write(const char *path, test_trace_kind kind, const moxie_trace_info *info, int64_t steps,
                      uint64_t seed);

#endif
