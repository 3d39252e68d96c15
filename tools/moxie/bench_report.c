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
    snprintf(title, size, "%s  %s", cli_printable(b->args->preset.name ? b->args->preset.name : b->args->layer.dir),
             b->format);
    snprintf(subtitle, size, "%s; %s, %s, %d %s, %s, routing %s", b->device.name, backends[b->args->layer.backend],
             b->device.isa, b->backend->on_host ? b->executor->workers : b->device.workers, b->backend->units,
             b->args->layer.mode == MOXIE_MODE_FAST ? "fast" : "exact", cli_printable(b->routing.name));
}

const char *bench_ms(double seconds, char *buffer)
{
    const double ms = seconds * 1e3;
    const int digits = ms > 0 && ms < 0.1 ? 2 - (int)floor(log10(ms)) : 3;
    snprintf(buffer, 32, "%.*f", digits < 12 ? digits : 12, ms);
    return buffer;
}

const char *bench_warning(const bench *b, char *buffer, size_t size)
{
    buffer[0] = '\0';
    if (b->noise > 0.1)
        snprintf(buffer, size, "the machine is not quiet: reading memory changed by %.0f %% while a line was timed",
                 100 * b->noise);
    else if (b->limits.found.disturbed > 0)
        snprintf(buffer, size, "the machine is busy: %d %s never measured without other work running",
                 b->limits.found.disturbed, b->limits.found.disturbed == 1 ? "limit was" : "limits were");
    return buffer;
}

static const char *note_of(const bench *b, const bench_line *line, char *buffer, size_t size)
{
    size_t used = 0;
    char quiet[32];
    buffer[0] = '\0';
    if (!isfinite(line->output_rms))
        used += (size_t)snprintf(buffer, size, "the output is not finite: no time of such a run counts; ");
    if (line->cached > BENCH_FEW_CACHED && used < size)
        used += (size_t)snprintf(buffer + used, size - used,
                                 "up to %.0f %% of the weights may have come from the caches, %d %s held in memory; ",
                                 100 * line->cached, b->model.copies, b->model.copies == 1 ? "copy is" : "copies are");
    if (bench_line_is_disturbed(line) && used < size)
        used += (size_t)snprintf(
            buffer + used, size - used, "other work took a processor away in %d of %lld %s%s%s%s; ", line->preempted,
            CLI_COUNT(line->repeats, "run"), line->quiet_median > 0 ? ", the median of the others is " : "",
            line->quiet_median > 0 ? bench_ms(line->quiet_median, quiet) : "", line->quiet_median > 0 ? " ms" : "");
    if (line->ratio > 0 && line->ratio < 0.995 && used < size)
        used += (size_t)snprintf(buffer + used, size - used, "faster than the floor, which counts %s; ",
                                 line->by == BENCH_BY_MEMORY ? "all weights as read from memory"
                                                             : "operations on narrower types like those on wider ones");
    if (used >= 2 && used < size)
        buffer[used - 2] = '\0';
    return buffer;
}

static uint64_t checkpoint_bytes(const bench *b)
{
    return (uint64_t)b->model.config.experts * b->model.expert_bytes + b->model.shared_bytes;
}

/* Bytes of the checkpoint that become records in a second. */
static double load_rate(const bench *b)
{
    return b->model.load_seconds > 0 ? (double)checkpoint_bytes(b) / b->model.load_seconds * 1e-9 : 0;
}

static void print_head(const bench *b)
{
    char title[256], subtitle[256], bytes[16];
    const moxie_layer_config *c = &b->model.config;
    const moxie_limits *l = &b->limits.found;
    bench_titles(b, title, subtitle, sizeof title);
    printf("%s\n%s\n", title, subtitle);
    printf("%lld %s, top-%lld, hidden %lld, intermediate %lld; %s of weights", CLI_COUNT(c->experts, "expert"),
           (long long)c->top_k, (long long)c->hidden, (long long)c->intermediate,
           cli_bytes(bytes, checkpoint_bytes(b)));
    printf(", %d cop%s in turn, prepared in %.1f s (%.1f GB/s)\n", b->model.copies, b->model.copies == 1 ? "y" : "ies",
           b->model.prepare_seconds, load_rate(b));
    bench_fill_print(&b->fill);
    if (b->args->adapters > 0)
        printf("%d LoRA %s of rank %d, one for each token in turn; the floor does not count them\n", b->args->adapters,
               b->args->adapters == 1 ? "adapter" : "adapters", b->args->adapter_rank);
    printf("plan    %s\n", b->plan);
    printf("limits  %.1f GB/s from memory, %.4g TFLOP/s bf16 (%s)", l->read_gb_s, l->bf16_tflop_s, l->bf16_how);
    if (l->fp8_tflop_s > 0)
        printf(", %.4g FP8 (%s)", l->fp8_tflop_s, l->fp8_how);
    if (b->lines[0].operations == BENCH_BY_INT8)
        printf(", %.4g TOP/s int8 (%s)", l->int8_top_s, l->int8_how);
    printf(", %s\n\n", b->limits.from_file ? "from the file" : "measured");
}

