/* SPDX-License-Identifier: Apache-2.0
 *
 * test_mpi_loader.c - what comms over MPI say in a process without MPI, and of files that are no module of moxie.
 */
#include "test_support.h"

#include <moxie/moxie_comm.h>

#include "comm/mpi_loader.h"

static moxie_error error;

static moxie_status create(void)
{
    moxie_comm *comm = NULL;
    memset(&error, 0, sizeof error);
    const moxie_status status = moxie_comm_mpi_create(NULL, NULL, &comm, &error);
    assert_null(comm);
    assert_int_equal(error.code, status);
    return status;
}

static void without_mpi(void **state)
{
    (void)state;
    unsetenv("MOXIE_MPI_LIBRARY");
    assert_int_equal(create(), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "neither Open MPI nor MPICH is in this process"));
    assert_int_equal(moxie_comm_mpi_create(NULL, NULL, NULL, &error), MOXIE_ERR_ARGUMENT);
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    moxie_comm *comm = NULL;
    options.deadline_ms = -1;
    assert_int_equal(moxie_comm_mpi_create(NULL, &options, &comm, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "deadline_ms is -1"));
}

static void without_a_launcher(void **state)
{
    (void)state;
    unsetenv("MOXIE_MPI_LIBRARY");
    unsetenv("OMPI_COMM_WORLD_RANK");
    unsetenv("PMI_RANK");
    assert_int_equal(moxie_comm_mpi_launch(&error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "no launcher started this process"));
    moxie_comm_mpi_finish(); /* nothing was started: nothing happens */
}

static void wrong_files(void **state)
{
    (void)state;
    setenv("MOXIE_MPI_LIBRARY", "/nowhere/module.so", 1);
    assert_int_equal(create(), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "MOXIE_MPI_LIBRARY is /nowhere/module.so, which cannot be opened"));
    assert_int_equal(moxie_comm_mpi_launch(&error), MOXIE_ERR_UNSUPPORTED);
    setenv("MOXIE_MPI_LIBRARY", "libm.so.6", 1);
    assert_int_equal(create(), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "libm.so.6 has no mox_mpi_table_get: it is no MPI module of moxie"));
    unsetenv("MOXIE_MPI_LIBRARY");
    setenv("PMI_RANK", "0", 1); /* the module of that launcher is not beside this program */
    const moxie_status status = moxie_comm_mpi_launch(&error);
    unsetenv("PMI_RANK");
    assert_int_equal(status, MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "libmoxie_mpich.so, which is neither beside libmoxie nor on the loader's path"));
}

static moxie_transport_info mpi_row(void)
{
    moxie_transport_info row = MOXIE_TRANSPORT_INFO_INIT;
    for (int32_t i = 0; moxie_transport_at(i, &row); i++)
        if (strcmp(row.name, "mpi") == 0)
            return row;
    fail_msg("no transport is called mpi");
    return row;
}

static void the_list_says_what_is_missing(void **state)
{
    (void)state;
    setenv("MOXIE_MPI_LIBRARY", "/nowhere/module.so", 1);
    moxie_transport_info row = mpi_row();
    assert_int_equal(row.usable, 0);
    assert_non_null(strstr(row.missing, "MOXIE_MPI_LIBRARY is /nowhere/module.so"));
    unsetenv("MOXIE_MPI_LIBRARY");
    row = mpi_row(); /* nothing is beside this program */
    assert_true(row.usable || strstr(row.missing, "neither libmoxie_openmpi.so nor libmoxie_mpich.so"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_mpi),
        cmocka_unit_test(without_a_launcher),
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(the_list_says_what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
