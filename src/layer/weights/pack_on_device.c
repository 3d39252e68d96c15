/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_on_device.c - packs experts on a device, one after the other, through two lanes:
 *
 *     lane 0   | host: bytes to pinned memory | copy | pack |                              | host ... expert 2
 *     lane 1                                  | host: bytes to pinned memory | copy | pack |
 *
 *     lane     pinned memory and device memory for one expert as it lies in the checkpoint (cuda_pack.h), and a stream
 *
 * While the device copies and packs one expert, all workers of the host bring the next to pinned memory. Where the
 * checkpoint is a mapped file, the workers' reads are what brings its pages in: page faults, and reads from the disk,
 * happen on all workers at once and beside the copy of the expert before. Peak device memory is the records and two
 * experts. Checksums of parts stay on the device to the end; then the host seals the headers and sends them.
 */
#include <string.h>

#include "base/executor.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sizes.h"
#include "cuda/pack/cuda_pack.h"
#include "layer/weights/pack_job.h"

enum { LANES = 2, PIECE = 1 << 20 }; /* PIECE: bytes that a worker copies at a time */

typedef struct lane {
    uint8_t *pinned, *device;
    mox_cuda_stream stream;
    mox_cuda_event copied; /* the pinned memory may be written again */
} lane;

typedef struct device_pack {
    const mox_pack_job *job;
    const mox_cuda_table *table;
    int32_t packer;
    int64_t parts;
    uint64_t stage_bytes; /* of a lane */
    lane lanes[LANES];
    uint64_t *sums, *sums_there; /* [total, parts] pinned; on the device */
    mox_record_header *headers;  /* [total] pinned */
} device_pack;

/* One expert on its way to a lane's pinned memory. */
typedef struct staging {
    const device_pack *pack;
    moxie_expert expert; /* what this rank has of it */
    mox_cuda_pack_stage stage;
    uint8_t *to;
} staging;

/* ---- host ------------------------------------------------------------------------------------------------------- */

static int64_t pieces_of(const mox_cuda_pack_run *run)
{
    return mox_ceil_div((int64_t)run->bytes, PIECE);
}

static int64_t tasks_of(const staging *s)
{
    int64_t tasks = s->pack->parts;
    for (int32_t i = 0; i < s->stage.runs; i++)
        tasks += pieces_of(&s->stage.run[i]);
    return tasks;
}

/* First the parts of the rest, which take longest; then pieces of the runs. */
static void stage_task(void *context, int64_t task, int32_t worker)
{
    const staging *s = context;
    const mox_pack_job *job = s->pack->job;
    (void)worker;
    if (task < s->pack->parts) {
        job->layout->pack_rest(job->shape, &s->expert, task, s->to + s->stage.rest_at);
        return;
    }
    task -= s->pack->parts;
    const mox_cuda_pack_run *run = s->stage.run;
    for (; task >= pieces_of(run); run++)
        task -= pieces_of(run);
    const uint64_t at = (uint64_t)task * PIECE, left = run->bytes - at;
    memcpy(s->to + run->at + at, run->from + at, left < PIECE ? left : PIECE);
}

/* ---- one expert ------------------------------------------------------------------------------------------------- */

static moxie_status launch(const device_pack *d, const staging *s, const lane *l, int64_t i, moxie_error *error)
{
    const mox_pack_job *job = d->job;
    mox_cuda_pack_args args;
    MOX_TRY(d->table->copy(l->device, l->pinned, s->stage.bytes, l->stream, error));
    MOX_TRY(d->table->event_record(l->copied, l->stream, error));
    mox_cuda_pack_args_make(job->layout, job->shape, &s->expert, &s->stage, l->device, job->records[i],
                            d->sums_there + i * d->parts, &args);
    return d->table->pack[d->packer](&args, l->stream, error);
}

static moxie_status pack_one(const device_pack *d, int64_t i, moxie_error *error)
{
    const mox_pack_job *job = d->job;
    const lane *l = &d->lanes[i % LANES];
    char reason[256];
    staging s = { .pack = d, .to = l->pinned };
    MOX_TRY(mox_pack_slice(job, i, &s.expert, error));
    MOX_FAIL_IF(!mox_cuda_pack_stage_make(job->layout, job->shape, &s.expert, &s.stage, reason, sizeof reason) ||
                    s.stage.bytes > d->stage_bytes,
                MOXIE_ERR_MISMATCH, error, "the views of expert %lld changed while it was packed",
                (long long)job->experts[i]);
    MOX_TRY(d->table->event_wait(l->copied, error));
    mox_cuda_pack_put_parts(job->layout, job->shape, l->pinned);
    mox_parallel(job->options->executor, tasks_of(&s), stage_task, &s);
    MOX_TRY(launch(d, &s, l, i, error));
    return mox_pack_done(job, i, 1, error);
}

