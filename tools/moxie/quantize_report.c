/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_report.c - the errors of quantization, by layer, projection and expert (quantize_report.h):
 *
 *     rms = sqrt(sum (q - w)^2 / sum w^2), over one matrix, or over all experts' matrices of a projection
 */
#include "quantize_report.h"

#include <math.h>
#include <stdlib.h>

static const char *const projections[] = { "gate", "up", "down" };
enum { N_PROJECTIONS = 3 };

/* Matrices together. */
typedef struct sums {
    double squares, weights;
    bool exact;
    const moxie_quantize_error *worst;     /* the largest single error */
    const moxie_quantize_error *worst_rms; /* the matrix with the largest rms */
} sums;

static double rms_of(double squares, double weights)
{
    return weights > 0 ? sqrt(squares / weights) : 0;
}

static double rms(const moxie_quantize_error *e)
{
    return rms_of(e->squares, e->weight_squares);
}

static void add(sums *s, const moxie_quantize_error *e)
{
    s->exact = (s->worst == NULL || s->exact) && e->exact;
    s->squares += e->squares;
    s->weights += e->weight_squares;
    if (!s->worst || e->worst > s->worst->worst)
        s->worst = e;
    if (!s->worst_rms || rms(e) > rms(s->worst_rms))
        s->worst_rms = e;
}

void quantize_errors_add(void *user, const moxie_quantize_error *error)
{
    quantize_errors *errors = user;
    if (errors->count == errors->room) {
        errors->room = errors->room > 0 ? 2 * errors->room : 1024;
        errors->at = cli_realloc(errors->at, (size_t)errors->room * sizeof *errors->at);
    }
    errors->at[errors->count++] = *error;
}

static sums sums_of(const quantize_errors *errors)
{
    sums all = { 0 };
    for (int64_t i = 0; i < errors->count; i++)
        add(&all, &errors->at[i]);
    return all;
}

double quantize_errors_rms(const quantize_errors *errors)
{
    const sums all = sums_of(errors);
    return rms_of(all.squares, all.weights);
}

bool quantize_errors_exact(const quantize_errors *errors)
{
    return errors->count > 0 && sums_of(errors).exact;
}

/* The end of the layer that begins at `first`. */
static int64_t layer_end(const quantize_errors *errors, int64_t first)
{
    int64_t end = first;
    while (end < errors->count && errors->at[end].layer == errors->at[first].layer)
        end++;
    return end;
}

static void layer_sums(const quantize_errors *errors, int64_t first, int64_t end, sums *all, sums by[N_PROJECTIONS])
{
    for (int64_t i = first; i < end; i++) {
        add(all, &errors->at[i]);
        add(&by[errors->at[i].projection], &errors->at[i]);
    }
}

static void add_rms(cli_table *table, const sums *s)
{
    if (!s->worst)
        cli_table_add(table, "-");
    else if (s->exact)
        cli_table_add(table, "exact");
    else
        cli_table_add(table, "%.5f", rms_of(s->squares, s->weights));
}

void quantize_errors_print(const quantize_errors *errors)
{
    static const char *const headings[] = { ">layer",   ">gate",          ">up",  ">down", "worst matrix",
                                            ">its rms", ">largest error", "where" };
    cli_table table;
    cli_table_begin(&table, 8, headings);
    for (int64_t first = 0, end; first < errors->count; first = end) {
        sums all = { 0 }, by[N_PROJECTIONS] = { 0 };
        end = layer_end(errors, first);
        layer_sums(errors, first, end, &all, by);
        const moxie_quantize_error *w = all.worst_rms, *l = all.worst;
        cli_table_add(&table, "%lld", (long long)errors->at[first].layer);
        for (int i = 0; i < N_PROJECTIONS; i++)
            add_rms(&table, &by[i]);
        cli_table_add(&table, "expert %d %s", (int)w->expert, projections[w->projection]);
        cli_table_add(&table, "%.5f", rms(w));
        cli_table_add(&table, "%.3g", l->worst);
        cli_table_add(&table, "expert %d %s [%lld, %lld]", (int)l->expert, projections[l->projection],
                      (long long)l->worst_row, (long long)l->worst_col);
    }
    cli_table_print(&table);
    cli_table_free(&table);
}

static json_t *json_of(const moxie_quantize_error *e)
{
    return cli_pack("{s:i, s:s, s:f, s:f, s:[I,I], s:b}", "expert", (int)e->expert, "projection",
                    projections[e->projection], "rms", rms(e), "worst", e->worst, "worst_at", (json_int_t)e->worst_row,
                    (json_int_t)e->worst_col, "exact", (int)e->exact);
}

void quantize_errors_json(const quantize_errors *errors, json_t *object)
{
    json_t *layers = json_array();
    for (int64_t first = 0, end; first < errors->count; first = end) {
        sums all = { 0 }, by[N_PROJECTIONS] = { 0 };
        json_t *matrices = json_array();
        end = layer_end(errors, first);
        layer_sums(errors, first, end, &all, by);
        for (int64_t i = first; i < end; i++)
            cli_json_append(matrices, json_of(&errors->at[i]));
        json_t *layer = cli_pack("{s:I, s:b}", "layer", (json_int_t)errors->at[first].layer, "exact", (int)all.exact);
        for (int i = 0; i < N_PROJECTIONS; i++)
            if (by[i].worst)
                cli_json_set(layer, projections[i], json_real(rms_of(by[i].squares, by[i].weights)));
        cli_json_set(layer, "matrices", matrices);
        cli_json_append(layers, layer);
    }
    cli_json_set(object, "layers", layers);
}
