/* SPDX-License-Identifier: Apache-2.0
 *
 * operation.h - the six operations of a transport (moxie_comm.h), by number and name.
 */
#ifndef MOX_COMM_OPERATION_H
#define MOX_COMM_OPERATION_H

#include "base/status.h"

#include <moxie/moxie_comm.h>

/* Requests that one rank may have open at a time. */
#define MOX_COMM_OPEN 8

typedef enum mox_comm_kind {
    MOX_COMM_COUNTS,
    MOX_COMM_ALLTOALLV,
    MOX_COMM_ALLGATHERV,
    MOX_COMM_REDUCE_SCATTER,
    MOX_COMM_ALLREDUCE,
    MOX_COMM_BARRIER
} mox_comm_kind;

static inline const char *mox_comm_kind_name(mox_comm_kind kind)
{
    static const char *const names[] = {
        "counts", "alltoallv", "allgatherv", "reduce_scatter", "allreduce", "barrier"
    };
    return names[kind];
}

#endif
