/* SPDX-License-Identifier: Apache-2.0
 *
 * combine_args.h - the arguments of a kernel of family combine (combine.h). Pointers are to the memory of the device
 * that runs it.
 */
#ifndef MOX_CPU_COMBINE_ARGS_H
#define MOX_CPU_COMBINE_ARGS_H

#include <stdbool.h>

#include <moxie/moxie.h>

#include "base/shared.h"

typedef struct mox_combine_args {
    int64_t tokens, top_k, hidden;
    const int64_t *position; /* [T,K] row of y or -1; NULL: row t*K+j unless ids is negative or >= experts */
    const int32_t *ids;      /* [T,K], read only when position is NULL or identity is not */
    int64_t experts;
    const float *weights;       /* [T,K]; NULL: all ones (the weights multiplied the input) */
    const float *y;             /* [*, H] */
    moxie_dtype round_y;        /* BF16 or F16, to which y is rounded first; NONE: it is not */
    const void *y16;            /* [*, H] of round_y, read in place of y; or NULL */
    const float *shared;        /* [T,H] or NULL */
    const float *shared_weight; /* [T] or NULL: 1 */
    float shared_scale;         /* multiplies shared_weight; 0: 1 */
    void *out;                  /* [T,H] */
    moxie_dtype out_dtype;
    /* Experts that return their input, with ids experts to experts + identities - 1: a choice of one adds its weight
     * times the token's row of `identity`. NULL: none, or another rank adds them. */
    const void *identity;          /* [T,H] of out_dtype */
    const float *identity_weights; /* [T,K] */
    int64_t identities;
} mox_combine_args;

/* The weight of the token's shared row. */
MOX_SHARED float mox_combine_shared_weight(const mox_combine_args *args, int64_t token)
{
    const float scale = args->shared_scale != 0 ? args->shared_scale : 1.0f;
    return args->shared_weight != NULL ? args->shared_weight[token] * scale : scale;
}

/* Whether the choice adds the token's own row. */
MOX_SHARED bool mox_combine_is_identity(const mox_combine_args *args, int64_t choice)
{
    return args->identity != NULL && args->ids[choice] >= args->experts &&
           args->ids[choice] < args->experts + args->identities;
}

#endif
