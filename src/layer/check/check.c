/* SPDX-License-Identifier: Apache-2.0
 *
 * check.c - runs a plan with a probe, checks each stage when the probe sees it, and makes the report (check.h).
 *
 *     mox_plan_check -> mox_plan_run -> after_stage -> check_route.c, check_experts.c -> tallies (checker.c) -> report
 */
#include "layer/check/check.h"

#include "base/carver.h"
#include "base/sizes.h"
#include "layer/check/check_experts.h"
#include "layer/check/check_norm.h"
#include "layer/check/check_resident.h"
#include "layer/check/check_route.h"
#include "layer/check/check_store.h"
#include "layer/config/struct_size.h"
#include "layer/run/plan_run.h"
#include "layer/weights/weights_check.h"

static const char *const stage_names[MOX_CHECK_STAGES] = {
    "router norm",   "router",     "topk",          "permute",      "quant13",     "gemm13",
    "glu",           "quant2",     "gemm2",         "expert norm",  "shared gate", "shared quant13",
    "shared gemm13", "shared glu", "shared quant2", "shared gemm2", "combine",     "store",
};

/* ---- the probe ----------------------------------------------------------------------------------- */

static moxie_status check_experts(mox_check_context *c, mox_stage stage, moxie_error *error)
{
    const mox_check_stage first = c->pass->expert_of != NULL ? MOX_CHECK_QUANT13 : MOX_CHECK_SHARED_QUANT13;
    c->projection = stage == MOX_STAGE_QUANT2 || stage == MOX_STAGE_GEMM2 ? MOX_W2 : MOX_W13;
    switch (stage) {
    case MOX_STAGE_GEMM13: return mox_check_gemm(c, first + 1, error);
    case MOX_STAGE_GLU: mox_check_glu(c, first + 2); break;
    case MOX_STAGE_QUANT2: mox_check_quant(c, first + 3); break;
    case MOX_STAGE_GEMM2: return mox_check_gemm(c, first + 4, error);
    default: mox_check_quant(c, first); break;
    }
    return MOXIE_OK;
}

/* The pass with the true number of pairs; the run itself only knows an upper limit. */
static mox_expert_pass count_pairs(const mox_expert_pass *pass)
{
    mox_expert_pass counted = *pass;
    counted.pairs = pass->offsets[pass->slots];
    if (pass->source != NULL || pass->experts->fused)
        counted.rows13 = counted.pairs;
    return counted;
}

static moxie_status after_stage(void *user, const mox_run *run, mox_stage stage, const mox_expert_pass *pass,
                                moxie_error *error)
{
    mox_check_context context = { .checker = user, .run = run };
    mox_expert_pass counted;
    if (pass != NULL) {
        counted = count_pairs(pass);
        context.pass = &counted;
        if (counted.pairs == 0)
            return MOXIE_OK;
    }
    switch (stage) {
    case MOX_STAGE_ROUTER_NORM: mox_check_router_norm(&context); break;
    case MOX_STAGE_EXPERT_NORM: mox_check_expert_norm(&context); break;
    case MOX_STAGE_ROUTER: mox_check_router(&context); break;
    case MOX_STAGE_TOPK: mox_check_topk(&context); break;
    case MOX_STAGE_SHARED_GATE: mox_check_shared_gate(&context); break;
    case MOX_STAGE_COMBINE:
        mox_check_permute(&context);
        mox_check_combine(&context);
        break;
    default: return check_experts(&context, stage, error);
    }
    return MOXIE_OK;
}

/* ---- the call ------------------------------------------------------------------------------------ */

static void lay_out(mox_carver *carver, int64_t workers, uint64_t max_cols, mox_check_worker *out)
{
    for (int64_t w = 0; w < workers; w++) {
        out[w].w = mox_carve(carver, max_cols, sizeof *out->w);
        out[w].minimum = mox_carve(carver, max_cols, sizeof *out->minimum);
        out[w].scales = mox_carve(carver, max_cols, sizeof *out->scales);
        out[w].x = mox_carve(carver, max_cols, sizeof *out->x);
        out[w].norm = mox_carve(carver, max_cols, sizeof *out->norm);
        out[w].codes = mox_carve(carver, max_cols, sizeof *out->codes);
    }
}

