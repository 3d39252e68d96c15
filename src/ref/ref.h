/* SPDX-License-Identifier: Apache-2.0
 *
 * ref.h - the oracle: every stage of the layer, obvious and slow, in double precision.
 *
 * Each stage takes the rounded inputs that the kernel under test took, and returns the exact-as-double
 * result together with a magnitude from which the caller derives a bound:
 *     |kernel - oracle| <= bound,   bound from the length of the sum and sum |x||w|   (ref_bounds.h)
 * Nothing here is shared with the kernels: weights are read element by element from the checkpoint's views.
 */
#ifndef MOX_REF_REF_H
#define MOX_REF_REF_H

#include "quant/quant.h"
#include "route/route.h"

/* out[n] = sum_k w[n,k] x[k] + b[n];  magnitude[n] = sum_k |w[n,k]| |x[k]| + |b[n]|.
 * x [K] double. weights_scratch is not needed: each weight is read where it lies. */
void mox_ref_matvec(const moxie_matrix *matrix, const moxie_quant *quant, const double *x, double *out,
                    double *magnitude);

/* The same weights once for many rows: decodes row n of the matrix to double [K]. */
void mox_ref_weight_row(const moxie_matrix *matrix, const moxie_quant *quant, int64_t n, double *row);

/* Resolved parameters of an activation for one expert (scalar or per-expert array); expert < 0: only the scalars. */
typedef struct mox_ref_act {
    int32_t kind;
    double alpha, beta, gate_limit, up_limit; /* +inf when there is no limit */
} mox_ref_act;
mox_ref_act mox_ref_act_resolve(const moxie_activation *activation, int64_t expert);

/* act(g, u); `u` is ignored by ungated kinds. *sensitivity receives the magnitudes that a straightforward f32
 * evaluation rounds (derived in ref_activate.c). A kernel passes when |got - act| <= mox_bound_act(sensitivity)
 * + half an ulp of its output type. */
double mox_ref_activate(const mox_ref_act *act, double g, double u, double *sensitivity);

/* The whole activation of one row, gate and up as halves [I | I] or interleaved g0,u0,g1,u1. */
void mox_ref_glu_row(const mox_ref_act *act, int interleaved, const double *h, int64_t intermediate, double *out,
                     double *sensitivity);

/* Independent routing in double, for every selection but custom and simulated: keys [E] of all experts (before
 * groups), and the weights [K] that chosen ids must have, NOT rounded to bf16 when the routing asks for it. */
void mox_ref_route_keys(const moxie_routing *routing, int64_t experts, const double *logits, double *keys);
void mox_ref_route_weights(const moxie_routing *routing, int64_t experts, int64_t top_k, const double *logits,
                           const int32_t *ids, double *weights);
/* How far each of those weights may be from a right fp32 evaluation for the same ids, its rounding to bf16 included.
 * Infinite where fp32 cannot tell (a renormalising sum near 0). */
void mox_ref_route_weight_bounds(const moxie_routing *routing, int64_t experts, int64_t top_k, const double *logits,
                                 const int32_t *ids, double *bounds);
/* True when `ids` (descending by key) is a right choice up to keys closer than `tolerance`, relative to
 * |score| + |bias|; mox_tolerance_keys() is what fp32 needs. The reason why not goes to `why`. */
bool mox_ref_route_accepts(const moxie_routing *routing, int64_t experts, int64_t top_k, const double *logits,
                           int32_t token_id, const int32_t *ids, double tolerance, char *why, size_t why_size);

/* Activation quantizers restated from their definition (docs/quantizers.md), for comparing codes: as
 * mox_act_quant_row. Codes and scales agree bit by bit. */
void mox_ref_act_quant_row(const moxie_quant *quant, float static_scale, float amax, const float *x, int64_t cols,
                           uint8_t *codes, double *scales);

#endif
