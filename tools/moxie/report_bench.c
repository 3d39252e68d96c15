/* SPDX-License-Identifier: Apache-2.0
 *
 * report_bench.c - a benchmark as two pictures, each with its table: times against the floor by batch size, and speeds
 * under the machine's roof.
 */
#include "report.h"

#include <math.h>
#include <stdlib.h>

static double at_floor(const report_row *row)
{
    return row->floor_ms >= 1e-9 ? row->floor_ms : row->median_ms;
}

/* ---- times ------------------------------------------------------------------------------------------ */

/* The axes hold every run and every floor, with room for labels. */
static void range_of_times(report_chart *chart, const report_bench *b)
{
    chart->x0 = (double)b->rows[0].tokens / 1.7;
    chart->x1 = (double)b->rows[b->n_rows - 1].tokens * 1.7;
    chart->y0 = INFINITY;
    chart->y1 = 0;
    for (int i = 0; i < b->n_rows; i++) {
        chart->y0 = fmin(chart->y0, fmin(at_floor(&b->rows[i]), b->rows[i].min_ms));
        chart->y1 = fmax(chart->y1, b->rows[i].max_ms);
    }
    chart->y0 /= 1.8;
    chart->y1 *= 2.2;
}

/* The area that no run can reach: under the floors. */
static void draw_floor(report_chart *chart, const report_bench *b)
{
    const report_box *f = &chart->frame;
    FILE *out = chart->out;
    for (int area = 1; area >= 0; area--) {
        fprintf(out, "<path class=\"%s\" d=\"", area ? "under" : "floor");
        for (int i = 0; i < b->n_rows; i++)
            fprintf(out, "%s%.1f,%.1f ", i ? "L" : "M", report_chart_x(chart, (double)b->rows[i].tokens),
                    report_chart_y(chart, at_floor(&b->rows[i])));
        if (area)
            fprintf(out, "L%.1f,%.1f L%.1f,%.1fZ", report_chart_x(chart, (double)b->rows[b->n_rows - 1].tokens), f->y1,
                    report_chart_x(chart, (double)b->rows[0].tokens), f->y1);
        fprintf(out, "\"/>\n");
    }
}

static void draw_times(report_chart *chart, const report_bench *b)
{
    FILE *out = chart->out;
    char text[96], ms[32], least[32];
    fprintf(out, "<path class=\"median\" d=\"");
    for (int i = 0; i < b->n_rows; i++)
        fprintf(out, "%s%.1f,%.1f ", i ? "L" : "M", report_chart_x(chart, (double)b->rows[i].tokens),
                report_chart_y(chart, b->rows[i].median_ms));
    fprintf(out, "\"/>\n");
    for (int i = 0; i < b->n_rows; i++) {
        const report_row *row = &b->rows[i];
        const double x = report_chart_x(chart, (double)row->tokens), y = report_chart_y(chart, row->median_ms);
        report_chart_line(chart, "whisker", x, report_chart_y(chart, row->min_ms), x,
                          report_chart_y(chart, row->max_ms));
        snprintf(text, sizeof text, "%lld tokens: %s ms, floor %s ms", (long long)row->tokens,
                 report_number(ms, row->median_ms), report_number(least, row->floor_ms));
        report_chart_point(chart, x, y, row->disturbed, text);
    }
    for (int k = 0; k < b->n_rows; k++) { /* where labels have no room for each other, the ends have theirs */
        const report_row *row = &b->rows[k == 0 ? 0 : k == 1 ? b->n_rows - 1 : k - 1];
        snprintf(text, sizeof text, "%.2f\xc3\x97", row->ratio);
        report_chart_label(chart, report_chart_x(chart, (double)row->tokens), report_chart_y(chart, row->median_ms),
                           text);
    }
}

static void table_of_times(FILE *out, const report_bench *b)
{
    static const char *const headings[] = { ">Tokens",      ">Median ms", ">Fastest", ">Slowest", ">Floor ms",
                                            ">Times floor", "Bound by",   "Remark",   NULL };
    char n[32];
    report_table_begin(out, "Times and floors", headings);
    for (int i = 0; i < b->n_rows; i++) {
        const report_row *row = &b->rows[i];
        report_cell(out, true, true, "%lld", (long long)row->tokens);
        report_cell(out, false, true, "%s", report_number(n, row->median_ms));
        report_cell(out, false, true, "%s", report_number(n, row->min_ms));
        report_cell(out, false, true, "%s", report_number(n, row->max_ms));
        report_cell(out, false, true, "%s", report_number(n, row->floor_ms));
        report_cell(out, false, true, "%.2f", row->ratio);
        report_cell(out, false, false, "%s", row->floor_by);
        report_cell(out, false, false, "%s", row->note);
    }
    report_table_end(out);
}

