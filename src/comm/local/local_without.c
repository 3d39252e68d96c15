/* SPDX-License-Identifier: Apache-2.0
 *
 * local_without.c - a group of the ranks that are left when others are dead (local_group.h).
 *
 * The first rank that asks makes the new group; it waits in the old one until each of the others takes its rank.
 */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "comm/local/local.h"
#include "comm/local/local_group.h"

static moxie_status mark_dead(const mox_local_rank *rank, const int32_t *dead, int32_t count, bool *is_dead,
                              moxie_error *error)
{
    const int32_t ranks = rank->group->ranks;
    MOX_FAIL_IF(count < 0 || count >= ranks, MOXIE_ERR_ARGUMENT, error,
                "moxie_comm_local_without: %d of %d ranks are dead; one at least must be left", count, ranks);
    for (int32_t i = 0; i < count; i++) {
        MOX_FAIL_IF(dead[i] < 0 || dead[i] >= ranks || is_dead[dead[i]], MOXIE_ERR_ARGUMENT, error,
                    "moxie_comm_local_without: dead[%d] is %d; it must be a rank from 0 to %d, each once", i, dead[i],
                    ranks - 1);
        is_dead[dead[i]] = true;
    }
    MOX_FAIL_IF(is_dead[rank->rank], MOXIE_ERR_ARGUMENT, error,
                "moxie_comm_local_without: rank %d calls it, and names itself as dead", rank->rank);
    return MOXIE_OK;
}

static moxie_status create_next(mox_local_group *group, const bool *is_dead, int32_t left, moxie_error *error)
{
    moxie_transport made[MOXIE_MAX_RANKS];
    moxie_transport *next = mox_calloc((uint64_t)group->ranks, sizeof *next);
    bool *dead = mox_calloc((uint64_t)group->ranks, sizeof *dead);
    moxie_status status = MOXIE_ERR_MEMORY;
    if (!next || !dead)
        (void)mox_fail(status, error, "moxie_comm_local_without: no memory for %d ranks", group->ranks);
    else
        status = mox_local_create(left, made, error);
    if (status != MOXIE_OK) {
        mox_free(next);
        mox_free(dead);
        return status;
    }
    memcpy(dead, is_dead, (size_t)group->ranks * sizeof *dead);
    for (int32_t r = 0, rank = 0; r < group->ranks; r++)
        if (!dead[r])
            next[r] = made[rank++];
    group->next = next;
    group->dead = dead;
    return MOXIE_OK;
}

/* "1 5" */
static void list(const bool *dead, int32_t ranks, char *text, size_t bytes)
{
    size_t at = 0;
    text[0] = 0;
    for (int32_t r = 0; r < ranks && at + 8 < bytes; r++)
        if (dead[r])
            at += (size_t)snprintf(text + at, bytes - at, "%s%d", at > 0 ? " " : "", r);
}

static moxie_status take(mox_local_rank *rank, const bool *is_dead, moxie_transport *out, moxie_error *error)
{
    mox_local_group *group = rank->group;
    if (memcmp(group->dead, is_dead, (size_t)group->ranks * sizeof *is_dead) != 0) {
        char first[96], own[96];
        list(group->dead, group->ranks, first, sizeof first);
        list(is_dead, group->ranks, own, sizeof own);
        return mox_fail(MOXIE_ERR_MISMATCH, error,
                        "moxie_comm_local_without: rank %d names dead ranks %s, but the first rank that called named "
                        "%s: all ranks that are left must name the same",
                        rank->rank, own, first);
    }
    MOX_FAIL_IF(group->next[rank->rank].struct_size == 0, MOXIE_ERR_ARGUMENT, error,
                "moxie_comm_local_without: rank %d has called it before; a further failure is one of the new comm",
                rank->rank);
    *out = group->next[rank->rank];
    group->next[rank->rank].struct_size = 0;
    return MOXIE_OK;
}

moxie_status mox_local_without(const moxie_transport *old, const int32_t *dead, int32_t count, moxie_transport *out,
                               moxie_error *error)
{
    mox_local_rank *rank = old->self;
    bool is_dead[MOXIE_MAX_RANKS] = { false };
    MOX_FAIL_IF(
        old->mask != mox_local_mask, MOXIE_ERR_UNSUPPORTED, error,
        "moxie_comm_local_without: the comm's transport is %s, not local: make a comm of the ranks that are left "
        "with that transport's own means",
        old->name);
    MOX_TRY(mark_dead(rank, dead, count, is_dead, error));
    pthread_mutex_lock(&rank->group->lock);
    moxie_status status = MOXIE_OK;
    if (!rank->group->next)
        status = create_next(rank->group, is_dead, rank->group->ranks - count, error);
    if (status == MOXIE_OK)
        status = take(rank, is_dead, out, error);
    pthread_mutex_unlock(&rank->group->lock);
    return status;
}

void mox_local_drop_next(mox_local_group *group)
{
    for (int32_t r = 0; group->next && r < group->ranks; r++)
        if (group->next[r].struct_size > 0)
            group->next[r].destroy(group->next[r].self);
    mox_free(group->next);
    mox_free(group->dead);
}
