/* SPDX-License-Identifier: Apache-2.0
 *
 * bits_layers.c - prints checksums of the results of random layers, one line per layer, for scripts/compare-bits:
 *
 *     bits_layers MODE COUNT --backend NAME     0 exact, 1 fast; cpu, ref or cuda
 *
 *     layer 3 whole 91c2.. route 0a17.. experts 5be0.. combine 91c2.. traced 77d1.. # what it is; its kernels
 *
 * Each layer runs whole, in its three parts, and with every stage traced. Unlike the presets, these layers have odd
 * sizes, every dtype and activation, skipped choices, and experts on other ranks. Only the public interface is used, so
 * that this file works with two versions of the library.
 */
#include <inttypes.h>

#include "test_layer.h"

/* FNV-1a. */
static uint64_t add(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ from[i]) * 0x100000001b3;
    return hash;
}

static uint64_t sum(const void *data, size_t bytes)
{
    return add(0xcbf29ce484222325, data, bytes);
}

static void print_sum(const char *name, moxie_status status, uint64_t hash)
{
    if (status == MOXIE_OK)
        printf(" %s %016" PRIx64, name, hash);
    else
        printf(" %s %s", name, moxie_status_name(status));
}

/* Runs the plan in every way on the layer's batch. If the caller passes no choices, the parts use the whole run's. */
static void run_layer(test_layer *layer)
{
    moxie_plan *plan = layer->plan;
    const moxie_layer_config *c = &layer->config;
    moxie_run_args *a = &layer->args;
    const size_t choices = (size_t)(a->tokens * c->top_k), bytes = test_layer_output_bytes(layer);
    const size_t row_bytes = choices * (size_t)c->hidden * sizeof(float);
    a->ids_out = test_layer_own(layer, choices * sizeof *a->ids_out);
    a->weights_out = test_layer_own(layer, choices * sizeof *a->weights_out);
    float *rows = test_layer_own(layer, row_bytes);
    test_report report = { 0 };

    moxie_status status = moxie_plan_run(plan, a, NULL);
    print_sum("whole", status, sum(a->output, bytes));
    status = a->ids == NULL ? moxie_plan_route(plan, a, NULL) : MOXIE_OK;
    const uint64_t ids = sum(a->ids_out, choices * sizeof *a->ids_out);
    print_sum("route", status, add(ids, a->weights_out, choices * sizeof *a->weights_out));
    moxie_run_args chosen = *a;
    chosen.ids = a->ids_out;
    chosen.weights = a->weights_out;
    chosen.ids_out = NULL;
    chosen.weights_out = NULL;
    chosen.logits = NULL;
    status = moxie_plan_experts(plan, &chosen, rows, NULL);
    print_sum("experts", status, sum(rows, row_bytes));
    if (status == MOXIE_OK)
        status = moxie_plan_combine(plan, &chosen, rows, NULL);
    print_sum("combine", status, sum(a->output, bytes));

    status = test_plan_check(plan, &layer->weights, a, &report, NULL);
    uint64_t traced = sum(a->output, bytes);
    for (int s = 0; s < report.n_stages; s++) {
        const moxie_stage_report *r = &report.stages[s];
        char text[128];
        const int length = snprintf(text, sizeof text, "%lld %lld %.9e %.9e", (long long)r->elements,
                                    (long long)r->beyond, r->rms_error, r->rms_want);
        traced = add(traced, text, (size_t)length);
    }
    print_sum("traced", status, traced);
}

static void print_kernels(const moxie_plan *plan)
{
    for (int32_t s = 0; s < moxie_plan_step_count(plan); s++) {
        const moxie_plan_step *step = moxie_plan_step_at(plan, s);
        if (step->chosen && strcmp(step->family, "expert_gemm") == 0)
            printf(" %s", step->kernel);
    }
}

static void one_layer(test_layer *layer, const moxie_options *options)
{
    moxie_error error = { 0 };
    const moxie_status status = test_layer_try(layer, options, &error);
    if (status == MOXIE_OK)
        run_layer(layer);
    else
        printf(" %s", moxie_status_name(status));
    printf(" # %s;", layer->text);
    if (status == MOXIE_OK)
        print_kernels(layer->plan);
    else
        printf(" %s", error.text);
    putchar('\n');
}

int main(int argc, char **argv)
{
    static const test_layer_limits kinds[] = {
        { .tokens = -1 },
        { .tokens = -1, .short_groups = true },
        { .tokens = -1, .largest = 200, .mma = true },
        { .tokens = -1, .largest = 200, .decoded = true },
        { .tokens = -1, .largest = 200, .decoded_acts = true },
        { .tokens = -1, .largest = 200, .to_fp8 = true },
    };
    static const char *const backends[] = { "", "ref", "cpu", "cuda" };
    moxie_options options = MOXIE_OPTIONS_INIT;
    for (int b = MOXIE_BACKEND_REF; b <= MOXIE_BACKEND_CUDA && argc == 5; b++)
        options.backend = strcmp(argv[4], backends[b]) == 0 ? b : options.backend;
    if (options.backend == MOXIE_BACKEND_AUTO) {
        fprintf(stderr, "usage: bits_layers MODE COUNT --backend NAME\n");
        return 2;
    }
    options.mode = atoi(argv[1]);
    for (int i = 0; i < atoi(argv[2]); i++) {
        test_rng rng = { 7000 + (uint64_t)i };
        test_layer layer;
        test_layer_make(&layer, &rng, &kinds[i % 6]);
        options.max_tokens = layer.args.tokens + (layer.args.tokens == 0);
        printf("layer %d", i);
        one_layer(&layer, &options);
        test_layer_free(&layer);
    }
    return 0;
}
