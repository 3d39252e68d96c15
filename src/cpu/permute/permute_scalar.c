/* SPDX-License-Identifier: Apache-2.0
 *
 * permute_scalar.c - family permute in portable C: a counting sort on the calling thread. It moves T*K
 * indices and no activations, so threads would cost more than they save.
 */
#include "cpu/permute/permute.h"

void mox_permute_scalar_run(const mox_permute_args *args, const moxie_executor *executor)
{
    (void)executor;
    mox_permutation out = args->out;
    mox_permute(args->ids, args->tokens, args->top_k, args->experts, args->slot_of, args->slots, &out);
}
