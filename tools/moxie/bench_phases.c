/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_phases.c - where the time of a line's runs went, phase by phase, over the workers (--phases).
 *
 *     clocks before the timed runs | runs | clocks after        moxie_plan_phase_at, summed over the copies' plans
 *
 *     seconds of a worker in a phase a run  ->  median, min, max over the workers
 *
 * The phases of one worker add up to the time of a run. The medians need not: each may be another worker's.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

/* ---- clocks ------------------------------------------------------------------------------------------ */

/* Seconds of all runs so far of worker `worker` in phase `index`; below 0: there is no such worker or phase. */
static double clock_of(const bench_model *model, int32_t worker, int32_t index, const char **name)
{
    moxie_plan_phase phase = MOXIE_PLAN_PHASE_INIT;
    double seconds = 0;
    for (int32_t c = 0; c < model->copies; c++) {
        if (!moxie_plan_phase_at(model->copy[c].plan, worker, index, &phase))
            return -1;
        seconds += phase.seconds;
    }
    *name = phase.name;
    return seconds;
}

void bench_phases_begin(const bench_model *model, bench_phases *phases)
{
    const char *name;
    *phases = (bench_phases) { 0 };
    while (clock_of(model, phases->workers, 0, &name) >= 0)
        phases->workers++;
    while (phases->count < BENCH_MAX_PHASES && clock_of(model, 0, phases->count, &name) >= 0)
        phases->phase[phases->count++].name = name;
    phases->before = cli_realloc(NULL, (size_t)phases->workers * BENCH_MAX_PHASES * sizeof *phases->before);
    for (int32_t w = 0; w < phases->workers; w++)
        for (int32_t i = 0; i < phases->count; i++)
            phases->before[w * BENCH_MAX_PHASES + i] = clock_of(model, w, i, &name);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_phases_end(const bench_model *model, double runs, bench_phases *phases)
{
    const int32_t n = phases->workers;
    double *seconds = cli_realloc(NULL, (size_t)n * sizeof *seconds);
    for (int32_t i = 0; i < phases->count; i++) {
        bench_phase *phase = &phases->phase[i];
        for (int32_t w = 0; w < n; w++)
            seconds[w] = (clock_of(model, w, i, &phase->name) - phases->before[w * BENCH_MAX_PHASES + i]) /
                         (runs > 0 ? runs : 1);
        qsort(seconds, (size_t)n, sizeof *seconds, by_value);
        phase->median = (seconds[(n - 1) / 2] + seconds[n / 2]) / 2;
        phase->min = seconds[0];
        phase->max = seconds[n - 1];
    }
    free(seconds);
    free(phases->before);
    phases->before = NULL;
}

/* ---- output ------------------------------------------------------------------------------------------ */

static void print_line(cli_table *table, const bench_line *line)
{
    char ms[32];
    double all = 0;
    for (int32_t i = 0; i < line->phases.count; i++)
        all += line->phases.phase[i].median;
    for (int32_t i = 0; i < line->phases.count; i++) {
        const bench_phase *phase = &line->phases.phase[i];
        if (phase->max <= 0)
            continue;
        cli_table_add(table, "%lld", (long long)line->tokens);
        cli_table_add(table, "%s", phase->name);
        cli_table_add(table, "%s", bench_ms(phase->median, ms));
        cli_table_add(table, "%s", bench_ms(phase->min, ms));
        cli_table_add(table, "%s", bench_ms(phase->max, ms));
        cli_table_add(table, "%.1f", all > 0 ? 100 * phase->median / all : 0);
    }
}

void bench_print_phases(const bench *b)
{
    static const char *const headings[] = { ">tokens", "phase", ">median ms", ">min", ">max", ">%" };
    cli_table table;
    cli_table_begin(&table, 6, headings);
    for (int i = 0; i < b->n_lines; i++)
        print_line(&table, &b->lines[i]);
    printf("\nphases of a run: milliseconds of a worker, over %lld %s; of fused experts w13 has the activation\n",
           CLI_COUNT(b->lines[0].phases.workers, "worker"));
    cli_table_print(&table);
    cli_table_free(&table);
}

json_t *bench_phases_json(const bench_phases *phases)
{
    json_t *object = json_object();
    for (int32_t i = 0; i < phases->count; i++) {
        const bench_phase *phase = &phases->phase[i];
        cli_json_set(object, phase->name,
                     cli_pack("{s:f, s:f, s:f}", "median", phase->median * 1e3, "min", phase->min * 1e3, "max",
                              phase->max * 1e3));
    }
    return object;
}
