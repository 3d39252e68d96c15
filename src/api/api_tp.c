/* SPDX-License-Identifier: Apache-2.0
 *
 * api_tp.c - the slices of moxie_parallel.h: checks pointers and calls layer/config/tp_slice.c.
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
    mox_tp_cut cut;
    return mox_tp_slice(config, MOXIE_MODE_EXACT, tp_size, tp_rank, w13, w2, &cut, error);
}

moxie_status moxie_tp_slice_in_mode(const moxie_layer_config *config, moxie_mode mode, int32_t tp_size, int32_t tp_rank,
                                    int64_t w13[2], int64_t w2[2], int32_t *columns, moxie_error *error)
{
    mox_tp_cut cut;
    NEED(config);
    NEED(w13);
    NEED(w2);
    NEED(columns);
    MOX_TRY(mox_tp_slice(config, mode, tp_size, tp_rank, w13, w2, &cut, error));
    *columns = cut == MOX_TP_SUMS;
    return MOXIE_OK;
}

moxie_status moxie_tp_slice_shared(const moxie_layer_config *config, int32_t on_device, int32_t tp_size,
                                   int32_t tp_rank, int64_t w13[2], int64_t w2[2], uint64_t bytes[2],
                                   moxie_error *error)
{
    NEED(config);
    NEED(w13);
    NEED(w2);
    NEED(bytes);
    return mox_tp_slice_shared(config, on_device != 0, tp_size, tp_rank, w13, w2, bytes, error);
}
