/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_job.h - experts to be packed into records, by the host or by a device:
 *
 *     pack_on_host.c     views -> records, by the host's workers; then a copy where slots are on a device
 *     pack_on_device.c   views -> bytes in pinned memory -> device -> records (cuda/pack)
 *
 * Both give the same bytes. In the flow: ckpt (views) -> layer_prepare -> [pack_job] -> records in slots.
 */
#ifndef MOX_LAYER_PACK_JOB_H
#define MOX_LAYER_PACK_JOB_H

#include "backend/cuda/device.h"
#include "layer/config/tp_slice.h"
#include "pack/layout.h"

typedef struct mox_pack_job {
    const mox_layout *layout;              /* it has accepted all these experts */
    const mox_record_shape *shape, *whole; /* of records; of experts in `weights` */
    const moxie_layer_config *config;
    mox_tp_cut cut;
    const moxie_weights *weights;
    const int64_t *experts; /* [total] global indices; -1 is the shared expert */
    void *const *records;   /* [total] slots */
    int64_t total;
    uint64_t record_bytes;
    const mox_device *device; /* where slots are */
    const moxie_options *options;
} mox_pack_job;

/* Packs all experts, and tells options->progress. */
moxie_status mox_pack_experts(const mox_pack_job *job, moxie_error *error);

/* ---- for mox_pack_experts alone ---- */

moxie_status mox_pack_on_host(const mox_pack_job *job, moxie_error *error);
moxie_status mox_pack_on_device(const mox_pack_job *job, int32_t packer, moxie_error *error);
/* The job's expert i in the checkpoint; the same with the rows of this rank alone. */
const moxie_expert *mox_pack_view(const mox_pack_job *job, int64_t i);
moxie_status mox_pack_slice(const mox_pack_job *job, int64_t i, moxie_expert *out, moxie_error *error);
/* `count` experts from `first` on were read: releases their views and reports progress. */
moxie_status mox_pack_done(const mox_pack_job *job, int64_t first, int64_t count, moxie_error *error);

#endif
