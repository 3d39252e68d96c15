/* SPDX-License-Identifier: Apache-2.0
 *
 * report_layer.c - what a layer did: the load of each expert as a heat map, the kernels of its plan with those that
 * were rejected, and each stage's error beside its bound.
 */
#include "report.h"

#include <math.h>

/* ---- routing ---------------------------------------------------------------------------------------- */

/* Experts in a row of the map. */
static int columns_of(int64_t experts)
{
    return experts <= 32 ? 8 : experts <= 128 ? 16 : experts <= 512 ? 32 : 40;
}

static int64_t largest_count(const report_routing *r)
{
    int64_t largest = 0;
    for (int64_t e = 0; e < r->experts; e++)
        largest = r->counts[e] > largest ? r->counts[e] : largest;
    return largest;
}

/* From nothing to the fullest expert. */
static void draw_scale(FILE *out, int64_t largest)
{
    fprintf(out, "<div class=\"scale\"><span>0</span><span class=\"ramp\"></span><span>%lld tokens</span></div>\n",
            (long long)largest);
}

/* One expert's square at (x, y), with its number of tokens where that is readable. */
static void draw_cell(FILE *out, const report_routing *r, int64_t e, int64_t largest, report_box cell)
{
    const int64_t count = r->counts[e];
    const double share = largest ? 0.12 + 0.88 * (double)count / (double)largest : 0, width = cell.x1 - cell.x0;
    fprintf(out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"2\"",
            count ? "heat" : "cold", cell.x0, cell.y0, width, cell.y1 - cell.y0);
    if (count)
        fprintf(out, " fill-opacity=\"%.3f\"", share);
    fprintf(out, "><title>expert %lld: %lld</title></rect>\n", (long long)e, (long long)count);
    if (width > 40 || (width > 25 && count < 1000))
        fprintf(out, "<text class=\"count mid%s\" x=\"%.1f\" y=\"%.1f\">%lld</text>\n",
                share > 0.72  ? " over"
                : share > 0.5 ? " half"
                              : "",
                (cell.x0 + cell.x1) / 2, (cell.y0 + cell.y1) / 2 + 5, (long long)count);
}

static void draw_map(FILE *out, const report_routing *r, int64_t largest)
{
    const int columns = columns_of(r->experts), margin = 44;
    const double size = (520.0 - margin) / columns, gap = size > 20 ? 3 : 1.5;
    const int64_t rows = (r->experts + columns - 1) / columns;
    fprintf(out,
            "<svg class=\"chart\" viewBox=\"0 0 520 %.0f\" role=\"img\" aria-labelledby=\"heat-t heat-d\">\n"
            "<title id=\"heat-t\">Tokens of each expert</title>"
            "<desc id=\"heat-d\">Experts row by row, %d in a row; the table below has the numbers.</desc>\n",
            ceil(size * (double)rows) + 2, columns);
    for (int64_t row = 0; row < rows; row++)
        fprintf(out, "<text class=\"tick end\" x=\"%d\" y=\"%.1f\">%lld</text>\n", margin - 8,
                size * ((double)row + 0.5) + 5, (long long)(row * columns));
    for (int64_t e = 0; e < r->experts; e++) {
        const double x = margin + size * (double)(e % columns), y = size * (double)(e / columns) + 1;
        draw_cell(out, r, e, largest,
                  (report_box) { x + gap / 2, y + gap / 2, x + size - gap / 2, y + size - gap / 2 });
    }
    fprintf(out, "</svg>\n");
    draw_scale(out, largest);
}

static void table_of_experts(FILE *out, const report_routing *r)
{
    static const char *const headings[] = { ">Expert", ">Tokens", ">Share", NULL };
    report_table_begin(out, "Tokens by expert", headings);
    for (int64_t e = 0; e < r->experts; e++) {
        report_cell(out, true, true, "%lld", (long long)e);
        report_cell(out, false, true, "%lld", (long long)r->counts[e]);
        report_cell(out, false, true, "%.2f %%", r->choices ? 100 * (double)r->counts[e] / (double)r->choices : 0);
    }
    report_table_end(out);
}

void report_routing_map(FILE *out, const report_routing *r)
{
    const int64_t largest = largest_count(r);
    const double mean = (double)r->choices / (double)r->experts;
    int64_t visited = 0;
    for (int64_t e = 0; e < r->experts; e++)
        visited += r->counts[e] > 0;
    fprintf(out,
            "<section class=\"half\"><h2>Routing</h2>\n<p>Which experts %lld tokens chose, %lld each. Every square is "
            "an expert; the stronger its colour, the more tokens chose it. Empty squares have none. ",
            (long long)r->tokens, (long long)r->top_k);
    fprintf(out, "%lld of %lld experts have tokens. The fullest has %lld", (long long)visited, (long long)r->experts,
            (long long)largest);
    if (mean > 0)
        fprintf(out, ", %.1f times the mean of %.1f", (double)largest / mean, mean);
    fprintf(out, ".</p>\n<figure>\n");
    draw_map(out, r, largest);
    table_of_experts(out, r);
    fprintf(out, "</figure></section>\n");
}

/* ---- kernels ---------------------------------------------------------------------------------------- */

static void chip(FILE *out, const char *class, const char *text)
{
    if (!text[0])
        return;
    fprintf(out, "<span class=\"chip %s\">", class);
    report_text(out, text);
    fprintf(out, "</span>");
}

