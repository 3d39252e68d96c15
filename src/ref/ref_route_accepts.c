/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_route_accepts.c - decides whether ids are a right choice of experts.
 *
 * They are, when every chosen expert may precede every later one and every expert that was not chosen. "May precede" is
 * the order of route.h, but both orders are right when fp32 cannot tell:
 *
 *     a number before NaN; NaN before NaN by index
 *     equal score and equal bias, or equal infinite keys: by index, since fp32 finds them equal too
 *     |key a - key b| <= tolerance (|score| + |bias| of both) + floor: either way
 *     otherwise the larger key
 *
 * Logits without a bias are exact in fp32, so neither tolerance nor floor applies to them. Scores that round to zero in
 * fp32 are zero here. Groups are ordered in the same way by their scores. When a group may be in or out, both are
 * tried.
 */
#include "ref/ref.h"

#include <stdio.h>

typedef struct candidate {
    double key, score, bias;
} candidate;

typedef struct judge {
    const moxie_routing *routing;
    int64_t experts, top_k;
    const int32_t *ids;
    double tolerance, floor;
    char *why;
    size_t why_size;
} judge;

static bool is_equal(const candidate *a, const candidate *b)
{
    return (a->score == b->score && a->bias == b->bias) || (a->key == b->key && isinf(a->key));
}

static bool is_close(const judge *j, const candidate *a, const candidate *b)
{
    const double magnitude = fabs(a->score) + fabs(a->bias) + fabs(b->score) + fabs(b->bias);
    return j->tolerance > 0 && isfinite(a->key) && isfinite(b->key) &&
           fabs(a->key - b->key) <= j->tolerance * magnitude + j->floor;
}

/* True when candidate a (index ia) may precede b (index ib). */
static bool may_precede(const judge *j, const candidate *a, int64_t ia, const candidate *b, int64_t ib)
{
    if (isnan(a->key) || isnan(b->key))
        return isnan(a->key) && isnan(b->key) ? ia < ib : isnan(b->key);
    if (is_equal(a, b))
        return ia < ib;
    return is_close(j, a, b) || a->key > b->key;
}

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

static bool choice_is_right(const judge *j, const candidate *all, const int32_t *rank)
{
    for (int64_t i = 0; i < j->top_k; i++) {
        const int64_t a = j->ids[i];
        for (int64_t b = 0; b < j->experts; b++) {
            if (rank[b] > i && !may_precede(j, &all[a], a, &all[b], b)) {
                snprintf(j->why, j->why_size, "choice %d is expert %d with key %.9g, but expert %d has key %.9g",
                         (int)i, (int)a, all[a].key, (int)b, all[b].key);
                return false;
            }
        }
    }
    return true;
}

/* ---- groups -------------------------------------------------------------------------------------- */

/* The two best candidates of a group, without tolerance; absent ones have NaN keys. */
typedef struct group {
    candidate best[2];
} group;