/* For all of them, also when one fails: their memory may be freed next. */
static moxie_status wait_for_lanes(const device_pack *d, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    for (int i = 0; i < LANES; i++)
        if (d->lanes[i].stream != NULL) {
            const moxie_status one = d->table->stream_wait(d->lanes[i].stream, status == MOXIE_OK ? error : NULL);
            status = status == MOXIE_OK ? one : status;
        }
    return status;
}

/* Headers go last: until then no record is valid. */
static moxie_status seal_all(const device_pack *d, moxie_error *error)
{
    const mox_pack_job *job = d->job;
    const uint64_t bytes = (uint64_t)(job->total * d->parts) * sizeof *d->sums;
    const mox_cuda_stream stream = d->lanes[0].stream;
    MOX_TRY(wait_for_lanes(d, error));
    MOX_TRY(d->table->copy(d->sums, d->sums_there, bytes, stream, error));
    MOX_TRY(d->table->stream_wait(stream, error));
    for (int64_t i = 0; i < job->total; i++) {
        memset(&d->headers[i], 0, sizeof d->headers[i]);
        mox_record_seal(job->layout, job->shape, job->experts[i], mox_pack_view(job, i), &d->headers[i],
                        d->sums + i * d->parts);
        MOX_TRY(d->table->copy(job->records[i], &d->headers[i], sizeof d->headers[i], stream, error));
    }
    return d->table->stream_wait(stream, error);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

/* The bytes that the largest expert needs in a lane. */
static moxie_status measure(device_pack *d, moxie_error *error)
{
    const mox_pack_job *job = d->job;
    for (int64_t i = 0; i < job->total; i++) {
        mox_cuda_pack_stage stage;
        moxie_expert expert;
        char reason[256];
        MOX_TRY(mox_pack_slice(job, i, &expert, error));
        MOX_FAIL_IF(!mox_cuda_pack_stage_make(job->layout, job->shape, &expert, &stage, reason, sizeof reason),
                    MOXIE_ERR_UNSUPPORTED, error, "the device does not pack expert %lld: %s",
                    (long long)job->experts[i], reason);
        d->stage_bytes = stage.bytes > d->stage_bytes ? stage.bytes : d->stage_bytes;
    }
    return MOXIE_OK;
}

static moxie_status open_lane(const device_pack *d, lane *l, moxie_error *error)
{
    void *pinned = NULL, *device = NULL;
    MOX_TRY(d->table->allocate_pinned(d->stage_bytes, &pinned, error));
    l->pinned = pinned;
    MOX_TRY(mox_device_allocate(d->job->device, d->stage_bytes, "an expert to be packed", &device, error));
    l->device = device;
    MOX_TRY(d->table->stream_create(&l->stream, error));
    return d->table->event_create(&l->copied, error);
}

static moxie_status open_all(device_pack *d, moxie_error *error)
{
    const mox_pack_job *job = d->job;
    const uint64_t bytes = (uint64_t)(job->total * d->parts) * sizeof *d->sums;
    void *sums = NULL, *there = NULL, *headers = NULL;
    MOX_TRY(d->table->use(job->device->ordinal, error));
    MOX_TRY(measure(d, error));
    for (int i = 0; i < LANES && i < job->total; i++)
        MOX_TRY(open_lane(d, &d->lanes[i], error));
    MOX_TRY(mox_device_allocate(job->device, bytes, "checksums of records", &there, error));
    d->sums_there = there;
    MOX_TRY(d->table->allocate_pinned(bytes, &sums, error));
    d->sums = sums;
    MOX_TRY(d->table->allocate_pinned((uint64_t)job->total * sizeof *d->headers, &headers, error));
    d->headers = headers;
    mox_log(MOXIE_LOG_INFO, "the device packs %lld experts: %llu bytes each on their way, two at a time",
            (long long)job->total, (unsigned long long)d->stage_bytes);
    return MOXIE_OK;
}

static void close_all(device_pack *d)
{
    (void)wait_for_lanes(d, NULL);
    for (int i = 0; i < LANES; i++) {
        lane *l = &d->lanes[i];
        d->table->event_destroy(l->copied);
        d->table->stream_destroy(l->stream);
        d->table->release_pinned(l->pinned);
        mox_device_release(d->job->device, l->device);
    }
    mox_device_release(d->job->device, d->sums_there);
    d->table->release_pinned(d->sums);
    d->table->release_pinned(d->headers);
}

moxie_status mox_pack_on_device(const mox_pack_job *job, int32_t packer, moxie_error *error)
{
    device_pack d = { .job = job, .table = job->device->table, .packer = packer };
    if (job->total == 0)
        return MOXIE_OK;
    d.parts = mox_record_parts(job->layout, job->shape);
    moxie_status status = open_all(&d, error);
    for (int64_t i = 0; i < job->total && status == MOXIE_OK; i++)
        status = pack_one(&d, i, error);
    if (status == MOXIE_OK)
        status = seal_all(&d, error);
    close_all(&d);
    return status;
}
