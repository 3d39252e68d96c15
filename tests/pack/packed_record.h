/* SPDX-License-Identifier: Apache-2.0
 *
 * packed_record.h - shared by tests of our layouts: an expert is packed over other bytes, inspected, and unpacked
 * again.
 */
#ifndef PACKED_RECORD_H
#define PACKED_RECORD_H

#include "test_problem.h"

/* A test's own statement of where things lie in a record. */
typedef void (*record_check)(const mox_record_shape *shape, const moxie_expert *expert, const uint8_t *record,
                             uint64_t bytes);

/* unpack(pack(w)) is w; `check`, if not NULL, sees the record between. */
static inline void check_there_and_back(const mox_layout *layout, const mox_record_shape *shape,
                                        const test_expert *expert, const char *name, record_check check)
{
    test_expert back;
    moxie_error error;
    const char *what;
    uint64_t bytes = 0;
    assert_true(layout->record_bytes(shape, &bytes));
    uint8_t *record = test_guarded(bytes);
    memset(record, 0x33, bytes);
    assert_ok(mox_record_pack(layout, shape, 7, &expert->view, record, &error), &error);
    assert_ok(mox_record_verify(layout, shape, 7, record, &error), &error);
    if (check != NULL)
        check(shape, &expert->view, record, bytes);
    test_expert_twin(&back, expert);
    assert_ok(layout->unpack(shape, record, &back.view, &error), &error);
    if (!test_expert_equal(&expert->view, &back.view, &what))
        fail_msg("%s, %lld x %lld: unpack(pack(w)) differs from w in %s", name, (long long)shape->hidden,
                 (long long)shape->intermediate, what);
    test_guarded_free(record, bytes);
    test_expert_free(&back);
}

/* Compares every byte behind the header with `want`. */
static inline void check_same_bytes(const mox_record_shape *shape, const uint8_t *record, const uint8_t *want,
                                    uint64_t bytes, const char *file)
{
    char text[128];
    for (uint64_t i = sizeof(mox_record_header); i < bytes; i++)
        if (record[i] != want[i])
            fail_msg("%s, %lld x %lld%s: byte %llu is 0x%02x, %s says 0x%02x",
                     mox_quant_describe(&shape->w13, text, sizeof text), (long long)shape->hidden,
                     (long long)shape->intermediate, shape->gated ? " gated" : "", (unsigned long long)i, record[i],
                     file, want[i]);
}

#endif
