/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_library.c - opens libnccl.so.2 and looks up its functions (nccl_library.h).
 */
#include "comm/nccl/nccl_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "base/module.h"

static const mox_module_name name = { .file = "libnccl.so.2",
                                      .variable = "MOXIE_NCCL_LIBRARY",
                                      .needed_by = "a comm over NCCL",
                                      .build = "NVIDIA's package of NCCL 2.18 or later",
                                      .instead = "use another transport" };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static mox_module module;
static mox_nccl_library library;
static moxie_status opened;
static moxie_error failure;

static moxie_status look_up(void)
{
    const struct {
        const char *symbol;
        void *function; /* address of the field */
    } functions[] = { { "ncclGetVersion", &library.get_version },
                      { "ncclGetUniqueId", &library.get_id },
                      { "ncclCommInitRankConfig", &library.comm_init },
                      { "ncclCommFinalize", &library.comm_finalize },
                      { "ncclCommDestroy", &library.comm_destroy },
                      { "ncclCommAbort", &library.comm_abort },
                      { "ncclCommGetAsyncError", &library.comm_async },
                      { "ncclGetErrorString", &library.error_string },
                      { "ncclGetLastError", &library.last_error },
                      { "ncclGroupStart", &library.group_start },
                      { "ncclGroupEnd", &library.group_end },
                      { "ncclSend", &library.send },
                      { "ncclRecv", &library.recv } };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *found = dlsym(module.handle, functions[i].symbol);
        MOX_FAIL_IF(found == NULL, MOXIE_ERR_UNSUPPORTED, &failure,
                    "%s has no %s: it is no NCCL, or one before 2.18; install NCCL 2.18 or later", module.path,
                    functions[i].symbol);
        memcpy(functions[i].function, &found, sizeof found); /* C has no cast from object to function pointers */
    }
    return MOXIE_OK;
}

static moxie_status open_library(void)
{
    MOX_TRY(mox_module_open(&name, &module, &failure));
    MOX_TRY(look_up());
    const int code = library.get_version(&library.version);
    MOX_FAIL_IF(code != MOX_NCCL_SUCCESS || library.version < MOX_NCCL_VERSION, MOXIE_ERR_UNSUPPORTED, &failure,
                "%s is NCCL %d.%d; a comm needs 2.18 or later", module.path, library.version / 10000,
                library.version / 100 % 100);
    return MOXIE_OK;
}

static void find(void)
{
    opened = open_library();
}

moxie_status mox_nccl_open(const mox_nccl_library **out, moxie_error *error)
{
    pthread_once(&once, find);
    if (opened != MOXIE_OK) {
        if (error != NULL)
            *error = failure;
        return opened;
    }
    *out = &library;
    return MOXIE_OK;
}

moxie_status mox_nccl_find(moxie_error *error)
{
    MOX_FAIL_IF(!mox_module_exists(&name), MOXIE_ERR_UNSUPPORTED, error,
                "%s is neither beside libmoxie nor on the loader's path: install %s, or name the file in %s", name.file,
                name.build, name.variable);
    return MOXIE_OK;
}
