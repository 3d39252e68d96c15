/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_csv.c - a line for each choice:
 *
 *     step,phase,request,token,layer,choice,expert,weight
 *     0,prefill,0,0,3,0,17,0.25
 *
 * The first line names the columns. token, layer and expert are needed; the others may be missing. They may be in any
 * order. Tokens are numbered from 0 on, and those of one step are neighbours. A layer is the model's number. An expert
 * below 0 is no choice. Without steps, tokens are one request (--prefill, --step-tokens).
 */
#include "trace_tool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEP, PHASE, REQUEST, TOKEN, LAYER, CHOICE, EXPERT, WEIGHT, N_COLUMNS };
static const char *const columns[N_COLUMNS + 1] = { "step",   "phase",  "request", "token", "layer",
                                                    "choice", "expert", "weight",  NULL };
static const char *const phases[] = { "unknown", "prefill", "decode", "mixed", NULL };
static const cli_names column_names = { .kind = "column", .fixed = columns };
static const cli_names phase_names = { .kind = "phase", .fixed = phases };

typedef struct line {
    int64_t value[N_COLUMNS];
    float weight;
} line;

typedef struct csv {
    const char *path;
    int order[N_COLUMNS], n_columns; /* which column comes first, second, ... */
    bool has[N_COLUMNS];
    line *lines;
    int64_t count, room;
} csv;

static moxie_status read_head(csv *c, char *text, moxie_error *error)
{
    char message[400];
    for (char *one; (one = strsep(&text, ",")) != NULL;) {
        const int32_t column = cli_find_name(&column_names, one);
        if (column < 0 || c->has[column])
            return cli_error(MOXIE_ERR_FORMAT, error, c->path, "line 1: %s",
                             column < 0 ? cli_no_such_name(&column_names, one, message, sizeof message)
                                        : "a column is there twice");
        c->has[column] = true;
        c->order[c->n_columns++] = column;
    }
    if (!c->has[TOKEN] || !c->has[LAYER] || !c->has[EXPERT])
        return cli_error(
            MOXIE_ERR_FORMAT, error, c->path,
            "line 1 must name the columns token, layer and expert, and may name step, phase, request, choice "
            "and weight");
    if (!c->has[STEP] && (c->has[PHASE] || c->has[REQUEST]))
        return cli_error(MOXIE_ERR_FORMAT, error, c->path,
                         "line 1 names the column %s, but no step: without steps all tokens are one request "
                         "(--prefill, --step-tokens); add the column step, or leave this one out",
                         columns[c->has[PHASE] ? PHASE : REQUEST]);
    return MOXIE_OK;
}

/* One value; false: it is none. */
static bool read_value(int column, const char *text, line *out)
{
    char *end;
    if (column == PHASE) {
        out->value[PHASE] = cli_find_name(&phase_names, text);
        return out->value[PHASE] >= 0;
    }
    if (column == WEIGHT) {
        out->weight = strtof(text, &end);
        return end > text && !*end && isfinite(out->weight);
    }
    if (column == REQUEST) {
        out->value[REQUEST] = (int64_t)strtoull(text, &end, 10);
        return end > text && !*end && *text != '-';
    }
    out->value[column] = strtoll(text, &end, 10);
    return end > text && !*end && out->value[column] <= INT32_MAX && (column == EXPERT || out->value[column] >= 0);
}

static moxie_status read_line(csv *c, char *text, int64_t number, moxie_error *error)
{
    if (c->count == c->room) {
        c->room = c->room ? 2 * c->room : 1024;
        c->lines = cli_realloc(c->lines, (size_t)c->room * sizeof *c->lines);
    }
    line *out = &c->lines[c->count++];
    *out = (line) { .value[CHOICE] = -1 };
    int at = 0;
    for (char *one; (one = strsep(&text, ",")) != NULL; at++)
        if (at >= c->n_columns || !read_value(c->order[at], one, out))
            return cli_error(MOXIE_ERR_FORMAT, error, c->path, "line %lld: \"%.40s\" is no %s", (long long)number,
                             cli_printable(one), at < c->n_columns ? columns[c->order[at]] : "column of line 1");
    return at == c->n_columns ? MOXIE_OK
                              : cli_error(MOXIE_ERR_FORMAT, error, c->path, "line %lld has %d values, and line 1 %d",
                                          (long long)number, at, c->n_columns);
}

