/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_report.h - the list of findings while it grows. Findings of one rule in one layer are one: the first is kept in
 * words, further ones are counted. So a layer of 256 experts with one defect each gives one line.
 *
 * Running out of memory is remembered, not returned: checks stay short, and mox_lint_run() asks at the end.
 */
#ifndef MOX_LINT_REPORT_H
#define MOX_LINT_REPORT_H

#include "base/memory.h"
#include "lint/lint.h"

typedef struct mox_lint_found {
    mox_lint_id id;
    int64_t layer, more;
    const char *file, *tensor, *text;
} mox_lint_found;

struct moxie_lint {
    mox_arena arena;
    mox_lint_found *items;
    int64_t count, room;
    int32_t only; /* a mox_lint_id, or -1 */
    moxie_lint_info info;
    bool no_memory;
};

/* Where something was found. Names are raw; NULL: none. */
typedef struct mox_lint_where {
    int64_t layer; /* -1: no layer's */
    const char *file, *tensor;
} mox_lint_where;

void mox_lint_report(moxie_lint *report, mox_lint_id id, mox_lint_where where, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Something that could not be read: a finding, and the report's input status if it is the first. */
void mox_lint_unreadable(moxie_lint *report, mox_lint_id id, const moxie_error *error);
/* Errors among the findings of this layer so far, whatever `only` hides. */
int64_t mox_lint_errors_in(const moxie_lint *report, int64_t layer);
/* Sorts and counts. */
void mox_lint_report_finish(moxie_lint *report);

#endif