/* The kernels from `first` on that were rejected for the step that runs at `chosen`. */
static void rejected(FILE *out, const report_explain *e, int first, int chosen)
{
    const int n = chosen - first;
    if (n == 0)
        return;
    fprintf(out, "<details><summary>%d better kernel%s rejected</summary><ul>\n", n, n == 1 ? " was" : "s were");
    for (int i = first; i < chosen; i++) {
        const report_step *s = &e->steps[i];
        fprintf(out, "<li><code>");
        report_text(out, s->kernel);
        fprintf(out, "</code> ");
        report_text(out, s->reason);
        if (s->remedy[0])
            report_textf(out, ". To get it: %s", s->remedy);
        fprintf(out, "</li>\n");
    }
    fprintf(out, "</ul></details>");
}

void report_kernels(FILE *out, const report_explain *e)
{
    int first = 0;
    fprintf(out, "<section><h2>Which kernel runs where, and why</h2>\n<p>The steps of the plan in the order they run. "
                 "Before each choice stand better kernels that were rejected, each with its reason and the smallest "
                 "change with which it would run.</p>\n<ol class=\"steps\">\n");
    for (int i = 0; i < e->n_steps; i++) {
        const report_step *s = &e->steps[i];
        if (!s->chosen)
            continue;
        fprintf(out, "<li><div class=\"step\"><strong>");
        report_textf(out, "%s%s%s", s->family, s->role[0] ? " " : "", s->role);
        fprintf(out, "</strong> <code>");
        report_text(out, s->kernel);
        fprintf(out, "</code> ");
        chip(out, "isa", s->isa);
        chip(out, "", s->layout);
        chip(out, "", s->exactness);
        fprintf(out, "</div>");
        if (s->reason[0]) {
            fprintf(out, "<p>");
            report_text(out, s->reason);
            fprintf(out, "</p>");
        }
        rejected(out, e, first, i);
        fprintf(out, "</li>\n");
        first = i + 1;
    }
    fprintf(out, "</ol></section>\n");
}

/* ---- oracle ----------------------------------------------------------------------------------------- */

enum { BAR_LEFT = 150, BAR_WIDTH = 290, BAR_STEP = 30, BAR_TOP = 30 };

/* A bar ends at its bound; what is beyond goes on a little, in another colour and with a word. */
static void draw_bar(FILE *out, const report_stage *s, int row)
{
    const double y = BAR_TOP + BAR_STEP * row, ratio = fmin(s->worst_ratio, 1.12);
    const bool wrong = s->worst_ratio > 1;
    fprintf(out, "<text class=\"tick end\" x=\"%d\" y=\"%.1f\">", BAR_LEFT - 8, y + 16);
    report_text(out, s->stage);
    fprintf(out, "</text><rect class=\"%s\" x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"20\" rx=\"2\"/>",
            wrong ? "wrong" : "right", BAR_LEFT, y + 1, fmax(ratio * BAR_WIDTH, 1.5));
    const bool inside = ratio > 0.75; /* of the bar: beside it the words would cross the bound */
    fprintf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", inside ? "count over end" : "tick",
            BAR_LEFT + fmin(ratio, 1) * BAR_WIDTH + (inside ? -8 : 6), y + 16);
    if (isinf(s->worst_ratio))
        fprintf(out, "wrong");
    else
        fprintf(out, "%.3g%s", s->worst_ratio, wrong ? " wrong" : "");
    fprintf(out, "</text>\n");
}

static void draw_bars(FILE *out, const report_diff *d)
{
    const int height = BAR_TOP + BAR_STEP * d->n_stages + 8;
    fprintf(out,
            "<svg class=\"chart\" viewBox=\"0 0 520 %d\" role=\"img\" aria-labelledby=\"bars-t bars-d\">\n"
            "<title id=\"bars-t\">Largest error of each stage relative to its bound</title>"
            "<desc id=\"bars-d\">The table below the picture has the same numbers.</desc>\n",
            height);
    for (int i = 0; i < d->n_stages; i++)
        draw_bar(out, &d->stages[i], i);
    fprintf(out,
            "<line class=\"bound\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/><text class=\"limit mid\" x=\"%d\" "
            "y=\"16\">bound</text>\n</svg>\n",
            BAR_LEFT + BAR_WIDTH, BAR_TOP - 8, BAR_LEFT + BAR_WIDTH, height - 4, BAR_LEFT + BAR_WIDTH);
}

static void table_of_stages(FILE *out, const report_diff *d)
{
    static const char *const headings[] = { "Back end",       "Stage",      ">Elements",  ">Beyond the bound",
                                            ">Worst / bound", ">RMS error", ">RMS bound", NULL };
    report_table_begin(out, "Errors by stage", headings);
    for (int i = 0; i < d->n_stages; i++) {
        const report_stage *s = &d->stages[i];
        report_cell(out, true, false, "%s", s->backend);
        report_cell(out, false, false, "%s", s->stage);
        report_cell(out, false, true, "%lld", (long long)s->elements);
        report_cell(out, false, true, "%lld", (long long)s->beyond);
        isinf(s->worst_ratio) ? report_cell(out, false, true, "no distance")
                              : report_cell(out, false, true, "%.4g", s->worst_ratio);
        report_cell(out, false, true, "%.1e", s->error);
        report_cell(out, false, true, "%.1e", s->bound);
    }
    report_table_end(out);
}

void report_oracle(FILE *out, const report_diff *d)
{
    fprintf(out, "<section class=\"half\"><h2>Beside the oracle</h2>\n<p><span class=\"verdict %s\">%s</span> ",
            d->right ? "good" : "bad", d->right ? "Right." : "WRONG.");
    report_textf(out, "Every element of every stage of back end %s was computed again in double precision. ", d->a);
    fprintf(out,
            "A bar is the largest error of a stage, relative to the bound that is derived for it.</p>\n<figure>\n");
    draw_bars(out, d);
    table_of_stages(out, d);
    fprintf(out, "</figure></section>\n");
}
