/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_info.c - what the reader and the writer of traces both check.
 */
#include <string.h>

#include "base/checksum.h"
#include "base/memory.h"
#include "store/trace_format.h"

moxie_status mox_trace_check_info(const moxie_trace_info *info, moxie_status code, moxie_error *error)
{
    MOX_FAIL_IF(info->layers < 1 || info->layers > MOXIE_TRACE_MAX_LAYERS, code, error,
                "a trace of %d layers: the limits are 1 and %d", info->layers, MOXIE_TRACE_MAX_LAYERS);
    MOX_FAIL_IF(info->experts < 1 || info->zero_experts < 0 || info->experts > MOXIE_MAX_EXPERTS ||
                    info->zero_experts > MOXIE_MAX_EXPERTS,
                code, error, "a trace of %d experts and %d zero experts: the limits are 1 and %d, 0 and %d",
                info->experts, info->zero_experts, MOXIE_MAX_EXPERTS, MOXIE_MAX_EXPERTS);
    MOX_FAIL_IF(info->top_k < 1 || info->top_k > MOXIE_MAX_TOP_K, code, error,
                "a trace of %d choices a token: the limits are 1 and %d", info->top_k, MOXIE_MAX_TOP_K);
    for (int32_t l = 0; info->layer_numbers && l < info->layers; l++)
        MOX_FAIL_IF(info->layer_numbers[l] < 0 || (l > 0 && info->layer_numbers[l] <= info->layer_numbers[l - 1]), code,
                    error, "layer %d of the trace is the model's layer %d, after %d: numbers ascend from 0 on", l,
                    info->layer_numbers[l], l > 0 ? info->layer_numbers[l - 1] : -1);
    return MOXIE_OK;
}

uint64_t mox_trace_checksum(void *block, uint64_t bytes, uint64_t at)
{
    uint64_t kept;
    unsigned char *place = (unsigned char *)block + at;
    memcpy(&kept, place, sizeof kept);
    memset(place, 0, sizeof kept);
    const uint64_t sum = mox_checksum(block, bytes);
    memcpy(place, &kept, sizeof kept);
    return sum;
}

moxie_status mox_trace_reserve(mox_trace_buffer *buffer, uint64_t bytes, moxie_error *error)
{
    if (bytes <= buffer->room)
        return MOXIE_OK;
    mox_free(buffer->at);
    buffer->room = 0;
    buffer->at = mox_alloc(bytes);
    MOX_FAIL_IF(!buffer->at, MOXIE_ERR_MEMORY, error, "no memory for a step of %llu bytes", (unsigned long long)bytes);
    buffer->room = bytes;
    return MOXIE_OK;
}
