/* SPDX-License-Identifier: Apache-2.0
 *
 * eplb.c - DeepSeek's expert load balancer in double precision.
 *
 *     loads of experts -> groups packed onto nodes -> in each node: experts replicated, replicas packed onto ranks
 *
 *     node 0   groups 2, 0 -> experts 4 5 0 1 -> replicas 4 5 0 1 4 5 -> rank 0: 4 0 1   rank 1: 5 4 5
 *
 * Source: deepseek-ai/EPLB, eplb.py. It demands that groups divide the experts, nodes the groups and ranks, and ranks
 * the slots. Here nodes need not divide the ranks, and so on: a node then has room for as many experts as it has slots,
 * and the lightest node is the one with the least load per rank. Sorting is stable (falling load, then rising index),
 * which the original leaves open.
 */
#include "route/eplb.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* ---- packing ----------------------------------------------------------------------------------------- */

typedef struct heavy {
    double weight;
    int32_t index;
} heavy;

static int heavier_first(const void *one, const void *other)
{
    const heavy *a = one, *b = other;
    if (a->weight != b->weight)
        return a->weight > b->weight ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* n items onto m packs. */
typedef struct packing {
    int32_t n, m;
    const double *weight; /* [n] */
    const int32_t *need;  /* [n]: how much room an item takes; NULL: 1 each */
    const double *share;  /* [m]: a pack's load counts divided by it; NULL: as it is */
    int32_t *room;        /* [m], used up */
    double *load;         /* [m], zero at first */
    int32_t *pack_of;     /* [n]; -1: no pack had room */
    int32_t *order;       /* [n]: items in the order in which they were packed */
    heavy *sorted;        /* [n], scratch */
} packing;

static int32_t lightest_with_room(const packing *p, int32_t need)
{
    int32_t best = -1;
    double best_load = INFINITY;
    for (int32_t i = 0; i < p->m; i++) {
        const double load = p->share ? p->load[i] / p->share[i] : p->load[i];
        if (p->room[i] >= need && (best < 0 || load < best_load)) {
            best = i;
            best_load = load;
        }
    }
    return best;
}

static void place(packing *p, int32_t item, int32_t pack, int32_t need)
{
    p->pack_of[item] = pack;
    if (pack < 0)
        return;
    p->load[pack] += p->weight[item];
    p->room[pack] -= need;
}

static bool one_item_a_pack(const packing *p)
{
    for (int32_t i = 0; i < p->m; i++)
        if (p->need || p->room[i] > 1)
            return false;
    return true;
}

static void pack_items(packing *p)
{
    const bool in_order = one_item_a_pack(p);
    for (int32_t i = 0; i < p->n; i++)
        p->sorted[i] = (heavy) { in_order ? 0 : p->weight[i], i };
    qsort(p->sorted, (size_t)p->n, sizeof *p->sorted, heavier_first);
    for (int32_t i = 0, next = 0; i < p->n; i++) {
        const int32_t item = p->sorted[i].index, need = p->need ? p->need[item] : 1;
        while (in_order && p->room[next] == 0)
            next++;
        place(p, item, in_order ? next : lightest_with_room(p, need), need);
        p->order[i] = item;
    }
}

/* ---- scratch and sizes ------------------------------------------------------------------------------- */

typedef struct balancer {
    moxie_eplb_config c;
    bool even; /* the original takes these sizes */
    const int32_t *first_slot;
    int32_t *rank_first;  /* [nodes + 1]: the first rank of every node */
    int32_t *group_first; /* [groups + 1]: the first expert of every group */
    /* of one layer */
    int32_t *expert, *pack_of, *order, *count, *room; /* [slots], or as many of them as needed */
    double *weight, *slot_load, *load, *rank_load, *share;
    heavy *sorted;
    int32_t *node_of, *group_order, *group_need; /* [groups] */
    int32_t *first_try;                          /* [slots] */
} balancer;

static void balancer_free(balancer *b)
{
    void *const blocks[] = { b->rank_first, b->group_first, b->expert,      b->pack_of,    b->order,     b->count,
                             b->room,       b->weight,      b->slot_load,   b->load,       b->rank_load, b->share,
                             b->sorted,     b->node_of,     b->group_order, b->group_need, b->first_try };
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        mox_free(blocks[i]);
}

static moxie_status balancer_alloc(balancer *b, moxie_error *error)
{
    const uint64_t most = (uint64_t)b->c.slots + (uint64_t)b->c.ranks + (uint64_t)b->c.groups + 1;
    int32_t **const numbers[] = { &b->rank_first,  &b->group_first, &b->expert,   &b->pack_of,
                                  &b->order,       &b->count,       &b->room,     &b->node_of,
                                  &b->group_order, &b->group_need,  &b->first_try };
    double **const reals[] = { &b->weight, &b->slot_load, &b->load, &b->rank_load, &b->share };
    bool fine = (b->sorted = mox_calloc(most, sizeof *b->sorted)) != NULL;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        fine = (*numbers[i] = mox_calloc(most, sizeof **numbers[i])) != NULL && fine;
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        fine = (*reals[i] = mox_calloc(most, sizeof **reals[i])) != NULL && fine;
    if (fine)
        return MOXIE_OK;
    balancer_free(b);
    return mox_fail(MOXIE_ERR_MEMORY, error, "EPLB: no memory for maps of %d slots", (int)b->c.slots);
}

static const double max_load = 1e100; /* sums of squares are finite */

moxie_status mox_eplb_config_check(const moxie_eplb_config *c, const double *loads, moxie_error *error)
{
    MOX_FAIL_IF(c->layers < 0 || c->layers > 1 << 20, MOXIE_ERR_ARGUMENT, error,
                "EPLB: %d layers; it must be from 0 to %d", (int)c->layers, 1 << 20);
    MOX_TRY(mox_expert_slots_sizes(c->experts, c->slots, c->ranks, error));
    MOX_FAIL_IF(c->nodes < 0 || c->nodes > c->ranks, MOXIE_ERR_ARGUMENT, error,
                "EPLB: %d nodes for %d ranks; a node has one rank at least", (int)c->nodes, (int)c->ranks);
    MOX_FAIL_IF(c->groups < 0 || c->groups > c->experts, MOXIE_ERR_ARGUMENT, error,
                "EPLB: %d groups of %d experts; a group has one expert at least", (int)c->groups, (int)c->experts);
    MOX_FAIL_IF(c->distinct != 0 && c->distinct != 1, MOXIE_ERR_ARGUMENT, error, "EPLB: distinct is %d, not 0 or 1",
                (int)c->distinct);
    for (int64_t i = 0; i < (int64_t)c->layers * c->experts; i++)
        MOX_FAIL_IF(!(loads[i] >= 0 && loads[i] <= max_load), MOXIE_ERR_ARGUMENT, error,
                    "EPLB: the load of layer %lld, expert %lld is %g; it must be from 0 to %g",
                    (long long)(i / c->experts), (long long)(i % c->experts), loads[i], max_load);
    return MOXIE_OK;
}

/* ---- groups onto nodes ------------------------------------------------------------------------------- */

static int32_t node_slots(const balancer *b, int32_t node)
{
    return b->first_slot[b->rank_first[node + 1]] - b->first_slot[b->rank_first[node]];
}

/* The sums of the groups, their sizes, and what the nodes have room for. */
static void measure_groups(balancer *b, const double *loads)
{
    for (int32_t g = 0; g < b->c.groups; g++) {
        b->weight[g] = 0;
        b->group_need[g] = b->group_first[g + 1] - b->group_first[g];
        for (int32_t e = b->group_first[g]; e < b->group_first[g + 1]; e++)
            b->weight[g] += loads[e];
    }
    for (int32_t k = 0; k < b->c.nodes; k++) {
        b->load[k] = 0;
        b->share[k] = b->rank_first[k + 1] - b->rank_first[k];
        b->room[k] = b->even ? b->c.experts / b->c.nodes : node_slots(b, k);
    }
}

/* Whether every group found a node and every node got one. */
static bool pack_groups(balancer *b, const double *loads)
{
    measure_groups(b, loads);
    packing p = { .n = b->c.groups,
                  .m = b->c.nodes,
                  .weight = b->weight,
                  .need = b->group_need,
                  .share = b->even ? NULL : b->share,
                  .room = b->room,
                  .load = b->load,
                  .pack_of = b->node_of,
                  .order = b->group_order,
                  .sorted = b->sorted };
    if (b->even && b->c.groups == b->c.nodes) /* one group a node: the original leaves them in order */
        for (int32_t g = 0; g < b->c.groups; g++)
            b->node_of[g] = b->group_order[g] = g;
    else
        pack_items(&p);
    for (int32_t k = 0; k < b->c.nodes; k++)
        b->count[k] = 0;
    for (int32_t g = 0; g < b->c.groups; g++) {
        if (b->node_of[g] < 0)
            return false;
        b->count[b->node_of[g]]++;
    }
    for (int32_t k = 0; k < b->c.nodes; k++)
        if (b->count[k] == 0)
            return false;
    return true;
}

/* ---- replicas onto a node's ranks -------------------------------------------------------------------- */

/* Extends the n experts in b->expert to `slots` replicas and gives each its share of the load in b->weight. At most
 * `limit` replicas an expert, as long as one is below. */
static void replicate(balancer *b, const double *loads, int32_t n, int32_t slots, int32_t limit)
{
    for (int32_t i = 0; i < n; i++)
        b->count[i] = 1;
    for (int32_t i = n; i < slots; i++) {
        int32_t best = -1;
        double best_load = -1;
        for (int32_t k = 0; k < n; k++) {
            const double load = loads[b->expert[k]] / b->count[k];
            if (load > best_load && b->count[k] < limit) {
                best = k;
                best_load = load;
            }
        }
        limit = best < 0 ? INT32_MAX : limit;
        best = best < 0 ? 0 : best;
        b->count[best]++;
        b->expert[i] = best; /* its place among the n; turned into the expert below */
    }
    for (int32_t i = slots - 1; i >= 0; i--) {
        const int32_t k = i < n ? i : b->expert[i];
        b->weight[i] = loads[b->expert[k]] / b->count[k];
        b->expert[i] = b->expert[k];
    }
}

/* The n experts in b->expert onto the ranks of a node, `most` slots a rank at most; slots past them stay empty. */
static void pack_node(balancer *b, const double *loads, int32_t n, int32_t node, int32_t most, int32_t *expert_of)
{
    const int32_t first = b->rank_first[node], last = b->rank_first[node + 1];
    int32_t slots = 0, with_slots = 0;
    for (int32_t r = first; r < last; r++) {
        const int32_t own = b->first_slot[r + 1] - b->first_slot[r];
        b->room[r - first] = own < most ? own : most;
        b->load[r - first] = 0;
        slots += b->room[r - first];
        with_slots += own > 0;
    }
    replicate(b, loads, n, slots, b->c.distinct ? with_slots : INT32_MAX);
    packing p = { .n = slots,
                  .m = last - first,
                  .weight = b->weight,
                  .room = b->room,
                  .load = b->load,
                  .pack_of = b->pack_of,
                  .order = b->order,
                  .sorted = b->sorted };
    pack_items(&p);
    for (int32_t r = first; r < last; r++) {
        b->count[r - first] = b->first_slot[r]; /* the next free slot */
        b->rank_load[r] = b->load[r - first];
    }
    for (int32_t slot = b->first_slot[first]; slot < b->first_slot[last]; slot++) {
        expert_of[slot] = -1;
        b->slot_load[slot] = 0;
    }
    for (int32_t i = 0; i < slots; i++) {
        const int32_t slot = b->count[b->pack_of[b->order[i]]]++;
        expert_of[slot] = b->expert[b->order[i]];
        b->slot_load[slot] = b->weight[b->order[i]];
    }
}

/* One try: packed, then improved. Returns the largest load of a rank. */
static double try_node(balancer *b, const double *loads, int32_t n, int32_t node, int32_t most, int32_t *expert_of)
{
    const mox_exchange x = { .first_slot = b->first_slot,
                             .first = b->rank_first[node],
                             .last = b->rank_first[node + 1],
                             .expert_of = expert_of,
                             .slot_load = b->slot_load,
                             .rank_load = b->rank_load,
                             .distinct = b->c.distinct != 0 };
    double max = 0;
    pack_node(b, loads, n, node, most, expert_of);
    mox_exchange_fill(&x, loads, b->expert, n);
    if (b->c.distinct)
        mox_exchange_duplicates(&x);
    if (b->c.distinct || !b->even)
        mox_exchange_largest(&x);
    for (int32_t r = x.first; r < x.last; r++)
        max = b->rank_load[r] > max ? b->rank_load[r] : max;
    return max;
}

/* The n experts in b->expert onto the ranks of a node. Where some ranks have a slot more than others, a second try
 * leaves those slots empty, packs as the original would, and then fills them. It is never worse than the original with
 * fewer slots; one greedy pass over all slots can be. */
static void fill_node(balancer *b, const double *loads, int32_t n, int32_t node, int32_t *expert_of)
{
    const int32_t first = b->rank_first[node], last = b->rank_first[node + 1];
    const int32_t slots = b->first_slot[last] - b->first_slot[first], at = b->first_slot[first];
    const int32_t least = slots / (last - first); /* a rank's slots without the one more */
    const double one_pass = try_node(b, loads, n, node, INT32_MAX, expert_of);
    if (least * (last - first) == slots || least * (last - first) < n)
        return;
    memcpy(b->first_try, expert_of + at, (size_t)slots * sizeof *expert_of);
    if (try_node(b, loads, n, node, least, expert_of) >= one_pass)
        memcpy(expert_of + at, b->first_try, (size_t)slots * sizeof *expert_of);
}

static void balance_layer(balancer *b, const double *loads, int32_t *expert_of)
{
    for (int32_t k = 0; k < b->c.nodes; k++) {
        int32_t n = 0;
        for (int32_t i = 0; i < b->c.groups; i++) {
            const int32_t g = b->group_order[i];
            for (int32_t e = b->group_first[g]; b->node_of[g] == k && e < b->group_first[g + 1]; e++)
                b->expert[n++] = e;
        }
        fill_node(b, loads, n, k, expert_of);
    }
}

/* One group, one node. */
static void balance_globally(balancer *b, const double *loads, int32_t *expert_of)
{
    const moxie_eplb_config asked = b->c;
    int32_t ranks[2] = { 0, asked.ranks }, *rank_first = b->rank_first;
    b->c.nodes = 1;
    b->c.groups = 1;
    b->rank_first = ranks;
    for (int32_t e = 0; e < asked.experts; e++)
        b->expert[e] = e;
    fill_node(b, loads, asked.experts, 0, expert_of);
    b->rank_first = rank_first;
    b->c = asked;
}

moxie_status mox_eplb_balance(const moxie_eplb_config *config, const double *loads, int32_t *expert_of,
                              int32_t *first_slot, int32_t *hierarchical, moxie_error *error)
{
    MOX_TRY(mox_eplb_config_check(config, loads, error));
    balancer b = { .c = *config, .first_slot = first_slot };
    b.c.nodes = b.c.nodes > 0 ? b.c.nodes : 1;
    b.c.groups = b.c.groups > 0 ? b.c.groups : 1;
    const bool by_groups = b.c.groups % b.c.nodes == 0;
    b.even =
        b.c.slots % b.c.ranks == 0 && (!by_groups || (b.c.experts % b.c.groups == 0 && b.c.ranks % b.c.nodes == 0));
    MOX_TRY(balancer_alloc(&b, error));
    mox_expert_slots_first_slots(b.c.slots, b.c.ranks, first_slot);
    mox_expert_slots_first_slots(b.c.ranks, b.c.nodes, b.rank_first);
    mox_expert_slots_first_slots(b.c.experts, b.c.groups, b.group_first);
    for (int32_t l = 0; l < b.c.layers; l++) {
        const double *layer_loads = loads + (int64_t)l * b.c.experts;
        int32_t *map = expert_of + (int64_t)l * b.c.slots;
        const bool fits = by_groups && pack_groups(&b, layer_loads);
        if (fits)
            balance_layer(&b, layer_loads, map);
        else
            balance_globally(&b, layer_loads, map);
        if (hierarchical != NULL)
            hierarchical[l] = fits;
    }
    balancer_free(&b);
    return MOXIE_OK;
}
