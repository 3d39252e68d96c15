/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_show.c - `moxie trace show`: what the experts of each layer do.
 *
 *     entropy       sum over experts of -p log2 p, p: the expert's share of the choices; log2 E when all are alike
 *     balance       mean / largest number of choices of an expert (docs/balance.md)
 *     again         how many of a token's experts the token before chose, too: K / E when tokens choose independently
 *     working set   how many different experts N tokens one after another choose, mean
 */
#include "trace_tool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const int64_t trace_windows[TRACE_WINDOWS] = { 1, 8, 64, 512, 4096 };

/* What is known of one layer while its tokens pass. */
typedef struct passing {
    int64_t token;                /* number of the next one */
    int64_t again, before;        /* choices that repeat, and choices that could */
    int64_t *last;                /* [experts] last token that chose it, from 1 on; 0: none */
    int64_t *seen[TRACE_WINDOWS]; /* [experts] number of the last window in which it was chosen */
    int64_t open[TRACE_WINDOWS], sum[TRACE_WINDOWS], windows[TRACE_WINDOWS]; /* open: experts of the current window */
} passing;

static void take_choice(passing *p, trace_layer_view *view, int64_t *counts, int32_t expert)
{
    counts[expert]++;
    view->choices++;
    p->again += p->token > 0 && p->last[expert] == p->token;
    for (int w = 0; w < TRACE_WINDOWS; w++) {
        const int64_t window = p->token / trace_windows[w] + 1;
        p->open[w] += p->seen[w][expert] != window;
        p->seen[w][expert] = window;
    }
}

static void end_token(passing *p, const int32_t *ids, int32_t top_k, int32_t experts)
{
    p->token++;
    for (int32_t j = 0; j < top_k; j++)
        if (ids[j] >= 0 && ids[j] < experts)
            p->last[ids[j]] = p->token;
    for (int w = 0; w < TRACE_WINDOWS; w++)
        if (p->token % trace_windows[w] == 0) {
            p->sum[w] += p->open[w];
            p->windows[w]++;
            p->open[w] = 0;
        }
}

static void take_step(const moxie_trace_step *step, int32_t l, trace_view *view, passing *p)
{
    const int32_t top_k = view->info.top_k, experts = view->info.experts;
    trace_layer_view *of = &view->layers[l];
    for (int64_t t = 0; t < step->tokens; t++) {
        const int32_t *ids = step->ids + t * step->token_stride + l * step->layer_stride;
        for (int32_t j = 0; j < top_k; j++) {
            of->skipped += ids[j] < 0;
            of->zero += ids[j] >= experts;
            if (ids[j] < 0 || ids[j] >= experts)
                continue;
            p->before += p->token > 0;
            take_choice(p, of, view->counts + (int64_t)l * experts, ids[j]);
        }
        end_token(p, ids, top_k, experts);
    }
}

static void finish_layer(const passing *p, const int64_t *counts, int32_t experts, trace_layer_view *view)
{
    for (int32_t e = 0; e < experts; e++) {
        const double share = view->choices ? (double)counts[e] / (double)view->choices : 0;
        view->used += counts[e] > 0;
        view->largest = counts[e] > view->largest ? counts[e] : view->largest;
        view->entropy -= share > 0 ? share * log2(share) : 0;
    }
    view->again = p->before ? (double)p->again / (double)p->before : 0;
    for (int w = 0; w < TRACE_WINDOWS; w++)
        view->working_set[w] = p->windows[w] ? (double)p->sum[w] / (double)p->windows[w] : 0;
}

static moxie_status begin(trace_view *view, passing **passes, moxie_error *error)
{
    const size_t layers = (size_t)view->info.layers, experts = (size_t)view->info.experts;
    view->layers = calloc(layers, sizeof *view->layers);
    view->counts = calloc(layers * experts, sizeof *view->counts);
    *passes = calloc(layers, sizeof **passes);
    bool all = view->layers && view->counts && *passes;
    for (size_t l = 0; all && l < layers; l++) {
        all = ((*passes)[l].last = calloc(experts, sizeof(int64_t))) != NULL;
        for (int w = 0; all && w < TRACE_WINDOWS; w++)
            all = ((*passes)[l].seen[w] = calloc(experts, sizeof(int64_t))) != NULL;
    }
    return all ? MOXIE_OK : cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for %zu layers", layers);
}

static void free_passes(passing *passes, int32_t layers)
{
    for (int32_t l = 0; passes && l < layers; l++) {
        free(passes[l].last);
        for (int w = 0; w < TRACE_WINDOWS; w++)
            free(passes[l].seen[w]);
    }
    free(passes);
}

static moxie_status look(moxie_trace *trace, trace_view *view, moxie_error *error)
{
    passing *passes = NULL;
    moxie_status status = begin(view, &passes, error);
    for (int64_t i = 0; status == MOXIE_OK && i < view->info.steps; i++) {
        moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
        status = moxie_trace_read(trace, i, &step, error);
        if (status != MOXIE_OK)
            break;
        view->prefill_steps += step.phase == MOXIE_TRACE_PREFILL;
        view->decode_steps += step.phase == MOXIE_TRACE_DECODE;
        view->prefill_tokens += step.phase == MOXIE_TRACE_PREFILL ? step.tokens : 0;
        for (int32_t l = 0; l < view->info.layers; l++)
            take_step(&step, l, view, &passes[l]);
    }
    for (int32_t l = 0; status == MOXIE_OK && l < view->info.layers; l++)
        finish_layer(&passes[l], view->counts + (int64_t)l * view->info.experts, view->info.experts, &view->layers[l]);
    free_passes(passes, view->info.layers);
    return status;
}

int trace_show(const trace_arguments *args)
{
    moxie_trace *trace = NULL;
    trace_view view = { .info = MOXIE_TRACE_INFO_INIT };
    moxie_error error = { 0 };
    moxie_status status = moxie_trace_open(args->inputs[0], &trace, &error);
    if (status == MOXIE_OK)
        status = moxie_trace_get_info(trace, &view.info, &error);
    bool found = args->layer == TRACE_NOT_GIVEN;
    for (int32_t l = 0; status == MOXIE_OK && l < view.info.layers; l++)
        found = found || view.info.layer_numbers[l] == args->layer;
    if (status == MOXIE_OK && !found)
        status = cli_error(MOXIE_ERR_MISMATCH, &error, args->inputs[0],
                           "it has no layer %lld: its %d layers are numbered from %d to %d", (long long)args->layer,
                           view.info.layers, view.info.layer_numbers[0], view.info.layer_numbers[view.info.layers - 1]);
    if (status == MOXIE_OK)
        status = look(trace, &view, &error);
    if (status == MOXIE_OK)
        (args->json ? trace_show_json : trace_show_text)(args, &view);
    free(view.layers);
    free(view.counts);
    moxie_trace_close(trace);
    return status == MOXIE_OK ? CLI_OK : cli_fail("trace", args->json, status, &error);
}
