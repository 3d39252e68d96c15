/* SPDX-License-Identifier: Apache-2.0
 *
 * topology.h - which processors share a core, and which cores share memory (a NUMA node).
 *
 *     node 0                node 1                places, in the order in which workers get them:
 *     core 0     core 1     core 2     core 3     first one processor of each core, the nodes in turn:   0 4 2 6
 *     cpu 0 1    cpu 2 3    cpu 4 5    cpu 6 7    then the cores' other processors, likewise:            1 5 3 7
 *
 * The files under /sys say it, without an allocation. Without them libhwloc does, opened at run time; without that too,
 * every processor counts as a core, all on one node. Only processors that this process may use are listed (its affinity
 * mask, which cpusets of a container narrow). HWLOC_SYNTHETIC ("numa:2 core:2 pu:2") and HWLOC_XMLFILE give another
 * machine, for tests: then libhwloc is asked, and nothing is pinned or bound. It is not asked otherwise, since it ends
 * the process where memory runs out.
 *
 * In the flow: cpu_features (how many) -> topology (where) -> executor (workers on places), layer (records on nodes).
 */
#ifndef MOX_BASE_TOPOLOGY_H
#define MOX_BASE_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

#define MOX_MAX_NODES  64
#define MOX_MAX_PLACES 1024

typedef struct mox_place {
    int32_t processor; /* the system's number */
    int32_t core;      /* the same number for processors of one core */
    int32_t node;      /* counted from 0: an index of node_number */
    int32_t sibling;   /* how many places of its core come before it */
} mox_place;

typedef struct mox_topology {
    const char *found_by; /* "hwloc", "/sys", or why it is not known; static */
    bool known, real;     /* real: this machine's, so threads may be pinned and memory bound */
    int32_t processors, cores, nodes;
    int32_t shared_cores;               /* cores of which this process may use several processors */
    int32_t node_number[MOX_MAX_NODES]; /* the system's */
    mox_place places[MOX_MAX_PLACES];   /* [processors] in the order of workers, where it is known */
} mox_topology;

/* Which processors count: bit i of bits[i / 8]. */
typedef struct mox_processor_set {
    unsigned char bits[8192];
} mox_processor_set;

/* This process's, found once, then constant. Thread-safe. */
const mox_topology *mox_topology_here(void);
/* The first places on node `node` (an index; -1: on all) in the order of workers, in places[0 .. count), which has room
 * for topology->processors. Returns how many. */
int32_t mox_topology_places(const mox_topology *topology, int32_t node, mox_place *places);
/* The index of the node that the system calls `number`; -1: this process may use no processor of such a node. */
int32_t mox_topology_node(const mox_topology *topology, int32_t number);

/* Asks the system to keep whole pages of [data, data + bytes) on node `node`, an index of mox_topology_here(), or, with
 * -1, on all its nodes page by page. Pages that exist move. A full node's pages go to others. False: not this machine,
 * or the system refused (a container may). Thread-safe. */
bool mox_topology_bind(void *data, uint64_t bytes, int32_t node);

/* ---- readers, and what they share; for topology*.c and tests ---- */

/* Reads anew; `allowed` NULL: all. */
void mox_topology_read(const mox_processor_set *allowed, mox_topology *out);
void mox_topology_read_sys(const char *root, const mox_processor_set *allowed, mox_topology *out);
void mox_topology_read_hwloc(const mox_processor_set *allowed, mox_topology *out);
bool mox_topology_allows(const mox_processor_set *allowed, int64_t processor);
/* Adds a processor of the node that the system calls `node_number`. False: there are MOX_MAX_PLACES. */
bool mox_topology_add(mox_topology *topology, int32_t processor, int32_t core, int32_t node_number);

#endif