static void print_lines(const bench *b)
{
    static const char *const headings[] = { ">tokens",    ">median ms", ">min",     ">max",      ">runs",
                                            ">disturbed", ">experts",   ">GB/s",    ">GFLOP/s",  ">floor ms",
                                            "by",         ">x floor",   ">host us", ">by kernel" };
    cli_table table;
    char ms[32];
    const bool host_apart = !b->backend->on_host;
    cli_table_begin(&table, host_apart ? 14 : 12, headings);
    for (int i = 0; i < b->n_lines; i++) {
        const bench_line *l = &b->lines[i];
        cli_table_add(&table, "%lld", (long long)l->tokens);
        cli_table_add(&table, "%s", bench_ms(l->median, ms));
        cli_table_add(&table, "%s", bench_ms(l->min, ms));
        cli_table_add(&table, "%s", bench_ms(l->max, ms));
        cli_table_add(&table, "%d", l->repeats);
        cli_table_add(&table, "%d", l->preempted);
        cli_table_add(&table, "%.1f", l->touched);
        cli_table_add(&table, "%.2f", l->bytes / l->median * 1e-9);
        cli_table_add(&table, "%.1f", l->flop / l->median * 1e-9);
        cli_table_add(&table, "%s", bench_ms(l->floor, ms));
        cli_table_add(&table, "%s", bench_limit_of[l->by].name);
        cli_table_add(&table, "%.2f", l->ratio);
        if (host_apart) {
            cli_table_add(&table, "%.1f", l->host_equal * 1e6);
            cli_table_add(&table, "%.1f", l->host_kernels * 1e6);
        }
    }
    cli_table_print(&table);
    cli_table_free(&table);
    if (b->args->phases)
        bench_print_phases(b);
}

static void print_raised(const bench *b)
{
    for (int i = 0; i < b->n_raised; i++) {
        const bench_raised *r = &b->raised[i];
        printf("T = %lld: its runs reached %.4g %s, more than the limit of %.4g: the larger one counts\n",
               (long long)r->tokens, r->now, bench_limit_of[r->by].unit, r->before);
    }
    if (b->n_raised > 0 && b->args->limits_file)
        printf("it is now in %s\n", cli_printable(b->args->limits_file));
}

static json_t *json_raised(const bench *b)
{
    json_t *all = json_array();
    for (int i = 0; i < b->n_raised; i++) {
        const bench_raised *r = &b->raised[i];
        cli_json_append(all, cli_pack("{s:s, s:I, s:f, s:f}", "limit", bench_limit_of[r->by].key, "tokens",
                                      (json_int_t)r->tokens, "from", r->before, "to", r->now));
    }
    return all;
}

void bench_print_text(const bench *b)
{
    char note[400];
    print_head(b);
    print_lines(b);
    for (int i = 0; i < b->n_lines; i++)
        if (*note_of(b, &b->lines[i], note, sizeof note))
            printf("T = %lld: %s\n", (long long)b->lines[i].tokens, note);
    print_raised(b);
    if (b->scaling.count > 0)
        bench_scaling_print(&b->scaling);
    if (*bench_warning(b, note, sizeof note))
        printf("%s\n", note);
    if (b->args->plot)
        printf("drawn in %s\n", cli_printable(b->args->plot));
}

