/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_report.c - findings.def as a table, and the report that collects findings.
 */
#include "lint/lint_report.h"

#include <stdlib.h>
#include <string.h>

#define ERROR   MOXIE_SEVERITY_ERROR
#define WARNING MOXIE_SEVERITY_WARNING
#define NOTE    MOXIE_SEVERITY_NOTE

static const mox_lint_rule rules[] = {
#define MOX_FINDING(id, name, severity, topic, deep, meaning, engines, remedy)                                         \
    { name, severity, topic, deep, meaning, engines, remedy },
#include "lint/findings.def"
#undef MOX_FINDING
};

const mox_lint_rule *mox_lint_rule_at(int32_t i)
{
    return i >= 0 && i < MOX_LINT_COUNT ? &rules[i] : NULL;
}

/* "layout NAME: why": the same NAME. */
static bool same_layout(const char *a, const char *b)
{
    const size_t length = strcspn(a, ":");
    return strncmp(a, b, length) == 0 && b[length] == ':';
}

/* Findings that are one: of a rule in a layer; of a layout in any layer; of a few rules about many names. */
static bool is_same(const mox_lint_found *f, mox_lint_id id, int64_t layer, const char *text)
{
    if (f->id != id)
        return false;
    if (id == MOX_LINT_LAYOUT_REFUSES)
        return same_layout(f->text, text);
    return f->layer == layer &&
           (layer >= 0 || id == MOX_LINT_DUPLICATE || id == MOX_LINT_INDEX_MISMATCH || id == MOX_LINT_UNUSABLE);
}

static mox_lint_found *find(moxie_lint *report, mox_lint_id id, int64_t layer, const char *text)
{
    /* The layer at hand was added last. */
    for (int64_t i = report->count - 1; i >= 0; i--)
        if (is_same(&report->items[i], id, layer, text))
            return &report->items[i];
    return NULL;
}

static mox_lint_found *add(moxie_lint *report)
{
    if (report->count == report->room) {
        const int64_t room = report->room ? 2 * report->room : 64;
        mox_lint_found *items = mox_realloc(report->items, (uint64_t)room * sizeof *items);
        if (!items)
            return NULL;
        report->items = items;
        report->room = room;
    }
    return &report->items[report->count++];
}

static const char *escaped(moxie_lint *report, const char *name)
{
    char text[400];
    mox_escape(text, sizeof text, name ? name : "");
    return mox_arena_strndup(&report->arena, text, strlen(text));
}

void mox_lint_report(moxie_lint *report, mox_lint_id id, mox_lint_where where, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    mox_format_text(text, sizeof text, format, arguments);
    va_end(arguments);
    mox_lint_found *same = find(report, id, where.layer, text);
    if (same) {
        same->more++;
        return;
    }
    mox_lint_found made = { .id = id, .layer = where.layer };
    made.file = escaped(report, where.file);
    made.tensor = escaped(report, where.tensor);
    made.text = mox_arena_strndup(&report->arena, text, strlen(text));
    mox_lint_found *item = made.file && made.tensor && made.text ? add(report) : NULL;
    if (item)
        *item = made;
    else
        report->no_memory = true;
}

void mox_lint_unreadable(moxie_lint *report, mox_lint_id id, const moxie_error *error)
{
    if (error->code == MOXIE_ERR_MEMORY)
        report->no_memory = true;
    mox_lint_report(report, id, (mox_lint_where) { .layer = -1, .file = error->file }, "%s", error->text);
    if (report->info.input != MOXIE_OK || error->code == MOXIE_ERR_UNSUPPORTED || error->code == MOXIE_ERR_MISMATCH)
        return;
    report->info.input = error->code;
    report->info.input_text =
        mox_arena_printf(&report->arena, "%s%s%s", error->file, error->file[0] ? ": " : "", error->text);
    report->no_memory = report->no_memory || !report->info.input_text;
}

int64_t mox_lint_errors_in(const moxie_lint *report, int64_t layer)
{
    int64_t errors = 0;
    for (int64_t i = 0; i < report->count; i++)
        errors += report->items[i].layer == layer && rules[report->items[i].id].severity == ERROR;
    return errors;
}

static int worst_first(const void *a, const void *b)
{
    const mox_lint_found *x = a, *y = b;
    if (rules[x->id].severity != rules[y->id].severity)
        return rules[x->id].severity > rules[y->id].severity ? -1 : 1;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    const int file = strcmp(x->file, y->file);
    return file ? file : strcmp(x->text, y->text);
}

void mox_lint_report_finish(moxie_lint *report)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < report->count; i++)
        if (report->only < 0 || report->only == (int32_t)report->items[i].id)
            report->items[kept++] = report->items[i];
    report->count = kept;
    if (kept > 0)
        qsort(report->items, (size_t)kept, sizeof *report->items, worst_first);
    report->info.n_findings = kept;
    for (int64_t i = 0; i < kept; i++) {
        const moxie_severity severity = rules[report->items[i].id].severity;
        report->info.n_errors += severity == ERROR;
        report->info.n_warnings += severity == WARNING;
        report->info.n_notes += severity == NOTE;
    }
}

void mox_lint_free(moxie_lint *lint)
{
    if (!lint)
        return;
    mox_free(lint->items);
    mox_arena_free(&lint->arena);
    mox_free(lint);
}

void mox_lint_get_info(const moxie_lint *lint, moxie_lint_info *info)
{
    *info = lint->info;
}

bool mox_lint_finding_at(const moxie_lint *lint, int64_t i, moxie_finding *out)
{
    if (i < 0 || i >= lint->count)
        return false;
    const mox_lint_found *f = &lint->items[i];
    const mox_lint_rule *rule = &rules[f->id];
    *out = (moxie_finding) { .name = rule->name,
                             .severity = rule->severity,
                             .layer = f->layer,
                             .file = f->file,
                             .tensor = f->tensor,
                             .found = f->text,
                             .more = f->more,
                             .meaning = rule->meaning,
                             .engines = rule->engines,
                             .remedy = rule->remedy };
    return true;
}