static bool any_disturbed(const report_bench *b)
{
    bool any = false;
    for (int i = 0; i < b->n_rows; i++)
        any = any || b->rows[i].disturbed;
    return any;
}

void report_times(FILE *out, const report_bench *b)
{
    report_chart chart;
    char text[64];
    range_of_times(&chart, b);
    fprintf(out,
            "<section class=\"half\"><h2>Time against the floor</h2>\n<p>A point is the median of all runs; its "
            "line goes from the fastest to the slowest. Nothing can be in the shaded area: the floor is the "
            "least time that this machine needs to read the weights, or to multiply. Numbers say how many times "
            "the floor a batch takes.%s</p>\n<figure class=\"low\">\n",
            any_disturbed(b) ? " Hollow points: other work disturbed the runs." : "");
    report_chart_begin(&chart, out, "times", "Time of one layer by batch size, beside the floor",
                       "The table below the picture has the same numbers.");
    report_chart_axis_y(&chart, "milliseconds", report_number);
    for (int i = 0; i < b->n_rows; i++) {
        snprintf(text, sizeof text, "%lld", (long long)b->rows[i].tokens);
        report_chart_tick_x(&chart, (double)b->rows[i].tokens, text);
    }
    report_chart_x_title(&chart, "tokens in a batch");
    chart.above = true; /* the line of floors lies below */
    draw_floor(&chart, b);
    draw_times(&chart, b);
    report_chart_end(&chart);
    table_of_times(out, b);
    fprintf(out, "</figure></section>\n");
}

/* ---- roofline --------------------------------------------------------------------------------------- */

static double intensity(const report_row *row)
{
    return row->flop / row->weight_bytes;
}

static double speed(const report_row *row)
{
    return row->flop / (row->median_ms * 1e-3);
}

static double roof_at(const report_bench *b, double x)
{
    return fmin(x * b->read_gb_s * 1e9, b->tflop_s * 1e12);
}

/* A layer whose batch reads or multiplies nothing has no place here. */
static bool has_place(const report_row *row)
{
    return row->flop >= 1 && row->weight_bytes >= 1;
}

static void range_of_roof(report_chart *chart, const report_bench *b)
{
    const double ridge = b->tflop_s * 1e3 / b->read_gb_s;
    chart->x0 = chart->x1 = ridge;
    chart->y0 = chart->y1 = b->tflop_s * 1e12;
    for (int i = 0; i < b->n_rows; i++) {
        if (!has_place(&b->rows[i]))
            continue;
        chart->x0 = fmin(chart->x0, intensity(&b->rows[i]));
        chart->x1 = fmax(chart->x1, intensity(&b->rows[i]));
        chart->y0 = fmin(chart->y0, speed(&b->rows[i]));
        chart->y1 = fmax(chart->y1, speed(&b->rows[i]));
    }
    chart->x0 = fmin(chart->x0 / 3, ridge / 16); /* room for the words along the slope */
    chart->x1 *= 3;
    chart->y0 = fmin(chart->y0 / 1.8, roof_at(b, chart->x0));
    chart->y1 *= 2.4;
}

static void draw_roof(report_chart *chart, const report_bench *b)
{
    const double ridge = b->tflop_s * 1e3 / b->read_gb_s;
    const double left = report_chart_y(chart, roof_at(b, chart->x0)), top = report_chart_y(chart, b->tflop_s * 1e12);
    const report_box *f = &chart->frame;
    fprintf(chart->out, "<path class=\"beneath\" d=\"M%.1f,%.1f L%.1f,%.1f L%.1f,%.1f L%.1f,%.1f L%.1f,%.1fZ\"/>\n",
            f->x0, f->y1, f->x0, left, report_chart_x(chart, ridge), top, f->x1, top, f->x1, f->y1);
    fprintf(chart->out, "<path class=\"roof\" d=\"M%.1f,%.1f L%.1f,%.1f L%.1f,%.1f\"/>\n", f->x0, left,
            report_chart_x(chart, ridge), top, f->x1, top);
}

