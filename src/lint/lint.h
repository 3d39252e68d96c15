/* SPDX-License-Identifier: Apache-2.0
 *
 * lint.h - what is wrong or suspicious in a checkpoint directory: the bodies of moxie_lint_*.
 *
 *     files (lint_files.c)  each shard on its own, so that a damaged one does not hide the others -> tensors in memory
 *        |
 *     config (lint_config.c), model: mox_model_open() on those tensors
 *        |
 *     each MoE layer: matrices and their formats (lint_layer.c), names (lint_tensors.c), layouts (lint_layouts.c)
 *        |  deep: one expert at a time (lint_numbers.c): scales, calibration, experts, order
 *     report (lint_report.c): findings, one per rule and layer
 *
 * Every rule is a line of findings.def.
 */
#ifndef MOX_LINT_H
#define MOX_LINT_H

#include <stdbool.h>

#include <moxie/moxie_lint.h>

#include "base/status.h"

typedef enum mox_lint_id {
#define MOX_FINDING(id, ...) MOX_LINT_##id,
#include "lint/findings.def"
#undef MOX_FINDING
    MOX_LINT_COUNT
} mox_lint_id;

typedef struct mox_lint_rule {
    const char *name;
    moxie_severity severity;
    const char *topic;
    bool deep;
    const char *meaning, *engines, *remedy;
} mox_lint_rule;

/* Rule i; NULL past the last. */
const mox_lint_rule *mox_lint_rule_at(int32_t i);

/* `options` is the library's own struct. */
moxie_status mox_lint_run(const char *dir, const moxie_lint_options *options, moxie_lint **out, moxie_error *error);
void mox_lint_free(moxie_lint *lint);
void mox_lint_get_info(const moxie_lint *lint, moxie_lint_info *info);
/* False past the last. */
bool mox_lint_finding_at(const moxie_lint *lint, int64_t i, moxie_finding *out);

#endif
