/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange_bytes.h - what the rows that ranks exchange consist of, and their bytes.
 *
 *     dispatch   row of x: hidden state, or codes and scales | ids [K] i32 | weights [K] f32, where they multiply x |
 *                adapter i32, in plans with adapters, which need hidden states
 *     return     the result of a choice, [H] f32, or 16-bit where the layer rounds results
 *
 * In the flow: configuration -> [exchange_bytes] -> plan_ranks.c, run_ranks.c.
 */
#ifndef MOX_LAYER_EXCHANGE_BYTES_H
#define MOX_LAYER_EXCHANGE_BYTES_H

#include "layer/config/config.h"

#define MOX_DISPATCHED 4 /* arrays that a dispatch may send: x, ids, weights, adapters */

/* What a dispatch sends. */
typedef struct mox_dispatch {
    bool codes;    /* x is codes and scales */
    bool adapters; /* tokens may have adapters */
} mox_dispatch;

/* What ranks on the host or on a device dispatch. Adapters read hidden states. The oracle's own quantizer, and those of
 * devices, run where the rows are. */
mox_dispatch mox_exchange_dispatch(const moxie_layer_config *config, bool on_host, bool adapters);
/* The bytes of a row of an array; 0: it is not sent. */
uint64_t mox_exchange_array_bytes(const moxie_layer_config *config, mox_dispatch dispatch, int array);
/* The same of all arrays together. */
uint64_t mox_exchange_dispatch_bytes(const moxie_layer_config *config, mox_dispatch dispatch);
/* The type of results on their way. */
moxie_dtype mox_exchange_result_dtype(const moxie_layer_config *config);
uint64_t mox_exchange_result_bytes(const moxie_layer_config *config);

#endif
