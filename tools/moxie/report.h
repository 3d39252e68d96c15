/* SPDX-License-Identifier: Apache-2.0
 *
 * report.h - the parts of `moxie report`: JSON of other commands in, one HTML page out.
 *
 *     bench, explain, run, diff: their JSON, from files or from the commands themselves (report_collect.c)
 *         -> plain structs, every value checked (report_read.c)
 *         -> sections: times, roofline (report_bench.c), routing, kernels, oracle (report_layer.c)
 *         -> the page (report_page.c, report_style.c), with inline SVG (report_chart.c)
 *
 * Strings point into the JSON, which outlives the structs. Whatever comes from outside is escaped by report_text().
 */
#ifndef REPORT_H
#define REPORT_H

#include "cli.h"

/* ---- what is shown ------------------------------------------------------------------------------ */

/* The commands whose JSON a report reads. */
typedef enum report_part { REPORT_BENCH, REPORT_EXPLAIN, REPORT_RUN, REPORT_DIFF, REPORT_PARTS } report_part;
extern const char *const report_part_names[REPORT_PARTS]; /* "bench", ... */

/* One batch size of a benchmark. */
typedef struct report_row {
    int64_t tokens;
    double median_ms, min_ms, max_ms, floor_ms, ratio, weight_bytes, flop;
    const char *floor_by, *note;
    bool disturbed;
} report_row;

typedef struct report_bench {
    const char *preset, *dir; /* one of them is not NULL */
    const char *scheme, *isa, *mode, *routing, *device, *warning;
    int64_t threads, experts, top_k, hidden, intermediate;
    const char *roof; /* of the operations: "bf16" or "fp8" */
    double read_gb_s, tflop_s;
    report_row *rows; /* by tokens, ascending */
    int n_rows;
} report_bench;

typedef struct report_step {
    const char *family, *role, *kernel, *isa, *layout, *exactness, *reason, *remedy;
    bool chosen;
} report_step;

typedef struct report_explain {
    int64_t experts, top_k, hidden, intermediate;
    const char *dtype;
    report_step *steps;
    int n_steps;
} report_explain;

typedef struct report_routing {
    int64_t tokens, experts, top_k;
    int64_t *counts; /* [experts] choices */
    int64_t choices; /* of these experts */
} report_routing;

/* A stage of a back end's run beside the oracle. */
typedef struct report_stage {
    const char *backend, *stage;
    int64_t elements, beyond;
    double worst_ratio;  /* infinity: a wrong element without a distance */
    double error, bound; /* root mean squares, relative to that of the stage */
} report_stage;

typedef struct report_diff {
    const char *a, *b;
    bool right;
    report_stage *stages;
    int n_stages;
} report_diff;

typedef struct report {
    json_t *json[REPORT_PARTS];     /* NULL: the part is absent */
    const char *file[REPORT_PARTS]; /* for messages: a path, or the command line that printed it */
    report_bench bench;
    report_explain explain;
    report_routing routing;
    report_diff diff;
    const char *title;
} report;

/* ---- reading (report_read.c) -------------------------------------------------------------------- */

/* Fills the structs of all parts whose JSON is there. An error names the file and the value. */
moxie_status report_read(report *r, moxie_error *error);
void report_free(report *r);

/* ---- running the commands (report_collect.c) ---------------------------------------------------- */

enum { REPORT_MAX_ARGUMENTS = 24 };
typedef struct report_command {
    report_part part;
    char *argv[REPORT_MAX_ARGUMENTS]; /* "moxie bench", "DIR", ..., NULL */
    int argc;
} report_command;
/* Appends a copy of an argument. */
void report_command_add(report_command *command, const char *text);
void report_command_free(report_command *command);
/* Runs the command in a child process, and parses what it prints. `code`: its exit code; 1, a check failed, has a
 * result, too. With any other the JSON is the command's error object, or NULL, and the child has printed why. */
moxie_status report_collect(const report_command *command, json_t **out, int *code, moxie_error *error);

/* ---- text (report_page.c) ----------------------------------------------------------------------- */

/* Writes `text` for HTML and SVG: markup escaped, control characters and bytes that are no UTF-8 as \xNN. */
void report_text(FILE *out, const char *text);
/* The same of a printf format. */
void report_textf(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Three significant digits, without an exponent from 0.001 to a million. `buffer` has 32 bytes. Returns it. */
const char *report_number(char *buffer, double value);

/* A table behind a picture. A heading that begins with '>' is of numbers. */
void report_table_begin(FILE *out, const char *caption, const char *const *headings);
void report_cell(FILE *out, bool first, bool number, const char *format, ...) __attribute__((format(printf, 4, 5)));
void report_table_end(FILE *out);

/* The whole page; free() it. NULL: no memory. */
char *report_page(const report *r, size_t *bytes);
extern const char report_style[]; /* report_style.c */

/* ---- pictures (report_chart.c) ------------------------------------------------------------------ */

enum { REPORT_MAX_LABELS = 4 * CLI_MAX_SIZES };
typedef struct report_box {
    double x0, y0, x1, y1; /* pixels, y downward */
} report_box;

/* Two logarithmic axes. */
typedef struct report_chart {
    FILE *out;
    report_box frame;
    double x0, x1, y0, y1;               /* values at the frame's edges */
    report_box taken[REPORT_MAX_LABELS]; /* by labels and points */
    int n_taken;
    bool above;       /* labels stand above their points, or nowhere */
    double last_tick; /* where the last label of the x axis ends */
} report_chart;

/* Opens the picture; `id` is unique in the page, `title` and `description` are for screen readers. */
void report_chart_begin(report_chart *chart, FILE *out, const char *id, const char *title, const char *description);
double report_chart_x(const report_chart *chart, double value);
double report_chart_y(const report_chart *chart, double value);
/* Grid lines and labels at 1, 2, 5, 10, ...; `unit` scales labels: "" or, as in "100 G", 1. */
typedef const char *(*report_label_fn)(char *buffer, double value);
void report_chart_axis_x(report_chart *chart, const char *title, report_label_fn label);
void report_chart_axis_y(report_chart *chart, const char *title, report_label_fn label);
/* A tick of the x axis at one value; its text is left out where it would touch the one before. */
void report_chart_tick_x(report_chart *chart, double value, const char *text);
void report_chart_x_title(report_chart *chart, const char *title);
void report_chart_line(report_chart *chart, const char *class, double x0, double y0, double x1, double y1);
/* Labels keep away from these pixels. */
void report_chart_take(report_chart *chart, report_box box);
/* A point with a tooltip; hollow: disturbed. Labels keep away from it. */
void report_chart_point(report_chart *chart, double x, double y, bool hollow, const char *tooltip);
/* A label beside a point, where nothing is yet; left out when there is no such place. */
void report_chart_label(report_chart *chart, double x, double y, const char *text);
void report_chart_end(report_chart *chart);
/* "10 G"; `buffer` has 32 bytes. */
const char *report_si(char *buffer, double value);

/* ---- sections ----------------------------------------------------------------------------------- */

void report_times(FILE *out, const report_bench *b);
void report_roofline(FILE *out, const report_bench *b);
void report_routing_map(FILE *out, const report_routing *r);
void report_kernels(FILE *out, const report_explain *e);
void report_oracle(FILE *out, const report_diff *d);

#endif
