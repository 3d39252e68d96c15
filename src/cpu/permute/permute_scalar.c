/* SPDX-License-Identifier: Apache-2.0
 *
 * permute_scalar.c - family permute in portable C: a counting sort on the calling thread. It moves T*K indices and no
 * activations, so waking other threads would cost more than it saves.
 */
#include "cpu/permute/permute.h"

static void attach_slot(const mox_permute_args *args, int64_t slot)
{
    for (int64_t p = args->offsets[slot]; p < args->offsets[slot + 1]; p++) {
        const int64_t pair = args->pair_at[p];
        if (args->token_of != NULL)
            args->token_of[p] = pair / args->top_k;
        if (args->row_weight != NULL)
            args->row_weight[p] = args->weights[pair];
        if (args->pair_scale13 != NULL)
            args->pair_scale13[p] = args->static_scale13[slot];
        if (args->pair_scale2 != NULL)
            args->pair_scale2[p] = args->static_scale2[slot];
    }
}

/* The second half: tokens, weights and static scales of pairs that are sorted. */
static void attach(const mox_permute_args *args)
{
    if (args->shared_offsets != NULL) {
        args->shared_offsets[0] = 0;
        args->shared_offsets[1] = args->tokens;
    }
    const bool wanted =
        args->token_of != NULL || args->row_weight != NULL || args->pair_scale13 != NULL || args->pair_scale2 != NULL;
    for (int64_t s = 0; wanted && s < args->slots; s++)
        attach_slot(args, s);
}

void mox_permute_scalar_run(const mox_permute_args *args, const moxie_executor *executor)
{
    (void)executor;
    mox_permutation out = { args->offsets, args->pair_at, args->position };
    mox_permute(args->ids, args->tokens, args->top_k, args->experts, args->slot_of, args->slots, &out);
    attach(args);
}
