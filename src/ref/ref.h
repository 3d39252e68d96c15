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

/* Resolved parameters of an activation for one expert (scalar or per-expert array). */
typedef struct mox_ref_act {
    int32_t kind;
    double alpha, beta, gate_limit, up_limit; /* +inf when there is no limit */
} mox_ref_act;
mox_ref_act mox_ref_act_resolve(const moxie_activation *activation, int64_t expert);

/* act(g, u); `u` is ignored by ungated kinds. *sensitivity receives a bound on |d act| per relative
 * rounding unit of the f32 evaluation: the sum of the magnitudes that a straightforward f32 evaluation
 * rounds. A kernel passes when |got - act| <= c * 2^-24 * sensitivity (+ half an ulp of its output type). */
double mox_ref_activate(const mox_ref_act *act, double g, double u, double *sensitivity);

/* The whole activation of one row, gate and up as halves [I | I] or interleaved g0,u0,g1,u1. */
void mox_ref_glu_row(const mox_ref_act *act, int interleaved, const double *h, int64_t intermediate, double *out,
                     double *sensitivity);

/* Independent routing in double: scores and keys of all experts, the weights that chosen ids must have.
 * keys [E], and weights [K] for the given ids. */
void mox_ref_route_keys(const moxie_routing *routing, int64_t experts, const double *logits, double *keys);
void mox_ref_route_weights(const moxie_routing *routing, int64_t experts, int64_t top_k, const double *logits,
                           const int32_t *ids, double *weights);
/* True when `ids` (descending by key) is a right choice up to keys closer than `tolerance` (relative). The
 * reason why not goes to `why`. For every selection but custom and simulated. */
bool mox_ref_route_accepts(const moxie_routing *routing, int64_t experts, int64_t top_k, const double *logits,
                           int32_t token_id, const int32_t *ids, double tolerance, char *why, size_t why_size);

/* Activation quantizers restated from their definition, for comparing codes: as mox_act_quant_row. */
void mox_ref_act_quant_row(const moxie_quant *quant, float given, float amax, const float *x, int64_t cols,
                           uint8_t *codes, double *scales);

#endif
