/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_route_accepts.c - decides whether ids are a right choice of experts.
 *
 * They are, when every chosen expert may precede every later one and every expert that was not chosen. "May precede" is
 * the order of route.h, but both orders are right when fp32 cannot tell (ref_route_order.h). When a group may be in or
 * out, both are tried. With choices per group this holds in each group, and choices come group after group.
 */
#include "ref/ref.h"
#include "ref/ref_route_order.h"

#include <stdio.h>

typedef struct judge {
    const moxie_routing *routing;
    int64_t experts, top_k;
    const int32_t *ids;
    mox_ref_order order;
    char *why;
    size_t why_size;
} judge;

/* ---- the choice, for known groups ---------------------------------------------------------------- */

/* Sets rank[e] to the place of expert e among the chosen, or to top_k. */
static bool ids_are_distinct(const judge *j, int32_t *rank)
{
    for (int64_t e = 0; e < j->experts; e++)
        rank[e] = (int32_t)j->top_k;
    for (int64_t i = 0; i < j->top_k; i++) {
        const int32_t e = j->ids[i];
        const bool exists = e >= 0 && e < j->experts;
        if (!exists || rank[e] < j->top_k) {
            snprintf(j->why, j->why_size, "choice %d is expert %d, which %s", (int)i, (int)e,
                     exists ? "was chosen before" : "does not exist");
            return false;
        }
        rank[e] = (int32_t)i;
    }
    return true;
}

/* Experts that choices are made among: groups with choices of their own, else all. */
static int64_t set_size(const judge *j)
{
    return j->routing->topk_per_group > 0 ? j->experts / j->routing->n_group : j->experts;
}

/* Choice i is of the group whose turn it is. */
static bool turn_is_right(const judge *j)
{
    for (int64_t i = 0; j->routing->topk_per_group > 0 && i < j->top_k; i++)
        if (j->ids[i] / set_size(j) != i / j->routing->topk_per_group) {
            snprintf(j->why, j->why_size, "choice %d is expert %d, which is not of group %d", (int)i, (int)j->ids[i],
                     (int)(i / j->routing->topk_per_group));
            return false;
        }
    return true;
}

static bool choice_is_right(const judge *j, const mox_ref_candidate *all, const int32_t *rank)
{
    for (int64_t i = 0; i < j->top_k; i++) {
        const int64_t a = j->ids[i];
        const int64_t first = a / set_size(j) * set_size(j);
        for (int64_t b = first; b < first + set_size(j); b++) {
            if (rank[b] > i && !mox_ref_may_precede(&j->order, &all[a], a, &all[b], b)) {
                snprintf(j->why, j->why_size, "choice %d is expert %d with key %.9g, but expert %d has key %.9g",
                         (int)i, (int)a, all[a].key, (int)b, all[b].key);
                return false;
            }
        }
    }
    return true;
}

static bool right_with(const judge *j, const mox_ref_candidate *all, const mox_ref_fate *fates, const int32_t *rank)
{
    const double fill = j->routing->group_fill_zero != MOXIE_FILL_LOWEST ? 0 : -INFINITY;
    const int64_t size = j->experts / j->routing->n_group;
    mox_ref_candidate filled[MOXIE_MAX_EXPERTS];
    for (int64_t e = 0; e < j->experts; e++)
        filled[e] = fates[e / size] == MOX_REF_IN || isnan(all[e].key) ? all[e] : (mox_ref_candidate) { fill, fill, 0 };
    return choice_is_right(j, filled, rank);
}

#define MAX_OPEN 12

/* Tries every set of open groups that completes topk_group groups. */
static bool right_in_groups(const judge *j, const mox_ref_candidate *all, const int32_t *rank)
{
    const int64_t n = j->routing->n_group;
    mox_ref_fate tried[MOXIE_MAX_EXPERTS];
    int64_t open[MOXIE_MAX_EXPERTS], n_open = 0, missing = j->routing->topk_group;
    mox_ref_group_fates(j->routing, j->experts, all, &j->order, tried);
    for (int64_t g = 0; g < n; g++) {
        missing -= tried[g] == MOX_REF_IN;
        if (tried[g] == MOX_REF_OPEN)
            open[n_open++] = g;
    }
    if (n_open > MAX_OPEN)
        return true; /* With so many groups that fp32 cannot order, every choice counts as right. */
    for (uint32_t set = 0; set < 1u << n_open; set++) {
        if (__builtin_popcount(set) != missing)
            continue;
        for (int64_t i = 0; i < n_open; i++)
            tried[open[i]] = set >> i & 1 ? MOX_REF_IN : MOX_REF_OUT;
        if (right_with(j, all, tried, rank))
            return true;
    }
    return false;
}

/* ---- the table, and the entry point--------------------------------------------------------------- */

static bool right_by_table(const judge *j, int32_t token_id)
{
    for (int64_t i = 0; i < j->top_k; i++) {
        const bool known = token_id >= 0 && token_id < j->routing->table_rows;
        const int32_t want = known ? j->routing->table[token_id * j->top_k + i] : -1;
        if (j->ids[i] != want) {
            snprintf(j->why, j->why_size, "choice %d is expert %d, but the table says %d for token id %d", (int)i,
                     (int)j->ids[i], (int)want, (int)token_id);
            return false;
        }
    }
    return true;
}

bool mox_ref_route_accepts(const moxie_routing *routing, int64_t experts, int64_t top_k, const double *logits,
                           int32_t token_id, const int32_t *ids, double tolerance, char *why, size_t why_size)
{
    const judge j = { routing, experts, top_k, ids, mox_ref_order_of(routing, tolerance), why, why_size };
    int32_t rank[MOXIE_MAX_EXPERTS];
    mox_ref_candidate all[MOXIE_MAX_EXPERTS];
    if (routing->select == MOXIE_SELECT_TABLE)
        return right_by_table(&j, token_id);
    if (!ids_are_distinct(&j, rank) || !turn_is_right(&j))
        return false;
    mox_ref_candidates(routing, experts, logits, all);
    const bool in_groups = routing->n_group > 1 && routing->topk_per_group == 0;
    return in_groups ? right_in_groups(&j, all, rank) : choice_is_right(&j, all, rank);
}
