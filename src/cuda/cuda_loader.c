/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_loader.c - finds libmoxie_cuda.so, checks that its table is of this build, and never closes it: its kernels may
 * run until the process ends.
 */
#include "cuda/cuda_loader.h"

#include <dlfcn.h>
#include <pthread.h>

#include "base/module.h"

static const mox_module_name name = { .file = "libmoxie_cuda.so",
                                      .variable = "MOXIE_CUDA_LIBRARY",
                                      .needed_by = "the cuda back end",
                                      .build = "-DMOXIE_CUDA=ON",
                                      .instead = "use backend cpu (of ranks: with another comm than nccl)" };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const mox_cuda_table *found, *replaced;
static mox_module library;
static moxie_error failure;

/* The table of the open library. */
static moxie_status take_table(void)
{
    const mox_cuda_table *table = mox_module_table(&library, MOX_CUDA_TABLE_SYMBOL);
    MOX_FAIL_IF(table == NULL, MOXIE_ERR_UNSUPPORTED, &failure,
                "%s has no " MOX_CUDA_TABLE_SYMBOL ": it is no libmoxie_cuda", library.path);
    MOX_FAIL_IF(table->version != MOX_CUDA_TABLE_VERSION || table->bytes != sizeof *table + MOX_CUDA_ARGS_BYTES,
                MOXIE_ERR_UNSUPPORTED, &failure,
                "%s has launch table %u of %u bytes, this libmoxie needs %u of %u: install both from one build",
                library.path, (unsigned)table->version, (unsigned)table->bytes, (unsigned)MOX_CUDA_TABLE_VERSION,
                (unsigned)(sizeof *table + MOX_CUDA_ARGS_BYTES));
    found = table;
    return MOXIE_OK;
}

static void find(void)
{
    if (mox_module_open(&name, &library, &failure) == MOXIE_OK && take_table() != MOXIE_OK)
        dlclose(library.handle);
}

moxie_status mox_cuda_open(const mox_cuda_table **out, moxie_error *error)
{
    if (replaced != NULL) {
        *out = replaced;
        return MOXIE_OK;
    }
    pthread_once(&once, find);
    if (found == NULL) {
        if (error != NULL)
            *error = failure;
        return MOXIE_ERR_UNSUPPORTED;
    }
    *out = found;
    return MOXIE_OK;
}

const char *mox_cuda_library(void)
{
    return found != NULL ? library.path : "";
}

moxie_status mox_cuda_any_device(const mox_cuda_table *table, int32_t ordinal, mox_cuda_features *out,
                                 moxie_error *error)
{
    int32_t devices = 0;
    mox_cuda_features f;
    MOX_TRY(table->count(&devices, error));
    MOX_FAIL_IF(ordinal < 0 || ordinal >= devices, MOXIE_ERR_UNSUPPORTED, error,
                "CUDA device %d was asked for; this machine has %d", (int)ordinal, (int)devices);
    MOX_TRY(table->features(ordinal, &f, error));
    mox_make_printable(f.name, sizeof f.name);
    f.flags = mox_cuda_flags_of(f.sm);
    *out = f;
    return MOXIE_OK;
}

moxie_status mox_cuda_device(const mox_cuda_table *table, int32_t ordinal, mox_cuda_features *out, moxie_error *error)
{
    mox_cuda_features f;
    MOX_TRY(mox_cuda_any_device(table, ordinal, &f, error));
    MOX_FAIL_IF(!(f.flags & MOX_CUDA_MMA_BF16), MOXIE_ERR_UNSUPPORTED, error,
                "CUDA device %d is %s (sm_%d); moxie runs on sm_80 and later", (int)ordinal, f.name, (int)f.sm);
    *out = f;
    return MOXIE_OK;
}

void mox_cuda_replace(const mox_cuda_table *table)
{
    replaced = table;
}
