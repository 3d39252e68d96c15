/* SPDX-License-Identifier: Apache-2.0
 *
 * checker.c - counts elements that are right or wrong, remembers the worst of each stage, and runs the tasks of a check
 * on all workers (checker.h).
 *
 *     ratio of an element = |got - want| / bound;   more than 1: the element is wrong
 */
#include "layer/check/checker.h"

#include "base/executor.h"

double mox_check_largest(moxie_dtype dtype)
{
    return mox_format_of(dtype)->max;
}

static double ratio_of(double got, double want, double bound, double largest)
{
    if (got == want || (isnan(got) && isnan(want)))
        return 0;
    if (isnan(got) || isnan(want))
        return INFINITY;
    if (isinf(got))
        return fabs(want) + bound >= largest && (got > 0) == (want > 0) ? 0 : INFINITY;
    return isinf(bound) ? 0 : fabs(got - want) / bound;
}

/* Of equal ratios the first place counts as worse, so a report does not depend on how tasks fell to workers. */
static bool is_worse(const moxie_stage_report *a, const moxie_stage_report *b)
{
    if (b->elements == 0 || a->worst_ratio != b->worst_ratio)
        return b->elements == 0 || a->worst_ratio > b->worst_ratio;
    if (a->token != b->token)
        return a->token < b->token;
    return a->slot != b->slot ? a->slot < b->slot : a->column < b->column;
}

/* Copies the fields that describe the worst element; counts and sums stay. */
static void copy_worst(moxie_stage_report *into, const moxie_stage_report *from)
{
    const moxie_stage_report before = *into;
    *into = *from;
    into->elements = before.elements;
    into->beyond = before.beyond;
    into->stage = before.stage;
    into->rms_error = before.rms_error;
    into->rms_want = before.rms_want;
    into->rms_bound = before.rms_bound;
}

/* A tally's root mean squares hold sums of squares; check.c turns them into means for the report. */
static void add_squares(moxie_stage_report *tally, double got, double want, double bound)
{
    if (!isfinite(got) || !isfinite(want) || !isfinite(bound))
        return;
    tally->rms_error += (got - want) * (got - want);
    tally->rms_want += want * want;
    tally->rms_bound += bound * bound;
}

static void count(moxie_stage_report *tally, double ratio, double got, double want, double bound, mox_place place)
{
    const moxie_stage_report one = { .worst_ratio = ratio,
                                     .got = got,
                                     .want = want,
                                     .bound = bound,
                                     .token = place.token,
                                     .slot = place.slot,
                                     .expert = place.expert,
                                     .column = place.column,
                                     .column_block = place.column >= 0 ? place.column / 32 : -1 };
    if (is_worse(&one, tally))
        copy_worst(tally, &one);
    tally->elements++;
    tally->beyond += ratio > 1;
    add_squares(tally, got, want, bound);
}

void mox_check_element(moxie_stage_report *tally, double got, double want, double bound, double largest,
                       mox_place place)
{
    count(tally, ratio_of(got, want, bound, largest), got, want, bound, place);
}

void mox_check_equal(moxie_stage_report *tally, double got, double want, mox_place place)
{
    count(tally, got == want || (isnan(got) && isnan(want)) ? 0 : INFINITY, got, want, 0, place);
}

void mox_check_run(mox_check_context *context, mox_check_stage stage, int64_t tasks, moxie_task_fn fn)
{
    mox_checker *checker = context->checker;
    moxie_stage_report *report = &checker->stages[stage];
    for (int32_t w = 0; w < checker->executor->workers; w++)
        checker->workers[w].tally = (moxie_stage_report) { 0 };
    mox_parallel(checker->executor, tasks, fn, context);
    for (int32_t w = 0; w < checker->executor->workers; w++) {
        const moxie_stage_report *tally = &checker->workers[w].tally;
        if (tally->elements > 0 && is_worse(tally, report))
            copy_worst(report, tally);
        report->elements += tally->elements;
        report->beyond += tally->beyond;
        report->rms_error += tally->rms_error;
        report->rms_want += tally->rms_want;
        report->rms_bound += tally->rms_bound;
    }
}
