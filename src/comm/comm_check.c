/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_check.c - checks of a transport's table and of an operation's arguments (comm_check.h).
 */
#include "comm/comm_check.h"

#include <stdbool.h>

#include "base/sizes.h"

moxie_status mox_comm_check_transport(const moxie_transport *t, moxie_error *error)
{
#define CHECKED(function)                                                                                              \
    {                                                                                                                  \
#function, t->function != NULL                                                                                 \
    }
    const struct {
        const char *name;
        bool there;
    } parts[] = { CHECKED(name),           CHECKED(counts),    CHECKED(alltoallv), CHECKED(allgatherv),
                  CHECKED(reduce_scatter), CHECKED(allreduce), CHECKED(barrier),   CHECKED(progress),
                  CHECKED(late),           CHECKED(cancel),    CHECKED(destroy) };
#undef CHECKED
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        MOX_FAIL_IF(!parts[i].there, MOXIE_ERR_ARGUMENT, error,
                    "moxie_transport: %s is NULL; a transport must fill all of its table but wait", parts[i].name);
    MOX_FAIL_IF(t->ranks < 1 || t->ranks > MOXIE_MAX_RANKS, MOXIE_ERR_ARGUMENT, error,
                "moxie_transport: %d ranks; 1 to %d are possible", t->ranks, MOXIE_MAX_RANKS);
    MOX_FAIL_IF(t->rank < 0 || t->rank >= t->ranks, MOXIE_ERR_ARGUMENT, error,
                "moxie_transport: rank %d is not one of 0 to %d", t->rank, t->ranks - 1);
    return MOXIE_OK;
}

moxie_status mox_comm_check_counts(const int64_t *send, const int64_t *recv, int64_t each, int32_t ranks,
                                   moxie_error *error)
{
    MOX_FAIL_IF(each < 0 || each > INT64_MAX / 8 / ranks, MOXIE_ERR_ARGUMENT, error,
                "counts: each is %lld; it must be 0 or more, and 8 bytes of each for %d ranks must fit 63 bits",
                (long long)each, ranks);
    MOX_FAIL_IF(each > 0 && (!send || !recv), MOXIE_ERR_ARGUMENT, error, "counts: %s is NULL", send ? "recv" : "send");
    return MOXIE_OK;
}

/* One of the two halves of moxie_comm_rows. */
typedef struct side {
    const char *name;
    const void *data;
    const int64_t *rows, *at;
    int32_t count;
} side;

static moxie_status check_side(const char *operation, const side *s, uint64_t row_bytes, moxie_error *error)
{
    MOX_FAIL_IF(!s->rows || !s->at, MOXIE_ERR_ARGUMENT, error, "%s: %s_%s is NULL", operation, s->name,
                s->rows ? "at" : "rows");
    for (int32_t r = 0; r < s->count; r++) {
        const long long rows = s->rows[r], at = s->at[r];
        uint64_t end;
        MOX_FAIL_IF(rows < 0 || (rows > 0 && at < 0), MOXIE_ERR_ARGUMENT, error,
                    "%s: %s_rows[%d] is %lld, %s_at[%d] is %lld; neither may be negative", operation, s->name, r, rows,
                    s->name, r, at);
        if (rows == 0)
            continue;
        MOX_FAIL_IF(!mox_mul_u64((uint64_t)rows + (uint64_t)at, row_bytes, &end) || end > INT64_MAX, MOXIE_ERR_ARGUMENT,
                    error, "%s: %lld rows from row %lld on of %s, %llu bytes each, do not fit 63 bits of bytes",
                    operation, rows, at, s->name, (unsigned long long)row_bytes);
        MOX_FAIL_IF(!s->data, MOXIE_ERR_ARGUMENT, error, "%s: %s is NULL, and %s_rows[%d] is %lld", operation, s->name,
                    s->name, r, rows);
    }
    return MOXIE_OK;
}

moxie_status mox_comm_check_rows(mox_comm_kind kind, const moxie_comm_rows *rows, int32_t rank, int32_t ranks,
                                 moxie_error *error)
{
    const char *operation = mox_comm_kind_name(kind);
    const bool reduces = kind == MOX_COMM_REDUCE_SCATTER;
    MOX_FAIL_IF(rows->row_bytes < 1, MOXIE_ERR_ARGUMENT, error, "%s: row_bytes is 0", operation);
    MOX_FAIL_IF(reduces && rows->row_bytes % 4 != 0, MOXIE_ERR_ARGUMENT, error,
                "reduce_scatter: row_bytes is %llu, no multiple of the 4 of an f32",
                (unsigned long long)rows->row_bytes);
    /* The rows that reduce_scatter reads are numbered by what is received. */
    const side sent = reduces ? (side) { "recv", rows->send, rows->recv_rows, rows->recv_at, ranks }
                              : (side) { "send", rows->send, rows->send_rows, rows->send_at,
                                         kind == MOX_COMM_ALLGATHERV ? 1 : ranks };
    MOX_TRY(check_side(operation, &sent, rows->row_bytes, error));
    if (reduces) {
        MOX_FAIL_IF(rows->recv_rows[rank] > 0 && !rows->recv, MOXIE_ERR_ARGUMENT, error,
                    "reduce_scatter: recv is NULL, and recv_rows[%d] is %lld", rank, (long long)rows->recv_rows[rank]);
        return MOXIE_OK;
    }
    const side received = { "recv", rows->recv, rows->recv_rows, rows->recv_at, ranks };
    MOX_TRY(check_side(operation, &received, rows->row_bytes, error));
    const int64_t own = rows->send_rows[kind == MOX_COMM_ALLGATHERV ? 0 : rank];
    MOX_FAIL_IF(own != rows->recv_rows[rank], MOXIE_ERR_ARGUMENT, error,
                "%s: rank %d sends %lld rows to itself, but expects %lld of them", operation, rank, (long long)own,
                (long long)rows->recv_rows[rank]);
    return MOXIE_OK;
}

moxie_status mox_comm_check_allreduce(const void *values, int64_t n, moxie_comm_sum how, moxie_error *error)
{
    MOX_FAIL_IF(n < 0 || n > INT64_MAX / 8, MOXIE_ERR_ARGUMENT, error,
                "allreduce: n is %lld; it must be 0 or more and fit 63 bits of bytes", (long long)n);
    MOX_FAIL_IF(n > 0 && !values, MOXIE_ERR_ARGUMENT, error, "allreduce: values is NULL, and n is %lld", (long long)n);
    MOX_FAIL_IF((int)how < 0 || how > MOXIE_COMM_MAX_F32, MOXIE_ERR_ARGUMENT, error,
                "allreduce: %d is no moxie_comm_sum; 0 to %d are", (int)how, (int)MOXIE_COMM_MAX_F32);
    return MOXIE_OK;
}
