/* SPDX-License-Identifier: Apache-2.0
 *
 * report_page.c - the page around the sections: head, what was measured, sections, foot. It stands alone: no script, no
 * font, no picture comes from elsewhere.
 *
 *     header: title, device      figures: experts, sizes, worst ratio
 *     times | roofline           one below the other on narrow screens
 *     routing | oracle
 *     kernels
 */
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ------------------------------------------------------------------------------------------- */

void report_text(FILE *out, const char *text)
{
    for (const char *c = cli_printable(text); *c; c++)
        switch (*c) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '"': fputs("&quot;", out); break;
        case '\'': fputs("&#39;", out); break;
        default: putc(*c, out);
        }
}

static void put_formatted(FILE *out, const char *format, va_list arguments)
{
    char *text = cli_vformat(format, arguments);
    report_text(out, text);
    free(text);
}

void report_textf(FILE *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    put_formatted(out, format, arguments);
    va_end(arguments);
}

const char *report_number(char *buffer, double value)
{
    const double size = fabs(value);
    if (size >= 100 && size < 1e6)
        snprintf(buffer, 32, "%.0f", value);
    else
        snprintf(buffer, 32, "%.3g", value);
    return buffer;
}

/* ---- tables ----------------------------------------------------------------------------------------- */

void report_table_begin(FILE *out, const char *caption, const char *const *headings)
{
    fprintf(out, "<details><summary>");
    report_text(out, caption);
    fprintf(out, "</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"");
    report_text(out, caption);
    fprintf(out, "\"><table><thead><tr>");
    for (int i = 0; headings[i]; i++) {
        const bool number = headings[i][0] == '>';
        fprintf(out, "<th scope=\"col\"%s>", number ? " class=\"n\"" : "");
        report_text(out, headings[i] + number);
        fprintf(out, "</th>");
    }
    fprintf(out, "</tr></thead><tbody>");
}

void report_cell(FILE *out, bool first, bool number, const char *format, ...)
{
    va_list arguments;
    fprintf(out, "%s<td%s>", first ? "\n<tr>" : "", number ? " class=\"n\"" : "");
    va_start(arguments, format);
    put_formatted(out, format, arguments);
    va_end(arguments);
    fprintf(out, "</td>"); /* HTML closes a row where the next begins */
}

void report_table_end(FILE *out)
{
    fprintf(out, "\n</tbody></table></div></details>\n");
}

/* ---- head and foot ---------------------------------------------------------------------------------- */

static void figure(FILE *out, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void figure(FILE *out, const char *name, const char *format, ...)
{
    va_list arguments;
    fprintf(out, "<div><dt>");
    report_text(out, name);
    fprintf(out, "</dt><dd>");
    va_start(arguments, format);
    put_formatted(out, format, arguments);
    va_end(arguments);
    fprintf(out, "</dd></div>\n");
}

static double worst_ratio(const report_bench *b)
{
    double worst = 0;
    for (int i = 0; i < b->n_rows; i++)
        worst = fmax(worst, b->rows[i].ratio);
    return worst;
}

/* Sizes from whichever part has them. */
static void put_figures(FILE *out, const report *r)
{
    const report_bench *b = &r->bench;
    const report_explain *e = &r->explain;
    const bool timed = r->json[REPORT_BENCH] != NULL, sized = timed || r->json[REPORT_EXPLAIN];
    fprintf(out, "<dl class=\"figures\">\n");
    if (sized) {
        figure(out, "Experts", "%lld", (long long)(timed ? b->experts : e->experts));
        figure(out, "Chosen per token", "%lld", (long long)(timed ? b->top_k : e->top_k));
        figure(out, "Hidden \xc3\x97 intermediate", "%lld \xc3\x97 %lld", (long long)(timed ? b->hidden : e->hidden),
               (long long)(timed ? b->intermediate : e->intermediate));
    }
    if (timed) {
        figure(out, "Number format", "%s", b->scheme);
        figure(out, "Farthest from the floor", "%.2f\xc3\x97", worst_ratio(b));
    }
    if (r->json[REPORT_DIFF])
        figure(out, "Against the oracle", "%s", r->diff.right ? "right" : "WRONG");
    fprintf(out, "</dl>\n");
}

static void put_head(FILE *out, const report *r)
{
    const report_bench *b = &r->bench;
    fprintf(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                 "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                 "<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
    report_textf(out, "%s - moxie report", r->title);
    fprintf(out, "</title>\n<style>%s</style>\n</head>\n<body>\n<header>\n<p class=\"kind\">moxie report</p>\n<h1>",
            report_style);
    report_text(out, r->title);
    fprintf(out, "</h1>\n");
    if (r->json[REPORT_BENCH]) {
        fprintf(out, "<p class=\"where\">");
        report_textf(out, "%s; %s, %lld thread%s, %s mode, routing %s", b->device, b->isa, (long long)b->threads,
                     b->threads == 1 ? "" : "s", b->mode, b->routing);
        fprintf(out, "</p>\n");
        if (b->warning[0]) {
            fprintf(out, "<p class=\"warning\" role=\"note\">");
            report_textf(out, "The figures are rough: %s.", b->warning);
            fprintf(out, "</p>\n");
        }
    }
    put_figures(out, r);
    fprintf(out, "</header>\n<main>\n");
}

char *report_page(const report *r, size_t *bytes)
{
    char *page = NULL;
    FILE *out = open_memstream(&page, bytes);
    if (!out)
        return NULL;
    put_head(out, r);
    if (r->json[REPORT_BENCH]) {
        report_times(out, &r->bench);
        report_roofline(out, &r->bench);
    }
    if (r->json[REPORT_RUN])
        report_routing_map(out, &r->routing);
    if (r->json[REPORT_DIFF])
        report_oracle(out, &r->diff);
    if (r->json[REPORT_EXPLAIN])
        report_kernels(out, &r->explain);
    fprintf(out, "</main>\n<footer><p>Written by moxie ");
    report_text(out, moxie_version());
    fprintf(out, ". This page needs no network.</p></footer>\n</body>\n</html>\n");
    const bool whole = !ferror(out);
    if (fclose(out) == 0 && whole)
        return page;
    free(page);
    return NULL;
}
