/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_table.h - what libmoxie uses of libmoxie_openmpi.so and libmoxie_mpich.so, as C function pointers. Both are built
 * from src/comm/mpi, each with the headers of its MPI library. libmoxie opens one of them (mpi_loader.h) and links no
 * MPI itself. The table is private to libraries of one build: libmoxie rejects one of another version or size.
 */
#ifndef MOX_COMM_MPI_TABLE_H
#define MOX_COMM_MPI_TABLE_H

#include "base/status.h"

#include <moxie/moxie_comm.h>

#define MOX_MPI_TABLE_VERSION 2

/* What a module gets from libmoxie. */
typedef struct mox_mpi_options {
    void *(*alloc)(uint64_t size); /* mox_alloc, mox_free: memory.h */
    void (*release)(void *block);
    uint64_t part_bytes; /* a longer message is split into parts of so many; 0 means 1 GiB. The same on all ranks */
    int32_t deadline_ms; /* how long creation waits for the other ranks */
} mox_mpi_options;

typedef struct mox_mpi_table {
    uint32_t version, bytes; /* MOX_MPI_TABLE_VERSION, sizeof(mox_mpi_table) */
    const char *built;       /* the MPI library whose headers it was compiled with */
    /* Fills a transport over a duplicate of *communicator (an MPI_Comm; NULL: MPI_COMM_WORLD). MOXIE_ERR_ARGUMENT when
     * MPI is not initialised. Collective. */
    moxie_status (*create)(const void *communicator, const mox_mpi_options *options, moxie_transport *out,
                           moxie_error *error);
    /* MPI_Init_thread, and MPI_Finalize: for programs that do not call MPI (moxie_comm_mpi_launch). */
    moxie_status (*launch)(moxie_error *error);
    void (*finish)(void);
} mox_mpi_table;

/* The only export of a module. */
#define MOX_MPI_TABLE_SYMBOL "mox_mpi_table_get"
const mox_mpi_table *mox_mpi_table_get(void);

#endif
