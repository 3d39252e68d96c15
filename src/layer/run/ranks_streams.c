/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks_streams.c - the two streams of a run over ranks (ranks_streams.h).
 */
#include "layer/run/ranks_streams.h"

bool mox_ranks_beside(const mox_run *run)
{
    return run->plan->ranks->beside && !run->plan->ranks->timed;
}

mox_run mox_ranks_away(const mox_run *run)
{
    mox_run away = *run;
    away.queue.stream = run->plan->ranks->exchanges;
    return away;
}

moxie_status mox_ranks_reach(const mox_run *run, mox_ranks_event event, moxie_error *error)
{
    return run->queue.table->event_record(run->plan->ranks->events[event], run->queue.stream, error);
}

moxie_status mox_ranks_await(const mox_run *run, mox_ranks_event event, moxie_error *error)
{
    return run->queue.table->stream_follow(run->queue.stream, run->plan->ranks->events[event], error);
}
