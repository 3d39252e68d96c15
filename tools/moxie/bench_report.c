/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_report.c - what `moxie bench` found, as a table or as JSON with one row a batch size.
 */
#include "bench.h"

#include <math.h>
#include <string.h>

static const char *const backends[] = { "auto", "ref", "cpu", "cuda" };

void bench_titles(const bench *b, char *title, char *subtitle, size_t size)
{
    snprintf(title, size, "%s  %s", b->args->preset ? b->args->preset : b->args->layer.dir, b->format);
    snprintf(subtitle, size, "%s; %s, %s, %d %s, %s, routing %s", b->device.name, backends[b->args->layer.backend],
             b->device.isa, b->device.workers, b->backend->units,
             b->args->layer.mode == MOXIE_MODE_THROUGHPUT ? "throughput" : "invariant", b->routing.name);
}

static const char *note_of(const bench *b, const bench_line *line, char *buffer, size_t size)
{
    size_t used = 0;
    buffer[0] = '\0';
    if (!isfinite(line->output_rms))
        used += (size_t)snprintf(buffer, size, "the output is not finite: no time of such a run counts; ");
    if (line->cached > 0.02 && used < size)
        used += (size_t)snprintf(buffer + used, size - used,
                                 "up to %.0f %% of the weights may have come from the caches, %d %s held in memory; ",
                                 100 * line->cached, b->model.copies, b->model.copies == 1 ? "copy is" : "copies are");
    if (10 * line->preempted > line->repeats && used < size)
        used += (size_t)snprintf(buffer + used, size - used, "other work took a processor away in %d of %d runs; ",
                                 line->preempted, line->repeats);
    if (used >= 2 && used < size)
        buffer[used - 2] = '\0';
    return buffer;
}

static void print_head(const bench *b)
{
    char title[256], subtitle[256], bytes[16];
    const moxie_layer_config *c = &b->model.config;
    const moxie_limits *l = &b->limits.found;
    bench_titles(b, title, subtitle, sizeof title);
    printf("%s\n%s\n", title, subtitle);
    printf("%lld experts, top-%lld, hidden %lld, intermediate %lld; %s of weights", (long long)c->experts,
           (long long)c->top_k, (long long)c->hidden, (long long)c->intermediate,
           cli_bytes(bytes, (uint64_t)c->experts * b->model.expert_bytes + b->model.shared_bytes));
    printf(", %d cop%s in turn, prepared in %.1f s\n", b->model.copies, b->model.copies == 1 ? "y" : "ies",
           b->model.prepare_seconds);
    printf("plan    %s\n", b->plan);
    printf("limits  %.1f GB/s from memory, %.4g TFLOP/s bf16 (%s)", l->read_gb_s, l->bf16_tflop_s, l->bf16_how);
    if (l->fp8_tflop_s > 0)
        printf(", %.4g FP8 (%s)", l->fp8_tflop_s, l->fp8_how);
    printf(", %s\n\n", b->limits.from_file ? "from the file" : "measured");
}

static void print_lines(const bench *b)
{
    static const char *const headings[] = { ">tokens", ">median ms", ">min",      ">max", ">runs",   ">experts",
                                            ">GB/s",   ">GFLOP/s",   ">floor ms", "by",   ">x floor" };
    cli_table table;
    cli_table_begin(&table, 11, headings);
    for (int i = 0; i < b->n_lines; i++) {
        const bench_line *l = &b->lines[i];
        cli_table_add(&table, "%lld", (long long)l->tokens);
        cli_table_add(&table, "%.3f", l->median * 1e3);
        cli_table_add(&table, "%.3f", l->least * 1e3);
        cli_table_add(&table, "%.3f", l->most * 1e3);
        cli_table_add(&table, "%d", l->repeats);
        cli_table_add(&table, "%.1f", l->touched);
        cli_table_add(&table, "%.2f", l->bytes / l->median * 1e-9);
        cli_table_add(&table, "%.1f", l->flop / l->median * 1e-9);
        cli_table_add(&table, "%.3f", l->floor * 1e3);
        cli_table_add(&table, "%s", l->by);
        cli_table_add(&table, "%.2f", l->ratio);
    }
    cli_table_print(&table);
    cli_table_free(&table);
}

