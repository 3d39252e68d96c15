/* SPDX-License-Identifier: Apache-2.0
 *
 * ref.h - the oracle: every stage of the layer in double precision, obvious and slow.
 *
 * A stage gets the same rounded inputs as the kernel under test. It returns the result in double, and a magnitude (for
 * a product: sum |x||w|). The caller derives a bound from it and from the length of the sum (ref_bounds.h):
 *
 *     |kernel - oracle| <= bound
 *
 * The oracle shares no arithmetic with the kernels except the formulas of activations (src/activation), which it
 * evaluates in double. Weights are read element by element from the checkpoint's views.
 */
#ifndef MOX_REF_REF_H
#define MOX_REF_REF_H

#include "quant/quant.h"
#include "route/route.h"

/* out[n] = sum_k w[n,k] x[k] + b[n];  magnitude[n] = sum_k |w[n,k]| |x[k]| + |b[n]|.
 * x [K]. */
void mox_ref_matvec(const moxie_matrix *matrix, const moxie_quant *quant, const double *x, double *out,
                    double *magnitude);

/* Decodes row n of the matrix to row [K], for callers that multiply it by many x. */
void mox_ref_weight_row(const moxie_matrix *matrix, const moxie_quant *quant, int64_t n, double *row);

/* Magnitudes of what block types subtract from each weight of row n, M of mox_bound_minimums(); zeros for other types.
 * row [K]. */
void mox_ref_minimum_row(const moxie_matrix *matrix, int64_t n, double *row);

/* Resolved parameters of an activation for one expert (scalar or per-expert array); expert < 0: only the scalars. */
typedef struct mox_ref_act {
    int32_t kind;
    double alpha, beta, gate_limit, up_limit; /* +inf when there is no limit */
} mox_ref_act;
mox_ref_act mox_ref_act_resolve(const moxie_activation *activation, int64_t expert);

/* act(g, u); ungated kinds ignore `u`. *sensitivity states how far an fp32 evaluation may be off (ref_activate.c). A
 * kernel passes when |got - act| <= mox_bound_act(sensitivity) + half an ulp of its output type. NaN for unknown kinds.
 */
double mox_ref_activate(const mox_ref_act *act, double g, double u, double *sensitivity);

/* The activation of one row h: [gate I | up I], or interleaved g0,u0,g1,u1. */
void mox_ref_glu_row(const mox_ref_act *act, int interleaved, const double *h, int64_t intermediate, double *out,
                     double *sensitivity);

/* Independent routing in double, for every selection but custom and simulated: keys [E] of all experts (before
 * groups), and the weights [K] that chosen ids must have, NOT rounded to bf16 when the routing asks for it. */
void mox_ref_route_keys(const moxie_routing *routing, int64_t experts, const double *logits, double *keys);
void mox_ref_route_weights(const moxie_routing *routing, int64_t experts, int64_t top_k, const double *logits,
                           const int32_t *ids, double *weights);
/* The bound of a correct fp32 evaluation for the same ids: its distance from each weight, with its rounding to bf16.
 * Infinite when fp32 cannot decide (the sum that renormalises is near 0). */
void mox_ref_route_weight_bounds(const moxie_routing *routing, int64_t experts, int64_t top_k, const double *logits,
                                 const int32_t *ids, double *bounds);
/* True when `ids` (descending by key) is a right choice. Keys closer than `tolerance`, relative to |score| + |bias|,
 * may be in either order; mox_tolerance_keys() is the tolerance for fp32. If false, `why` gets the reason. */
bool mox_ref_route_accepts(const moxie_routing *routing, int64_t experts, int64_t top_k, const double *logits,
                           int32_t token_id, const int32_t *ids, double tolerance, char *why, size_t why_size);

/* The norm of a row x [n] (moxie_row_norm) in double. `weight` [n] has weight_add in it; NULL: 1. The scale q of a row,
 * and by how much an fp32 evaluation's results may differ, relative to them; then element k, and its bound. */
typedef struct mox_ref_norm {
    const float *weight;
    bool weight_first;
    double eps, factor;
} mox_ref_norm;
double mox_ref_row_norm_scale(const mox_ref_norm *norm, const float *x, int64_t n, double *relative);
double mox_ref_row_norm_element(const mox_ref_norm *norm, const float *x, int64_t k, double scale);
double mox_ref_row_norm_bound(const mox_ref_norm *norm, int64_t k, double want, double scale, double relative);

/* Activation quantizers restated from their definition (docs/quantizers.md), for comparing codes: as
 * mox_act_quant_row. Codes and scales agree bit by bit. */
void mox_ref_act_quant_row(const moxie_quant *quant, float static_scale, float amax, const float *x, int64_t cols,
                           uint8_t *codes, double *scales);

#endif
