/* SPDX-License-Identifier: Apache-2.0
 *
 * api_tp.c - moxie_tp_slice() of moxie_parallel.h: checks its pointers and calls layer/config/tp_slice.c.
 */
#include <moxie/moxie_parallel.h>

#include "api/api_need.h"
#include "layer/config/tp_slice.h"

moxie_status moxie_tp_slice(const moxie_layer_config *config, int32_t tp_size, int32_t tp_rank, int64_t w13[2],
                            int64_t w2[2], moxie_error *error)
{
    NEED(config);
    NEED(w13);
    NEED(w2);
    return mox_tp_slice(config, tp_size, tp_rank, w13, w2, error);
}