void bench_print_text(const bench *b)
{
    char note[256];
    print_head(b);
    print_lines(b);
    for (int i = 0; i < b->n_lines; i++)
        if (*note_of(b, &b->lines[i], note, sizeof note))
            printf("T = %lld: %s\n", (long long)b->lines[i].tokens, note);
    if (b->noise > 0.1)
        printf("the machine is not quiet: reading memory changed by %.0f %% while a line was timed\n", 100 * b->noise);
    if (b->limits.found.disturbed > 0)
        printf("the machine is busy: %d limits were never measured without other work beside them\n",
               b->limits.found.disturbed);
    if (b->args->plot)
        printf("drawn in %s\n", b->args->plot);
}

static json_t *json_line(const bench *b, const bench_line *l)
{
    char note[256];
    json_t *row = json_pack("{s:s?, s:s, s:s, s:s, s:i, s:s, s:I, s:s, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:s}",
                            "preset", b->args->preset, "scheme", b->format, "backend", backends[b->args->layer.backend],
                            "isa", b->device.isa, "threads", b->executor->workers, "mode",
                            b->args->layer.mode == MOXIE_MODE_THROUGHPUT ? "throughput" : "invariant", "tokens",
                            (json_int_t)l->tokens, "routing", b->routing.name, "median_ms", l->median * 1e3, "min_ms",
                            l->least * 1e3, "max_ms", l->most * 1e3, "floor_ms", l->floor * 1e3, "ratio", l->ratio,
                            "weight_bytes", (json_int_t)l->bytes, "flop", (json_int_t)l->flop, "plan", b->plan);
    json_object_update_new(row, json_pack("{s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:s, s:f, s:f, s:f, s:o, s:o, s:s}",
                                          "repeats", l->repeats, "runs_at_once", l->at_once, "preempted_runs",
                                          l->preempted, "experts_touched", l->touched, "fullest_expert", l->fullest,
                                          "gb_s", l->bytes / l->median * 1e-9, "gflop_s", l->flop / l->median * 1e-9,
                                          "floor_by", l->by, "read_gb_s", l->read_gb_s, "bf16_tflop_s", l->bf16_tflop_s,
                                          "fp8_tflop_s", l->fp8_tflop_s, "output_rms",
                                          isfinite(l->output_rms) ? json_real(l->output_rms) : json_null(),
                                          "reuse_bytes", l->reused ? json_integer((json_int_t)l->reuse) : json_null(),
                                          "note", note_of(b, l, note, sizeof note)));
    return row;
}

void bench_print_json(const bench *b)
{
    const moxie_layer_config *c = &b->model.config;
    json_t *object = cli_json_begin("bench"), *rows = json_array();
    for (int i = 0; i < b->n_lines; i++)
        json_array_append_new(rows, json_line(b, &b->lines[i]));
    json_object_update_new(
        object, json_pack("{s:s, s:s, s:s?, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:f, s:I, s:f, s:b, s:s?}", "cpu",
                          b->machine.cpu, "device", b->device.name, "dir", b->args->layer.dir, "seed",
                          (json_int_t)b->args->seed, "experts", (json_int_t)c->experts, "top_k", (json_int_t)c->top_k,
                          "hidden", (json_int_t)c->hidden, "intermediate", (json_int_t)c->intermediate, "record_bytes",
                          (json_int_t)b->model.record_bytes, "copies", b->model.copies, "prepare_s",
                          b->model.prepare_seconds, "peak_memory_bytes", (json_int_t)cli_peak_memory(), "noise",
                          b->noise, "limits_from_file", b->limits.from_file, "plot", b->args->plot));
    json_object_set_new(object, "limits", cli_limits_json(&b->limits.found));
    json_object_set_new(object, "rows", rows);
    json_object_set_new(object, "steps", cli_steps_json(b->model.copy[0].plan));
    cli_json_end(object);
}
