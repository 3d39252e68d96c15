/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_messages.c - the messages of one operation: posting them, split where an int cannot count their bytes, and
 * testing them without waiting (mpi_transport.h).
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "comm/mpi/mpi_transport.h"

/* ---- memory ------------------------------------------------------------------------------------------- */

void mox_mpi_release(mox_mpi_transport *t, mox_mpi_operation *operation)
{
    t->host.release(operation->messages);
    t->host.release(operation->requests);
    t->host.release(operation->statuses);
    t->host.release(operation->ended);
    operation->messages = NULL;
    operation->requests = NULL;
    operation->statuses = NULL;
    operation->ended = NULL;
    operation->capacity = 0;
}

moxie_status mox_mpi_reserve(mox_mpi_transport *t, mox_mpi_operation *operation, int32_t capacity, moxie_error *error)
{
    const uint64_t n = (uint64_t)capacity;
    if (capacity <= operation->capacity)
        return MOXIE_OK;
    mox_mpi_operation larger = *operation;
    larger.messages = t->host.alloc(n * sizeof(mox_mpi_message));
    larger.requests = t->host.alloc(n * sizeof(MPI_Request));
    larger.statuses = t->host.alloc(n * sizeof(MPI_Status));
    larger.ended = t->host.alloc(n * sizeof(int));
    if (!larger.messages || !larger.requests || !larger.statuses || !larger.ended) {
        mox_mpi_release(t, &larger);
        return mox_fail(MOXIE_ERR_MEMORY, error, "mpi: no memory for %d messages of one operation", capacity);
    }
    larger.capacity = capacity;
    if (operation->n > 0)
        memcpy(larger.messages, operation->messages, (size_t)operation->n * sizeof(mox_mpi_message));
    mox_mpi_release(t, operation);
    *operation = larger;
    return MOXIE_OK;
}

/* ---- posting ------------------------------------------------------------------------------------------ */

void mox_mpi_add_send(mox_mpi_operation *operation, int32_t peer, const void *from, uint64_t bytes)
{
    operation->messages[operation->n++] = (mox_mpi_message) { .from = from, .bytes = bytes, .peer = peer };
}

void mox_mpi_add_receive(mox_mpi_operation *operation, int32_t peer, void *to, uint64_t bytes)
{
    operation->messages[operation->n++] = (mox_mpi_message) { .to = to, .bytes = bytes, .peer = peer, .receive = true };
}

static uint64_t parts_of(const mox_mpi_message *message, uint64_t part)
{
    return message->bytes == 0 ? 1 : (message->bytes - 1) / part + 1;
}

/* Takes out the messages of masked ranks. */
static void leave_out(const mox_mpi_transport *t, mox_mpi_operation *operation)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < operation->n; i++)
        if (!t->others[operation->messages[i].peer].masked)
            operation->messages[kept++] = operation->messages[i];
    operation->n = kept;
}

/* Replaces messages that are longer than a part by their parts, in order. From the last on, since the list grows. */
static moxie_status split(mox_mpi_transport *t, mox_mpi_operation *operation, moxie_error *error)
{
    const uint64_t part = t->host.part_bytes;
    uint64_t total = 0;
    for (int32_t i = 0; i < operation->n; i++)
        total += parts_of(&operation->messages[i], part);
    MOX_FAIL_IF(
        total > INT_MAX, MOXIE_ERR_UNSUPPORTED, error,
        "mpi: %s has %llu messages of at most %llu bytes; at most %d are possible: exchange fewer rows at a time",
        mox_comm_kind_name(operation->kind), (unsigned long long)total, (unsigned long long)part, INT_MAX);
    MOX_TRY(mox_mpi_reserve(t, operation, (int32_t)total, error));
    int32_t to = (int32_t)total;
    for (int32_t i = operation->n; i-- > 0;) {
        const mox_mpi_message whole = operation->messages[i];
        for (uint64_t p = parts_of(&whole, part); p-- > 0;) {
            mox_mpi_message *m = &operation->messages[--to];
            *m = whole;
            m->from = whole.receive ? NULL : (const char *)whole.from + p * part;
            m->to = whole.receive ? (char *)whole.to + p * part : NULL;
            m->bytes = whole.bytes - p * part < part ? whole.bytes - p * part : part;
        }
    }
    operation->n = (int32_t)total;
    return MOXIE_OK;
}

moxie_status mox_mpi_post(mox_mpi_transport *t, mox_mpi_operation *operation, moxie_error *error)
{
    const int tag = 1 + (int)(operation->number % MOX_MPI_TAGS);
    leave_out(t, operation);
    MOX_TRY(split(t, operation, error));
    for (int32_t i = 0; i < operation->n; i++)
        operation->requests[i] = MPI_REQUEST_NULL;
    operation->left = operation->n;
    operation->used = true;
    for (int32_t i = 0; i < operation->n; i++) {
        const mox_mpi_message *m = &operation->messages[i];
        const int bytes = (int)m->bytes;
        const int code = m->receive
                             ? MPI_Irecv(m->to, bytes, MPI_BYTE, m->peer, tag, t->comm, &operation->requests[i])
                             : MPI_Isend(m->from, bytes, MPI_BYTE, m->peer, tag, t->comm, &operation->requests[i]);
        if (code == MPI_SUCCESS)
            continue;
        const moxie_status status = mox_mpi_failed(t, code, m->receive ? "MPI_Irecv" : "MPI_Isend", m->peer, error);
        if (status != MOXIE_ERR_TIMEOUT)
            return status;
        mox_mpi_set_dead(t, m->peer); /* and the first look at the operation says so */
    }
    return MOXIE_OK;
}

