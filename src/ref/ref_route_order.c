/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_route_order.c - which of two experts, or of two groups of experts, may come first (ref_route_order.h):
 *
 *     a number before NaN; NaN before NaN by index
 *     equal score and equal bias, or equal infinite keys: by index, since fp32 finds them equal too
 *     |key a - key b| <= tolerance (|score| + |bias| of both) + floor: either way
 *     otherwise the larger key
 *
 * Logits without a bias are exact in fp32, so neither tolerance nor floor applies to them. Scores that round to zero in
 * fp32 are zero here. Groups are ordered in the same way by their scores.
 */
#include "ref/ref_route_order.h"

#include "ref/ref_bounds.h"

static bool is_equal(const mox_ref_candidate *a, const mox_ref_candidate *b)
{
    return (a->score == b->score && a->bias == b->bias) || (a->key == b->key && isinf(a->key));
}

static bool is_close(const mox_ref_order *order, const mox_ref_candidate *a, const mox_ref_candidate *b)
{
    const double magnitude = fabs(a->score) + fabs(a->bias) + fabs(b->score) + fabs(b->bias);
    return order->tolerance > 0 && isfinite(a->key) && isfinite(b->key) &&
           fabs(a->key - b->key) <= order->tolerance * magnitude + order->floor;
}

bool mox_ref_may_precede(const mox_ref_order *order, const mox_ref_candidate *a, int64_t ia, const mox_ref_candidate *b,
                         int64_t ib)
{
    if (isnan(a->key) || isnan(b->key))
        return isnan(a->key) && isnan(b->key) ? ia < ib : isnan(b->key);
    if (is_equal(a, b))
        return ia < ib;
    return is_close(order, a, b) || a->key > b->key;
}

/* ---- groups -------------------------------------------------------------------------------------- */

/* The two best candidates of a group, without tolerance; absent ones have NaN keys. */
typedef struct group {
    mox_ref_candidate best[2];
} group;

static group group_of(const moxie_routing *routing, const mox_ref_candidate *members, int64_t size)
{
    const mox_ref_candidate none = { NAN, NAN, NAN };
    group g = { { none, none } };
    for (int64_t i = 0; i < size; i++) {
        if (isnan(members[i].key))
            continue;
        if (isnan(g.best[0].key) || members[i].key > g.best[0].key) {
            g.best[1] = g.best[0];
            g.best[0] = members[i];
        } else if (isnan(g.best[1].key) || members[i].key > g.best[1].key) {
            g.best[1] = members[i];
        }
    }
    if (routing->group_score == MOXIE_GROUP_MAX)
        g.best[1] = none;
    return g;
}

/* A group as a candidate: the sum of its best ones. */
static mox_ref_candidate sum_of(const group *g)
{
    const mox_ref_candidate *a = &g->best[0], *b = &g->best[1];
    if (isnan(b->key))
        return *a;
    return (mox_ref_candidate) { a->key + b->key, fabs(a->score) + fabs(b->score), fabs(a->bias) + fabs(b->bias) };
}

static bool same_part(const mox_ref_candidate *a, const mox_ref_candidate *b)
{
    return (isnan(a->key) && isnan(b->key)) || is_equal(a, b);
}

static bool group_may_precede(const mox_ref_order *order, const group *a, int64_t ia, const group *b, int64_t ib)
{
    const mox_ref_candidate sum_a = sum_of(a), sum_b = sum_of(b);
    if (same_part(&a->best[0], &b->best[0]) && same_part(&a->best[1], &b->best[1]))
        return ia < ib;
    /* Sums of exact keys round, too. */
    mox_ref_order rounding = *order;
    rounding.tolerance = fmax(order->tolerance, 0x1p-22);
    const bool rounded = !isnan(a->best[1].key) || !isnan(b->best[1].key);
    if (isnan(sum_a.key) || isnan(sum_b.key))
        return mox_ref_may_precede(order, &sum_a, ia, &sum_b, ib);
    return is_close(rounded ? &rounding : order, &sum_a, &sum_b) || sum_a.key > sum_b.key ||
           (sum_a.key == sum_b.key && ia < ib);
}

static mox_ref_fate fate_of(const moxie_routing *routing, const mox_ref_order *order, const group *groups, int64_t g)
{
    int64_t may = 0, surely = 0;
    for (int64_t h = 0; h < routing->n_group; h++) {
        may += h != g && group_may_precede(order, &groups[h], h, &groups[g], g);
        surely += h != g && !group_may_precede(order, &groups[g], g, &groups[h], h);
    }
    return may < routing->topk_group ? MOX_REF_IN : surely >= routing->topk_group ? MOX_REF_OUT : MOX_REF_OPEN;
}

void mox_ref_group_fates(const moxie_routing *routing, int64_t experts, const mox_ref_candidate *all,
                         const mox_ref_order *order, mox_ref_fate *fates)
{
    const int64_t size = experts / routing->n_group;
    group groups[MOXIE_MAX_EXPERTS];
    for (int64_t g = 0; g < routing->n_group; g++)
        groups[g] = group_of(routing, all + g * size, size);
    for (int64_t g = 0; g < routing->n_group; g++)
        fates[g] = fate_of(routing, order, groups, g);
}

/* ---- candidates ----------------------------------------------------------------------------------- */

/* Scores up to this are zero in fp32. */
static double smallest_score(int32_t score)
{
    return score == MOXIE_SCORE_LOGIT ? 0 : score == MOXIE_SCORE_SQRTSOFTPLUS ? 0x1p-76 : 0x1p-152;
}

/* Scores closer than this may be equal in fp32, or in a form that underflows early (1 / (1 + e^-x)). */
static double floor_of(int32_t score)
{
    return score == MOXIE_SCORE_LOGIT ? 0 : score == MOXIE_SCORE_SQRTSOFTPLUS ? 0x1p-73 : 0x1p-125;
}

mox_ref_order mox_ref_order_of(const moxie_routing *routing, double tolerance)
{
    const bool exact = routing->score == MOXIE_SCORE_LOGIT && !routing->bias && routing->softcap == 0;
    /* A capped logit is off by up to MOX_REF_CAP_ERROR cap; so is the exponent of a score. */
    const double capped =
        routing->score == MOXIE_SCORE_LOGIT ? MOX_REF_CAP_ERROR : MOX_REF_CAP_ERROR * routing->softcap;
    const double cap = routing->softcap != 0 && tolerance > 0 ? 2 * capped : 0;
    return (mox_ref_order) { exact ? 0 : tolerance + cap, floor_of(routing->score) };
}

void mox_ref_candidates(const moxie_routing *routing, int64_t experts, const double *logits, mox_ref_candidate *all)
{
    double scores[MOXIE_MAX_EXPERTS];
    moxie_routing unbiased = *routing;
    unbiased.bias = NULL;
    mox_ref_route_keys(&unbiased, experts, logits, scores);
    for (int64_t e = 0; e < experts; e++) {
        const double score = fabs(scores[e]) <= smallest_score(routing->score) ? 0 : scores[e];
        const double bias = routing->bias ? routing->bias[e] : 0;
        all[e] = (mox_ref_candidate) { score + bias, score, bias };
    }
}
