/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_sockets.h - a transport as a caller could write it: processes with a stream socket between every two of them.
 * Written from include/moxie/moxie_comm.h alone.
 */
#ifndef COMM_SOCKETS_H
#define COMM_SOCKETS_H

#include "test_support.h"

#include <moxie/moxie_comm.h>

/* fds[r] leads to rank r; fds[rank] is not used. They belong to the transport. `sleeps`: it fills wait(). */
moxie_transport comm_sockets_create(int32_t ranks, int32_t rank, const int *fds, bool sleeps);

typedef int comm_process_fn(moxie_comm *comm, void *user);

/* Forks a process for each rank, runs fn there, which destroys its comm, and waits. Returns how many of the processes
 * did not end with fn's 0. */
int comm_run_processes(int32_t ranks, int32_t deadline_ms, bool sleeps, comm_process_fn *fn, void *user);
/* The same, with the transport that `wrap` makes of each. */
typedef moxie_transport comm_wrap_fn(moxie_transport transport, void *user);
int comm_run_faulty_processes(int32_t ranks, int32_t deadline_ms, bool sleeps, comm_wrap_fn *wrap, comm_process_fn *fn,
                              void *user);

#endif
