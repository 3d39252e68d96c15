/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_eplb.h - DeepSeek's EPLB written down once more, step by step with the original's index arrays, for sizes that
 * the original takes. One layer. Ties are broken the other way than in the library (the last of equal weights is packed
 * first), so that a test on loads without ties shows that their order does not matter.
 *
 * Source: deepseek-ai/EPLB, eplb.py.
 */
#ifndef PLAIN_EPLB_H
#define PLAIN_EPLB_H

#include <stdbool.h>
#include <stdint.h>

enum { PLAIN_MAX = 2048 };

/* balanced_packing: n items onto m packs of n / m. */
static void plain_pack(const double *weight, int n, int m, int *pack_index, int *rank_in_pack)
{
    static bool done[PLAIN_MAX];
    double load[PLAIN_MAX] = { 0 };
    int items[PLAIN_MAX] = { 0 };
    for (int i = 0; i < n; i++) {
        done[i] = false;
        pack_index[i] = i;
        rank_in_pack[i] = 0;
    }
    for (int step = 0; n > m && step < n; step++) {
        int heaviest = -1, pack = -1;
        for (int i = 0; i < n; i++)
            if (!done[i] && (heaviest < 0 || weight[i] >= weight[heaviest]))
                heaviest = i;
        for (int k = 0; k < m; k++)
            if (items[k] < n / m && (pack < 0 || load[k] < load[pack]))
                pack = k;
        done[heaviest] = true;
        pack_index[heaviest] = pack;
        rank_in_pack[heaviest] = items[pack]++;
        load[pack] += weight[heaviest];
    }
}

/* replicate_experts: n experts to p replicas. */
static void plain_replicate(const double *weight, int n, int p, int *phy2log, int *logcnt)
{
    for (int i = 0; i < n; i++) {
        phy2log[i] = i;
        logcnt[i] = 1;
    }
    for (int i = n; i < p; i++) {
        int most = 0;
        for (int e = 1; e < n; e++)
            if (weight[e] / logcnt[e] > weight[most] / logcnt[most])
                most = e;
        phy2log[i] = most;
        logcnt[most]++;
    }
}

/* One node's part of rebalance_experts_hierarchical: its n experts (mlog2log) onto its p slots on `gpus` GPUs. */
static void plain_node(const double *weight, const int *mlog2log, int n, int p, int gpus, int32_t *pphy2log)
{
    static double per_mlog[PLAIN_MAX], per_phy[PLAIN_MAX];
    static int phy2mlog[PLAIN_MAX], mlogcnt[PLAIN_MAX], pack[PLAIN_MAX], place[PLAIN_MAX];
    for (int i = 0; i < n; i++)
        per_mlog[i] = weight[mlog2log[i]];
    plain_replicate(per_mlog, n, p, phy2mlog, mlogcnt);
    for (int i = 0; i < p; i++)
        per_phy[i] = per_mlog[phy2mlog[i]] / mlogcnt[phy2mlog[i]];
    plain_pack(per_phy, p, gpus, pack, place);
    for (int i = 0; i < p; i++)
        pphy2log[pack[i] * (p / gpus) + place[i]] = mlog2log[phy2mlog[i]];
}

/* rebalance_experts: phy2log [p]. */
static void plain_eplb(const double *weight, int experts, int p, int groups, int nodes, int gpus, int32_t *phy2log)
{
    static double per_group[PLAIN_MAX];
    static int pack[PLAIN_MAX], place[PLAIN_MAX], mlog2log[PLAIN_MAX];
    if (groups % nodes != 0)
        groups = nodes = 1;
    const int size = experts / groups;
    for (int g = 0; g < groups; g++) {
        per_group[g] = 0;
        for (int i = 0; i < size; i++)
            per_group[g] += weight[g * size + i];
    }
    plain_pack(per_group, groups, nodes, pack, place);
    for (int e = 0; e < experts; e++) {
        const int g = e / size;
        mlog2log[(pack[g] * (groups / nodes) + place[g]) * size + e % size] = e;
    }
    for (int k = 0; k < nodes; k++)
        plain_node(weight, mlog2log + k * (experts / nodes), experts / nodes, p / nodes, gpus / nodes,
                   phy2log + k * (p / nodes));
}

#endif