static group group_of(const moxie_routing *routing, const candidate *members, int64_t size)
{
    const candidate none = { NAN, NAN, NAN };
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
static candidate sum_of(const group *g)
{
    const candidate *a = &g->best[0], *b = &g->best[1];
    if (isnan(b->key))
        return *a;
    return (candidate) { a->key + b->key, fabs(a->score) + fabs(b->score), fabs(a->bias) + fabs(b->bias) };
}

static bool same_part(const candidate *a, const candidate *b)
{
    return (isnan(a->key) && isnan(b->key)) || is_equal(a, b);
}

static bool group_may_precede(const judge *j, const group *a, int64_t ia, const group *b, int64_t ib)
{
    const candidate sum_a = sum_of(a), sum_b = sum_of(b);
    if (same_part(&a->best[0], &b->best[0]) && same_part(&a->best[1], &b->best[1]))
        return ia < ib;
    /* Sums of exact keys round, too. */
    judge rounding = *j;
    rounding.tolerance = fmax(j->tolerance, 0x1p-22);
    const bool rounded = !isnan(a->best[1].key) || !isnan(b->best[1].key);
    if (isnan(sum_a.key) || isnan(sum_b.key))
        return may_precede(j, &sum_a, ia, &sum_b, ib);
    return is_close(rounded ? &rounding : j, &sum_a, &sum_b) || sum_a.key > sum_b.key ||
           (sum_a.key == sum_b.key && ia < ib);
}

typedef enum fate { OUT, IN, OPEN } fate;

/* A group is in when fewer than topk_group others may precede it, out when at least as many certainly do. */
static fate fate_of(const judge *j, const group *groups, int64_t g)
{
    int64_t may = 0, surely = 0;
    for (int64_t h = 0; h < j->routing->n_group; h++) {
        may += h != g && group_may_precede(j, &groups[h], h, &groups[g], g);
        surely += h != g && !group_may_precede(j, &groups[g], g, &groups[h], h);
    }
    return may < j->routing->topk_group ? IN : surely >= j->routing->topk_group ? OUT : OPEN;
}

static bool right_with(const judge *j, const candidate *all, const fate *fates, const int32_t *rank)
{
    const double fill = j->routing->group_fill_zero ? 0 : -INFINITY;
    const int64_t size = j->experts / j->routing->n_group;
    candidate filled[MOXIE_MAX_EXPERTS];
    for (int64_t e = 0; e < j->experts; e++)
        filled[e] = fates[e / size] == IN || isnan(all[e].key) ? all[e] : (candidate) { fill, fill, 0 };
    return choice_is_right(j, filled, rank);
}

#define MAX_OPEN 12

/* Tries every set of open groups that completes topk_group groups. */
static bool right_in_groups(const judge *j, const candidate *all, const int32_t *rank)
{
    const int64_t n = j->routing->n_group, size = j->experts / n;
    group groups[MOXIE_MAX_EXPERTS];
    fate fates[MOXIE_MAX_EXPERTS], tried[MOXIE_MAX_EXPERTS];
    int64_t open[MOXIE_MAX_EXPERTS], n_open = 0, missing = j->routing->topk_group;
    for (int64_t g = 0; g < n; g++)
        groups[g] = group_of(j->routing, all + g * size, size);
    for (int64_t g = 0; g < n; g++) {
        fates[g] = tried[g] = fate_of(j, groups, g);
        missing -= fates[g] == IN;
        if (fates[g] == OPEN)
            open[n_open++] = g;
    }
    if (n_open > MAX_OPEN)
        return true; /* With so many groups that fp32 cannot order, every choice counts as right. */
    for (uint32_t set = 0; set < 1u << n_open; set++) {
        if (__builtin_popcount(set) != missing)
            continue;
        for (int64_t i = 0; i < n_open; i++)
            tried[open[i]] = set >> i & 1 ? IN : OUT;
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

bool mox_ref_route_accepts(const moxie_routing *routing, int64_t experts, int64_t top_k, const double *logits,
                           int32_t token_id, const int32_t *ids, double tolerance, char *why, size_t why_size)
{
    const bool exact = routing->score == MOXIE_SCORE_LOGIT && !routing->bias;
    const judge j = { routing, experts, top_k, ids, exact ? 0 : tolerance, floor_of(routing->score), why, why_size };
    int32_t rank[MOXIE_MAX_EXPERTS];
    candidate all[MOXIE_MAX_EXPERTS];
    double scores[MOXIE_MAX_EXPERTS];
    if (routing->select == MOXIE_SELECT_TABLE)
        return right_by_table(&j, token_id);
    if (!ids_are_distinct(&j, rank))
        return false;
    moxie_routing unbiased = *routing;
    unbiased.bias = NULL;
    mox_ref_route_keys(&unbiased, experts, logits, scores);
    for (int64_t e = 0; e < experts; e++) {
        const double score = fabs(scores[e]) <= smallest_score(routing->score) ? 0 : scores[e];
        const double bias = routing->bias ? routing->bias[e] : 0;
        all[e] = (candidate) { score + bias, score, bias };
    }
    return routing->n_group > 1 ? right_in_groups(&j, all, rank) : choice_is_right(&j, all, rank);
}