/* What the two limits are, along the roof: the words of memory on the lower half of the slope. */
static void label_roof(report_chart *chart, const report_bench *b)
{
    const report_box *f = &chart->frame;
    const double ridge = report_chart_x(chart, b->tflop_s * 1e3 / b->read_gb_s);
    const double left = report_chart_y(chart, roof_at(b, chart->x0)), top = report_chart_y(chart, b->tflop_s * 1e12);
    const double angle = atan2(left - top, ridge - f->x0), along = 75; /* pixels from the middle to an end */
    const double x = f->x0 + (ridge - f->x0) * 0.45, y = left + (top - left) * 0.45;
    char text[64];
    fprintf(chart->out, "<text class=\"limit end\" x=\"%.1f\" y=\"%.1f\">", f->x1 - 4, top - 9);
    report_textf(chart->out, "%s %sFLOP/s", b->roof, report_si(text, b->tflop_s * 1e12));
    fprintf(chart->out, "</text>\n<text class=\"limit mid\" transform=\"translate(%.1f %.1f) rotate(%.1f)\" y=\"-12\">",
            x, y, -angle * 180 / 3.14159265358979);
    report_textf(chart->out, "memory %sB/s", report_si(text, b->read_gb_s * 1e9));
    fprintf(chart->out, "</text>\n");
    report_chart_take(chart, (report_box) { f->x1 - 160, top - 24, f->x1, top - 4 });
    for (double d = -along; d <= along; d += 15) {
        const double cx = x + d * cos(angle) - 16 * sin(angle), cy = y - d * sin(angle) - 16 * cos(angle);
        report_chart_take(chart, (report_box) { cx - 9, cy - 9, cx + 9, cy + 9 });
    }
}

static void draw_speeds(report_chart *chart, const report_bench *b)
{
    char text[96], si[32];
    for (int i = 0; i < b->n_rows; i++) {
        const report_row *row = &b->rows[i];
        if (!has_place(row))
            continue;
        const double x = report_chart_x(chart, intensity(row)), y = report_chart_y(chart, speed(row));
        const double up = report_chart_y(chart, row->flop / (at_floor(row) * 1e-3));
        report_chart_line(chart, "lost", x, up, x, y);
        report_chart_line(chart, "mark", x - 5, up, x + 5, up);
        snprintf(text, sizeof text, "%lld tokens: %sFLOP/s at %.3g FLOP per byte", (long long)row->tokens,
                 report_si(si, speed(row)), intensity(row));
        report_chart_point(chart, x, y, row->disturbed, text);
    }
    for (int i = 0; i < b->n_rows; i++) {
        snprintf(text, sizeof text, "T=%lld", (long long)b->rows[i].tokens);
        if (has_place(&b->rows[i]))
            report_chart_label(chart, report_chart_x(chart, intensity(&b->rows[i])),
                               report_chart_y(chart, speed(&b->rows[i])), text);
    }
}

static void table_of_speeds(FILE *out, const report_bench *b)
{
    static const char *const headings[] = { ">Tokens", ">FLOP per byte", ">GFLOP/s", ">GFLOP/s at the floor", ">GB/s",
                                            NULL };
    char n[32];
    report_table_begin(out, "Speeds and their limits", headings);
    for (int i = 0; i < b->n_rows; i++) {
        const report_row *row = &b->rows[i];
        report_cell(out, true, true, "%lld", (long long)row->tokens);
        report_cell(out, false, true, "%s", has_place(row) ? report_number(n, intensity(row)) : "-");
        report_cell(out, false, true, "%s", report_number(n, speed(row) * 1e-9));
        report_cell(out, false, true, "%s", report_number(n, row->flop / at_floor(row) * 1e-6));
        report_cell(out, false, true, "%s", report_number(n, row->weight_bytes / row->median_ms * 1e-6));
    }
    report_table_end(out);
}

void report_roofline(FILE *out, const report_bench *b)
{
    report_chart chart;
    range_of_roof(&chart, b);
    fprintf(out,
            "<section class=\"half\"><h2>Roofline</h2>\n<p>The roof is what this machine can do at most: it reads "
            "weights so fast, and multiplies so fast. The more tokens share an expert, the more operations come "
            "with each byte. The dotted line below a batch's own limit is what is lost.</p>\n<figure class=\"low\">\n");
    report_chart_begin(&chart, out, "roof", "Speed of each batch under the machine's limits",
                       "The table below the picture has the same numbers.");
    report_chart_axis_y(&chart, "FLOP/s", report_si);
    report_chart_axis_x(&chart, "operations per byte of weights", report_number);
    draw_roof(&chart, b);
    label_roof(&chart, b);
    draw_speeds(&chart, b);
    report_chart_end(&chart);
    table_of_speeds(out, b);
    fprintf(out, "</figure></section>\n");
}
