/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange_bytes.c - the bytes of the rows that ranks exchange (exchange_bytes.h).
 */
#include "layer/plan/exchange_bytes.h"

#include "quant/act_row.h"

/* Whether a token's owner can quantize it once for all experts. Not where codes depend on the choice or on the batch.
 * Where they depend on static scales, those must also be the same for all experts of all ranks. */
static bool has_codes(const moxie_layer_config *c)
{
    return !mox_quant_is_none(&c->a13) && !mox_act_quant_needs_amax(&c->a13) && !c->routing.on_input;
}

mox_dispatch mox_exchange_dispatch(const moxie_layer_config *c, bool on_host, bool adapters)
{
    return (mox_dispatch) { .codes = on_host && !adapters && has_codes(c), .adapters = adapters };
}

uint64_t mox_exchange_array_bytes(const moxie_layer_config *c, mox_dispatch dispatch, int array)
{
    const int64_t x = dispatch.codes ? mox_act_row_bytes(&c->a13, c->hidden) : c->hidden * mox_dtype_bytes(c->dtype);
    const uint64_t k = (uint64_t)c->top_k;
    const uint64_t bytes[MOX_DISPATCHED] = { (uint64_t)x, k * sizeof(int32_t),
                                             c->routing.on_input ? k * sizeof(float) : 0,
                                             dispatch.adapters ? sizeof(int32_t) : 0 };
    return bytes[array];
}

uint64_t mox_exchange_dispatch_bytes(const moxie_layer_config *c, mox_dispatch dispatch)
{
    uint64_t bytes = 0;
    for (int i = 0; i < MOX_DISPATCHED; i++)
        bytes += mox_exchange_array_bytes(c, dispatch, i);
    return bytes;
}

moxie_dtype mox_exchange_result_dtype(const moxie_layer_config *c)
{
    return c->round_results ? c->dtype : MOXIE_F32;
}

uint64_t mox_exchange_result_bytes(const moxie_layer_config *c)
{
    return (uint64_t)(c->hidden * mox_dtype_bytes(mox_exchange_result_dtype(c)));
}
