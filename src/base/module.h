/* SPDX-License-Identifier: Apache-2.0
 *
 * module.h - finds a shared library that is opened at run time: libmoxie_cuda, the modules of transports.
 *
 *     an environment variable (a path; nothing else is tried) -> beside libmoxie -> the loader's own path
 *
 * A set-user-ID program reads no variable: its caller must not choose code to load.
 */
#ifndef MOX_BASE_MODULE_H
#define MOX_BASE_MODULE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct mox_module_name {
    const char *file, *variable;
    /* For errors: "NEEDED_BY needs FILE ...: build it with BUILD, name it in VARIABLE, or INSTEAD". */
    const char *needed_by, *build, *instead;
} mox_module_name;

typedef struct mox_module {
    char path[1024]; /* what was opened, or tried last */
    void *handle;    /* of dlopen; stays open, since code of it may run until the process ends */
} mox_module;

/* Opens the file; or MOXIE_ERR_UNSUPPORTED, with where it was searched and why that failed. Thread-safe. */
moxie_status mox_module_open(const mox_module_name *name, mox_module *out, moxie_error *error);

/* True where mox_module_open would find a file. It is not opened if it lies where it should. Thread-safe. */
bool mox_module_exists(const mox_module_name *name);

/* What `symbol`, a function without arguments, returns; NULL when the module has no such symbol. */
const void *mox_module_table(const mox_module *module, const char *symbol);

#endif
