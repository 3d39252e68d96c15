/* SPDX-License-Identifier: Apache-2.0
 *
 * report_chart.c - pictures with two logarithmic axes, as inline SVG of 520 by 360 units.
 *
 *     y title
 *     100 |----------------o T = 64      labels take the first free place beside their point:
 *         |        o T = 8               right, left, above, below
 *      10 |----------------
 *         |__1____8____64__  x title
 *
 * Colours are CSS classes, so they follow the page (report_style.c). A narrow viewBox keeps letters readable when a
 * phone scales the picture down.
 */
#include "report.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 520, HEIGHT = 360, LETTER = 8, BOLD = 10, LINE = 17 };

const char *report_si(char *buffer, double value)
{
    static const struct {
        double unit;
        const char *prefix;
    } units[] = { { 1e15, "P" }, { 1e12, "T" }, { 1e9, "G" }, { 1e6, "M" }, { 1e3, "k" } };
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (value >= units[i].unit) {
            snprintf(buffer, 32, "%.4g %s", value / units[i].unit, units[i].prefix);
            return buffer;
        }
    snprintf(buffer, 32, "%.3g ", value);
    return buffer;
}

void report_chart_begin(report_chart *chart, FILE *out, const char *id, const char *title, const char *description)
{
    chart->out = out;
    chart->frame = (report_box) { 62, 28, WIDTH - 14, HEIGHT - 48 };
    chart->n_taken = 0;
    chart->above = false;
    chart->last_tick = 0;
    fprintf(out,
            "<svg class=\"chart\" viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"%s-t %s-d\">\n"
            "<title id=\"%s-t\">",
            WIDTH, HEIGHT, id, id, id);
    report_text(out, title);
    fprintf(out, "</title><desc id=\"%s-d\">", id);
    report_text(out, description);
    fprintf(out, "</desc>\n");
}

double report_chart_x(const report_chart *chart, double value)
{
    const report_box *f = &chart->frame;
    return f->x0 + (f->x1 - f->x0) * log(value / chart->x0) / log(chart->x1 / chart->x0);
}

double report_chart_y(const report_chart *chart, double value)
{
    const report_box *f = &chart->frame;
    return f->y1 - (f->y1 - f->y0) * log(value / chart->y0) / log(chart->y1 / chart->y0);
}

/* The next of 1, 2, 5, 10, ... after `value`; over more than two decades only powers of ten, beyond seven of every
 * second decade. */
static double next_tick(double value, double decades)
{
    const double base = pow(10, floor(log10(value) + 1e-9)), digit = value / base;
    if (decades > 7)
        return base * 100;
    return decades > 2 ? base * 10 : base * (digit < 1.5 ? 2 : digit < 4 ? 5 : 10);
}

static double first_tick(double low, double decades)
{
    double tick = pow(10, floor(log10(low)));
    while (tick < low * (1 - 1e-9))
        tick = next_tick(tick, decades);
    return tick;
}

void report_chart_line(report_chart *chart, const char *class, double x0, double y0, double x1, double y1)
{
    fprintf(chart->out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x0, y0, x1,
            y1);
}

static void put_text(report_chart *chart, const char *class, double x, double y, const char *text)
{
    fprintf(chart->out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    report_text(chart->out, text);
    fprintf(chart->out, "</text>\n");
}

void report_chart_tick_x(report_chart *chart, double value, const char *text)
{
    const double x = report_chart_x(chart, value);
    report_chart_line(chart, "grid", x, chart->frame.y0, x, chart->frame.y1);
    const double half = (double)strlen(text) * LETTER / 2.0;
    if (x - half < chart->last_tick)
        return;
    put_text(chart, "tick mid", x, chart->frame.y1 + 19, text);
    chart->last_tick = x + half + LETTER;
}

void report_chart_x_title(report_chart *chart, const char *title)
{
    put_text(chart, "axis mid", (chart->frame.x0 + chart->frame.x1) / 2, HEIGHT - 8, title);
}

void report_chart_axis_x(report_chart *chart, const char *title, report_label_fn label)
{
    char text[32];
    const double decades = log10(chart->x1 / chart->x0);
    for (double v = first_tick(chart->x0, decades); v <= chart->x1; v = next_tick(v, decades))
        report_chart_tick_x(chart, v, label(text, v));
    report_chart_x_title(chart, title);
}

void report_chart_axis_y(report_chart *chart, const char *title, report_label_fn label)
{
    char text[32];
    const report_box *f = &chart->frame;
    const double decades = log10(chart->y1 / chart->y0);
    for (double v = first_tick(chart->y0, decades); v <= chart->y1; v = next_tick(v, decades)) {
        const double y = report_chart_y(chart, v);
        report_chart_line(chart, "grid", f->x0, y, f->x1, y);
        put_text(chart, "tick end", f->x0 - 7, y + 5, label(text, v));
    }
    put_text(chart, "axis", 4, 16, title);
}

/* ---- points and labels ---------------------------------------------------------------------------- */

void report_chart_take(report_chart *chart, report_box box)
{
    if (chart->n_taken < REPORT_MAX_LABELS)
        chart->taken[chart->n_taken++] = box;
}

static bool is_free(const report_chart *chart, const report_box *box)
{
    const report_box *f = &chart->frame;
    if (box->x0 < f->x0 || box->x1 > f->x1 + 12 || box->y0 < f->y0 - 12 || box->y1 > f->y1)
        return false;
    for (int i = 0; i < chart->n_taken; i++) {
        const report_box *t = &chart->taken[i];
        if (box->x0 < t->x1 && t->x0 < box->x1 && box->y0 < t->y1 && t->y0 < box->y1)
            return false;
    }
    return true;
}

void report_chart_point(report_chart *chart, double x, double y, bool hollow, const char *tooltip)
{
    fprintf(chart->out, "<circle class=\"point%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\"><title>", hollow ? " hollow" : "", x,
            y);
    report_text(chart->out, tooltip);
    fprintf(chart->out, "</title></circle>\n");
    report_chart_take(chart, (report_box) { x - 6, y - 6, x + 6, y + 6 });
}

void report_chart_label(report_chart *chart, double x, double y, const char *text)
{
    const double w = (double)strlen(text) * BOLD, gap = 10;
    const report_box places[] = {
        { x - w / 2, y - gap - LINE, x + w / 2, y - gap },        /* above */
        { x - gap - w, y - gap - LINE, x - gap, y - gap },        /* left above */
        { x + gap, y - LINE / 2.0, x + gap + w, y + LINE / 2.0 }, /* right */
        { x - gap - w, y - LINE / 2.0, x - gap, y + LINE / 2.0 }, /* left */
        { x - w / 2, y + gap, x + w / 2, y + gap + LINE },        /* below */
        { x + gap, y + gap, x + gap + w, y + gap + LINE },        /* right below */
    };
    const size_t n = chart->above ? 2 : sizeof places / sizeof places[0];
    for (size_t i = 0; i < n; i++)
        if (is_free(chart, &places[i])) {
            report_chart_take(chart, places[i]);
            put_text(chart, "label mid", (places[i].x0 + places[i].x1) / 2, places[i].y1 - 4, text);
            return;
        }
}

void report_chart_end(report_chart *chart)
{
    fprintf(chart->out, "</svg>\n");
}
