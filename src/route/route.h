/* SPDX-License-Identifier: Apache-2.0
 *
 * route.h - routing: one function for every routing method, expert maps, and the permutation that groups pairs
 * (token, choice) by expert.
 *
 * Arithmetic is fp32 throughout. Keys decide the selection; weights are computed separately:
 *     logit[e] = rounded to bf16, then softcap tanh(logit / softcap), where the routing asks for it
 *     score[e] = logit | softmax | sigmoid | sqrt(softplus)
 *     key[e]   = score[e] + bias[e]
 *     groups   : only the topk_group best take part; a group's score is its largest key, or the sum of its two largest;
 *                or each group gives topk_per_group choices of its own, group after group
 *     ids      = the K largest keys, descending, ties to the lower index
 *     weight   = score[id] | softmax over chosen logits | sigmoid(chosen logit); then norm, scale, per-expert scale
 *
 * A NaN key sorts below every number, also below -inf. It is chosen only when fewer than K numbers are left, and then
 * with weight 0. A softmax and a group's score ignore it. A softmax with infinite logits is its limit: entries of +inf
 * share evenly, and so do all entries when all are -inf. A norm over infinite weights is its limit, too.
 *
 * "E" here counts zero experts as well: they have logits, keys and ids like others.
 */
#ifndef MOX_ROUTE_ROUTE_H
#define MOX_ROUTE_ROUTE_H

#include "base/status.h"
#include "format/format.h"

/* Checks a routing description for E experts and K choices; the error names the broken rule. A field that the selection
 * does not read must have its neutral value, so that no request is ignored silently. */
moxie_status mox_routing_check(const moxie_routing *routing, int64_t experts, int64_t top_k, moxie_error *error);
/* Sets every field: from the method's row, or to its neutral value. */
moxie_status mox_routing_by_name(const char *name, moxie_routing *routing, moxie_error *error);
/* A short description for plans: "softmax top-4, renormalised". Returns `buffer`. */
const char *mox_routing_describe(const moxie_routing *routing, int64_t experts, int64_t top_k, char *buffer,
                                 size_t size);

/* Name of row i of routing_methods.def; NULL past the last. Immutable. */
const char *mox_routing_name_at(int32_t i);
/* The number of a method, or -1; and the first method with a number, or NULL. */
int32_t mox_routing_number(const char *name, moxie_routing_numbering numbering);
const char *mox_routing_name_of(int32_t number, moxie_routing_numbering numbering);
/* moxie_routing_method_type() and moxie_routing_number_of(). */
int32_t mox_routing_method_type(const char *scoring_func, int64_t top_k, bool renormalize, int32_t groups, bool biased,
                                moxie_routing_numbering numbering);
int32_t mox_routing_number_of(const moxie_routing *routing, int64_t top_k, moxie_routing_numbering numbering);

/* Routes one token. logits f32 [E] (already widened; rounded here if the routing asks for it). `token` is
 * the token's index in the batch (simulated strategies draw from seed and token), token_id its
 * vocabulary id (table routing; without a row in the table every id is -1). ids [K], weights [K]. Uses only
 * the stack. `routing` has passed mox_routing_check(). Not for
 * MOXIE_SELECT_CUSTOM. */
void mox_route_token(const moxie_routing *routing, int64_t experts, int64_t top_k, const float *logits, int64_t token,
                     int32_t token_id, int32_t *ids, float *weights);

/* The choice of the simulated strategies, before norm and scales. */
void mox_route_simulate(const moxie_routing *routing, int64_t experts, int64_t top_k, int64_t token, int32_t *ids,
                        float *weights);

uint32_t mox_pack_choice(int32_t id, float weight);
void mox_unpack_choice(uint32_t packed, int32_t *id, float *weight);

/* moxie_expert_map(). */
moxie_status mox_expert_map(moxie_expert_map_kind kind, int32_t experts, int32_t ranks, int32_t rank, int32_t *local,
                            int32_t *count, moxie_error *error);

/* Pairs p = (t, j) grouped by slot; inside a slot in token order, then slot order j.
 *   ids [T,K]; slot_of [E]: slot of each global expert or -1 (not local); slots S
 *   offsets [S+1]: pairs of slot s are [offsets[s], offsets[s+1]);  offsets[S] = local pairs
 *   pair_at [T*K]: pair_at[p] = t*K + j for p < offsets[S], the rest is not written
 *   position [T*K]: position[t*K+j] = p, or -1 when skipped: an id outside [0, E), or not local */
typedef struct mox_permutation {
    int64_t *offsets;
    int64_t *pair_at;
    int64_t *position;
} mox_permutation;
void mox_permute(const int32_t *ids, int64_t tokens, int64_t top_k, int64_t experts, const int32_t *slot_of,
                 int64_t slots, mox_permutation *out);

#endif
