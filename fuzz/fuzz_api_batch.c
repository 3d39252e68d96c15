/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_api_batch.c - batches of tokens for the layers of fuzz_api_layer.c: hidden states, logits or chosen experts, and
 * memory for the outputs.
 */
#include <string.h>

#include "fuzz_api.h"

static void *make_array(fuzz_layer *l, moxie_dtype dtype, int64_t count)
{
    const size_t bytes = (size_t)moxie_dtype_bits(dtype) / 8;
    uint8_t *data = fuzz_layer_own(l, (size_t)count * bytes);
    for (int64_t i = 0; i < count; i++) {
        const uint32_t code = moxie_encode(dtype, fuzz_layer_number(l));
        memcpy(data + (size_t)i * bytes, &code, bytes);
    }
    return data;
}

/* Leaves out arrays that are optional in some calls, or when there are no tokens. */
static void leave_out(moxie_run_args *a, uint32_t which)
{
    if (which & 1)
        a->weights = NULL;
    if (which & 2)
        a->output = NULL;
    if (which & 4)
        a->hidden = a->router_hidden = NULL;
    if (which & 8)
        a->token_ids = NULL;
}

moxie_run_args fuzz_layer_args(fuzz_layer *l, fuzz_bytes *b)
{
    const moxie_layer_config *c = &l->config;
    const uint32_t with = fuzz_byte(b);
    moxie_run_args a = MOXIE_RUN_ARGS_INIT;
    a.tokens = fuzz_below(b, FUZZ_TOKENS + 1);
    const int64_t choices = a.tokens * c->top_k;
    a.hidden = make_array(l, c->dtype, a.tokens * c->hidden);
    if (c->router_width > 0)
        a.router_hidden = make_array(l, c->dtype, a.tokens * c->router_width);
    if (with & 1) {
        a.logits_dtype = (moxie_dtype)(MOXIE_F32 + (int)fuzz_below(b, 3));
        a.logits = make_array(l, a.logits_dtype, a.tokens * c->experts);
    }
    if (with & 2) {
        int32_t *ids = fuzz_layer_own(l, (size_t)choices * sizeof *ids);
        for (int64_t i = 0; i < choices; i++)
            ids[i] = (int32_t)(fuzz_layer_next(l) % (uint32_t)(c->experts + 2)) - 1;
        a.ids = ids;
        a.weights = make_array(l, MOXIE_F32, choices);
    }
    int32_t *token_ids = fuzz_layer_own(l, (size_t)a.tokens * sizeof *token_ids);
    for (int64_t t = 0; t < a.tokens; t++)
        token_ids[t] = (int32_t)(fuzz_layer_next(l) % 5) - 1;
    a.token_ids = token_ids;
    a.output = fuzz_layer_own(l, (size_t)(a.tokens * c->hidden * moxie_dtype_bits(c->dtype) / 8));
    a.ids_out = fuzz_layer_own(l, (size_t)choices * sizeof *a.ids_out);
    a.weights_out = fuzz_layer_own(l, (size_t)choices * sizeof *a.weights_out);
    if (with & 4)
        a.logits_out = fuzz_layer_own(l, (size_t)(a.tokens * c->experts) * sizeof(float));
    if (with & 8)
        leave_out(&a, fuzz_byte(b));
    return a;
}
