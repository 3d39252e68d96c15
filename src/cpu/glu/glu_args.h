/* SPDX-License-Identifier: Apache-2.0
 *
 * glu_args.h - the arguments of a kernel of family glu (glu.h). Pointers are to the memory of the device that runs it.
 */
#ifndef MOX_CPU_GLU_ARGS_H
#define MOX_CPU_GLU_ARGS_H

#include <moxie/moxie.h>

typedef struct mox_glu_args {
    moxie_activation activation; /* its arrays [E] are in the same memory */
    int64_t slots;
    const int64_t *offsets;   /* [slots+1] */
    const int64_t *expert_of; /* [slots] global expert, whose parameters apply; NULL: no parameter is per expert */
    int64_t max_pairs;        /* upper bound of offsets[slots] */
    const float *h;           /* [pairs, 2I or I] */
    int64_t intermediate;
    int32_t interleaved; /* host: h holds g0,u0,g1,u1,... instead of [gate I | up I] */
    float *out;          /* [pairs, I]; may not overlap h */
} mox_glu_args;

#endif
