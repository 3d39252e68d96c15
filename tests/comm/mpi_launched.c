/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_launched.c - a program of mpirun that is linked to libmoxie alone, as the tool is: moxie_comm_mpi_launch starts
 * MPI. Prints the sum of all ranks' numbers.
 */
#include <signal.h>
#include <stdio.h>

#include <moxie/moxie_comm.h>

int main(void)
{
    moxie_comm *comm = NULL;
    moxie_error error;
    int64_t sum = 1;
    moxie_status status = moxie_comm_mpi_launch(&error);
    (void)raise(SIGPIPE); /* as of a connection to a dead rank: it is ignored */
    if (status == MOXIE_OK)
        status = moxie_comm_mpi_create(NULL, NULL, &comm, &error);
    if (status == MOXIE_OK)
        status = moxie_comm_allreduce(comm, &sum, 1, MOXIE_COMM_SUM_I64, &error);
    if (status != MOXIE_OK) {
        printf("%s\n", error.text);
        return 1;
    }
    printf("rank %d: the sum is %d\n", moxie_comm_rank(comm), (int)sum);
    fflush(stdout);
    moxie_comm_destroy(comm);
    moxie_comm_mpi_finish();
    return 0;
}
