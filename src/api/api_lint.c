/* SPDX-License-Identifier: Apache-2.0
 *
 * api_lint.c - moxie_lint.h: checks pointers and sizes of structs, then calls src/lint.
 */
#include "api_need.h"
#include "layer/config/struct_size.h"
#include "lint/lint.h"

const char *moxie_severity_name(int32_t severity)
{
    static const char *const names[] = { "note", "warning", "error" };
    return severity >= 0 && severity < 3 ? names[severity] : NULL;
}

int moxie_lint_rule_at(int32_t i, moxie_lint_rule *out)
{
    const mox_lint_rule *rule = mox_lint_rule_at(i);
    if (!rule || !out || mox_struct_check(out, MOX_STRUCT(moxie_lint_rule), NULL) != MOXIE_OK)
        return 0;
    const moxie_lint_rule known = { .name = rule->name,
                                    .topic = rule->topic,
                                    .severity = rule->severity,
                                    .deep = rule->deep,
                                    .meaning = rule->meaning,
                                    .engines = rule->engines,
                                    .remedy = rule->remedy };
    mox_struct_write(&known, out, MOX_STRUCT(moxie_lint_rule));
    return 1;
}

moxie_status moxie_lint_run(const char *dir, const moxie_lint_options *options, moxie_lint **out, moxie_error *error)
{
    NEED(dir);
    NEED(out);
    moxie_lint_options known = MOXIE_LINT_OPTIONS_INIT;
    if (options)
        MOX_TRY(mox_struct_read(options, &known, MOX_STRUCT(moxie_lint_options), error));
    return mox_lint_run(dir, &known, out, error);
}

void moxie_lint_free(moxie_lint *lint)
{
    mox_lint_free(lint);
}

moxie_status moxie_lint_get_info(const moxie_lint *lint, moxie_lint_info *info, moxie_error *error)
{
    NEED(lint);
    NEED(info);
    MOX_TRY(mox_struct_check(info, MOX_STRUCT(moxie_lint_info), error));
    moxie_lint_info known;
    mox_lint_get_info(lint, &known);
    mox_struct_write(&known, info, MOX_STRUCT(moxie_lint_info));
    return MOXIE_OK;
}

int moxie_lint_finding_at(const moxie_lint *lint, int64_t i, moxie_finding *out)
{
    moxie_finding known;
    if (!lint || !out || mox_struct_check(out, MOX_STRUCT(moxie_finding), NULL) != MOXIE_OK ||
        !mox_lint_finding_at(lint, i, &known))
        return 0;
    mox_struct_write(&known, out, MOX_STRUCT(moxie_finding));
    return 1;
}
