/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_loader.h - opens the module that fits the MPI library in this process, at its first use.
 *
 *     MOXIE_MPI_LIBRARY (a path; nothing else is tried)
 *     Open MPI or MPICH among the loaded libraries -> libmoxie_openmpi.so or libmoxie_mpich.so (base/module.h)
 */
#ifndef MOX_COMM_MPI_LOADER_H
#define MOX_COMM_MPI_LOADER_H

#include "comm/mpi/mpi_table.h"

/* MOXIE_ERR_ARGUMENT when there is no MPI library in this process, or none that is initialised; MOXIE_ERR_UNSUPPORTED
 * when the module cannot be opened. Thread-safe. */
moxie_status mox_mpi_open(const mox_mpi_table **out, moxie_error *error);
/* The same for a process that has no MPI yet: the module of the launcher that started it. */
moxie_status mox_mpi_open_for_launch(const mox_mpi_table **out, moxie_error *error);

/* MOXIE_OK when there is a module to open; it is not opened. */
moxie_status mox_mpi_find(moxie_error *error);

/* Body of moxie_comm_mpi_create. part_bytes: of mox_mpi_options; 0 but in tests. */
moxie_status mox_comm_mpi_create(const void *communicator, int32_t deadline_ms, uint64_t part_bytes, moxie_comm **out,
                                 moxie_error *error);
moxie_status mox_comm_mpi_launch(moxie_error *error);
void mox_comm_mpi_finish(void);

#endif
