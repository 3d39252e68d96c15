/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_trace_import.c - the files of `moxie trace import`: vLLM's arrays, SGLang's base64, CSV.
 *
 * Promise: what was read makes a trace, unless an id is too large.
 */
#include "fuzz_scratch.h"

#include "trace_tool.h"

typedef moxie_status (*read_fn)(const char *path, const trace_arguments *args, trace_table *table, moxie_error *error);

static void check_form(read_fn read, const uint8_t *data, uint64_t size)
{
    const trace_arguments args = { .first_layer = 3, .last_layer = 4, .top_k = 2, .prefill = 2, .step_tokens = 2 };
    trace_table t = { 0 };
    moxie_error error = { 0 };
    fuzz_write("file", data, size);
    if (read(fuzz_path("file"), &args, &t, &error) != MOXIE_OK) {
        FUZZ_CHECK(error.text[0]);
    } else {
        t.experts = 64;
        for (int64_t i = 1; i < t.tokens; i++)
            FUZZ_CHECK(t.steps[i] >= t.steps[i - 1]);
        if (trace_table_check(&t, "file", &error) == MOXIE_OK)
            FUZZ_CHECK(trace_table_write(&t, fuzz_path("trace"), &error) == MOXIE_OK);
    }
    trace_table_free(&t);
}

void mox_fuzz_trace_import(const uint8_t *data, uint64_t size)
{
    check_form(trace_npy_read, data, size);
    check_form(trace_base64_read, data, size);
    check_form(trace_csv_read, data, size);
}