static moxie_status read_lines(csv *c, char *text, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    int64_t number = 1;
    for (char *one; status == MOXIE_OK && (one = strsep(&text, "\n")) != NULL; number++) {
        one[strcspn(one, "\r")] = '\0';
        if (number == 1)
            status = read_head(c, one, error);
        else if (*one)
            status = read_line(c, one, number, error);
    }
    if (status == MOXIE_OK && c->count == 0)
        status = cli_error(MOXIE_ERR_FORMAT, error, c->path, "it has no line of choices");
    return status;
}

/* ---- lines become tokens -------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    static const int keys[] = { TOKEN, LAYER, CHOICE };
    const line *x = a, *y = b;
    for (int i = 0; i < 3; i++)
        if (x->value[keys[i]] != y->value[keys[i]])
            return x->value[keys[i]] < y->value[keys[i]] ? -1 : 1;
    return 0;
}

/* What the lines are of. */
typedef struct csv_sizes {
    int32_t numbers[MOXIE_TRACE_MAX_LAYERS]; /* of the layers, ascending */
    int64_t layers, top_k;
} csv_sizes;

/* Adds a layer's number; false: there are too many. */
static bool note_layer(csv_sizes *z, int32_t number)
{
    int64_t at = z->layers;
    while (at > 0 && z->numbers[at - 1] > number)
        at--;
    if (at > 0 && z->numbers[at - 1] == number)
        return true;
    if (z->layers == MOXIE_TRACE_MAX_LAYERS)
        return false;
    memmove(z->numbers + at + 1, z->numbers + at, (size_t)(z->layers - at) * sizeof *z->numbers);
    z->numbers[at] = number;
    z->layers++;
    return true;
}

/* Lines are sorted. */
static moxie_status find_sizes(const csv *c, csv_sizes *z, moxie_error *error)
{
    int64_t choice = 0;
    for (int64_t i = 0; i < c->count; i++) {
        const int64_t *now = c->lines[i].value, *before = i ? c->lines[i - 1].value : NULL;
        const bool again = before && now[TOKEN] == before[TOKEN] && now[LAYER] == before[LAYER];
        if (!note_layer(z, (int32_t)now[LAYER]))
            return cli_error(MOXIE_ERR_FORMAT, error, c->path, "there are more than %d layers", MOXIE_TRACE_MAX_LAYERS);
        if (now[TOKEN] > (before ? before[TOKEN] + 1 : 0))
            return cli_error(MOXIE_ERR_FORMAT, error, c->path, "token %lld has no line",
                             (long long)(before ? before[TOKEN] + 1 : 0));
        if (again && c->has[CHOICE] && now[CHOICE] == before[CHOICE])
            return cli_error(MOXIE_ERR_FORMAT, error, c->path, "token %lld, layer %lld has choice %lld twice",
                             (long long)now[TOKEN], (long long)now[LAYER], (long long)now[CHOICE]);
        choice = c->has[CHOICE] ? now[CHOICE] : again ? choice + 1 : 0;
        z->top_k = choice >= z->top_k ? choice + 1 : z->top_k;
    }
    return MOXIE_OK;
}

static moxie_status take_sizes(const csv *c, trace_table *table, moxie_error *error)
{
    csv_sizes z = { .layers = 0 };
    moxie_status status = find_sizes(c, &z, error);
    const size_t bytes = (size_t)z.layers * sizeof *z.numbers;
    if (status == MOXIE_OK && table->layer_numbers && table->layers == z.layers &&
        memcmp(table->layer_numbers, z.numbers, bytes))
        status = cli_error(MOXIE_ERR_MISMATCH, error, c->path, "its layers are not those of the files before");
    if (status == MOXIE_OK)
        status = trace_set_sizes(table, z.layers, z.top_k, c->path, error);
    if (status == MOXIE_OK && !table->layer_numbers) {
        table->layer_numbers = cli_alloc(bytes);
        memcpy(table->layer_numbers, z.numbers, bytes);
    }
    return status;
}

static moxie_status put_lines(const csv *c, trace_table *table, int64_t first, moxie_error *error)
{
    const int64_t base = first > 0 ? table->steps[first - 1] + 1 : 0;
    for (int64_t i = 0, layer = 0, choice = 0; i < c->count; i++) {
        const line *l = &c->lines[i];
        const int64_t *before = i ? l[-1].value : NULL, token = first + l->value[TOKEN];
        const bool same = before && before[TOKEN] == l->value[TOKEN];
        layer = same ? layer : 0;
        choice = same && before[LAYER] == l->value[LAYER] ? choice + 1 : 0;
        choice = c->has[CHOICE] ? l->value[CHOICE] : choice;
        while (table->layer_numbers[layer] != l->value[LAYER])
            layer++;
        const int64_t at = (token * table->layers + layer) * table->top_k + choice;
        table->ids[at] = l->value[EXPERT] < 0 ? -1 : (int32_t)l->value[EXPERT];
        table->weights[at] = l->weight;
        if (!c->has[STEP])
            continue;
        table->steps[token] = base + l->value[STEP];
        table->phases[token] = (int32_t)l->value[PHASE];
        table->requests[token] = (uint64_t)l->value[REQUEST];
        if (token > first && table->steps[token] < table->steps[token - 1])
            return cli_error(MOXIE_ERR_FORMAT, error, c->path, "token %lld is of step %lld, after step %lld",
                             (long long)l->value[TOKEN], (long long)l->value[STEP],
                             (long long)(table->steps[token - 1] - base));
    }
    return MOXIE_OK;
}

moxie_status trace_csv_read(const char *path, const trace_arguments *args, trace_table *table, moxie_error *error)
{
    csv c = { .path = path };
    char *text = NULL;
    uint64_t size = 0;
    const int64_t first = table->tokens;
    moxie_status status = moxie_file_read(path, TRACE_MAX_BYTES, &text, &size, error);
    if (status == MOXIE_OK && strlen(text) != size)
        status = cli_error(MOXIE_ERR_FORMAT, error, path, "it is no text");
    if (status == MOXIE_OK)
        status = read_lines(&c, text, error);
    if (status == MOXIE_OK) {
        qsort(c.lines, (size_t)c.count, sizeof *c.lines, by_place);
        status = take_sizes(&c, table, error);
    }
    if (status == MOXIE_OK)
        status = trace_table_grow(table, c.lines[c.count - 1].value[TOKEN] + 1, path, error);
    if (status == MOXIE_OK)
        status = put_lines(&c, table, first, error);
    if (status == MOXIE_OK && !c.has[STEP])
        trace_table_number(table, first, args);
    table->has_weights = table->has_weights || c.has[WEIGHT];
    table->has_requests = table->has_requests || c.has[REQUEST];
    free(c.lines);
    moxie_file_free(text);
    return status;
}

/* ---- writing -------------------------------------------------------------------------------------------- */

static void put_choices(FILE *out, const trace_table *t, int64_t token)
{
    for (int32_t l = 0; l < t->layers; l++)
        for (int32_t j = 0; j < t->top_k; j++) {
            const int64_t at = (token * t->layers + l) * t->top_k + j;
            fprintf(out, "%lld,%s,%llu,%lld,%d,%d,%d", (long long)t->steps[token], phases[t->phases[token]],
                    (unsigned long long)t->requests[token], (long long)token, t->layer_numbers[l], j, t->ids[at]);
            if (t->has_weights)
                fprintf(out, ",%.9g", (double)t->weights[at]);
            fputc('\n', out);
        }
}

moxie_status trace_csv_write(const char *path, const trace_table *t, moxie_error *error)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out) {
        fprintf(out, "step,phase,request,token,layer,choice,expert%s\n", t->has_weights ? ",weight" : "");
        for (int64_t token = 0; token < t->tokens; token++)
            put_choices(out, t, token);
    }
    if (!out || fclose(out) != 0) {
        free(text);
        return cli_error(MOXIE_ERR_MEMORY, error, path, "no memory for %lld %s", CLI_COUNT(t->tokens, "token"));
    }
    const moxie_status status = moxie_file_write(path, text, size, error);
    free(text);
    return status;
}
