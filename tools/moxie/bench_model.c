/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_model.c - prepares so many copies of one layer that weights come from memory in every run.
 *
 * The runs use c copies in turn. A run reads u of E experts, so a copy serves h = floor(E / u) runs before an expert is
 * read again. Between two reads of one expert lie at least c h - 1 runs, and each reads u other experts:
 *
 *     (c h - 1) u expert_bytes >= 2 cache_bytes    ->  c
 *
 * A run that reads much more than the caches hold needs no copies.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- how many --------------------------------------------------------------------------------------- */

static int32_t copies_for(const bench_model *model, const bench_routing *routing, uint64_t cache_bytes)
{
    const double run = (double)routing->touched * (double)model->expert_bytes;
    if (run <= 0 || run >= 20 * (double)cache_bytes)
        return 1;
    const double lasts = (double)(routing->experts / routing->touched);
    const double copies = (2 * (double)cache_bytes / run + 1) / lasts;
    return copies < BENCH_MAX_COPIES ? (int32_t)copies + (copies > (int32_t)copies) : BENCH_MAX_COPIES;
}

moxie_status bench_model_copies(const bench_model *model, bench_routing *routing, const int64_t *tokens, int n_tokens,
                                uint64_t cache_bytes, uint64_t available, int32_t *copies, moxie_error *error)
{
    const uint64_t never[MOXIE_MAX_EXPERTS] = { 0 };
    *copies = 1;
    for (int i = 0; i < n_tokens; i++) {
        bench_routing_draw(routing, tokens[i], never);
        const int32_t wanted = copies_for(model, routing, cache_bytes);
        *copies = wanted > *copies ? wanted : *copies;
    }
    routing->draws = 0;
    const uint64_t one = (uint64_t)routing->experts * model->expert_bytes + model->shared_bytes;
    if (available == 0 || one == 0)
        return MOXIE_OK;
    if (one > available)
        return cli_error(MOXIE_ERR_MEMORY, error, "",
                         "one copy of the layer takes %.1f GB, and %.1f GB are available: give --experts less than "
                         "%lld, or a machine with more memory",
                         (double)one * 1e-9, (double)available * 1e-9, (long long)routing->experts);
    if (*copies > (int32_t)(available / one))
        *copies = (int32_t)(available / one);
    return MOXIE_OK;
}

/* ---- preparation ------------------------------------------------------------------------------------- */

static moxie_status load_records(bench_model *model, bench_copy *copy, const moxie_options *options, double *seconds,
                                 moxie_error *error)
{
    const double start = cli_seconds();
    const moxie_status status = moxie_layer_open_file(model->file, &model->config, options, &copy->layer, error);
    *seconds = cli_seconds() - start;
    return status;
}

static moxie_status pack_weights(bench_model *model, bench_copy *copy, const moxie_weights *weights,
                                 const moxie_options *options, double *seconds, moxie_error *error)
{
    moxie_status status = moxie_layer_create(&model->config, options, &copy->layer, error);
    const double start = cli_seconds();
    if (status == MOXIE_OK)
        status = moxie_layer_prepare(copy->layer, weights, options, error);
    *seconds = cli_seconds() - start;
    return status;
}

/* Packs the weights of a file whose layout the kernels do not read. */
static moxie_status make_layer(bench_model *model, bench_copy *copy, const moxie_weights *weights,
                               const moxie_options *options, double *seconds, moxie_error *error)
{
    if (model->file) {
        const moxie_status status = load_records(model, copy, options, seconds, error);
        if (status != MOXIE_ERR_UNSUPPORTED)
            return status;
        fprintf(stderr,
                "moxie bench: note: these kernels do not read the expert file's layout: its experts are unpacked and "
                "packed anew\n");
        model->file = NULL;
    }
    return pack_weights(model, copy, weights, options, seconds, error);
}

