/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_loader.c - recognizes the MPI library of this process and opens its module (mpi_loader.h).
 *
 * A process may hold MPI without making its names visible to all (Python does so). So libraries are recognized among
 * all loaded ones, by a name that only one of them exports.
 */
#include "comm/mpi_loader.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/module.h"
#include "comm/comm.h"

#define VARIABLE "MOXIE_MPI_LIBRARY"
#define INSTEAD  "use another transport"

typedef struct flavour {
    const char *library;  /* the MPI library */
    const char *telltale; /* only it exports this */
    const char *launched; /* its launcher sets this in the environment */
    mox_module_name module;
} flavour;

#define MODULE(name)                                                                                                   \
    {                                                                                                                  \
        .file = name, .variable = VARIABLE, .needed_by = "a comm over MPI", .build = "-DMOXIE_MPI=ON",                 \
        .instead = INSTEAD                                                                                             \
    }

static const flavour flavours[] = {
    { "Open MPI", "ompi_mpi_comm_world", "OMPI_COMM_WORLD_RANK", MODULE("libmoxie_openmpi.so") },
    { "MPICH", "MPIR_Err_create_code", "PMI_RANK", MODULE("libmoxie_mpich.so") },
};
enum { FLAVOURS = sizeof flavours / sizeof flavours[0], LIBRARIES = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const mox_mpi_table *opened[FLAVOURS + 1]; /* the last: of VARIABLE */

/* ---- what is in this process -------------------------------------------------------------------------- */

typedef struct loaded {
    char name[LIBRARIES][512];
    int n;
} loaded;

/* Of dl_iterate_phdr: keeps the files whose name begins with libmpi. */
static int keep_mpi(struct dl_phdr_info *info, size_t size, void *arg)
{
    loaded *found = arg;
    const char *slash = strrchr(info->dlpi_name, '/');
    (void)size;
    if (slash != NULL && strncmp(slash + 1, "libmpi", 6) == 0 && found->n < LIBRARIES &&
        strlen(info->dlpi_name) < sizeof found->name[0])
        strcpy(found->name[found->n++], info->dlpi_name);
    return 0;
}

/* Calls MPI_Initialized of the library: 1 or 0; -1 when it does not have the telltale name. */
static int initialized_in(void *handle, const flavour *f)
{
    int (*initialized)(int *flag);
    int flag = 0;
    void *symbol = dlsym(handle, "MPI_Initialized");
    if (symbol == NULL || dlsym(handle, f->telltale) == NULL)
        return -1;
    memcpy(&initialized, &symbol, sizeof initialized);
    (void)initialized(&flag);
    return flag != 0;
}

/* 1: the library is here and initialised; 0: it is here; -1: it is not. */
static int state_of(const flavour *f)
{
    loaded found = { .n = 0 };
    int best = initialized_in(RTLD_DEFAULT, f);
    (void)dl_iterate_phdr(keep_mpi, &found);
    for (int i = 0; i < found.n && best < 1; i++) {
        void *handle = dlopen(found.name[i], RTLD_LAZY | RTLD_NOLOAD);
        if (handle == NULL)
            continue;
        const int state = initialized_in(handle, f);
        best = state > best ? state : best;
        dlclose(handle);
    }
    return best;
}

/* ---- opening ------------------------------------------------------------------------------------------ */

static moxie_status open_module(const mox_module_name *name, const mox_mpi_table **out, moxie_error *error)
{
    mox_module module;
    MOX_TRY(mox_module_open(name, &module, error));
    const mox_mpi_table *table = mox_module_table(&module, MOX_MPI_TABLE_SYMBOL);
    if (table != NULL && table->version == MOX_MPI_TABLE_VERSION && table->bytes == sizeof *table) {
        *out = table;
        return MOXIE_OK;
    }
    if (table == NULL)
        (void)mox_fail(MOXIE_ERR_UNSUPPORTED, error, "%s has no " MOX_MPI_TABLE_SYMBOL ": it is no MPI module of moxie",
                       module.path);
    else
        (void)mox_fail(MOXIE_ERR_UNSUPPORTED, error,
                       "%s has table %u of %u bytes, this libmoxie needs %u of %u: install both from one build",
                       module.path, (unsigned)table->version, (unsigned)table->bytes, (unsigned)MOX_MPI_TABLE_VERSION,
                       (unsigned)sizeof *table);
    dlclose(module.handle);
    return MOXIE_ERR_UNSUPPORTED;
}

static moxie_status open_once(int which, const mox_module_name *name, const mox_mpi_table **out, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    pthread_mutex_lock(&lock);
    if (opened[which] == NULL)
        status = open_module(name, &opened[which], error);
    *out = opened[which];
    pthread_mutex_unlock(&lock);
    return status;
}

static bool is_named(void)
{
    const char *wanted = secure_getenv(VARIABLE);
    return wanted != NULL && *wanted != '\0';
}

moxie_status mox_mpi_open(const mox_mpi_table **out, moxie_error *error)
{
    const flavour *here = NULL;
    if (is_named())
        return open_once(FLAVOURS, &flavours[0].module, out, error);
    for (int i = 0; i < FLAVOURS; i++) {
        const int state = state_of(&flavours[i]);
        if (state == 1)
            return open_once(i, &flavours[i].module, out, error);
        if (state == 0)
            here = &flavours[i];
    }
    MOX_FAIL_IF(here != NULL, MOXIE_ERR_ARGUMENT, error,
                "moxie_comm_mpi_create: %s is in this process, but MPI is not initialised; call MPI_Init_thread first",
                here->library);
    return mox_fail(MOXIE_ERR_ARGUMENT, error,
                    "moxie_comm_mpi_create: neither Open MPI nor MPICH is in this process; link the program to one and "
                    "call MPI_Init_thread, or call moxie_comm_mpi_launch, or name a module in " VARIABLE);
}

moxie_status mox_mpi_open_for_launch(const mox_mpi_table **out, moxie_error *error)
{
    if (is_named())
        return open_once(FLAVOURS, &flavours[0].module, out, error);
    for (int i = 0; i < FLAVOURS; i++)
        if (getenv(flavours[i].launched) != NULL)
            return open_once(i, &flavours[i].module, out, error);
    return mox_fail(
        MOXIE_ERR_ARGUMENT, error,
        "moxie_comm_mpi_launch: no launcher started this process: neither %s (Open MPI) nor %s (MPICH) is in "
        "its environment; start it with mpirun -n N, or name a module in " VARIABLE,
        flavours[0].launched, flavours[1].launched);
}

moxie_status mox_mpi_find(moxie_error *error)
{
    for (int i = 0; i < FLAVOURS; i++)
        if (mox_module_exists(&flavours[i].module))
            return MOXIE_OK;
    MOX_FAIL_IF(is_named(), MOXIE_ERR_UNSUPPORTED, error, VARIABLE " is %s, which is no readable file",
                secure_getenv(VARIABLE));
    return mox_fail(MOXIE_ERR_UNSUPPORTED, error,
                    "neither %s nor %s is beside libmoxie or on the loader's path: build it with %s, or name it "
                    "in " VARIABLE,
                    flavours[0].module.file, flavours[1].module.file, flavours[0].module.build);
}

/* ---- the calls ---------------------------------------------------------------------------------------- */

moxie_status mox_comm_mpi_create(const void *communicator, int32_t deadline_ms, uint64_t part_bytes, moxie_comm **out,
                                 moxie_error *error)
{
    const mox_mpi_table *table = NULL;
    moxie_transport transport;
    MOX_TRY(mox_mpi_open(&table, error));
    const mox_mpi_options options = { .alloc = mox_alloc,
                                      .release = mox_free,
                                      .part_bytes = part_bytes,
                                      .deadline_ms = deadline_ms > 0 ? deadline_ms : MOX_COMM_DEADLINE };
    MOX_TRY(table->create(communicator, &options, &transport, error));
    return mox_comm_create(&transport, deadline_ms, out, error);
}

moxie_status mox_comm_mpi_launch(moxie_error *error)
{
    const mox_mpi_table *table = NULL;
    MOX_TRY(mox_mpi_open_for_launch(&table, error));
    return table->launch(error);
}

void mox_comm_mpi_finish(void)
{
    for (int i = 0; i <= FLAVOURS; i++)
        if (opened[i] != NULL)
            opened[i]->finish();
}
