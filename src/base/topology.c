/* SPDX-License-Identifier: Apache-2.0
 *
 * topology.c - the order of workers, the topology of this process, memory of a node (topology.h). topology_hwloc.c and
 * topology_sys.c find cores and nodes.
 */
#include "base/topology.h"

#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cpu_features.h"

/* ---- places -------------------------------------------------------------------------------------- */

bool mox_topology_allows(const mox_processor_set *allowed, int64_t processor)
{
    if (processor < 0 || processor >= 8 * (int64_t)sizeof allowed->bits)
        return false;
    return allowed == NULL || (allowed->bits[processor / 8] >> processor % 8 & 1) != 0;
}

int32_t mox_topology_node(const mox_topology *t, int32_t number)
{
    for (int32_t i = 0; i < t->nodes; i++)
        if (t->node_number[i] == number)
            return i;
    return -1;
}

static int32_t index_of_node(mox_topology *t, int32_t number)
{
    const int32_t found = mox_topology_node(t, number);
    if (found >= 0 || t->nodes == MOX_MAX_NODES)
        return found >= 0 ? found : 0;
    t->node_number[t->nodes] = number;
    return t->nodes++;
}

bool mox_topology_add(mox_topology *t, int32_t processor, int32_t core, int32_t node_number)
{
    if (t->processors == MOX_MAX_PLACES)
        return false;
    t->places[t->processors++] =
        (mox_place) { .processor = processor, .core = core, .node = index_of_node(t, node_number) };
    return true;
}

int32_t mox_topology_places(const mox_topology *t, int32_t node, mox_place *places)
{
    int32_t count = 0;
    for (int32_t i = 0; t->known && i < t->processors; i++)
        if (node < 0 || t->places[i].node == node)
            places[count++] = t->places[i];
    return count;
}

/* ---- the order of workers ------------------------------------------------------------------------ */

/* Of the places before place i, how many are of its core, or of its node with the same sibling number. */
static int32_t count_before(const mox_topology *t, int32_t i, bool same_core)
{
    int32_t count = 0;
    for (int32_t k = 0; k < i; k++)
        count += same_core ? t->places[k].core == t->places[i].core
                           : t->places[k].node == t->places[i].node && t->places[k].sibling == t->places[i].sibling;
    return count;
}

typedef struct ranked {
    mox_place place;
    int32_t rank; /* among the places of its node with the same sibling number */
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->place.sibling != y->place.sibling)
        return x->place.sibling < y->place.sibling ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->place.node > y->place.node) - (x->place.node < y->place.node);
}

/* Counts cores, and puts the places, which come in the system's order, into that of workers. */
static void order_places(mox_topology *t)
{
    ranked all[MOX_MAX_PLACES];
    for (int32_t i = 0; i < t->processors; i++) {
        t->places[i].sibling = count_before(t, i, true);
        t->cores += t->places[i].sibling == 0;
        t->shared_cores += t->places[i].sibling == 1;
    }
    for (int32_t i = 0; i < t->processors; i++)
        all[i] = (ranked) { t->places[i], count_before(t, i, false) };
    qsort(all, (size_t)t->processors, sizeof *all, by_rank);
    for (int32_t i = 0; i < t->processors; i++)
        t->places[i] = all[i].place;
}

/* ---- this process -------------------------------------------------------------------------------- */

/* Another machine than this one, for tests. */
static bool made_up(void)
{
    return getauxval(AT_SECURE) == 0 && (getenv("HWLOC_SYNTHETIC") || getenv("HWLOC_XMLFILE"));
}

void mox_topology_read(const mox_processor_set *allowed, mox_topology *out)
{
    if (made_up())
        mox_topology_read_hwloc(allowed, out);
    if (!made_up() || !out->known)
        mox_topology_read_sys("/sys/devices/system", allowed, out);
    if (!made_up() && !out->known)
        mox_topology_read_hwloc(allowed, out);
    if (out->known) {
        order_places(out);
        return;
    }
    *out = (mox_topology) { .found_by = out->found_by, .nodes = 1 };
    out->processors = out->cores = mox_processor_count();
}

static mox_topology here;
static pthread_once_t here_once = PTHREAD_ONCE_INIT;

static void find_here(void)
{
    union {
        cpu_set_t set;
        mox_processor_set processors;
    } mask;
    memset(&mask, 0, sizeof mask);
    /* A made-up machine has other processors than those of the mask. */
    const bool masked = sched_getaffinity(0, sizeof mask, &mask.set) == 0;
    mox_topology_read(masked && !made_up() ? &mask.processors : NULL, &here);
    if (masked && made_up() && here.real) /* the file is of this machine */
        mox_topology_read(&mask.processors, &here);
}

const mox_topology *mox_topology_here(void)
{
    pthread_once(&here_once, find_here);
    return &here;
}

/* ---- memory -------------------------------------------------------------------------------------- */

bool mox_topology_bind(void *data, uint64_t bytes, int32_t node)
{
    enum { BITS = 8 * sizeof(unsigned long) };
    const mox_topology *t = mox_topology_here();
    unsigned long mask[1024 / BITS] = { 0 };
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)data + page - 1) / page * page;
    const uintptr_t to = ((uintptr_t)data + bytes) / page * page;
    if (!t->known || !t->real || node >= t->nodes)
        return false;
    for (int32_t i = 0; i < t->nodes; i++)
        if ((node < 0 || i == node) && t->node_number[i] < 1024)
            mask[t->node_number[i] / BITS] |= 1UL << t->node_number[i] % BITS;
    return from >= to || syscall(SYS_mbind, from, to - from, node < 0 ? MPOL_INTERLEAVE : MPOL_PREFERRED, mask, 1025UL,
                                 MPOL_MF_MOVE) == 0;
}
