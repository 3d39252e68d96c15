/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_job.c - chooses who packs experts, and what both ways of packing share (pack_job.h).
 */
#include "layer/weights/pack_job.h"

#include <stdio.h>

#include "base/log.h"
#include "cuda/pack/cuda_pack.h"

const moxie_expert *mox_pack_view(const mox_pack_job *job, int64_t i)
{
    const int64_t expert = job->experts[i];
    return expert < 0 ? job->weights->shared : &job->weights->experts[expert];
}

moxie_status mox_pack_slice(const mox_pack_job *job, int64_t i, moxie_expert *out, moxie_error *error)
{
    const mox_expert_kind kind = job->experts[i] < 0 ? MOX_SHARED_EXPERT : MOX_ROUTED;
    return mox_tp_slice_expert(job->config, kind, job->cut, mox_pack_view(job, i), out, error);
}

moxie_status mox_pack_done(const mox_pack_job *job, int64_t first, int64_t count, moxie_error *error)
{
    const moxie_options *options = job->options;
    const int64_t done = first + count;
    for (int64_t i = first; i < done && job->weights->done != NULL; i++)
        job->weights->done(job->weights->done_user, mox_pack_view(job, i));
    MOX_FAIL_IF(options->progress != NULL && options->progress(options->progress_user, done, job->total) != 0,
                MOXIE_ERR_TIMEOUT, error, "the progress callback cancelled after %lld of %lld experts", (long long)done,
                (long long)job->total);
    return MOXIE_OK;
}

/* Whether the device packs every expert of the job. Malformed views are left to the host, which says what is wrong. */
static bool is_for_device(const mox_pack_job *job, int32_t *packer, char *reason, size_t size)
{
    *packer = mox_cuda_pack_find(job->layout, job->shape, reason, size);
    for (int64_t i = 0; *packer >= 0 && i < job->total; i++) {
        mox_cuda_pack_stage stage;
        moxie_expert expert;
        moxie_error error = { 0 };
        if (mox_record_check_views(job->layout, job->whole, job->experts[i], mox_pack_view(job, i), &error) !=
                MOXIE_OK ||
            mox_pack_slice(job, i, &expert, &error) != MOXIE_OK) {
            snprintf(reason, size, "%.200s", error.text);
            return false;
        }
        if (!mox_cuda_pack_stage_make(job->layout, job->shape, &expert, &stage, reason, size))
            return false;
    }
    return *packer >= 0;
}

moxie_status mox_pack_experts(const mox_pack_job *job, moxie_error *error)
{
    char reason[256];
    int32_t packer;
    if (mox_device_is_host(job->device))
        return mox_pack_on_host(job, error);
    if (is_for_device(job, &packer, reason, sizeof reason))
        return mox_pack_on_device(job, packer, error);
    mox_log(MOXIE_LOG_INFO, "the CPU packs %lld experts for the device: %s", (long long)job->total, reason);
    return mox_pack_on_host(job, error);
}
