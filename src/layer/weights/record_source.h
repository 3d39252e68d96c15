/* SPDX-License-Identifier: Apache-2.0
 *
 * record_source.h - where a run gets records that are not all in memory: a table of functions, which src/store fills.
 *
 *     begin   a run tells which experts it will use, over all its passes: one step for the policy of a cache
 *     want    a pass tells its own, and learns the order in which their records come: those in memory first
 *     next    the records of the next experts in that order; those of the call before are given back
 *     end     all records are given back, whatever the run's result
 *
 * The calls of one session come from one thread, in this order: begin, (want, next ...) for each pass, end. Sessions of
 * several runs may be open at the same time. Nothing is allocated: a session is memory of the caller.
 */
#ifndef MOX_LAYER_RECORD_SOURCE_H
#define MOX_LAYER_RECORD_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mox_record_source {
    void *user;
    uint64_t session_bytes;
    /* `experts` [count] differ. On failure the session is not open. */
    moxie_status (*begin)(void *user, void *session, const int32_t *experts, int64_t count, moxie_error *error);
    /* Sorts experts [count], of those that begin() got. `sorted`: they keep the order of an earlier call. */
    void (*want)(void *session, int32_t *experts, int64_t count, bool sorted);
    /* Stores the records of the next *ready experts: 0 when none is left. With `wait` at least one, if one is left;
     * without it only those that are in memory. They stay until the next call for the same run. */
    moxie_status (*next)(void *session, bool wait, const void **records, int64_t *ready, moxie_error *error);
    void (*end)(void *session);
} mox_record_source;

#endif
