/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_on_host.c - packs experts on the host, a few at a time, into slots in host memory or through a ring to a device.
 *
 * Experts are packed straight into their slots, so peak memory is the layer plus the scratch of packing. A batch of
 * experts is one parallel loop over the parts of their records (layout.h). Between batches the caller's thread collects
 * the results in expert order, releases the views that were read, and reports progress.
 *
 *     part     | 0  1  2  3  4  5  6  7 | 0  1  2  3  4  5  6  7 |     two experts of eight parts each; three workers
 *     its task | 0  3  6  9 12 15  1  4 | 7 10 13 16  2  5  8 11 |     with six consecutive parts each
 *
 * Workers take tasks in order, so tasks that run at the same time write megabytes apart. If they wrote neighbouring
 * parts, several workers would touch a new page of 2 MB at once. Then the system would clear a page for each worker,
 * and use only one of them.
 */
#include <stdatomic.h>

#include "base/executor.h"
#include "base/log.h"
#include "base/sizes.h"
#include "layer/weights/device_ring.h"
#include "layer/weights/pack_job.h"

/* A batch has about this many parts a worker, so that waiting for the last part costs little. It has no more experts
 * than workers, since progress is reported and views are released between batches. */
#define TARGET_PARTS_PER_WORKER 32

typedef struct pack_batch {
    const mox_pack_job *job;
    int64_t first, count, parts, workers;
    void *const *records;  /* [count] where the batch is packed */
    uint64_t *sums;        /* [count, parts] checksums */
    mox_device_ring *ring; /* NULL: records are host memory */
    _Atomic bool failed;
} pack_batch;

static int64_t parts_per_worker(const pack_batch *batch)
{
    return mox_ceil_div(batch->count * batch->parts, batch->workers);
}

static void pack_part(void *context, int64_t task, int32_t worker)
{
    pack_batch *batch = context;
    (void)worker;
    const int64_t at = task % batch->workers * parts_per_worker(batch) + task / batch->workers;
    if (at >= batch->count * batch->parts)
        return;
    const int64_t i = at / batch->parts;
    moxie_expert expert;
    if (mox_pack_slice(batch->job, batch->first + i, &expert, NULL) != MOXIE_OK ||
        mox_record_pack_part(batch->job->layout, batch->job->shape, &expert, at % batch->parts, batch->records[i],
                             &batch->sums[at], NULL) != MOXIE_OK)
        atomic_store_explicit(&batch->failed, true, memory_order_relaxed);
}

/* Packs the batch again, one expert after the other, to get the error of the first that fails. */
static moxie_status pack_for_error(const pack_batch *batch, moxie_error *error)
{
    for (int64_t i = 0; i < batch->count; i++) {
        moxie_expert expert;
        MOX_TRY(mox_record_check(batch->job->layout, batch->job->whole, batch->job->experts[batch->first + i],
                                 mox_pack_view(batch->job, batch->first + i), error));
        MOX_TRY(mox_pack_slice(batch->job, batch->first + i, &expert, error));
        MOX_TRY(mox_record_pack(batch->job->layout, batch->job->shape, batch->job->experts[batch->first + i], &expert,
                                batch->records[i], error));
    }
    return MOXIE_OK;
}

static moxie_status pack(pack_batch *batch, const moxie_executor *executor, moxie_error *error)
{
    bool valid = true;
    for (int64_t i = 0; i < batch->count; i++)
        valid = valid &&
                mox_record_check_views(batch->job->layout, batch->job->whole, batch->job->experts[batch->first + i],
                                       mox_pack_view(batch->job, batch->first + i), NULL) == MOXIE_OK;
    if (valid)
        mox_parallel(executor, batch->workers * parts_per_worker(batch), pack_part, batch);
    if (!valid || batch->failed)
        return pack_for_error(batch, error);
    for (int64_t i = 0; i < batch->count; i++)
        mox_record_seal(batch->job->layout, batch->job->shape, batch->job->experts[batch->first + i],
                        mox_pack_view(batch->job, batch->first + i), batch->records[i], batch->sums + i * batch->parts);
    return MOXIE_OK;
}

/* Packs one batch into its records, or through the ring to the device. */
static moxie_status fill(pack_batch *batch, void **buffers, moxie_error *error)
{
    const moxie_executor *executor = batch->job->options->executor;
    void *const *to = batch->job->records + batch->first;
    batch->records = batch->ring == NULL ? to : buffers;
    if (batch->ring == NULL)
        return pack(batch, executor, error);
    MOX_TRY(mox_device_ring_begin(batch->ring, buffers, error));
    MOX_TRY(pack(batch, executor, error));
    return mox_device_ring_send(batch->ring, to, batch->count, error);
}

static moxie_status fill_all(pack_batch *batch, void **buffers, int64_t batch_experts, moxie_error *error)
{
    const mox_pack_job *job = batch->job;
    for (; batch->first < job->total; batch->first += batch->count) {
        batch->count = mox_min_i64(batch_experts, job->total - batch->first);
        MOX_TRY(fill(batch, buffers, error));
        MOX_TRY(mox_pack_done(job, batch->first, batch->count, error));
    }
    return MOXIE_OK;
}

moxie_status mox_pack_on_host(const mox_pack_job *job, moxie_error *error)
{
    mox_device_ring ring;
    pack_batch batch = { .job = job, .workers = job->options->executor->workers };
    batch.parts = mox_record_parts(job->layout, job->shape);
    const int64_t batch_experts =
        mox_min_i64(batch.workers, mox_ceil_div(TARGET_PARTS_PER_WORKER * batch.workers, batch.parts));
    batch.sums = mox_calloc((uint64_t)(batch_experts * batch.parts), sizeof *batch.sums);
    void **buffers = mox_calloc((uint64_t)batch_experts, sizeof *buffers);
    moxie_status status = MOXIE_OK;
    if (batch.sums == NULL || buffers == NULL)
        status = mox_fail(MOXIE_ERR_MEMORY, error, "no memory to prepare with %lld workers", (long long)batch.workers);
    if (status == MOXIE_OK && !mox_device_is_host(job->device)) {
        status = mox_device_ring_open(&ring, job->device, job->record_bytes, batch_experts, error);
        if (status == MOXIE_OK) {
            mox_log(MOXIE_LOG_INFO, "%lld experts go to the device through %llu bytes of pinned memory",
                    (long long)job->total, (unsigned long long)(2 * (uint64_t)batch_experts * job->record_bytes));
            batch.ring = &ring;
        }
    }
    if (status == MOXIE_OK)
        status = fill_all(&batch, buffers, batch_experts, error);
    if (batch.ring != NULL)
        status = mox_device_ring_close(&ring, status, error);
    mox_free(batch.sums);
    mox_free(buffers);
    return status;
}
