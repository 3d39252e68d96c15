/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_agree.c - ranks tell each other whether something succeeded that each did alone (mox_comm_agree in comm.h).
 */
#include "base/memory.h"
#include "comm/comm.h"

/* all [2 ranks]: what is sent and what comes. */
static moxie_status tell(moxie_comm *comm, moxie_status status, int64_t *all, moxie_error *error)
{
    const int32_t ranks = mox_comm_ranks(comm);
    mox_comm_request request;
    for (int32_t r = 0; r < ranks; r++)
        all[r] = status;
    MOX_TRY(mox_comm_start_counts(comm, all, all + ranks, 1, &request, error));
    return mox_comm_wait(comm, request, error);
}

moxie_status mox_comm_agree(moxie_comm *comm, moxie_status status, const char *what, moxie_error *error)
{
    const int32_t ranks = mox_comm_ranks(comm);
    moxie_error reason = { .code = MOXIE_OK };
    int64_t *all = mox_calloc(2 * (uint64_t)ranks, sizeof *all);
    if (all == NULL) { /* the others learn at once that this rank does not come */
        (void)mox_fail(MOXIE_ERR_MEMORY, &reason, "rank %d has no memory to agree with %d ranks",
                       (int)mox_comm_rank(comm), (int)ranks);
        mox_comm_break(comm, &reason);
    } else {
        reason.code = tell(comm, status, all, &reason);
    }
    for (int32_t r = 0; r < ranks && reason.code == MOXIE_OK; r++)
        if (all[ranks + r] != MOXIE_OK)
            (void)mox_fail(
                MOXIE_ERR_MISMATCH, &reason,
                "rank %d could not %s (%s), so this rank's are of no use: see the error of its call, then let "
                "all ranks try again; the comm works on",
                (int)r, what, mox_status_name((moxie_status)all[ranks + r]));
    mox_free(all);
    if (status == MOXIE_OK && reason.code != MOXIE_OK && error != NULL)
        *error = reason;
    return status != MOXIE_OK ? status : reason.code;
}
