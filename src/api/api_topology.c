/* SPDX-License-Identifier: Apache-2.0
 *
 * api_topology.c - moxie_topology.h: checks pointers and structs, then calls src/base.
 */
#include <moxie/moxie_topology.h>

#include "api_need.h"
#include "base/executor.h"
#include "base/topology.h"
#include "layer/config/struct_size.h"

moxie_status moxie_topology_info(moxie_topology *out, moxie_error *error)
{
    const mox_topology *t = mox_topology_here();
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_topology), error));
    const moxie_topology known = { .processors = t->processors,
                                   .cores = t->cores,
                                   .shared_cores = t->shared_cores,
                                   .nodes = t->nodes,
                                   .known = t->known,
                                   .found_by = t->found_by };
    mox_struct_write(&known, out, MOX_STRUCT(moxie_topology));
    return MOXIE_OK;
}

int32_t moxie_topology_node(int32_t index)
{
    const mox_topology *t = mox_topology_here();
    return t->known && index >= 0 && index < t->nodes ? t->node_number[index] : -1;
}

moxie_status moxie_executor_create_on(int32_t threads, const char *numa, moxie_executor **out, moxie_error *error)
{
    NEED(out);
    return mox_executor_create_on(threads, numa, out, error);
}
