/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_scaling.c - the times of a layer by number of threads (--threads 1,2,4).
 *
 *     speedup of T tokens with N threads = median with the first number F of the list / median with N
 *     efficiency                         = speedup / (N / F)
 */
#include "bench.h"

#include <stdlib.h>

void bench_scaling_add(const bench *b, bench_scaling *scaling)
{
    scaling->row = cli_realloc(scaling->row, (size_t)(scaling->count + b->n_lines) * sizeof *scaling->row);
    for (int i = 0; i < b->n_lines; i++) {
        const bench_line *l = &b->lines[i];
        scaling->row[scaling->count++] =
            (bench_scaling_row) { b->executor->workers, l->tokens, l->median, l->min, l->floor, l->ratio, 0, 0 };
    }
    scaling->lines = b->n_lines;
    for (int i = 0; i < scaling->count; i++) {
        bench_scaling_row *row = &scaling->row[i];
        row->speedup = row->median > 0 ? scaling->row[i % scaling->lines].median / row->median : 0;
        row->efficiency = row->speedup * scaling->row[0].threads / row->threads;
    }
}

void bench_scaling_free(bench_scaling *scaling)
{
    free(scaling->row);
    *scaling = (bench_scaling) { 0 };
}

void bench_scaling_print(const bench_scaling *scaling)
{
    static const char *const headings[] = { ">tokens",  ">threads",    ">median ms", ">min",
                                            ">speedup", ">efficiency", ">x floor" };
    cli_table table;
    char ms[32];
    cli_table_begin(&table, 7, headings);
    for (int line = 0; line < scaling->lines; line++)
        for (int i = line; i < scaling->count; i += scaling->lines) {
            const bench_scaling_row *row = &scaling->row[i];
            cli_table_add(&table, "%lld", (long long)row->tokens);
            cli_table_add(&table, "%d", row->threads);
            cli_table_add(&table, "%s", bench_ms(row->median, ms));
            cli_table_add(&table, "%s", bench_ms(row->min, ms));
            cli_table_add(&table, "%.2f", row->speedup);
            cli_table_add(&table, "%.2f", row->efficiency);
            cli_table_add(&table, "%.2f", row->ratio);
        }
    printf("\nby number of threads; the speedup is over %lld %s, the floor that of as many threads\n",
           CLI_COUNT(scaling->row[0].threads, "thread"));
    cli_table_print(&table);
    cli_table_free(&table);
}

json_t *bench_scaling_json(const bench_scaling *scaling)
{
    json_t *rows = json_array();
    for (int i = 0; i < scaling->count; i++) {
        const bench_scaling_row *row = &scaling->row[i];
        cli_json_append(rows, cli_pack("{s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "threads", (int)row->threads,
                                       "tokens", (json_int_t)row->tokens, "median_ms", row->median * 1e3, "min_ms",
                                       row->min * 1e3, "floor_ms", row->floor * 1e3, "ratio", row->ratio, "speedup",
                                       row->speedup, "efficiency", row->efficiency));
    }
    return rows;
}
