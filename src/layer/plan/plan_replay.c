/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_replay.c - the graph that a plan keeps of its last call, and how many equal calls it takes to make one
 * (plan_replay.h).
 *
 * A graph costs as much as several calls to make. So where graphs go before they have paid for themselves, the next one
 * takes more equal calls.
 */
#include "layer/plan/plan_replay.h"

#include <string.h>

#include "base/memory.h"

enum { PAYS = 16, MOST_WANTED = 64 };

static bool fits(const moxie_plan *plan, const moxie_options *options)
{
    return plan->layer != NULL && plan->backend->on_device && plan->ranks == NULL && plan->fetch == NULL &&
           options->call_graphs != 2;
}

moxie_status mox_plan_replay_create(moxie_plan *plan, const moxie_options *options, moxie_error *error)
{
    if (!fits(plan, options))
        return MOXIE_OK;
    plan->replay = mox_calloc(1, sizeof *plan->replay);
    MOX_FAIL_IF(plan->replay == NULL, MOXIE_ERR_MEMORY, error, "no memory for a plan");
    plan->replay->table = plan->device.table;
    mox_plan_replay_forget(plan->replay);
    return MOXIE_OK;
}

static void drop_graph(mox_plan_replay *replay)
{
    if (replay->graph == NULL)
        return;
    replay->table->graph_destroy(replay->graph);
    replay->wanted = replay->launches >= PAYS ? 1 : mox_min_i64(2 * replay->wanted, MOST_WANTED);
    replay->graph = NULL;
    replay->launches = 0;
}

void mox_plan_replay_expect(mox_plan_replay *replay, const mox_replay_key *key)
{
    drop_graph(replay);
    memcpy(&replay->key, key, sizeof *key);
    replay->equal = 0;
    replay->refused = false;
}

void mox_plan_replay_refuse(mox_plan_replay *replay)
{
    drop_graph(replay);
    replay->refused = true;
}

void mox_plan_replay_forget(mox_plan_replay *replay)
{
    if (replay == NULL)
        return;
    drop_graph(replay);
    *replay = (mox_plan_replay) { .table = replay->table, .wanted = 1 };
}

void mox_plan_replay_destroy(mox_plan_replay *replay)
{
    if (replay == NULL)
        return;
    drop_graph(replay);
    mox_free(replay);
}
