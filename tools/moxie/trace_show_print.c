/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_show_print.c - what `moxie trace show` found, as a table or as JSON; with --layer a histogram, too.
 */
#include "trace_tool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double balance(const trace_view *view, const trace_layer_view *of)
{
    return of->largest ? (double)of->choices / (double)view->info.experts / (double)of->largest : 1;
}

static void print_layers(const trace_view *view)
{
    static const char *const headings[] = { ">layer", ">used", ">top expert", ">entropy", ">of",  ">balance",
                                            ">again", ">in 1", ">8",          ">64",      ">512", ">4096 tokens" };
    cli_table table;
    cli_table_begin(&table, 12, headings);
    for (int32_t l = 0; l < view->info.layers; l++) {
        const trace_layer_view *of = &view->layers[l];
        cli_table_add(&table, "%d", view->info.layer_numbers[l]);
        cli_table_add(&table, "%lld", (long long)of->used);
        cli_table_add(&table, "%.1f%%", of->choices ? 100 * (double)of->largest / (double)of->choices : 0);
        cli_table_add(&table, "%.2f", of->entropy);
        cli_table_add(&table, "%.2f", log2(view->info.experts));
        cli_table_add(&table, "%.3f", balance(view, of));
        cli_table_add(&table, "%.1f%%", 100 * of->again);
        for (int w = 0; w < TRACE_WINDOWS; w++)
            cli_table_add(&table, of->working_set[w] > 0 ? "%.1f" : "-", of->working_set[w]);
    }
    cli_table_print(&table);
    cli_table_free(&table);
}

typedef struct ranked {
    int64_t count;
    int32_t expert;
} ranked;

static int by_count(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->count != y->count ? (x->count < y->count ? 1 : -1) : x->expert - y->expert;
}

static void print_histogram(const trace_view *view, int32_t l)
{
    enum { WIDTH = 50 };
    const int32_t experts = view->info.experts;
    ranked *all = cli_alloc((size_t)experts * sizeof *all);
    for (int32_t e = 0; e < experts; e++)
        all[e] = (ranked) { view->counts[(int64_t)l * experts + e], e };
    qsort(all, (size_t)experts, sizeof *all, by_count);
    printf("\nlayer %d, choices of each expert:\n", view->info.layer_numbers[l]);
    for (int32_t i = 0; i < experts; i++) {
        const int bar = all[0].count ? (int)(WIDTH * all[i].count / all[0].count) : 0;
        printf("%5d %9lld  %.*s\n", all[i].expert, (long long)all[i].count, bar,
               "##################################################");
    }
    free(all);
}

void trace_show_text(const trace_arguments *args, const trace_view *view)
{
    const moxie_trace_info *info = &view->info;
    printf("%s: %s%s%lld %s in %lld %s (%lld prefill, %lld decode), %lld %s, %lld %s, top-%d%s%s\n\n",
           cli_printable(args->inputs[0]), info->model[0] ? cli_printable(info->model) : "", info->model[0] ? ": " : "",
           CLI_COUNT(info->tokens, "token"), CLI_COUNT(info->steps, "step"), (long long)view->prefill_steps,
           (long long)view->decode_steps, CLI_COUNT(info->layers, "layer"), CLI_COUNT(info->experts, "expert"),
           info->top_k, info->has_weights ? ", weights" : "", info->has_requests ? ", request ids" : "");
    print_layers(view);
    for (int32_t l = 0; l < info->layers; l++)
        if (info->layer_numbers[l] == args->layer)
            print_histogram(view, l);
}

static json_t *layer_json(const trace_arguments *args, const trace_view *view, int32_t l)
{
    const trace_layer_view *of = &view->layers[l];
    const int32_t experts = view->info.experts;
    json_t *sets = cli_pack("[]"), *object;
    for (int w = 0; w < TRACE_WINDOWS; w++)
        if (of->working_set[w] > 0)
            cli_json_append(
                sets, cli_pack("{s:I, s:f}", "tokens", (json_int_t)trace_windows[w], "experts", of->working_set[w]));
    object =
        cli_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:o}", "layer", (int)view->info.layer_numbers[l],
                 "choices", (json_int_t)of->choices, "skipped", (json_int_t)of->skipped, "zero_experts",
                 (json_int_t)of->zero, "used", (json_int_t)of->used, "largest", (json_int_t)of->largest, "entropy_bits",
                 of->entropy, "balance", balance(view, of), "again", of->again, "working_sets", sets);
    if (args->layer == view->info.layer_numbers[l]) {
        json_t *counts = cli_pack("[]");
        for (int32_t e = 0; e < experts; e++)
            cli_json_append(counts, cli_pack("I", (json_int_t)view->counts[(int64_t)l * experts + e]));
        cli_json_set(object, "counts", counts);
    }
    return object;
}

void trace_show_json(const trace_arguments *args, const trace_view *view)
{
    const moxie_trace_info *info = &view->info;
    char fingerprint[24];
    json_t *object = cli_json_begin("trace"), *layers = cli_pack("[]");
    snprintf(fingerprint, sizeof fingerprint, "%016llx", (unsigned long long)info->fingerprint);
    for (int32_t l = 0; l < info->layers; l++)
        cli_json_append(layers, layer_json(args, view, l));
    cli_json_merge(object,
                   cli_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:o}", "action",
                            "show", "trace", cli_utf8(args->inputs[0]), "model", cli_utf8(info->model), "fingerprint",
                            fingerprint, "experts", (int)info->experts, "zero_experts", (int)info->zero_experts,
                            "top_k", (int)info->top_k, "tokens", (json_int_t)info->tokens, "steps",
                            (json_int_t)info->steps, "prefill_steps", (json_int_t)view->prefill_steps, "decode_steps",
                            (json_int_t)view->decode_steps, "prefill_tokens", (json_int_t)view->prefill_tokens,
                            "weights", (int)info->has_weights, "requests", (int)info->has_requests, "layers", layers));
    cli_json_end(object);
}
