/* SPDX-License-Identifier: Apache-2.0
 *
 * glu_tile.h - the unit of work of family glu: a tile of 16 columns, and the parameters of one expert's activation.
 *
 *     gate [rows, 16], up [rows, 16] -> + biases -> act -> out [rows, 16] in fp32, narrow [rows, 16] in bf16
 *
 * Kernels that fuse the activation into a product call tiles directly. Both the host and CUDA kernels compile this file
 * (base/shared.h).
 */
#ifndef MOX_CPU_GLU_TILE_H
#define MOX_CPU_GLU_TILE_H

#include <math.h>

#include <moxie/moxie.h>

#include "activation/activation.h"
#include "base/shared.h"

/* The parameters that the formulas read, for one expert. No limit is +inf. */
typedef struct mox_glu_parameters {
    float alpha, beta, gate_limit, up_limit;
} mox_glu_parameters;

MOX_SHARED float mox_glu_or_default(float value, float fallback)
{
    return value != 0.0f ? value : fallback;
}

/* `expert` < 0: only the scalar parameters. Zero means the default, in the arrays too. Immutable. */
MOX_SHARED mox_glu_parameters mox_glu_resolve(const moxie_activation *a, int64_t expert)
{
    const bool known = expert >= 0, limited = known && a->expert_limit != NULL;
    const float alpha = known && a->expert_alpha != NULL ? a->expert_alpha[expert] : a->alpha;
    const float beta = known && a->expert_beta != NULL ? a->expert_beta[expert] : a->beta;
    const float gate_limit = limited ? a->expert_limit[expert] : a->gate_limit;
    const float up_limit = limited ? a->expert_limit[expert] : a->up_limit;
    const mox_glu_parameters p = {
        mox_glu_or_default(alpha, mox_activation_default_alpha(a->kind)),
        beta,
        mox_glu_or_default(gate_limit, INFINITY),
        mox_glu_or_default(up_limit, INFINITY),
    };
    return p;
}

#define MOX_GLU_TILE 16

/* out[r][i] = act(gate[r][i] * row_scale[r] + gate_bias[i], up[r][i] * row_scale[r] + up_bias[i]), i < 16; `narrow`
 * gets the same in bf16, rounded to nearest even. Strides count numbers from one row to the next. Any alignment;
 * results may not overlap inputs. An ungated kind does not read `up`. Scales and a bias may be NULL (none), and so may
 * a result (not wanted). */
typedef struct mox_glu_tile {
    int32_t kind; /* moxie_act_kind that admit() accepted */
    mox_glu_parameters parameters;
    int64_t rows;
    const float *gate, *up;
    int64_t stride;
    const float *row_scale; /* [rows] */
    const float *gate_bias, *up_bias;
    float *out;
    int64_t out_stride;
    uint16_t *narrow;
    int64_t narrow_stride;
} mox_glu_tile;
typedef void (*mox_glu_tile_fn)(const mox_glu_tile *tile);

#endif
