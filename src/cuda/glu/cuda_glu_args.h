/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_glu_args.h - what a launcher of family glu gets (mathematics: cpu/glu/glu.h). Device pointers.
 */
#ifndef MOX_CUDA_CUDA_GLU_ARGS_H
#define MOX_CUDA_CUDA_GLU_ARGS_H

#include <moxie/moxie.h>

typedef struct mox_cuda_glu_args {
    moxie_activation activation; /* its arrays are device copies, [E] */
    int64_t slots;
    const int64_t *offsets;   /* [slots+1] */
    const int64_t *expert_of; /* [slots] global expert, for per-expert parameters; NULL: none */
    int64_t max_pairs;
    const float *h; /* [pairs, 2I or I]: [gate I | up I] */
    int64_t intermediate;
    float *out; /* [pairs, I] */
} mox_cuda_glu_args;

#endif