static json_t *json_line(const bench *b, const bench_line *l)
{
    char note[400];
    json_t *row = cli_pack(
        "{s:s?, s:s, s:s, s:s, s:i, s:s, s:I, s:s, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:s}", "preset",
        b->args->preset.name, "scheme", b->format, "backend", backends[b->args->layer.backend], "isa", b->device.isa,
        "threads", b->executor->workers, "mode", b->args->layer.mode == MOXIE_MODE_FAST ? "fast" : "exact", "tokens",
        (json_int_t)l->tokens, "routing", cli_utf8(b->routing.name), "median_ms", l->median * 1e3, "min_ms",
        l->min * 1e3, "max_ms", l->max * 1e3, "floor_ms", l->floor * 1e3, "ratio", l->ratio, "weight_bytes",
        (json_int_t)l->bytes, "flop", (json_int_t)l->flop, "plan", b->plan);
    cli_json_merge(row,
                   cli_pack("{s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:s, s:f, s:f, s:f, s:o, s:o, s:s}", "repeats",
                            l->repeats, "runs_at_once", l->at_once, "preempted_runs", l->preempted, "experts_touched",
                            l->touched, "fullest_expert", l->fullest, "gb_s", l->bytes / l->median * 1e-9, "gflop_s",
                            l->flop / l->median * 1e-9, "floor_by", bench_limit_of[l->by].name, "read_gb_s",
                            l->read_gb_s, "bf16_tflop_s", l->bf16_tflop_s, "fp8_tflop_s", l->fp8_tflop_s, "output_rms",
                            isfinite(l->output_rms) ? json_real(l->output_rms) : json_null(), "reuse_bytes",
                            l->reused ? json_integer((json_int_t)l->reuse) : json_null(), "note",
                            note_of(b, l, note, sizeof note)));
    cli_json_set(row, "int8_top_s", json_real(l->int8_top_s));
    if (!b->backend->on_host)
        cli_json_merge(
            row, cli_pack("{s:f, s:f}", "host_us", l->host_equal * 1e6, "host_by_kernel_us", l->host_kernels * 1e6));
    cli_json_set(row, "adapters", json_integer(b->args->adapters));
    cli_json_set(row, "adapter_rank", json_integer(b->args->adapter_rank));
    if (b->args->phases)
        cli_json_set(row, "phases_ms", bench_phases_json(&l->phases));
    cli_json_set(row, "disturbed", json_boolean(bench_line_is_disturbed(l)));
    cli_json_set(row, "quiet_median_ms", l->quiet_median > 0 ? json_real(l->quiet_median * 1e3) : json_null());
    return row;
}

void bench_print_json(const bench *b)
{
    char warning[200];
    const moxie_layer_config *c = &b->model.config;
    json_t *object = cli_json_begin("bench"), *rows = json_array();
    for (int i = 0; i < b->n_lines; i++)
        cli_json_append(rows, json_line(b, &b->lines[i]));
    cli_json_merge(object,
                   cli_pack("{s:s, s:s, s:s?, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:f, s:f, s:I, s:f, s:b, s:s?}", "cpu",
                            cli_utf8(b->machine.cpu), "device", b->device.name, "dir", cli_utf8(b->args->layer.dir),
                            "seed", (json_int_t)b->args->seed, "experts", (json_int_t)c->experts, "top_k",
                            (json_int_t)c->top_k, "hidden", (json_int_t)c->hidden, "intermediate",
                            (json_int_t)c->intermediate, "record_bytes", (json_int_t)b->model.record_bytes, "copies",
                            b->model.copies, "prepare_s", b->model.prepare_seconds, "load_gb_s", load_rate(b),
                            "peak_memory_bytes", (json_int_t)cli_peak_memory(), "noise", b->noise, "limits_from_file",
                            b->limits.from_file, "plot", cli_utf8(b->args->plot)));
    cli_json_set(object, "limits", cli_limits_json(&b->limits.found));
    cli_json_set(object, "limits_raised", json_raised(b));
    cli_json_set(object, "warning", cli_json_string(bench_warning(b, warning, sizeof warning)));
    cli_json_set(object, "fill", bench_fill_json(&b->fill));
    cli_json_set(object, "rows", rows);
    cli_json_set(object, "scaling", bench_scaling_json(&b->scaling));
    cli_json_set(object, "steps", cli_steps_json(b->model.copy[0].plan));
    cli_json_end(object);
}
