/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_loader.c - finds libmoxie_cuda.so, checks that its table is of this build, and never closes it: its kernels may
 * run until the process ends.
 */
#include "cuda/cuda_loader.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libmoxie_cuda.so"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const mox_cuda_table *found, *replaced;
static char library[1024];
static moxie_error failure;

/* The table of an open library; or NULL, and `failure` says why. */
static const mox_cuda_table *table_of(void *handle)
{
    mox_cuda_table_fn get;
    void *symbol = dlsym(handle, MOX_CUDA_TABLE_SYMBOL);
    if (symbol == NULL) {
        mox_fail(MOXIE_ERR_UNSUPPORTED, &failure, "%s has no " MOX_CUDA_TABLE_SYMBOL ": it is no libmoxie_cuda",
                 library);
        return NULL;
    }
    memcpy(&get, &symbol, sizeof get); /* C has no cast from object to function pointers */
    const mox_cuda_table *table = get();
    if (table->version == MOX_CUDA_TABLE_VERSION && table->bytes == sizeof *table + MOX_CUDA_ARGS_BYTES)
        return table;
    mox_fail(MOXIE_ERR_UNSUPPORTED, &failure,
             "%s has launch table %u of %u bytes, this libmoxie needs %u of %u: install both from one build", library,
             (unsigned)table->version, (unsigned)table->bytes, (unsigned)MOX_CUDA_TABLE_VERSION,
             (unsigned)(sizeof *table + MOX_CUDA_ARGS_BYTES));
    return NULL;
}

static bool try_path(const char *path)
{
    snprintf(library, sizeof library, "%s", path);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return false;
    found = table_of(handle);
    if (found == NULL)
        dlclose(handle);
    return true;
}

/* Writes the path of LIBRARY in the folder of the file that this code was loaded from. */
static bool beside(char *path, size_t size)
{
    Dl_info info;
    if (!dladdr((const void *)&once, &info) || info.dli_fname == NULL)
        return false;
    const char *slash = strrchr(info.dli_fname, '/');
    if (slash == NULL)
        return false;
    const int length = (int)(slash - info.dli_fname);
    return snprintf(path, size, "%.*s/" LIBRARY, length, info.dli_fname) < (int)size;
}

static void find(void)
{
    /* secure_getenv: in a set-user-ID program, its caller must not choose code to load. */
    const char *wanted = secure_getenv("MOXIE_CUDA_LIBRARY");
    char path[1024];
    if (wanted != NULL && *wanted != '\0') {
        if (!try_path(wanted))
            mox_fail(MOXIE_ERR_UNSUPPORTED, &failure,
                     "MOXIE_CUDA_LIBRARY is %s, which cannot be opened: %s; correct it, unset it, or use backend cpu",
                     wanted, dlerror());
        return;
    }
    if ((beside(path, sizeof path) && try_path(path)) || try_path(LIBRARY))
        return;
    mox_fail(MOXIE_ERR_UNSUPPORTED, &failure,
             "the cuda back end needs " LIBRARY ", which is neither beside libmoxie nor on the loader's path (%s): "
             "build it with -DMOXIE_CUDA=ON, name it in MOXIE_CUDA_LIBRARY, or use backend cpu",
             dlerror());
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
    return found != NULL ? library : "";
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
