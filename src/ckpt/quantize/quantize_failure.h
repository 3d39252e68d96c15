/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_failure.h - failures of experts that several workers do: the one of the lowest expert is reported.
 */
#ifndef MOX_CKPT_QUANTIZE_FAILURE_H
#define MOX_CKPT_QUANTIZE_FAILURE_H

#include "base/status.h"

/* Of one worker; it does nothing more after the first. Zero-initialised: none. */
typedef struct mox_quantize_failure {
    moxie_status status;
    int64_t expert;
    moxie_error error;
} mox_quantize_failure;

/* The failure of the lowest expert. Each of `count` workers has `stride` bytes. */
static inline moxie_status mox_quantize_first_failure(const mox_quantize_failure *workers, uint64_t stride,
                                                      int32_t count, moxie_error *error)
{
    const mox_quantize_failure *first = NULL;
    for (int32_t i = 0; i < count; i++) {
        const void *at = (const char *)workers + (uint64_t)i * stride;
        const mox_quantize_failure *one = at;
        if (one->status != MOXIE_OK && (!first || one->expert < first->expert))
            first = one;
    }
    if (first && error)
        *error = first->error;
    return first ? first->status : MOXIE_OK;
}

#endif