static bool allocate_workers(mox_checker *checker)
{
    const moxie_layer_config *c = &checker->plan->config;
    const int64_t workers = checker->executor->workers;
    const int64_t max_cols =
        mox_max_i64(mox_max_i64(c->hidden, c->intermediate), mox_max_i64(c->shared.intermediate, c->router_width));
    checker->workers = mox_calloc((uint64_t)workers, sizeof *checker->workers);
    if (checker->workers == NULL)
        return false;
    mox_carver carver = mox_carver_of(NULL);
    lay_out(&carver, workers, (uint64_t)max_cols, checker->workers);
    checker->scratch = mox_alloc_aligned(carver.used, MOX_CARVE_ALIGN);
    if (checker->scratch == NULL)
        return false;
    carver = mox_carver_of(checker->scratch);
    lay_out(&carver, workers, (uint64_t)max_cols, checker->workers);
    return true;
}

static double root_of_mean(double sum, int64_t elements)
{
    return sqrt(sum / (double)elements);
}

/* The stages that were checked, in their order, and the largest of their worst ratios. */
struct moxie_check_report {
    int32_t count;
    double worst;
    moxie_stage_report stages[MOX_CHECK_STAGES];
};

static void make_report(const mox_checker *checker, moxie_check_report *report)
{
    for (int s = 0; s < MOX_CHECK_STAGES; s++) {
        if (checker->stages[s].elements == 0)
            continue;
        moxie_stage_report *stage = &report->stages[report->count++];
        *stage = checker->stages[s];
        stage->stage = stage_names[s];
        stage->rms_error = root_of_mean(stage->rms_error, stage->elements);
        stage->rms_want = root_of_mean(stage->rms_want, stage->elements);
        stage->rms_bound = root_of_mean(stage->rms_bound, stage->elements);
        report->worst = fmax(report->worst, stage->worst_ratio);
    }
}

static moxie_status follow(mox_checker *checker, const mox_check_resident *followed, moxie_error *error)
{
    const mox_probe probe = { checker, after_stage };
    checker->plan = followed->plan;
    return mox_plan_run(followed->plan, MOX_RUN_WHOLE, &followed->args, NULL, &probe, error);
}

moxie_status mox_plan_check(const moxie_plan *plan, const moxie_weights *weights, const moxie_run_args *args,
                            moxie_check_report **out, moxie_error *error)
{
    moxie_weights read;
    MOX_TRY(mox_struct_read(weights, &read, MOX_STRUCT(moxie_weights), error));
    MOX_FAIL_IF(plan->layer == NULL, MOXIE_ERR_ARGUMENT, error,
                "this plan explains a configuration and has no weights: make one with moxie_plan_create to check");
    MOX_FAIL_IF(plan->ranks != NULL, MOXIE_ERR_UNSUPPORTED, error,
                "the plan is rank %d of %d, and a check follows the stages of one rank alone: check a plan without "
                "options.comm, of a layer with ep_size 1 and tp_size 1; its output has the same bytes",
                (int)plan->ranks->rank, (int)plan->ranks->count);
    MOX_TRY(mox_weights_check(&plan->config, &read, plan->layer->slot_of, plan->layer->has_comm, error));
    mox_checker checker = { .plan = plan, .weights = &read, .executor = &plan->executor };
    mox_check_resident followed = { 0 };
    moxie_check_report *report = mox_calloc(1, sizeof *report);
    moxie_status status = MOXIE_OK;
    if (report == NULL || !allocate_workers(&checker))
        status = mox_fail(MOXIE_ERR_MEMORY, error, "no memory to check with %d workers", (int)plan->executor.workers);
    if (status == MOXIE_OK)
        status = mox_check_resident_open(plan, args, &followed, error);
    if (status == MOXIE_OK)
        status = follow(&checker, &followed, error);
    mox_check_resident_close(&followed);
    checker.plan = plan;
    if (status == MOXIE_OK)
        status = mox_check_store(&checker, args, error);
    if (status == MOXIE_OK) {
        make_report(&checker, report);
        *out = report;
        report = NULL;
    }
    mox_free(report);
    mox_free(checker.workers);
    mox_free(checker.scratch);
    return status;
}

double mox_check_report_worst(const moxie_check_report *report)
{
    return report->worst;
}

int32_t mox_check_report_stage_count(const moxie_check_report *report)
{
    return report->count;
}

const moxie_stage_report *mox_check_report_stage_at(const moxie_check_report *report, int32_t index)
{
    return index >= 0 && index < report->count ? &report->stages[index] : NULL;
}

void mox_check_report_destroy(moxie_check_report *report)
{
    mox_free(report);
}