/* ---- testing ------------------------------------------------------------------------------------------ */

moxie_status mox_mpi_failed(const mox_mpi_transport *t, int code, const char *what, int32_t peer, moxie_error *error)
{
    char text[MPI_MAX_ERROR_STRING] = "", with[64] = "";
    int length = 0, class = MPI_ERR_OTHER;
    (void)MPI_Error_string(code, text, &length);
    (void)MPI_Error_class(code, &class);
    mox_make_printable(text, sizeof text);
    if (peer >= 0)
        snprintf(with, sizeof with, " with rank %d of %d", peer, t->ranks);
    MOX_FAIL_IF(class == MPI_ERR_TRUNCATE, MOXIE_ERR_MISMATCH, error,
                "%s%s: it sent more bytes than rank %d expects (%s); both sides must state the same numbers of rows",
                what, with, t->rank, text);
    MOX_FAIL_IF(class == MPI_ERR_NO_MEM, MOXIE_ERR_MEMORY, error, "%s%s: %s", what, with, text);
    /* What else happens to a message is the other process's end, or the network's. */
    return mox_fail(peer >= 0 ? MOXIE_ERR_TIMEOUT : MOXIE_ERR_IO, error, "%s%s failed: %s", what, with, text);
}

/* A receive has ended; it must have got as much as was expected. */
static moxie_status check_bytes(const mox_mpi_transport *t, const mox_mpi_operation *operation,
                                const mox_mpi_message *m, const MPI_Status *status, moxie_error *error)
{
    int bytes = 0;
    const int code = MPI_Get_count(status, MPI_BYTE, &bytes);
    if (code != MPI_SUCCESS)
        return mox_mpi_failed(t, code, "MPI_Get_count", m->peer, error);
    MOX_FAIL_IF(
        (uint64_t)bytes != m->bytes, MOXIE_ERR_MISMATCH, error,
        "%s, operation %llu: rank %d sent %d bytes, and rank %d expects %llu: all ranks must make the same calls "
        "in the same order, with numbers that agree",
        mox_comm_kind_name(operation->kind), (unsigned long long)operation->number, m->peer, bytes, t->rank,
        (unsigned long long)m->bytes);
    return MOXIE_OK;
}

static moxie_status end_message(mox_mpi_transport *t, mox_mpi_operation *operation, int32_t message,
                                const MPI_Status *status, moxie_error *error)
{
    mox_mpi_message *m = &operation->messages[message];
    m->done = true;
    operation->left--;
    return m->receive ? check_bytes(t, operation, m, status, error) : MOXIE_OK;
}

/* The message stays unfinished, until the operation ends or goes on without the peer. A process that ends because
 * another one is dead has said so before. */
static moxie_status fail_message(mox_mpi_transport *t, mox_mpi_operation *operation, int32_t message,
                                 const MPI_Status *status, moxie_error *error)
{
    const mox_mpi_message *m = &operation->messages[message];
    const char *what = m->receive ? "a receive" : "a send";
    const moxie_status failed = mox_mpi_failed(t, status->MPI_ERROR, what, m->peer, error);
    if (failed != MOXIE_ERR_TIMEOUT)
        return failed;
    MOX_TRY(mox_mpi_hear(t, error));
    if (t->others[m->peer].gone)
        (void)mox_mpi_say_gone(t, operation, m->peer, error);
    else
        t->culprit = t->culprit >= 0 ? t->culprit : m->peer;
    mox_mpi_set_dead(t, m->peer);
    return failed;
}

/* One call for all messages: each call works on everything that MPI has under way, which a call for each message would
 * repeat. All that have ended are looked at, also behind one that failed: MPI tells of each only once. MPICH reports
 * failed messages to the error handler of MPI_COMM_WORLD, which is the caller's; only MPI_ERRORS_RETURN there lets them
 * come back here. */
moxie_status mox_mpi_test(mox_mpi_transport *t, mox_mpi_operation *operation, moxie_error *error)
{
    int count = 0, class = MPI_SUCCESS;
    if (operation->left == 0)
        return MOXIE_OK;
    const int code = MPI_Testsome(operation->n, operation->requests, &count, operation->ended, operation->statuses);
    if (code != MPI_SUCCESS)
        (void)MPI_Error_class(code, &class);
    if (code != MPI_SUCCESS && class != MPI_ERR_IN_STATUS)
        return mox_mpi_failed(t, code, "MPI_Testsome", -1, error);
    moxie_status first = MOXIE_OK;
    for (int i = 0; i < count; i++) { /* count is MPI_UNDEFINED, below 0, where no request is open */
        const bool failed = class == MPI_ERR_IN_STATUS && operation->statuses[i].MPI_ERROR != MPI_SUCCESS;
        const moxie_status status = (failed ? fail_message : end_message)(
            t, operation, operation->ended[i], &operation->statuses[i], first == MOXIE_OK ? error : NULL);
        first = first == MOXIE_OK ? status : first;
    }
    return first;
}
