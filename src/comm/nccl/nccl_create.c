/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_create.c - spreads the id of a comm over NCCL and makes the comm (nccl_create.h).
 */
#include "comm/nccl/nccl_create.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/whole_file.h"
#include "comm/nccl/nccl_transport.h"

enum { WORDS = MOXIE_NCCL_ID_BYTES / 8 };

moxie_status mox_nccl_make_id(void *id, moxie_error *error)
{
    const mox_nccl_library *nccl;
    mox_nccl_id made;
    MOX_TRY(mox_nccl_open(&nccl, error));
    const int code = nccl->get_id(&made);
    MOX_FAIL_IF(code != MOX_NCCL_SUCCESS, MOXIE_ERR_IO, error, "ncclGetUniqueId: NCCL: %s", nccl->error_string(code));
    memcpy(id, &made, sizeof made);
    return MOXIE_OK;
}

/* ---- over another comm --------------------------------------------------------------------------------- */

static moxie_status reduce(moxie_comm *over, int64_t *values, int64_t n, moxie_comm_sum how, moxie_error *error)
{
    mox_comm_request request;
    MOX_TRY(mox_comm_start_allreduce(over, values, n, how, &request, error));
    return mox_comm_wait(over, request, error);
}

/* Every rank tells its status, so none waits at NCCL for one that cannot come. Then all have the id of rank 0: those of
 * others are zeros. Nothing is allocated: a rank without memory can still say so. */
static moxie_status spread(moxie_comm *over, moxie_status status, mox_nccl_id *id, moxie_error *error)
{
    const int32_t rank = mox_comm_rank(over);
    int64_t words[WORDS], failed = status == MOXIE_OK ? 0 : (int64_t)status << 32 | rank;
    const moxie_status met = reduce(over, &failed, 1, MOXIE_COMM_MAX_I64, status == MOXIE_OK ? error : NULL);
    MOX_TRY(status);
    MOX_TRY(met);
    MOX_FAIL_IF(failed != 0, MOXIE_ERR_MISMATCH, error,
                "moxie_comm_nccl_create: rank %d cannot take part (%s), so rank %d cannot either: see the error of its "
                "call",
                (int)(int32_t)failed, mox_status_name((moxie_status)(failed >> 32)), rank);
    memcpy(words, id, sizeof words);
    MOX_TRY(reduce(over, words, WORDS, MOXIE_COMM_SUM_I64, error));
    memcpy(id, words, sizeof *id);
    return MOXIE_OK;
}

static moxie_status id_over(moxie_comm *over, mox_nccl_id *id, moxie_error *error)
{
    const mox_nccl_library *nccl;
    moxie_status status = mox_nccl_open(&nccl, error);
    if (status == MOXIE_OK && mox_comm_rank(over) == 0)
        status = mox_nccl_make_id(id, error);
    return spread(over, status, id, error);
}

/* ---- by a file ----------------------------------------------------------------------------------------- */

/* 1: read; 0: it is not there; -1: it cannot be read. */
static int read_id(const char *path, mox_nccl_id *id)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return errno == ENOENT ? 0 : -1;
    const ssize_t bytes = read(file, id, sizeof *id);
    close(file);
    return bytes == (ssize_t)sizeof *id ? 1 : -1;
}

static moxie_status wait_for_file(const char *path, int32_t rank, int32_t deadline_ms, mox_nccl_id *id,
                                  moxie_error *error)
{
    for (int64_t waited = 0;; waited += 10) {
        const int found = read_id(path, id);
        if (found > 0)
            return MOXIE_OK;
        MOX_FAIL_IF(found < 0, MOXIE_ERR_IO, error,
                    "moxie_comm_nccl_create: %s is no file of %d bytes that can be read: rank 0 writes it", path,
                    MOXIE_NCCL_ID_BYTES);
        MOX_FAIL_IF(
            waited > deadline_ms, MOXIE_ERR_TIMEOUT, error,
            "moxie_comm_nccl_create: rank %d waited %d ms (deadline_ms) for %s, which rank 0 writes: is it there, "
            "and does it see the same folder?",
            rank, deadline_ms, path);
        nanosleep(&(struct timespec) { .tv_nsec = 10000000 }, NULL);
    }
}

static moxie_status id_by_file(const char *path, int32_t rank, int32_t deadline_ms, mox_nccl_id *id, moxie_error *error)
{
    if (rank != 0)
        return wait_for_file(path, rank, deadline_ms, id, error);
    MOX_FAIL_IF(
        access(path, F_OK) == 0, MOXIE_ERR_ARGUMENT, error,
        "moxie_comm_nccl_create: %s is there already, and other ranks may have read it: name a file that is not "
        "there",
        path);
    MOX_TRY(mox_nccl_make_id(id, error));
    return mox_whole_file_write(path, id, sizeof *id, error);
}

/* ---- the comm ------------------------------------------------------------------------------------------ */

moxie_status mox_comm_nccl_create(const moxie_nccl_options *options, const mox_comm_device *device, int32_t deadline_ms,
                                  moxie_comm **out, moxie_error *error)
{
    const int32_t deadline = deadline_ms > 0 ? deadline_ms : MOX_COMM_DEADLINE;
    int32_t ranks = options->ranks, rank = options->rank;
    mox_nccl_id id = { { 0 } };
    moxie_transport transport;
    if (options->over != NULL) {
        ranks = mox_comm_ranks(options->over);
        rank = mox_comm_rank(options->over);
        MOX_TRY(id_over(options->over, &id, error));
    } else if (options->file != NULL) {
        MOX_TRY(id_by_file(options->file, rank, deadline, &id, error));
    } else {
        memcpy(&id, options->id, sizeof id);
    }
    const moxie_status status = mox_nccl_create(&id, ranks, rank, device, deadline, &transport, error);
    if (options->over == NULL && options->file != NULL && rank == 0)
        (void)unlink(options->file); /* all have read it when the comm is there */
    MOX_TRY(status);
    MOX_TRY(mox_comm_create(&transport, deadline, out, error));
    mox_comm_set_copy(*out, mox_nccl_copy);
    mox_comm_set_counts_of(*out, mox_nccl_counts_of);
    return MOXIE_OK;
}
