/* SPDX-License-Identifier: Apache-2.0
 *
 * glu_args.h - what a kernel of family glu gets (glu.h); pointers are of the memory where it runs.
 */
#ifndef MOX_CPU_GLU_ARGS_H
#define MOX_CPU_GLU_ARGS_H

#include <moxie/moxie.h>

typedef struct mox_glu_args {
    moxie_activation activation; /* its arrays, [E], are of the same memory */
    int64_t slots;
    const int64_t *offsets;   /* [slots+1] */
    const int64_t *expert_of; /* [slots] global expert, for per-expert parameters; NULL: none */
    int64_t max_pairs;        /* offsets[slots] at most */
    const float *h;           /* [pairs, 2I or I] */
    int64_t intermediate;
    int32_t interleaved; /* host: h holds g0,u0,g1,u1,... instead of [gate I | up I] */
    float *out;          /* [pairs, I]; may not overlap h */
} mox_glu_args;

#endif
