/* SPDX-License-Identifier: Apache-2.0
 *
 * report_read.c - the JSON of bench, explain, run and diff into plain structs. Every value is checked: its type, its
 * range, the schema. The first error stays; later reads give zeros and empty strings.
 */
#include "report.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const report_part_names[REPORT_PARTS] = { "bench", "explain", "run", "diff" };

typedef struct reader {
    const char *file;
    moxie_error *error;
    moxie_status status;
    char where[64]; /* "rows[2]." before a key; "" for the whole */
} reader;

static void refuse(reader *in, moxie_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void refuse(reader *in, moxie_status status, const char *format, ...)
{
    if (in->status != MOXIE_OK)
        return;
    va_list arguments;
    va_start(arguments, format);
    char *text = cli_vformat(format, arguments);
    va_end(arguments);
    in->status = cli_error(status, in->error, in->file, "%s", text);
    free(text);
}

static const json_t *value_of(reader *in, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        refuse(in, MOXIE_ERR_FORMAT, "there is no %s%s in it", in->where, key);
    return value;
}

/* A number within [low, high]. */
static double number(reader *in, const json_t *object, const char *key, double low, double high)
{
    const json_t *value = value_of(in, object, key);
    if (value && !json_is_number(value))
        refuse(in, MOXIE_ERR_FORMAT, "%s%s is no number", in->where, key);
    const double found = json_number_value(value);
    if (value && !(found >= low && found <= high))
        refuse(in, MOXIE_ERR_FORMAT, "%s%s is %g; from %g to %g is possible", in->where, key, found, low, high);
    return in->status == MOXIE_OK ? found : low;
}

static int64_t whole(reader *in, const json_t *object, const char *key, int64_t low, int64_t high)
{
    const json_t *value = value_of(in, object, key);
    if (value && !json_is_integer(value))
        refuse(in, MOXIE_ERR_FORMAT, "%s%s is no whole number", in->where, key);
    const int64_t found = json_integer_value(value);
    if (value && (found < low || found > high))
        refuse(in, MOXIE_ERR_FORMAT, "%s%s is %lld; from %lld to %lld is possible", in->where, key, (long long)found,
               (long long)low, (long long)high);
    return in->status == MOXIE_OK ? found : low;
}

static const char *string(reader *in, const json_t *object, const char *key)
{
    const json_t *value = value_of(in, object, key);
    if (value && !json_is_string(value))
        refuse(in, MOXIE_ERR_FORMAT, "%s%s is no text", in->where, key);
    return json_is_string(value) ? json_string_value(value) : "";
}

static bool truth(reader *in, const json_t *object, const char *key)
{
    const json_t *value = value_of(in, object, key);
    if (value && !json_is_boolean(value))
        refuse(in, MOXIE_ERR_FORMAT, "%s%s is neither true nor false", in->where, key);
    return json_is_true(value);
}

/* An array of at most `most` objects; *n: how many. */
static const json_t *array(reader *in, const json_t *object, const char *key, int most, int *n)
{
    const json_t *value = value_of(in, object, key);
    if (value && !json_is_array(value))
        refuse(in, MOXIE_ERR_FORMAT, "%s%s is no array", in->where, key);
    if (json_array_size(value) > (size_t)most)
        refuse(in, MOXIE_ERR_FORMAT, "%s%s has %zu entries, more than the %d that a report shows", in->where, key,
               json_array_size(value), most);
    *n = in->status == MOXIE_OK ? (int)json_array_size(value) : 0;
    return value;
}

static const json_t *entry(reader *in, const json_t *values, const char *key, int i)
{
    snprintf(in->where, sizeof in->where, "%s[%d].", key, i);
    const json_t *value = json_array_get(values, (size_t)i);
    if (!json_is_object(value))
        refuse(in, MOXIE_ERR_FORMAT, "%s[%d] is no object", key, i);
    return value;
}

/* ---- bench ------------------------------------------------------------------------------------------ */

/* Bounds of what is drawn on logarithmic axes: no quotient of these overflows, and no axis has too many decades. */
#define LEAST 1e-9
#define MOST  1e18

static void read_row(reader *in, const json_t *from, report_row *row)
{
    row->tokens = whole(in, from, "tokens", 1, INT64_MAX);
    row->median_ms = number(in, from, "median_ms", LEAST, MOST);
    row->min_ms = number(in, from, "min_ms", LEAST, MOST);
    row->max_ms = number(in, from, "max_ms", LEAST, MOST);
    row->floor_ms = number(in, from, "floor_ms", 0, MOST);
    row->ratio = number(in, from, "ratio", 0, MOST);
    row->weight_bytes = number(in, from, "weight_bytes", 0, MOST);
    row->flop = number(in, from, "flop", 0, 1e30);
    row->floor_by = string(in, from, "floor_by");
    row->note = string(in, from, "note");
    row->disturbed = truth(in, from, "disturbed");
}

static int by_tokens(const void *a, const void *b)
{
    const report_row *x = a, *y = b;
    return (x->tokens > y->tokens) - (x->tokens < y->tokens);
}

/* The roof of the narrower type where a floor is by it. */
static void read_roof(reader *in, const json_t *json, report_bench *out)
{
    const json_t *limits = value_of(in, json, "limits");
    static const struct {
        const char *roof, *key;
    } narrower[] = { { "fp8", "fp8_tflop_s" }, { "int8", "int8_top_s" } };
    const char *key = "bf16_tflop_s";
    out->roof = "bf16";
    for (int i = 0; i < 2 * out->n_rows; i++)
        if (!strcmp(out->rows[i / 2].floor_by, narrower[i % 2].roof)) {
            out->roof = narrower[i % 2].roof;
            key = narrower[i % 2].key;
        }
    snprintf(in->where, sizeof in->where, "limits.");
    out->read_gb_s = number(in, limits, "read_gb_s", LEAST, MOST);
    out->tflop_s = number(in, limits, key, LEAST, MOST);
}

static void read_bench(reader *in, const json_t *json, report_bench *out)
{
    const json_t *rows = array(in, json, "rows", CLI_MAX_SIZES, &out->n_rows);
    out->device = string(in, json, "device");
    out->warning = string(in, json, "warning");
    out->experts = whole(in, json, "experts", 1, INT32_MAX);
    out->top_k = whole(in, json, "top_k", 1, INT32_MAX);
    out->hidden = whole(in, json, "hidden", 1, INT32_MAX);
    out->intermediate = whole(in, json, "intermediate", 1, INT32_MAX);
    if (in->status == MOXIE_OK && out->n_rows == 0)
        refuse(in, MOXIE_ERR_FORMAT, "rows has no entry: nothing was timed");
    out->rows = cli_alloc(((size_t)out->n_rows + 1) * sizeof *out->rows);
    for (int i = 0; i < out->n_rows; i++) {
        const json_t *row = entry(in, rows, "rows", i);
        read_row(in, row, &out->rows[i]);
        out->preset = json_string_value(json_object_get(row, "preset"));
        out->scheme = string(in, row, "scheme");
        out->isa = string(in, row, "isa");
        out->mode = string(in, row, "mode");
        out->routing = string(in, row, "routing");
        out->threads = whole(in, row, "threads", 1, INT32_MAX);
    }
    if (out->n_rows > 0)
        qsort(out->rows, (size_t)out->n_rows, sizeof *out->rows, by_tokens);
    in->where[0] = '\0';
    out->dir = json_string_value(json_object_get(json, "dir"));
    if (in->status == MOXIE_OK && !out->preset && !out->dir)
        refuse(in, MOXIE_ERR_FORMAT, "neither a preset nor a dir is named in it");
    read_roof(in, json, out);
}

/* ---- explain ---------------------------------------------------------------------------------------- */

static void read_explain(reader *in, const json_t *json, report_explain *out)
{
    const json_t *steps = array(in, json, "steps", 4096, &out->n_steps);
    out->experts = whole(in, json, "experts", 1, INT32_MAX);
    out->top_k = whole(in, json, "top_k", 1, INT32_MAX);
    out->hidden = whole(in, json, "hidden", 1, INT32_MAX);
    out->intermediate = whole(in, json, "intermediate", 1, INT32_MAX);
    out->dtype = string(in, json, "dtype");
    out->steps = cli_alloc(((size_t)out->n_steps + 1) * sizeof *out->steps);
    for (int i = 0; i < out->n_steps; i++) {
        const json_t *step = entry(in, steps, "steps", i);
        out->steps[i] = (report_step) {
            .family = string(in, step, "family"),
            .role = string(in, step, "role"),
            .kernel = string(in, step, "kernel"),
            .isa = string(in, step, "isa"),
            .layout = string(in, step, "layout"),
            .exactness = string(in, step, "class"),
            .reason = string(in, step, "reason"),
            .remedy = string(in, step, "remedy"),
            .chosen = truth(in, step, "chosen"),
        };
    }
}

/* ---- run -------------------------------------------------------------------------------------------- */

static void read_routing(reader *in, const json_t *json, report_routing *out)
{
    int n = 0;
    const json_t *ids = array(in, json, "topk_ids", INT32_MAX, &n);
    out->tokens = whole(in, json, "tokens", 0, INT32_MAX);
    out->experts = whole(in, json, "experts", 1, MOXIE_MAX_EXPERTS);
    out->top_k = whole(in, json, "top_k", 1, MOXIE_MAX_TOP_K);
    if (in->status == MOXIE_OK && n != out->tokens * out->top_k)
        refuse(in, MOXIE_ERR_FORMAT, "topk_ids has %d numbers, and %lld tokens of %lld choices have %lld", n,
               (long long)out->tokens, (long long)out->top_k, (long long)(out->tokens * out->top_k));
    const size_t bytes = (size_t)out->experts * sizeof *out->counts;
    out->counts = cli_alloc(bytes);
    memset(out->counts, 0, bytes);
    for (int i = 0; in->status == MOXIE_OK && i < n; i++) {
        const json_t *id = json_array_get(ids, (size_t)i);
        if (!json_is_integer(id))
            refuse(in, MOXIE_ERR_FORMAT, "topk_ids[%d] is no whole number", i);
        const json_int_t e = json_integer_value(id);
        if (e < 0 || e >= out->experts) /* skipped, or an expert without weights */
            continue;
        out->counts[e]++;
        out->choices++;
    }
}

/* ---- diff ------------------------------------------------------------------------------------------- */

static void read_stages(reader *in, const json_t *side, report_diff *out)
{
    int n = 0;
    const json_t *stages = array(in, side, "stages", 64, &n);
    const char *backend = string(in, side, "backend");
    out->stages = cli_realloc(out->stages, (size_t)(out->n_stages + n + 1) * sizeof *out->stages);
    for (int i = 0; i < n; i++) {
        const json_t *stage = entry(in, stages, "stages", i);
        const double want = number(in, stage, "rms_want", 0, DBL_MAX);
        report_stage *s = &out->stages[out->n_stages++];
        *s = (report_stage) {
            .backend = backend,
            .stage = string(in, stage, "stage"),
            .elements = whole(in, stage, "elements", 0, INT64_MAX),
            .beyond = whole(in, stage, "beyond", 0, INT64_MAX),
            .worst_ratio = json_is_null(value_of(in, stage, "worst_ratio"))
                               ? INFINITY
                               : number(in, stage, "worst_ratio", 0, DBL_MAX),
        };
        s->error = want > 0 ? number(in, stage, "rms_error", 0, DBL_MAX) / want : 0;
        s->bound = want > 0 ? number(in, stage, "rms_bound", 0, DBL_MAX) / want : 0;
    }
}

static void read_diff(reader *in, const json_t *json, report_diff *out)
{
    int n = 0;
    if (!json_object_get(json, "reports"))
        refuse(in, MOXIE_ERR_FORMAT,
               "it compares weights or ranks: a report shows the stages of `moxie diff DIR --a ... --b ref`");
    const json_t *reports = array(in, json, "reports", 2, &n);
    out->a = string(in, json, "a");
    out->b = string(in, json, "b");
    out->right = truth(in, json, "right");
    for (int i = 0; i < n; i++)
        read_stages(in, entry(in, reports, "reports", i), out);
}

/* ---- all -------------------------------------------------------------------------------------------- */

static void check_schema(reader *in, const json_t *json, report_part part)
{
    if (!json_is_object(json)) {
        refuse(in, MOXIE_ERR_FORMAT, "it is no object: the output of `moxie %s --json` is needed",
               report_part_names[part]);
        return;
    }
    const char *command = string(in, json, "command");
    if (in->status == MOXIE_OK && strcmp(command, report_part_names[part]))
        refuse(in, MOXIE_ERR_FORMAT, "it was printed by `moxie %s`, and that of `moxie %s --json` is needed",
               cli_printable(command), report_part_names[part]);
    const int64_t schema = whole(in, json, "schema_version", 0, INT32_MAX);
    if (in->status == MOXIE_OK && schema != CLI_SCHEMA_VERSION)
        refuse(in, MOXIE_ERR_UNSUPPORTED, "schema_version is %lld, and this program reads %d: print it again",
               (long long)schema, CLI_SCHEMA_VERSION);
    if (in->status == MOXIE_OK && json_object_get(json, "error"))
        refuse(in, MOXIE_ERR_FORMAT, "it is the error of a command that failed");
}

moxie_status report_read(report *r, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    for (int p = 0; status == MOXIE_OK && p < REPORT_PARTS; p++) {
        reader in = { .file = r->file[p], .error = error };
        const json_t *json = r->json[p];
        if (!json)
            continue;
        check_schema(&in, json, (report_part)p);
        if (in.status == MOXIE_OK && p == REPORT_BENCH)
            read_bench(&in, json, &r->bench);
        else if (in.status == MOXIE_OK && p == REPORT_EXPLAIN)
            read_explain(&in, json, &r->explain);
        else if (in.status == MOXIE_OK && p == REPORT_RUN)
            read_routing(&in, json, &r->routing);
        else if (in.status == MOXIE_OK)
            read_diff(&in, json, &r->diff);
        status = in.status;
    }
    return status;
}

void report_free(report *r)
{
    free(r->bench.rows);
    free(r->explain.steps);
    free(r->routing.counts);
    free(r->diff.stages);
    for (int p = 0; p < REPORT_PARTS; p++)
        json_decref(r->json[p]);
}
