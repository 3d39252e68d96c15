/* SPDX-License-Identifier: Apache-2.0
 *
 * replay.c - when a call is launched as a graph, and how the graph is made (replay.h).
 */
#include "layer/run/replay.h"

#include <string.h>

#include "layer/config/struct_size.h"
#include "layer/plan/plan_replay.h"

static moxie_status enqueue(const moxie_plan *plan, const moxie_run_args *args, mox_cuda_stream stream,
                            moxie_error *error)
{
    return mox_run_enqueue(plan, MOX_RUN_WHOLE, args, NULL, stream, NULL, error);
}

/* The bytes between the fields stay zero: what the caller's struct has there means nothing, and may differ from call to
 * call. */
static void copy_fields(const moxie_run_args *from, moxie_run_args *to)
{
    const mox_struct_type *type = MOX_STRUCT(moxie_run_args);
    for (uint32_t i = 0; i < type->count; i++) {
        const mox_struct_field *f = &type->fields[i];
        memcpy((char *)to + f->begin, (const char *)from + f->begin, f->end - f->begin);
    }
}

/* Whether the call may be launched as a graph, by its arguments alone. Those that are wrong are refused elsewhere. */
static bool read_key(const moxie_plan *plan, const moxie_run_args *args, mox_cuda_stream stream, mox_replay_key *key)
{
    moxie_run_args read;
    memset(key, 0, sizeof *key);
    if (!plan->layer->prepared || mox_struct_read(args, &read, MOX_STRUCT(moxie_run_args), NULL) != MOXIE_OK)
        return false;
    copy_fields(&read, &key->args);
    key->stream = stream;
    key->changes = plan->layer->changes;
    return key->args.tokens > 0 && key->args.adapters == NULL;
}

/* The caller's own graph must have the kernels. Makes the plan's device the thread's. */
static bool stream_is_free(const moxie_plan *plan, mox_cuda_stream stream)
{
    const mox_cuda_table *table = plan->device.table;
    int32_t captured = 0;
    return table->use(plan->device.ordinal, NULL) == MOXIE_OK &&
           table->capturing(stream, &captured, NULL) == MOXIE_OK && !captured;
}

static void make_graph(const moxie_plan *plan, const mox_replay_key *key)
{
    const mox_cuda_table *table = plan->device.table;
    mox_cuda_stream apart = NULL;
    void *made = NULL;
    if (table->capture_apart_begin(key->stream, &apart, NULL) != MOXIE_OK)
        return;
    const moxie_status status = enqueue(plan, &key->args, apart, NULL);
    if (table->capture_apart_end(apart, &made, NULL) != MOXIE_OK)
        return;
    if (status == MOXIE_OK)
        plan->replay->graph = made;
    else
        table->graph_destroy(made);
}

/* The clocks count a launch as a run's first phase. */
static bool launch_graph(const moxie_plan *plan, mox_cuda_stream stream)
{
    mox_plan_replay *replay = plan->replay;
    mox_clock_start(plan->clocks, plan->executor.workers, MOX_PHASE_ROUTE);
    if (plan->device.table->graph_launch(replay->graph, stream, NULL) != MOXIE_OK)
        return false;
    mox_clock_stop(plan->clocks, plan->executor.workers);
    replay->launches++;
    return true;
}

/* Whether an equal call was launched as a graph. */
static bool launched(const moxie_plan *plan, const mox_replay_key *key)
{
    mox_plan_replay *replay = plan->replay;
    if (replay->refused || ++replay->equal < replay->wanted)
        return false;
    if (replay->graph == NULL)
        make_graph(plan, key);
    if (replay->graph != NULL && launch_graph(plan, key->stream))
        return true;
    mox_plan_replay_refuse(replay);
    return false;
}

moxie_status mox_replay_run(moxie_plan *plan, const moxie_run_args *args, mox_cuda_stream stream, moxie_error *error)
{
    static const mox_replay_key none;
    mox_plan_replay *replay = plan->replay;
    mox_replay_key key;
    if (replay == NULL || !read_key(plan, args, stream, &key) || !stream_is_free(plan, stream))
        return enqueue(plan, args, stream, error);
    if (memcmp(&key, &replay->key, sizeof key) != 0)
        mox_plan_replay_expect(replay, &key);
    else if (launched(plan, &key))
        return MOXIE_OK;
    const moxie_status status = enqueue(plan, args, stream, error);
    if (status != MOXIE_OK)
        mox_plan_replay_expect(replay, &none);
    return status;
}
