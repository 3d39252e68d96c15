/* SPDX-License-Identifier: Apache-2.0
 *
 * module.c - searches and opens a shared library at run time (module.h).
 */
#include "base/module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool try_path(const char *path, mox_module *out)
{
    snprintf(out->path, sizeof out->path, "%s", path);
    out->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return out->handle != NULL;
}

/* Writes the path of `file` in the folder of the file that this code was loaded from. */
static bool beside(const char *file, char *path, size_t size)
{
    static const char here;
    Dl_info info;
    if (!dladdr(&here, &info) || info.dli_fname == NULL)
        return false;
    const char *slash = strrchr(info.dli_fname, '/');
    if (slash == NULL)
        return false;
    const int length = (int)(slash - info.dli_fname);
    return snprintf(path, size, "%.*s/%s", length, info.dli_fname, file) < (int)size;
}

moxie_status mox_module_open(const mox_module_name *name, mox_module *out, moxie_error *error)
{
    const char *wanted = secure_getenv(name->variable);
    char path[sizeof out->path];
    if (wanted != NULL && *wanted != '\0') {
        MOX_FAIL_IF(!try_path(wanted, out), MOXIE_ERR_UNSUPPORTED, error,
                    "%s is %s, which cannot be opened: %s; correct it, unset it, or %s", name->variable, wanted,
                    dlerror(), name->instead);
        return MOXIE_OK;
    }
    MOX_FAIL_IF(
        !(beside(name->file, path, sizeof path) && try_path(path, out)) && !try_path(name->file, out),
        MOXIE_ERR_UNSUPPORTED, error,
        "%s needs %s, which is neither beside libmoxie nor on the loader's path (%s): build it with %s, name it "
        "in %s, or %s",
        name->needed_by, name->file, dlerror(), name->build, name->variable, name->instead);
    return MOXIE_OK;
}

bool mox_module_exists(const mox_module_name *name)
{
    const char *wanted = secure_getenv(name->variable);
    char path[1024];
    if (wanted != NULL && *wanted != '\0')
        return access(wanted, R_OK) == 0;
    if (beside(name->file, path, sizeof path) && access(path, R_OK) == 0)
        return true;
    void *handle = dlopen(name->file, RTLD_LAZY | RTLD_LOCAL);
    if (handle != NULL)
        dlclose(handle);
    return handle != NULL;
}

const void *mox_module_table(const mox_module *module, const char *symbol)
{
    const void *(*get)(void);
    void *found = dlsym(module->handle, symbol);
    if (found == NULL)
        return NULL;
    memcpy(&get, &found, sizeof get); /* C has no cast from object to function pointers */
    return get();
}
