/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_topology.h - cores and nodes of memory (NUMA), and thread pools that have their place on them.
 *
 *     node 0: cores 0 1        workers 0 2        experts 0 2 4 ...
 *     node 1: cores 2 3        workers 1 3        experts 1 3 5 ...
 *
 * The files in /sys tell them; where those cannot be read, libhwloc, if the process finds it (libhwloc.so.15).
 * The rules of moxie.h about calls, threads and structs hold here too.
 */
#ifndef MOXIE_TOPOLOGY_H
#define MOXIE_TOPOLOGY_H

#include <moxie/moxie.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The processors that this process may use. */
typedef struct moxie_topology {
    uint32_t struct_size;
    int32_t processors;
    int32_t cores;        /* as many as processors where that is not known */
    int32_t shared_cores; /* cores on which this process may use several processors (hyperthreads) */
    int32_t nodes;        /* of memory that these processors belong to; 1 where that is not known */
    int32_t known;        /* whether cores and nodes are known */
    const char *found_by; /* "hwloc", "/sys", or why they are not known. Static */
} moxie_topology;
#define MOXIE_TOPOLOGY_INIT MOXIE_INIT(moxie_topology)
/* Found once for a process. Thread-safe. */
MOXIE_API moxie_status moxie_topology_info(moxie_topology *out, moxie_error *error);
/* The system's number of node `index`, 0 to nodes - 1; -1: there is none, or nodes are not known. Thread-safe. */
MOXIE_API int32_t moxie_topology_node(int32_t index);

/* moxie_executor_create() with places for the threads. `numa` is one of these:
 *     NULL, "off"    threads run where the system puts them, and memory comes from where it is touched first
 *     "auto"         on a machine with several nodes each thread is pinned to a processor, one a core and on the
 *                    nodes in turn while there are cores. A layer that is prepared on the executor has its experts on
 *                    the nodes in turn, and workers of plans on it prefer the experts of their node. With one node the
 *                    same as "off", as with one thread, or with more threads than processors
 *     "interleave"   threads as with "auto"; each page of the layer's memory is on the next node
 *     "node=N"       all threads are pinned to processors of node N, and the layer's memory is there
 * With 0 threads there is one for each processor that this leaves. The caller's thread is not pinned, since threads
 * that it starts would inherit that. Where the system refuses to pin or to bind memory, results only come later: bits
 * never depend on `numa`. MOXIE_ERR_ARGUMENT: another text, more pinned threads than processors, no such node;
 * MOXIE_ERR_UNSUPPORTED: "node=N", and nodes are not known. Destroy with moxie_executor_destroy(). Thread-safe. */
MOXIE_API moxie_status moxie_executor_create_on(int32_t threads, const char *numa, moxie_executor **out,
                                                moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif
