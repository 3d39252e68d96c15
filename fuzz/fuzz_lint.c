/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_lint.c - `moxie lint --deep` of a directory with a config.json and one file of tensors.
 *
 * An input is config.json, a line "--", and the bytes of model.safetensors.
 *
 * Promises: whatever the files hold, there is a report. Its findings are sorted, the worst first; each is an instance
 * of a rule, has words, and is counted once in the report's numbers. A second run finds the same.
 */
#include "fuzz_scratch.h"

#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include <moxie/moxie_lint.h>

static void write_input(const uint8_t *data, uint64_t size)
{
    static const char line[] = "\n--\n";
    const uint64_t length = sizeof line - 1;
    uint64_t end = 0;
    while (end + length <= size && memcmp(data + end, line, length) != 0)
        end++;
    const bool both = end + length <= size;
    FUZZ_CHECK(mkdir(fuzz_path("lint"), 0700) == 0);
    fuzz_write("lint/config.json", data, both ? end : size);
    if (both)
        fuzz_write("lint/model.safetensors", data + end + length, size - end - length);
}

static moxie_lint *lint(void)
{
    moxie_lint_options options = MOXIE_LINT_OPTIONS_INIT;
    moxie_error error = { 0 };
    moxie_lint *report = NULL;
    options.deep = 1;
    FUZZ_CHECK(moxie_lint_run(fuzz_path("lint"), &options, &report, &error) == MOXIE_OK);
    FUZZ_CHECK(report);
    return report;
}

static bool is_rule(const char *name, int32_t severity)
{
    moxie_lint_rule rule = MOXIE_LINT_RULE_INIT;
    for (int32_t i = 0; moxie_lint_rule_at(i, &rule); i++)
        if (strcmp(rule.name, name) == 0)
            return rule.severity == severity;
    return false;
}

static void check_finding(const moxie_finding *f, int32_t last)
{
    FUZZ_CHECK(is_rule(f->name, f->severity) && f->severity <= last && f->more >= 0 && f->layer >= -1);
    FUZZ_CHECK(f->file && f->tensor && f->found && f->found[0] && f->meaning[0] && f->engines[0] && f->remedy[0]);
}

static void check_same(const moxie_finding *f, const moxie_finding *g)
{
    FUZZ_CHECK(f->layer == g->layer && f->more == g->more && strcmp(f->name, g->name) == 0);
    FUZZ_CHECK(strcmp(f->file, g->file) == 0 && strcmp(f->tensor, g->tensor) == 0 && strcmp(f->found, g->found) == 0);
}

void mox_fuzz_lint(const uint8_t *data, uint64_t size)
{
    moxie_lint_info info = MOXIE_LINT_INFO_INIT;
    moxie_finding f = MOXIE_FINDING_INIT, g = MOXIE_FINDING_INIT;
    moxie_error error = { 0 };
    int64_t count[3] = { 0 }, n = 0;
    int32_t last = MOXIE_SEVERITY_ERROR;
    write_input(data, size);
    moxie_lint *first = lint(), *second = lint();
    FUZZ_CHECK(moxie_lint_get_info(first, &info, &error) == MOXIE_OK);
    for (; moxie_lint_finding_at(first, n, &f); n++) {
        check_finding(&f, last);
        FUZZ_CHECK(moxie_lint_finding_at(second, n, &g));
        check_same(&f, &g);
        last = f.severity;
        count[f.severity]++;
    }
    FUZZ_CHECK(!moxie_lint_finding_at(second, n, &g) && n == info.n_findings);
    FUZZ_CHECK(count[0] == info.n_notes && count[1] == info.n_warnings && count[2] == info.n_errors);
    FUZZ_CHECK(info.input == MOXIE_OK || info.input_text[0]);
    moxie_lint_free(first);
    moxie_lint_free(second);
    fuzz_remove("lint");
}
