/* SPDX-License-Identifier: Apache-2.0
 *
 * run_report.c - what `moxie run` prints: the plan, what the router chose, the size of the output, times; or all of it
 * as JSON.
 */
#include "cmd_run.h"

#include "cli_store.h"

#include <math.h>
#include <string.h>

typedef struct output_stats {
    double rms, largest;
    int64_t not_finite;
} output_stats;

static output_stats measure_output(const cli_layer *layer, const cli_input *input, const run_results *r)
{
    output_stats stats = { 0 };
    const int64_t count = input->tokens * layer->config.hidden;
    const size_t width = layer->config.dtype == MOXIE_F32 ? 4 : 2;
    double squares = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t code = 0;
        memcpy(&code, (const char *)r->output + (size_t)i * width, width);
        const double value = moxie_decode(layer->config.dtype, code);
        if (!isfinite(value)) {
            stats.not_finite++;
            continue;
        }
        squares += value * value;
        stats.largest = fmax(stats.largest, fabs(value));
    }
    stats.rms = count ? sqrt(squares / (double)count) : 0;
    return stats;
}

/* Tokens per expert: how many experts have tokens, and the largest number. */
static void measure_load(const cli_layer *layer, const cli_input *input, const run_results *r, int64_t *visited,
                         int64_t *fullest)
{
    int64_t counts[MOXIE_MAX_EXPERTS] = { 0 };
    for (int64_t i = 0; i < input->tokens * layer->config.top_k; i++)
        if (r->ids[i] >= 0 && r->ids[i] < layer->config.experts)
            counts[r->ids[i]]++;
    *visited = *fullest = 0;
    for (int64_t e = 0; e < layer->config.experts; e++) {
        *visited += counts[e] > 0;
        *fullest = counts[e] > *fullest ? counts[e] : *fullest;
    }
}

void run_print_text(const run_arguments *args, const cli_layer *layer, const cli_input *input, const run_results *r,
                    const cli_ranks *ranks)
{
    const moxie_layer_config *config = &layer->config;
    if (args->preset.name)
        printf("preset %s, %s: ", args->preset.name, preset_format(&args->preset));
    else
        printf("layer %lld: ", (long long)layer->index);
    printf("%lld %s, top-%lld, hidden %lld, intermediate %lld, %s hidden states, %lld %s\n",
           CLI_COUNT(config->experts, "expert"), (long long)config->top_k, (long long)config->hidden,
           (long long)config->intermediate, moxie_dtype_name(config->dtype), CLI_COUNT(input->tokens, "token"));
    if (ranks->ranks > 0)
        printf("%lld %s, --tp %d, experts %s, tokens %s; the plan of rank 0:\n", CLI_COUNT(ranks->ranks, "rank"),
               (int)ranks->placement.tp, cli_printable(ranks->placement.name), cli_tokens_as(ranks->options.tokens_as));
    if (args->adapters.count > 0)
        printf("%lld %s of rank %d or less, for %lld of the tokens\n", CLI_COUNT(args->adapters.count, "adapter"),
               (int)args->layer.max_adapter_rank, (long long)args->adapters.adapted);
    for (int32_t i = 0; i < moxie_plan_step_count(r->plan); i++) {
        const moxie_plan_step *step = moxie_plan_step_at(r->plan, i);
        if (step->chosen)
            printf("  %-12s %-12s %s\n", step->family, step->role, step->kernel);
    }
    printf("routing (first tokens):\n");
    for (int64_t t = 0; t < input->tokens && t < 4; t++) {
        printf("  token %lld:", (long long)t);
        for (int64_t j = 0; j < config->top_k; j++)
            printf(" %d (%.4f)", r->ids[t * config->top_k + j], (double)r->weights[t * config->top_k + j]);
        putchar('\n');
    }
    int64_t visited, fullest;
    measure_load(layer, input, r, &visited, &fullest);
    const output_stats stats = measure_output(layer, input, r);
    char memory[16], peak[16];
    printf("experts visited %lld of %lld, at most %lld %s each\n", (long long)visited, (long long)config->experts,
           CLI_COUNT(fullest, "token"));
    printf("output rms %.6g, largest %.6g, not finite %lld\n", stats.rms, stats.largest, (long long)stats.not_finite);
    printf("prepare %.2f s, run %.2f ms (one run), records %s%s, peak memory %s\n", r->prepare_seconds,
           1e3 * r->seconds, cli_bytes(memory, r->record_bytes), layer->store ? " in files" : "",
           cli_bytes(peak, cli_peak_memory()));
    if (layer->store)
        cli_store_print(layer->store);
}

void run_print_json(const run_arguments *args, const cli_layer *layer, const cli_input *input, const run_results *r,
                    const cli_ranks *ranks)
{
    const moxie_layer_config *config = &layer->config;
    json_t *object = cli_json_begin("run"), *kernels = json_array(), *ids = json_array(), *weights = json_array();
    for (int32_t i = 0; i < moxie_plan_step_count(r->plan); i++) {
        const moxie_plan_step *step = moxie_plan_step_at(r->plan, i);
        if (step->chosen)
            cli_json_append(kernels, cli_pack("{s:s, s:s, s:s}", "family", step->family, "role", step->role, "kernel",
                                              step->kernel));
    }
    for (int64_t i = 0; i < input->tokens * config->top_k; i++) {
        cli_json_append(ids, json_integer(r->ids[i]));
        cli_json_append(weights, json_real((double)r->weights[i]));
    }
    cli_json_set(object, "preset", args->preset.name ? cli_json_string(args->preset.name) : json_null());
    cli_json_set(object, "format", args->preset.name ? cli_json_string(preset_format(&args->preset)) : json_null());
    int64_t visited, fullest;
    measure_load(layer, input, r, &visited, &fullest);
    const output_stats stats = measure_output(layer, input, r);
    cli_json_merge(
        object,
        cli_pack("{s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:I, s:I, s:f, s:f, s:I, s:f, s:f, s:I, s:I}", "layer",
                 (json_int_t)layer->index, "tokens", (json_int_t)input->tokens, "experts", (json_int_t)config->experts,
                 "zero_experts", (json_int_t)config->routing.zero_experts, "top_k", (json_int_t)config->top_k, "dtype",
                 moxie_dtype_name(config->dtype), "plan", kernels, "topk_ids", ids, "topk_weights", weights,
                 "experts_visited", (json_int_t)visited, "rows_of_fullest_expert", (json_int_t)fullest, "output_rms",
                 stats.rms, "output_largest", stats.largest, "output_not_finite", (json_int_t)stats.not_finite,
                 "prepare_s", r->prepare_seconds, "run_ms", 1e3 * r->seconds, "record_bytes",
                 (json_int_t)r->record_bytes, "peak_memory_bytes", (json_int_t)cli_peak_memory()));
    if (args->adapters.count > 0)
        cli_json_merge(object, cli_pack("{s:i, s:i, s:I}", "adapters", (int)args->adapters.count, "adapter_rank",
                                        (int)args->layer.max_adapter_rank, "adapted_tokens",
                                        (json_int_t)args->adapters.adapted));
    if (layer->store)
        cli_json_set(object, "store", cli_store_json(layer->store));
    if (ranks->ranks > 0)
        cli_json_merge(object, cli_pack("{s:i, s:i, s:s, s:s}", "ranks", (int)ranks->ranks, "tp",
                                        (int)ranks->placement.tp, "ep_map", cli_utf8(ranks->placement.name),
                                        "tokens_as", cli_tokens_as(ranks->options.tokens_as)));
    cli_json_end(object);
}
