/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_uses.h - the different experts that a step uses in one layer.
 */
#ifndef MOX_STORE_TRACE_USES_H
#define MOX_STORE_TRACE_USES_H

#include <moxie/moxie_trace.h>

/* Writes the experts below info->experts that some token chose, each once, in the order of their first use; returns how
 * many. seen [experts] holds no `mark` before, and the experts' entries become it. out has room for all experts. */
static inline int32_t mox_trace_uses(const moxie_trace_info *info, const moxie_trace_step *step, int32_t layer,
                                     int64_t mark, int64_t *seen, int32_t *out)
{
    int32_t count = 0;
    for (int64_t t = 0; t < step->tokens; t++) {
        const int32_t *ids = step->ids + t * step->token_stride + layer * step->layer_stride;
        for (int32_t j = 0; j < info->top_k; j++) {
            if (ids[j] < 0 || ids[j] >= info->experts || seen[ids[j]] == mark)
                continue;
            seen[ids[j]] = mark;
            out[count++] = ids[j];
        }
    }
    return count;
}

#endif