static moxie_status prepare_copy(bench_model *model, bench_copy *copy, const moxie_weights *weights,
                                 const moxie_options *options, moxie_error *error)
{
    double seconds = 0;
    moxie_status status = make_layer(model, copy, weights, options, &seconds, error);
    if (model->load_seconds == 0 || seconds < model->load_seconds)
        model->load_seconds = seconds;
    if (status == MOXIE_OK)
        status = moxie_plan_create(copy->layer, options, &copy->plan, error);
    if (status != MOXIE_OK)
        return status;
    copy->last_read = calloc((size_t)model->config.experts, sizeof *copy->last_read);
    if (!copy->last_read)
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory to note the reads of %lld %s",
                         CLI_COUNT(model->config.experts, "expert"));
    return MOXIE_OK;
}

/* Whole pages of 2 MB, touched where runs write them: a run must not wait for the system. */
static moxie_status make_workspace(bench_model *model, bool touch, moxie_error *error)
{
    const uint64_t page = UINT64_C(2) << 20;
    model->workspace_bytes = (moxie_plan_workspace_bytes(model->copy[0].plan) + page) / page * page;
    model->workspace = aligned_alloc(page, model->workspace_bytes);
    if (!model->workspace)
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for a workspace of %llu bytes: give --tokens less",
                         (unsigned long long)model->workspace_bytes);
    if (!touch)
        return MOXIE_OK;
#ifdef MADV_HUGEPAGE
    madvise(model->workspace, model->workspace_bytes, MADV_HUGEPAGE);
#endif
    memset(model->workspace, 0, model->workspace_bytes);
    return MOXIE_OK;
}

moxie_status bench_model_prepare(bench_model *model, int32_t copies, const moxie_weights *weights,
                                 const moxie_options *options, bool touch, bool json, moxie_error *error)
{
    cli_progress progress;
    moxie_options with_progress = *options;
    moxie_status status = MOXIE_OK;
    cli_progress_begin(&progress, "prepare");
    progress.terminal = progress.terminal && !json;
    with_progress.progress = cli_progress_experts;
    with_progress.progress_user = &progress;
    const double start = cli_seconds();
    for (int32_t c = 0; c < copies && status == MOXIE_OK; c++) {
        model->copies = c + 1;
        status = prepare_copy(model, &model->copy[c], weights, &with_progress, error);
    }
    cli_progress_end(&progress);
    model->prepare_seconds = cli_seconds() - start;
    if (status != MOXIE_OK)
        return status;
    model->record_bytes = moxie_layer_bytes(model->copy[0].layer);
    return make_workspace(model, touch, error);
}

void bench_model_free(bench_model *model)
{
    for (int32_t c = 0; c < model->copies; c++) {
        moxie_adapters_destroy(model->copy[c].adapters);
        moxie_plan_destroy(model->copy[c].plan);
        moxie_layer_destroy(model->copy[c].layer);
        free(model->copy[c].last_read);
    }
    free(model->adapter_ids);
    free(model->workspace);
    *model = (bench_model) { 0 };
}

/* ---- the plan in short ------------------------------------------------------------------------------- */

static bool reads_experts(const moxie_plan_step *step)
{
    return step->chosen && strcmp(step->role, "router") && strstr(step->role, "gate") == NULL &&
           (step->layout[0] || !strcmp(step->family, "expert_gemm"));
}

const char *bench_plan_name(const moxie_plan *plan, char *buffer, size_t size)
{
    const char *before = "";
    size_t used = 0;
    buffer[0] = '\0';
    for (int32_t i = 0; i < moxie_plan_step_count(plan); i++) {
        const moxie_plan_step *step = moxie_plan_step_at(plan, i);
        if (!reads_experts(step) || !strcmp(step->kernel, before) || used >= size)
            continue;
        used += (size_t)snprintf(buffer + used, size - used, "%s%s", used ? "+" : "", step->kernel);
        before = step->kernel;
    }
    return buffer;
}
